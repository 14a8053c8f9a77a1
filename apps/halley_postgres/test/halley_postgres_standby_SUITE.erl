%% synchronous_standby_names that has Halley's stream in it: commits of others don't wait for Halley
%% where there is a standby, and not for long where there is none.
-module(halley_postgres_standby_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    server/1, sql/2, settings/2, set_up/2, start_stream/1,
    begin_with/2, streaming/0, stop_stream/0, worker/0,
    login/1, next/0, follows/1, gauge/1, rows/2, eventually/2, standby/2]).

%% Before, each commit took up to 5 s.
-define(COMMITS, 20).
-define(COMMITS_MS_MAX, 20000).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [commits_while_halley_is_all_there_is, commits_wait_without_halley,
          halley_stands_still_beside_a_standby, warnings].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    ok = sql(?config(c, Config), "set synchronous_commit = local"),
    ok = sql(?config(c, Config), "create database elsewhere"),
    Config.

end_per_testcase(_, Config) ->
    C = halley_postgres_test:connect(Config),
    ok = sql(C, "set synchronous_commit = local"),
    waits_for(C, ""),
    ok = sql(C, "drop database elsewhere with (force)"),
    ok = epgsql:close(C),
    halley_postgres_test:end_per_testcase(Config).

waits_for(C, Names) ->
    ok = sql(C, ["alter system set synchronous_standby_names = '", Names, "'"]),
    ok = sql(C, "select pg_reload_conf()"),
    eventually([{list_to_binary(Names)}], fun() -> rows(C, "show synchronous_standby_names") end).

%% In a database that Halley knows nothing of.
elsewhere(Config) ->
    {ok, There} = epgsql:connect(epgsql_test_server:options(
        server(Config), #{database => "elsewhere", call_timeout => ?COMMITS_MS_MAX})),
    There.

commits(There) ->
    {Us, _} = timer:tc(fun() ->
        [ok = sql(There, "insert into t values (1)") || _ <- lists:seq(1, ?COMMITS)]
    end),
    ct:pal("~b commits in ~b ms", [?COMMITS, Us div 1000]),
    ?assert(Us div 1000 < ?COMMITS_MS_MAX).

commits_while_halley_is_all_there_is(Config) ->
    C = ?config(c, Config),
    There = elsewhere(Config),
    ok = sql(There, "create table t (n int)"),
    begin_with(Config, #{}),
    waits_for(C, "*"),
    %% Halley looks now and then who is waited for.
    ok = sql(There, "insert into t values (1)"),
    timer:sleep(6000),
    ok = sql(There, "truncate t"),
    commits(There),
    %% What Halley takes, and what it does with it, waits for nobody either. The end of a row may
    %% (docs/guides/postgres.md, "Synchronous replication").
    {ok, Waits} = epgsql:connect(epgsql_test_server:options(
        server(Config), #{call_timeout => ?COMMITS_MS_MAX})),
    login(<<"7">>),
    ok = sql(Waits, "insert into follows values (7, 8)"),
    follows(#{<<"7">> => [<<"8">>]}),
    ok = sql(Waits, "select halley.publish('8', '1')"),
    ok = sql(Waits, "insert into halley.outbox (subject, data) values ('8', '2')"),
    ok = sql(Waits, "select pg_logical_emit_message(true, 'halley', 'no event')"),
    ?assertMatch([#{data := 1}, #{data := 2}], [next(), next()]),
    eventually([], fun() -> rows(C, "select 1 from halley.outbox") end),
    eventually([{<<"1">>}], fun() -> rows(C, "select count(*) from halley.rejected") end),
    ?assertEqual(0, gauge("halley_postgres_failures_total")).

%% A standby that confirms all it is sent, and comes behind Halley: of two that PostgreSQL may wait
%% for it takes the one that was there first.
halley_stands_still_beside_a_standby(Config) ->
    C = ?config(c, Config),
    There = elsewhere(Config),
    ok = sql(There, "create table t (n int)"),
    begin_with(Config, #{}),
    Standby = standby(Config, "a standby"),
    Worker = worker(),
    waits_for(C, "*"),
    Roles = [{<<"a standby">>, <<"sync">>}, {<<"halley">>, <<"async">>}],
    eventually(Roles, fun() -> roles(C) end),
    true = erlang:suspend_process(Worker),
    try
        commits(There),
        ?assertEqual(Roles, roles(C)),
        %% It was the standby that they waited for.
        exit(Standby, kill),
        Commit = commit(Config),
        ?assertEqual(waits, outcome(C, Commit)),
        ?assertEqual([{<<"halley">>, <<"async">>}], roles(C)),
        true = erlang:resume_process(Worker),
        ?assertEqual(ok, outcome(Commit))
    after
        exit(Standby, kill)
    end.

%% Whom PostgreSQL waits for when it commits, as its operator sees it.
roles(C) -> rows(C, "select application_name, sync_state from pg_stat_replication").

%% With names and no standby PostgreSQL waits for ever, and Halley has no part in it: who isn't
%% connected can neither hold a commit up nor let it go.
commits_wait_without_halley(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    stop_stream(),
    waits_for(C, "*"),
    Commit = commit(Config),
    ?assertEqual(waits, outcome(C, Commit)),
    start_stream(Config),
    ?assertEqual(ok, outcome(Commit)).

%% One commit, by a process of its own.
commit(Config) ->
    Case = self(),
    spawn_link(fun() ->
        {ok, Its} = epgsql:connect(epgsql_test_server:options(
            server(Config), #{database => "elsewhere", application_name => "commit"})),
        ok = sql(Its, "create table if not exists one (n int)"),
        Case ! {self(), ok},
        ok = epgsql:close(Its)
    end).

%% A commit that waits for a standby says so.
outcome(C, Commit) ->
    eventually([{<<"SyncRep">>}], fun() ->
        rows(C, "select wait_event from pg_stat_activity where application_name = 'commit'")
    end),
    receive {Commit, ok} -> ok after 1000 -> waits end.

outcome(Commit) ->
    receive {Commit, ok} -> ok after 30000 -> error(waits_for_ever) end.

warnings(Config) ->
    C = ?config(c, Config),
    set_up(Config, #{}),
    Said = fun() -> [iolist_to_binary(Each)
                     || Each <- halley_postgres_warnings:look(C, settings(Config, #{}))] end,
    ?assertEqual([], Said()),
    waits_for(C, "FIRST 1 (standby1)"),
    ?assertEqual([], Said()),
    waits_for(C, "*"),
    ?assertMatch([<<"synchronous_standby_names is '*': ", _/binary>>], Said()),
    %% Nothing is missing, and setup doesn't wait for a standby that isn't there.
    ?assertEqual([], halley_postgres_command:check(C, settings(Config, #{}))).
