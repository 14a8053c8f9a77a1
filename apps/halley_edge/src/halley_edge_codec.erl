%% The codec of the link (protocol/link.md): bytes in, frames out, and back (halley_edge_encoder
%% has the way back). No I/O, no state, no clock.
%%
%% It knows the frames of both directions, since a test plays the edge with the same codec that the
%% brain uses; which direction is allowed where is the link's business (`is_from_edge/1`).
%%
%% Invariants: no atom comes from input; whatever decode/2 returns was checked against the clauses
%% that concern a frame by itself (2.1 to 2.8, 3.1, 3.2, 3.4, 4.1, 7.1 to 7.3, 8.2, 8.4, 10.4, 12);
%% what concerns the order of frames is not looked at here.
%%
%% Binaries in a decoded frame are parts of the buffer they came in, REQUEST and REQUEST_BODY
%% excepted: those live as long as a handler, so they get memory of their own. A caller that keeps a
%% part of another frame for longer than the frame must copy it.
-module(halley_edge_codec).

-export([deframe/1, decode/2, encode/1, is_from_edge/1]).
-export_type([frame/0, item/0, session/0, inspected/0, problem/0, conn/0, headers/0]).

-include("halley_edge.hrl").

-type conn() :: 0..16#ffffffffffff.
%% A subject's user number.
-type group() :: 0..16#ffffffff.
-type headers() :: [{binary(), binary()}].
-type flags() :: 0..15.
%% One event (2.2).
-type item() :: #{shard := 1..64, seq := non_neg_integer(), at := non_neg_integer(),
                  data_offset := non_neg_integer(), subject_offset := non_neg_integer(),
                  subject_bytes := non_neg_integer(), cursor := binary(), json := binary()}.
%% What OPEN says about one.
-type session() :: {conn(), Transport :: 1..5, User :: binary(), Cursor :: binary()}.
-type inspected() :: #{state := 0..4, transport := 0..5, outbox_bytes := non_neg_integer(),
                       outbox_pieces := non_neg_integer(), outbox_ms := non_neg_integer(),
                       held := non_neg_integer(), dropped := non_neg_integer(),
                       conflated := non_neg_integer()}.
-type problem() :: {Clause :: binary(), What :: binary()}.
-type frame() ::
    {ping | pong, Nonce :: non_neg_integer()}
  | {credit, Bytes :: non_neg_integer()}
  | {goodbye, Code :: 1..8, Reason :: binary()}
  | {hello_brain, #{version := non_neg_integer(), window := pos_integer(), node := binary(),
                    settings := headers()}}
  | {opened, Cursor :: binary(), [{conn(), UserNumber :: non_neg_integer()}]}
  | {refused, conn(), Status :: non_neg_integer(), RetryAfterS :: non_neg_integer(),
     Code :: binary(), Message :: binary()}
  | {deliver, item(), Conns :: binary()}                         % packed, eight bytes each
  | {group_deliver, group(), item()}
  | {group_join | group_leave, group(), Conns :: binary()}       % packed, eight bytes each
  | {group_end, group()}
  | {close_sessions, Reason :: binary(), [conn()]}
  | {response, conn(), Status :: non_neg_integer(), flags(), BodyBytes :: non_neg_integer(),
     [{iodata(), iodata()}], Body :: iodata()}
  | {response_body, conn(), flags(), Body :: iodata()}
  | {request_credit, conn(), Bytes :: non_neg_integer()}
  | {shutdown, DrainMs :: non_neg_integer()}
  | {replay, conn(), flags(), Cursor :: binary(), Heads :: [non_neg_integer()], [item()]}
  | {gap, Reason :: binary(), FromMs :: non_neg_integer(), ToMs :: non_neg_integer(),
     Cursor :: binary(), [conn()]}
  | {cursor, binary()} | {keys, JwkSet :: iodata()}
  | {inspect, Token :: non_neg_integer(), conn()}
  | {hello_edge, #{version := non_neg_integer(), window := pos_integer(), pid := non_neg_integer(),
                   worker := non_neg_integer(), workers := non_neg_integer(), build := binary(),
                   public_listen := binary(), api_listen := binary(),
                   connections_max := non_neg_integer(),
                   metrics := [{Name :: binary(), counter | gauge, Help :: binary()}]}}
  | {sync_begin, Sessions :: non_neg_integer(), Cursor :: binary()}
  | sync_end
  | {open, [session()]}
  | {close, [{conn(), UserNumber :: non_neg_integer(), Reason :: 1..8}]}
  | {request, conn(), Listener :: public | api, flags(), Method :: binary(), Target :: binary(),
     headers(), Body :: binary()}
  | {request_body, conn(), flags(), Body :: binary()}
  | {request_gone, conn()}
  | {stats, [non_neg_integer()]}
  | {replayed, conn()}
  | {inspected, Token :: non_neg_integer(), conn(), inspected()}.

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
        {ok, Frame} when Type =< 16#04; Type =:= 16#10; Type =:= 16#1D; Type =:= 16#40 ->
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

