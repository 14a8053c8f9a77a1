%% Three brains that share one log: real nodes, a real PostgreSQL, links of `teleport'.
-module(halley_cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

-compile([export_all, nowarn_export_all]).

%% From an orderer's death to the answer of an event that is published then. The lease has 3 s, a
%% brain that is silent is given up after 2; the rest is for a busy machine.
-define(AGAIN_MS_MAX, 5000).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [event_for_everyone, one_order_for_all, one_of_them_orders, chosen_id_is_one_event,
     private_and_joint, follows, orderer_is_killed, shard_that_dies, old_rows_go,
     other_epoch, rows_that_are_lost, brain_that_joins].

init_per_suite(Config) -> halley_cluster_test:start_postgres(Config).

end_per_suite(Config) -> halley_cluster_test:stop_postgres(Config).

init_per_testcase(_, Config) ->
    Server = ?config(server, Config),
    ok = halley_cluster_test:install(Server),
    Engine = engine(Server),
    [{engine, Engine}, {brains, halley_cluster_nodes:start(3, Engine)} | Config].

engine(Server) ->
    #{connect => epgsql_test_server:options(Server, #{username => "plain"})}.

end_per_testcase(_, Config) ->
    halley_cluster_nodes:stop(?config(brains, Config)).

brains(Config) -> ?config(brains, Config).

on(Brain, Name, Args) -> call(Brain, ?MODULE, Name, Args).

call(Brain, Module, Name, Args) -> halley_cluster_nodes:call(Brain, Module, Name, Args).

%%% What runs on the brains

%% A process that logs in as the user and keeps what it gets.
listen(User) ->
    Caller = self(),
    Pid = spawn(fun() ->
        ok = halley:login(User),
        true = register(binary_to_atom(User), self()),
        Caller ! {self(), listens},
        heard([])
    end),
    receive {Pid, listens} -> ok after 5000 -> error(deaf) end.

heard(Events) ->
    receive
        {halley, #{id := Id, data := Data, at := At}} -> heard([{Id, At, Data} | Events]);
        {From, heard} -> From ! {heard, lists:reverse(Events)}, heard(Events)
    end.

%% Waits until the listener has so many, and gives them.
heard_by(User, N) -> heard_by(User, N, erlang:monotonic_time(millisecond) + 20000).

heard_by(User, N, Until) ->
    binary_to_atom(User) ! {self(), heard},
    Events = receive {heard, All} -> All after 5000 -> error(deaf) end,
    case length(Events) >= N orelse erlang:monotonic_time(millisecond) > Until of
        true -> Events;
        false -> receive after 10 -> heard_by(User, N, Until) end
    end.

publish(Subject, Data) -> halley:publish(Subject, Data).
publish(Subject, Data, Opts) -> halley:publish(Subject, Data, Opts).

publish_many(Subject, Numbers) ->
    [halley:publish(Subject, N) || N <- Numbers].

%% In a process of its own; `published/1' has what came of it.
publish_for_ms(Name, Subject, Ms) ->
    Until = erlang:monotonic_time(millisecond) + Ms,
    spawn(fun() ->
        true = register(Name, self()),
        Answers = publish_until(Until, Subject, 1, []),
        receive {From, published} -> From ! {published, Answers} end
    end),
    ok.

publish_until(Until, Subject, N, Answers) ->
    case now_ms() < Until of
        true -> publish_until(Until, Subject, N + 1, [timed(Subject, N) | Answers]);
        false ->
            lists:reverse(Answers)
    end.

