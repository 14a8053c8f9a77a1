%% The encoding half of halley_edge_codec: frames to bytes. Pure; the caller keeps the bounds of
%% link.md.
-module(halley_edge_encoder).

-export([encode/1, encode_deliver/3, deliver_bytes/3, encode_group_deliver/3,
         group_deliver_bytes/2, encode_members/3, encode_replay/5,
         no_items/0, add_item/3]).
-export([encode_to_slot/2, encode_trunk_deliver/3, encode_trunk_group_deliver/4]).
-export_type([items/0]).

-include("halley_edge.hrl").

%% A DELIVER without its item and its connections: length, type, count.
-define(DELIVER_HEAD_BYTES, (4 + 1 + 2)).
%% A GROUP_DELIVER without its item: length, type, group.
-define(GROUP_DELIVER_HEAD_BYTES, (4 + 1 + 4)).

%% Items of a REPLAY, one behind the other, and how many; the cursor is that of the last.
-type items() :: {Count :: non_neg_integer(), Cursor :: binary(), Items :: iodata()}.

%% The whole frame, its length first. The caller keeps the bounds of link.md: a value that doesn't
%% fit its field crashes.
-spec encode(halley_edge_codec:frame()) -> iodata().
encode({opened, Cursor, List}) ->
    encode_frame(16#11, [str8(Cursor), <<(length(List)):16>>
                         | [<<C:64, N:32>> || {C, N} <- List]]);
