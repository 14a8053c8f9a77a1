%% Presence messages, gathered for each link: a turn with many of them sends each link one message,
%% and its writer writes once.
%%
%% Texts for one link stay in the order in which they were added. The caller bounds their number: it
%% sends when `is_much/1' is true, and at the end of its turn.
-module(halley_presence_tell).

-export([new/0, add/3, is_much/1, send/2, with_room/1]).
-export_type([gathered/0]).

-define(CONN_BITS, 48).
-define(CONN_MAX, ((1 bsl ?CONN_BITS) - 1)).
-define(MUCH_BYTES, 65536).

-record(gathered, {
    bytes = 0 :: non_neg_integer(),
    %% The last one first.
    links = #{} :: #{halley_links:slot() => [halley_links_queue:presence(), ...]}
}).
-opaque gathered() :: #gathered{}.

-spec new() -> gathered().
new() -> #gathered{}.

%% Words in any order.
-spec add([halley_directory:word()], Json :: binary(), gathered()) -> gathered().
add([], _, Gathered) ->
    Gathered;
add([Word], Json, Gathered) ->
    to_slot(Word bsr ?CONN_BITS, [Word band ?CONN_MAX], Json, Gathered);
add(Words, Json, Gathered) ->
    BySlot = maps:groups_from_list(fun(Word) -> Word bsr ?CONN_BITS end,
                                   fun(Word) -> Word band ?CONN_MAX end, Words),
    maps:fold(fun(Slot, Conns, G) -> to_slot(Slot, Conns, Json, G) end, Gathered, BySlot).

to_slot(Slot, Conns, Json, #gathered{bytes = Bytes, links = Links}) ->
    Before = maps:get(Slot, Links, []),
    Told = told(Json, Conns, halley_limits:get(deliver_conns_max), Before),
    #gathered{bytes = Bytes + halley_links_queue:presence_cost({Json, Conns}),
              links = Links#{Slot => Told}}.

told(Json, Conns, Max, Before) when length(Conns) =< Max ->
    [{Json, Conns} | Before];
told(Json, Conns, Max, Before) ->
    {Now, Later} = lists:split(Max, Conns),
    told(Json, Later, Max, [{Json, Now} | Before]).

%% Whether it is time to send.
-spec is_much(gathered()) -> boolean().
is_much(#gathered{bytes = Bytes}) -> Bytes >= ?MUCH_BYTES.

%% Hands everything to the links but those that are to be told the state anew. Gives the slots of
%% those that had no room for it.
-spec send(gathered(), Owed :: #{halley_links:slot() => term()}) -> [halley_links:slot()].
send(#gathered{links = Links}, Owed) ->
    [Slot || {Slot, Told} <- maps:to_list(Links), not is_map_key(Slot, Owed),
             halley_links_queue:presence(Slot, lists:reverse(Told)) =:= behind].

%% Those of them that have half of their queue free, or are no link any more.
-spec with_room([halley_links:slot()]) -> [halley_links:slot()].
with_room(Slots) ->
    Half = halley_limits:get(link_queue_bytes_max) div 2,
    Queues = maps:from_list([{Slot, Bytes}
                             || #{slot := Slot, queue_bytes := Bytes} <- halley_links:list()]),
    [Slot || Slot <- Slots, maps:get(Slot, Queues, 0) < Half].
