%% Shared by the suites of `halley_postgres': a PostgreSQL for a suite, a brain and a stream for a
%% case, and words for their queries.
-module(halley_postgres_test).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(WAIT_MS, 30000).

init_per_suite(Config) ->
    Config1 = halley_test_brain:quiet(Config),
    Server = epgsql_test_server:start(),
    {ok, C} = epgsql:connect(epgsql_test_server:options(Server)),
    ok = sql(C, "create role poor login"),
    ok = epgsql:close(C),
    persistent_term:put({?MODULE, server}, Server),
    [{server, Server} | Config1].

end_per_suite(Config) ->
    ok = epgsql_test_server:stop(server(Config)),
    halley_test_brain:loud(Config).

init_per_testcase(Config) ->
    process_flag(trap_exit, true),
    C = connect(Config),
    ok = sql(C, "create table follows (follower_id int8, followed_id int8, note text, "
                "primary key (follower_id, followed_id))"),
    [{c, C} | halley_test_brain:start(Config)].

end_per_testcase(Config) ->
    stop_stream(),
    ok = halley_test_brain:stop(Config),
    C = connect(Config),
    %% Their connections may end a little later.
    eventually([], fun() ->
        _ = epgsql:squery(C, "select pg_drop_replication_slot(slot_name) "
                             "from pg_replication_slots where active_pid is null"),
        {ok, _, Slots} = epgsql:squery(C, "select slot_name from pg_replication_slots"),
        Slots
    end),
    ok = sql(C, "alter role poor noreplication; drop owned by poor"),
    ok = sql(C, "drop schema public cascade; create schema public; "
                "drop schema if exists halley cascade; drop publication if exists halley"),
    epgsql:close(C).

connect(Config) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(?config(server, Config),
                                                        #{call_timeout => ?WAIT_MS})),
    C.

%% The process of now, which a case may have started.
server(_) -> persistent_term:get({?MODULE, server}).

sql(C, Sql) ->
    [] = [Error || {error, Error} <- lists:flatten([epgsql:squery(C, Sql)])],
    ok.

settings(Config, More) ->
    #{host := Host, port := Port, username := User} =
        epgsql_test_server:options(?config(server, Config)),
    {ok, Settings} = halley_postgres_config:settings(maps:merge(
        #{host => Host, port => Port, user => User, publish => on,
          follows => "public.follows(follower_id, followed_id)"}, More)),
    Settings.

%% The connection of the command has no time limit either, whatever the database says.
set_up(Config, More) ->
    C = connect(Config),
    ok = sql(C, "set statement_timeout = 0"),
    ?assertMatch({_, ok}, halley_postgres_command:setup(C, settings(Config, More), 4)),
    epgsql:close(C).

%% The stream, as the application starts it.
start_stream(Config) -> start_stream(Config, #{}).

start_stream(Config, More) ->
    ok = application:set_env(halley_postgres, settings, settings(Config, More)),
    Case = self(),
    spawn(fun() ->
        process_flag(trap_exit, true),
        {ok, Sup} = halley_postgres_sup:start_link(settings(Config, More)),
        register(test_stream, self()),
        Case ! started,
        receive stop -> ok end,
        exit(Sup, shutdown),
        receive {'EXIT', Sup, _} -> ok end
    end),
    receive started -> ok after ?WAIT_MS -> error(no_stream) end.

stop_stream() ->
    case whereis(test_stream) of
        undefined -> ok;
        Pid ->
            Monitor = monitor(process, Pid),
            Pid ! stop,
            receive {'DOWN', Monitor, process, Pid, _} -> ok end
    end.

begin_with(Config, More) ->
    set_up(Config, More),
    start_stream(Config, More),
    streaming().

streaming() ->
    eventually(1, fun() -> gauge("halley_postgres_streaming") end).

worker() ->
    eventually(true, fun() -> is_pid(gen_server:call(halley_postgres_runner, worker)) end),
    gen_server:call(halley_postgres_runner, worker).

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

following(User) -> lists:sort(halley:following(User)).

follows(Expected) ->
    maps:foreach(fun(User, Subjects) ->
        eventually(lists:sort(Subjects), fun() -> following(User) end)
    end, Expected).

gauge(Name) ->
    {match, [Value]} = re:run(halley_metrics:render(), ["\n", Name, " ([0-9]+)\n"],
                              [{capture, all_but_first, list}]),
    list_to_integer(Value).

%% A user of this case, who gets what it follows.
login(User) -> ok = halley:login(User).

next() ->
    receive {halley, Event} -> Event after ?WAIT_MS -> error(no_event) end.

nothing_more() ->
    receive {halley, Event} -> error({unexpected, Event}) after 300 -> ok end.

emit(C, Json) ->
    {ok, _, _} = epgsql:equery(C, "select pg_logical_emit_message(true, 'halley', $1::text)",
                               [Json]),
    ok.

rows(C, Sql) ->
    {ok, _, Rows} = epgsql:squery(C, Sql),
    lists:sort(Rows).

dropped_slot(C) ->
    eventually(ok, fun() ->
        try sql(C, "select pg_drop_replication_slot('halley')") catch error:_ -> active end
    end).

%% The server of now: a case has started it again.
restarted(Server) ->
    Again = epgsql_test_server:restart(Server),
    persistent_term:put({?MODULE, server}, Again).

%% Commits of others than `C' are on disk, and sent to who streams them, and aren't seen before that
%% standby has them; without a name they are.
waits_for_a_standby(C, Name) ->
    {ok, _, _} = epgsql:squery(C, "set synchronous_commit = off"),
    ok = sql(C, ["alter system set synchronous_standby_names = '", Name, "'"]),
    ok = sql(C, "select pg_reload_conf()"),
    eventually([{list_to_binary(Name)}], fun() -> rows(C, "show synchronous_standby_names") end).

%% One follow by the table, and one by the API, which must always stay.
follows_two(Config, More) ->
    {ok, _} = halley:follow([{<<"1">>, <<"api">>}]),
    begin_with(Config, More),
    ok = sql(?config(c, Config), "insert into follows values (1, 2)"),
    follows(#{<<"1">> => [<<"2">>, <<"api">>]}).

%% A standby of that name, which confirms all that it is sent: a process, which ends with `kill'.
standby(Config, Name) ->
    Case = self(),
    Pid = spawn(fun() ->
        {ok, R} = epgsql:connect(epgsql_test_server:options(
            server(Config), #{replication => "true", application_name => Name})),
        {ok, #{position := At, timeline := Timeline}} = epgsql_replication:identify_system(R),
        ok = epgsql:start_replication(R, "", self(), none,
                                      binary_to_list(epgsql_replication:lsn_text(At)), "",
                                      #{kind => physical, timeline => Timeline}),
        ok = epgsql:standby_status_update(R, At, At),
        Case ! {self(), streams},
        confirming(R)
    end),
    receive {Pid, streams} -> Pid after ?WAIT_MS -> error(no_standby) end.

confirming(R) ->
    receive
        {epgsql, R, {x_log_data, Start, _, Data}} ->
            End = Start + byte_size(Data),
            ok = epgsql:standby_status_update(R, End, End),
            confirming(R);
        _ -> confirming(R)
    end.
