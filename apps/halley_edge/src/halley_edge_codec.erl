%% The codec of the link (protocol/link.md): bytes in, frames out, and back (halley_edge_encoder
%% has the way back). No I/O, no state, no clock.
%%
%% It knows the frames of both directions, since a test plays the edge with the same codec that the
%% brain uses; which direction is allowed where is the link's business (`is_from_edge/1`).
%%
%% Invariants: no atom comes from input; whatever decode/2 returns was checked against the clauses
%% that concern a frame by itself (2.1 to 2.8, 3.1, 3.2, 3.4, 4.1, 7.1 to 7.3, 8.2, 8.4, 10.4, 12,
%% 13.3 to 13.5, 20.2, 20.3); halley_edge_fields has what concerns one field;
%% what concerns the order of frames is not looked at here.
%%
%% Binaries in a decoded frame are parts of the buffer they came in, REQUEST, REQUEST_BODY and
%% OPERATION excepted: those live as long as a handler, so they get memory of their own. A caller
%% that keeps a part of another frame for longer than the frame must copy it.
-module(halley_edge_codec).

-export([deframe/1, decode/2, encode/1, is_from_edge/1]).
-export_type([frame/0, item/0, session/0, inspected/0, slow/0, problem/0, conn/0, headers/0]).

-include("halley_edge.hrl").

-import(halley_edge_fields, [breaks/3, conn/1, cursor/1, flags/2, item/1, is_metric_name/1,
                             close_reason/1, gap_reason/1, listener/1, metric_kind/1, one_line/1,
                             pairs/2, text/2]).

-type conn() :: halley_edge_fields:conn().
%% A subject's user number.
-type group() :: 0..16#ffffffff.
-type headers() :: halley_edge_fields:pairs().
-type flags() :: 0..31.
-type item() :: halley_edge_fields:item().
%% What the brain calls a worker on a trunk (13.4).
-type slot() :: 1..16#ffff.
-type worker() :: 0..16#ffff.
%% What OPEN says about one.
-type session() :: {conn(), Transport :: 1..5, User :: binary(), Cursor :: binary()}.
%% A session, its user's number, and what waits for it.
-type slow() :: {conn(), non_neg_integer(), Transport :: 0..5, Bytes :: non_neg_integer(),
                 Pieces :: non_neg_integer(), Ms :: non_neg_integer()}.
-type inspected() :: #{state := 0..4, transport := 0..5, outbox_bytes := non_neg_integer(),
                       outbox_pieces := non_neg_integer(), outbox_ms := non_neg_integer(),
                       held := non_neg_integer(), dropped := non_neg_integer(),
                       conflated := non_neg_integer()}.
