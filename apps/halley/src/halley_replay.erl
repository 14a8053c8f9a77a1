%% A replay: what one user missed, in order.
%%
%% It begins with the cursor that a client brought and is asked for batches, each up to a vector
%% that the log has written (`halley_history:written/0', or heads that were waited for). Whoever
%% asks frames them, paces them, and opens the session in time (docs/internals/delivery.md,
%% "Coming back").
%%
%% It works in passes. A pass takes what the user follows now, and what it has unfollowed since its
%% cursor, walks the chain of each of these subjects, and keeps the oldest few thousand of the seqs
%% found there; they are read as the batches need them. The follows are read anew in each pass, so
%% a subject that is followed while the replay runs is in it from there on. They are read before
%% the unfollows: an unfollow is in the history before it takes effect, so a subject that is missing
%% among the first is found among the second.
%%
%% Invariants: every event up to `vector', of what the user followed, was given. An event's own
%% cursor is the vector of the moment behind it, so who leaves in the middle misses nothing. Events
%% come in ascending seqs within a pass, and a pass begins above the one before it, so those about
%% one subject are in order. Nothing above the vector that was asked for is ever given: it comes
%% live.
%%
%% A gap stands where it is: events before it were given, those behind it follow.
%%
%% It holds no process and no file: what it reads with is lent to it.
-module(halley_replay).

-export([new/2, next/6, cursor/1, vector/1]).
-export_type([replay/0, gap/0, limits/0, take/1]).

%% Candidates that a pass keeps.
-define(PASS_EVENTS_MAX, 4096).
%% What an event takes in a frame beyond its record.
-define(ITEM_BYTES, 64).
-define(FOLLOWING_PAGE, 1000).
%% For so long two events are on their way beside each other: a cursor that has the later one may
%% lack the earlier one.
-define(UNDER_WAY_MS, 2000).

-record(pass, {up_to :: halley_cursor:vector(),
               %% Passing a seq in between takes all shards there.
               plain_from :: halley_cursor:seq(),
               plain_to :: halley_cursor:seq(),
               %% Ascending. What comes from the chain of a subject may be about another one, or a
               %% gap is at this place.
               candidates :: [{halley_cursor:seq(), halley_id:id() | gap()}],
               %% Where the vector is when the candidates are used up.
               ends_at :: halley_cursor:vector()}).
-record(replay, {user :: halley_id:id(),
                 vector :: halley_cursor:vector(),
                 at :: non_neg_integer(),      % seconds since 1970; for the next cursor
                 told = 0 :: halley_cursor:seq(),      % up to here damage was told
                 pass = none :: none | #pass{}}).
-opaque replay() :: #replay{}.
%% Milliseconds since 1970, 0 where nobody knows.
-type gap() :: #{from := non_neg_integer(), to := non_neg_integer(),
                 reason := malformed | other_store | too_old | damaged,
                 cursor => halley_cursor:token()}.
-type limits() :: #{events_max := pos_integer(), bytes_max := pos_integer()}.
%% The body is a part of a block of the log: who keeps it copies it (halley_history_record:body/1
%% and item/1 say what it holds).
-type take(Acc) :: fun((Body :: binary(), halley_cursor:token(), Acc) -> Acc).
-type reader() :: halley_history_reader:reader().

-record(batch, {take :: take(term()), acc :: term(), events_left :: integer(),
                bytes_left :: integer(), store :: halley_cursor:store(), reader :: reader()}).

%% A replay for the user of this cursor. With a gap it goes on behind it: from the oldest event
%% there is, or from now on.
-spec new(halley_id:id(), halley_cursor:token()) -> {ok, replay()} | {gap, gap(), replay()}.
new(User, Token) ->
    case halley_cursor:decode(Token) of
        {ok, #{store := Store, at := At, vector := Vector}} ->
            new(User, Store =:= halley_history:store(), At, Vector);
        error ->
            from_now(User, malformed, 0)
    end.

new(User, false, At, _) ->
    from_now(User, other_store, At * 1000);
new(User, true, At, Vector) ->
    %% Nobody was given what was never drawn.
    case halley_vector:largest(Vector) > halley_vector:largest(halley_history:heads()) of
        true -> from_now(User, malformed, 0);
        false -> above_floor(#replay{user = User, vector = Vector, at = At})
    end.

from_now(User, Reason, FromMs) ->
    %% An event in between is in the gap and in the replay, not in neither.
    BeforeMs = erlang:system_time(millisecond),
    Heads = halley_history:heads(),
    NowMs = erlang:system_time(millisecond),
    Replay = #replay{user = User, vector = Heads, at = BeforeMs div 1000},
    gap(#{from => FromMs, to => NowMs, reason => Reason}, Replay).

above_floor(#replay{vector = Vector, at = At} = Replay) ->
    Floor = halley_history:floor(),
    case halley_vector:smallest(Vector) >= Floor of
        true ->
            {ok, Replay};
        false ->
            #{floor_at := FloorMs} = halley_history:info(),
            FromMs = max(0, At * 1000 - ?UNDER_WAY_MS),
            gap(#{from => min(FromMs, FloorMs), to => FloorMs, reason => too_old},
                Replay#replay{vector = halley_vector:at_least(Floor, Vector), pass = none})
    end.

gap(#{reason := Reason} = Gap, Replay) ->
    halley_metrics:incr(counter(Reason)),
    {gap, Gap#{cursor => cursor(Replay)}, Replay}.

counter(too_old) -> gap_too_old;
counter(malformed) -> gap_malformed;
counter(other_store) -> gap_other_store;
counter(damaged) -> gap_damaged.

%% All that was given so far.
-spec vector(replay()) -> halley_cursor:vector().
vector(#replay{vector = Vector}) ->
    Vector.

-spec cursor(replay()) -> halley_cursor:token().
cursor(#replay{vector = Vector, at = At}) ->
    halley_cursor:encode(halley_history:store(), At, Vector).

%% The next events, oldest first, each given to `Take' with its cursor; at least one unless the
%% replay is `done' or meets a gap. `done': there is nothing more up to this vector. A gap comes
%% behind the events, and the replay goes on.
-spec next(replay(), UpTo :: halley_cursor:vector(), limits(), take(Acc), Acc, reader()) ->
    {Acc, more | done | {gap, gap()}, replay(), reader()}.
next(Replay, UpTo, #{events_max := EventsMax, bytes_max := BytesMax}, Take, Acc, Reader) ->
    Batch = #batch{take = Take, acc = Acc, events_left = EventsMax, bytes_left = BytesMax,
                   store = halley_history:store(), reader = Reader},
    {What, Next, #batch{acc = Taken, events_left = Left, reader = NextReader}} =
        fill(Replay, UpTo, Batch),
    Given = EventsMax - Left,
    Given =:= 0 orelse halley_metrics:incr(replayed_events, Given),
    {Taken, What, Next, NextReader}.

fill(#replay{pass = none} = Replay, UpTo, #batch{reader = Reader} = Batch) ->
    case halley_vector:is_reached(UpTo, Replay#replay.vector) of
        true ->
            {done, Replay, Batch};
        false ->
            case above_floor(Replay) of
                {ok, _} ->
                    {Started, NextReader} = start_pass(Replay, UpTo, Reader),
                    fill(Started, UpTo, Batch#batch{reader = NextReader});
                {gap, Gap, Next} ->
                    {{gap, Gap}, Next, Batch}
            end
    end;
fill(#replay{pass = #pass{candidates = Candidates, ends_at = EndsAt}} = Replay, UpTo, Batch) ->
    {Stopped, Left, Passed, Next} = take(Candidates, none, Replay, Batch),
    Given = passed(Passed, Left, Replay),
    case Stopped of
        used ->
            fill(Given#replay{vector = EndsAt, pass = none}, UpTo, Next);
        full ->
            {more, Given, Next};
        {gap, Seq, Gap} ->
            {gap, Told, Behind} = gap(Gap, passed({Seq, Given#replay.at}, tl(Left),
                                                  Given#replay{told = Seq})),
            {{gap, Told}, Behind, Next};
        {damaged, Seq} ->
            Gap = #{from => Given#replay.at * 1000, to => erlang:system_time(millisecond),
                    reason => damaged},
            {gap, Told, Behind} = gap(Gap, passed({Seq, Given#replay.at}, tl(Left), Given)),
            {{gap, Told}, Behind, Next};
        expired ->
            %% Retention was here in the meantime, and the next pass says so.
            fill(Given#replay{pass = none}, UpTo, Next)
    end.

%% `Passed': seq and second of the last event that was given.
take([], Passed, _, Batch) ->
    {used, [], Passed, Batch};
take(Left, Passed, _, #batch{events_left = EventsLeft, bytes_left = BytesLeft} = Batch)
  when EventsLeft =< 0; BytesLeft =< 0 ->
    {full, Left, Passed, Batch};
take([{Seq, Gap} | _] = Left, Passed, _, Batch) when is_map(Gap) ->
    {{gap, Seq, Gap}, Left, Passed, Batch};
take([{Seq, Subject} | Rest] = Left, Passed, Replay, #batch{reader = Reader} = Batch) ->
    case halley_history_reader:event(Seq, Subject, Reader) of
        {ok, AtMs, Body, Next} ->
            #batch{take = Take, acc = Acc, events_left = EventsLeft, bytes_left = BytesLeft,
                   store = Store} = Batch,
            At = AtMs div 1000,
            Cursor = halley_cursor:encode(Store, At, behind(Seq, Replay)),
            take(Rest, {Seq, At}, Replay,
                 Batch#batch{acc = Take(Body, Cursor, Acc), events_left = EventsLeft - 1,
                             bytes_left = BytesLeft - byte_size(Body) - ?ITEM_BYTES,
                             reader = Next});
        {other, Next} ->
            take(Rest, Passed, Replay, Batch#batch{reader = Next});
        {damaged, Next} ->
            {{damaged, Seq}, Left, Passed, Batch#batch{reader = Next}};
        {expired, Next} ->
            {expired, Left, Passed, Batch#batch{reader = Next}}
    end.

passed(none, Left, #replay{pass = Pass} = Replay) ->
    Replay#replay{pass = Pass#pass{candidates = Left}};
passed({Seq, At}, Left, #replay{pass = Pass} = Replay) ->
    Replay#replay{vector = behind(Seq, Replay), at = At, pass = Pass#pass{candidates = Left}}.

%% The vector when a seq of the pass has been passed.
behind(N, #replay{pass = #pass{plain_from = From, plain_to = To}}) when N >= From, N =< To ->
    {N, N, N, N, N, N, N, N};
behind(N, #replay{vector = Vector, pass = #pass{up_to = UpTo}}) ->
    halley_vector:advance(N, Vector, UpTo).

%% --- passes --------------------------------------------------------------------------------------

start_pass(#replay{user = User, vector = Vector, told = Told} = Replay, UpTo, Reader) ->
    Following = [User | following(User, start)],
    {Unfollowed, Next} = unfollowed(User, Following, Vector, Reader),
    Found = [candidates(Subject, Vector, UpTo, infinity) || Subject <- Following]
        ++ [candidates(Subject, Vector, UpTo, Last) || {Subject, Last} <- Unfollowed]
        ++ [damage(Vector, UpTo, Told)],
    %% A range may end at the seq of a good event, which stays before it: the gap's cursor says that
    %% everything up to there was given.
    {Kept, EndsAt} = oldest(lists:keysort(1, lists:append(Found)), Vector, UpTo),
    Pass = #pass{up_to = UpTo, candidates = Kept, ends_at = EndsAt,
                 plain_from = halley_vector:largest(Vector),
                 plain_to = halley_vector:smallest(UpTo)},
    {Replay#replay{pass = Pass}, Next}.

following(User, After) ->
    case halley_follows:following(User, After, ?FOLLOWING_PAGE) of
        {Subjects, done} -> Subjects;
        {Subjects, Next} -> Subjects ++ following(User, Next)
    end.

%% Subjects that the user followed at its cursor or later and doesn't follow now, each with the seq
%% of its last unfollow: up to there its events are the user's.
unfollowed(User, Following, Vector, Reader) ->
    case halley_history:unfollows(User, halley_vector:smallest(Vector)) of
        [] ->
            {[], Reader};
        Seqs ->
            {Last, Next} = lists:foldl(fun(Seq, Acc) -> unfollow(Seq, User, Acc) end,
                                       {#{}, Reader}, Seqs),
            {maps:to_list(maps:without(Following, Last)), Next}
    end.

%% Newest first, so the first one of a subject stays. One that can't be read is within what the
%% history knows as damaged, or expired.
unfollow(Seq, User, {Last, Reader}) ->
    case halley_history_reader:read(Seq, Reader) of
        {ok, #{kind := unfollow, subject := User, id := Subject}, Next}
          when not is_map_key(Subject, Last) ->
            {Last#{Subject => Seq}, Next};
        {ok, _, Next} ->
            {Last, Next};
        {_, Next} ->
            {Last, Next}
    end.

candidates(Subject, Vector, UpTo, Last) ->
    Shard = halley_shard:of_subject(Subject),
    case {element(Shard, Vector), min(Last, element(Shard, UpTo))} of
        {After, To} when After < To ->
            [{Seq, Subject} || Seq <- halley_history:chain(Subject, After, To)];
        _ ->
            []
    end.

%% A damaged range is told where it ends.
damage(Vector, UpTo, Told) ->
    [{To, #{from => FromMs, to => ToMs, reason => damaged}}
     || {From, To, FromMs, ToMs} <- halley_history_index:damaged(), To > Told,
        halley_vector:is_crossed(From, To, Vector, UpTo)].

%% Several chains may have the same seq, so the cut is made between seqs.
oldest(Sorted, Vector, UpTo) ->
    case length(Sorted) > ?PASS_EVENTS_MAX of
        false ->
            {Sorted, halley_vector:advance(halley_vector:largest(UpTo), Vector, UpTo)};
        true ->
            {Seq, _} = lists:nth(?PASS_EVENTS_MAX + 1, Sorted),
            Oldest = lists:sublist(Sorted, ?PASS_EVENTS_MAX),
            {[Candidate || {S, _} = Candidate <- Oldest, S < Seq],
             halley_vector:advance(Seq - 1, Vector, UpTo)}
    end.
