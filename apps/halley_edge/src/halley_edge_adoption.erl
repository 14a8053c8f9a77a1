%% Which edge is in the socket directory already? An edge outlives its brain, so a brain that starts
%% may find one.
%%
%% An edge with the same build, listen addresses, files for TLS, sandbox, user and number of workers
%% is adopted with its connections. Any other is replaced (halley_edge_handover), as is one of an
%% earlier build that has a link for each worker: this brain can't serve it meanwhile. An edge of
%% another version of the link understands no SHUTDOWN: if its command line names the same socket
%% directory, it is drained by SIGTERM and waited for, so an upgrade needs no operator. Any other
%% process that can't be talked to is named and left alone: it may be another user's.
-module(halley_edge_adoption).

-export([look/2, shutdown/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-define(STOP_MS_MAX, 10000).
-define(POLL_MS, 20).
-define(DIALS, 50).
%% Dials, of which each may take handshake_ms_max: at a start, and for a stop, which has its time.
-define(ASKED_MAX, 4).
-define(ASKED_TO_STOP_MAX, 2).

%% `Build' is that of the program that would be started, if it is known. `Workers' are those of the
%% edge that is to be replaced; 0 if it can't be linked to.
-spec look(halley_edge_process:config(), Build :: {ok, binary()} | unknown) ->
    {adopt, halley_edge_process:identity()} |
    {replace, Workers :: non_neg_integer(), {ok, halley_edge_process:identity()} | gone} |
    none | {error, Line :: unicode:chardata()}.
look(#{socket_dir := Dir} = Config, Build) ->
    {Path, Dialled} = dial(Dir, ?ASKED_MAX),
    case Dialled of
        {ok, #{socket := Socket, hello := #{pid := Pid} = Hello}} ->
            ok = gen_tcp:close(Socket),
            case {halley_edge_process:identify(Pid), differences(Config, Build, Hello)} of
                {{ok, Identity}, []} ->
                    ?LOG_NOTICE("adopting the edge that runs here already, pid ~b", [Pid]),
                    {adopt, Identity};
                {Known, Differences} ->
                    ?LOG_NOTICE("replacing the edge that runs here already, pid ~b: ~ts",
                                [Pid, lists:join(", ", Differences)]),
                    {replace, linkable(Hello), Known}
            end;
        {error, {connect, _}} ->
            none;
        {error, {version, Peer, What}} ->
            retire(Path, Dir, Peer, What);
        {error, Reason} ->
            {error, io_lib:format("edge.socket_dir: what listens at ~ts cannot be talked to (~ts); "
                                  "stop it, or set another directory",
                                  [Path, halley_edge_dial:reason_text(Reason)])}
    end.

%% The thread that answers may stand still for a while, so the edge is dialled again.
dial(Dir, Asks) ->
    case dial_edge(Dir) of
        {_, {error, handshake_timeout}} when Asks > 1 -> dial(Dir, Asks - 1);
        Dialled -> Dialled
    end.

%% Where nothing listens there may be an edge that has a link for each worker.
dial_edge(Dir) ->
    Path = halley_edge_dial:path(Dir),
    case dial_one(fun halley_edge_dial:dial/1, Path, ?DIALS) of
        {error, {connect, _}} ->
            OfWorker = halley_edge_dial:path_of_worker(Dir),
            {OfWorker, dial_one(fun halley_edge_dial:dial_worker/1, OfWorker, ?DIALS)};
        Dialled ->
            {Path, Dialled}
    end.

%% An edge that says it was dialled again (1.2), or closes before it could say so, is alive, and the
%% other brain that dialled may be gone.
dial_one(Dial, Path, Dials) ->
    case Dial(Path) of
        {error, {goodbye, ?GOODBYE_REPLACED, _}} when Dials > 1 ->
            dial_again(Dial, Path, Dials);
        {error, {Step, Reason}} when Dials > 1, Step =:= send orelse Step =:= recv,
                                     Reason =:= closed orelse Reason =:= epipe
                                         orelse Reason =:= econnreset ->
            dial_again(Dial, Path, Dials);
        Dialled ->
            Dialled
    end.

dial_again(Dial, Path, Dials) ->
    timer:sleep(?POLL_MS),
    dial_one(Dial, Path, Dials - 1).

linkable(#{worker := ?TRUNK_WORKER, workers := Workers}) -> Workers;
linkable(_) -> 0.

differences(#{public := Public, api := Api, workers := Workers, tls_files := Files,
              sandbox := Sandbox, connections_max := Max} = Config, Build, Hello) ->
    #{pid := Pid, public_listen := ItsPublic, api_listen := ItsApi, workers := ItsWorkers,
      build := ItsBuild} = Hello,
    [What || {What, false} <- [{"another build", Build =:= unknown orelse Build =:= {ok, ItsBuild}},
                               {"another public.listen", same_address(Public, ItsPublic)},
                               {"another api.listen", same_address(Api, ItsApi)},
                               {"other files for TLS", same_files(Files, Pid)},
                               {"another edge.sandbox",
                                Sandbox =:= halley_edge_process:sandbox(Pid)},
                               {"a link for each worker", linkable(Hello) > 0},
                               {"another edge.user",
                                user(Config) =:= halley_edge_process:user(Pid)},
                               {"another edge.connections_max",
                                Max =:= halley_edge_process:connections_max(Pid)},
                               {"another number of workers", Workers =:= ItsWorkers}]].

user(#{user := User}) when User =/= undefined -> unicode:characters_to_binary(User);
user(_) -> undefined.

same_files(Ours, Pid) ->
    Binary = fun unicode:characters_to_binary/1,
    lists:sort([{Binary(Option), Binary(File)} || {Option, File} <- Ours])
        =:= lists:sort(halley_edge_process:tls_files(Pid)).

%% One address has several spellings.
same_address(Ours, Its) ->
    normal(unicode:characters_to_binary(Ours)) =:= normal(Its).

normal(Text) ->
    Pattern = "^\\[?([0-9a-fA-F.:]+?)\\]?:([0-9]{1,5})$",
    case re:run(Text, Pattern, [{capture, all_but_first, list}]) of
        {match, [Host, Port]} ->
            case inet:parse_strict_address(Host) of
                {ok, Address} -> {Address, list_to_integer(Port)};
                {error, _} -> Text
            end;
        nomatch ->
            Text
    end.

retire(Path, Dir, Peer, What) ->
    case own_edge(Peer, Dir) of
        {ok, Pid, Identity} ->
            DrainMs = application:get_env(halley, drain_ms, 10000),
            ?LOG_NOTICE("the edge that runs here already, pid ~b, is of another version of Halley "
                        "(~ts): it is stopped, which may take ~b s, and a new one is started; "
                        "you need not do anything", [Pid, printable(What), DrainMs div 1000]),
            ok = halley_edge_process:terminate(Identity),
            HasEnded = fun() -> not halley_edge_process:is_alive(Identity) end,
            await_end(Path, HasEnded, DrainMs + ?STOP_MS_MAX);
        unknown ->
            {error, io_lib:format("edge.socket_dir: what listens at ~ts is an edge of another "
                                  "version of Halley (~ts) and was not started for this directory; "
                                  "stop it, or set another directory", [Path, printable(What)])}
    end.

own_edge({pid, Pid}, Dir) ->
    case {halley_edge_process:identify(Pid), halley_edge_process:names(Pid, Dir)} of
        {{ok, Identity}, true} -> {ok, Pid, Identity};
        _ -> unknown
    end;
own_edge(unknown, _) ->
    unknown.

printable(What) ->
    halley_edge_process:printable(What).

await_end(Path, HasEnded, MsMax) ->
    await_end(Path, HasEnded, MsMax, erlang:monotonic_time(millisecond) + MsMax).

await_end(Path, HasEnded, MsMax, Deadline) ->
    case {HasEnded(), erlang:monotonic_time(millisecond) < Deadline} of
        {true, _} ->
            none;
        {false, true} ->
            timer:sleep(?POLL_MS),
            await_end(Path, HasEnded, MsMax, Deadline);
        {false, false} ->
            {error, io_lib:format("edge.socket_dir: the edge at ~ts was asked to stop "
                                  "and did not within ~b s", [Path, MsMax div 1000])}
    end.

%% Asks the edge to stop after a handshake for this alone: for a stop without a link. Gives who it
%% is.
-spec shutdown(file:filename_all(), DrainMs :: non_neg_integer()) ->
    {ok, {ok, halley_edge_process:identity()} | gone} | {error, halley_edge_dial:reason()}.
shutdown(SocketDir, DrainMs) ->
    case dial(SocketDir, ?ASKED_TO_STOP_MAX) of
        {_, {ok, #{socket := Socket, hello := #{pid := Pid}}}} ->
            Known = halley_edge_process:identify(Pid),
            _ = gen_tcp:send(Socket, halley_edge_codec:encode({shutdown, DrainMs})),
            {ok, Known};
        {_, {error, _} = Error} ->
            Error
    end.
