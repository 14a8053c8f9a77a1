%% Presence messages, gathered for each link: a turn with many of them sends each link one message,
%% and its writer writes once.
%%
%% Texts for one link stay in the order in which they were added. They are sent when there are many,
%% and when `send/1' is called at the end of a turn.
%%
%% A link that has no room for its texts is *owed*: it gets none of them, and none before `pay/1'
%% gives it back, to be sent the state of all its subjects.
-module(halley_presence_batch).

-export([new/0, add/3, send/1, pay/1]).
-export_type([batch/0]).

-define(CONN_BITS, 48).
-define(CONN_MAX, ((1 bsl ?CONN_BITS) - 1)).
-define(MUCH_BYTES, 65536).

-type slot() :: halley_links:slot().

-record(batch, {
    bytes = 0 :: non_neg_integer(),
    %% The last one first.
    links = #{} :: #{slot() => [halley_links_queue:presence(), ...]},
    owed = #{} :: #{slot() => []}
}).
-opaque batch() :: #batch{}.

-spec new() -> batch().
new() -> #batch{}.

%% Words in any order.
-spec add([halley_directory:word()], Json :: binary(), batch()) -> batch().
add(Words, Json, Batch) ->
    case added(Words, Json, Batch) of
        #batch{bytes = Bytes} = Much when Bytes >= ?MUCH_BYTES -> send(Much);
        More -> More
    end.

added([], _, Batch) ->
    Batch;
added([Word], Json, Batch) ->
    to_slot(Word bsr ?CONN_BITS, [Word band ?CONN_MAX], Json, Batch);
added(Words, Json, Batch) ->
    BySlot = maps:groups_from_list(fun(Word) -> Word bsr ?CONN_BITS end,
                                   fun(Word) -> Word band ?CONN_MAX end, Words),
    maps:fold(fun(Slot, Conns, B) -> to_slot(Slot, Conns, Json, B) end, Batch, BySlot).

to_slot(Slot, Conns, Json, #batch{bytes = Bytes, links = Links} = Batch) ->
    Before = maps:get(Slot, Links, []),
    Texts = texts(Json, Conns, halley_limits:get(deliver_conns_max), Before),
    Batch#batch{bytes = Bytes + halley_links_queue:presence_cost({Json, Conns}),
                links = Links#{Slot => Texts}}.

texts(Json, Conns, Max, Before) when length(Conns) =< Max ->
    [{Json, Conns} | Before];
texts(Json, Conns, Max, Before) ->
    {Now, Later} = lists:split(Max, Conns),
    texts(Json, Later, Max, [{Json, Now} | Before]).

%% Sends everything to the links but those that are owed.
-spec send(batch()) -> batch().
send(#batch{links = Links, owed = Owed}) ->
    Slots = [Slot || {Slot, Texts} <- maps:to_list(Links), not is_map_key(Slot, Owed),
                     halley_links_queue:presence(Slot, lists:reverse(Texts)) =:= behind],
    Slots =:= [] orelse halley_metrics:incr(presence_owed, length(Slots)),
    #batch{owed = maps:merge(Owed, maps:from_keys(Slots, []))}.

%% The links that were owed and have half of their queue free, or have ended: they are owed no more,
%% and the caller adds the state of all their subjects.
-spec pay(batch()) -> {[slot()], batch()}.
pay(#batch{owed = Owed} = Batch) when map_size(Owed) =:= 0 ->
    {[], Batch};
pay(Unsent) ->
    #batch{owed = Owed} = Batch = send(Unsent),
    Paid = with_room(maps:keys(Owed)),
    {Paid, Batch#batch{owed = maps:without(Paid, Owed)}}.

with_room(Slots) ->
    Half = halley_limits:get(link_queue_bytes_max) div 2,
    Queues = maps:from_list([{Slot, Bytes}
                             || #{slot := Slot, queue_bytes := Bytes} <- halley_links:list()]),
    [Slot || Slot <- Slots, maps:get(Slot, Queues, 0) < Half].
