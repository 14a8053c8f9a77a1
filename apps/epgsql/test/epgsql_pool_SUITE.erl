%% Pools against a real PostgreSQL: which caller gets a connection and when, what is never handed
%% on, and what happens to a pool when callers, connections or the server go.
-module(epgsql_pool_SUITE).

-include("epgsql_pool_suite.hrl").

all() ->
    [queries, connection_in_a_fun, handle_is_the_holders_alone, pipeline_on_a_held_connection,
     copy_to_stdout, copy_whose_fun_fails, what_needs_a_process, large_requests_do_not_stall,
     grows_when_needed_and_shrinks, first_come_first_served, queue_is_bounded, queue_has_a_deadline,
     statements_are_kept, open_transaction_is_not_handed_on, failing_transaction,
     raising_fun_in_a_transaction, time_out_keeps_the_connection, time_out_in_a_silence,
     dead_caller, dead_waiter, many_killed_callers, connection_ended_while_idle,
     connection_ended_in_a_query, silent_connection_is_found, server_away_and_back, no_server,
     over_tls, opened_comes_first, opened_may_refuse,
     parameter_stays_with_its_connection, checked_out_by_hand, stopped_pool, child].

%% --- what a held connection can do --------------------------------------------------------------

queries(Config) ->
    ok = start(Config),
    ?assertMatch({ok, [#column{type = int4}], [{42}]},
                 epgsql_pool:equery(?POOL, "select $1::int4", [42])),
    ?assertMatch({ok, _, [{<<"1">>}]}, epgsql_pool:squery(?POOL, "select 1")),
    ?assertMatch({error, #error{codename = undefined_table}},
                 epgsql_pool:equery(?POOL, "select * from nowhere")),
    ?assertMatch({error, {bad_parameters, _}}, epgsql_pool:equery(?POOL, "select $1::int2", [ann])),
    Answers = parallel(64, fun(N) -> [value("select $1::int4", [N]) || _ <- lists:seq(1, 50)] end),
    ?assertEqual([lists:duplicate(50, N) || N <- lists:seq(1, 64)], Answers),
    ok = until(fun() -> metric(opening) =:= 0 end),
    ?assertMatch(#{in_use := 0, waiting := 0, opened := 4, closed := 0},
                 epgsql_pool:metrics(?POOL)).

%% Of all connections, whatever somebody else leaves in a session.
opened_comes_first(Config) ->
    ok = start(Config, #{opened => fun(C) ->
        {ok, <<_, _/binary>> = Version} = epgsql:get_parameter(C, "server_version"),
        {ok, [], []} = epgsql:squery(C, ["set epgsql.version = '", Version, "'"]),
        ok
    end}),
    Versions = parallel(16, fun(_) -> value("select current_setting('epgsql.version')") end),
    ?assertEqual([value("show server_version")], lists:usort(Versions)).

%% Why there is no connection is what it says. What it leaves under way nobody gets.
opened_may_refuse(Config) ->
    [begin
         ok = start(Config, #{opened => Opened, wait_ms => 2000}),
         ?assertEqual({error, {no_connection, Reason}}, epgsql_pool:squery(?POOL, "select 1")),
         ?assertMatch(#{idle := 0, in_use := 0, opened := 0}, epgsql_pool:metrics(?POOL)),
         ok = epgsql_pool:stop(?POOL)
     end || {Opened, Reason} <- [{fun(_) -> {error, too_old} end, too_old},
                                 {fun(C) -> {ok, [], []} = epgsql:squery(C, "begin"), ok end,
                                  opened_left_something}]].

connection_in_a_fun(Config) ->
    ok = start(Config),
    Result = epgsql_pool:with(?POOL, fun(C) ->
        ?assertEqual(1, metric(in_use)),
        {ok, [], []} = epgsql:squery(C, "create temp table t (a int4)"),
        {ok, Statement} = epgsql:parse(C, "insert", "insert into t values ($1)", []),
        {ok, 1} = epgsql:prepared_query(C, Statement, [1]),
        [{ok, 1}, {ok, 1}] = epgsql:execute_batch(C, [{Statement, [2]}, {Statement, [3]}]),
        ok = epgsql:bind(C, Statement, "", [4]),
        {ok, 1} = epgsql:execute(C, Statement),
        {ok, {insert, 1}} = epgsql:get_cmd_status(C),
        ok = epgsql:sync(C),
        {ok, <<"UTF8">>} = epgsql:get_parameter(C, "client_encoding"),
        true = is_integer(epgsql:get_backend_pid(C)),
        {error, #error{}} = epgsql:parse(C, "select nothing"),
        {ok, _, [{Sum}]} = epgsql:equery(epgsql:with_timeout(C, 30000), "select sum(a) from t"),
        Sum
    end),
    ?assertEqual(10, Result),
    ?assertEqual(0, metric(in_use)).

handle_is_the_holders_alone(Config) ->
    ok = start(Config),
    Handle = epgsql_pool:with(?POOL, fun(C) ->
        ?assertEqual([{error, not_held}], parallel(1, fun(_) -> epgsql:squery(C, "select 1") end)),
        C
    end),
    ?assertEqual({error, not_held}, epgsql:squery(Handle, "select 1")).

pipeline_on_a_held_connection(Config) ->
    ok = start(Config),
    ?assertMatch([{ok, _, [{1}]}, {error, #error{}}, {ok, _, [{2}]}],
                 epgsql_pool:with(?POOL, fun(C) ->
                     epgsql:pipeline(C, ["select 1", "select nothing", {"select $1::int4", [2]}])
                 end)).

copy_to_stdout(Config) ->
    ok = start(Config),
    Sum = fun(Rows, Acc) -> Acc + lists:sum([A || {A, _} <- Rows]) end,
    Query = "copy (select a::int8, a::text from generate_series(1, 100000) a) to stdout"
            " (format binary)",
    ?assertEqual([{ok, 100000, 5000050000}, {error, {format_mismatch, text, binary}},
                  {error, not_a_copy}],
                 epgsql_pool:with(?POOL, fun(C) ->
                     [epgsql:copy_to_stdout(C, Query, {binary, [int8, text]}, Sum, 0),
                      epgsql:copy_to_stdout(C, Query, Sum, 0),
                      epgsql:copy_to_stdout(C, "select 1", Sum, 0)]
                 end)),
    ?assertMatch(#{closed := 0}, epgsql_pool:metrics(?POOL)).

%% The server is asked to stop, and the connection is good for more.
copy_whose_fun_fails(Config) ->
    ok = start(Config),
    Endless = "copy (select generate_series(1, 1000000000)) to stdout",
    ?assertEqual(2, epgsql_pool:with(?POOL, fun(C) ->
        enough = catch epgsql:copy_to_stdout(C, Endless, fun(_, _) -> throw(enough) end, 0),
        {error, timeout} = epgsql:copy_to_stdout(epgsql:with_timeout(C, 100),
                                                 "copy (select pg_sleep(60)) to stdout",
                                                 fun(_, Acc) -> Acc end, 0),
        {ok, _, [{Two}]} = epgsql:equery(C, "select 2"),
        Two
    end)),
    ?assertMatch(#{closed := 0}, epgsql_pool:metrics(?POOL)).

what_needs_a_process(Config) ->
    ok = start(Config),
    epgsql_pool:with(?POOL, fun(C) ->
        ?assertMatch({error, {needs_a_process, _}},
                     epgsql:copy_from_stdin(C, "copy pg_class from stdin")),
        ?assertMatch({error, _}, epgsql:standby_status_update(C, 0, 0))
    end),
    ?assertEqual(1, value("select 1")).

%% More than both sides' buffers take.
large_requests_do_not_stall(Config) ->
    ok = start(Config),
    Text = binary:copy(<<"x">>, 20000000),
    ?assertEqual(Text, value("select $1::text", [Text])),
    Small = binary:copy(<<"x">>, 2000),
    epgsql_pool:with(?POOL, fun(C) ->
        Answers = epgsql:pipeline(C, lists:duplicate(5000, {"select $1::text", [Small]})),
        ?assertEqual(5000, length([ok || {ok, _, [{Same}]} <- Answers, Same =:= Small])),
        {_, Batch} = epgsql:execute_batch(C, "select $1::text", lists:duplicate(5000, [Small])),
        ?assertEqual(5000, length([ok || {ok, [{Same}]} <- Batch, Same =:= Small]))
    end).

%% --- the pool's size and its queue --------------------------------------------------------------

grows_when_needed_and_shrinks(Config) ->
    ok = start(Config, #{size => 8, min => 2, idle_ms => 3000}),
    ok = until(fun() -> metric(idle) =:= 2 end),
    _ = parallel(20, fun(_) -> epgsql_pool:squery(?POOL, "select pg_sleep(0.1)") end),
    ?assertMatch(#{opened := 8, closed := 0}, epgsql_pool:metrics(?POOL)),
    %% A connection that is being closed isn't idle any more, and not yet counted as closed.
    ok = until(fun() -> metric(closed) =:= 6 end),
    ?assertMatch(#{opened := 8, idle := 2}, epgsql_pool:metrics(?POOL)).

%% Each connection sleeps until all wait; then they come in the order in which they came.
first_come_first_served(Config) ->
    ok = start(Config, #{size => 1}),
    Self = self(),
    epgsql_pool:with(?POOL, fun(_) ->
        [begin
             spawn_link(fun() -> epgsql_pool:with(?POOL, fun(_) -> Self ! {served, N} end) end),
             until(fun() -> metric(waiting) =:= N end)
         end || N <- lists:seq(1, 20)]
    end),
    ?assertEqual(lists:seq(1, 20), [receive {served, N} -> N end || _ <- lists:seq(1, 20)]),
    ?assertMatch(#{waited := Waited, waiting := 0} when Waited >= 20,
                 epgsql_pool:metrics(?POOL)).

queue_is_bounded(Config) ->
    ok = start(Config, #{size => 1, queue_max => 3}),
    epgsql_pool:with(?POOL, fun(_) ->
        Waiting = [spawn_link(fun() -> epgsql_pool:squery(?POOL, "select 1") end)
                   || _ <- lists:seq(1, 3)],
        ok = until(fun() -> metric(waiting) =:= 3 end),
        ?assertEqual([{error, pool_full}, {error, pool_full}],
                     parallel(2, fun(_) -> epgsql_pool:squery(?POOL, "select 1") end)),
        Waiting
    end),
    ok = until(fun() -> metric(waiting) =:= 0 end),
    ?assertEqual(2, metric(refused)),
    ?assertEqual(1, value("select 1")).

queue_has_a_deadline(Config) ->
    ok = start(Config, #{size => 1, wait_ms => 100}),
    epgsql_pool:with(?POOL, fun(_) ->
        {Us, Answers} = timer:tc(fun() ->
            parallel(5, fun(_) -> epgsql_pool:squery(?POOL, "select 1") end)
        end),
        ?assertEqual(lists:duplicate(5, {error, pool_timeout}), Answers),
        %% Not after as long as a pool lets wait by itself.
        ?assert(Us >= 100000 andalso Us < 5000000),
        [{error, pool_timeout}] =
            parallel(1, fun(_) -> epgsql_pool:squery(?POOL, "select 1", #{wait_ms => 0}) end)
    end),
    ?assertMatch(#{timed_out := 6, waiting := 0}, epgsql_pool:metrics(?POOL)),
    ?assertEqual(1, value("select 1")).

statements_are_kept(Config) ->
    ok = start(Config, #{size => 1}),
    [?assertEqual(N, value("select $1::int4", [N])) || N <- lists:seq(1, 10)],
    {ok, _, Rows} = epgsql_pool:squery(?POOL, "select statement from pg_prepared_statements"),
    ?assertEqual([{<<"select $1::int4">>}], Rows).

%% --- what is never handed on --------------------------------------------------------------------

open_transaction_is_not_handed_on(Config) ->
    ok = start(Config, #{size => 1}),
    Before = backend(),
    {ok, [], []} = epgsql_pool:squery(?POOL, "begin"),
    ?assertNotEqual(Before, backend()),
    Second = backend(),
    {error, #error{}} = epgsql_pool:with(?POOL, fun(C) ->
        {ok, [], []} = epgsql:squery(C, "begin"),
        epgsql:squery(C, "select nothing")
    end),
    ?assertNotEqual(Second, backend()),
    ?assertMatch(#{closed := 2, opened := 3}, epgsql_pool:metrics(?POOL)).

failing_transaction(Config) ->
    ok = start(Config, #{size => 1}),
    Before = backend(),
    ?assertEqual({rollback, sorry}, epgsql_pool:transaction(?POOL, fun(C) ->
        {ok, [], []} = epgsql:squery(C, "create table rolled_back (a int)"),
        throw(sorry)
    end)),
    ?assertEqual(done, epgsql_pool:transaction(?POOL, fun(C) ->
        {ok, [], []} = epgsql:squery(C, "create table committed (a int)"),
        done
    end)),
    ?assertEqual(null, value("select to_regclass('rolled_back')::text")),
    ?assertEqual(<<"committed">>, value("select to_regclass('committed')::text")),
    ?assertEqual(Before, backend()).

raising_fun_in_a_transaction(Config) ->
    ok = start(Config, #{size => 1}),
    ?assertError(oops, epgsql_pool:with(?POOL, fun(C) ->
        {ok, [], []} = epgsql:squery(C, "begin"),
        error(oops)
    end)),
    ?assertMatch({ok, _, [{<<"1">>}]}, epgsql_pool:squery(?POOL, "select 1")),
    ?assertEqual(1, metric(closed)).

%% The caller is answered in time; the answer that comes later is nobody else's.
time_out_keeps_the_connection(Config) ->
    ok = start(Config, #{size => 1}),
    Before = backend(),
    {Us, Answer} = timer:tc(fun() ->
        epgsql_pool:squery(?POOL, "select pg_sleep(60)", #{timeout => 200})
    end),
    ?assertEqual({error, timeout}, Answer),
    %% The server has 5 s to end the statement: nobody waits for that.
    ?assert(Us < 5000000),
    ?assertEqual(Before, backend()),
    epgsql_pool:with(?POOL, fun(C) ->
        {error, timeout} = epgsql:equery(C, "select pg_sleep(60)"),
        {ok, _, [{1}]} = epgsql:equery(epgsql:with_timeout(C, 30000), "select 1")
    end, #{timeout => 200}),
    ?assertEqual(Before, backend()).

%% A server that doesn't answer at all: the connection is given up, after it had time to.
time_out_in_a_silence(Config) ->
    #{port := Port} = options(Config, #{}),
    Proxy = epgsql_test_proxy:start(Port),
    ok = start(Config, #{size => 1, wait_ms => 20000}, #{port => epgsql_test_proxy:port(Proxy)}),
    Before = backend(),
    ok = epgsql_test_proxy:delay(Proxy, infinity),
    ?assertEqual({error, timeout}, epgsql_pool:squery(?POOL, "select 1", #{timeout => 100})),
    Answers = spawn_waiting(),
    ok = until(fun() -> metric(closed) =:= 1 end),
    ok = epgsql_test_proxy:delay(Proxy, 0),
    ?assertMatch({ok, _, [{Pid}]} when Pid =/= Before, receive {Answers, Answer} -> Answer end).

spawn_waiting() ->
    Self = self(),
    spawn_link(fun() -> Self ! {self(), epgsql_pool:equery(?POOL, "select pg_backend_pid()")} end).

%% --- the dead -----------------------------------------------------------------------------------

holder() ->
    Self = self(),
    Pid = spawn(fun() ->
        epgsql_pool:with(?POOL, fun(C) ->
            {ok, [], []} = epgsql:squery(C, "begin"),
            Self ! {self(), epgsql:get_backend_pid(C)},
            epgsql:squery(C, "select pg_sleep(60)")
        end)
    end),
    receive {Pid, Backend} -> {Pid, Backend} end.

dead_caller(Config) ->
    ok = start(Config, #{size => 1}),
    {Pid, Backend} = holder(),
    exit(Pid, kill),
    ?assertNotEqual(Backend, backend()),
    ?assertMatch(#{closed := 1, opened := 2, in_use := 0}, epgsql_pool:metrics(?POOL)).

dead_waiter(Config) ->
    ok = start(Config, #{size => 1}),
    epgsql_pool:with(?POOL, fun(_) ->
        Pids = [spawn(fun() -> epgsql_pool:squery(?POOL, "select 1") end) || _ <- lists:seq(1, 10)],
        ok = until(fun() -> metric(waiting) =:= 10 end),
        [exit(Pid, kill) || Pid <- Pids]
    end),
    ?assertEqual(1, value("select 1")),
    ok = until(fun() -> metric(waiting) =:= 0 end),
    ?assertMatch(#{closed := 0, in_use := 0}, epgsql_pool:metrics(?POOL)).

%% Killed at any step of taking, using and giving back: nothing is lost, and nobody gets the answer
%% to somebody else's query.
many_killed_callers(Config) ->
    ok = start(Config, #{size => 4, wait_ms => 20000}),
    Self = self(),
    Callers = fun Loop(N) ->
        case epgsql_pool:equery(?POOL, "select $1::int8", [N]) of
            {ok, _, [{N}]} -> Loop(N + 1);
            Other -> Self ! {wrong, Other}
        end
    end,
    [begin
         Pids = [spawn(fun() -> Callers(N * 1000000) end) || N <- lists:seq(1, 12)],
         timer:sleep(rand:uniform(20)),
         [exit(Pid, kill) || Pid <- Pids]
     end || _ <- lists:seq(1, 60)],
    ?assertEqual(lists:seq(1, 16), lists:sort(parallel(16, fun(N) ->
        value("select $1::int4", [N])
    end))),
    ok = until(fun() -> maps:with([in_use, waiting], epgsql_pool:metrics(?POOL))
                            =:= #{in_use => 0, waiting => 0} end),
    ?assertEqual(none, receive {wrong, Answer} -> Answer after 0 -> none end).

%% --- connections and servers that go ------------------------------------------------------------

terminate(Config, Backend) ->
    {ok, C} = epgsql:connect(options(Config, #{})),
    {ok, _, [{true}]} = epgsql:equery(C, "select pg_terminate_backend($1)", [Backend]),
    ok = epgsql:close(C).

%% Seen when it is taken.
connection_ended_while_idle(Config) ->
    ok = start(Config, #{size => 1, look_ms => 0}),
    Backend = backend(),
    ok = terminate(Config, Backend),
    ok = until(fun() -> not filelib:is_dir("/proc/" ++ integer_to_list(Backend)) end),
    timer:sleep(100),
    ?assertEqual(1, value("select 1")).

connection_ended_in_a_query(Config) ->
    ok = start(Config, #{size => 1}),
    Self = self(),
    Pid = spawn_link(fun() ->
        Self ! {self(), epgsql_pool:with(?POOL, fun(C) ->
            Self ! {backend, epgsql:get_backend_pid(C)},
            [epgsql:squery(C, "select pg_sleep(60)"), epgsql:squery(C, "select 1")]
        end)}
    end),
    receive {backend, Backend} -> timer:sleep(100), terminate(Config, Backend) end,
    ?assertMatch([{error, _}, {error, closed}], receive {Pid, Answers} -> Answers end),
    ?assertEqual(1, value("select 1")).

%% Nothing says that the way is gone; the look at idle connections finds it.
silent_connection_is_found(Config) ->
    #{port := Port} = options(Config, #{}),
    Proxy = epgsql_test_proxy:start(Port),
    ok = start(Config, #{size => 2, min => 2, check_ms => 200},
               #{port => epgsql_test_proxy:port(Proxy)}),
    ok = until(fun() -> metric(idle) =:= 2 end),
    timer:sleep(2500),
    ?assertMatch(#{closed := 0, idle := 2}, epgsql_pool:metrics(?POOL)),
    ok = epgsql_test_proxy:delay(Proxy, infinity),
    ok = until(fun() -> metric(closed) >= 2 end),
    ok = epgsql_test_proxy:delay(Proxy, 0),
    ?assertEqual(1, value("select 1")).

server_away_and_back(_) ->
    Server = epgsql_test_server:start(),
    {ok, _} = epgsql_pool:start_link(?POOL, #{connect => epgsql_test_server:options(Server),
                                              size => 4, wait_ms => 300}),
    _ = parallel(4, fun(_) -> epgsql_pool:squery(?POOL, "select pg_sleep(0.1)") end),
    ok = epgsql_test_server:crash(Server),
    Answers = parallel(20, fun(_) -> epgsql_pool:squery(?POOL, "select 1") end),
    ?assertEqual([], [Answer || Answer <- Answers, element(1, Answer) =/= error]),
    ?assertEqual({error, {no_connection, econnrefused}}, epgsql_pool:squery(?POOL, "select 1")),
    Again = epgsql_test_server:restart(Server),
    ok = until(fun() -> element(1, epgsql_pool:squery(?POOL, "select 1")) =:= ok end),
    _ = [?assertMatch({ok, _, [{1}]}, Each)
         || Each <- parallel(20, fun(_) -> epgsql_pool:equery(?POOL, "select 1") end)],
    epgsql_test_server:stop(Again).

no_server(_) ->
    {ok, _} = epgsql_pool:start_link(?POOL, #{connect => #{host => "127.0.0.1", port => 1,
                                                           username => "ann"},
                                              wait_ms => 200}),
    ?assertEqual({error, {no_connection, econnrefused}}, epgsql_pool:equery(?POOL, "select 1")),
    ?assert(metric(failed) < 5).

over_tls(Config) ->
    Authority = filename:join(epgsql_test_server:temporary(?config(server, Config)), "ca.crt"),
    ok = start(Config, #{look_ms => 0, wait_ms => ?WAIT_MS},
               #{ssl => required, host => "localhost", ssl_opts => [{cacertfile, Authority}],
                 username => "plus", password => "secret"}),
    Answers = parallel(20, fun(N) -> [value("select $1::int4", [N]) || _ <- lists:seq(1, 10)] end),
    ?assertEqual([lists:duplicate(10, N) || N <- lists:seq(1, 20)], Answers),
    ?assertEqual(true, value("select ssl from pg_stat_ssl where pid = pg_backend_pid()")),
    ?assertEqual({error, timeout},
                 epgsql_pool:squery(?POOL, "select pg_sleep(60)", #{timeout => 100})),
    ?assertMatch(#{closed := 0}, epgsql_pool:metrics(?POOL)).

parameter_stays_with_its_connection(Config) ->
    ok = start(Config, #{size => 1}),
    {ok, [], []} = epgsql_pool:squery(?POOL, "set application_name = 'changed'"),
    ?assertEqual({ok, <<"changed">>},
                 epgsql_pool:with(?POOL, fun(C) ->
                     epgsql:get_parameter(C, "application_name")
                 end)).

checked_out_by_hand(Config) ->
    ok = start(Config, #{size => 1}),
    {ok, C, Lease} = epgsql_pool:checkout(?POOL),
    ?assertMatch({ok, _, [{1}]}, epgsql:equery(C, "select 1")),
    ?assertEqual(1, metric(in_use)),
    ok = epgsql_pool:checkin(C, Lease),
    ?assertEqual(0, metric(in_use)).

stopped_pool(Config) ->
    ok = start(Config),
    ?assertEqual(1, epgsql_pool:with(?POOL, fun(C) ->
        {ok, _, [{1}]} = epgsql:equery(C, "select 1"),
        ok = epgsql_pool:stop(?POOL),
        ?assertMatch({error, _}, epgsql:equery(C, "select 1")),
        1
    end)),
    ?assertEqual({error, no_pool}, epgsql_pool:equery(?POOL, "select 1")),
    ?assertEqual({error, no_pool}, epgsql_pool:metrics(?POOL)).

child(Config) ->
    #{start := {Module, Function, Arguments}} =
        epgsql_pool:child_spec(?POOL, #{connect => options(Config, #{})}),
    {ok, Pid} = apply(Module, Function, Arguments),
    ?assertEqual(1, value("select 1")),
    exit(Pid, shutdown),
    receive {'EXIT', Pid, shutdown} -> ok end,
    ?assertEqual({error, no_pool}, epgsql_pool:squery(?POOL, "select 1")).