-type problem() :: halley_edge_fields:problem().
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
  | {operation_answer, conn(), Number :: non_neg_integer(), flags(), Json :: iodata()}
  | {shutdown, DrainMs :: non_neg_integer()}
  | {replay, conn(), flags(), Cursor :: binary(), Heads :: [non_neg_integer()], [item()]}
  | {presence, Json :: binary(), [conn()]}
  | {ended, conn(), Reason :: binary(), Subjects :: [binary()]}
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
  | {operation, conn(), Number :: non_neg_integer(), halley_requests:operation()}
  | {stats, [non_neg_integer()]}
  | {replayed, conn()}
  | {subscriptions, conn(), Rights :: binary(), Subjects :: [binary()]}
  | {rights, conn(), Rights :: binary()}
  | {inspected, Token :: non_neg_integer(), conn(), inspected()}
  | {behind, Token :: non_neg_integer(), [slow()]}
  | {to_slot, slot(), frame()}
  | {trunk_deliver, item(), Words :: binary()}                   % packed, eight bytes each
  | {trunk_group_deliver, group(), item(), Slots :: binary()}    % packed, two bytes each
  | {place, worker(), slot()}
  | {from_worker, worker(), frame()}
  | {worker_gone, worker()}.

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
frame(16#50, Borrowed) ->
    halley_edge_operation:decode(binary:copy(Borrowed));
frame(16#4B, <<Worker:16, Type, Payload/binary>>) ->
    Type >= 16#41 andalso Type =< 16#4A orelse Type >= 16#4D andalso Type =< 16#50
        orelse not_inside(Type),
    {from_worker, Worker, frame(Type, Payload)};
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
frame(16#4D, <<Conn:64, Length:16, Rights:Length/binary, Count:16, List/binary>>) ->
    {subscriptions, conn(Conn), binary:copy(Rights), subjects(16#4D, Count, binary:copy(List))};
frame(16#4F, <<Conn:64, Length:16, Rights:Length/binary>>) ->
    {rights, conn(Conn), binary:copy(Rights)};
frame(16#4A, <<Token:32, Conn:64, State, Transport, OutboxBytes:32, OutboxPieces:32, OutboxMs:32,
               Held:32, Dropped:32, Conflated:32>>) ->
    State =< 4 orelse breaks(<<"2.8">>, "state ~b", [State]),
    Transport =< 5 orelse breaks(<<"2.6">>, "transport ~b", [Transport]),
    {inspected, Token, conn(Conn),
     #{state => State, transport => Transport, outbox_bytes => OutboxBytes,
       outbox_pieces => OutboxPieces, outbox_ms => OutboxMs, held => Held, dropped => Dropped,
       conflated => Conflated}};
frame(16#4E, <<Token:32, Count:16, List/binary>>) when byte_size(List) =:= 25 * Count ->
    Count =< ?BEHIND_MAX orelse breaks(<<"10.8">>, "~b sessions that are behind", [Count]),
    {behind, Token, [slow(conn(Conn), Number, Transport, {Bytes, Pieces, Ms})
                     || <<Conn:64, Number:32, Transport, Bytes:32, Pieces:32, Ms:32>> <= List]};
frame(16#4C, <<Worker:16>>) ->
    {worker_gone, Worker};
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
    {Headers, Body} = pairs(Count, Rest),
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
frame_of_brain(16#1E, <<Length:32, Json:Length/binary, Count:16, List/binary>>)
  when byte_size(List) =:= 8 * Count ->
    Count =< ?DELIVER_CONNS_MAX orelse breaks(<<"15.1">>, "~b connections", [Count]),
    {presence, one_line(Json), [conn(Conn) || <<Conn:64>> <= List]};
frame_of_brain(16#1F, <<Conn:64, Length, Reason:Length/binary, Count:16, List/binary>>) ->
    {ended, conn(Conn), Reason, subjects(16#1F, Count, List)};
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
frame_of_brain(16#28, <<Conn:64, Number:32, Flags, Json/binary>>) ->
    {operation_answer, conn(Conn), Number, flags(Flags, ?FLAG_END bor ?FLAG_ERROR), Json};
frame_of_brain(Type, Payload) ->
    frame_of_trunk(Type, Payload).

%% Section 13.
frame_of_trunk(16#24, <<Slot:16, Type, Payload/binary>>) ->
    Type >= 16#11 andalso Type =< 16#1C andalso Type =/= 16#18 orelse
        Type >= 16#1E andalso Type =< 16#23 orelse Type =:= 16#28 orelse not_inside(Type),
    {to_slot, Slot, frame(Type, Payload)};
frame_of_trunk(16#25, Payload) ->
    case item(Payload) of
        {Item, <<Count:16, Words/binary>>} when byte_size(Words) =:= 8 * Count ->
            Count =< ?DELIVER_CONNS_MAX orelse breaks(<<"13.5">>, "~b connections", [Count]),
            {trunk_deliver, Item, Words};
        _ ->
            shape(16#25, Payload)
    end;
frame_of_trunk(16#26, <<Group:32, Payload/binary>>) ->
    case item(Payload) of
        {Item, <<Count:16, Slots/binary>>} when byte_size(Slots) =:= 2 * Count ->
            {trunk_group_deliver, Group, Item, Slots};
        _ ->
            shape(16#26, Payload)
    end;
frame_of_trunk(16#27, <<Worker:16, Slot:16>>) ->
    Slot > 0 orelse breaks(<<"13.4">>, "slot 0", []),
    {place, Worker, Slot};
frame_of_trunk(Type, Payload) ->
    shape(Type, Payload).

-spec not_inside(byte()) -> no_return().
not_inside(Type) ->
    breaks(<<"13.3">>, "type ~b is no frame of a worker's link in this direction", [Type]).

members(Conns) ->
    _ = [conn(Conn) || <<Conn:64>> <= Conns],
    Conns.

-spec shape(byte(), binary()) -> no_return().
shape(Type, Payload) ->
    breaks(<<"2.3">>, "type ~b with ~b bytes has no known shape", [Type, byte_size(Payload)]).

request(<<Conn:64, Listener, Flags, L1, Method:L1/binary, L2:16, Target:L2/binary, Count:16,
          Rest/binary>>) ->
    {Headers, Body} = pairs(Count, Rest),
    lists:foreach(fun halley_edge_fields:lower_case/1, Headers),
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

slow(Conn, Number, Transport, {Bytes, Pieces, Ms}) ->
    Transport =< 5 orelse breaks(<<"2.6">>, "transport ~b", [Transport]),
    {Conn, Number, Transport, Bytes, Pieces, Ms}.

subjects(_, 0, <<>>) ->
    [];
subjects(Type, N, <<Bytes, Subject:Bytes/binary, Rest/binary>>) when N > 0 ->
    [Subject | subjects(Type, N - 1, Rest)];
subjects(Type, _, List) ->
    shape(Type, List).

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
    case pairs(Count, List) of
        {Pairs, <<>>} -> Pairs;
        {_, Rest} -> shape(Type, Rest)
    end.

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
                 Tag =:= request_credit; Tag =:= operation_answer; Tag =:= shutdown;
                 Tag =:= replay; Tag =:= gap;
                 Tag =:= cursor; Tag =:= presence; Tag =:= ended; Tag =:= inspect;
                 Tag =:= keys; Tag =:= group_deliver;
                 Tag =:= group_join; Tag =:= group_leave; Tag =:= group_end; Tag =:= to_slot;
                 Tag =:= trunk_deliver; Tag =:= trunk_group_deliver; Tag =:= place -> false;
        _ -> true
    end.
