%% Which edge is in the socket directory already? An edge outlives its brain, so a brain that starts
%% may find one.
%%
%% An edge with the same build, listen addresses, files for TLS, sandbox, trunk, user and number of
%% workers is adopted with its connections. Any other is replaced (halley_edge_handover). An edge of
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
%% Workers, of which each may take handshake_ms_max: at a start, and for a stop, which has its time.
-define(ASKED_MAX, 4).
-define(ASKED_TO_STOP_MAX, 2).

%% `Build' is that of the program that would be started, if it is known.
-spec look(halley_edge_process:config(), Build :: {ok, binary()} | unknown) ->
    {adopt, halley_edge_process:identity()} |
    {replace, Workers :: non_neg_integer(), {ok, halley_edge_process:identity()} | gone} |
    none | {error, Line :: unicode:chardata()}.
look(#{socket_dir := Dir} = Config, Build) ->
    {Path, Dialled} = dial(Dir, 0, ?ASKED_MAX),
    case Dialled of
        {ok, #{socket := Socket, hello := #{pid := Pid, workers := Workers} = Hello}} ->
            ok = gen_tcp:close(Socket),
            case {halley_edge_process:identify(Pid), differences(Config, Build, Hello)} of
                {{ok, Identity}, []} ->
                    ?LOG_NOTICE("adopting the edge that runs here already, pid ~b", [Pid]),
                    {adopt, Identity};
                {Known, Differences} ->
                    ?LOG_NOTICE("replacing the edge that runs here already, pid ~b: ~ts",
                                [Pid, lists:join(", ", Differences)]),
                    {replace, Workers, Known}
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

%% Any worker says whose edge it is; one may stand still. Where nobody says hello in time the next
%% is asked, and the first again behind the last, so that somebody else's socket is waited for as
%% long as several workers.
dial(Dir, Worker, Asks) ->
    Path = halley_edge_dial:path(Dir, Worker),
    case dial_one(Path, ?DIALS) of
        {error, handshake_timeout} when Asks > 1 -> dial(Dir, Worker + 1, Asks - 1);
        {error, {connect, _}} when Worker > 0 -> dial(Dir, 0, Asks);
        Dialled -> {Path, Dialled}
    end.

%% A worker that says it was dialled again (1.2), or closes before it could say so, is alive, and
%% the other brain that dialled may be gone.
dial_one(Path, Dials) ->
    case halley_edge_dial:dial(Path) of
        {error, {goodbye, ?GOODBYE_REPLACED, _}} when Dials > 1 ->
            dial_again(Path, Dials);
        {error, {Step, Reason}} when Dials > 1, Step =:= send orelse Step =:= recv,
                                     Reason =:= closed orelse Reason =:= epipe
                                         orelse Reason =:= econnreset ->
            dial_again(Path, Dials);
        Dialled ->
            Dialled
    end.

dial_again(Path, Dials) ->
    timer:sleep(?POLL_MS),
    dial_one(Path, Dials - 1).

differences(#{public := Public, api := Api, workers := Workers, tls_files := Files,
              sandbox := Sandbox} = Config, Build, Hello) ->
    #{pid := Pid, public_listen := ItsPublic, api_listen := ItsApi, workers := ItsWorkers,
      build := ItsBuild} = Hello,
    [What || {What, false} <- [{"another build", Build =:= unknown orelse Build =:= {ok, ItsBuild}},
                               {"another public.listen", same_address(Public, ItsPublic)},
                               {"another api.listen", same_address(Api, ItsApi)},
                               {"other files for TLS", same_files(Files, Pid)},
                               {"another edge.sandbox",
                                Sandbox =:= halley_edge_process:sandbox(Pid)},
                               {"another edge.trunk",
                                maps:get(trunk, Config, off) =:= halley_edge_process:trunk(Pid)},
                               {"another edge.user",
                                user(Config) =:= halley_edge_process:user(Pid)},
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
    case dial(SocketDir, 0, ?ASKED_TO_STOP_MAX) of
        {_, {ok, #{socket := Socket, hello := #{pid := Pid}}}} ->
            Known = halley_edge_process:identify(Pid),
            _ = gen_tcp:send(Socket, halley_edge_codec:encode({shutdown, DrainMs})),
            {ok, Known};
        {_, {error, _} = Error} ->
            Error
    end.
