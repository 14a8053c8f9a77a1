%% The queue of a link: the messages to its writer, each counted by its bytes.
%%
%%   {deliver, [{halley_event:delivery(), to()}]}  events, the oldest first, each to connections, or
%%                                               to a group and others
%%   {members, join | leave, Group, Words}       members of a group; they are sent though it is
%%   {end_group, Group}                          behind, since no history has them
%%   {mark, Shard, Seq}                          the shard has nothing more for anyone up to Seq
%%   {presence, [{Json, Words}]}                 presence for connections, in order
%%   {close_sessions, Reason :: binary(), Words} Words: a list
%% are the messages, besides `behind' of `halley_links_backpressure'. The shard alone sends the
%% first four, so they stay in its order. `deliver/2' adds `cost/2' to the link's counter before it
%% sends, `members/4' the bytes of the connections, `close_sessions/3' `close_cost/1', `presence/2'
%% `presence_cost/1'; the writer subtracts as many when they were handed to the socket.
%%
%% The counter bounds the queue: an event that would take it past `link_queue_bytes_max' is not
%% sent, and the link falls behind.
%%
%% Connections are words as in the directory, so that one message serves all workers of the edge: in
%% a list, or in a binary. An event for a group names the slots that have members.
%%
%% Sending asks no process: it reads the table of `halley_links'.
-module(halley_links_queue).

-export([deliver/2, members/4, end_group/1, mark/2, mark/3, leave_to_history/0]).
-export([close_sessions/3, presence/2, cost/2, close_cost/1, presence_cost/1]).
-export_type([to/0, to_slot/0, presence/0]).

-include("halley_links.hrl").

-type slot() :: halley_links:slot().
%% Words, each a u64, big-endian; or a group, the slots that have members of it, ascending, and
%% the words of connections that aren't its members.
-type to() :: Words :: binary()
            | {group, halley_id:user_number(), [slot(), ...], Words :: binary()}.
%% What of it is for one slot, as a writer splits it.
-type to_slot() :: Conns :: binary() | {group, halley_id:user_number(), Conns :: binary()}.

%% A text, and the connections of one slot that get it.
-type presence() :: {Json :: binary(), To :: [halley_directory:conn(), ...]}.

%% DELIVER without its item and conns, GROUP_DELIVER without its item (link.md 2).
-define(DELIVER_BYTES, 7).
-define(GROUP_DELIVER_BYTES, 9).
%% The count of the slots in that of a trunk.
-define(SLOTS_BYTES, 2).
%% About what a CLOSE_SESSIONS and its message have besides the connections.
-define(CLOSE_BYTES, 128).
%% Of the connections in one (7.3).
-define(CONNS_BYTES_MAX, (8 * 8192)).

%% Sends events to connections of an edge, the oldest first, in one message. `behind': it gets those
%% that are over its bound, or all, from the history, later.
-spec deliver(halley_links:link(), [{halley_event:delivery(), to()}, ...]) -> ok | behind.
deliver(#link{way = Way, writer = Writer, queue = Queue}, Deliveries) ->
    case halley_links_backpressure:is_behind(Way) of
        false ->
            Waiting = counters:get(Queue, 1),
            Room = halley_limits:get(link_queue_bytes_max) - Waiting,
            {Sent, Cost, Left} = fitting(Deliveries, Room),
            halley_links_backpressure:note(Waiting + Cost + left_cost(Left)),
            counters:add(Queue, 1, Cost),
            _ = Sent =/= [] andalso (Writer ! {deliver, Sent}),
            left(Left, Way, Writer);
        true ->
            behind
    end.

%% Those that fit into so many bytes, what they cost, and the others.
fitting(Deliveries, Room) ->
    Cost = lists:foldl(fun({Delivery, To}, Sum) -> Sum + cost(Delivery, To) end, 0, Deliveries),
    case Cost =< Room of
        true -> {Deliveries, Cost, []};
        false -> fitting(Deliveries, Room, 0, [])
    end.

fitting([{Delivery, To} = First | Rest] = Left, Room, Cost, Sent) ->
    case Cost + cost(Delivery, To) of
        More when More =< Room -> fitting(Rest, Room, More, [First | Sent]);
        _ -> {lists:reverse(Sent), Cost, Left}
    end.

left_cost([]) -> 0;
left_cost([{Delivery, To} | _]) -> cost(Delivery, To).

left([], _, _) ->
    ok;
left(_, Way, Writer) ->
    case halley_links_backpressure:fall_behind(Way, Writer) of
        fell -> halley_metrics:incr(links_behind);
        was -> ok
    end,
    behind.

%% The bytes of the DELIVER frames that one `deliver' message becomes, without the cursors that the
%% writer puts into them when there are several.
-spec cost(halley_event:delivery(), to() | to_slot()) -> pos_integer().
cost({_, _, Wire}, {group, _, <<>>}) ->
    ?GROUP_DELIVER_BYTES + byte_size(Wire);