%% Until `stopped/1'.
publish_on(Name, Subject) ->
    spawn(fun() ->
        true = register(Name, self()),
        publish_on(Subject, 1, [])
    end),
    ok.

publish_on(Subject, N, Answers) ->
    receive
        {From, stop} -> From ! {stopped, lists:reverse(Answers)};
        {From, again, SinceMs} ->
            From ! {again, [Started + Took - SinceMs || {Started, Took, {ok, _}} <- Answers,
                                                        Started > SinceMs]},
            publish_on(Subject, N, Answers)
    after 0 ->
        publish_on(Subject, N + 1, [timed(Subject, N) | Answers])
    end.

timed(Subject, N) ->
    Started = now_ms(),
    Answer = halley:publish(Subject, N),
    {Started, now_ms() - Started, Answer}.

%% Of the first such answer.
again(SinceMs) ->
    publisher ! {self(), again, SinceMs},
    receive
        {again, []} -> none;
        {again, Ms} -> lists:min(Ms)
    after 30000 -> error(hangs)
    end.

stopped(Name) ->
    Name ! {self(), stop},
    receive {stopped, Answers} -> Answers after 30000 -> error(hangs) end.

now_ms() -> erlang:monotonic_time(millisecond).

published(Name) ->
    Name ! {self(), published},
    receive {published, Answers} -> Answers after 30000 -> error(hangs) end.

info() -> halley_cluster_brain:info().

%% Keeps the reason by which the brain's process ends.
watch() ->
    Brain = whereis(halley_cluster_brain),
    Caller = self(),
    Watcher = spawn(fun() ->
        Monitor = monitor(process, Brain),
        true = register(watcher, self()),
        Caller ! {self(), watches},
        watching(Monitor)
    end),
    receive {Watcher, watches} -> ok after 5000 -> error(blind) end.

watching(Monitor) ->
    receive
        {From, so_far} -> From ! {watcher, running}, watching(Monitor);
        {'DOWN', Monitor, process, _, Reason} -> has_ended(Reason)
    end.

has_ended(Reason) ->
    receive {From, _} -> From ! {watcher, Reason} end,
    has_ended(Reason).

so_far() ->
    watcher ! {self(), so_far},
    receive {watcher, State} -> State after 5000 -> error(hangs) end.

%% Waits for the end.
ended() ->
    watcher ! {self(), ended},
    receive {watcher, Reason} -> Reason after 30000 -> error(still_running) end.

%%% Cases

event_for_everyone(Config) ->
    [A, B, C] = brains(Config),
    %% The core's answer comes before a publisher gives up.
    ?assert(maps:get(answer_ms_max, on(A, info, []))
                < call(A, halley_limits, get, [publish_ms_max])),
    [ok = on(Brain, listen, [<<"ann">>]) || Brain <- [A, B, C]],
    {ok, #{id := Id, sessions := 1}} = on(A, publish, [<<"ann">>, 1]),
    [[Event], [Event], [Event]] = [on(Brain, heard_by, [<<"ann">>, 1]) || Brain <- [A, B, C]],
    ?assertMatch({Id, _, 1}, Event).

%% Three publish at once; each brain shows all of it in one order.
one_order_for_all(Config) ->
    [A, B, C] = Brains = brains(Config),
    [ok = on(Brain, listen, [<<"ann">>]) || Brain <- Brains],
    [ok = on(Brain, publish_for_ms, [publisher, <<"ann">>, 1000]) || Brain <- Brains],
    Answers = lists:append([on(Brain, published, [publisher]) || Brain <- Brains]),
    Ids = [Id || {_, _, {ok, #{id := Id}}} <- Answers],
    ?assertEqual(length(Answers), length(Ids)),
    N = length(Ids),
    OnA = on(A, heard_by, [<<"ann">>, N]),
    ct:pal("~b events", [N]),
    ?assertEqual(lists:sort(Ids), lists:sort([Id || {Id, _, _} <- OnA])),
    ?assertEqual(OnA, on(B, heard_by, [<<"ann">>, N])),
    ?assertEqual(OnA, on(C, heard_by, [<<"ann">>, N])).

one_of_them_orders(Config) ->
    Modes = modes(brains(Config), 1),
    ?assertEqual(1, length([ordering || ordering <- Modes])),
    ?assertEqual(2, length([Brain || {following, Brain} <- Modes])).

%% Once all have met.
modes(Brains, Ordering) -> modes(Brains, Ordering, 300).

modes(Brains, Ordering, Tries) ->
    Modes = [maps:get(mode, on(Brain, info, [])) || Brain <- Brains],
    Others = length(Brains) - Ordering,
    case {length([M || ordering = M <- Modes]), length([M || {following, _} = M <- Modes])} of
        {Ordering, Others} -> Modes;
        _ when Tries > 0 -> timer:sleep(50), modes(Brains, Ordering, Tries - 1);
        _ -> Modes
    end.

chosen_id_is_one_event(Config) ->
    [A, B, C] = brains(Config),
    [ok = on(Brain, listen, [<<"ann">>]) || Brain <- [A, B, C]],
    Opts = #{id => <<"chosen">>},
    ?assertMatch({ok, #{id := <<"chosen">>}}, on(A, publish, [<<"ann">>, 1, Opts])),
    ?assertMatch({ok, #{id := <<"chosen">>}}, on(B, publish, [<<"ann">>, 2, Opts])),
    ?assertMatch({ok, _}, on(C, publish, [<<"ann">>, 3])),
    [?assertMatch([{<<"chosen">>, _, 1}, {_, _, 3}], on(Brain, heard_by, [<<"ann">>, 2]))
     || Brain <- [A, B, C]].

private_and_joint(Config) ->
    [A, B, _] = brains(Config),
    ok = on(B, listen, [<<"bob">>]),
    {ok, #{sessions := 0}} = on(A, publish, [{to, [<<"ann">>, <<"bob">>]}, 1]),
    {ok, #{sessions := 0}} = on(A, publish, [{subjects, [<<"room">>, <<"bob">>]}, 2]),
    {ok, _} = on(A, publish, [<<"bob">>, 3]),
    %% They are of three shards, so of three orders.
    ?assertEqual([1, 2, 3], lists:sort([Data || {_, _, Data} <- on(B, heard_by, [<<"bob">>, 3])])).

%% What is followed at one brain is followed at all, from the answer on; a brain that joins has it.
follows(Config) ->
    [A, B, C] = Brains = brains(Config),
    ok = on(C, listen, [<<"ann">>]),
    Pair = {<<"ann">>, <<"room">>},
    ?assertMatch({ok, #{added := 1, already := 0}}, call(A, halley_follows, follow, [[Pair]])),
    {ok, #{id := First}} = on(B, publish, [<<"room">>, 1]),
    ?assertMatch([{First, _, 1}], on(C, heard_by, [<<"ann">>, 1])),
    ?assertMatch({ok, #{added := 1, already := 1, errors := [{2, {bad_id, user, _}}]}},
                 call(B, halley_follows, follow,
                      [[Pair, {<<"ann">>, <<"news">>}, {<<>>, <<"news">>}]])),
    [halley_cluster_test:eventually([<<"news">>, <<"room">>], fun() -> following(Brain) end)
     || Brain <- Brains],
    ?assertMatch({ok, #{removed := 1, absent := 1, errors := []}},
                 call(C, halley_follows, unfollow, [[Pair, {<<"ann">>, <<"nothing">>}]])),
    {ok, _} = on(A, publish, [<<"room">>, 2]),
    {ok, _} = on(A, publish, [<<"news">>, 3]),
    {ok, _} = on(A, publish, [<<"ann">>, 4]),
    ?assertEqual([1, 3, 4], lists:sort([Data || {_, _, Data} <- on(C, heard_by, [<<"ann">>, 3])])),
    Admin = halley_cluster_test:admin(?config(server, Config)),
    ?assertEqual([{<<"ann">>, <<"news">>}],
                 halley_cluster_test:rows(Admin, "select convert_from(user_id, 'utf8'), "
                                                 "convert_from(subject, 'utf8') "
                                                 "from halley_cluster.follows")),
    ok = epgsql:close(Admin),
    [D] = halley_cluster_nodes:start(1, ?config(engine, Config)),
    try
        [halley_cluster_test:eventually([<<"news">>], fun() -> following(Brain) end)
         || Brain <- [D | Brains]]
    after
        halley_cluster_nodes:stop([D])
    end.

following(Brain) ->
    case call(Brain, halley_follows, following, [<<"ann">>, start, 10]) of
        {Subjects, done} -> lists:sort(Subjects);
        {error, {unknown_id, _}} -> []
    end.

%% Others go on with another orderer; nothing that was answered is lost, nothing comes twice.
orderer_is_killed(Config) ->
    Brains = brains(Config),
    Modes = modes(Brains, 1),
    {value, {Orderer, _}} = lists:search(fun({_, Mode}) -> Mode =:= ordering end,
                                         lists:zip(Brains, Modes)),
    [B, C] = Others = Brains -- [Orderer],
    [ok = on(Brain, listen, [<<"ann">>]) || Brain <- Others],
    [ok = on(Brain, publish_on, [publisher, <<"ann">>]) || Brain <- Others],
    [answered_after(on(Brain, now_ms, []), Brain) || Brain <- Others],
    ok = halley_cluster_nodes:kill(Orderer),
    Again = [answered_after(on(Brain, now_ms, []), Brain) || Brain <- Others],
    After = modes(Others, 1),
    [answered_after(on(Brain, now_ms, []), Brain) || Brain <- Others],
    ?assertEqual(1, length([ordering || ordering <- After])),
    ?assertMatch([_], [Brain || {following, Brain} <- After]),
    Answers = lists:append([on(Brain, stopped, [publisher]) || Brain <- Others]),
    Ids = [Id || {_, _, {ok, #{id := Id}}} <- Answers],
    Slowest = lists:max([Took || {_, Took, _} <- Answers]),
    ct:pal("~b answered of ~b; the slowest after ~b ms; answers again after ~w ms",
           [length(Ids), length(Answers), Slowest, Again]),
    %% No publisher gives up.
    ?assertEqual(length(Answers), length(Ids)),
    ?assert(lists:max(Again) < ?AGAIN_MS_MAX),
    OnB = on(B, heard_by, [<<"ann">>, length(Ids)]),
    OnC = on(C, heard_by, [<<"ann">>, length(OnB)]),
    Heard = [Id || {Id, _, _} <- OnB],
    ?assertEqual([], Ids -- Heard),
    ?assertEqual(length(Heard), length(lists:usort(Heard))),
    ?assertEqual(OnB, OnC).

%% How long after that time a publish that began later was answered with `ok'.
answered_after(SinceMs, Brain) ->
    halley_cluster_test:eventually(true, fun() -> is_integer(on(Brain, again, [SinceMs])) end),
    on(Brain, again, [SinceMs]).

