%% Queries by a pool whose statement the connection keeps: read without a session, written for the
%% waiting caller, and their end if anything happens except an answer.
-module(epgsql_pool_known_SUITE).

-include("epgsql_pool_suite.hrl").

all() ->
    [known_statements, request_is_written_for_a_waiter, waiter_that_does_not_take_its_answer].

%% The second time a statement is known, and its answer is read without a session unless it is
%% anything but whole and good.
known_statements(Config) ->
    ok = start(Config, #{size => 1}),
    Before = backend(),
    Twice = fun(Sql, Parameters) ->
        [epgsql_pool:equery(?POOL, Sql, Parameters) || _ <- [1, 2]]
    end,
    Text = binary:copy(<<"x">>, 100000),
    ?assertMatch([{ok, _, [{Text}]}, {ok, _, [{Text}]}],
                 Twice(<<"select repeat('x', $1)">>, [100000])),
    ?assertMatch([{ok, [], []}, {ok, [], []}],
                 Twice(<<"create table if not exists t (a int)">>, [])),
    ?assertMatch([{ok, 1}, {ok, 1}], Twice(<<"insert into t values ($1)">>, [1])),
    ?assertMatch([{ok, 1, [_], [{1}]}, {ok, 1, [_], [{1}]}],
                 Twice(<<"insert into t values ($1) returning a">>, [1])),
    ?assertMatch([{ok, [_, _], []}, {ok, [_, _], []}],
                 Twice(<<"select a, a from t where a = 2">>, [])),
    ?assertMatch([{ok, [], []}, {ok, [], []}], Twice(<<"">>, [])),
    ?assertMatch([{error, #error{codename = division_by_zero}},
                  {error, #error{codename = division_by_zero}}],
                 Twice(<<"select 1 / $1::int4">>, [0])),
    ?assertMatch([{error, {bad_parameters, _}}, {error, {bad_parameters, _}}],
                 Twice(<<"select $1::int4">>, [ann])),
    ?assertMatch([{error, {bad_parameters, _}}, {error, {bad_parameters, _}}],
                 Twice(<<"select $1::int4">>, [1, 2])),
    Said = <<"select set_config('application_name', $1, false)">>,
    ?assertMatch([{ok, _, [{<<"ann">>}]}, {ok, _, [{<<"ann">>}]}], Twice(Said, [<<"ann">>])),
    ?assertMatch({ok, <<"ann">>}, epgsql_pool:with(?POOL, fun(C) ->
        epgsql:get_parameter(C, "application_name")
    end)),
    Slow = <<"select $1::int4 from pg_sleep($2)">>,
    ?assertMatch({ok, _, [{1}]}, epgsql_pool:equery(?POOL, Slow, [1, 0.0])),
    ?assertEqual({error, timeout}, epgsql_pool:equery(?POOL, Slow, [2, 60.0], #{timeout => 100})),
    ?assertMatch({ok, _, [{3}]}, epgsql_pool:equery(?POOL, Slow, [3, 0.0])),
    ?assertMatch([{ok, _, _}, {ok, _, _}], Twice(<<"deallocate all">>, [])),
    ?assertMatch({ok, _, [{4}]}, epgsql_pool:equery(?POOL, Slow, [4, 0.0])),
    ?assertEqual(Before, backend()),
    ?assertMatch([{ok, [], []}, {ok, [], []}], Twice(<<"begin">>, [])),
    ?assertNotEqual(Before, backend()).

%% The only connection is given to a waiter that can't run: its answer is there before it is.
request_is_written_for_a_waiter(Config) ->
    ok = start(Config, #{size => 1}),
    Sql = <<"select $1::int4 from nextval('written')">>,
    {ok, [], []} = epgsql_pool:squery(?POOL, "create sequence written"),
    ?assertEqual(0, value(Sql, [0])),
    {Pid, Ref} = written_for(fun() -> value(Sql, [1]) end),
    ok = until(fun() -> sequence(Config) =:= <<"2">> end),
    true = erlang:resume_process(Pid),
    ?assertEqual(1, receive {Ref, Answer} -> Answer end),
    ?assertMatch(#{in_use := 0, closed := 0}, epgsql_pool:metrics(?POOL)).

%% Its connection has an answer that is nobody's: it is closed, at once if the waiter is dead.
waiter_that_does_not_take_its_answer(Config) ->
    ok = start(Config, #{size => 1}),
    Sql = <<"select $1::int4 ">>,
    0 = value(Sql, [0]),
    {Killed, _} = written_for(fun() -> value(Sql, [1]) end),
    true = exit(Killed, kill),
    ?assertEqual(2, value(Sql, [2])),
    ?assertMatch(#{in_use := 0, closed := 1}, epgsql_pool:metrics(?POOL)),
    {Slow, Ref} = written_for(fun() -> epgsql_pool:equery(?POOL, Sql, [3]) end),
    ok = until(fun() -> metric(closed) =:= 2 end),
    true = erlang:resume_process(Slow),
    ?assertEqual({error, timeout}, receive {Ref, Answer} -> Answer end),
    ?assertEqual(4, value(Sql, [4])).

%% A process that asks while the only connection is in use, and is suspended when it gets it.
written_for(Fun) ->
    Self = self(),
    Ref = make_ref(),
    Pid = epgsql_pool:with(?POOL, fun(_) ->
        Waiter = spawn(fun() -> Self ! {Ref, Fun()} end),
        ok = until(fun() -> metric(waiting) =:= 1
                            andalso process_info(Waiter, status) =:= {status, waiting} end),
        true = erlang:suspend_process(Waiter),
        Waiter
    end),
    {Pid, Ref}.

sequence(Config) ->
    {ok, C} = epgsql:connect(options(Config, #{})),
    {ok, _, [{Value}]} = epgsql:squery(C, "select last_value from written"),
    ok = epgsql:close(C),
    Value.