cost({_, _, Wire} = Delivery, {group, _, Conns}) ->
    ?GROUP_DELIVER_BYTES + byte_size(Wire) + cost(Delivery, Conns);
cost(Delivery, {group, Group, Slots, Conns}) ->
    ?SLOTS_BYTES + 2 * length(Slots) + cost(Delivery, {group, Group, Conns});
cost({_, _, Wire}, Conns) ->
    Frames = 1 + byte_size(Conns) div ?CONNS_BYTES_MAX,
    Frames * (?DELIVER_BYTES + byte_size(Wire)) + byte_size(Conns).

%% Sends a worker members of a group; the words are of its slot. The subject's shard alone calls it,
%% so it stays in order with the group's events. A worker that has ended gets nothing: its sessions
%% aren't members.
-spec members(slot(), join | leave, Group :: halley_id:user_number(), Words :: binary()) -> ok.
members(Slot, What, Group, Words) ->
    case ets:lookup(?LINKS, Slot) of
        [#link{writer = Writer, queue = Queue}] ->
            counters:add(Queue, 1, byte_size(Words)),
            Writer ! {members, What, Group, Words},
            ok;
        [] ->
            ok
    end.

%% Sends every link the end of a group. Only the subject's shard calls it.
-spec end_group(Group :: halley_id:user_number()) -> ok.
end_group(Group) ->
    each_writer(fun(#link{writer = Writer}) -> Writer ! {end_group, Group} end).

each_writer(Do) ->
    ets:foldl(fun(#link{slot = Way, way = Way} = Link, ok) -> _ = Do(Link), ok;
                 (_, ok) -> ok
              end, ok, ?LINKS).

%% Sends every link that isn't behind how far the shard is. Only the shard calls it.
-spec mark(halley_shards:index(), halley_cursor:seq()) -> ok.
mark(Shard, Seq) ->
    Message = {mark, Shard, Seq},
    each_writer(fun(#link{way = Way, writer = Writer}) ->
        halley_links_backpressure:is_behind(Way) orelse (Writer ! Message)
    end).

%% The same for one, by its way.
-spec mark(slot(), halley_shards:index(), halley_cursor:seq()) -> ok.
mark(Slot, Shard, Seq) ->
    _ = [Writer ! {mark, Shard, Seq} || not halley_links_backpressure:is_behind(Slot),
                                        #link{writer = Writer} <- ets:lookup(?LINKS, Slot)],
    ok.

%% Marks every link behind, whatever waits there. For a shard that starts in place of one that
%% died: what two processes send may overtake each other, so its first mark could arrive before the
%% last events of the other one. Now it finds no link that takes it, and the events come from the
%% history.
-spec leave_to_history() -> ok.
leave_to_history() ->
    each_writer(fun(#link{way = Way, writer = Writer}) ->
        halley_links_backpressure:fall_behind(Way, Writer)
    end).

%% Asks a worker to close connections; it does nothing if the worker's slot has ended.
-spec close_sessions(slot(), [halley_directory:conn()], Reason :: binary()) -> ok.
close_sessions(Slot, Conns, Reason) ->
    case ets:lookup(?LINKS, Slot) of
        [#link{writer = Writer, queue = Queue}] ->
            counters:add(Queue, 1, close_cost(Conns)),
            Writer ! {close_sessions, Reason, words(Slot, Conns)},
            ok;
        [] ->
            ok
    end.

%% Sends presence to connections of a worker, in one message. `behind': too much waits for its link.
-spec presence(slot(), [presence(), ...]) -> ok | behind | gone.
presence(Slot, Texts) ->
    Cost = lists:sum([presence_cost(One) || One <- Texts]),
    case ets:lookup(?LINKS, Slot) of
        [#link{writer = Writer, queue = Queue}] ->
            HasRoom = counters:get(Queue, 1) + Cost =< halley_limits:get(link_queue_bytes_max),
            HasRoom andalso counters:add(Queue, 1, Cost),
            HasRoom andalso (Writer ! {presence, [{J, words(Slot, C)} || {J, C} <- Texts]}),
            case HasRoom of true -> ok; false -> behind end;
        [] -> gone
    end.

-spec presence_cost(presence()) -> pos_integer().
presence_cost({Json, Conns}) -> byte_size(Json) + close_cost(Conns).

words(Slot, Conns) -> [Slot bsl 48 bor Conn || Conn <- Conns].

%% What counts for a `close_sessions' message while it waits for the writer.
-spec close_cost([halley_directory:conn()]) -> pos_integer().
close_cost(Conns) ->
    ?CLOSE_BYTES + 8 * length(Conns).
