%% The runner with real processes: the fake edge as a program of its own.
%% halley_edge_later_runner_SUITE has runners that aren't the first one.
-module(halley_edge_runner_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, field/3]).

%% More than anything here takes, on a machine that is busy with other things.

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [starts_and_stops, drain_is_waited_for_with_links_up, second_stop_cuts_a_drain_short,
     core_dies_edge_stays, edge_dies_in_a_drain_stays_dead, edge_that_does_not_stop_is_killed,
     adopted_edge_that_cannot_be_talked_to_gets_a_signal, edge_exits_is_restarted,
     runner_dies_edge_stays, brain_dies_edge_is_adopted,
     adopted_edge_exits_is_restarted, adopted_edge_exits_before_it_answers,
     older_edge_is_replaced,
     older_edge_of_another_directory_is_named, port_in_use_fails,
     program_is_missing, socket_dir_is_too_long, socket_dir_is_unusable,
     silent_stranger_is_named, silent_edge_is_ended, files_for_tls_are_compared,
     arguments_are_compared, addresses_are_compared,
     no_secret_of_the_brain_reaches_the_edge,
     asking_for_the_version_tells_no_secret, identity_of_processes].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Dir = string:trim(os:cmd("mktemp -d")),
    Program = filename:join(Dir, "halley-edge"),
    Beams = filename:dirname(code:which(fake_edge)),
    App = filename:dirname(code:which(halley_edge_codec)),
    Script = ["#!/bin/sh\necho $$ >> ", Dir, "/pids\n",
              "exec erl +sbwt none -noshell -noinput -pa ", Beams, " ", App,
              " -s fake_edge main -extra \"$@\"\n"],
    ok = file:write_file(Program, Script),
    ok = file:change_mode(Program, 8#700),
    [application:set_env(halley_edge, Key, Value)
     || {Key, Value} <- [{program, Program}, {public_listen, "127.0.0.1:8"},
                         {api_listen, "127.0.0.1:9"}, {workers, 2}, {tls_files, []},
                         {socket_dir, filename:join(Dir, "edge")}]],
    ok = application:set_env(halley, drain_ms, 100),
    meck:new(halley_boot, [passthrough, no_link]),
    meck:expect(halley_boot, fail, fun(Line) ->
        exit({failed, unicode:characters_to_list(Line)})
    end),
    [{brain, halley_edge_test_brain:start()}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    Dir = proplists:get_value(dir, Config),
    case whereis(halley_edge_runner) of
        undefined -> ok;
        Runner ->
            _ = catch halley_edge_runner:stop_edge(0),
            kill(Runner)
    end,
    [signal("KILL", Pid) || Pid <- pids(Config), os_alive(Pid)],
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    application:unset_env(halley_edge, has_linked),
    application:unset_env(halley_edge, answer_ms_max),
    application:unset_env(halley, drain_ms),
    meck:unload(),
    ok = file:del_dir_r(Dir).

starts_and_stops(Config) ->
    {ok, _} = start_runner(),
    ?assertMatch({ok, _}, halley_edge_dialer:link()),
    SocketDir = filename:join(proplists:get_value(dir, Config), "edge"),
    {ok, #file_info{mode = Mode}} = file:read_file_info(SocketDir),
    ?assertEqual(8#700, Mode band 8#777),
    [Pid] = pids(Config),
    ?assert(os_alive(Pid)),
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)),
    %% It stays stopped.
    timer:sleep(300),
    ?assertEqual([Pid], pids(Config)).

%% protocol/link.md 9.1: the process exits when the drain is over, not before; the brain goes on
%% with it until then.
drain_is_waited_for_with_links_up(Config) ->
    {ok, _} = start_runner(),
    [Pid] = pids(Config),
    Stopping = stop_in_background(?WAIT_MS),
    timer:sleep(700),
    ?assert(os_alive(Pid)),
    ?assertMatch({ok, _}, halley_edge_dialer:link()),
    %% So long a drain can't end while we look; that of a second stop shows that its end counts.
    3000 = stopped(stop_in_background(3000), 3000, ?WAIT_MS),
    ?WAIT_MS = stopped(Stopping, 3000, ?WAIT_MS - 1),
    ?assertNot(os_alive(Pid)),
    ?assertEqual(none, halley_edge_dialer:link()),
    ok = halley_edge_runner:stop_edge(0).

second_stop_cuts_a_drain_short(Config) ->
    {ok, _} = start_runner(),
    [Pid] = pids(Config),
    Stopping = stop_in_background(?WAIT_MS),
    until(fun is_stopping/0),
    meck:new(halley_edge_process, [passthrough, no_link]),
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)),
    ?WAIT_MS = stopped(Stopping, 0, ?WAIT_MS - 1),
    %% It went by itself, before anybody's patience was over.
    ?assertNot(meck:called(halley_edge_process, kill, '_')).

