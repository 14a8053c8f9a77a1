%% The publication: dropped, or without some tables, while Halley follows its tables; and how Halley
%% reads it while another session has locked a table.
-module(halley_postgres_publication_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    follows_two/2,
    connect/1, settings/2, sql/2, set_up/2, begin_with/2, worker/0, eventually/2, follows/1,
    gauge/1, login/1, next/0, nothing_more/0]).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [dropped_and_a_copy_cut, dropped_and_nothing_changed, changes_that_are_not_published,
     locked_table, what_a_publication_has].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

%% The new slot is good whatever becomes of the copies behind it: it has what nobody else has.
dropped_and_a_copy_cut(Config) ->
    C = ?config(c, Config),
    login(<<"7">>),
    follows_two(Config, #{}),
    ok = sql(C, "drop publication halley; insert into follows values (1, 3)"),
    eventually(0, fun() -> gauge("halley_postgres_streaming") end),
    ok = sys:suspend(halley_follows_owner, infinity),
    try
        set_up(Config, #{}),
        %% The copy waits for the owner of the follows.
        Copies = filename:join([?config(dir, Config), "postgres", "pairs-*"]),
        eventually(true, fun() -> length(filelib:wildcard(Copies)) > 1 end),
        ok = sql(C, "select halley.publish('7', '\"during the copy\"')"),
        exit(worker(), kill)
    after
        ok = sys:resume(halley_follows_owner, infinity)
    end,
    ?assertMatch(#{data := <<"during the copy">>}, next()),
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"api">>]}),
    ?assertEqual(1, gauge("halley_postgres_losses_total")),
    nothing_more().

%% The stream goes on, with events and without tables, until there is a publication again.
dropped_and_nothing_changed(Config) ->
    C = ?config(c, Config),
    login(<<"7">>),
    follows_two(Config, #{}),
    Worker = worker(),
    ok = sql(C, "drop publication halley"),
    Worker ! look,
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    ok = sql(C, "select halley.publish('7', '1')"),
    ?assertMatch(#{data := 1}, next()),
    Worker ! look,
    ?assertEqual(Worker, worker()),
    set_up(Config, #{}),
    Worker ! look,
    eventually(2, fun() -> gauge("halley_postgres_copies_total") end),
    follows(#{<<"1">> => [<<"2">>, <<"api">>]}),
    ?assertEqual({0, 0}, {gauge("halley_postgres_failures_total"),
                          gauge("halley_postgres_tables_stopped")}).

%% The table and its entry are the same all the time.
changes_that_are_not_published(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "alter publication halley set (publish = 'insert')"),
    ok = sql(C, "delete from follows"),
    worker() ! look,
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    ok = sql(C, "insert into follows values (1, 3)"),
    set_up(Config, #{}),
    worker() ! look,
    follows(#{<<"1">> => [<<"3">>, <<"api">>]}),
    ?assertEqual(2, gauge("halley_postgres_copies_total")).

%% A lock that somebody holds for long on a table, as VACUUM FULL does, holds up no look. With
%% PostgreSQL 15 its own view of published tables would pass this, too. From 16 on that opens each
%% of them: so nobody may use it here.
locked_table(Config) ->
    C = ?config(c, Config),
    login(<<"7">>),
    ok = sql(C, "grant select on follows to poor"),
    begin_with(Config, #{user => "poor"}),
    ok = sql(C, "insert into follows values (7, 8)"),
    follows(#{<<"7">> => [<<"8">>]}),
    Worker = worker(),
    Other = connect(Config),
    ok = sql(C, "revoke select on pg_publication_tables from public; "
                "revoke execute on function pg_get_publication_tables(text) from public"),
    try
        ok = sql(Other, "begin; lock table follows in access exclusive mode"),
        Worker ! look,
        ok = sql(C, "select halley.publish('8', '1')"),
        ?assertMatch(#{data := 1}, next()),
        Settings = settings(Config, #{user => "poor"}),
        ?assertEqual([], halley_postgres_command:check(C, Settings)),
        ok = sql(Other, "rollback; insert into follows values (7, 9)"),
        follows(#{<<"7">> => [<<"8">>, <<"9">>]}),
        ?assertEqual({Worker, 0}, {worker(), gauge("halley_postgres_failures_total")})
    after
        ok = sql(C, "grant select on pg_publication_tables to public; "
                    "grant execute on function pg_get_publication_tables(text) to public"),
        ok = epgsql:close(Other)
    end.

%% As PostgreSQL's view of published tables has it.
what_a_publication_has(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table parts (a int, b int, primary key (a, b)) partition by range (a); "
                "create table part partition of parts for values from (0) to (10); "
                "create schema other; create table other.f (a int, b int, primary key (a, b))"),
    Findings = fun(Follows) ->
        [iolist_to_binary(What) || #{what := What} <- halley_postgres_command:check(
            C, settings(Config, #{publish => off, follows => Follows}))]
    end,
    try
        [begin
             ok = sql(C, ["drop publication if exists halley; create publication halley ", For,
                          " with (publish_via_partition_root = true)"]),
             [?assertEqual({For, Table, Expected}, {For, Table, Findings(Table ++ "(a, b)")})
              || {Table, Expected} <- Tables]
         end || {For, Tables} <- [
            {"for table other.f (b, a)", [{"other.f", []}, {"parts", lacks("parts")},
                                          {"part", lacks("part")}]},
            {"for table parts", [{"parts", []}, {"part", above()}]},
            {"for table part, parts", [{"parts", []}, {"part", above()}]},
            {"for table part", [{"parts", lacks("parts")}, {"part", []}]},
            {"for table other.f where (a > 0)",
             [{"other.f", [<<"the publication halley has another filter for \"other\".\"f\"">>]}]},
            {"for table other.f where (a > 0), tables in schema other", [{"other.f", []}]},
            {"for tables in schema public", [{"other.f", [<<"the publication halley doesn't have "
                                                            "\"other\".\"f\"">>]},
                                             {"parts", []}, {"part", above()}]},
            {"for all tables", [{"other.f", []}, {"parts", []}, {"part", above()}]}]]
    after
        ok = sql(C, "drop schema other cascade")
    end.

lacks(Table) ->
    [iolist_to_binary(["the publication halley doesn't have \"public\".\"", Table, "\""])].

above() ->
    [<<"the publication halley has the table that \"public\".\"part\" is a partition of, and "
       "sends changes by its name">>].
