%% The part of erlexec, which isn't among Debian's packages, that epgsql's own suites use: commands
%% that are waited for, and a server that is started and stopped. For `tools/epgsql-suites/run'
%% alone.
-module(exec).

-export([run/2, run_link/2, kill/2]).

%% The suites ask for a locale that a bare Debian doesn't have.
locale(Command) ->
    string:replace(Command, "--locale en_US.UTF-8", "--locale C.UTF-8 -A trust -U $USER").

run(Command, _Options) ->
    Marked = iolist_to_binary([locale(Command), " 2>&1; echo \"status $?\""]),
    Output = os:cmd(binary_to_list(Marked), #{max_size => 1 bsl 20}),
    case string:find(Output, "status 0\n", trailing) of
        nomatch -> {error, [{output, Output}]};
        _ -> {ok, []}
    end.

%% `exec' so that the number is the server's own.
run_link(Command, Options) ->
    Env = proplists:get_value(env, Options, []),
    Port = open_port({spawn_executable, "/bin/sh"},
                     [{args, ["-c", "exec " ++ Command ++ " >postgres.log 2>&1"]}, {env, Env},
                      exit_status]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    {ok, Port, Pid}.

%% Whoever asks for signal 0 wants it stopped: SIGINT is PostgreSQL's fast shutdown.
kill(Pid, _) -> os:cmd("kill -INT " ++ integer_to_list(Pid)), ok.
