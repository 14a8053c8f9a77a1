%% Callers of a pool that query again at once while others wait: they go on for a while, no caller
%% waits for ever, and a connection that one of them leaves goes to a waiter.
-module(epgsql_pool_turn_SUITE).

-include_lib("stdlib/include/ms_transform.hrl").
-include("epgsql_pool_suite.hrl").

all() ->
    [turn_begins_and_ends, everybody_has_a_turn, without_turns, who_stops_in_a_turn,
     who_is_killed_in_a_turn, transaction_left_in_a_turn].

%% A busy machine may take longer between two steps than a turn allows: then it is tried again.
turn_begins_and_ends(_) ->
    Slots = epgsql_pool_slots:new(1),
    Me = epgsql_pool_slots:me(),
    ok = epgsql_pool_slots:put_idle(1, Slots),
    ?assertEqual(none, epgsql_pool_turn:again(Me, Slots)),
    ok = until(fun() -> begun(Slots) andalso epgsql_pool_turn:again(Me, Slots) =:= {ok, 1} end),
    ok = until(fun() -> begun(Slots) andalso epgsql_pool_turn:goes_on(1, Slots) end),
    timer:sleep(10),
    ?assertNot(epgsql_pool_turn:goes_on(1, Slots)),
    %% Who comes back later has none.
    timer:sleep(10),
    ok = epgsql_pool_turn:waits(Slots),
    ok = epgsql_pool_turn:begins(1, Slots, 2),
    ?assertNot(epgsql_pool_turn:goes_on(1, Slots)),
    %% Neither has it at another pool.
    ok = until(fun() -> begun(Slots) end),
    ?assertNot(epgsql_pool_turn:goes_on(1, epgsql_pool_slots:new(1))).

begun(Slots) ->
    _ = epgsql_pool_turn:goes_on(2, Slots),
    ok = epgsql_pool_turn:waits(Slots),
    ok = epgsql_pool_turn:begins(1, Slots, 2),
    true.

%% Callers that ask on and on; one that came last isn't behind for long.
everybody_has_a_turn(Config) ->
    ok = start(Config, #{size => 2, wait_ms => 30000}),
    Counts = counters:new(12, []),
    Pids = [spawn_link(fun() -> asks(N, Counts) end) || N <- lists:seq(1, 12)],
    All = fun() -> [counters:get(Counts, N) || N <- lists:seq(1, 12)] end,
    ok = until(fun() -> lists:min(All()) > 300 end),
    Each = All(),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    ?assert(lists:max(Each) < 20 * lists:min(Each)).

asks(N, Counts) ->
    N = value(<<"select $1::int4">>, [N]),
    ok = counters:add(Counts, N, 1),
    asks(N, Counts).

%% Each query is handed on to who has waited longest: when all others wait, they come next. Who is
%% held up between two queries is behind, and who takes too long to take a connection loses its
%% place, so that isn't so each time.
without_turns(Config) ->
    ok = start(Config, #{size => 1, wait_ms => 30000, turn_ms => 0}),
    {ok, [], []} = epgsql_pool:squery(?POOL, "create sequence served"),
    Served = ets:new(served, [public, ordered_set]),
    Pids = [spawn_link(fun() -> is_served(N, Served) end) || N <- lists:seq(1, 4)],
    AllWait = ets:fun2ms(fun({_, _, Waiting}) when Waiting >= 2 -> true end),
    ok = until(fun() -> ets:select_count(Served, AllWait) >= 1000 end),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    Fair = [length(lists:usort([N, A, B, C])) =:= 4
            || {Place, N, Waiting} <- ets:tab2list(Served), Waiting >= 2,
               [[{_, A, _}], [{_, B, _}], [{_, C, _}]]
                   <- [[ets:lookup(Served, Place + I) || I <- [1, 2, 3]]]],
    ct:log("~b times, ~b of them in turn", [length(Fair), length([yes || true <- Fair])]),
    ?assert(10 * length([no || false <- Fair]) < length(Fair)).

%% The one connection has its queries in an order. Behind one of them the next caller has been
%% handed the connection, so two others may wait.
is_served(N, Served) ->
    Place = value(<<"select nextval('served')">>),
    true = ets:insert(Served, {Place, N, metric(waiting)}),
    is_served(N, Served).

%% Each asks some times and then lives on, with nobody behind it who would give a connection back.
who_stops_in_a_turn(Config) ->
    ok = start(Config, #{size => 1, wait_ms => 30000}),
    Self = self(),
    [begin
         Pids = [spawn_link(fun() ->
             [N = value(<<"select $1::int4">>, [N]) || _ <- lists:seq(1, 30)],
             Self ! {self(), done},
             receive stop -> ok end
         end) || N <- lists:seq(1, 4)],
         [receive {Pid, done} -> ok end || Pid <- Pids],
         [Pid ! stop || Pid <- Pids]
     end || _ <- lists:seq(1, 20)],
    ?assertMatch(#{in_use := 0, waiting := 0, closed := 0, timed_out := 0},
                 epgsql_pool:metrics(?POOL)).

who_is_killed_in_a_turn(Config) ->
    ok = start(Config, #{size => 2, wait_ms => 30000}),
    Counts = counters:new(8, []),
    [begin
         Pids = [spawn(fun() -> asks(N, Counts) end) || N <- lists:seq(1, 8)],
         timer:sleep(20 + rand:uniform(10)),
         [exit(Pid, kill) || Pid <- lists:sublist(Pids, 6)],
         Before = [counters:get(Counts, N) || N <- [7, 8]],
         ok = until(fun() -> lists:all(fun({N, B}) -> counters:get(Counts, N) > B end,
                                       lists:zip([7, 8], Before)) end),
         [exit(Pid, kill) || Pid <- Pids]
     end || _ <- lists:seq(1, 20)],
    ok = until(fun() -> maps:with([in_use, waiting], epgsql_pool:metrics(?POOL))
                            =:= #{in_use => 0, waiting => 0} end).

%% Nobody finds himself in it: it has a number, and nothing else here has.
transaction_left_in_a_turn(Config) ->
    ok = start(Config, #{size => 2, wait_ms => 30000}),
    Own = <<"select pg_current_xact_id_if_assigned() is null">>,
    Answers = parallel(8, fun(_) ->
        [begin
             Before = [value(Own) || _ <- lists:seq(1, 20)],
             [_, {ok, _, [_]}] = epgsql_pool:squery(?POOL, "begin; select pg_current_xact_id()"),
             lists:usort(Before)
         end || _ <- lists:seq(1, 5)]
    end),
    ?assertEqual([true], lists:usort(lists:append(lists:append(Answers)))),
    ok = until(fun() -> metric(closed) =:= 40 end).
