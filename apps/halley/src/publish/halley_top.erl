%% The busiest subjects: by events, and by sessions that these were sent to.
%%
%% Each shard counts in a sketch of its own (`note/2', its state is the shard's) and shows it once a
%% second (`show/2'). It counts only while there are readers: `read/0' keeps the shards at it for
%% ?WATCHED_MS, and its result has the time since which they count. So the path of an event pays one
%% read of an atomic per turn without readers, and two steps in a map per event with them.
%%
%% Counts are of the last ?WINDOW_MS to twice that: a window that is full makes room for the next
%% one, and the one before is kept. A shard with more than ?ALL_MAX events in a window counts of the
%% others one in ?ONE_IN, by a hash of its id, as so many: what comes often is known well enough by
%% then.
%%
%% Private events have no subject and aren't here.
-module(halley_top).

-export([new/0, note/2, show/2, none/0, read/0]).
-export_type([counted/0, subject/0]).

-define(UNTIL, {?MODULE, until}).
-define(WATCHED_MS, 15000).
-define(WINDOW_MS, 10000).
-define(SHOWN_MS, 1000).
-define(ALL_MAX, 1000).
-define(ONE_IN, 8).
%% For each shard and window: eight shards show enough for the hundred that somebody sees.
-define(KEYS, 128).
-define(LISTED_MAX, 100).

-record(window, {since :: integer(), shown = none :: integer() | none,
                 seen = 0 :: non_neg_integer(),
                 events = halley_sketch:new(?KEYS) :: halley_sketch:sketch(),
                 sessions = halley_sketch:new(?KEYS) :: halley_sketch:sketch()}).
-opaque counted() :: none | {Now :: #window{}, Before :: #window{} | none}.
%% Events and sessions in the window; a count that isn't known is 0.
-type subject() :: #{subject := halley_id:id(), events := non_neg_integer(),
                     sessions := non_neg_integer()}.

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    Until = atomics:new(1, []),
    ok = atomics:put(Until, 1, now_ms() - 1),
    persistent_term:put(?UNTIL, Until).

-spec none() -> counted().
none() ->
    none.

%% Counts the events of a turn.
-spec note([halley_history:entry()], counted()) -> counted().
note(Entries, Counted) ->
    case is_watched() of
        true ->
            lists:foldl(fun count/2, begun(Counted),
                        [Entry || Entry <- Entries, not is_own(Entry)]);
        false -> none
    end.

is_own(#{subject := Subject}) -> halley_own:is_own(Subject);
is_own(_) -> false.

is_watched() ->
    now_ms() =< atomics:get(persistent_term:get(?UNTIL), 1).

begun(none) -> {#window{since = now_ms()}, none};
begun(Counted) -> Counted.

count(#{subjects := Subjects} = Event, Counted) ->
    lists:foldl(fun(Subject, C) -> count(Event#{subject => Subject}, C) end, Counted,
                case Event of #{subject := _} -> []; _ -> Subjects end);
count(#{subject := Subject, sessions := Sessions}, {#window{seen = Seen} = Window, Before})
        when Seen < ?ALL_MAX ->
    {count(Subject, Sessions, 1, Window#window{seen = Seen + 1}), Before};
count(#{subject := Subject, sessions := Sessions, id := Id}, {Window, Before} = Counted) ->
    case erlang:phash2(Id, ?ONE_IN) of
        0 -> {count(Subject, Sessions, ?ONE_IN, Window), Before};
        _ -> Counted
    end;
count(_, Counted) ->
    Counted.

count(Subject, Sessions, Weight, #window{events = Events, sessions = Sent} = Window) ->
    Window#window{events = halley_sketch:add(Subject, Weight, Events),
                  sessions = halley_sketch:add(Subject, Weight * Sessions, Sent)}.

%% Shows what a shard has counted, and ends a window that is full.
-spec show(halley_shards:index(), counted()) -> counted().
show(Shard, Counted) ->
    case {is_watched(), Counted} of
        {true, _} -> shown(Shard, begun(Counted));
        {false, none} -> none;
        {false, _} ->
            true = ets:delete(?MODULE, Shard),
            none
    end.

shown(Shard, {#window{since = Since, shown = Shown} = Window, Before}) ->
    Now = now_ms(),
    Full = Now - Since >= ?WINDOW_MS,
    Due = Full orelse Shown =:= none orelse Now - Shown >= ?SHOWN_MS,
    _ = Due andalso ets:insert(?MODULE, {Shard, {Window, Before}}),
    if
        Full -> {#window{since = Now}, Window};
        Due -> {Window#window{shown = Now}, Before};
        true -> {Window, Before}
    end.

%% The busiest subjects by events and by sessions. `over_ms' is how long was counted, and 0 when
%% counting has just begun. `missed': how many events of a subject may be missing from its count.
-spec read() -> #{over_ms := non_neg_integer(), missed := non_neg_integer(),
                  by_events := [subject()], by_sessions := [subject()]}.
read() ->
    ok = atomics:put(persistent_term:get(?UNTIL), 1, now_ms() + ?WATCHED_MS),
    Shards = [[Window || Window <- [Now, Before], Window =/= none]
              || {_, {Now, Before}} <- ets:tab2list(?MODULE)],
    Windows = lists:append(Shards),
    Since = lists:min([now_ms() | [S || #window{since = S} <- Windows]]),
    Events = merged([E || #window{events = E} <- Windows]),
    Sessions = merged([S || #window{sessions = S} <- Windows]),
    #{over_ms => now_ms() - Since, missed => missed(Shards),
      by_events => subjects(Events, Events, Sessions),
      by_sessions => subjects(Sessions, Events, Sessions)}.

%% A subject is of one shard: what shards have missed doesn't add up, what windows have does.
missed(Shards) ->
    lists:max([0 | [lists:sum([halley_sketch:missed(E) || #window{events = E} <- Windows])
                    || Windows <- Shards]]).

merged(Sketches) ->
    lists:foldl(fun halley_sketch:merge/2, halley_sketch:new(?KEYS * 64), Sketches).

subjects(By, Events, Sessions) ->
    All = fun(Sketch) -> maps:from_list(halley_sketch:top(?KEYS * 64, Sketch)) end,
    {OfEvents, OfSessions} = {All(Events), All(Sessions)},
    [#{subject => Subject, events => maps:get(Subject, OfEvents, 0),
       sessions => maps:get(Subject, OfSessions, 0)}
     || {Subject, _} <- halley_sketch:top(?LISTED_MAX, By)].

now_ms() ->
    erlang:monotonic_time(millisecond).
