%% Start and stop of the brain in an Erlang node of its own, as an operator sees them: exit
%% status, stderr.
-module(halley_boot_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(BOOT_MS, 120000).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [starts_and_stops_on_sigterm, sigterm_drains_first, second_sigterm_cuts_the_drain_short,
     drain_that_fails_stops_all_the_same, pid_file_is_written_and_removed,
     refused_start_leaves_the_pid_file_of_another, log_is_one_line_for_a_message,
     node_listens_on_nothing,
     config_unknown_key, config_bad_value, config_unknown_variable, config_file_missing,
     data_dir_is_a_file, data_dir_is_in_use, another_node_name,
     follows_survive_a_kill].

init_per_testcase(_, Config) ->
    [{dir, string:trim(os:cmd("mktemp -d"))} | Config].

end_per_testcase(_, Config) ->
    file:del_dir_r(proplists:get_value(dir, Config)).

starts_and_stops_on_sigterm(Config) ->
    Node = start_node(Config, []),
    Said = wait_line(Node, "has opened its data"),
    Opened = "notice brain halley@127.0.0.1 has opened its data, in ",
    ?assertMatch({match, _}, re:run(Said, Opened)),
    %% It says so a moment before it has started.
    _ = wait_line(Node, "has started"),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

%% The brain answers while its edge drains, and ends when that is gone.
sigterm_drains_first(Config) ->
    Gone = filename:join(proplists:get_value(dir, Config), "edge-is-gone"),
    Edge = "fun(Ms) -> logger:notice(\"edge stops in ~b, ~p, ~p\", "
           "[Ms, halley_drain:is_draining(), halley:publish(<<\"s\">>, 1)]), "
           "(fun Wait() -> filelib:is_file(\"" ++ Gone ++ "\") "
           "orelse begin timer:sleep(20), Wait() end end)() end",
    Node = start_with_edge(Config, [{"HALLEY_DRAIN_TIME", "60s"}], Edge),
    ok = signal(Node, "TERM"),
    _ = wait_line(Node, "notice draining: 0 sessions over 60.0 s"),
    _ = wait_line(Node, "edge stops in 60000, true, {ok,#{"),
    halley_test_brain:wait(fun() -> is_draining(pid_file(Config)) end),
    ok = file:write_file(Gone, ""),
    _ = wait_line(Node, "notice drained after [1-6]?[0-9]\\.[0-9] s, stopping"),
    {0, _} = wait_exit(Node),
    ?assertEqual(none, pid_file(Config)).

is_draining([_, _, Status]) -> Status =:= <<"draining 0">>;
is_draining(none) -> error(drained_before_the_edge).

second_sigterm_cuts_the_drain_short(Config) ->
    Edge = "fun(0) -> waits ! stop, ok; (Ms) -> register(waits, self()), logger:notice(\"waits\"), "
           "receive stop -> ok after Ms -> ok end end",
    Node = start_with_edge(Config, [{"HALLEY_DRAIN_TIME", "90s"}], Edge),
    ok = signal(Node, "TERM"),
    _ = wait_line(Node, "waits"),
    ok = signal(Node, "TERM"),
    _ = wait_line(Node, "asked again to stop: closing 0 sessions at once"),
    _ = wait_line(Node, "notice drained after [1-8]?[0-9]\\.[0-9] s, stopping"),
    {0, _} = wait_exit(Node).

drain_that_fails_stops_all_the_same(Config) ->
    Node = start_with_edge(Config, [], "fun(_) -> exit(no_luck) end"),
    ok = signal(Node, "TERM"),
    _ = wait_line(Node, "error the edge could not be stopped: no_luck"),
    {0, _} = wait_exit(Node).

pid_file_is_written_and_removed(Config) ->
    Node = start_node(Config, []),
    _ = wait_line(Node, "has started"),
    Pid = integer_to_binary(os_pid(Node)),
    {ok, Stat} = file:read_file(<<"/proc/", Pid/binary, "/stat">>),
    [Pid, Started, <<"running">>] = pid_file(Config),
    %% proc(5): starttime is the 22nd field; erl's name has no blanks.
    ?assertEqual(Started, lists:nth(22, binary:split(Stat, <<" ">>, [global]))),
    ok = signal(Node, "KILL"),
    {137, _} = wait_exit(Node),
    ?assertMatch([Pid, Started, _], pid_file(Config)),
    Next = start_node(Config, []),
    _ = wait_line(Next, "has started"),
    NextPid = integer_to_binary(os_pid(Next)),
    ?assertMatch([NextPid, _, <<"running">>], pid_file(Config)),
    ok = signal(Next, "TERM"),
    {0, _} = wait_exit(Next),
    ?assertEqual(none, pid_file(Config)).

refused_start_leaves_the_pid_file_of_another(Config) ->
    Node = start_node(Config, []),
    _ = wait_line(Node, "has started"),
    Before = pid_file(Config),
    fails(Config, [], "halley: data.dir: another running brain has .* open"),
    ?assertEqual(Before, pid_file(Config)),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

log_is_one_line_for_a_message(Config) ->
    Node = start_node(Config, [], "logger:error(\"two~nlines ~p\", [lists:seq(1, 200)])"),
    _ = wait_line(Node, "has opened its data"),
    Line = wait_line(Node, "lines"),
    ?assertMatch({match, _},
                 re:run(Line, "^[0-9-]{10} [0-9:.]+\\S* error two, ?lines \\[1,2.*200\\]$")),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

node_listens_on_nothing(Config) ->
    Node = start_node(Config, []),
    _ = wait_line(Node, "has started"),
    ?assertEqual([], listening(os_pid(Node))),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node),
    Control = start_node(Config, [],
                         "spawn(fun() -> {ok, _} = gen_tcp:listen(0, [{ip, loopback}]), "
                         "logger:notice(\"listens\"), receive never -> ok end end)"),
    _ = wait_line(Control, "listens"),
    ?assertMatch([_], listening(os_pid(Control))),
    ok = signal(Control, "TERM"),
    {0, _} = wait_exit(Control).

