%% The codec of the link (protocol/link.md): bytes in, frames out, and back. No I/O, no state, no
%% clock.
%%
%% It knows the frames of both directions, since a test plays the edge with the same codec that the
%% brain uses; which direction is allowed where is the link's business (`is_from_edge/1`).
%%
%% Invariants: no atom comes from input; whatever decode/2 returns was checked against the clauses
%% that concern a frame by itself (2.1 to 2.7, 3.1, 3.2, 3.4, 4.1, 7.1 to 7.3, 8.2, 8.4); what
%% concerns the order of frames is not looked at here.
%%
%% Binaries in a decoded frame are parts of the buffer they came in, REQUEST and REQUEST_BODY
%% excepted: those live as long as a handler, so they get memory of their own and a slow handler
%% doesn't keep a receive buffer alive. Whoever keeps a part of another frame beyond the frame's
%% life copies it.
-module(halley_edge_codec).

-export([deframe/1, decode/2, encode/1, encode_deliver/4, is_from_edge/1, goodbye/1]).
-export_type([frame/0, problem/0, conn/0, headers/0]).

-include("halley_edge.hrl").

-type conn() :: 0..16#ffffffffffff.
-type headers() :: [{binary(), binary()}].
-type flags() :: 0..7.
-type problem() :: {Clause :: binary(), What :: binary()}.
-type frame() ::
    {ping | pong, Nonce :: non_neg_integer()}
  | {credit, Bytes :: non_neg_integer()}
  | {goodbye, Code :: 1..8, Reason :: binary()}
  | {hello_brain, #{version := non_neg_integer(), window := pos_integer(), node := binary(),
                    settings := headers()}}
  | {opened, [{conn(), UserNumber :: non_neg_integer()}]}
  | {refused, conn(), Status :: non_neg_integer(), RetryAfterS :: non_neg_integer(),
     Code :: binary(), Message :: binary()}
  | {deliver, Cursor :: binary(), DataOffset :: non_neg_integer(), Event :: iodata(),
     Conns :: binary()}                                          % packed, eight bytes each
  | {close_sessions, Reason :: binary(), [conn()]}
  | {response, conn(), Status :: non_neg_integer(), flags(), BodyBytes :: non_neg_integer(),
     [{iodata(), iodata()}], Body :: iodata()}
  | {response_body, conn(), flags(), Body :: iodata()}
  | {request_credit, conn(), Bytes :: non_neg_integer()}
  | {shutdown, DrainMs :: non_neg_integer()}
  | {hello_edge, #{version := non_neg_integer(), window := pos_integer(), pid := non_neg_integer(),
                   worker := non_neg_integer(), workers := non_neg_integer(), build := binary(),
                   public_listen := binary(), api_listen := binary(),
                   connections_max := non_neg_integer(),
                   metrics := [{Name :: binary(), counter | gauge, Help :: binary()}]}}
  | {sync_begin, Sessions :: non_neg_integer()}
  | sync_end
  | {open, [{conn(), Transport :: 1..4, User :: binary()}]}
  | {close, [{conn(), UserNumber :: non_neg_integer()}]}
  | {request, conn(), Listener :: public | api, flags(), Method :: binary(), Target :: binary(),
     headers(), Body :: binary()}
  | {request_body, conn(), flags(), Body :: binary()}
  | {request_gone, conn()}
  | {stats, [non_neg_integer()]}.

-define(METRICS_MAX, 256).                                        % 3.4

%%% Deframing

%% All whole frames of Buffer, each with its price in credit (0 for a free one), and the bytes of
%% the frame that isn't whole yet. The first broken frame makes the whole buffer an error: after it
%% the link ends anyway.
-spec deframe(binary()) -> {ok, [{Cost :: non_neg_integer(), frame()}], Rest :: binary()}
                         | {error, problem()}.
deframe(Buffer) ->
    deframe(Buffer, []).

deframe(<<Length:32, _/binary>>, _) when Length =:= 0; Length > ?FRAME_BYTES_MAX ->
    {error, {<<"2.1">>, text("a frame of ~b bytes, not 1 to ~b", [Length, ?FRAME_BYTES_MAX])}};
deframe(<<Length:32, Type, Rest/binary>>, Frames) when byte_size(Rest) >= Length - 1 ->
    PayloadBytes = Length - 1,
    <<Payload:PayloadBytes/binary, Next/binary>> = Rest,
    case decode(Type, Payload) of
        {ok, Frame} when Type =< 16#04; Type =:= 16#10; Type =:= 16#40 ->
            deframe(Next, [{0, Frame} | Frames]);
        {ok, Frame} ->
            deframe(Next, [{4 + Length, Frame} | Frames]);
        {error, _} = Error ->
            Error
    end;
