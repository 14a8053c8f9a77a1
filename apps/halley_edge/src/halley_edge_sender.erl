%% The messages to the writer of a link: from the link's process, and from those of its requests and
%% replays. A handle has the writer, and on whose behalf it is used: of one slot, of the requests of
%% all (`words'), or of the link itself (protocol/link.md 13.3).
%%
%% The bytes of a frame are added to the queue's counter here, before the message is sent; the
%% writer subtracts them (halley_edge_trunk_writer).
-module(halley_edge_sender).

-export([attach/3, to_slot/2, to_words/1]).
-export([send/2, free/2, credit/2, opened/2, last/4, last_frame/4, sync_begin/2, sync_end/1,
         gone/1, goodbye/2]).
-export([queue_bytes/1, bytes_max/0]).
-export_type([handle/0]).

-include("halley_edge.hrl").

%% For `words' each frame begins with a connection, which is the word of a slot and a connection.
-opaque handle() :: {pid(), counters:counters_ref(), link | words | halley_links:slot()}.

%% Hands over what halley_links:register_trunk/1 gave, and where the link begins: at the present
%% heads, and at a time that is not after them. The handle is that of the link itself.
-spec attach(pid(), halley_links:slot(), counters:counters_ref()) -> handle().
attach(Writer, Way, Queue) ->
    Second = halley_clock:wall_s(),
    Writer ! {attach, Way, Queue, Second, halley_history:heads()},
    {Writer, Queue, link}.

%% What is sent by this handle is for one slot.
-spec to_slot(halley_links:slot(), handle()) -> handle().
to_slot(Slot, {Writer, Queue, link}) ->
    {Writer, Queue, Slot}.

%% Frames of all slots, which say by their words whose they are.
-spec to_words(handle()) -> handle().
to_words({Writer, Queue, link}) ->
    {Writer, Queue, words}.

%% The slot has no worker any more.
-spec gone(handle()) -> ok.
gone({Writer, _, Slot}) when is_integer(Slot) ->
    tell(Writer, Slot, gone).

tell(Writer, Slot, Message) when is_integer(Slot) ->
    Writer ! {to_slot, Slot, Message},
    ok.

%% Queues whole, encoded, costly frames; they stay together and in order.
-spec send(handle(), [binary()]) -> ok.
send({Writer, Queue, link}, Frames) ->
    counters:add(Queue, 1, iolist_size(Frames)),
    Writer ! {send, Frames},
    ok;
send({Writer, Queue, words}, Frames) ->
    send({Writer, Queue, link}, [of_word(Frame) || Frame <- Frames]);
send({Writer, Queue, Slot}, Frames) ->
    send({Writer, Queue, link}, [within(Slot, Frame) || Frame <- Frames]).

of_word(<<Length:32, Type, Slot:16, Conn:48, Rest/binary>>) ->
    within(Slot, <<Length:32, Type, Conn:64, Rest/binary>>).

within(Slot, Frame) ->
    iolist_to_binary(halley_edge_encoder:encode_to_slot(Slot, Frame)).

%% Queues a frame that costs no credit.
-spec free(handle(), {ping | pong | credit, non_neg_integer()} | {keys, halley_jwks:set()}) -> ok.
free({Writer, Queue, link}, Frame) ->
    Encoded = iolist_to_binary(halley_edge_codec:encode(Frame)),
    counters:add(Queue, 1, ?MESSAGE_BYTES + byte_size(Encoded)),
    Writer ! {free, Encoded},
    ok.

%% The edge gave credit back.
-spec credit(handle(), Bytes :: non_neg_integer()) -> ok.
credit({Writer, Queue, link}, Bytes) ->
    counters:add(Queue, 1, ?MESSAGE_BYTES),
    Writer ! {credit, Bytes},
    ok.

%% Queues OPENED for sessions that came without a cursor and are in the directory. It is sent with
%% the link's once that has reached the present heads, so that nothing from before comes back by it.
-spec opened(handle(), [{halley_edge_codec:conn(), non_neg_integer()}]) -> ok.
opened({Writer, Queue, Whose}, Opened) ->
    Counted = iolist_size(halley_edge_codec:encode({opened, <<>>, Opened})),
    counters:add(Queue, 1, Counted),
    tell(Writer, Whose, {opened, Counted, halley_history:heads(), Opened}).

%% Queues the REPLAY with LAST; it is sent, with the link's cursor, once that has reached the heads
%% and those of the LASTs before it.
-spec last(handle(), halley_edge_codec:conn(), Heads :: halley_history:vector(),
           halley_edge_encoder:items()) -> ok.
last({Writer, Queue, Whose}, Conn, Heads, Items) ->
    Counted = iolist_size(last_frame(Conn, <<>>, Heads, Items)),
    counters:add(Queue, 1, Counted),
    tell(Writer, Whose, {last, Counted, Conn, Heads, Items}).

%% The REPLAY with LAST.
-spec last_frame(halley_edge_codec:conn(), Cursor :: binary(), halley_history:vector(),
                 halley_edge_encoder:items()) -> iolist().
last_frame(Conn, Cursor, Heads, Items) ->
    halley_edge_encoder:encode_replay(Conn, ?FLAG_LAST, Cursor, tuple_to_list(Heads), Items).

%% SYNC_BEGIN came. The worker gets a CURSOR before any session is opened.
-spec sync_begin(handle(), halley_edge_catchup:start()) -> ok.
sync_begin({Writer, _, Whose}, Start) ->
    tell(Writer, Whose, {sync_begin, Start}).

%% SYNC_END came and all sessions that it ends are in the directory.
-spec sync_end(handle()) -> ok.
sync_end({Writer, _, Whose}) ->
    tell(Writer, Whose, sync_end).

%% Writes GOODBYE behind what is already written, drops what waits, and ends the writer.
-spec goodbye(handle(), {goodbye, 1..8, binary()}) -> ok.
goodbye({Writer, _, _}, Goodbye) ->
    Writer ! Goodbye,
    ok.

-spec queue_bytes(handle()) -> integer().
queue_bytes({_, Queue, _}) ->
    counters:get(Queue, 1).

-spec bytes_max() -> pos_integer().
bytes_max() ->
    2 * halley_limits:get(link_queue_bytes_max).