%% It had rows that no other process has: the brain is a member no more. It isn't started with what
%% it has left.
shard_that_dies(Config) ->
    [_, _, C] = brains(Config),
    ok = on(C, watch, []),
    {ok, _} = on(C, publish, [<<"ann">>, 1]),
    halley_cluster_test:eventually(false, fun() -> call(C, halley_history, is_empty, []) end),
    ?assertEqual(running, on(C, so_far, [])),
    ok = on(C, kill_a_shard, []),
    Shard = halley_shard:name(1),
    ?assertEqual({shard_died, Shard}, on(C, ended, [])),
    halley_cluster_test:eventually(undefined, fun() ->
        call(C, erlang, whereis, [halley_cluster_sup])
    end),
    ?assertMatch({error, {shutdown, {failed_to_start_child, halley_cluster_brain,
                                     {data_not_empty, _, _}}}},
                 call(C, halley_cluster_nodes, again, [])).

kill_a_shard() ->
    exit(whereis(halley_shard:name(1)), kill),
    ok.

%% The brain that orders empties segments that are older than the retention.
old_rows_go(Config) ->
    Ms = 300,
    ok = halley_cluster_nodes:stop(brains(Config)),
    [Brain] = halley_cluster_nodes:start(1, (?config(engine, Config))#{retention_ms => Ms},
                                         [{history_retention_ms, Ms}]),
    C = halley_cluster_test:admin(?config(server, Config)),
    try
        halley_cluster_test:eventually(true, fun() ->
            {ok, _} = on(Brain, publish, [<<"ann">>, 1]),
            [{First}] = halley_cluster_test:rows(
                C, "select min(first) > 0 from halley_cluster.segments()"),
            First =:= <<"t">>
        end)
    after
        ok = epgsql:close(C),
        ok = halley_cluster_nodes:stop([Brain])
    end.

