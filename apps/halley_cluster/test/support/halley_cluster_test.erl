%% Shared by the suites of `halley_cluster': a PostgreSQL, or two, for a group, and words for the
%% engine under test.
-module(halley_cluster_test).

-include_lib("common_test/include/ct.hrl").

-compile([export_all, nowarn_export_all]).

-define(WAIT_MS, 30000).

%% --- servers ------------------------------------------------------------------------------------

start_postgres(Config) -> start_postgres([], Config).

start_postgres(Settings, Config) ->
    Server = epgsql_test_server:start(Settings),
    C = admin(Server),
    ok = sql(C, "grant create on database postgres to plain"),
    ok = epgsql:close(C),
    [{kind, postgres}, {server, Server} | Config].

%% Commits wait for the standby.
start_pair(Config) ->
    Config1 = start_postgres(["hot_standby = on"], Config),
    Server = ?config(server, Config1),
    Standby = epgsql_test_server:standby(Server, "standby"),
    C = admin(Server),
    ok = sql(C, "alter system set synchronous_standby_names = 'standby'"),
    ok = sql(C, "select pg_reload_conf()"),
    ok = epgsql:close(C),
    [{standby, Standby}, {keeps_statements, true} | Config1].

stop_postgres(Config) ->
    _ = [ok = epgsql_test_server:stop(Standby) || {standby, Standby} <- Config],
    ok = epgsql_test_server:stop(?config(server, Config)).

%% As the role that owns the server.
admin(Server) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(Server, #{call_timeout => ?WAIT_MS})),
    %% A case may let all others wait for a standby.
    ok = sql(C, "set synchronous_commit = local"),
    C.

%% As the role that brains have.
plain(Server) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(Server, #{username => "plain",
                                                                  call_timeout => ?WAIT_MS})),
    C.

sql(C, Sql) ->
    [] = [Error || {error, Error} <- lists:flatten([epgsql:squery(C, Sql)])],
    ok.

rows(C, Sql) ->
    {ok, _, Rows} = epgsql:squery(C, Sql),
    Rows.

init_per_testcase(Config) ->
    process_flag(trap_exit, true),
    case ?config(kind, Config) of
        fake ->
            {ok, Fake} = halley_cluster_fake_engine:start(),
            [{fake, Fake} | Config];
        postgres ->
            install(?config(server, Config)),
            Config
    end.

end_per_testcase(Config) ->
    case ?config(kind, Config) of
        fake -> halley_cluster_fake_engine:stop(?config(fake, Config));
        postgres -> ok
    end.

%% The tables, empty, of the role that brains have.
install(Server) ->
    Admin = admin(Server),
    ok = sql(Admin, "drop schema if exists halley_cluster cascade"),
    ok = epgsql:close(Admin),
    C = plain(Server),
    {ok, Left} = halley_cluster_tables:install(C),
    [] = [Each || #{how := How} = Each <- Left, How =/= warning],
    epgsql:close(C).

%% --- the engine ---------------------------------------------------------------------------------

open(Config) ->
    {Module, Settings} = engine(Config),
    {ok, Handle, Opened} = Module:open(Settings),
    {{Module, Handle}, Opened}.

engine(Config) ->
    case ?config(kind, Config) of
        fake ->
            {halley_cluster_fake_engine,
             halley_cluster_fake_engine:settings(?config(fake, Config))};
        postgres ->
            {halley_cluster_postgres,
             maps:merge(#{connect => connect(?config(server, Config)), append_ms => 10000},
                        maps:from_list([{Key, Value} || {Key, Value} <- Config,
                                                        Key =:= retention_ms
                                                            orelse Key =:= keeps_statements]))}
    end.

connect(Server) ->
    maps:with([host, port, username, database, timeout],
              epgsql_test_server:options(Server, #{username => "plain"})).

append(Prev, Last, Token, Body, Engine) when is_binary(Body) ->
    append(Prev, Last, Token, Body, [], Engine).

append(Prev, Last, Token, Body, Changes, {Module, Handle}) ->
    Module:append(Prev, Token, #{last => Last, body => Body, changes => Changes}, Handle).

token() -> crypto:strong_rand_bytes(16).

%% All rows after this seq, by reads of different sizes.
all_rows(After, {Module, Handle} = Engine) ->
    case Module:read(After, rand:uniform(5000), Handle) of
        {ok, []} -> [];
        {ok, Rows} -> Rows ++ all_rows(maps:get(last, lists:last(Rows)), Engine)
    end.

%% Each row goes on where the one before it ended, and not before its time.
is_chain([#{last := Last, at := At} | [#{prev := Prev, at := Next} | _] = Rows]) ->
    Last =:= Prev andalso Next >= At andalso is_chain(Rows);
is_chain(_) -> true.

%% So much time for the engine.
pass(Config, Ms) ->
    case ?config(kind, Config) of
        fake -> halley_cluster_fake_engine:advance(?config(fake, Config), Ms);
        postgres -> timer:sleep(Ms)
    end.

eventually(Expected, Fun) ->
    eventually(Expected, Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

eventually(Expected, Fun, Until) ->
    case Fun() of
        Expected -> ok;
        Other ->
            erlang:monotonic_time(millisecond) < Until orelse error({never, Expected, Other}),
            timer:sleep(20),
            eventually(Expected, Fun, Until)
    end.

%% --- segments -----------------------------------------------------------------------------------

%% Appends until the segments that have rows are such, and returns the last seq.
filled(Prev, IsEnough, C, Engine) ->
    {ok, _} = append(Prev, Prev + 1, token(), <<"body">>, Engine),
    case IsEnough(used(C)) of
        true -> Prev + 1;
        false ->
            timer:sleep(2),
            filled(Prev + 1, IsEnough, C, Engine)
    end.

begins_with(Segments) ->
    fun(Used) -> string:prefix(Used, Segments) =/= nomatch end.

used(C) ->
    [{Used}] = rows(C, "select string_agg(segment::text, ',' order by first) "
                       "from halley_cluster.segments()"),
    Used.
