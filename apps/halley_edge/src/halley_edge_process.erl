%% The edge as a process of the operating system: its program, its command line, whether one is
%% alive.
%%
%% The edge leads a session of its own and reads nothing from its port, so it outlives the port and
%% the brain. Its output comes as {Port, {data, {eol | noeol, Line}}}, its end as {Port,
%% {exit_status, Status}}, to the process that called start/2.
-module(halley_edge_process).

-export([program/0, build/1, start/2, identify/1, names/2, tls_files/1, sandbox/1, user/1,
          connections_max/1, is_alive/1, terminate/1, kill/1, printable/1]).
-export_type([identity/0, config/0]).

-include_lib("kernel/include/logger.hrl").

-type config() :: #{public := string(), api := string(), workers := pos_integer(),
                    socket_dir := file:filename_all(), sandbox := on | off,
                    tls_files := halley_config_tls:files(),
                    connections_max := pos_integer() | undefined,
                    %% Whom root's edge becomes.
                    user => string() | undefined,
                    %% An edge serves the same addresses, and will stop.
                    beside => boolean()}.
%% Process id and start time: a number that was used again is another process.
-opaque identity() :: {Pid :: non_neg_integer(), StartTicks :: binary()}.

%% What the edge's environment keeps of ours: the rest may be secrets, and none of it is of use. The
%% last ones are libfaketime's, by which test/faults steps the clock.
-define(VARIABLES, ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "RUST_BACKTRACE", "LD_LIBRARY_PATH",
                    "LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_NO_CACHE",
                    "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"]).
%% Single words, so that they can be found in a command line.
-define(NO_SANDBOX, "--sandbox=off").
-define(USER, "--user=").
-define(CONNECTIONS_MAX, "--connections-max").
-define(LINE_BYTES_MAX, 1024).
-define(VERSION_MS_MAX, 5000).
%% At a process, while there is no descriptor to look with.
-define(LOOKS, 250).
-define(LOOK_MS, 20).

%% The program to run: `halley_edge' `program' of the environment, or the release's, or the one that
%% cargo built last.
-spec program() -> {ok, file:filename_all()} | {error, Line :: unicode:chardata()}.
program() ->
    Candidates = case application:get_env(halley_edge, program) of
        {ok, Program} -> [Program];
        undefined -> [filename:join([code:root_dir(), "bin", "halley-edge"]),
                      filename:absname("edge/target/release/halley-edge")]
    end,
    case [File || File <- Candidates, filelib:is_regular(File)] of
        [File | _] ->
            {ok, File};
        [] ->
            {error, io_lib:format("the edge's program is missing (looked for ~ts); run make build",
                                  [lists:join(", ", Candidates)])}
    end.

%% The build that a program would name in HELLO_EDGE: the last word that it prints for --version.
%% Of one that can't be run, start/2 says why.
-spec build(file:filename_all()) -> {ok, binary()} | unknown.
build(Program) ->
    Options = [{args, ["--version"]}, {env, environment()}, binary, in, exit_status,
               {line, ?LINE_BYTES_MAX}],
    try open_port({spawn_executable, Program}, Options) of
        Port -> version(Port, <<>>, erlang:monotonic_time(millisecond) + ?VERSION_MS_MAX)
    catch
        error:_ -> unknown
    end.

version(Port, Line, Deadline) ->
    receive
        {Port, {data, {_, Text}}} when Line =:= <<>> -> version(Port, Text, Deadline);
        {Port, {data, _}} -> version(Port, Line, Deadline);
        {Port, {exit_status, 0}} when Line =/= <<>> ->
            {ok, lists:last(binary:split(Line, <<" ">>, [global, trim_all]))};
        {Port, {exit_status, _}} -> unknown
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        port_close(Port),
        unknown
    end.

-spec start(file:filename_all(), config()) -> {ok, port()} | {error, Line :: unicode:chardata()}.
start(Program, Config) ->
    Options = [{args, arguments(Config)}, {env, environment()}, binary, exit_status,
               stderr_to_stdout, {line, ?LINE_BYTES_MAX}],
    try {ok, open_port({spawn_executable, Program}, Options)}
    catch
        error:Reason ->
            {error, io_lib:format("the edge's program ~ts cannot be run: ~0tp", [Program, Reason])}
    end.

environment() ->
    [{Name, false} || {Name, _} <- os:env(), not lists:member(Name, ?VARIABLES)].

arguments(#{public := Public, api := Api, workers := Workers, socket_dir := Dir,
            sandbox := Sandbox, tls_files := Files, connections_max := Max} = Config) ->
    %% For an edge that gets a SIGTERM of its own.
    DrainMs = application:get_env(halley, drain_ms, 10000),
    ["--public", Public, "--api", Api, "--workers", integer_to_list(Workers), "--socket-dir", Dir,
     "--drain-ms", integer_to_list(DrainMs)
     | case Max of undefined -> []; _ -> [?CONNECTIONS_MAX, integer_to_list(Max)] end]
    ++ [?NO_SANDBOX || Sandbox =:= off]
    ++ case Config of #{user := User} when User =/= undefined -> [?USER ++ User]; _ -> [] end
    ++ ["--beside" || maps:get(beside, Config, false)]
    ++ [Word || {Option, File} <- Files, Word <- [Option, File]].