%% Those of the hot path come first.
frame(16#45, Borrowed) ->
    request(binary:copy(Borrowed));
frame(16#43, <<Count:16, List/binary>>) ->
    {open, sessions_opening(Count, List)};
frame(16#44, <<Count:16, List/binary>>) when byte_size(List) =:= 13 * Count ->
    {close, [{conn(Conn), Number, close_reason(Reason)}
             || <<Conn:64, Number:32, Reason>> <= List]};
frame(16#49, <<Conn:64>>) ->
    {replayed, conn(Conn)};
frame(16#01, <<Nonce:64>>) ->
    {ping, Nonce};
frame(16#02, <<Nonce:64>>) ->
    {pong, Nonce};
frame(16#03, <<Bytes:32>>) ->
    {credit, Bytes};
frame(16#04, <<Code, Length:16, Reason:Length/binary>>) ->
    Code >= 1 andalso Code =< 8 orelse breaks(<<"2.7">>, "GOODBYE with code ~b", [Code]),
    {goodbye, Code, Reason};
frame(16#40, Payload) ->
    hello_edge(hello_window(Payload));
frame(16#41, <<Sessions:32, Length, Cursor:Length/binary>>) ->
    {sync_begin, Sessions, cursor(Cursor)};
frame(16#42, <<>>) ->
    sync_end;
frame(16#46, <<Conn:64, Flags, Body/binary>>) ->
    {request_body, conn(Conn), flags(Flags, ?FLAG_END), binary:copy(Body)};
frame(16#47, <<Conn:64>>) ->
    {request_gone, conn(Conn)};
frame(16#48, <<Count:16, List/binary>>) when byte_size(List) =:= 8 * Count ->
    {stats, [Value || <<Value:64>> <= List]};
frame(16#4A, <<Token:32, Conn:64, State, Transport, OutboxBytes:32, OutboxPieces:32, OutboxMs:32,
               Held:32, Dropped:32, Conflated:32>>) ->
    State =< 4 orelse breaks(<<"2.8">>, "state ~b", [State]),
    Transport =< 5 orelse breaks(<<"2.6">>, "transport ~b", [Transport]),
    {inspected, Token, conn(Conn),
     #{state => State, transport => Transport, outbox_bytes => OutboxBytes,
       outbox_pieces => OutboxPieces, outbox_ms => OutboxMs, held => Held, dropped => Dropped,
       conflated => Conflated}};
frame(Type, Payload) ->
    frame_of_brain(Type, Payload).

frame_of_brain(16#10, Payload) ->
    hello_brain(hello_window(Payload));
frame_of_brain(16#11, <<Length, Cursor:Length/binary, Count:16, List/binary>>)
  when byte_size(List) =:= 12 * Count ->
    {opened, cursor(Cursor), [{conn(Conn), Number} || <<Conn:64, Number:32>> <= List]};
frame_of_brain(16#12, <<Conn:64, Status:16, RetryAfterS:16, L1, Code:L1/binary, L2:16,
               Message:L2/binary>>) ->
    {refused, conn(Conn), Status, RetryAfterS, Code, Message};
frame_of_brain(16#13, Payload) ->
    deliver(Payload);
frame_of_brain(16#14, <<Length, Reason:Length/binary, Count:16, List/binary>>)
  when byte_size(List) =:= 8 * Count ->
    {close_sessions, Reason, [conn(Conn) || <<Conn:64>> <= List]};
frame_of_brain(16#15, <<Conn:64, Status:16, Flags, BodyBytes:64, Count:16, Rest/binary>>) ->
    {Headers, Body} = pairs(Count, Rest, []),
    flags(Flags, ?FLAG_END bor ?FLAG_CLOSE),
    Flags band ?FLAG_END =:= 0 orelse byte_size(Body) =:= BodyBytes orelse
        breaks(<<"8.4">>, "a body of ~b bytes announced as ~b", [byte_size(Body), BodyBytes]),
    {response, conn(Conn), Status, Flags, BodyBytes, Headers, Body};
frame_of_brain(16#16, <<Conn:64, Flags, Body/binary>>) ->
    {response_body, conn(Conn), flags(Flags, ?FLAG_END), Body};
frame_of_brain(16#17, <<Conn:64, Bytes:32>>) ->
    {request_credit, conn(Conn), Bytes};
frame_of_brain(16#18, <<DrainMs:32>>) ->
    {shutdown, DrainMs};
frame_of_brain(16#19, <<Conn:64, Flags, Length, Cursor:Length/binary, Count, Rest/binary>>) ->
    replay(conn(Conn), flags(Flags, ?FLAG_LAST), cursor(Cursor), Count, Rest);
frame_of_brain(16#1A, <<L1, Reason:L1/binary, From:64, To:64, L2, Cursor:L2/binary, Count:16,
               List/binary>>) when byte_size(List) =:= 8 * Count ->
    {gap, gap_reason(Reason), From, To, cursor(Cursor), [conn(Conn) || <<Conn:64>> <= List]};
frame_of_brain(16#1B, <<Length, Cursor:Length/binary>>) ->
    {cursor, cursor(Cursor)};
frame_of_brain(16#1C, <<Token:32, Conn:64>>) ->
    {inspect, Token, conn(Conn)};
frame_of_brain(16#1D, Keys) ->
    byte_size(Keys) =< ?KEYS_BYTES_MAX orelse breaks(<<"12.2">>, "KEYS are too long", []),
    {keys, Keys};
frame_of_brain(16#20, <<Group:32, Payload/binary>>) ->
    case item(Payload) of
        {Item, <<>>} -> {group_deliver, Group, Item};
        _ -> shape(16#20, Payload)
    end;
frame_of_brain(16#21, <<Group:32, Count:16, Conns/binary>>) when byte_size(Conns) =:= 8 * Count ->
    {group_join, Group, members(Conns)};
frame_of_brain(16#22, <<Group:32, Count:16, Conns/binary>>) when byte_size(Conns) =:= 8 * Count ->
    {group_leave, Group, members(Conns)};
frame_of_brain(16#23, <<Group:32>>) ->
    {group_end, Group};
frame_of_brain(Type, Payload) ->
    shape(Type, Payload).

members(Conns) ->
    _ = [conn(Conn) || <<Conn:64>> <= Conns],
    Conns.

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
sessions_opening(N, <<Conn:64, Transport, L1, User:L1/binary, L2, Cursor:L2/binary,
                     Rest/binary>>) when N > 0 ->
    Transport >= 1 andalso Transport =< 5 orelse
        breaks(<<"2.6">>, "transport ~b", [Transport]),
    [{conn(Conn), Transport, User, cursor(Cursor)} | sessions_opening(N - 1, Rest)];
sessions_opening(_, List) ->
    shape(16#43, List).

deliver(Payload) ->
    case item(Payload) of
        {Item, <<Count:16, Conns/binary>>} when byte_size(Conns) =:= 8 * Count ->
            Count =< ?DELIVER_CONNS_MAX orelse breaks(<<"7.3">>, "~b connections", [Count]),
            _ = [conn(Conn) || <<Conn:64>> <= Conns],
            {deliver, Item, Conns};
        _ ->
            shape(16#13, Payload)
    end.

replay(Conn, Flags, Cursor, HeadsCount, Rest) ->
    HeadsCount =< ?SHARDS_MAX orelse breaks(<<"2.6">>, "~b heads", [HeadsCount]),
    HeadsBytes = 8 * HeadsCount,
    case Rest of
        <<Heads:HeadsBytes/binary, Count:16, List/binary>> ->
            {replay, Conn, Flags, Cursor, [Seq || <<Seq:64>> <= Heads], items(Count, List)};
        _ ->
            shape(16#19, Rest)
    end.

items(0, <<>>) ->
    [];
items(N, List) when N > 0 ->
    {Item, Rest} = item(List),
    [Item | items(N - 1, Rest)];
items(0, List) ->
    shape(16#19, List).

item(<<Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16, L1,
       Cursor:L1/binary, L2:32, Json:L2/binary, Rest/binary>>) ->
    Shard >= 1 andalso Shard =< ?SHARDS_MAX orelse breaks(<<"2.6">>, "shard ~b", [Shard]),
    DataOffset + 2 =< L2 orelse
        breaks(<<"7.1">>, "data_offset ~b in ~b bytes", [DataOffset, L2]),
    SubjectOffset + SubjectBytes =< L2 orelse
        breaks(<<"7.1">>, "~b bytes of subject at ~b in ~b", [SubjectBytes, SubjectOffset, L2]),
    is_one_line(Json) orelse breaks(<<"7.1">>, "a control character in an event", []),
    {#{shard => Shard, seq => Seq, at => At, data_offset => DataOffset,
       subject_offset => SubjectOffset, subject_bytes => SubjectBytes, cursor => cursor(Cursor),
       json => Json}, Rest};
item(_) ->
    breaks(<<"2.3">>, "an item that ends too early", []).

%% Magic and version come first and alone: what follows them in another version may have another
%% shape.
hello_window(<<"HLY1", Version:16, _/binary>>)
  when Version < ?LINK_VERSION_MIN; Version > ?LINK_VERSION ->
    breaks(<<"3.2">>, "~b to ~b here, ~b there", [?LINK_VERSION_MIN, ?LINK_VERSION, Version]);
hello_window(<<"HLY1", Version:16, Window:32, Rest/binary>>) ->
    Window >= ?WINDOW_BYTES_MIN orelse breaks(<<"4.1">>, "a window of ~b bytes", [Window]),
    {Version, Window, Rest};
hello_window(<<"HLY1", _:16, _/binary>>) ->
    breaks(<<"2.3">>, "a hello that ends in its window", []);
hello_window(_) ->
    breaks(<<"3.1">>, "a hello without the magic HLY1", []).

hello_brain({Version, Window, <<Length, Node:Length/binary, Count:16, List/binary>>}) ->
    {hello_brain, #{version => Version, window => Window, node => Node,
                    settings => only_pairs(16#10, Count, List)}};
hello_brain({_, _, Rest}) ->
    shape(16#10, Rest).

hello_edge({V, Window, <<Pid:32, Worker:16, Workers:16, L1, Build:L1/binary, L2, Public:L2/binary,
                         L3, Api:L3/binary, ConnectionsMax:32, Count:16, List/binary>>}) ->
    Count =< ?METRICS_MAX orelse breaks(<<"3.4">>, "~b metrics", [Count]),
    {hello_edge, #{version => V, window => Window, pid => Pid, worker => Worker,
                   workers => Workers, build => Build, public_listen => Public,
                   api_listen => Api, connections_max => ConnectionsMax,
                   metrics => metrics(Count, List)}};
hello_edge({_, _, Rest}) ->
    shape(16#40, Rest).

metrics(0, <<>>) ->
    [];
metrics(N, <<L1, Name:L1/binary, Kind, L2, Help:L2/binary, Rest/binary>>) when N > 0 ->
    is_metric_name(Name) orelse breaks(<<"3.4">>, "metric name ~0tp", [Name]),
    is_list(unicode:characters_to_list(Help)) orelse breaks(<<"3.4">>, "help is not UTF-8", []),
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

close_reason(Reason) when Reason >= 1, Reason =< 8 -> Reason;
close_reason(Reason) -> breaks(<<"2.8">>, "reason ~b of a CLOSE", [Reason]).

gap_reason(Reason) when Reason =:= <<"too_old">>; Reason =:= <<"malformed">>;
                        Reason =:= <<"other_store">>; Reason =:= <<"damaged">> -> Reason;
gap_reason(_) -> breaks(<<"10.4">>, "an unknown reason of a GAP", []).

cursor(Cursor) when byte_size(Cursor) =< ?CURSOR_BYTES_MAX ->
    is_cursor(Cursor) orelse
        breaks(<<"7.2">>, "a cursor of other characters than [A-Za-z0-9_-]", []),
    Cursor.

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

is_cursor(<<C, Rest/binary>>) when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9;
                                   C =:= $_; C =:= $- -> is_cursor(Rest);
is_cursor(Rest) -> Rest =:= <<>>.

is_one_line(<<C, Rest/binary>>) when C >= $\s, C =/= 16#7f -> is_one_line(Rest);
is_one_line(Rest) -> Rest =:= <<>>.

-spec breaks(binary(), string(), [term()]) -> no_return().
breaks(Clause, Format, Args) ->
    throw({Clause, text(Format, Args)}).

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

%%% About frames

%% The whole frame, its length first. A value that doesn't fit its field crashes.
-spec encode(frame()) -> iodata().
encode(Frame) ->
    halley_edge_encoder:encode(Frame).

%% Whether an edge may send this frame. The other frames have no known type in this direction (2.3).
-spec is_from_edge(frame()) -> boolean().
is_from_edge(sync_end) ->
    true;
is_from_edge(Frame) ->
    case element(1, Frame) of
        Tag when Tag =:= hello_brain; Tag =:= opened; Tag =:= refused; Tag =:= deliver;
                 Tag =:= close_sessions; Tag =:= response; Tag =:= response_body;
                 Tag =:= request_credit; Tag =:= shutdown; Tag =:= replay; Tag =:= gap;
                 Tag =:= cursor; Tag =:= inspect; Tag =:= keys; Tag =:= group_deliver;
                 Tag =:= group_join; Tag =:= group_leave; Tag =:= group_end -> false;
        _ -> true
    end.