config_unknown_key(Config) ->
    File = write(Config, "halley.conf", "edge.wrokers = 3\n"),
    fails(Config, [{"HALLEY_CONF", File}],
          "halley: " ++ File ++ ": there is no key edge.wrokers; did you mean edge.workers\\?").

config_bad_value(Config) ->
    fails(Config, [{"HALLEY_EDGE_WORKERS", "lots"}],
          "halley: edge.workers: must be a whole number; it is \"lots\"").

config_unknown_variable(Config) ->
    fails(Config, [{"HALLEY_EGDE_WORKERS", "3"}],
          "halley: HALLEY_EGDE_WORKERS: no key has this variable; "
          "did you mean HALLEY_EDGE_WORKERS\\?").

config_file_missing(Config) ->
    fails(Config, [{"HALLEY_CONF", "/nonexistent.conf"}],
          "halley: /nonexistent.conf: cannot be read: no such file or directory").

data_dir_is_a_file(Config) ->
    File = write(Config, "data", ""),
    fails(Config, [{"HALLEY_DATA_DIR", File}], "halley: data.dir: .*" ++ File ++ ".*").

data_dir_is_in_use(Config) ->
    Node = start_node(Config, []),
    _ = wait_line(Node, "has started"),
    fails(Config, [], "halley: data.dir: another running brain has .* open"),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

%% Follows belong to data.dir, not to a node's name.
another_node_name(Config) ->
    First = start_node(Config, [], "ok = halley:follow(<<\"ann\">>, <<\"bob\">>), "
                                   "logger:notice(\"followed\")"),
    _ = wait_line(First, "followed"),
    ok = signal(First, "TERM"),
    {0, _} = wait_exit(First),
    Second = start_node(Config, [{"HALLEY_NODE_NAME", "other@127.0.0.1"}],
                        "logger:notice(\"~p\", [halley:following(<<\"ann\">>)])"),
    _ = wait_line(Second, "\\[<<\"bob\">>\\]"),
    ok = signal(Second, "TERM"),
    {0, _} = wait_exit(Second).

follows_survive_a_kill(Config) ->
    First = start_node(Config, [], "ok = halley:follow(<<\"ann\">>, <<\"bob\">>), "
                                   "logger:notice(\"followed\")"),
    _ = wait_line(First, "followed"),
    ok = signal(First, "KILL"),
    {137, _} = wait_exit(First),
    Second = start_node(Config, [], "logger:notice(\"~p\", [halley:following(<<\"ann\">>)])"),
    _ = wait_line(Second, "\\[<<\"bob\">>\\]"),
    ok = signal(Second, "TERM"),
    {0, _} = wait_exit(Second).

