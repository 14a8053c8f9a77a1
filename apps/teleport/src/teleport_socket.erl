%% A connection, over TCP or TLS: frames with four bytes of length before the handshake is done and
%% for small messages, plain bytes for large ones.
%%
%% `write/2' waits while what wasn't written yet is above the watermark; over TCP its answer may
%% come later, as `{inet_reply, _, Status}'. Once the handshake is done, nothing written is kept
%% when a connection ends, however it does: a port that still had something for a peer that stands
%% still would stay, with its bytes, until that peer reads.
-module(teleport_socket).

-export([listen/1, port/1, accept/1, secure/2, connect/4, give/2, abort/1]).
-export([frames/2, plain/1, activate/2, write/2, recv/3, message/2]).
-export_type([socket/0]).

-type socket() :: {tcp, gen_tcp:socket()} | {tls, ssl:sslsocket()}.

-define(BACKLOG, 128).
-define(BUFFER_BYTES, 131072).
%% The kernel's buffers, each direction. Left to itself the kernel takes up to 32 MiB for a
%% connection, and copies megabytes in one call, for which a scheduler does nothing else; with
%% little, a large message takes many calls. Said once the handshake is done: what is said before
%% bounds the window for good.
-define(KERNEL_BYTES, 262144).
-define(KERNEL_BYTES_LARGE, 1048576).
%% Above it a writer waits.
-define(HIGH_WATERMARK, 262144).
-define(LOW_WATERMARK, 65536).
%% Of large messages: what the driver writes by itself is one call as well.
-define(LARGE_WATERMARKS, [{high_watermark, 131072}, {low_watermark, 32768}]).
-define(KEEPS_NOTHING, {linger, {true, 0}}).
%% Of a frame before its sender is known.
-define(GREETING_BYTES_MAX, 2048).

base() ->
    [binary, {active, false}, {packet, 4}, {packet_size, ?GREETING_BYTES_MAX}, {nodelay, true},
     {buffer, ?BUFFER_BYTES},
     {high_watermark, ?HIGH_WATERMARK}, {low_watermark, ?LOW_WATERMARK}].