%% protocol/link.md 9.2: a brain whose store gave up ends without SHUTDOWN.
core_dies_edge_stays(Config) ->
    {ok, _} = start_runner(),
    [Pid] = pids(Config),
    Core = whereis(halley_sup),
    true = unregister(halley_sup),
    state = halley_edge_app:prep_stop(state),
    ?assert(os_alive(Pid)),
    true = register(halley_sup, Core),
    state = halley_edge_app:prep_stop(state),
    ?assertNot(os_alive(Pid)).

edge_dies_in_a_drain_stays_dead(Config) ->
    {ok, _} = start_runner(),
    [Pid] = pids(Config),
    Stopping = stop_in_background(?WAIT_MS),
    until(fun is_stopping/0),
    signal("KILL", Pid),
    ?WAIT_MS = stopped(Stopping, 0, ?WAIT_MS - 1),
    timer:sleep(300),
    ?assertEqual([], edge_pids(Config)).

edge_that_does_not_stop_is_killed(Config) ->
    {ok, _} = start_runner(),
    [Pid] = pids(Config),
    Stopping = stop_in_background(4000),
    4000 = stopped(Stopping, 14000, ?WAIT_MS),
    ?assertNot(os_alive(Pid)).

%% It hangs, so neither a link nor a handshake helps.
adopted_edge_that_cannot_be_talked_to_gets_a_signal(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    {ok, _} = start_runner(),
    ok = halley_edge_dialer:disconnect(),
    [ok = file:delete(Socket)
     || Socket <- filelib:wildcard(filename:join([proplists:get_value(dir, Config), "edge", "*"]))],
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)).

edge_exits_is_restarted(Config) ->
    {ok, _} = start_runner(),
    [First] = pids(Config),
    kill_edge(First),
    [First, Second] = pids(Config),
    kill_edge(Second),
    ?assertMatch([First, Second, _], pids(Config)).

runner_dies_edge_stays(Config) ->
    {ok, Runner} = start_runner(),
    [Pid] = pids(Config),
    kill(Runner),
    ?assert(os_alive(Pid)),
    {ok, _} = start_runner(),
    ?assertEqual([Pid], edge_pids(Config)),
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)).

%% The edge of a brain that was killed: here one that the test started itself.
brain_dies_edge_is_adopted(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    {ok, _} = start_runner(),
    ?assertMatch({ok, _}, halley_edge_dialer:link()),
    ?assertEqual([Pid], edge_pids(Config)),
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)).

