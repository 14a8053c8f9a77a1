%% `./halley postgres setup' never leaves a table that can be written less than before, and `check'
%% names each table and partition that lacks something.
%%
%% A published table without a replica identity takes no UPDATE and no DELETE, and a partition has
%% its own. So a table of tables: whatever could be written in each before can be written after
%% `setup', also where `setup' leaves something to a person, or fails in the middle.
-module(halley_postgres_setup_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    server/1, sql/2, rows/2, settings/2, set_up/2, start_stream/2, streaming/0, worker/0,
    eventually/2, follows/1, gauge/1]).

-compile([export_all, nowarn_export_all]).

-define(FOLLOWS, #{follows => "f(a, b)"}).
-define(PARTS, "create table p1 partition of f for values in (1); "
               "create table p2 partition of f for values in (2); ").

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [tables_are_written_as_before, setup_that_may_not_alter, partition_that_comes_later,
     identity_of_a_partition_taken_away, columns_of_another_publication].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> Config.

end_per_testcase(_, _) -> ok.

%% --- the tables ----------------------------------------------------------------------------------

%% {Name, What makes it, what is written, End}: `ok', or what `setup' leaves to a person.
tables() ->
    [{"a primary key", "create table f (a int, b int, n int, primary key (a, b))", ["f"], ok},
     {"no key", "create table f (a int, b int, n int)", ["f"], ok},
     {"a primary key of another column",
      "create table f (id serial primary key, a int, b int, n int)", ["f"], ok},
     {"a deferrable primary key",
      "create table f (a int, b int, n int, primary key (a, b) deferrable)", ["f"], ok},
     {"a unique constraint", "create table f (a int, b int, n int, unique (a, b))", ["f"], ok},
     {"a unique index of columns that are never null",
      "create table f (a int not null, b int not null, n int); create unique index on f (a, b)",
      ["f"], ok},
     {"a replica identity of another index",
      "create table f (a int, b int, n serial not null); create unique index i on f (n); "
      "alter table f replica identity using index i", ["f"], ok},
     {"replica identity nothing", "create table f (a int, b int, n int, primary key (a, b)); "
      "alter table f replica identity nothing", ["f"], ok},
     {"generated columns", "create table f (a int, b int, n int, "
      "c int generated always as (a + b) stored)", ["f"], ok},
     {"an unlogged table", "create unlogged table f (a int, b int, n int)", ["f"], "is unlogged"},
     {"partitions with a primary key",
      "create table f (a int, b int, n int, primary key (a, b)) partition by list (a); "
      ?PARTS, ["f", "p1", "p2"], ok},
     {"partitions without a key",
      "create table f (a int, b int, n int) partition by list (a); " ?PARTS,
      ["f", "p1", "p2"], ok},
     {"partitions with a deferrable primary key",
      "create table f (a int, b int, n int, primary key (a, b) deferrable) partition by list (a); "
      ?PARTS, ["f", "p1", "p2"], ok},
     {"partitions with a primary key that lacks a column",
      "create table f (a int, b int, n int default 1, id int default 1, primary key (a, id)) "
      "partition by list (a); " ?PARTS, ["f", "p1", "p2"], ok},
     {"one partition with a primary key",
      "create table f (a int, b int, n int) partition by list (a); " ?PARTS
      "alter table p1 add primary key (a, b)", ["f", "p1", "p2"], ok},
     {"a table that has a replica identity, and partitions that have none",
      "create table f (a int, b int, n int) partition by list (a); " ?PARTS
      "alter table f replica identity full", ["f", "p1", "p2"], ok},
     {"partitions of partitions",
      "create table f (a int, b int, n int) partition by list (a); "
      "create table p1 partition of f for values in (1) partition by list (b); "
      "create table p11 partition of p1 for values in (2, 3); "
      "create table p12 partition of p1 default; create table p2 partition of f default",
      ["f", "p1", "p11", "p2"], ok},
     {"an unlogged partition",
      "create table f (a int, b int, n int) partition by list (a); " ?PARTS
      "create unlogged table p3 partition of f for values in (3)", ["f", "p1", "p2", "p3"],
      "is unlogged"},
     {"a foreign table among the partitions",
      "create table f (a int, b int, n int) partition by list (a); " ?PARTS
      "create foreign data wrapper nothing; create server nowhere foreign data wrapper nothing; "
      "create foreign table p3 partition of f for values in (3) server nowhere", ["p1", "p2"],
      "is a foreign table"},
     {"a table that others inherit from",
      "create table f (a int, b int, n int, primary key (a, b)); "
      "create table heir () inherits (f)", ["f", "heir"], "other tables inherit from"},
     {"a table that inherits", "create table parent (a int, b int, n int); "
      "create table f () inherits (parent)", ["f", "parent"], ok}].

%% With a condition, whose columns have to be in the replica identity.
filtered() ->
    [{"a primary key, and a condition",
      "create table f (a int, b int, n int, \"State\" text default 'x', primary key (a, b))",
      ["f"], ok},
     {"a primary key with the condition's column",
      "create table f (a int, b int, n int, \"State\" text default 'x', "
      "primary key (a, b, \"State\"))", ["f"], ok},
     {"partitions, and a condition",
      "create table f (a int, b int, n int, \"State\" text default 'x', primary key (a, b)) "
      "partition by list (a); " ?PARTS, ["f", "p1", "p2"], ok}].

%% --- writing -------------------------------------------------------------------------------------

tables_are_written_as_before(Config) ->
    Failed = [Name || {Tables, More} <- [{tables(), ?FOLLOWS},
                                         {filtered(), #{follows => "f(a, b) where "
                                                                   "(\"State\" = 'x')"}}],
                      {Name, _, _, _} = Table <- Tables, not is_as_before(Table, More, Config)],
    ?assertEqual([], Failed).