-spec listen(teleport_options:options()) -> {ok, gen_tcp:socket()} | {error, inet:posix()}.
listen(#{ip := Ip, port := Port}) ->
    gen_tcp:listen(Port, [family(Ip), {ip, Ip}, {reuseaddr, true}, {backlog, ?BACKLOG} | base()]).

family(Ip) when tuple_size(Ip) =:= 8 -> inet6;
family(_) -> inet.

-spec port(gen_tcp:socket()) -> inet:port_number().
port(Listen) ->
    {ok, Port} = inet:port(Listen),
    Port.

-spec accept(gen_tcp:socket()) -> {ok, gen_tcp:socket()} | {error, term()}.
accept(Listen) -> gen_tcp:accept(Listen).

%% The accepting side's TLS, if that is wanted.
-spec secure(gen_tcp:socket(), teleport_options:options()) -> {ok, socket()} | {error, term()}.
secure(Tcp, #{tls := false}) ->
    {ok, {tcp, Tcp}};
secure(Tcp, #{tls := #{listen := Tls}, connect_ms_max := Ms}) ->
    case ssl:handshake(Tcp, Tls, Ms) of
        {ok, Socket} -> {ok, {tls, Socket}};
        {ok, Socket, _} -> {ok, {tls, Socket}};
        {error, _} = Error -> Error
    end.

-spec connect(inet:ip_address() | inet:hostname(), inet:port_number(),
              teleport_options:options(), timeout()) -> {ok, socket()} | {error, term()}.
connect(Host, Port, #{tls := false, ip := Ip}, Ms) ->
    case gen_tcp:connect(Host, Port, [family(Ip) | base()], Ms) of
        {ok, Socket} -> {ok, {tcp, Socket}};
        {error, _} = Error -> Error
    end;
connect(Host, Port, #{tls := #{connect := Tls}, ip := Ip}, Ms) ->
    case ssl:connect(Host, Port, [family(Ip) | base()] ++ Tls, Ms) of
        {ok, Socket} -> {ok, {tls, Socket}};
        {ok, Socket, _} -> {ok, {tls, Socket}};
        {error, _} = Error -> Error
    end.

%% To who gets its messages, and with whom it ends.
-spec give(socket(), pid()) -> ok | {error, term()}.
give({tcp, Socket}, Pid) -> gen_tcp:controlling_process(Socket, Pid);
give({tls, Socket}, Pid) -> ssl:controlling_process(Socket, Pid).

%% Closes without waiting for what wasn't sent.
-spec abort(socket()) -> ok.
abort({tcp, Socket}) ->
    _ = inet:setopts(Socket, [?KEEPS_NOTHING]),
    _ = (catch erlang:port_close(Socket)),
    ok;
abort({tls, Socket}) ->
    %% It would wait for what isn't sent yet.
    _ = spawn(fun() -> ssl:close(Socket) end),
    ok.

%% Frames up to so many bytes; a longer one ends the connection.
-spec frames(socket(), BytesMax :: pos_integer()) -> ok | {error, term()}.
frames(Socket, BytesMax) ->
    setopts(Socket, [?KEEPS_NOTHING, {packet, 4}, {packet_size, BytesMax}
                     | kernel(?KERNEL_BYTES)]).

-spec plain(socket()) -> ok | {error, term()}.
plain(Socket) ->
    setopts(Socket, [?KEEPS_NOTHING, {packet, raw}, {packet_size, 0}
                     | ?LARGE_WATERMARKS ++ kernel(?KERNEL_BYTES_LARGE)]).

kernel(Bytes) -> [{sndbuf, Bytes}, {recbuf, Bytes}].

%% So many frames come as messages; then a message says that no more do.
-spec activate(socket(), pos_integer()) -> ok | {error, term()}.
activate(Socket, N) -> setopts(Socket, [{active, N}]).

setopts({tcp, Socket}, Options) -> inet:setopts(Socket, Options);
setopts({tls, Socket}, Options) -> ssl:setopts(Socket, Options).

-spec write(socket(), iodata()) -> ok | {error, closed}.
write({tcp, Socket}, Data) ->
    try erlang:port_command(Socket, Data) of
        true -> ok
    catch
        error:badarg -> {error, closed}
    end;
write({tls, Socket}, Data) ->
    case ssl:send(Socket, Data) of
        ok -> ok;
        {error, _} -> {error, closed}
    end.

%% A frame, if N is 0; else N bytes.
-spec recv(socket(), N :: non_neg_integer(), timeout()) -> {ok, binary()} | {error, term()}.
recv({tcp, Socket}, N, Ms) -> gen_tcp:recv(Socket, N, Ms);
recv({tls, Socket}, N, Ms) -> ssl:recv(Socket, N, Ms).

%% What a message is to this socket.
-spec message(term(), socket()) -> {frame, binary()} | passive | {ended, term()} | sent | other.
message({tcp, Socket, Frame}, {tcp, Socket}) -> {frame, Frame};
message({tcp_passive, Socket}, {tcp, Socket}) -> passive;
message({tcp_closed, Socket}, {tcp, Socket}) -> {ended, closed};
message({tcp_error, Socket, Reason}, {tcp, Socket}) -> {ended, Reason};
message({inet_reply, _, ok}, _) -> sent;
message({inet_reply, Socket, {error, Reason}}, {tcp, Socket}) -> {ended, Reason};
message({ssl, _, Frame}, {tls, _}) -> {frame, Frame};
message({ssl_passive, _}, {tls, _}) -> passive;
message({ssl_closed, _}, {tls, _}) -> {ended, closed};
message({ssl_error, _, Reason}, {tls, _}) -> {ended, Reason};
message(_, _) -> other.