%% What is needed to know later whether this process is still there.
-spec identify(Pid :: non_neg_integer()) -> {ok, identity()} | gone.
identify(Pid) ->
    identify(Pid, ?LOOKS).

identify(Pid, Looks) ->
    case stat(Pid) of
        {ok, Ticks} -> {ok, {Pid, Ticks}};
        unknown when Looks > 1 -> timer:sleep(?LOOK_MS), identify(Pid, Looks - 1);
        _ -> gone
    end.

%% Is this one of the words of a process's command line?
-spec names(Pid :: non_neg_integer(), file:filename_all()) -> boolean().
names(Pid, Word) ->
    lists:member(unicode:characters_to_binary(Word), words(Pid)).

words(Pid) -> words(Pid, ?LOOKS).

words(Pid, Looks) ->
    case read(Pid, "cmdline") of
        {ok, Line} -> binary:split(Line, <<0>>, [global]);
        unknown when Looks > 1 -> timer:sleep(?LOOK_MS), words(Pid, Looks - 1);
        _ -> []
    end.

%% The files that an edge was given for TLS, by its command line.
-spec tls_files(Pid :: non_neg_integer()) -> [{Option :: binary(), File :: binary()}].
tls_files(Pid) ->
    pairs(words(Pid)).

pairs([<<"--", Name/binary>> = Option, File | Words]) ->
    case re:run(Name, "-(certificate|key|client-ca)$", [{capture, none}]) of
        match -> [{Option, File} | pairs(Words)];
        nomatch -> pairs([File | Words])
    end;
pairs([_ | Words]) ->
    pairs(Words);
pairs([]) ->
    [].

%% The `edge.sandbox' that an edge was started with.
-spec sandbox(Pid :: non_neg_integer()) -> on | off.
sandbox(Pid) ->
    case names(Pid, ?NO_SANDBOX) of
        true -> off;
        false -> on
    end.

%% The `edge.user' that an edge was started with.
-spec user(Pid :: non_neg_integer()) -> binary() | undefined.
user(Pid) ->
    case [User || <<?USER, User/binary>> <- words(Pid)] of
        [User | _] -> User;
        [] -> undefined
    end.

%% The `edge.connections_max' that an edge was started with.
-spec connections_max(Pid :: non_neg_integer()) -> pos_integer() | undefined.
connections_max(Pid) ->
    case lists:dropwhile(fun(Word) -> Word =/= <<?CONNECTIONS_MAX>> end, words(Pid)) of
        [_, Max | _] -> binary_to_integer(Max);
        _ -> undefined
    end.

%% One that can't be looked at counts as alive: an edge that is taken for dead is replaced.
-spec is_alive(identity()) -> boolean().
is_alive({Pid, Ticks}) ->
    case stat(Pid) of
        {ok, Ticks} -> true;
        unknown -> true;
        _ -> false
    end.

%% For one that can't be talked to: SIGTERM.
-spec terminate(identity()) -> ok.
terminate(Identity) ->
    signal("TERM", Identity).

%% For one that was asked to stop and doesn't: SIGKILL.
-spec kill(identity()) -> ok.
kill(Identity) ->
    signal("KILL", Identity).

signal(Name, Identity) -> signal(Name, Identity, ?LOOKS).

%% The command takes descriptors.
signal(Name, {Pid, _} = Identity, Looks) ->
    try is_alive(Identity) andalso os:cmd(["kill -", Name, $\s, integer_to_list(Pid)]) of
        _ -> ok
    catch
        error:_ when Looks > 1 -> timer:sleep(?LOOK_MS), signal(Name, Identity, Looks - 1);
        error:Reason -> ?LOG_ERROR("cannot signal process ~b: ~0tp", [Pid, Reason])
    end.

%% proc(5): the name is in parentheses and may hold anything, so fields are counted behind the last
%% one: state is the first, start time the twentieth. A zombie only waits to be reaped.
stat(Pid) ->
    case read(Pid, "stat") of
        {ok, Text} ->
            After = lists:last(binary:split(Text, <<")">>, [global])),
            case binary:split(After, <<" ">>, [global, trim_all]) of
                [State | _] when State =:= <<"Z">>; State =:= <<"X">> -> gone;
                Fields when length(Fields) >= 20 -> {ok, binary:copy(lists:nth(20, Fields))};
                _ -> gone
            end;
        Other ->
            Other
    end.

%% `unknown': there may be no descriptor to look with, which says nothing about the process.
read(Pid, What) ->
    case file:read_file(["/proc/", integer_to_list(Pid), $/, What]) of
        {ok, _} = Ok -> Ok;
        {error, Reason} when Reason =:= emfile; Reason =:= enfile; Reason =:= enomem -> unknown;
        {error, _} -> gone
    end.

%% A line of the edge's, fit for the log.
-spec printable(binary()) -> binary().
printable(Line) ->
    << <<(case C of _ when C >= 16#20, C =/= 16#7f -> C; _ -> $? end)>> || <<C>> <= Line >>.