deframe(Rest, Frames) ->
    {ok, lists:reverse(Frames), Rest}.

%%% Decoding

-spec decode(Type :: byte(), Payload :: binary()) -> {ok, frame()} | {error, problem()}.
decode(Type, Payload) ->
    try frame(Type, Payload) of
        Frame -> {ok, Frame}
    catch
        throw:{Clause, What} -> {error, {Clause, What}}
    end.

%% The three of the hot path come first.
frame(16#45, Borrowed) ->
    request(binary:copy(Borrowed));
frame(16#43, <<Count:16, List/binary>>) ->
    {open, sessions_opening(Count, List)};
frame(16#44, <<Count:16, List/binary>>) when byte_size(List) =:= 12 * Count ->
    {close, conns_and_numbers(List)};
frame(16#01, <<Nonce:64>>) ->
    {ping, Nonce};
frame(16#02, <<Nonce:64>>) ->
    {pong, Nonce};
frame(16#03, <<Bytes:32>>) ->
    {credit, Bytes};
frame(16#04, <<Code, Length:16, Reason:Length/binary>>) ->
    Code >= 1 andalso Code =< 8 orelse breaks(<<"2.7">>, "GOODBYE with code ~b", [Code]),
    {goodbye, Code, Reason};
frame(16#10, Payload) ->
    hello_brain(hello_window(Payload));
frame(16#11, <<Count:16, List/binary>>) when byte_size(List) =:= 12 * Count ->
    {opened, conns_and_numbers(List)};
frame(16#12, <<Conn:64, Status:16, RetryAfterS:16, L1, Code:L1/binary, L2:16,
               Message:L2/binary>>) ->
    {refused, conn(Conn), Status, RetryAfterS, Code, Message};
frame(16#13, <<L1, Cursor:L1/binary, DataOffset:32, L2:32, Event:L2/binary, Count:16,
               Conns/binary>>) when byte_size(Conns) =:= 8 * Count ->
    deliver(Cursor, DataOffset, Event, Count, Conns);
frame(16#14, <<Length, Reason:Length/binary, Count:16, List/binary>>)
  when byte_size(List) =:= 8 * Count ->
    {close_sessions, Reason, [conn(Conn) || <<Conn:64>> <= List]};
frame(16#15, <<Conn:64, Status:16, Flags, BodyBytes:64, Count:16, Rest/binary>>) ->
    {Headers, Body} = pairs(Count, Rest, []),
    flags(Flags, ?FLAG_END bor ?FLAG_CLOSE),
    Flags band ?FLAG_END =:= 0 orelse byte_size(Body) =:= BodyBytes orelse
        breaks(<<"8.4">>, "a body of ~b bytes announced as ~b", [byte_size(Body), BodyBytes]),
    {response, conn(Conn), Status, Flags, BodyBytes, Headers, Body};
frame(16#16, <<Conn:64, Flags, Body/binary>>) ->
    {response_body, conn(Conn), flags(Flags, ?FLAG_END), Body};
frame(16#17, <<Conn:64, Bytes:32>>) ->
    {request_credit, conn(Conn), Bytes};
frame(16#18, <<DrainMs:32>>) ->
    {shutdown, DrainMs};
frame(16#40, Payload) ->
    hello_edge(hello_window(Payload));
frame(16#41, <<Sessions:32>>) ->
    {sync_begin, Sessions};
frame(16#42, <<>>) ->
    sync_end;
frame(16#46, <<Conn:64, Flags, Body/binary>>) ->
    {request_body, conn(Conn), flags(Flags, ?FLAG_END), binary:copy(Body)};
frame(16#47, <<Conn:64>>) ->
    {request_gone, conn(Conn)};
frame(16#48, <<Count:16, List/binary>>) when byte_size(List) =:= 8 * Count ->
    {stats, [Value || <<Value:64>> <= List]};
frame(Type, Payload) ->
    shape(Type, Payload).

-spec shape(byte(), binary()) -> no_return().
shape(Type, Payload) ->
    breaks(<<"2.3">>, "type ~b with ~b bytes has no known shape", [Type, byte_size(Payload)]).

request(<<Conn:64, Listener, Flags, L1, Method:L1/binary, L2:16, Target:L2/binary, Count:16,
          Rest/binary>>) ->
    {Headers, Body} = pairs(Count, Rest, []),
    lists:foreach(fun lower_case/1, Headers),
    {request, conn(Conn), listener(Listener), flags(Flags, ?FLAG_END bor ?FLAG_EXPECT), Method,
     Target, Headers, Body};
request(Payload) ->
    shape(16#45, Payload).

sessions_opening(0, <<>>) ->
    [];
sessions_opening(N, <<Conn:64, Transport, Length, User:Length/binary, Rest/binary>>) when N > 0 ->
    Transport >= 1 andalso Transport =< 4 orelse
        breaks(<<"2.6">>, "transport ~b", [Transport]),
    [{conn(Conn), Transport, User} | sessions_opening(N - 1, Rest)];
sessions_opening(_, List) ->
    shape(16#43, List).

conns_and_numbers(List) ->
    [{conn(Conn), Number} || <<Conn:64, Number:32>> <= List].

deliver(Cursor, DataOffset, Event, Count, Conns) ->
    DataOffset + 2 =< byte_size(Event) orelse
        breaks(<<"7.1">>, "data_offset ~b in ~b bytes", [DataOffset, byte_size(Event)]),
    lists:all(fun is_cursor_character/1, binary_to_list(Cursor)) orelse
        breaks(<<"7.2">>, "a cursor of other characters than [A-Za-z0-9_-]", []),
    Count =< ?DELIVER_CONNS_MAX orelse breaks(<<"7.3">>, "~b connections", [Count]),
    _ = [conn(Conn) || <<Conn:64>> <= Conns],
    {deliver, Cursor, DataOffset, Event, Conns}.

%% Magic and version come first and alone: what follows them in another version may have another
%% shape.
hello_window(<<"HLY1", ?LINK_VERSION:16, Window:32, Rest/binary>>) ->
    Window >= ?WINDOW_BYTES_MIN orelse breaks(<<"4.1">>, "a window of ~b bytes", [Window]),
    {Window, Rest};
hello_window(<<"HLY1", ?LINK_VERSION:16, _/binary>>) ->
    breaks(<<"2.3">>, "a hello that ends in its window", []);
hello_window(<<"HLY1", Version:16, _/binary>>) ->
    breaks(<<"3.2">>, "version ~b here, ~b there", [?LINK_VERSION, Version]);
hello_window(_) ->
    breaks(<<"3.1">>, "a hello without the magic HLY1", []).

hello_brain({Window, <<Length, Node:Length/binary, Count:16, List/binary>>}) ->
    {hello_brain, #{version => ?LINK_VERSION, window => Window, node => Node,
                    settings => only_pairs(16#10, Count, List)}};
hello_brain({_, Rest}) ->
    shape(16#10, Rest).

hello_edge({Window, <<Pid:32, Worker:16, Workers:16, L1, Build:L1/binary, L2, Public:L2/binary,
                      L3, Api:L3/binary, ConnectionsMax:32, Count:16, List/binary>>}) ->
    Count =< ?METRICS_MAX orelse breaks(<<"3.4">>, "~b metrics", [Count]),
    {hello_edge, #{version => ?LINK_VERSION, window => Window, pid => Pid, worker => Worker,
                   workers => Workers, build => Build, public_listen => Public,
                   api_listen => Api, connections_max => ConnectionsMax,
                   metrics => metrics(Count, List)}};
hello_edge({_, Rest}) ->
    shape(16#40, Rest).

metrics(0, <<>>) ->
    [];
metrics(N, <<L1, Name:L1/binary, Kind, L2, Help:L2/binary, Rest/binary>>) when N > 0 ->
    is_metric_name(Name) orelse breaks(<<"3.4">>, "metric name ~0tp", [Name]),
    [{Name, metric_kind(Kind), Help} | metrics(N - 1, Rest)];
metrics(_, List) ->
    shape(16#40, List).

only_pairs(Type, Count, List) ->
    case pairs(Count, List, []) of
        {Pairs, <<>>} -> Pairs;
        {_, Rest} -> shape(Type, Rest)
    end.

pairs(0, Rest, Pairs) ->
    {lists:reverse(Pairs), Rest};
pairs(N, <<L1, Name:L1/binary, L2:16, Value:L2/binary, Rest/binary>>, Pairs) ->
    pairs(N - 1, Rest, [{Name, Value} | Pairs]);
pairs(_, _, _) ->
    breaks(<<"2.3">>, "a list that is shorter than its count", []).

conn(Conn) when Conn < ?CONN_LIMIT -> Conn;
conn(Conn) -> breaks(<<"2.4">>, "connection id ~b", [Conn]).

flags(Flags, Known) when Flags bor Known =:= Known -> Flags;
flags(Flags, _) -> breaks(<<"2.6">>, "flags ~b", [Flags]).

listener(1) -> public;
listener(2) -> api;
listener(Listener) -> breaks(<<"2.6">>, "listener ~b", [Listener]).

metric_kind(1) -> counter;
metric_kind(2) -> gauge;
metric_kind(Kind) -> breaks(<<"2.6">>, "metric kind ~b", [Kind]).

lower_case({Name, _}) ->
    is_lower_case(Name) orelse breaks(<<"8.2">>, "header name ~0tp", [Name]).

is_lower_case(<<C, Rest/binary>>) when C < $A; C > $Z -> is_lower_case(Rest);
is_lower_case(Rest) -> Rest =:= <<>>.

is_metric_name(<<"halley_edge_", C, Rest/binary>>) -> is_metric_rest(<<C, Rest/binary>>);
is_metric_name(_) -> false.

is_metric_rest(<<C, Rest/binary>>) when C >= $a, C =< $z; C >= $0, C =< $9; C =:= $_ ->
    is_metric_rest(Rest);
is_metric_rest(Rest) ->
    Rest =:= <<>>.

is_cursor_character(C) ->
    C >= $a andalso C =< $z orelse C >= $A andalso C =< $Z orelse C >= $0 andalso C =< $9
        orelse C =:= $_ orelse C =:= $-.

-spec breaks(binary(), string(), [term()]) -> no_return().
breaks(Clause, Format, Args) ->
    throw({Clause, text(Format, Args)}).

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

%%% Encoding

%% The whole frame, its length first. The caller keeps the bounds of link.md: a value that doesn't
%% fit its field crashes.
-spec encode(frame()) -> iodata().
encode({opened, List}) ->
    encode_frame(16#11, [<<(length(List)):16>> | [<<C:64, N:32>> || {C, N} <- List]]);
encode({response, Conn, Status, Flags, BodyBytes, Headers, Body}) ->
    encode_frame(16#15, [<<Conn:64, Status:16, Flags, BodyBytes:64>>, enc_pairs(Headers), Body]);
encode({response_body, Conn, Flags, Body}) ->
    encode_frame(16#16, [<<Conn:64, Flags>>, Body]);
encode({deliver, Cursor, DataOffset, Event, Conns}) ->
    encode_deliver(Cursor, DataOffset, Event, Conns);
encode({ping, Nonce}) ->
    <<9:32, 16#01, Nonce:64>>;
encode({pong, Nonce}) ->
    <<9:32, 16#02, Nonce:64>>;
encode({credit, Bytes}) ->
    <<5:32, 16#03, Bytes:32>>;
encode({goodbye, Code, Reason}) ->
    encode_frame(16#04, [Code, str16(Reason)]);
encode({hello_brain, Hello}) ->
    #{version := Version, window := Window, node := Node, settings := Settings} = Hello,
    encode_frame(16#10, [<<"HLY1", Version:16, Window:32>>, str8(Node), enc_pairs(Settings)]);
encode({refused, Conn, Status, RetryAfterS, Code, Message}) ->
    encode_frame(16#12, [<<Conn:64, Status:16, RetryAfterS:16>>, str8(Code), str16(Message)]);
encode({close_sessions, Reason, Conns}) ->
    encode_frame(16#14, [str8(Reason), <<(length(Conns)):16>> | [<<C:64>> || C <- Conns]]);
encode({request_credit, Conn, Bytes}) ->
    <<13:32, 16#17, Conn:64, Bytes:32>>;
encode({shutdown, DrainMs}) ->
    <<5:32, 16#18, DrainMs:32>>;
encode(Frame) ->
    encode_from_edge(Frame).

encode_from_edge({hello_edge, Hello}) ->
    #{version := Version, window := Window, pid := Pid, worker := Worker, workers := Workers,
      build := Build, public_listen := Public, api_listen := Api, connections_max := Max,
      metrics := Metrics} = Hello,
    encode_frame(16#40, [<<"HLY1", Version:16, Window:32, Pid:32, Worker:16, Workers:16>>,
                         str8(Build), str8(Public), str8(Api), <<Max:32, (length(Metrics)):16>>
                         | [[str8(N), enc_kind(K), str8(H)] || {N, K, H} <- Metrics]]);
encode_from_edge({sync_begin, Sessions}) ->
    <<5:32, 16#41, Sessions:32>>;
encode_from_edge(sync_end) ->
    <<1:32, 16#42>>;
encode_from_edge({open, List}) ->
    encode_frame(16#43, [<<(length(List)):16>> | [[<<C:64, T>>, str8(U)] || {C, T, U} <- List]]);
encode_from_edge({close, List}) ->
    encode_frame(16#44, [<<(length(List)):16>> | [<<C:64, N:32>> || {C, N} <- List]]);
encode_from_edge({request, Conn, Listener, Flags, Method, Target, Headers, Body}) ->
    encode_frame(16#45, [<<Conn:64, (enc_listener(Listener)), Flags>>, str8(Method), str16(Target),
                         enc_pairs(Headers), Body]);
encode_from_edge({request_body, Conn, Flags, Body}) ->
    encode_frame(16#46, [<<Conn:64, Flags>>, Body]);
encode_from_edge({request_gone, Conn}) ->
    <<9:32, 16#47, Conn:64>>;
encode_from_edge({stats, Values}) ->
    encode_frame(16#48, [<<(length(Values)):16>> | [<<V:64>> || V <- Values]]).

%% DELIVER from its parts; neither the JSON nor the packed connection ids are copied.
-spec encode_deliver(Cursor :: binary(), DataOffset :: non_neg_integer(), Json :: iodata(),
                     Conns :: binary()) -> iolist().
encode_deliver(Cursor, DataOffset, Json, Conns) ->
    JsonBytes = iolist_size(Json),
    Length = 12 + byte_size(Cursor) + JsonBytes + byte_size(Conns),
    [<<Length:32, 16#13, (byte_size(Cursor)), Cursor/binary, DataOffset:32, JsonBytes:32>>, Json,
     <<(byte_size(Conns) div 8):16>>, Conns].

encode_frame(Type, Payload) ->
    [<<(1 + iolist_size(Payload)):32, Type>>, Payload].

enc_pairs(Pairs) ->
    [<<(length(Pairs)):16>> | [[str8(Name), str16(Value)] || {Name, Value} <- Pairs]].

enc_kind(counter) -> 1;
enc_kind(gauge) -> 2.

enc_listener(public) -> 1;
enc_listener(api) -> 2.

str8(Data) ->
    Size = iolist_size(Data),
    true = Size =< 255,
    [Size, Data].

str16(Data) ->
    Size = iolist_size(Data),
    true = Size =< 65535,
    [<<Size:16>>, Data].

%%% About frames

%% Whether an edge may send this frame. The other frames have no known type in this direction (2.3).
-spec is_from_edge(frame()) -> boolean().
is_from_edge(sync_end) ->
    true;
is_from_edge(Frame) ->
    case element(1, Frame) of
        Tag when Tag =:= hello_brain; Tag =:= opened; Tag =:= refused; Tag =:= deliver;
                 Tag =:= close_sessions; Tag =:= response; Tag =:= response_body;
                 Tag =:= request_credit; Tag =:= shutdown -> false;
        _ -> true
    end.

%% The GOODBYE that answers a broken clause (1.3, 2.7).
-spec goodbye(problem()) -> {goodbye, Code :: 1..8, Reason :: binary()}.
goodbye({Clause, What}) ->
    {goodbye, goodbye_code(Clause), <<Clause/binary, ": ", What/binary>>}.

goodbye_code(<<"3.2">>) -> ?GOODBYE_VERSION;
goodbye_code(<<"3.", _/binary>>) -> ?GOODBYE_HANDSHAKE;
goodbye_code(<<"4.1">>) -> ?GOODBYE_HANDSHAKE;
goodbye_code(<<"4.5">>) -> ?GOODBYE_SILENCE;
goodbye_code(<<"4.7">>) -> ?GOODBYE_OVERLOADED;
goodbye_code(<<"4.", _/binary>>) -> ?GOODBYE_FLOW_CONTROL;
goodbye_code(<<"8.1">>) -> ?GOODBYE_FLOW_CONTROL;
goodbye_code(<<"8.3">>) -> ?GOODBYE_FLOW_CONTROL;
goodbye_code(_) -> ?GOODBYE_BAD_FRAME.