%% The service was started anew, so the log goes on under another store id. Brains adopt it:
%% sessions stay, cursors from before are good, and an event whose id was chosen before is the same.
%% A brain that is started then has the rows of before, too.
other_epoch(_) ->
    Server = ?config(server, halley_cluster_test:start_postgres([])),
    ok = halley_cluster_test:install(Server),
    [A, B] = Old = halley_cluster_nodes:start(2, engine(Server)),
    [ok = on(Brain, watch, []) || Brain <- Old],
    ok = on(B, listen, [<<"ann">>]),
    {ok, #{id := <<"chosen">>}} = on(A, publish, [<<"ann">>, 1, #{id => <<"chosen">>}]),
    Cursor = on(A, cursor, []),
    {ok, #{id := Second}} = on(A, publish, [<<"ann">>, 2]),
    {Store, _, _} = on(A, begun, []),
    ok = epgsql_test_server:crash(Server),
    halley_cluster_test:eventually({not_ready, log_away}, fun() -> readiness(A) end),
    %% Nothing was done, and the publisher learns so.
    ?assertEqual({error, overloaded}, on(A, publish, [<<"ann">>, 4])),
    ?assertEqual({error, overloaded},
                 call(A, halley_follows, follow, [[{<<"ann">>, <<"room">>}]])),
    Again = epgsql_test_server:restart(Server),
    [C] = halley_cluster_nodes:start(1, engine(Again)),
    try
        [halley_cluster_test:eventually(ready, fun() -> readiness(Brain) end) || Brain <- Old],
        ?assertMatch({ok, #{id := <<"chosen">>}},
                     on(C, publish, [<<"ann">>, 4, #{id => <<"chosen">>}])),
        {ok, #{id := Third}} = on(C, publish, [<<"ann">>, 5]),
        ?assertMatch([{<<"chosen">>, _, 1}, {Second, _, 2}, {Third, _, 5}],
                     on(B, heard_by, [<<"ann">>, 3])),
        [?assertMatch({New, 0, _} when New =/= Store, on(Brain, begun, [])) || Brain <- [C | Old]],
        [halley_cluster_test:eventually([Second, Third],
                                        fun() -> on(Brain, missed, [<<"ann">>, Cursor]) end)
         || Brain <- [C | Old]],
        ?assertEqual([running, running], [on(Brain, so_far, []) || Brain <- Old])
    after
        ok = halley_cluster_nodes:stop([C | Old]),
        ok = epgsql_test_server:stop(Again)
    end.

%% The log has lost what the brains have: they end. Brains that are started then have the others.
rows_that_are_lost(Config) ->
    [A, _, _] = Brains = brains(Config),
    [ok = on(Brain, watch, []) || Brain <- Brains],
    {ok, #{id := First}} = on(A, publish, [<<"ann">>, 1, #{id => <<"first">>}]),
    Admin = halley_cluster_test:admin(?config(server, Config)),
    [{Head}] = halley_cluster_test:rows(Admin, "select halley_cluster.last()"),
    {ok, #{id := Lost}} = on(A, publish, [<<"ann">>, 2, #{id => <<"lost">>}]),
    [halley_cluster_test:eventually(false, fun() -> is_gone(Lost, Brain) end) || Brain <- Brains],
    ?assertEqual([running, running, running], [on(Brain, so_far, []) || Brain <- Brains]),
    ok = halley_cluster_test:sql(Admin, ["delete from halley_cluster.log_0 where prev >= ", Head]),
    ok = epgsql:close(Admin),
    Before = {lost, binary_to_integer(Head)},
    [?assertEqual({copy_needed, Before}, on(Brain, ended, [])) || Brain <- Brains],
    [D] = halley_cluster_nodes:start(1, ?config(engine, Config)),
    try
        halley_cluster_test:eventually(false, fun() -> is_gone(First, D) end),
        ?assert(is_gone(Lost, D)),
        ?assertMatch({ok, _}, on(D, publish, [<<"ann">>, 3]))
    after
        halley_cluster_nodes:stop([D])
    end.

is_gone(Id, Brain) -> call(Brain, halley_history, find, [Id]) =:= none.

cursor() -> halley_missed_helper:cursor().

missed(User, Cursor) ->
    halley_missed_helper:ids(halley_missed_helper:missed(User, Cursor)).

begun() -> {halley_history:store(), halley_history:floor(), halley_history:heads()}.

readiness(Brain) -> maps:get(readiness, on(Brain, info, [])).

brain_that_joins(Config) ->
    [A, _, _] = brains(Config),
    Answers = on(A, publish_many, [<<"ann">>, lists:seq(1, 100)]),
    ?assertEqual(100, length([ok || {ok, _} <- Answers])),
    [D] = halley_cluster_nodes:start(1, ?config(engine, Config)),
    try
        #{head := Head} = on(A, info, []),
        ?assertMatch(#{head := Same} when Same >= Head, on(D, info, [])),
        %% It is one of them: its links and theirs to it are by the table of brains.
        All = modes([D | brains(Config)], 1),
        ?assertMatch({following, _}, hd(All)),
        ?assertEqual(3, length([Brain || {following, Brain} <- All])),
        ok = on(D, listen, [<<"ann">>]),
        {ok, #{id := Id}} = on(A, publish, [<<"ann">>, 101]),
        ?assertMatch([{Id, _, 101}], on(D, heard_by, [<<"ann">>, 1]))
    after
        halley_cluster_nodes:stop([D])
    end.
