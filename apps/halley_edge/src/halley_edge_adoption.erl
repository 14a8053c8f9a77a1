%% Who is in the socket directory already? An edge outlives its brain, so a brain that starts may
%% find one.
%%
%% The same build, listen addresses and number of workers: it is adopted, connections and all.
%% Another one is asked to stop and waited for. Whatever can't be talked to is named, not touched:
%% it may belong to somebody else.
-module(halley_edge_adoption).

-export([look/2, shutdown/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-define(STOP_MS_MAX, 10000).
-define(POLL_MS, 20).
-define(DIALS, 50).

%% `Build' is that of the program that would be started, if it is known.
-spec look(halley_edge_process:config(), Build :: {ok, binary()} | unknown) ->
    {adopt, halley_edge_process:identity()} | none | {error, Line :: unicode:chardata()}.
look(#{socket_dir := Dir} = Config, Build) ->
    Path = halley_edge_dial:path(Dir, 0),
    case dial(Path, ?DIALS) of
        {ok, #{socket := Socket, hello := #{pid := Pid} = Hello}} ->
            case {halley_edge_process:identify(Pid), differences(Config, Build, Hello)} of
                {{ok, Identity}, []} ->
                    ok = gen_tcp:close(Socket),
                    ?LOG_NOTICE("adopting the edge that runs here already, pid ~b", [Pid]),
                    {adopt, Identity};
                {Known, Differences} ->
                    ?LOG_NOTICE("stopping the edge that runs here already, pid ~b: ~ts",
                                [Pid, lists:join(", ", Differences)]),
                    replace(Socket, Path, Known)
            end;
        {error, {connect, _}} ->
            none;
        {error, Reason} ->
            {error, io_lib:format("edge.socket_dir: what listens at ~ts cannot be talked to (~ts); "
                                  "stop it, or set another directory",
                                  [Path, halley_edge_dial:reason_text(Reason)])}
    end.

%% A worker that says it was dialled again (1.2), or closes before it could say so, is there, and
%% whoever dialled may be gone.
dial(Path, Dials) ->
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
    dial(Path, Dials - 1).

differences(#{public := Public, api := Api, workers := Workers}, Build, Hello) ->
    #{public_listen := ItsPublic, api_listen := ItsApi, workers := ItsWorkers,
      build := ItsBuild} = Hello,
    [What || {What, false} <- [{"another build", Build =:= unknown orelse Build =:= {ok, ItsBuild}},
                               {"another public.listen", same_address(Public, ItsPublic)},
                               {"another api.listen", same_address(Api, ItsApi)},
                               {"another number of workers", Workers =:= ItsWorkers}]].

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

replace(Socket, Path, Known) ->
    _ = gen_tcp:send(Socket, halley_edge_codec:encode({shutdown, 0})),
    Deadline = erlang:monotonic_time(millisecond) + ?STOP_MS_MAX,
    Result = await_end(Socket, Path, Known, Deadline),
    ok = gen_tcp:close(Socket),
    Result.

await_end(Socket, Path, Known, Deadline) ->
    case {has_ended(Socket, Known), erlang:monotonic_time(millisecond) < Deadline} of
        {true, _} ->
            none;
        {false, true} ->
            timer:sleep(?POLL_MS),
            await_end(Socket, Path, Known, Deadline);
        {false, false} ->
            {error, io_lib:format("edge.socket_dir: the edge at ~ts was asked to stop "
                                  "and did not within ~b s", [Path, ?STOP_MS_MAX div 1000])}
    end.

has_ended(_, {ok, Identity}) ->
    not halley_edge_process:is_alive(Identity);
has_ended(Socket, gone) ->
    gen_tcp:recv(Socket, 0, 0) =:= {error, closed}.

%% Asks the edge to stop over a meeting of its own; for a stop without a link.
-spec shutdown(file:filename_all(), DrainMs :: non_neg_integer()) ->
    ok | {error, halley_edge_dial:reason()}.
shutdown(SocketDir, DrainMs) ->
    case halley_edge_dial:dial(halley_edge_dial:path(SocketDir, 0)) of
        {ok, #{socket := Socket}} ->
            _ = gen_tcp:send(Socket, halley_edge_codec:encode({shutdown, DrainMs})),
            ok;
        {error, _} = Error ->
            Error
    end.
