%% A replay: what one user missed, in order.
%%
%% It begins with the cursor that a client brought and returns batches, each up to a vector that the
%% log has written (`halley_history:written/0', or heads that were waited for). The caller frames
%% the batches, paces them, and opens the session in time (docs/internals/delivery.md, "Coming
%% back").
%%
%% It works in passes. A pass gathers the oldest few thousand of the seqs that may be the user's
%% (`halley_replay_gather'); they are read as the batches need them. The follows are read anew in
%% each pass, so a subject that is followed while the replay runs is in it from there on. A follow
%% counts from when it was made, whatever the cursor says.
%%
%% The work of one call is bounded as well, gathering and reading: `yield' means that it has nothing
%% to give yet and wants another call, after others. So all of it takes time in proportion to the
%% missed events, in small portions, and memory for one pass.
%%
%% Invariants: every event up to `vector', of what the user followed, was given. An event's own
%% cursor is the vector after it, so a client that leaves in the middle misses nothing. Events come
%% in ascending seqs within a pass, and a pass begins above the one before it, so those about one
%% subject are in order. Nothing above the requested vector is ever given: it comes live.
%%
%% An event about several subjects of the user is several candidates, of seqs one after the other,
%% and is given once: for the first, and the cursor is after the last of all its seqs.
%%
%% In place of a cursor a session may come with a wish for the newest events about what it is
%% subscribed to (`halley_replay_wish'). Then these are its first pass (`halley_replay_newest'), up
%% to where the session began, and the later passes are as any: events that its user follows are the
%% session's from its welcome on, however long it waits here, and whichever brain it waits for. The
%% cursor of each of them records the rest and where the session began, so a client that leaves in
%% the midst of them comes back to the others of them, and to nothing older.
%%
%% Events that are too old for their subjects (`halley_history_shown') are left out, and one gap
%% covers all of them, from the first that was met.
%%
%% A gap stands where it is: events before it were given, later ones follow. A damaged range is
%% reported before any event, and from the cursor's time on: it may have held an unfollow, and then
%% any event since the cursor may be missing.
%%
%% Another session of the same user, with the same or a later cursor, can use what a long gathering
%% found (`gathered/1', `offer/2'), while the user follows what it followed then: a follow counts
%% from the cursor on.
%%
%% It holds no process and no file: the caller lends it a reader.
-module(halley_replay).

-export([new/2, new/3, next/6, cursor/1, vector/1, gathered/1, offer/2]).
-export_type([replay/0, limits/0, take/1, gathered/0]).

%% What an event takes in a frame beyond its record.
-define(ITEM_BYTES, 64).
%% Candidates that are looked at in one call: some may be about a stranger's subject.
-define(READS_MAX, 1024).

-record(pass, {up_to :: halley_cursor:vector(),
               %% Passing a seq in between takes all shards there.
               plain_from :: halley_cursor:seq(),
               plain_to :: halley_cursor:seq(),
               %% Ascending, behind what is to be told first. What comes from the chain of a
               %% subject may be about another one.
               candidates :: [halley_cursor:gap() | {kept, Body :: binary()}
                              | halley_replay_gather:candidate()],
               %% Where the vector is when the candidates are used up.
               ends_at :: halley_cursor:vector()}).
%% All of a pass from a vector to another, as far as it goes.
-record(gathered, {user :: halley_id:id(),
                   from :: halley_cursor:vector(),
                   up_to :: halley_cursor:vector(),
                   follows :: halley_replay_gather:follows(),
                   bound :: halley_cursor:seq(),
                   candidates :: [halley_replay_gather:candidate()],
                   unfollowed :: halley_replay_gather:unfollowed()}).
-record(replay, {whose :: {halley_replay_gather:user(), none | session()},
                 vector :: halley_cursor:vector(),
                 at :: non_neg_integer(),      % seconds since 1970; for the next cursor
                 since :: non_neg_integer(),   % what the cursor lacked is no older; milliseconds
                 told = 0 :: halley_cursor:seq(),      % up to here damaged ranges were told
                 old = 0 :: non_neg_integer(),         % up to when what is too old for its subject
                 %% Until the newest events were given.
                 wish = none :: none | halley_replay_wish:wish(),
                 unfollowed = none :: none | halley_replay_gather:unfollowed(),
                 %% What a pass found that took long to gather, or what another replay found.
                 shared = none :: none | {found | offered, #gathered{}},
                 pass = none :: none | {searching, UpTo :: halley_cursor:vector(), search()}
                                     | #pass{}}).
%% For the candidates of a pass: for the newest that are wished, or for what was missed.
-type search() :: {newest, halley_replay_newest:newest()} | {missed, halley_replay_gather:gather()}.
%% Of which `halley_subscriptions' knows what it is subscribed to.
-type session() :: {halley_links:slot(), halley_directory:conn()}.
-opaque replay() :: #replay{}.
-opaque gathered() :: #gathered{}.
-type limits() :: #{events_max := pos_integer(), bytes_max := pos_integer()}.
%% The body is a part of a block of the log: a caller that keeps it must copy it
%% (halley_history_record:body/1 and item/1 say what it holds).
-type take(Acc) :: fun((Body :: binary(), halley_cursor:token(), Acc) -> Acc).
-type reader() :: halley_history_reader:reader().

-record(batch, {take :: take(term()), acc :: term(), events_left :: integer(),
                bytes_left :: integer(), reads_left = ?READS_MAX :: integer(),
                store :: halley_cursor:store(), reader :: reader()}).

%% A replay for the user of this cursor. With a gap it goes on behind it: from the oldest event
%% there is, or from now on.
-spec new(halley_id:id(), halley_cursor:token()) ->
    {ok, replay()} | {gap, halley_cursor:gap(), replay()}.
new(User, Token) ->
    new(User, none, Token).

%% The same for a session that may be subscribed to something. That is read anew in each pass.
-spec new(halley_replay_gather:user(), none | session(), halley_cursor:token()) ->
    {ok, replay()} | {gap, halley_cursor:gap(), replay()}.
new(User, Session, Token) ->
    Whose = {User, Session},
    case halley_replay_wish:read(Token) of
        none -> since(Whose, Token, fun(Vector) -> Vector end);
        {ok, Wish, none} -> {ok, wished(Wish, from_here(Whose))};
        {ok, Wish, Behind} ->
            Oldest = halley_replay_point:oldest(User),
            began(Wish, since(Whose, Behind, fun(Vector) -> lifted(Oldest, Vector) end));
        malformed -> from_now(Whose, malformed, 0)
    end.

since(Whose, Token, Lift) ->
    case halley_history:cursor(Token) of
        {ok, #{store := Store, at := At, vector := Vector}} ->
            new(Whose, Store =:= halley_history:store(), At, Lift(Vector));
        error ->
            from_now(Whose, malformed, 0)
    end.

%% Of heads a quiet shard's part may be below what was gone by then: nothing is missing there.
lifted(Oldest, Vector) ->
    case halley_vector:largest(Vector) >= Oldest of
        true -> halley_vector:at_least(Oldest, Vector);
        false -> Vector
    end.

new(Whose, false, At, _) ->
    from_now(Whose, other_store, At * 1000);
new(Whose, true, At, Vector) ->
    %% Nobody was given what was never drawn. A gap's cursor may be above all heads: what hides a
    %% user's past is in no shard's order, nor is a follow, behind which the floor can be.
    case halley_vector:largest(Vector) > halley_history:drawn() of
        true -> ahead(halley_order:whose(), Whose, At, Vector);
        false -> above_forgotten(#replay{whose = Whose, vector = Vector, at = At,
                                         since = halley_cursor:lacks_since_ms(At)})
    end.

%% In a log of several brains another one may have given events that this one gets only now. They
%% come again.
ahead(own, Whose, _, _) -> from_now(Whose, malformed, 0);
ahead(other, Whose, At, Vector) ->
    new(Whose, true, At, halley_vector:lowest(Vector, halley_history:heads())).

%% Nothing was missed so far.
from_here(Whose) ->
    NowMs = halley_clock:wall_ms(),
    #replay{whose = Whose, vector = halley_history:written(), at = NowMs div 1000, since = NowMs,
            old = NowMs}.

%% The session began behind this cursor, whatever became of that. Of what was too old for its
%% subject by then nothing is told.
began(Wish, {ok, #replay{at = At} = Replay}) ->
    {ok, wished(Wish, Replay#replay{old = At * 1000})};
began(Wish, {gap, #{reason := too_old} = Gap, #replay{at = At} = Replay}) ->
    Wished = wished(Wish, Replay#replay{old = At * 1000}),
    {gap, Gap#{cursor := cursor(Wished)}, Wished};
began(_, {gap, _, _} = FromNow) ->
    FromNow.

%% Up to where the session began, as far as that is written.
wished(Wish, #replay{whose = {User, _}, vector = Vector, at = At} = Replay) ->
    Began = halley_vector:at_least(halley_replay_point:oldest(User),
                                   halley_vector:lowest(Vector, halley_history:written())),
    Behind = halley_cursor:encode(halley_history:store(), At, Began),
    Count = min(halley_replay_wish:count(Wish), halley_limits:get(last_events_max)),
    Newest = halley_replay_newest:new(subscribed(Replay), Count, Began),
    Replay#replay{vector = Began, wish = halley_replay_wish:behind(Behind, Wish),
                  pass = {searching, Began, {newest, Newest}}}.

%% What a user missed before it was forgotten is as if retention had taken it.
above_forgotten(#replay{whose = {User, _}, vector = Vector, since = SinceMs} = Replay) ->
    Forgotten = halley_replay_point:forgotten(User),
    case halley_vector:smallest(Vector) >= Forgotten of
        true ->
            above_floor(Replay);
        false ->
            gap(#{from => SinceMs, to => halley_clock:wall_ms(), reason => too_old},
                Replay#replay{vector = halley_vector:at_least(Forgotten, Vector)})
    end.

from_now(Whose, Reason, FromMs) ->
    %% An event in between is in the gap and in the replay, not in neither.
    BeforeMs = halley_clock:wall_ms(),
    Heads = halley_history:heads(),
    NowMs = halley_clock:wall_ms(),
    Replay = #replay{whose = Whose, vector = Heads, at = BeforeMs div 1000, since = BeforeMs},
    gap(#{from => FromMs, to => NowMs, reason => Reason}, Replay).

above_floor(#replay{vector = Vector, since = SinceMs} = Replay) ->
    Floor = halley_history:floor(),
    case halley_vector:smallest(Vector) >= Floor of
        true ->
            {ok, Replay};
        false ->
            #{floor_at := FloorMs} = halley_history:info(),
            gap(#{from => min(SinceMs, FloorMs), to => FloorMs, reason => too_old},
                Replay#replay{vector = halley_vector:at_least(Floor, Vector), pass = none})
    end.

%% A clock that was set back in between turns no gap round.
gap(#{from := FromMs, to := ToMs, reason := Reason} = Gap, Replay) ->
    halley_metrics:incr(counter(Reason)),
    {gap, Gap#{from := min(FromMs, ToMs), cursor => cursor(Replay)}, Replay}.

counter(too_old) -> gap_too_old;
counter(malformed) -> gap_malformed;
counter(other_store) -> gap_other_store;
counter(damaged) -> gap_damaged.

%% All that was given so far.
-spec vector(replay()) -> halley_cursor:vector().
vector(#replay{vector = Vector}) ->
    Vector.

-spec cursor(replay()) -> halley_cursor:token().
cursor(#replay{wish = none, vector = Vector, at = At}) ->
    halley_cursor:encode(halley_history:store(), At, Vector);
cursor(#replay{wish = Wish}) ->
    halley_replay_wish:token(Wish).

%% What was gathered since the last call, if that took long. It takes as much memory as the replay.
-spec gathered(replay()) -> {none | gathered(), replay()}.
gathered(#replay{shared = {found, Gathered}} = Replay) ->
    {Gathered, Replay#replay{shared = none}};
gathered(Replay) ->
    {none, Replay}.

%% For a replay of the same user that has given nothing yet: it begins with what another one has
%% gathered, if that has all that it needs.
-spec offer(gathered(), replay()) -> replay().
offer(#gathered{user = User} = Gathered, #replay{whose = {User, _}, pass = none} = Replay) ->
    Replay#replay{shared = {offered, Gathered}};
offer(_, Replay) ->
    Replay.

%% The next events, oldest first, each given to `Take' with its cursor. `more': at least one was
%% given. `yield': none yet, and others that wait should have a turn before the next call. `done':
%% there is nothing more up to this vector. A gap comes behind the events, and the replay goes on.
-spec next(replay(), UpTo :: halley_cursor:vector(), limits(), take(Acc), Acc, reader()) ->
    {Acc, more | yield | done | {gap, halley_cursor:gap()}, replay(), reader()}.
next(Replay, UpTo, #{events_max := EventsMax, bytes_max := BytesMax}, Take, Acc, Reader) ->
    Batch = #batch{take = Take, acc = Acc, events_left = EventsMax, bytes_left = BytesMax,
                   store = halley_history:store(), reader = Reader},
    {What, Next, #batch{acc = Taken, events_left = Left, reader = NextReader}} =
        fill(Replay, UpTo, Batch),
    Given = EventsMax - Left,
    Given =:= 0 orelse halley_metrics:incr(replayed_events, Given),
    {Taken, case {What, Given} of {more, 0} -> yield; _ -> What end, Next, NextReader}.

fill(#replay{pass = none} = Replay, UpTo, Batch) ->
    case halley_vector:is_reached(UpTo, Replay#replay.vector) of
        true ->
            {done, Replay#replay{unfollowed = none}, Batch};
        false ->
            case above_floor(Replay) of
                {ok, _} ->
                    begin_pass(Replay, UpTo, Batch);
                {gap, Gap, Next} ->
                    {{gap, Gap}, Next, Batch}
            end
    end;
fill(#replay{pass = {searching, PassUpTo, Search}} = Replay, UpTo,
     #batch{reader = Reader} = Batch) ->
    {What, Next, Later} = search(Search, PassUpTo, Replay, Reader),
    case What of
        more -> {more, Next, Batch#batch{reader = Later}};
        found -> fill(Next, UpTo, Batch#batch{reader = Later})
    end;
fill(#replay{pass = #pass{candidates = Candidates, ends_at = EndsAt}} = Replay, UpTo, Batch) ->
    {Stopped, Left, Passed, Next} = take(Candidates, none, Replay, Batch),
    Given = passed(Passed, Left, Replay),
    case Stopped of
        used ->
            fill(Given#replay{vector = further(EndsAt, Given#replay.vector), wish = none,
                              pass = none}, UpTo, Next);
        full ->
            {more, Given, Next};
        {gap, Gap} ->
            {gap, Told, Behind} = gap(Gap, passed(none, tl(Left), Given)),
            {{gap, Told}, Behind, Next};
        {old, AtMs} ->
            %% One gap for all that is too old now, of whatever subjects.
            ToMs = max(AtMs, halley_history_shown:latest()),
            {gap, Told, Behind} = gap(#{from => AtMs, to => ToMs, reason => too_old},
                                      passed(none, tl(Left), Given#replay{old = ToMs})),
            {{gap, Told}, Behind, Next};
        {damaged, Seq} ->
            Gap = damage_since(halley_cursor:lacks_since_ms(Given#replay.at)),
            {gap, Told, Behind} = gap(Gap, passed({Seq, Given#replay.at}, tl(Left), Given)),
            {{gap, Told}, Behind, Next};
        expired ->
            %% Retention was here in the meantime, and the next pass says so.
            fill(Given#replay{pass = none}, UpTo, Next)
    end.

%% `Passed': seq and second of the last event that was given.
take([], Passed, _, Batch) ->
    {used, [], Passed, Batch};
take(Left, Passed, _, #batch{events_left = EventsLeft, bytes_left = BytesLeft,
                             reads_left = ReadsLeft} = Batch)
  when EventsLeft =< 0; BytesLeft =< 0; ReadsLeft =< 0 ->
    {full, Left, Passed, Batch};
take([{kept, Body} | Rest], Passed, Replay, #batch{take = Take, acc = Acc} = Batch) ->
    %% It has no place among seqs: who leaves behind it comes back to all of the newest.
    Given = Take(Body, cursor(none, Rest, Replay, Batch#batch.store), Acc),
    take(Rest, Passed, Replay,
         Batch#batch{acc = Given, events_left = Batch#batch.events_left - 1,
                     bytes_left = Batch#batch.bytes_left - byte_size(Body) - ?ITEM_BYTES});
take([#{} = Gap | _] = Left, Passed, _, Batch) ->
    {{gap, Gap}, Left, Passed, Batch};
take([{Seq, Subject} | Rest] = Left, Passed, Replay,
     #batch{reader = Reader, reads_left = ReadsLeft} = Batch) ->
    case halley_history_reader:event(Seq, Subject, Reader) of
        {ok, AtMs, Body, Next} ->
            #batch{take = Take, acc = Acc, events_left = EventsLeft, bytes_left = BytesLeft,
                   store = Store} = Batch,
            At = AtMs div 1000,
            {Last, Others} = others(Subject, Seq, Body, Rest),
            Cursor = cursor({Last, At}, Others, Replay, Store),
            take(Others, {Last, At}, Replay,
                 Batch#batch{acc = Take(Body, Cursor, Acc), events_left = EventsLeft - 1,
                             bytes_left = BytesLeft - byte_size(Body) - ?ITEM_BYTES,
                             reads_left = ReadsLeft - 1, reader = Next});
        {other, Next} ->
            take(Rest, Passed, Replay, Batch#batch{reads_left = ReadsLeft - 1, reader = Next});
        {{old, AtMs}, Next} when AtMs =< Replay#replay.old ->
            take(Rest, Passed, Replay, Batch#batch{reads_left = ReadsLeft - 1, reader = Next});
        {{old, AtMs}, Next} ->
            {{old, AtMs}, Left, Passed, Batch#batch{reader = Next}};
        {damaged, Next} ->
            {{damaged, Seq}, Left, Passed, Batch#batch{reader = Next}};
        {expired, Next} when Replay#replay.wish =:= none ->
            {expired, Left, Passed, Batch#batch{reader = Next}};
        {expired, Next} ->
            take(Rest, Passed, Replay, Batch#batch{reads_left = ReadsLeft - 1, reader = Next})
    end.

%% The cursor of what was just given, by which these candidates are left.
cursor({Seq, At}, _, #replay{wish = none} = Replay, Store) ->
    halley_cursor:encode(Store, At, behind(Seq, Replay));
cursor(none, [], #replay{at = At, pass = #pass{ends_at = EndsAt}}, Store) ->
    halley_cursor:encode(Store, At, EndsAt);
cursor({Seq, _}, [], #replay{at = At, pass = #pass{ends_at = EndsAt}} = Replay, Store) ->
    halley_cursor:encode(Store, At, further(EndsAt, behind(Seq, Replay)));
cursor(none, _, Replay, _) ->
    cursor(Replay);
cursor({Seq, _}, _, #replay{wish = Wish}, _) ->
    halley_replay_wish:token(halley_replay_wish:given(Seq, Wish)).

%% Its last seq, and the candidates above that.
others({in, _, _}, _, Body, Candidates) ->
    {_, Last, _, _, _, _, _} = halley_history_record:item(Body),
    {Last, lists:dropwhile(fun({Seq, _}) -> Seq =< Last; (_) -> false end, Candidates)};
others(_, Seq, _, Candidates) ->
    {Seq, Candidates}.

%% A joint event may reach beyond the pass.
further(EndsAt, Vector) ->
    case halley_vector:is_reached(EndsAt, Vector) of
        true -> Vector;
        false -> EndsAt
    end.

passed(none, Left, #replay{pass = Pass} = Replay) ->
    Replay#replay{pass = Pass#pass{candidates = Left}};
passed({Seq, At}, Left, #replay{wish = none, pass = Pass} = Replay) ->
    Replay#replay{vector = behind(Seq, Replay), at = At, pass = Pass#pass{candidates = Left}};
passed({Seq, _}, Left, #replay{wish = Wish, pass = Pass} = Replay) ->
    Replay#replay{vector = behind(Seq, Replay), wish = halley_replay_wish:given(Seq, Wish),
                  pass = Pass#pass{candidates = Left}}.

%% The vector when a seq of the pass has been passed.
behind(N, #replay{pass = #pass{plain_from = From, plain_to = To}}) when N >= From, N =< To ->
    {N, N, N, N, N, N, N, N};
behind(N, #replay{vector = Vector, pass = #pass{up_to = UpTo}}) ->
    halley_vector:advance(N, Vector, UpTo).

%% --- passes --------------------------------------------------------------------------------------

begin_pass(#replay{shared = {offered, Offer}} = Replay, UpTo, Batch) ->
    #gathered{up_to = PassUpTo, bound = Bound, candidates = Candidates,
              unfollowed = Unfollowed} = Offer,
    case is_good(Offer, Replay, UpTo) of
        true ->
            Above = halley_replay_gather:above(Replay#replay.vector, Candidates),
            Next = Replay#replay{shared = none, unfollowed = Unfollowed},
            fill(start_pass(Above, Bound, PassUpTo, false, Next), UpTo, Batch);
        false ->
            begin_pass(Replay#replay{shared = none}, UpTo, Batch)
    end;
begin_pass(#replay{whose = {User, _}, vector = Vector, unfollowed = Unfollowed} = Replay, UpTo,
           Batch) ->
    Gather = halley_replay_gather:new(User, subscribed(Replay), Vector, UpTo, Unfollowed),
    fill(Replay#replay{pass = {searching, UpTo, {missed, Gather}}}, UpTo, Batch).

subscribed(#replay{whose = {_, none}}) -> [];
subscribed(#replay{whose = {_, {Slot, Conn}}}) -> halley_subscriptions:subjects(Slot, Conn).

%% It is of follows alone, as this one is; its beginning isn't above this one, its end isn't above
%% what was asked for, and something in between is new.
is_good(#gathered{from = From, up_to = PassUpTo, bound = Bound, follows = Follows},
        #replay{whose = {User, _}, vector = Vector} = Replay, UpTo) ->
    subscribed(Replay) =:= []
        andalso halley_vector:is_reached(From, Vector)
        andalso halley_vector:is_reached(PassUpTo, UpTo)
        andalso Bound > halley_vector:smallest(Vector)
        andalso halley_replay_gather:is_current(Follows, User).

%% One slice. `more': others should have a turn before the next one.
search({newest, Newest}, PassUpTo, Replay, Reader) ->
    case halley_replay_newest:work(Newest, Reader) of
        {more, Later, Next} ->
            {more, Replay#replay{pass = {searching, PassUpTo, {newest, Later}}}, Next};
        {done, Candidates, Next} ->
            {found, newest_pass(Candidates, Replay), Next}
    end;
search({missed, Gather}, PassUpTo, Replay, Reader) ->
    case halley_replay_gather:work(Gather, Reader) of
        {more, Later, Next} ->
            {more, Replay#replay{pass = {searching, PassUpTo, {missed, Later}}}, Next};
        {done, Candidates, Bound, Later, Next} ->
            {What, Pass} = gathered(Candidates, Bound, Later, PassUpTo, Replay),
            {What, Pass, Next}
    end.

gathered(Candidates, Bound, Gather, PassUpTo, Replay) ->
    IsLacking = halley_replay_gather:is_lacking(Gather),
    Shared = case IsLacking of
        true -> none;
        false -> found(halley_replay_gather:follows(Gather), PassUpTo, Candidates, Bound, Gather,
                       Replay)
    end,
    Found = Replay#replay{unfollowed = halley_replay_gather:unfollowed(Gather), shared = Shared},
    Pass = start_pass(Candidates, Bound, PassUpTo, IsLacking, Found),
    case Candidates =:= [] andalso Bound < halley_vector:largest(PassUpTo) of
        %% Much was found and none of it is the user's: a pass of its own is enough.
        true -> {more, Pass};
        false -> {found, Pass}
    end.

found(unknown, _, _, _, _, _) ->
    none;
found({known, Follows}, PassUpTo, Candidates, Bound, Gather,
      #replay{whose = {User, _}, vector = From}) ->
    {found, #gathered{user = User, from = From, up_to = PassUpTo, follows = Follows, bound = Bound,
                      candidates = Candidates,
                      unfollowed = halley_replay_gather:unfollowed(Gather)}}.

%% What retention took while the pass was gathered isn't among the candidates: then the next one
%% begins with the gap.
start_pass(Candidates, Bound, UpTo, IsLacking, #replay{vector = Vector} = Replay) ->
    case halley_vector:smallest(Vector) >= halley_history:floor() of
        true ->
            {Gaps, Told} = damage(UpTo, IsLacking, Replay),
            EndsAt = halley_vector:advance(Bound, Vector, UpTo),
            Replay#replay{told = Told, pass = pass(Gaps ++ Candidates, Vector, UpTo, EndsAt)};
        false ->
            Replay#replay{pass = none}
    end.

%% From below the oldest of them to where the session is when it has them all.
newest_pass(Candidates, #replay{wish = Wish, vector = UpTo} = Replay) ->
    case halley_replay_newest:left(Candidates, halley_replay_wish:given(Wish), subscribed(Replay),
                                   UpTo) of
        {[], _} ->
            Replay#replay{wish = none, pass = none};
        {Left, Below} ->
            Begun = Replay#replay{vector = Below},
            {Gaps, Told} = damage(UpTo, false, Begun),
            Begun#replay{told = Told, pass = pass(Gaps ++ Left, Below, UpTo, UpTo)}
    end.

pass(Candidates, Vector, UpTo, EndsAt) ->
    #pass{up_to = UpTo, candidates = Candidates, ends_at = EndsAt,
          plain_from = halley_vector:largest(Vector), plain_to = halley_vector:smallest(UpTo)}.

%% One gap for all that wasn't told yet.
damage(UpTo, IsLacking, #replay{vector = Vector, since = SinceMs, told = Told}) ->
    {Gaps, NowTold} = halley_history_damage:gap(Vector, UpTo, Told, SinceMs),
    case IsLacking of
        true -> {[damage_since(SinceMs)], NowTold};
        false -> {Gaps, NowTold}
    end.

damage_since(Ms) -> #{from => Ms, to => halley_clock:wall_ms(), reason => damaged}.