is_as_before({Name, _, _, _} = Table, More, Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    try
        as_before(Table, More, Config),
        true
    catch
        Class:Reason:Stack ->
            ct:pal("~ts:~n~p ~tp~n~tp", [Name, Class, Reason, Stack]),
            false
    after
        cleaned(Config)
    end.

cleaned(Config) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(server(Config))),
    _ = epgsql:squery(C, "drop foreign data wrapper nothing cascade"),
    ok = epgsql:close(C),
    halley_postgres_test:end_per_testcase(Config).

as_before({_, Make, Written, Ends}, More, Config) ->
    C = ?config(c, Config),
    ok = sql(C, Make),
    Before = outcomes(C, Written),
    Setup = halley_postgres_command:setup(C, settings(Config, More), 4),
    Behind = outcomes(C, Written),
    ?assertEqual([], [Each || {_, _, ok} = Each <- Before, not lists:member(Each, Behind)]),
    case {Ends, Setup} of
        {ok, {_, ok}} ->
            ?assertEqual([], [Each || {_, _, Outcome} = Each <- Behind, Outcome =/= ok]),
            start_stream(Config, More),
            streaming(),
            ok = sql(C, "insert into f (a, b) values (1, 2), (2, 3); update f set b = 4 "
                        "where a = 1; delete from f where a = 2"),
            follows(#{<<"1">> => [<<"4">>], <<"2">> => []}),
            ?assertEqual(1, gauge("halley_postgres_copies_total"));
        {_, {_, {left, Left}}} when is_list(Ends) ->
            ?assertMatch([_], [What || #{what := What, how := hand} <- Left,
                                       string:find(iolist_to_binary(What), Ends) =/= nomatch])
    end.

%% What becomes of each kind of change, none of which stays.
outcomes(C, Tables) ->
    [{Table, Statement, outcome(C, Statement)}
     || Table <- Tables,
        Statement <- [["insert into ", Table, " (a, b) values (", first(Table), ")"],
                      ["update ", Table, " set n = 9"], ["update ", Table, " set b = b + 1"],
                      ["delete from ", Table]]].

first("p2") -> "2, 2";
first("p3") -> "3, 2";
first(_) -> "1, 2".

%% With a row to change, where it takes one.
outcome(C, Statement) ->
    ok = sql(C, "begin"),
    _ = [epgsql:squery(C, ["savepoint s; insert into ", Table, " (a, b) values (", first(Table),
                           "); release s"])
         || [Verb, Table | _] <- [Statement], not lists:prefix("insert", Verb)],
    Result = epgsql:squery(C, Statement),
    _ = epgsql:squery(C, "rollback"),
    case Result of
        {ok, _} -> ok;
        {error, Error} -> element(3, Error)
    end.

%% --- by themselves -------------------------------------------------------------------------------

with(Config0, Fun) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    try Fun(?config(c, Config), Config)
    after halley_postgres_test:end_per_testcase(Config)
    end.

found(C, Config, More) ->
    [{iolist_to_binary(What), iolist_to_binary(Sql), How}
     || #{what := What, sql := Sql, how := How}
            <- halley_postgres_command:check(C, settings(Config, More))].

%% The role may make the publication, and isn't the table's owner.
setup_that_may_not_alter(Config0) ->
    with(Config0, fun(C, Config) ->
        ok = sql(C, "create table f (a int, b int, n int) partition by list (a); "
                    ?PARTS "alter role poor superuser; set role poor; "
                    "create table own (a int, b int, n int); reset role; "
                    "alter role poor nosuperuser; "
                    "grant usage, create on schema public to poor; "
                    "grant create on database postgres to poor"),
        {ok, Poor} = epgsql:connect(epgsql_test_server:options(server(Config),
                                                               #{username => "poor"})),
        ok = sql(C, "alter role poor replication"),
        {_, {error, Sql, _}} = halley_postgres_command:setup(
            Poor, settings(Config, #{follows => "f(a, b); own(a, b)", publish => off}), 4),
        ?assertEqual(<<"ALTER TABLE \"public\".\"f\" REPLICA IDENTITY FULL">>,
                     iolist_to_binary(Sql)),
        ?assertEqual([], [Each || {_, _, Outcome} = Each <- outcomes(C, ["f", "p1", "p2", "own"]),
                                  Outcome =/= ok]),
        ok = epgsql:close(Poor),
        ok = sql(C, "drop table own; revoke create on database postgres from poor")
    end).

%% It has no replica identity, as none is handed down. Halley says so, and `check' with what mends
%% it; then the table is followed again.
partition_that_comes_later(Config0) ->
    with(Config0, fun(C, Config) ->
        ok = sql(C, "create table f (a int, b int, n int) partition by list (a); "
                    ?PARTS),
        set_up(Config, ?FOLLOWS),
        start_stream(Config, ?FOLLOWS),
        streaming(),
        ok = sql(C, "create table p3 partition of f for values in (3); "
                    "create table p4 (a int, b int, n int); insert into p4 values (4, 5); "
                    "alter table f attach partition p4 for values in (4)"),
        eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
        ?assertEqual(
            [{<<"the replica identity of \"public\".\"", Name/binary, "\", a partition of "
                "\"public\".\"f\", doesn't have a and b, so a delete wouldn't say whom it is "
                "about">>,
              <<"ALTER TABLE \"public\".\"", Name/binary, "\" REPLICA IDENTITY FULL">>, run}
             || Name <- [<<"p3">>, <<"p4">>]], found(C, Config, ?FOLLOWS)),
        set_up(Config, ?FOLLOWS),
        worker() ! look,
        follows(#{<<"4">> => [<<"5">>]}),
        ok = sql(C, "insert into f values (3, 4); update f set b = 6 where a = 4"),
        follows(#{<<"3">> => [<<"4">>], <<"4">> => [<<"6">>]}),
        halley_postgres_test:stop_stream()
    end).

identity_of_a_partition_taken_away(Config0) ->
    with(Config0, fun(C, Config) ->
        ok = sql(C, "create table f (a int, b int, n int, primary key (a, b)) "
                    "partition by list (a); " ?PARTS),
        set_up(Config, ?FOLLOWS),
        ?assertEqual([], found(C, Config, ?FOLLOWS)),
        ok = sql(C, "alter table p2 replica identity nothing"),
        ?assertMatch([{<<"the replica identity of \"public\".\"p2\", a partition of", _/binary>>,
                       <<"ALTER TABLE \"public\".\"p2\" REPLICA IDENTITY FULL">>, run}],
                     found(C, Config, ?FOLLOWS))
    end).

%% Beside a list of columns PostgreSQL refuses updates of a table whose replica identity has more.
columns_of_another_publication(Config0) ->
    with(Config0, fun(C, Config) ->
        ok = sql(C, "create table f (id int primary key default 1, a int, b int, n int); "
                    "create publication other for table f (id, a)"),
        {_, {left, [#{what := What}]}} =
            halley_postgres_command:setup(C, settings(Config, ?FOLLOWS), 4),
        ?assertMatch({match, _}, re:run(What, "the publication other has some of the columns")),
        ?assertEqual([], [Each || {_, _, Outcome} = Each <- outcomes(C, ["f"]), Outcome =/= ok]),
        %% Its own list goes.
        ok = sql(C, "drop publication other; drop publication halley; "
                    "create publication halley for table f (id, a) "
                    "with (publish_via_partition_root = true)"),
        set_up(Config, ?FOLLOWS),
        ?assertEqual([], [Each || {_, _, Outcome} = Each <- outcomes(C, ["f"]), Outcome =/= ok]),
        ok = sql(C, "drop publication if exists other")
    end).
