%% Puts hooks into the queue: clients' events and undelivered ones, out of the history; and users
%% and subjects that have their first session or lost their last.
%%
%% It works in rounds, some twenty a second when there is something. One round:
%%   1. reads how far the history is written;
%%   2. takes the changes that came since the last round (`halley_hooked');
%%   3. reads the history up to there; those who left long enough ago are reported after that.
%% So a user's first session is reported before its events, and its last after them. 4. appends all
%%   of it, with how far the history was read, and syncs.
%% Only then has anything happened: the table of who is there changes, the sender sees the new end.
%% If the disk refuses, nothing has: the changes are put back, the history is read again later.
%%
%% If more waits for the endpoint than `hooks_queue_bytes_max', no rounds are made: events wait in
%% the history for as long as it keeps them, and of changes the last of each user is sent. Whether
%% an event was undelivered is decided by when users came and went (`halley_hooks_owed'), however
%% late that is; these times are written before each round (`halley_hooks_moves'). If there was no
%% room for them, a gap covers the time from then on.
%%
%% No user leaves, and nothing counts as undelivered, until all workers have sent their sessions,
%% and for a moment after: before that a brain doesn't know who is there. These times are noted as
%% doubts.
-module(halley_hooks_taker).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

-define(ROUND_MS, 50).
-define(REFUSED_MS, 1000).
%% So long do clients have to come back, when all workers have said who is there.
-define(SETTLE_MS, 3000).
%% Positions of nothing but what isn't told.
-define(POSITION_MS, 1000).
-define(ACKED_MS, 200).
-define(CHANGES_MAX, 5000).
-define(DUE_MAX, 5000).
-define(LOOK_MS, 500).
-define(LOOKS_MAX, 64).
%% An event has its time before it is drawn.
-define(DRAWN_MS, 1000).

-record(taker, {settings :: halley_hooks_config:settings(),
                queue :: halley_hooks_queue:queue(),
                told :: halley_hooks_told:told(),
                %% Up to where the history was read: for what clients published, and for what was
                %% undelivered.
                vectors :: vectors(),
                %% What the last position in the queue says, and when that was written.
                noted :: vectors(), noted_ms = now_ms() :: integer(),
                damage_told = 0 :: halley_history:seq(),
                reader = halley_history_reader:new() :: halley_history_reader:reader(),
                acked :: halley_hooks_progress:place(), acked_ms = now_ms() :: integer(),
                %% Whether everybody who is there has been known for long enough.
                is_settled = false :: boolean(),
                %% When the next round is due, and whether one was far too late.
                round_ms = now_ms() :: integer(),
                standstill = halley_standstill:new() :: halley_standstill:standstill(),
                moves :: halley_hooks_moves:moves(),
                %% Before brains were killed, not all moves are known.
                unsure :: halley_hooks_owed:doubts(),
                %% When it wasn't known who is there, the latest first; and since when it isn't, or
                %% when it was known last. By the monotonic clock, as all here.
                doubts = [] :: halley_hooks_owed:doubts(),
                doubt :: {since | known, Ms :: integer()},
                %% Where the heads were, the latest first: what was drawn by then is to be judged.
                looks = [] :: [{Ms :: integer(), halley_history:vector()}],
                looked_ms = now_ms() :: integer(),
                %% What comes before all else: that something was lost.
                first = [] :: [halley_hooks_entry:entry()]}).
-type vectors() :: {halley_cursor:vector(), halley_cursor:vector()}.

-spec start_link(halley_hooks_config:settings()) -> gen_server:start_ret().
start_link(Settings) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Settings, []).

-spec init(halley_hooks_config:settings()) -> {ok, #taker{}}.
init(#{closed_after_ms := AfterMs} = Settings) ->
    _ = process_flag(fullsweep_after, 20),
    %% Of one before this, which was killed.
    ok = halley_hooked:put_back(),
    {Queue, Recovered} = halley_hooks_queue:open(),
    Written = halley_history:written(),
    {Keys, Vectors, Acked, First} = began(Recovered, {Written, Written}),
    ok = halley_hooks_progress:set(acked, Acked),
    ok = halley_hooks_progress:set(written, Acked),
    {Moves, #{doubts := Doubts, unsure := Unsure, doubt := Doubt, is_damaged := IsDamaged}}
        = halley_hooks_moves:start(Settings, [User || {user, User} <- Keys]),
    Taker = #taker{settings = Settings, queue = Queue, vectors = Vectors, noted = Vectors,
                   told = halley_hooks_told:new(Keys, AfterMs), acked = Acked,
                   first = First ++ [lost() || IsDamaged], moves = Moves, unsure = Unsure,
                   doubts = Doubts, doubt = Doubt},
    {ok, later(0, opened(Taker))}.

began(new, Now) ->
    {[], Now, {1, 0}, []};
began(lost, Now) ->
    ?LOG_WARNING("hooks: the queue in ~ts can't be read, or is gone; hooks.url is told of a gap",
                 [halley_hooks_queue:folder()]),
    Oldest = hd(halley_hooks_queue:numbers() ++ [1]),
    {[], Now, {Oldest, 0}, [lost()]};
began(#{store := Store, vectors := Vectors, told := Told, acked := Acked}, Now) ->
    case halley_history:store() of
        Store -> {maps:keys(Told), Vectors, Acked, []};
        _ -> {maps:keys(Told), Now, Acked, [lost()]}
    end.

lost() -> {gap, damaged, 0, halley_clock:wall_ms()}.

-spec handle_call(term(), gen_server:from(), #taker{}) -> {noreply, #taker{}}.
handle_call(_, _, Taker) -> {noreply, Taker}.

-spec handle_cast(term(), #taker{}) -> {noreply, #taker{}}.
handle_cast(_, Taker) -> {noreply, Taker}.

-spec handle_info(term(), #taker{}) -> {noreply, #taker{}}.
handle_info(round, Taker0) ->
    #taker{queue = Queue, acked = Acked} = Taker
        = moves(doubted(linked(acked(fired(Taker0))))),
    Waiting = halley_hooks_queue:waiting(Acked, Queue),
    ok = halley_hooks_progress:count(waiting, Waiting),
    {noreply, case {halley_hooks_queue:is_open(Queue),
                    Waiting > halley_limits:get(hooks_queue_bytes_max)} of
                  {_, true} -> later(?ROUND_MS, Taker);
                  {true, false} -> taken(Taker);
                  {false, false} -> again(opened(Taker))
              end};
handle_info(_, Taker) ->
    {noreply, Taker}.

later(Ms, Taker) ->
    _ = erlang:send_after(Ms, self(), round),
    Taker#taker{round_ms = now_ms() + Ms}.

fired(#taker{round_ms = DueMs, standstill = Standstill} = Taker) ->
    Taker#taker{standstill = halley_standstill:fired(DueMs, now_ms(), Standstill)}.

%% Whether who has no session here has none.
knows(#taker{is_settled = IsSettled, standstill = Standstill}) ->
    IsSettled andalso halley_standstill:is_over(now_ms(), Standstill).

doubted(#taker{doubt = Doubt, doubts = Doubts, moves = Moves} = Taker) ->
    NowMs = now_ms(),
    case {knows(Taker), Doubt} of
        {true, {since, SinceMs}} ->
            Span = {SinceMs, NowMs},
            All = halley_hooks_owed:doubted(Span, Doubts),
            ok = halley_hooks_moves:keep(All, {known, NowMs}),
            Taker#taker{doubt = {known, NowMs}, doubts = All,
                        moves = halley_hooks_moves:doubted(Span, Moves)};
        {true, {known, _}} -> Taker#taker{doubt = {known, NowMs}};
        {false, {known, KnownMs}} ->
            ok = halley_hooks_moves:keep(Doubts, {since, KnownMs}),
            Taker#taker{doubt = {since, KnownMs}};
        {false, _} -> Taker
    end.

moves(#taker{doubt = {_, Ms} = Doubt, moves = Moves} = Taker) ->
    Written = halley_hooks_moves:write(Ms, Moves),
    Taker#taker{moves = case Doubt of
                            {known, _} -> halley_hooks_moves:begin_whole(Ms, Written);
                            {since, _} -> Written
                        end}.

again(#taker{queue = Queue} = Taker) ->
    later(case halley_hooks_queue:is_open(Queue) of true -> 0; false -> ?REFUSED_MS end, Taker).

%% Begins a segment.
opened(#taker{queue = Queue, told = Told, vectors = Vectors} = Taker) ->
    case halley_hooks_queue:reopen(halley_hooks_told:keys(Told), Vectors, Queue) of
        {ok, Place, Open} ->
            ok = halley_hooks_progress:set(written, Place),
            Taker#taker{queue = Open, noted = Vectors};
        {error, Reason, Closed} ->
            refused(Reason, Taker#taker{queue = Closed})
    end.

refused(Reason, Taker) ->
    ok = halley_metrics:incr(hooks_write_errors),
    _ = halley_hooks_said:seldom(written, fun() ->
        ?LOG_ERROR("hooks: the queue in ~ts can't be written: ~ts; what is to be told waits in the "
                   "history", [halley_hooks_queue:folder(), file:format_error(Reason)])
    end),
    Taker.

%% Written seldom: what isn't noted is sent again after a kill.
acked(#taker{acked = Before, acked_ms = LastMs, queue = Queue} = Taker) ->
    NowMs = now_ms(),
    case halley_hooks_progress:get(acked) of
        Before -> Taker;
        Acked when NowMs - LastMs >= ?ACKED_MS ->
            Taker#taker{acked = Acked, acked_ms = NowMs,
                        queue = halley_hooks_queue:acked(Acked, Queue)};
        _ -> Taker
    end.

linked(#taker{is_settled = IsSettled} = Taker) ->
    NowMs = now_ms(),
    case halley_links_synced:since() of
        never -> Taker#taker{is_settled = false};
        SinceMs when NowMs - SinceMs < ?SETTLE_MS -> Taker#taker{is_settled = false};
        _ when IsSettled -> Taker;
        _ -> settled(Taker)
    end.

settled(#taker{told = Told} = Taker) ->
    ok = halley_hooks_told:began(halley_hooks_told:keys(Told), Told),
    Taker#taker{is_settled = true}.

%% --- a round -----------------------------------------------------------------------------------

taken(Before) ->
    #taker{told = Told, first = First} = Taker0 = lost_moves(Before),
    UpTo = halley_history:written(),
    {Changes, Named} = changes(Taker0),
    IsAll = length(Changes) < ?CHANGES_MAX,
    {Opened, Effects} = halley_hooks_told:changes(Named, halley_clock:wall_ms(), Told),
    {Read, HasMore, Taker} = read(IsAll, UpTo, Taker0),
    {Left, Gone} = left(IsAll andalso not HasMore, Named, Taker),
    case append(First ++ Opened ++ Read ++ Left, Taker) of
        {ok, What, Next} ->
            ok = halley_hooked:told(),
            ok = halley_hooks_told:apply_changes(Effects ++ Gone, Told),
            ok = halley_hooks_progress:count(told, halley_hooks_told:count(Told)),
            %% Behind that: a segment begins with who was told of as there.
            Open = case What of reopen -> opened(Next); go_on -> Next end,
            later(case HasMore orelse not IsAll of true -> 0; false -> ?ROUND_MS end,
                  judged(Open#taker{first = []}));
        {error, Reason, Queue} ->
            ok = halley_hooked:put_back(),
            later(?REFUSED_MS, refused(Reason, Taker0#taker{queue = Queue}))
    end.

%% Nobody knows any more what was undelivered: on from here.
lost_moves(#taker{settings = #{events := Events}, vectors = {A, _}, first = First,
                  moves = Moves} = Taker) ->
    case lists:member(undelivered, Events) andalso halley_hooked_moves:lost() of
        AtMs when is_integer(AtMs) ->
            Written = halley_history:written(),
            ok = halley_hooked_moves:clear(),
            Taker#taker{vectors = {A, Written}, looks = [],
                        moves = halley_hooks_moves:cleared(Moves),
                        first = First ++ [{gap, too_old, AtMs, halley_clock:wall_ms()}]};
        _ -> Taker
    end.

%% What was drawn by a look at the heads is judged once it was read: nobody asks any more for the
%% moves and doubts before.
judged(#taker{settings = #{events := Events}} = Taker) ->
    case lists:member(undelivered, Events) of
        true -> looked(Taker);
        false -> Taker
    end.

looked(#taker{looks = Looks, looked_ms = LastMs, vectors = {_, B}} = Taker) ->
    {Left, Past} = lists:partition(fun({_, Heads}) -> not halley_vector:is_reached(Heads, B) end,
                                   Looks),
    NowMs = now_ms(),
    IsDue = NowMs - LastMs >= ?LOOK_MS andalso length(Left) < ?LOOKS_MAX,
    Look = [{NowMs, halley_history:heads()} || IsDue],
    forgotten(Past, Taker#taker{looks = Look ++ Left,
                                looked_ms = case IsDue of true -> NowMs; false -> LastMs end}).

forgotten([], Taker) ->
    Taker;
forgotten([{LookedMs, _} | _], #taker{doubts = Doubts, unsure = Unsure, moves = Moves} = Taker) ->
    JudgedMs = LookedMs - ?DRAWN_MS,
    ok = halley_hooked_moves:forget(JudgedMs),
    Since = fun(Spans) -> [One || {_, ToMs} = One <- Spans, ToMs >= JudgedMs] end,
    Taker#taker{doubts = Since(Doubts), unsure = Since(Unsure),
                moves = halley_hooks_moves:judged(JudgedMs, Moves)}.

changes(#taker{settings = Settings, told = Told}) ->
    Changes = halley_hooked:take(?CHANGES_MAX),
    _ = [ok = halley_hooks_told:began([Key || {subject, _} = Key <- halley_hooks_told:keys(Told)],
                                      Told)
         || {all, _} <- Changes],
    {Changes, [{Key, Change} || {What, Change} <- Changes, Key <- named(What, Settings)]}.

named({user, Number}, #{events := Events, users := Users}) ->
    User = halley_ids:name(Number),
    [{user, User} || Events -- (Events -- [opened, closed, undelivered]) =/= [],
                     halley_hooks_config:matches(User, Users)];
named({subject, Subject}, #{events := Events, subjects := Subjects}) ->
    [{subject, Subject} || Events -- (Events -- [occupied, vacated]) =/= [],
                           halley_hooks_config:matches(Subject, Subjects)];
named(all, _) ->
    [].

%% What the history has. If there were too many changes for a round, it is for a later one.
read(false, _, Taker) ->
    {[], true, Taker};
read(true, UpTo, #taker{settings = Settings, vectors = {A, B}, reader = Reader,
                        damage_told = DamageTold} = Taker) ->
    Known = known(Taker),
    #{events := Events} = Settings,
    {Of, OfVector} = case lists:member(published, Events) of
        true -> {published, A};
        false -> {undelivered, B}
    end,
    {Gaps, NowTold} = case lists:member(Of, Events) of
        true -> halley_history_damage:gap(OfVector, UpTo, DamageTold, 0);
        false -> {[], DamageTold}
    end,
    Next = fun(Purpose, From, IsReady, R) ->
        case {lists:member(Purpose, Events), IsReady} of
            {true, true} -> halley_hooks_log:next(Purpose, {From, UpTo}, Settings, Known, R);
            {true, false} -> {[], From, done, R};
            {false, _} -> {[], UpTo, done, R}
        end
    end,
    {Published, A1, MoreA, Reader1} = Next(published, A, true, Reader),
    {Undelivered, B1, MoreB, Reader2} = Next(undelivered, B, knows(Taker), Reader1),
    {[{gap, damaged, From, To} || #{from := From, to := To} <- Gaps] ++ Published ++ Undelivered,
     MoreA =:= more orelse MoreB =:= more,
     Taker#taker{vectors = {A1, B1}, reader = Reader2, damage_told = NowTold}}.

%% Events have their time by the wall's clock.
known(#taker{doubts = Doubts, unsure = Unsure}) ->
    OffsetMs = halley_clock:wall_ms() - now_ms(),
    ByWall = fun(Spans) -> [{FromMs + OffsetMs, ToMs + OffsetMs} || {FromMs, ToMs} <- Spans] end,
    #{doubts => ByWall(Doubts), unsure => ByWall(Unsure)}.

left(true, Named, #taker{told = Told} = Taker) ->
    case knows(Taker) of
        true -> halley_hooks_told:due(?DUE_MAX, [Key || {Key, _} <- Named], Told);
        false -> {[], []}
    end;
left(false, _, _) ->
    {[], []}.

append(Entries, #taker{queue = Queue, vectors = Vectors, noted = Noted} = Taker) ->
    NowMs = now_ms(),
    Position = [{position, A, B} || Vectors =/= Noted, {A, B} <- [Vectors],
                                    Entries =/= [] orelse is_due(NowMs, Taker)],
    case Entries ++ Position of
        [] -> {ok, go_on, Taker};
        All ->
            case halley_hooks_queue:append(All, Queue) of
                {ok, Place, What, Next} ->
                    ok = halley_hooks_progress:set(written, Place),
                    {ok, What, Taker#taker{queue = Next, noted = Vectors, noted_ms = NowMs}};
                {error, _, _} = Error -> Error
            end
    end.

is_due(NowMs, #taker{noted_ms = NotedMs}) -> NowMs - NotedMs >= ?POSITION_MS.

now_ms() -> erlang:monotonic_time(millisecond).
