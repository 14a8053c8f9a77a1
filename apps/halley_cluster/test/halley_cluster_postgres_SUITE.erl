%% The engine in PostgreSQL, and what only PostgreSQL does to it: sessions that end, commits that
%% are cancelled while they wait for a standby, dumps that are restored, settings of roles, plans
%% that were made while a table was empty. `halley_cluster_retention_SUITE' has the segments.
-module(halley_cluster_postgres_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_cluster_test, [open/1, append/5, append/6, token/0, all_rows/2, admin/1, plain/1,
                              sql/2, rows/2, eventually/2, filled/4, begins_with/1]).

-define(ENGINE, halley_cluster_postgres).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [backend_killed, takes_place_later, cancelled_wait, terminated_wait,
     waits_whatever_the_role_has, dump_restored, data_restored, epoch_waits_for_an_append,
     other_stretch, server_restarted, at_is_never_below, plans_use_the_key, no_tables,
     other_version, isolation, install_twice, install_mends, another_role, warns,
     primary_of_several, no_host, refused_login, nothing_stays_in_the_session].

init_per_suite(Config) -> halley_cluster_test:start_postgres(Config).

end_per_suite(Config) -> halley_cluster_test:stop_postgres(Config).

init_per_testcase(_, Config) ->
    Config1 = halley_cluster_test:init_per_testcase(Config),
    [{c, admin(?config(server, Config))} | Config1].

end_per_testcase(_, Config) ->
    C = ?config(c, Config),
    _ = epgsql:squery(C, "rollback"),
    ok = sql(C, "alter role plain reset all"),
    waits_for(C, ""),
    ok = epgsql:close(C),
    halley_cluster_test:end_per_testcase(Config).

%% An append in a process of its own, which opens the engine itself.
appends(Prev, Last, Token, Config) ->
    Case = self(),
    spawn_link(fun() ->
        {Engine, _} = open(Config),
        Answer = append(Prev, Last, Token, <<"body">>, Engine),
        Case ! {answer, Answer, append(Last, Last + 1, token(), <<>>, Engine)}
    end).

answer() -> receive {answer, Answer, After} -> {Answer, After} after 30000 -> error(none) end.

waits_for(C, Name) ->
    ok = sql(C, ["alter system set synchronous_standby_names = '", Name, "'"]),
    ok = sql(C, "select pg_reload_conf()"),
    eventually([{list_to_binary(Name)}], fun() -> rows(C, "show synchronous_standby_names") end).

%% The pid of the append that waits so.
waiting(C, Event) ->
    Sql = ["select pid from pg_stat_activity where wait_event = '", Event,
           "' and query like '%append%' and pid <> pg_backend_pid()"],
    eventually(1, fun() ->
        %% A transaction sees others as they were at its first look.
        ok = sql(C, "select pg_stat_clear_snapshot()"),
        length(rows(C, Sql))
    end),
    [{Pid}] = rows(C, Sql),
    Pid.

%% --- unknown outcomes ----------------------------------------------------------------------------

backend_killed(Config) ->
    C = ?config(c, Config),
    slow(C, 60),
    Token = token(),
    _ = appends(0, 1, Token, Config),
    ok = sql(C, ["select pg_terminate_backend(", waiting(C, "PgSleep"), ")"]),
    %% The handle is good for nothing more.
    ?assertEqual({unknown, {error, away}}, answer()),
    ok = sql(C, "drop trigger slow on halley_cluster.log_0"),
    {Engine, #{last := 0}} = open(Config),
    ?assertEqual([], all_rows(0, Engine)),
    ?assertMatch({ok, _}, append(0, 1, Token, <<"body">>, Engine)).

%% From now on an append into the first segment takes so long.
slow(C, Seconds) ->
    ok = sql(C, ["create or replace function public.slow() returns trigger language plpgsql as "
                 "'begin perform pg_sleep(", integer_to_list(Seconds), "); return new; end'"]),
    ok = sql(C, "create trigger slow before insert on halley_cluster.log_0 for each row "
                "execute function public.slow()").

%% The row comes after its writer has given up, as nothing is cancelled: of the two that have that
%% place one is in the chain. Whoever comes meanwhile waits a moment, and has done nothing.
takes_place_later(Config) ->
    C = ?config(c, Config),
    Token = token(),
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    {ok, Handle, _} = ?ENGINE:open(Settings#{append_ms => 300}),
    {Engine, _} = open(Config),
    waits_for(C, "absent"),
    ?assertEqual(unknown, append(0, 1, Token, <<"body">>, {?ENGINE, Handle})),
    ok = ?ENGINE:close(Handle),
    _ = waiting(C, "SyncRep"),
    ?assertEqual({error, away}, append(0, 1, token(), <<"other">>, Engine)),
    waits_for(C, ""),
    eventually({conflict, 1}, fun() -> append(0, 1, token(), <<"other">>, Engine) end),
    ?assertMatch([#{token := Token, body := <<"body">>}], all_rows(0, Engine)).

%% No standby has the row, and the server answers with success.
cancelled_wait(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "alter role plain set client_min_messages = error"),
    {_, _} = open(Config),
    waits_for(C, "absent"),
    Token = token(),
    _ = appends(0, 1, Token, Config),
    ok = sql(C, ["select pg_cancel_backend(", waiting(C, "SyncRep"), ")"]),
    ?assertEqual({unknown, {error, away}}, answer()),
    {Engine, #{last := 1}} = open(Config),
    ?assertMatch([#{token := Token}], all_rows(0, Engine)).

terminated_wait(Config) ->
    C = ?config(c, Config),
    {_, _} = open(Config),
    waits_for(C, "absent"),
    _ = appends(0, 1, token(), Config),
    ok = sql(C, ["select pg_terminate_backend(", waiting(C, "SyncRep"), ")"]),
    ?assertEqual({unknown, {error, away}}, answer()),
    {_, #{last := 1}} = open(Config).

waits_whatever_the_role_has(Config) ->
    C = ?config(c, Config),
    {_, _} = open(Config),
    waits_for(C, "absent"),
    _ = [begin
             ok = sql(C, ["alter role plain set synchronous_commit = ", Level]),
             {_, #{last := Prev}} = open(Config),
             {?ENGINE, Settings} = halley_cluster_test:engine(Config),
             {ok, Handle, _} = ?ENGINE:open(Settings#{append_ms => 300}),
             ?assertEqual({Level, unknown},
                          {Level, append(Prev, Prev + 1, token(), <<>>, {?ENGINE, Handle})}),
             %% Its backend has the next place, and waits.
             ok = sql(C, ["select pg_terminate_backend(", waiting(C, "SyncRep"), ")"]),
             eventually(Prev + 1, fun() -> maps:get(last, element(2, open(Config))) end)
         end || Level <- ["off", "local", "on"]].

%% --- lost rows -----------------------------------------------------------------------------------

dump_restored(Config) ->
    {{?ENGINE, Handle} = Engine, #{epochs := [#{store := Old}]}} = open(Config),
    {ok, _} = append(0, 10, token(), <<"kept">>, [{follow, <<"a">>, <<"b">>}], Engine),
    {ok, _} = append(10, 20, token(), <<"kept">>, Engine),
    Dump = shell(Config, "pg_dump", "-n halley_cluster postgres"),
    {ok, _} = append(20, 30, token(), <<"lost">>, Engine),
    ok = ?ENGINE:close(Handle),
    ok = sql(?config(c, Config), "drop schema halley_cluster cascade"),
    File = filename:join(epgsql_test_server:temporary(?config(server, Config)), "dump.sql"),
    ok = file:write_file(File, Dump),
    _ = shell(Config, "psql", ["-q -v ON_ERROR_STOP=1 -f ", File, " postgres"]),
    {{?ENGINE, Again}, #{last := 20, epochs := [#{n := 2, 'after' := 20, store := New},
                                                         #{n := 1, store := Old}]}} = open(Config),
    ?assertNotEqual(Old, New),
    %% A brain has rows that are gone.
    ?assertEqual(ahead, ?ENGINE:read(30, 1000, Again)),
    {Engine2, _} = open(Config),
    {ok, _} = append(20, 25, token(), <<"new">>, Engine2),
    ?assertMatch([#{body := <<"kept">>}, #{last := 20}, #{body := <<"new">>}],
                 all_rows(0, Engine2)),
    C = plain(?config(server, Config)),
    ?assertEqual([], [What || #{how := How, what := What} <- halley_cluster_tables:missing(C),
                              How =/= warning]),
    epgsql:close(C).

shell(Config, Program, Arguments) ->
    #{port := Port, username := User} = epgsql_test_server:options(?config(server, Config)),
    [Path | _] = lists:reverse(filelib:wildcard("/usr/lib/postgresql/*/bin/" ++ Program)),
    os:cmd(lists:flatten([Path, " -h 127.0.0.1 -U ", User, " -p ", integer_to_list(Port), " ",
                          Arguments])).

%% The same tables, with older rows: no stretch has begun, and brains are ahead.
data_restored(Config) ->
    {{?ENGINE, Handle} = Engine, _} = open(Config),
    _ = [{ok, _} = append(N, N + 1, token(), <<>>, Engine) || N <- lists:seq(0, 9)],
    ok = sql(?config(c, Config), "delete from halley_cluster.log_0 where prev >= 7"),
    ?assertEqual({conflict, 7}, append(10, 11, token(), <<>>, Engine)),
    ?assertEqual(ahead, ?ENGINE:read(10, 1000, Handle)),
    {_, #{last := 7, epochs := [#{n := 2, 'after' := 7}, _]}} = open(Config).

%% A brain finds that rows are gone while an append is on its way that was begun in the epoch of
%% before: its row isn't beyond the `after' of the new one.
epoch_waits_for_an_append(Config) ->
    C = ?config(c, Config),
    {{?ENGINE, Handle} = Engine, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, Engine),
    slow(C, 3),
    _ = appends(1, 2, token(), Config),
    _ = waiting(C, "PgSleep"),
    ?assert(lists:member(?ENGINE:read(9, 1000, Handle), [ahead, {error, away}])),
    {{ok, _}, _} = answer(),
    ok = sql(C, "drop trigger slow on halley_cluster.log_0"),
    eventually(ahead, fun() ->
        {{?ENGINE, Its}, _} = open(Config),
        ?ENGINE:read(9, 1000, Its)
    end),
    {_, #{epochs := Epochs}} = open(Config),
    [#{'after' := 0} | Later] = lists:reverse(Epochs),
    ?assertNotEqual([], Later),
    ?assertEqual([], [Each || #{'after' := After} = Each <- Later, After < 2]).

%% A pooler gives a session another server: the epoch that the handle knows isn't the newest, or
%% isn't this server's.
other_stretch(Config) ->
    {{?ENGINE, Handle} = Engine, _} = open(Config),
    {{?ENGINE, Reader}, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, Engine),
    ok = sql(?config(c, Config), "update halley_cluster.epochs set stretch = '00000009/1/1'"),
    ?assertEqual(new_stretch, append(1, 2, token(), <<>>, Engine)),
    ?assertEqual({error, away}, append(1, 2, token(), <<>>, Engine)),
    ?assertEqual({error, away}, ?ENGINE:read(1, 1000, Reader)),
    ?assertEqual({error, away}, ?ENGINE:snapshot(fun(_) -> ok end, Handle)),
    {_, #{epochs := [#{n := 2, 'after' := 1}, #{n := 1}]}} = open(Config).

%% A copy of its disk may be older. After a crash it isn't, and an epoch costs nothing.
server_restarted(Config) ->
    Own = halley_cluster_test:start_postgres(proplists:delete(server, Config)),
    Server = ?config(server, Own),
    halley_cluster_test:install(Server),
    {{?ENGINE, Handle} = Engine, _} = open(Own),
    {{?ENGINE, Other}, _} = open(Own),
    {ok, _} = append(0, 3, token(), <<>>, Engine),
    ok = epgsql_test_server:crash(Server),
    ?assertEqual(unknown, append(3, 4, token(), <<>>, Engine)),
    ?assertEqual({error, away}, ?ENGINE:read(0, 1000, Handle)),
    ?assertEqual({error, away}, ?ENGINE:read(0, 1000, Other)),
    {?ENGINE, Settings} = halley_cluster_test:engine(Own),
    ?assertEqual({error, away}, ?ENGINE:open(Settings)),
    Again = epgsql_test_server:restart(Server),
    Own1 = lists:keystore(server, 1, Own, {server, Again}),
    {Engine1, #{last := 3, epochs := [#{n := 2, 'after' := 3}, _]}} = open(Own1),
    {ok, _} = append(3, 4, token(), <<>>, Engine1),
    halley_cluster_test:stop_postgres(Own1).

%% --- rows ---------------------------------------------------------------------------------------

at_is_never_below(Config) ->
    {Engine, _} = open(Config),
    {ok, At} = append(0, 1, token(), <<>>, Engine),
    ok = sql(?config(c, Config), "update halley_cluster.log_0 set at = at + 600000"),
    ?assertEqual({ok, At + 600000}, append(1, 2, token(), <<>>, Engine)).

%% Statements are planned when the tables have one row, by the statistics, and later have many.
plans_use_the_key(Config) ->
    C = ?config(c, Config),
    {{?ENGINE, Handle} = Engine, _} = open(Config),
    {ok, []} = ?ENGINE:read(0, 1000, Handle),
    {ok, _} = append(0, 1, token(), <<>>, [{follow, <<"a">>, <<"b">>},
                                           {unfollow, <<"c">>, <<"d">>}, {forget, <<"e">>}],
                     Engine),
    ok = ?ENGINE:close(Handle),
    ok = sql(C, "analyze halley_cluster.log_0; analyze halley_cluster.follows"),
    {{?ENGINE, Handle1} = Engine1, _} = open(Config),
    _ = [begin
             {ok, _} = append(N, N + 1, token(), <<>>,
                              [{follow, <<"a">>, <<N>>}, {unfollow, <<"a">>, <<(N - 1)>>},
                               {keep, <<"s">>, N, <<>>}, {forget, <<"e">>}], Engine1),
             {ok, [_]} = ?ENGINE:read(N, 1000, Handle1)
         end || N <- lists:seq(1, 50)],
    ok = ?ENGINE:close(Handle1),
    %% Sessions report what they did when they end. Three scans have built the indexes.
    eventually([{<<"t">>, <<"3">>}], fun() ->
        rows(C, "select min(idx_scan) > 50, sum(seq_scan) from pg_stat_user_tables "
                "where schemaname = 'halley_cluster' and relname in ('log_0', 'follows')")
    end).

%% --- tables and rights ---------------------------------------------------------------------------

no_tables(Config) ->
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    ok = sql(?config(c, Config), "drop function halley_cluster.version()"),
    ?assertEqual({error, no_tables}, ?ENGINE:open(Settings)),
    ok = sql(?config(c, Config), "drop schema halley_cluster cascade"),
    ?assertEqual({error, no_tables}, ?ENGINE:open(Settings)).

other_version(Config) ->
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    ok = sql(?config(c, Config), "create or replace function halley_cluster.version() returns int4 "
                                 "language sql as 'select 99'"),
    {error, {refused, Text}} = ?ENGINE:open(Settings),
    ?assertNotEqual(nomatch, string:find(Text, "version 99")).

isolation(Config) ->
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    ok = sql(?config(c, Config), "alter role plain set default_transaction_isolation = "
                                 "'repeatable read'"),
    {error, {refused, Text}} = ?ENGINE:open(Settings),
    ?assertNotEqual(nomatch, string:find(Text, "repeatable read")),
    ?assertMatch([#{how := hand}], missing(Config)),
    ok = sql(?config(c, Config), "alter role plain reset all; alter role plain set "
                                 "default_transaction_read_only = on"),
    ?assertEqual({error, read_only}, ?ENGINE:open(Settings)),
    ?assertMatch([#{how := hand}], missing(Config)).

missing(Config) ->
    C = plain(?config(server, Config)),
    Found = halley_cluster_tables:missing(C),
    ok = epgsql:close(C),
    [Each || #{how := How} = Each <- Found, How =/= warning].

install_twice(Config) ->
    {Engine, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<"stays">>, Engine),
    Case = self(),
    Pids = [spawn_link(fun() ->
        C = plain(?config(server, Config)),
        Case ! {self(), halley_cluster_tables:install(C)},
        epgsql:close(C)
    end) || _ <- [1, 2, 3]],
    [receive {Pid, Answer} -> ?assertMatch({ok, _}, Answer) end || Pid <- Pids],
    ?assertEqual([], missing(Config)),
    ?assertMatch([#{body := <<"stays">>}], all_rows(0, Engine)).

install_mends(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "drop table halley_cluster.kept; drop function halley_cluster.trim; "
                "drop index halley_cluster.follows_user"),
    ok = sql(C, "set role plain; create or replace function halley_cluster.stretch() returns text "
                "language sql stable as 'select 1::text'"),
    ?assertEqual(4, length([Sql || #{how := run, sql := Sql} <- missing(Config)])),
    ok = sql(C, "reset role"),
    P = plain(?config(server, Config)),
    {ok, _} = halley_cluster_tables:install(P),
    ok = epgsql:close(P),
    ?assertEqual([], missing(Config)),
    ok = sql(C, "alter table halley_cluster.kept add more int"),
    ?assertMatch([#{how := hand, sql := []}], missing(Config)).

%% The role that owns the tables isn't that of the brains.
another_role(Config) ->
    C = ?config(c, Config),
    {?ENGINE, #{connect := Connect} = Settings} = halley_cluster_test:engine(Config),
    Poor = Settings#{connect := Connect#{username => "clear", password => "secret"}},
    {error, {refused, _}} = ?ENGINE:open(Poor),
    Found = [Sql || #{how := run, sql := Sql} <- halley_cluster_tables:missing(C, <<"clear">>)],
    ?assertNotEqual([], Found),
    _ = [ok = sql(C, Sql) || Sql <- Found],
    ?assertEqual([], [Each || #{how := run} = Each <-
                                  halley_cluster_tables:missing(C, <<"clear">>)]),
    {ok, Handle, _} = ?ENGINE:open(Poor#{retention_ms => 60}),
    Engine = {?ENGINE, Handle},
    {ok, _} = append(0, 1, token(), <<>>, [{follow, <<"a">>, <<"b">>}, {forget, <<"a">>},
                                           {keep, <<"s">>, 1, <<>>}, {key, <<"k">>, <<>>}], Engine),
    Last = filled(1, begins_with(<<"0,1">>), C, Engine),
    {ok, Floor} = ?ENGINE:trim(1 bsl 60, Handle),
    ?assert(Floor > 0),
    {held, 1} = ?ENGINE:take(order, <<"a">>, 0, 1000, Handle),
    {ok, Last} = ?ENGINE:snapshot(fun(_) -> ok end, Handle).

warns(Config) ->
    C = ?config(c, Config),
    Texts = fun() -> [iolist_to_binary(What) || #{how := warning, what := What}
                                                    <- halley_cluster_tables:missing(C)] end,
    ?assertMatch([<<"fsync is off", _/binary>>, <<"synchronous_standby_names is empty", _/binary>>],
                 Texts()),
    waits_for(C, "*"),
    ?assertMatch([_, <<"synchronous_standby_names is '*'", _/binary>>], Texts()),
    waits_for(C, "ANY 1 (here, there)"),
    ?assertMatch([_], Texts()).

%% --- hosts ---------------------------------------------------------------------------------------

%% Among hosts that are silent, gone or standbys the primary is found at once.
primary_of_several(Config) ->
    Server = ?config(server, Config),
    Standby = epgsql_test_server:standby(Server),
    {?ENGINE, #{connect := #{port := Port} = Connect} = Settings} =
        halley_cluster_test:engine(Config),
    #{port := Other} = epgsql_test_server:options(Standby),
    Hosts = [{"127.0.0.1", epgsql_test_listener:black_hole()}, {"127.0.0.1", 1},
             {"127.0.0.1", Other}, {"127.0.0.1", Port}],
    %% Longer than the case may take: it ends only if the silent host isn't waited for.
    Several = Settings#{connect := (maps:remove(host, Connect))#{hosts => Hosts,
                                                                 timeout => 600000}},
    {ok, Handle, _} = ?ENGINE:open(Several),
    {ok, _} = append(0, 1, token(), <<>>, {?ENGINE, Handle}),
    ?assertEqual({error, read_only},
                 ?ENGINE:open(Settings#{connect := Connect#{port => Other}})),
    ?assertEqual([], [Message || {epgsql, _, _} = Message <- messages()]),
    epgsql_test_server:stop(Standby).

messages() -> element(2, process_info(self(), messages)).

no_host(Config) ->
    {?ENGINE, #{connect := Connect} = Settings} = halley_cluster_test:engine(Config),
    ?assertEqual({error, away}, ?ENGINE:open(Settings#{connect := Connect#{port => 1}})).

refused_login(Config) ->
    {?ENGINE, #{connect := Connect} = Settings} = halley_cluster_test:engine(Config),
    {error, {refused, Text}} = ?ENGINE:open(Settings#{connect := Connect#{
        username => "clear", password => "wrong"}}),
    ?assertNotEqual(nomatch, string:find(Text, "password authentication failed")),
    ?assertMatch({error, {refused, _}},
                 ?ENGINE:open(Settings#{connect := Connect#{database => "absent"}})).

%% As PgBouncer's transaction mode needs it: neither statements, nor settings, nor locks.
nothing_stays_in_the_session(Config) ->
    C = ?config(c, Config),
    {{?ENGINE, Handle} = Engine, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, [{follow, <<"a">>, <<"b">>}], Engine),
    {ok, _} = ?ENGINE:read(0, 1000, Handle),
    {ok, 1} = ?ENGINE:snapshot(fun(_) -> ok end, Handle),
    {held, 1} = ?ENGINE:take(order, <<"a">>, 0, 1000, Handle),
    {ok, _} = ?ENGINE:trim(0, Handle),
    {ok, none} = ?ENGINE:position(<<"hooks">>, Handle),
    %% Those of earlier cases may end a little later.
    eventually([{<<"idle">>, <<"0">>}], fun() ->
        rows(C, "select state, (select count(*) from pg_locks l where l.pid = a.pid) "
                "from pg_stat_activity a where usename = 'plain'")
    end),
    [{Session, Statements}] = run(Handle, "select string_agg(name, ' '), (select count(*) "
        "from pg_prepared_statements) from pg_settings where source = 'session'"),
    ?assertEqual(0, Statements),
    ?assertEqual(null, Session).

%% A query in the engine's own session.
run({?ENGINE, Ref}, Sql) ->
    Session = element(2, get({?ENGINE, Ref})),
    {{ok, Rows}, After} = halley_cluster_connection:run(Sql, [], 5000, Session),
    _ = put({?ENGINE, Ref}, setelement(2, get({?ENGINE, Ref}), After)),
    Rows.
