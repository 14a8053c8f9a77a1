%% Dials an edge and shakes hands (protocol/link.md 1.1, 3, 13): synchronous, in the caller's
%% process, bounded in time.
%%
%% Used by a link, which then lives on the socket, and by the runner, which wants to know which edge
%% answers. Bytes that come with HELLO_EDGE in the same read are handed on. An edge that breaks a
%% clause gets its GOODBYE here. An edge of another version sends nothing else about itself (3.2),
%% so its process is read from the kernel.
%%
%% Edges of an earlier build may have a link for each worker, and no trunk (1.4). Such an edge is
%% dialled at its first worker, to learn who it is: it is replaced.
-module(halley_edge_dial).

-export([dial/1, dial_worker/1, path/1, path_of_worker/1, check_path/1, second_name/1, restore/1]).
-export([reason_text/1]).
-export_type([handshake/0, reason/0, peer/0]).

-include("halley_edge.hrl").

%% `token_keys': the version of the keys that the edge was sent.
-type handshake() :: #{socket := gen_tcp:socket(), hello := map(), window := pos_integer(),
                     token_keys := none | halley_token_keys:version(),
                     frames := [{non_neg_integer(), halley_edge_codec:frame()}],
                     rest := binary()}.
%% The process that listens there.
-type peer() :: {pid, pos_integer()} | unknown.
-type reason() :: {broken, halley_edge_codec:problem()}      % the edge broke a clause, here
                | {goodbye, 1..8, binary()}                  % the edge says that we did
                | {version, peer(), What :: binary()}        % clause 3.2, whoever saw it
                | {connect | send | recv, inet:posix() | closed | timeout | badarg}
                | handshake_timeout.

%% sun_path of unix(7), without its final zero.
-define(PATH_BYTES_MAX, 107).
-define(CONNECT_MS_MAX, 2000).
%% Above a frame, so that a write of one doesn't suspend the writer; below two, so that heartbeats
%% don't wait behind more.
-define(HIGH_WATERMARK, 393216).
-define(LOW_WATERMARK, 131072).
-define(RECEIVE_BYTES, 65536).
-define(SOL_SOCKET, 1).
-define(SO_PEERCRED, 17).

%% Where an edge listens.
-spec path(SocketDir :: file:filename_all()) -> binary().
path(SocketDir) ->
    in(SocketDir, <<"trunk.sock">>).

%% Where the first worker of an edge with a link for each worker listens.
-spec path_of_worker(SocketDir :: file:filename_all()) -> binary().
path_of_worker(SocketDir) ->
    in(SocketDir, <<"worker-0.sock">>).

in(SocketDir, Name) ->
    Dir = unicode:characters_to_binary(SocketDir),
    <<Dir/binary, "/", Name/binary>>.

%% Whether the kernel can take this path.
-spec check_path(binary()) ->
    ok | {error, {path_too_long, Bytes :: pos_integer(), Max :: pos_integer()}}.
check_path(Path) when byte_size(Path) =< ?PATH_BYTES_MAX -> ok;
check_path(Path) -> {error, {path_too_long, byte_size(Path), ?PATH_BYTES_MAX}}.

%% Connects, sends HELLO_BRAIN with the keys of tokens behind it (12.1), and waits for HELLO_EDGE.
%% The socket is passive and belongs to the caller.
-spec dial(Path :: binary()) -> {ok, handshake()} | {error, reason()}.
dial(Path) ->
    dial(Path, trunk).

%% The same to a worker that has a link of its own.
-spec dial_worker(Path :: binary()) -> {ok, handshake()} | {error, reason()}.
dial_worker(Path) ->
    dial(Path, worker).

dial(Path, Whose) ->
    %% Without linger the emulator's halt would wait for an edge that reads nothing.
    Options = [binary, {active, false}, {packet, raw}, {buffer, ?RECEIVE_BYTES},
               {linger, {true, 1}},
               {high_watermark, ?HIGH_WATERMARK}, {low_watermark, ?LOW_WATERMARK}],
    case connect(Path, Options) of
        {ok, Socket} -> greet(Socket, Whose);
        {error, Reason} -> {error, {connect, Reason}}
    end.

connect(Path, Options) ->
    case gen_tcp:connect({local, Path}, 0, Options, ?CONNECT_MS_MAX) of
        {error, enoent} ->
            case restore(Path) of
                ok -> gen_tcp:connect({local, Path}, 0, Options, ?CONNECT_MS_MAX);
                {error, _} -> {error, enoent}
            end;
        Connected ->
            Connected
    end.

%% What the edge's socket is called besides, while an edge stops that may remove its name
%% (halley_edge_handover).
-spec second_name(Path :: binary()) -> binary().
second_name(Path) -> <<Path/binary, ".kept">>.

%% Gives the socket its name again, if that was removed and there is a second one. Between two names
%% of one file a rename changes nothing.
-spec restore(Path :: binary()) -> ok | {error, file:posix() | badarg}.
restore(Path) -> file:rename(second_name(Path), Path).

greet(Socket, Whose) ->
    Window = max(?WINDOW_BYTES_MIN, halley_limits:get(link_window_bytes)),
    %% 3.2: an edge of before this clause knows the lowest version only, and not this setting.
    Highest = {<<"link_version_max">>, integer_to_binary(?LINK_VERSION)},
    Hello = {hello_brain, #{version => ?LINK_VERSION_MIN, window => Window,
                            node => atom_to_binary(node()),
                            settings => [Highest | halley_limits:for_edge()]}},
    Deadline = now_ms() + halley_limits:get(handshake_ms_max),
    {Version, Keys} = token_keys(halley_token_keys:current()),
    case gen_tcp:send(Socket, [halley_edge_codec:encode(Hello) | Keys]) of
        ok ->
            Said = of_whom(Whose, await_hello(Socket, <<>>, Deadline)),
            with_keys(Version, answer(Socket, Window, Said));
        {error, Reason} ->
            ok = gen_tcp:close(Socket),
            {error, {send, Reason}}
    end.

token_keys(none) -> {none, []};
token_keys({Version, Set}) -> {Version, halley_edge_codec:encode({keys, Set})}.

with_keys(Version, {ok, Handshake}) ->
    {ok, Handshake#{token_keys => Version}};
with_keys(_, {error, _} = Error) ->
    Error.

%% 13.2
of_whom(trunk, {{hello_edge, #{worker := Worker}}, _, _}) when Worker =/= ?TRUNK_WORKER ->
    {broken, {<<"13.2">>, <<"the hello of one worker, on the link of all">>}};
of_whom(_, Awaited) ->
    Awaited.

await_hello(Socket, Buffer, Deadline) ->
    case gen_tcp:recv(Socket, 0, max(0, Deadline - now_ms())) of
        {ok, Data} ->
            case halley_edge_codec:deframe(<<Buffer/binary, Data/binary>>) of
                {ok, [], Rest} -> await_hello(Socket, Rest, Deadline);
                {ok, [{_, First} | Frames], Rest} -> {First, Frames, Rest};
                {error, Problem} -> {broken, Problem}
            end;
        {error, timeout} ->
            handshake_timeout;
        {error, Reason} ->
            {recv, Reason}
    end.

answer(Socket, Window, {{hello_edge, Hello}, Frames, Rest}) ->
    {ok, #{socket => Socket, hello => Hello, window => Window, frames => Frames, rest => Rest}};
answer(Socket, _, {{goodbye, ?GOODBYE_VERSION, What}, _, _}) ->
    Peer = peer(Socket),
    ok = gen_tcp:close(Socket),
    {error, {version, Peer, What}};
answer(Socket, _, {{goodbye, _, _} = Goodbye, _, _}) ->
    ok = gen_tcp:close(Socket),
    {error, Goodbye};
answer(Socket, Window, {_, _, _}) ->
    answer(Socket, Window, {broken, {<<"3.1">>, <<"the first frame is not HELLO_EDGE">>}});
answer(Socket, _, {broken, {<<"3.2">>, What} = Problem}) ->
    Peer = peer(Socket),
    close(Socket, halley_edge_goodbye:answer(Problem)),
    {error, {version, Peer, What}};
answer(Socket, _, {broken, Problem} = Reason) ->
    close(Socket, halley_edge_goodbye:answer(Problem)),
    {error, Reason};
answer(Socket, _, handshake_timeout) ->
    close(Socket, halley_edge_goodbye:answer({<<"3.5">>, <<"no hello in time">>})),
    {error, handshake_timeout};
answer(Socket, _, Reason) ->
    ok = gen_tcp:close(Socket),
    {error, Reason}.

%% unix(7), SO_PEERCRED: a pid_t and two more. For a stream it is the listening process.
peer(Socket) ->
    case inet:getopts(Socket, [{raw, ?SOL_SOCKET, ?SO_PEERCRED, 12}]) of
        {ok, [{raw, _, _, <<Pid:32/native, _:8/binary>>}]} when Pid > 0 -> {pid, Pid};
        _ -> unknown
    end.

%% Says goodbye and closes. It waits a second at most for an edge that doesn't read.
-spec close(gen_tcp:socket(), halley_edge_codec:frame()) -> ok.
close(Socket, Goodbye) ->
    _ = gen_tcp:send(Socket, halley_edge_codec:encode(Goodbye)),
    _ = inet:setopts(Socket, [{linger, {true, 1}}]),
    gen_tcp:close(Socket).

-spec reason_text(reason()) -> unicode:chardata().
reason_text({broken, {Clause, What}}) -> ["the edge broke clause ", Clause, ": ", What];
reason_text({goodbye, Code, Text}) ->
    io_lib:format("the edge said goodbye ~b: ~ts", [Code, printable(Text)]);
reason_text({version, _, What}) ->
    ["the edge and this brain are of different versions of Halley, restart the brain to have the "
     "edge replaced: ", printable(What)];
reason_text(handshake_timeout) -> "the edge's hello did not come in time";
reason_text({Step, Reason}) -> io_lib:format("~s: ~s", [Step, inet:format_error(Reason)]).

%% A peer's text goes into the log without line breaks or control characters.
printable(Text) ->
    << <<(case C of _ when C >= 16#20, C < 16#7f -> C; _ -> $? end)>> || <<C>> <= Text >>.

now_ms() ->
    erlang:monotonic_time(millisecond).
