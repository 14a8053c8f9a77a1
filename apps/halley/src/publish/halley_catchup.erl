%% The events that slots of a trunk have missed: after a sync, and when they were behind (link.md
%% 10.6).
%%
%% All events between two vectors, in ascending seqs, each fanned out to the sessions there only. So
%% the cost is that of the events, not of the sessions. The writer asks for one batch after the
%% other, each up to a vector that the log has written, and holds what comes live meanwhile.
%%
%% An event goes to users that follow its subject now, and to users that have unfollowed it since
%% and followed it when it was published. An unfollow is in the history before it takes effect, so
%% no follower is missed by both. The event doesn't go to users that follow only since then, as far
%% as the history knows (`halley_follows_since').
%%
%% It also goes to sessions that are subscribed to its subject now. A subscription that is younger
%% than the event may bring it: it was made on a link that was late.
%%
%% A private event goes to its users. Each has a seq of its own in it: those of them that are in a
%% batch get it together, and have it once, whatever batch they are in.
%%
%% A joint event goes to every user whom one of its subjects reaches. Wherever a batch ends, all of
%% its seqs are dealt with at once, so no session gets it twice.
%%
%% The changes of a subject's follows are read once for a catch-up, not for each of its events: the
%% caller keeps them from batch to batch (`halley_catchup_former').
%%
%% Gaps are for every session there, and told before the events of their batch. The caller
%% tells of ranges that the history knows as damaged, with `damage/4'.
%%
%% It holds no state and no file: the caller lends it a reader.
-module(halley_catchup).

-export([next/6, damage/4]).

-type vector() :: halley_cursor:vector().
-type reader() :: halley_history_reader:reader().
-record(batch, {there :: halley_fanout:there(), from :: vector(), up_to :: vector(),
                items = [] :: [{halley_event:delivery(), Words :: binary()}],
                gaps = [] :: [halley_cursor:gap()],
                %% Of subjects with events in this batch: followers of now, with the words of
                %% all receivers packed, and users whose follows changed.
                %% Sessions that are subscribed to it stand apart: changes of follows don't concern
                %% them.
                met = #{} :: #{halley_id:id() =>
                                   {halley_fanout:receivers(), [halley_directory:word()],
                                    Words :: binary(), halley_catchup_former:followed()}},
                former :: halley_catchup_former:former(),
                bytes_left :: integer()}).

%% At most `events_max' events of the history are looked at, and about `bytes_max' bytes given. The
%% vector that comes back is where the next batch begins; when it is `done', it is at least `UpTo'.
-spec next(halley_fanout:there(), From :: vector(), UpTo :: vector(), halley_replay:limits(),
           halley_catchup_former:former(), reader()) ->
    {[{halley_event:delivery(), Words :: binary()}], Next :: vector(), more | done,
     [halley_cursor:gap()], halley_catchup_former:former(), reader()}.
next(There, Start, UpTo, #{events_max := EventsMax, bytes_max := BytesMax}, Former, Reader) ->
    {From, TooOld} = above_floor(Start, UpTo),
    case halley_vector:behind(From, UpTo) of
        reached ->
            {[], From, done, TooOld, Former, Reader};
        After ->
            {Seqs, To} = halley_history:seqs(After, halley_vector:largest(UpTo), EventsMax),
            Batch = #batch{there = There, from = From, up_to = UpTo, gaps = TooOld,
                           former = Former, bytes_left = BytesMax},
            {Last, Read, NextReader} = read(Seqs, To, Batch, Reader),
            give(Last, Read, NextReader)
    end.

%% Ranges that the history knows as damaged, told once for a catch-up from a vector whose time was
%% this second (`halley_history_damage').
-spec damage(From :: vector(), UpTo :: vector(), Told :: halley_history:seq(),
             Second :: non_neg_integer()) -> {[halley_cursor:gap()], Told :: halley_history:seq()}.
damage(From, UpTo, Told, Second) ->
    SinceMs = halley_cursor:lacks_since_ms(Second),
    {Gaps, NowTold} = halley_history_damage:gap(From, UpTo, Told, SinceMs),
    {[gap(FromMs, ToMs, damaged, From) || #{from := FromMs, to := ToMs} <- Gaps], NowTold}.

give(Last, #batch{from = From, up_to = UpTo, items = Items, gaps = Gaps} = Batch, Reader) ->
    Next = halley_vector:advance(Last, From, UpTo),
    What = case halley_vector:is_reached(UpTo, Next) of true -> done; false -> more end,
    {lists:reverse(Items), Next, What, lists:reverse(Gaps), Batch#batch.former, Reader}.

gap(FromMs, ToMs, Reason, Vector) ->
    halley_metrics:incr(case Reason of too_old -> gap_too_old; damaged -> gap_damaged end),
    %% A clock that was set back in between turns no gap round.
    #{from => min(FromMs, ToMs), to => ToMs, reason => Reason,
      cursor => halley_cursor:encode(halley_history:store(), second(Reason, FromMs, ToMs), Vector)}.

%% Whatever the vector lacks was published from then on: it stands behind what is too old, and
%% before what is damaged.
second(too_old, _, ToMs) -> ToMs div 1000;
second(damaged, FromMs, _) -> FromMs div 1000.

%% A shard that has nothing new doesn't count: its part may be as old as it likes.
above_floor(From, UpTo) ->
    Floor = halley_history:floor(),
    case halley_vector:behind(From, UpTo) of
        After when is_integer(After), After < Floor ->
            #{floor_at := FloorMs} = halley_history:info(),
            Raised = halley_vector:at_least(Floor, From),
            {Raised, [gap(0, FloorMs, too_old, Raised)]};
        _ ->
            {From, []}
    end.

%% Gives the last seq that was dealt with.
read([], To, Batch, Reader) ->
    {To, Batch, Reader};
read([Seq | _], _, #batch{bytes_left = Left, items = [_ | _]} = Batch, Reader) when Left =< 0 ->
    {Seq - 1, Batch, Reader};
read([Seq | Seqs], To, #batch{from = From, up_to = UpTo} = Batch, Reader) ->
    case halley_history_reader:read(Seq, Reader) of
        {ok, #{kind := event, shard := Shard} = Record, Next}
          when Seq > element(Shard, From), Seq =< element(Shard, UpTo) ->
            {Read, NextReader} = event(Record, Batch, Next),
            read(Seqs, To, Read, NextReader);
        {ok, #{kind := private, seq := Last} = Record, Next} ->
            {Here, Others} = lists:splitwith(fun(S) -> S =< Last end, [Seq | Seqs]),
            read(Others, To, private(Record, Here, Batch), Next);
        {ok, #{kind := joint, seq := Last} = Record, Next} ->
            {Read, NextReader} = joint(Record, Seq, Batch, Next),
            read([S || S <- Seqs, S > Last], max(To, Last), Read, NextReader);
        {ok, _, Next} ->
            read(Seqs, To, Batch, Next);
        {damaged, Next} ->
            read(Seqs, To, lacking(Batch), Next);
        {expired, Next} ->
            %% Retention was here in the meantime; the next batch begins below the floor and says
            %% so, unless nothing but this is left.
            #{floor_at := FloorMs} = halley_history:info(),
            Raised = halley_vector:at_least(halley_history:floor(), From),
            Gap = gap(0, FloorMs, too_old, Raised),
            read([S || S <- Seqs, S > halley_history:floor()], To,
                 Batch#batch{from = Raised, gaps = [Gap | Batch#batch.gaps]}, Next)
    end.

%% Something can't be read: an event, or a change of follows.
lacking(#batch{from = From, gaps = Gaps} = Batch) ->
    Batch#batch{gaps = [gap(0, halley_clock:wall_ms(), damaged, From) | Gaps]}.

event(#{seq := Seq, subject := Subject} = Record, Batch, Reader) ->
    {#batch{met = Met} = Now, Next} = meet(Subject, Seq, Batch, Reader),
    {give_to(words(Seq, map_get(Subject, Met)), Record, Now), Next}.

%% All seqs of the event stand beside each other.
private(#{shard := Shard, first := First, users := Users} = Record, Seqs,
        #batch{there = There, from = From, up_to = UpTo} = Batch) ->
    Wanted = maps:from_keys([Seq || Seq <- Seqs, Seq > element(Shard, From),
                                    Seq =< element(Shard, UpTo)], []),
    Receivers = [halley_fanout:of_user(Number, There)
                 || {Seq, User} <- lists:enumerate(First, Users), is_map_key(Seq, Wanted),
                    Number <- [halley_ids:lookup(User)], Number =/= undefined],
    case halley_fanout:packed(halley_fanout:merged(Receivers)) of
        <<>> -> Batch;
        Words -> give_to(Words, Record#{seq := lists:max(maps:keys(Wanted))}, Batch)
    end.

%% `From': the first of its seqs that the batch has met.
joint(#{shard := Shard, seq := Last, first := First, subjects := Subjects} = Record, From,
      #batch{from = Vector, up_to = UpTo} = Batch, Reader) ->
    Wanted = [{Seq, Subject} || {Seq, Subject} <- lists:enumerate(First, Subjects), Seq >= From,
                                Seq > element(Shard, Vector), Last =< element(Shard, UpTo)],
    {#batch{met = Met} = Now, Next} =
        lists:foldl(fun({Seq, Subject}, {B, R}) -> meet(Subject, Seq, B, R) end, {Batch, Reader},
                    Wanted),
    Receivers = [receivers(Seq, map_get(Subject, Met)) || {Seq, Subject} <- Wanted],
    {give_to(halley_fanout:packed(halley_fanout:merged(Receivers)), Record, Now), Next}.

give_to(<<>>, _, Batch) ->
    Batch;
give_to(Words, Record, #batch{items = Items, bytes_left = Left} = Batch) ->
    Delivery = halley_event:delivery(Record),
    Batch#batch{items = [{Delivery, Words} | Items],
                bytes_left = Left - halley_links_queue:cost(Delivery, Words)}.

receivers(Seq, {Present, Subscribed, _, #{until := Until, since := Since}}) ->
    {Former, Later} = changed(Seq, Until, Since),
    Followers = halley_fanout:merged([halley_fanout:without(Later, Present) | Former]),
    halley_fanout:also(Subscribed, Followers).

words(Seq, {_, _, Words, #{until := Until, since := Since}} = Known) ->
    case changed(Seq, Until, Since) of
        {[], []} -> Words;
        _ -> halley_fanout:packed(receivers(Seq, Known))
    end.

changed(Seq, Until, Since) ->
    Former = [R || {_, From, R} <- lists:takewhile(fun({Unfollow, _, _}) -> Unfollow > Seq end,
                                                   Until),
                   From < Seq],
    Later = [R || {_, R} <- lists:takewhile(fun({From, _}) -> From >= Seq end, Since)],
    {Former, Later}.

%% Looked up once for a batch, since a celebrity's followers are many; the changes after the
%% follows. A session that opens later doesn't need the batch's events: they are not above heads
%% that were read before the batch began.
meet(Subject, _, #batch{met = Met} = Batch, Reader) when is_map_key(Subject, Met) ->
    {Batch, Reader};
meet(Subject, Seq, #batch{there = There, met = Met, former = Former} = Batch, Reader) ->
    Present = halley_fanout:receivers(Subject, There),
    Subscribed = halley_subscriptions_table:words(Subject, There),
    Words = halley_fanout:packed(halley_fanout:also(Subscribed, Present)),
    {Followed, IsLacking, Read, Next} =
        halley_catchup_former:followed(Subject, Seq, There, Former, Reader),
    Subjects = Met#{Subject => {Present, Subscribed, Words, Followed}},
    Known = Batch#batch{met = Subjects, former = Read},
    {case IsLacking of true -> lacking(Known); false -> Known end, Next}.