adopted_edge_exits_is_restarted(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    {ok, _} = start_runner(),
    kill_edge(Pid),
    ?assertMatch([_], edge_pids(Config) -- [Pid]).

%% It stands still, so the brain waits for its handshake, and is killed.
adopted_edge_exits_before_it_answers(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    ok = meck:new(halley_edge_dialer, [passthrough, no_link]),
    ok = meck:expect(halley_edge_dialer, connect, ['_', '_'],
                     meck:seq([meck:val(ok), meck:passthrough()])),
    {ok, _} = halley_edge_runner:start_link(),
    until(fun() -> meck:num_calls(halley_edge_dialer, connect, '_') =:= 1 end),
    signal("KILL", Pid),
    ok = halley_edge_runner:await_handshakes(),
    until(fun() -> halley_edge_dialer:link() =/= none end),
    ?assertMatch([_], edge_pids(Config) -- [Pid]).

%% protocol/link.md 3.2: "the brain asks it to stop by SIGTERM, which drains it, and starts its
%% own."
older_edge_is_replaced(Config) ->
    Pid = start_edge(Config, "127.0.0.1:2"),
    {ok, _} = start_runner(),
    ?assertNot(os_alive(Pid)),
    ?assertMatch([_], edge_pids(Config) -- [Pid]),
    ?assertMatch({ok, _}, halley_edge_dialer:link()).

%% Its command line doesn't name the directory, so it isn't touched.
older_edge_of_another_directory_is_named(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Stranger = fake_edge:start(binary_to_list(halley_edge_dial:path(Dir)), {older, 2}),
    ?assertMatch({match, _}, re:run(failure(), "another version.*speaks version 6, this edge 2")),
    ?assert(is_process_alive(Stranger)),
    fake_edge:stop(Stranger).

%% One clear line, as the edge said it.
port_in_use_fails(_) ->
    application:set_env(halley_edge, public_listen, "127.0.0.1:1"),
    ?assertEqual("public.listen: port in use", failure()).

program_is_missing(_) ->
    application:set_env(halley_edge, program, "/nowhere/halley-edge"),
    ?assertMatch({match, _}, re:run(failure(), "/nowhere/halley-edge.*make build")).

socket_dir_is_too_long(Config) ->
    Long = filename:join(proplists:get_value(dir, Config), lists:duplicate(100, $x)),
    application:set_env(halley_edge, socket_dir, Long),
    ?assertMatch("edge.socket_dir: " ++ _, failure()).

socket_dir_is_unusable(Config) ->
    File = filename:join(proplists:get_value(dir, Config), "file"),
    ok = file:write_file(File, <<>>),
    application:set_env(halley_edge, socket_dir, filename:join(File, "edge")),
    ?assertMatch("edge.socket_dir: cannot use " ++ _, failure()).

%% Something else listens there: it isn't touched.
silent_stranger_is_named(Config) ->
    ok = halley_limits:set(#{handshake_ms_max => 100}),
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Stranger = fake_edge:start(binary_to_list(halley_edge_dial:path(Dir)), none),
    ?assertMatch("edge.socket_dir: what listens at " ++ _, failure()),
    ?assert(is_process_alive(Stranger)),
    fake_edge:stop(Stranger).

%% Its own edge, though: a brain that refused to start would leave the ports taken.
silent_edge_is_ended(Config) ->
    {ok, Program} = application:get_env(halley_edge, program),
    Dir = proplists:get_value(dir, Config),
    ok = file:write_file(Program, ["#!/bin/sh\n[ \"$1\" = --version ] && exit\n",
                                   "echo $$ >> ", Dir, "/pids\nexec sleep 600\n"]),
    application:set_env(halley_edge, answer_ms_max, 2000),
    ?assertMatch("the edge did not answer within 2 s" ++ _, failure()),
    [Pid] = run_pids(Config),
    until(fun() -> not os_alive(Pid) end).

%% It serves what it was started with, whatever the configuration says now.
files_for_tls_are_compared(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    Files = [{"--public-certificate", "/a.pem"}, {"--public-key", "/a.key"}],
    application:set_env(halley_edge, tls_files, Files),
    {ok, Runner} = start_runner(),
    [Second] = edge_pids(Config) -- [Pid],
    until(fun() -> not os_alive(Pid) end),
    ?assertEqual([{list_to_binary(Option), list_to_binary(File)} || {Option, File} <- Files],
                 halley_edge_process:tls_files(list_to_integer(Second))),
    kill(Runner),
    {ok, _} = start_runner(),
    ?assertEqual([Second], edge_pids(Config)).

%% What an edge was started with can't be changed: another edge takes its place.
arguments_are_compared(Config) ->
    lists:foldl(fun({Key, Value, Seen}, Pid) ->
        application:set_env(halley_edge, Key, Value),
        {ok, Runner} = start_runner(),
        [Second] = edge_pids(Config) -- [Pid],
        until(fun() -> not os_alive(Pid) end),
        ?assertEqual(Seen, halley_edge_process:Key(list_to_integer(Second))),
        kill(Runner),
        {ok, Again} = start_runner(),
        ?assertEqual([Second], edge_pids(Config)),
        kill(Again),
        application:unset_env(halley_edge, Key),
        Second
    end, start_edge(Config, "127.0.0.1:8"),
    [{sandbox, off, off}, {user, "somebody", <<"somebody">>}, {connections_max, 17, 17}]).

%% The edge reads from the network: neither its command line nor its environment has anything that
%% is worth to be stolen.
no_secret_of_the_brain_reaches_the_edge(Config) ->
    Secrets = [{"HALLEY_AUTH_HMAC_SECRET", "secret-of-tokens-32-bytes-or-more"},
               {"HALLEY_COOKIE", "cookie-of-the-cluster"}, {"ANOTHER", "key-of-somebody"}],
    [true = os:putenv(Name, Value) || {Name, Value} <- Secrets],
    Pid = start_edge(Config, "127.0.0.1:8"),
    [true = os:unsetenv(Name) || {Name, _} <- Secrets],
    Cookie = atom_to_list(erlang:get_cookie()),
    {ok, Environment} = file:read_file("/proc/" ++ Pid ++ "/environ"),
    {ok, Line} = file:read_file("/proc/" ++ Pid ++ "/cmdline"),
    ?assertMatch({_, _}, binary:match(Environment, <<"PATH=">>)),
    [?assertEqual({Text, nomatch}, {Text, binary:match(Where, list_to_binary(Text))})
     || Where <- [Environment, Line],
        Text <- ["HALLEY", Cookie | [Value || {_, Value} <- Secrets]]].

%% Nor does the program that only says its version.
asking_for_the_version_tells_no_secret(Config) ->
    Program = filename:join(proplists:get_value(dir, Config), "says-what-it-knows"),
    ok = file:write_file(Program, "#!/bin/sh\necho halley-edge ${A_FAKE_SECRET-unset}\n"),
    ok = file:change_mode(Program, 8#700),
    true = os:putenv("A_FAKE_SECRET", "known"),
    Build = halley_edge_process:build(Program),
    true = os:unsetenv("A_FAKE_SECRET"),
    ?assertEqual({ok, <<"unset">>}, Build).

addresses_are_compared(Config) ->
    Pid = start_edge(Config, "127.0.0.1:08"),
    {ok, _} = start_runner(),
    ?assertEqual([Pid], edge_pids(Config)).

identity_of_processes(_) ->
    {ok, Mine} = halley_edge_process:identify(list_to_integer(os:getpid())),
    ?assert(halley_edge_process:is_alive(Mine)),
    ?assertEqual(gone, halley_edge_process:identify(4194304)).

%%% Helpers

stop_in_background(DrainMs) ->
    Began = erlang:monotonic_time(millisecond),
    {_, Monitor} = spawn_monitor(fun() ->
        ok = halley_edge_runner:stop_edge(DrainMs),
        exit({stopped, DrainMs})
    end),
    {Monitor, Began}.

stopped({Monitor, Began}, MsMin, MsMax) ->
    receive
        {'DOWN', Monitor, process, _, {stopped, DrainMs}} ->
            TookMs = erlang:monotonic_time(millisecond) - Began,
            ?assert(TookMs >= MsMin andalso TookMs =< MsMax),
            DrainMs
    after MsMax ->
        error(edge_does_not_stop)
    end.

is_stopping() ->
    Place = field(halley_edge_runner, state, stopping),
    element(Place, sys:get_state(halley_edge_runner, infinity)) =/= no.

start_runner() ->
    {ok, Runner} = halley_edge_runner:start_link(),
    ok = halley_edge_runner:await_handshakes(),
    {ok, Runner}.

%% How a start fails: at once, or when the edge doesn't come up.
failure() ->
    Trapped = process_flag(trap_exit, true),
    Line = case halley_edge_runner:start_link() of
        {error, {failed, AtOnce}} -> AtOnce;
        {ok, Runner} ->
            receive {'EXIT', Runner, {failed, Later}} -> Later
            after ?WAIT_MS -> error(ran)
            end
    end,
    process_flag(trap_exit, Trapped),
    Line.

%% Pids of all runs of the program, `--version' excepted where it has ended.
pids(Config) ->
    [Pid || Pid <- run_pids(Config), was_edge(Pid)].

edge_pids(Config) ->
    [Pid || Pid <- pids(Config), os_alive(Pid)].

run_pids(Config) ->
    case file:read_file(filename:join(proplists:get_value(dir, Config), "pids")) of
        {ok, Text} -> [binary_to_list(P) || P <- binary:split(Text, <<"\n">>, [global, trim_all])];
        {error, enoent} -> []
    end.

%% The first run asks for the version.
was_edge(Pid) ->
    get({edge, Pid}) =:= true orelse is_running_edge(Pid).

is_running_edge(Pid) ->
    case file:read_file("/proc/" ++ Pid ++ "/cmdline") of
        {ok, Line} ->
            Is = binary:match(Line, <<"--socket-dir">>) =/= nomatch,
            put({edge, Pid}, Is),
            Is;
        {error, _} ->
            false
    end.

os_alive(Pid) ->
    halley_edge_process:identify(list_to_integer(Pid)) =/= gone.

start_edge(Config, Public) ->
    {ok, Program} = application:get_env(halley_edge, program),
    start_edge(Program, Config, Public).

start_edge(Program, Config, Public) ->
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Edge = #{public => Public, api => "127.0.0.1:9", workers => 2, socket_dir => Dir,
             sandbox => on, tls_files => [], connections_max => undefined},
    {ok, _} = halley_edge_process:start(Program, Edge),
    until(fun() -> length(filelib:wildcard(filename:join(Dir, "*.sock"))) =:= 1 end),
    [Pid] = edge_pids(Config),
    Pid.

signal(Name, Pid) ->
    os:cmd("kill -" ++ Name ++ " " ++ Pid).

kill_edge(Pid) ->
    Link = halley_edge_dialer:link(),
    signal("KILL", Pid),
    linked_again(Link).

%% By another link than that before, which may have been gone for an instant only.
linked_again(Before) ->
    until(fun() -> not lists:member(halley_edge_dialer:link(), [none, Before]) end).

kill(Process) ->
    Monitor = monitor(process, Process),
    exit(Process, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.