encode({response, Conn, Status, Flags, BodyBytes, Headers, Body}) ->
    encode_frame(16#15, [<<Conn:64, Status:16, Flags, BodyBytes:64>>, enc_pairs(Headers), Body]);
encode({response_body, Conn, Flags, Body}) ->
    encode_frame(16#16, [<<Conn:64, Flags>>, Body]);
encode({deliver, Item, Conns}) ->
    encode_frame(16#13, [item(Item), <<(byte_size(Conns) div 8):16>> | Conns]);
encode({group_deliver, Group, Item}) ->
    encode_frame(16#20, [<<Group:32>> | item(Item)]);
encode({group_join, Group, Conns}) ->
    encode_members(join, Group, Conns);
encode({group_leave, Group, Conns}) ->
    encode_members(leave, Group, Conns);
encode({group_end, Group}) ->
    <<5:32, 16#23, Group:32>>;
encode({replay, Conn, Flags, Cursor, Heads, Items}) ->
    encode_replay(Conn, Flags, Cursor, Heads, {length(Items), <<>>, lists:map(fun item/1, Items)});
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
encode({gap, Reason, From, To, Cursor, Conns}) ->
    encode_frame(16#1A, [str8(Reason), <<From:64, To:64>>, str8(Cursor), conns(Conns)]);
encode({ended, Conn, Reason, Subjects}) ->
    encode_frame(16#1F, [<<Conn:64>>, str8(Reason), strings(Subjects)]);
encode({presence, Json, Conns}) ->
    encode_frame(16#1E, [<<(byte_size(Json)):32>>, Json, conns(Conns)]);
encode({cursor, Cursor}) ->
    encode_frame(16#1B, str8(Cursor));
encode({inspect, Token, Conn}) ->
    <<13:32, 16#1C, Token:32, Conn:64>>;
encode({keys, Keys}) ->
    encode_frame(16#1D, Keys);
encode({to_slot, Slot, Frame}) ->
    encode_to_slot(Slot, encode(Frame));
encode({trunk_deliver, Item, Words}) ->
    encode_frame(16#25, [item(Item), <<(byte_size(Words) div 8):16>> | Words]);
encode({trunk_group_deliver, Group, Item, Slots}) ->
    encode_frame(16#26, [<<Group:32>>, item(Item), <<(byte_size(Slots) div 2):16>> | Slots]);
encode({place, Worker, Slot}) ->
    <<5:32, 16#27, Worker:16, Slot:16>>;
encode(Frame) ->
    encode_operation(Frame).

%% Section 20.
encode_operation({operation, Conn, Number, Operation}) ->
    encode_frame(16#50, halley_edge_operation:encode(Conn, Number, Operation));
encode_operation({operation_answer, Conn, Number, Flags, Json}) ->
    encode_frame(16#28, [<<Conn:64, Number:32, Flags>>, Json]);
encode_operation(Frame) ->
    encode_from_edge(Frame).

encode_from_edge({hello_edge, Hello}) ->
    #{version := Version, window := Window, pid := Pid, worker := Worker, workers := Workers,
      build := Build, public_listen := Public, api_listen := Api, connections_max := Max,
      metrics := Metrics} = Hello,
    encode_frame(16#40, [<<"HLY1", Version:16, Window:32, Pid:32, Worker:16, Workers:16>>,
                         str8(Build), str8(Public), str8(Api), <<Max:32, (length(Metrics)):16>>
                         | [[str8(N), enc_kind(K), str8(H)] || {N, K, H} <- Metrics]]);
encode_from_edge({sync_begin, Sessions, Cursor}) ->
    encode_frame(16#41, [<<Sessions:32>>, str8(Cursor)]);
encode_from_edge(sync_end) ->
    <<1:32, 16#42>>;
encode_from_edge({open, List}) ->
    encode_frame(16#43, [<<(length(List)):16>>
                         | [[<<C:64, T>>, str8(U), str8(Cur)] || {C, T, U, Cur} <- List]]);
encode_from_edge({close, List}) ->
    encode_frame(16#44, [<<(length(List)):16>> | [<<C:64, N:32, R>> || {C, N, R} <- List]]);
encode_from_edge({request, Conn, Listener, Flags, Method, Target, Headers, Body}) ->
    encode_frame(16#45, [<<Conn:64, (enc_listener(Listener)), Flags>>, str8(Method), str16(Target),
                         enc_pairs(Headers), Body]);
encode_from_edge({request_body, Conn, Flags, Body}) ->
    encode_frame(16#46, [<<Conn:64, Flags>>, Body]);
encode_from_edge({request_gone, Conn}) ->
    <<9:32, 16#47, Conn:64>>;
encode_from_edge({from_worker, Worker, Frame}) ->
    within(16#4B, Worker, encode(Frame));
encode_from_edge({worker_gone, Worker}) ->
    <<3:32, 16#4C, Worker:16>>;
encode_from_edge({stats, Values}) ->
    encode_frame(16#48, [<<(length(Values)):16>> | [<<V:64>> || V <- Values]]);
encode_from_edge({replayed, Conn}) ->
    <<9:32, 16#49, Conn:64>>;
encode_from_edge({subscriptions, Conn, Rights, Subjects}) ->
    encode_frame(16#4D, [<<Conn:64>>, str16(Rights), strings(Subjects)]);
encode_from_edge({rights, Conn, Rights}) ->
    encode_frame(16#4F, [<<Conn:64>>, str16(Rights)]);
encode_from_edge({behind, Token, Slow}) ->
    encode_frame(16#4E, [<<Token:32, (length(Slow)):16>>
                         | [<<C:64, N:32, T, Bytes:32, Pieces:32, Ms:32>>
                            || {C, N, T, Bytes, Pieces, Ms} <- Slow]]);
encode_from_edge({inspected, Token, Conn, Seen}) ->
    #{state := State, transport := Transport, outbox_bytes := OutboxBytes,
      outbox_pieces := OutboxPieces, outbox_ms := OutboxMs, held := Held, dropped := Dropped,
      conflated := Conflated} = Seen,
    <<39:32, 16#4A, Token:32, Conn:64, State, Transport, OutboxBytes:32, OutboxPieces:32,
      OutboxMs:32, Held:32, Dropped:32, Conflated:32>>.

%% DELIVER of an event as the brain made it; neither that nor the packed connection ids are copied.
%% Cursor: empty where the worker moves the link's by itself (10.9).
-spec encode_deliver(Cursor :: binary(), halley_event:wire(), Conns :: binary()) -> iolist().
encode_deliver(<<>>, Wire, Conns) ->
    Length = deliver_bytes(<<>>, Wire, Conns) - 4,
    [<<Length:32, 16#13>>, Wire, <<(byte_size(Conns) div 8):16>>, Conns];
encode_deliver(Cursor, <<Numbers:25/binary, 0, Text/binary>> = Wire, Conns) ->
    Length = deliver_bytes(Cursor, Wire, Conns) - 4,
    [<<Length:32, 16#13>>, Numbers, byte_size(Cursor), Cursor, Text,
     <<(byte_size(Conns) div 8):16>>, Conns].

%% The bytes of a DELIVER frame, with its length.
-spec deliver_bytes(Cursor :: binary(), halley_event:wire(), Conns :: binary()) -> pos_integer().
deliver_bytes(Cursor, Wire, Conns) ->
    ?DELIVER_HEAD_BYTES + byte_size(Cursor) + byte_size(Wire) + byte_size(Conns).

%% GROUP_DELIVER, likewise.
-spec encode_group_deliver(Cursor :: binary(), halley_event:wire(), Group :: 0..16#ffffffff) ->
    iolist().
encode_group_deliver(Cursor, <<Numbers:25/binary, 0, Text/binary>> = Wire, Group) ->
    Length = group_deliver_bytes(Cursor, Wire) - 4,
    [<<Length:32, 16#20, Group:32>>, Numbers, byte_size(Cursor), Cursor, Text].

%% Its bytes, with its length.
-spec group_deliver_bytes(Cursor :: binary(), halley_event:wire()) -> pos_integer().
group_deliver_bytes(Cursor, Wire) ->
    ?GROUP_DELIVER_HEAD_BYTES + byte_size(Cursor) + byte_size(Wire).

%% A whole frame for one worker of a trunk (13.3). It is ?TO_SLOT_BYTES longer.
-spec encode_to_slot(halley_links:slot(), Frame :: iodata()) -> iolist().
encode_to_slot(Slot, Frame) ->
    within(16#24, Slot, Frame).

within(Type, Whose, [<<Length:32, Inner/binary>> | Rest]) ->
    [<<(Length + ?TO_SLOT_BYTES):32, Type, Whose:16, Inner/binary>> | Rest];
within(Type, Whose, <<Length:32, Inner/binary>>) ->
    [<<(Length + ?TO_SLOT_BYTES):32, Type, Whose:16>>, Inner].

%% TRUNK_DELIVER of an event as the brain made it, to packed words; it has the bytes that
%% deliver_bytes/3 says.
-spec encode_trunk_deliver(Cursor :: binary(), halley_event:wire(), Words :: binary()) -> iolist().
encode_trunk_deliver(Cursor, Wire, Words) ->
    [<<Length:32, 16#13, More/binary>> | Rest] = encode_deliver(Cursor, Wire, Words),
    [<<Length:32, 16#25, More/binary>> | Rest].

%% TRUNK_GROUP_DELIVER, to packed slots; it has two bytes more than group_deliver_bytes/2 says, and
%% the slots.
-spec encode_trunk_group_deliver(Cursor :: binary(), halley_event:wire(),
                                 Group :: 0..16#ffffffff, Slots :: binary()) -> iolist().
encode_trunk_group_deliver(Cursor, <<Numbers:25/binary, 0, Text/binary>> = Wire, Group, Slots) ->
    Length = group_deliver_bytes(Cursor, Wire) - 4 + 2 + byte_size(Slots),
    [<<Length:32, 16#26, Group:32>>, Numbers, byte_size(Cursor), Cursor, Text,
     <<(byte_size(Slots) div 2):16>>, Slots].

%% GROUP_JOIN or GROUP_LEAVE with packed connections, as many as a frame may have.
-spec encode_members(join | leave, Group :: 0..16#ffffffff, Conns :: binary()) -> iolist().
encode_members(join, Group, Conns) ->
    encode_frame(16#21, [<<Group:32, (byte_size(Conns) div 8):16>>, Conns]);
encode_members(leave, Group, Conns) ->
    encode_frame(16#22, [<<Group:32, (byte_size(Conns) div 8):16>>, Conns]).

%% REPLAY with items that are encoded already.
-spec encode_replay(halley_edge_codec:conn(), halley_edge_codec:flags(), Cursor :: binary(),
                    Heads :: [non_neg_integer()], items()) -> iolist().
encode_replay(Conn, Flags, Cursor, Heads, {Count, _, Items}) ->
    encode_frame(16#19, [<<Conn:64, Flags>>, str8(Cursor), length(Heads),
                         [<<Seq:64>> || Seq <- Heads], <<Count:16>> | Items]).

-spec no_items() -> items().
no_items() ->
    {0, <<>>, <<>>}.

%% One item more, from the body of its record (halley_history_record). The binary is appended to in
%% place.
-spec add_item(Body :: binary(), Cursor :: binary(), items()) -> items().
add_item(Body, Cursor, {Count, _, Items}) ->
    {Shard, Seq, At, DataOffset, SubjectOffset, SubjectBytes, Json} =
        halley_history_record:item(Body),
    {Count + 1, Cursor,
     <<Items/binary, Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16,
       (byte_size(Cursor)), Cursor/binary, (byte_size(Json)):32, Json/binary>>}.

item(#{shard := Shard, seq := Seq, at := At, data_offset := DataOffset, json := Json,
       subject_offset := SubjectOffset, subject_bytes := SubjectBytes, cursor := Cursor}) ->
    [<<Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16,
       (byte_size(Cursor)), Cursor/binary, (byte_size(Json)):32>> | Json].

encode_frame(Type, Payload) ->
    [<<(1 + iolist_size(Payload)):32, Type>>, Payload].

enc_pairs(Pairs) ->
    [<<(length(Pairs)):16>> | [[str8(Name), str16(Value)] || {Name, Value} <- Pairs]].

enc_kind(counter) -> 1;
enc_kind(gauge) -> 2.

enc_listener(public) -> 1;
enc_listener(api) -> 2.

conns(Conns) -> [<<(length(Conns)):16>> | [<<C:64>> || C <- Conns]].

strings(List) -> [<<(length(List)):16>> | [str8(One) || One <- List]].

str8(Data) ->
    Size = iolist_size(Data),
    true = Size =< 255,
    [Size, Data].

str16(Data) ->
    Size = iolist_size(Data),
    true = Size =< 65535,
    [<<Size:16>>, Data].