%% --- helpers -----------------------------------------------------------------------------------

%% Exactly one line on stderr, nothing on stdout, exit status 1, and no crash dump.
fails(Config, Environment, Pattern) ->
    {1, Lines} = wait_exit(start_node(Config, Environment)),
    [Line] = Lines,
    ?assertMatch({match, _}, re:run(Line, ["^", Pattern, "$"]), Line),
    ?assertNot(filelib:is_file(filename:join(proplists:get_value(dir, Config), "erl_crash.dump"))).

start_node(Config, Environment) ->
    start_node(Config, Environment, "logger:notice(\"has started\")").

%% The brain says that it has opened its data before this is its edge.
start_with_edge(Config, Environment, StopEdge) ->
    Node = start_node(Config, Environment, "halley_drain:set_edge(" ++ StopEdge ++ "), "
                                           "logger:notice(\"has an edge\")"),
    _ = wait_line(Node, "has an edge"),
    Node.

%% The port's process becomes the node, so its pid is the node's.
start_node(Config, Environment, Expression) ->
    Dir = proplists:get_value(dir, Config),
    Ebin = filename:dirname(code:which(halley_app)),
    %% A case that fails leaves its node behind: it ends by itself.
    Start = "timer:apply_after(300000, erlang, halt, [3]), "
            "{ok, _} = application:ensure_all_started(halley, permanent), " ++ Expression ++ ".",
    Defaults = [{"HALLEY_DATA_DIR", filename:join(Dir, "data")}],
    Clean = [{Variable, false} || {"HALLEY_" ++ _ = Variable, _} <- os:env()],
    Port = open_port({spawn_executable, os:find_executable("sh")},
                     [{args, ["-c", "exec erl -noshell -noinput -pa \"$1\" -eval \"$2\" 2>&1", "sh",
                              Ebin, Start]},
                      {env, Clean ++ Defaults ++ Environment}, {cd, Dir},
                      {line, 10000}, exit_status, binary]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    {Port, OsPid}.

pid_file(Config) ->
    case file:read_file(filename:join(proplists:get_value(dir, Config), "data/halley.pid")) of
        {ok, Text} -> binary:split(Text, <<"\n">>, [global, trim]);
        {error, enoent} -> none
    end.

os_pid({_, OsPid}) ->
    OsPid.

signal({_, OsPid}, Signal) ->
    "" = os:cmd(io_lib:format("kill -~s ~b", [Signal, OsPid])),
    ok.

wait_line(Node = {Port, _}, Pattern) ->
    receive
        {Port, {data, {eol, Line}}} ->
            case re:run(Line, Pattern, [{capture, none}]) of
                match -> Line;
                nomatch -> wait_line(Node, Pattern)
            end;
        {Port, {exit_status, Status}} ->
            error({exited, Status})
    after ?BOOT_MS ->
        error({no_line, Pattern})
    end.

wait_exit(Node) ->
    wait_exit(Node, []).

wait_exit({Port, _} = Node, Lines) ->
    receive
        {Port, {data, {_, Line}}} -> wait_exit(Node, [Line | Lines]);
        {Port, {exit_status, Status}} -> {Status, lists:reverse(Lines)}
    after ?BOOT_MS ->
        error(node_does_not_end)
    end.

%% TCP sockets of a process that listen, by their inodes.
listening(OsPid) ->
    Inodes = [Inode || Link <- filelib:wildcard(io_lib:format("/proc/~b/fd/*", [OsPid])),
                       {ok, "socket:[" ++ Inode} <- [file:read_link(Link)]],
    Tables = [io_lib:format("/proc/~b/net/~s", [OsPid, Table]) || Table <- ["tcp", "tcp6"]],
    Listening = [lists:nth(10, string:lexemes(Line, " "))
                 || Table <- Tables,
                    {ok, Text} <- [file:read_file(Table)],
                    Line <- string:lexemes(binary_to_list(Text), "\n"),
                    lists:nth(4, string:lexemes(Line, " ")) =:= "0A"],
    [Inode || Inode <- Listening, lists:member(Inode ++ "]", Inodes)].

write(Config, Name, Text) ->
    File = filename:join(proplists:get_value(dir, Config), Name),
    ok = file:write_file(File, Text),
    File.
