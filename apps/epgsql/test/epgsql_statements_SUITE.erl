%% Statements that a connection keeps, and queries that are sent before the first is answered.
-module(epgsql_statements_SUITE).

-include("epgsql_suite.hrl").

all() ->
    [none_is_kept_by_default, one_preparation_for_many_queries, least_recently_used_goes,
     closed_at_the_server_when_it_goes, discarded_behind_its_back, discard_all, changed_result_type,
     changed_in_a_transaction, error_is_not_kept, bad_parameters_leave_the_connection,
     codecs_change, many_before_the_first_answer, pipeline_in_order, error_in_a_pipeline_is_alone,
     pipeline_of_statements, unknown_statement_holds_up_those_behind_it,
     held_up_query_times_out, time_out_while_preparing_runs_nothing, crash_answers_those_held_up,
     large_pipeline_does_not_stall, parked_requests_are_bounded, message_of_an_unknown_statement].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

connect(Config) -> connect(Config, 10).

connect(Config, Max) ->
    {ok, C} = epgsql:connect(options(Config, #{statement_cache => Max})),
    C.

value(C, Sql) -> value(C, Sql, []).

value(C, Sql, Parameters) ->
    {ok, _, [{Value}]} = epgsql:equery(C, Sql, Parameters),
    Value.

%% What the server has prepared for this connection, by simple queries: they aren't kept.
kept(C) ->
    {ok, _, Rows} = epgsql:squery(C, "select statement from pg_prepared_statements order by 1"),
    [Sql || {Sql} <- Rows].

none_is_kept_by_default(Config) ->
    {ok, C} = epgsql:connect(options(Config, #{})),
    ?assertEqual(7, value(C, "select $1::int4", [7])),
    ?assertEqual([], kept(C)).

one_preparation_for_many_queries(Config) ->
    C = connect(Config),
    [?assertEqual(N, value(C, Sql, [N]))
     || N <- lists:seq(1, 50), Sql <- ["select $1::int4", <<"select $1::int4">>]],
    ?assertEqual([<<"select $1::int4">>], kept(C)).

least_recently_used_goes(Config) ->
    C = connect(Config, 3),
    [begin
         timer:sleep(20),
         ?assertEqual(N, value(C, ["select ", integer_to_list(N)]))
     end || N <- [1, 2, 3, 1, 4]],
    %% The server hears of it with the next preparation.
    ?assertEqual(5, value(C, "select 5")),
    ?assertEqual([<<"select 1">>, <<"select 3">>, <<"select 4">>, <<"select 5">>], kept(C)),
    ?assertEqual(6, value(C, "select 6")),
    ?assertEqual([<<"select 1">>, <<"select 4">>, <<"select 5">>, <<"select 6">>], kept(C)).

closed_at_the_server_when_it_goes(Config) ->
    C = connect(Config, 5),
    [?assertEqual(N, value(C, ["select ", integer_to_list(N)])) || N <- lists:seq(1, 300)],
    ?assert(length(kept(C)) =< 6).

%% As a pooler between client and server may do, or another user of this connection.
discarded_behind_its_back(Config) ->
    C = connect(Config),
    ?assertEqual(1, value(C, "select 1")),
    {ok, _, _} = epgsql:squery(C, "do $$ begin execute 'deallocate all'; end $$"),
    ?assertEqual([], kept(C)),
    ?assertEqual(1, value(C, "select 1")),
    {ok, [], []} = epgsql:squery(C, "begin"),
    {ok, _, _} = epgsql:squery(C, "do $$ begin execute 'deallocate all'; end $$"),
    ?assertMatch({error, #error{codename = invalid_sql_statement_name}},
                 epgsql:equery(C, "select 1")),
    {ok, [], []} = epgsql:squery(C, "rollback"),
    ?assertEqual(1, value(C, "select 1")).

discard_all(Config) ->
    C = connect(Config),
    ?assertEqual(1, value(C, "select 1")),
    [begin
         {ok, [], []} = epgsql:squery(C, Command),
         {ok, [], []} = epgsql:squery(C, "begin"),
         %% Known to be gone, so it can't fail the transaction.
         ?assertEqual(1, value(C, "select 1")),
         {ok, [], []} = epgsql:squery(C, "commit")
     end || Command <- ["discard all", "deallocate all"]].

changed_result_type(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp table changing (a int)"),
    {ok, 1} = epgsql:equery(C, "insert into changing values ($1)", [1]),
    ?assertEqual(1, value(C, "select * from changing")),
    {ok, [], []} = epgsql:squery(C, "alter table changing alter a type text"),
    ?assertMatch({ok, [#column{type = text}], [{<<"1">>}]},
                 epgsql:equery(C, "select * from changing")),
    Ref = epgsqli:equery(C, "select * from changing"),
    ?assertMatch([{columns, [#column{type = text}]}, {data, {<<"1">>}}, {complete, _}, done],
                 parts(C, Ref)),
    {ok, [], []} = epgsql:squery(C, "alter table changing add b int"),
    Again = epgsqli:equery(C, "select * from changing"),
    ?assertMatch([{types, []}, {columns, [_, _]}, {data, {<<"1">>, null}}, {complete, _}, done],
                 parts(C, Again)).

parts(C, Ref) ->
    receive
        {C, Ref, done} -> [done];
        {C, Ref, Part} -> [Part | parts(C, Ref)]
    after ?WAIT_MS -> none
    end.

%% Preparing anew can't help a transaction that has failed; the next query does it.
changed_in_a_transaction(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp table changing (a int)"),
    {ok, [_], []} = epgsql:equery(C, "select * from changing"),
    {ok, [], []} = epgsql:squery(C, "alter table changing add b int"),
    Failed = epgsql:with_transaction(C, fun(_) ->
        {error, #error{codename = Name}} = epgsql:equery(C, "select * from changing"),
        ?assertMatch({error, #error{codename = in_failed_sql_transaction}},
                     epgsql:equery(C, "select 1")),
        throw(Name)
    end),
    ?assertEqual({rollback, feature_not_supported}, Failed),
    ?assertMatch({ok, [_, _], []}, epgsql:equery(C, "select * from changing")).

error_is_not_kept(Config) ->
    C = connect(Config),
    ?assertMatch({error, #error{codename = undefined_table}},
                 epgsql:equery(C, "select * from comes_later")),
    {ok, [], []} = epgsql:squery(C, "create temp table comes_later (a int)"),
    ?assertMatch({ok, [_], []}, epgsql:equery(C, "select * from comes_later")),
    ?assertMatch({error, #error{codename = division_by_zero}},
                 epgsql:equery(C, "select 1 / $1", [0])),
    ?assertEqual(1, value(C, "select 1 / $1", [1])).

bad_parameters_leave_the_connection(Config) ->
    C = connect(Config),
    [?assertMatch({error, {bad_parameters, _}}, epgsql:equery(C, "select $1::int2", Bad))
     || Bad <- [[32768], [], [1, 2], [ann], [32768]]],
    ?assertEqual(1, value(C, "select $1::int2", [1])).

%% A type becomes known: what was kept reads it as a text.
codecs_change(Config) ->
    {ok, C} = epgsql:connect(options(Config, #{statement_cache => 10, codecs => []})),
    ?assertEqual(<<"\"a\"=>\"1\"">>, value(C, "select 'a=>1'::hstore")),
    {ok, [hstore]} = epgsql:update_type_cache(C, [{epgsql_codec_hstore, []}]),
    ?assertEqual({[{<<"a">>, <<"1">>}]}, value(C, "select 'a=>1'::hstore")).

%% --- pipelining ---------------------------------------------------------------------------------

%% Over a way that takes 20 ms in each direction: one after the other, 50 would take two seconds.
many_before_the_first_answer(Config) ->
    #{port := Port} = options(Config, #{}),
    Proxy = epgsql_test_proxy:start(Port, 20),
    {ok, C} = epgsql:connect(options(Config, #{port => epgsql_test_proxy:port(Proxy),
                                               statement_cache => 10})),
    Send = fun(epgsql) -> epgsql:pipeline(C, lists:duplicate(50, {"select $1::int4", [1]}));
              (Module) -> [last(C, Ref) || Ref <- [Module:equery(C, "select $1::int4", [1])
                                                   || _ <- lists:seq(1, 50)]]
           end,
    %% An unknown statement is waited for.
    _ = Send(epgsql),
    [begin
         {Us, Answers} = timer:tc(fun() -> Send(Module) end),
         ?assertEqual({Module, 50}, {Module, length(Answers)}),
         ?assert(Us < 1000000)
     end || Module <- [epgsql, epgsqla, epgsqli]].

last(C, Ref) ->
    receive
        {C, Ref, {complete, _}} -> last(C, Ref);
        {C, Ref, {columns, _}} -> last(C, Ref);
        {C, Ref, {types, _}} -> last(C, Ref);
        {C, Ref, {data, _}} -> last(C, Ref);
        {C, Ref, Answer} -> Answer
    after ?WAIT_MS -> none
    end.

pipeline_in_order(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp sequence numbers"),
    Next = "select nextval('numbers'::regclass)",
    Answers = epgsql:pipeline(C, lists:append(
        [[Next, {["select nextval('numbers'::regclass), ", integer_to_list(N)], []}]
         || N <- lists:seq(1, 20)])),
    ?assertEqual(lists:seq(1, 40), [element(1, Row) || {ok, _, [Row]} <- Answers]).

error_in_a_pipeline_is_alone(Config) ->
    C = connect(Config),
    [?assertMatch([{ok, _, [{1}]}, {error, #error{codename = undefined_column}}, {ok, _, [{2}]},
                   {error, #error{codename = division_by_zero}}, {error, {bad_parameters, _}},
                   {ok, _, [{3}]}],
                  epgsql:pipeline(C, ["select 1", "select nothing", {"select $1::int4", [2]},
                                      {"select 1 / $1", [0]}, {"select $1::int4", [ann]},
                                      {"select $1::int4", [3]}]))
     || _ <- [1, 2]].

pipeline_of_statements(Config) ->
    {ok, C} = epgsql:connect(options(Config, #{})),
    {ok, Statement} = epgsql:parse(C, "one", "select $1::int4", []),
    ?assertMatch([{ok, _, [{1}]}, {ok, _, [{2}]}, {ok, _, [{3}]}],
                 epgsql:pipeline(epgsql:with_timeout(C, 30000),
                                 [{Statement, [1]}, {"select $1::int4", [2]}, {Statement, [3]}])),
    ?assertEqual([], epgsql:pipeline(C, [])).

unknown_statement_holds_up_those_behind_it(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp table t (a int)"),
    Refs = [epgsqla:equery(C, "insert into t values ($1)", [1]),
            epgsqla:squery(C, "select count(*) from t"),
            epgsqla:equery(C, "insert into t values ($1)", [2]),
            epgsqla:equery(C, "select count(*) from t", [])],
    ?assertMatch([{ok, 1}, {ok, _, [{<<"1">>}]}, {ok, 1}, {ok, _, [{2}]}],
                 [last(C, Ref) || Ref <- Refs]).

held_up_query_times_out(Config) ->
    C = connect(Config),
    Lock = locked(Config, "held_up"),
    %% Describing it waits for the table.
    Ref = epgsqla:equery(C, "select * from held_up", []),
    ?assertEqual({error, timeout}, epgsql:squery(epgsql:with_timeout(C, 200), "select 1")),
    ok = epgsql:close(Lock),
    ?assertMatch({ok, [_], []}, last(C, Ref)),
    ?assertEqual(2, value(C, "select 2")).

%% A connection that keeps a table locked until it is closed.
locked(Config, Table) ->
    {ok, Lock} = epgsql:connect(options(Config, #{})),
    {ok, [], []} = epgsql:squery(Lock, ["create table ", Table, " (a int)"]),
    [{ok, [], []}, {ok, [], []}] =
        epgsql:squery(Lock, ["begin; lock table ", Table, " in access exclusive mode"]),
    Lock.

time_out_while_preparing_runs_nothing(Config) ->
    C = connect(Config),
    Lock = locked(Config, "not_written"),
    ?assertEqual({error, timeout},
                 epgsql:equery(epgsql:with_timeout(C, 200), "insert into not_written values (1)")),
    ok = epgsql:close(Lock),
    ?assertEqual(0, value(C, "select count(*) from not_written")).

crash_answers_those_held_up(Config) ->
    C = connect(Config),
    _ = locked(Config, "crashing"),
    Refs = [epgsqla:equery(C, "select * from crashing", []), epgsqla:squery(C, "select 1"),
            epgsqla:squery(C, "select 2")],
    Pid = epgsql:get_backend_pid(C),
    {ok, Other} = epgsql:connect(options(Config, #{})),
    ?assertEqual(true, value(Other, "select pg_terminate_backend($1)", [Pid])),
    ?assertMatch([{error, _}, {error, _}, {error, _}], [last(C, Ref) || Ref <- Refs]).

%% Both sides' buffers are full long before all is sent.
large_pipeline_does_not_stall(Config) ->
    C = connect(Config),
    Text = binary:copy(<<"x">>, 2000),
    Answers = epgsql:pipeline(C, lists:duplicate(20000, {"select $1::text", [Text]})),
    ?assertEqual(20000, length([ok || {ok, _, [{Same}]} <- Answers, Same =:= Text])).

message_of_an_unknown_statement(Config) ->
    C = connect(Config),
    Ref = epgsqli:equery(C, "select $1::int4", [1]),
    ?assertMatch([{types, [int4]}, {columns, [#column{type = int4}]}, {data, {1}},
                  {complete, select}, done], parts(C, Ref)).

%% Behind a statement that is being prepared nothing is sent; those beyond the bound are refused,
%% and the others answered in their order.
parked_requests_are_bounded(Config) ->
    {ok, C} = epgsql:connect(options(Config, #{statement_cache => 10, parked_max => 3})),
    ok = sys:suspend(C),
    Refs = [epgsqla:equery(C, <<"select $1::int4 from pg_sleep(0.1)">>, [N])
            || N <- lists:seq(1, 6)],
    ok = sys:resume(C),
    Answers = [receive {C, Ref, Answer} -> Answer end || Ref <- Refs],
    ?assertMatch([{ok, _, [{1}]}, {ok, _, [{2}]}, {ok, _, [{3}]}, {ok, _, [{4}]},
                  {error, overloaded}, {error, overloaded}], Answers),
    ?assertEqual(7, value(C, "select 7")).
