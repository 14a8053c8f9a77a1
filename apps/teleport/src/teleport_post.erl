%% Hands elements to the writer of their lane, and counts them into the route's queue: the cost of
%% each, and how it travels.
-module(teleport_post).

-export([cost/2, hand_over/6, withdraw/3, take_back/3, lane/2]).
-export_type([way/0]).

-include("teleport.hrl").

-type way() :: teleport_cost:way().

%% Whatever waits: it takes back something that the bound let in, so there is one for each at most.
%% Behind what Key has posted, whoever takes it back in its place.
-spec withdraw(#route{}, Key :: pid(), {cancel | demonitor, reference()}) -> ok.
withdraw(#route{queue = Queue, writers = Writers} = Route, Key, Element) ->
    {small, Cost} = cost(Route, Element),
    ok = atomics:add(Queue, ?QUEUE_SMALL, Cost),
    teleport_writer:post_behind(lane(Key, Writers), Key, Element, Cost).

%% What was counted and isn't handed over. Whoever asked for room meanwhile may have been told that
%% there is none: the link looks again, once for the one whose part it was that was too much.
-spec take_back(#route{}, way(), Cost :: pos_integer()) -> ok.
take_back(#route{link = Link, queue = Queue, queue_bytes_max = Max}, Way, Cost) ->
    Left = atomics:sub_get(Queue, ?QUEUE_OF(Way), Cost),
    case Left =< Max div 2 andalso Left + Cost > Max div 2
        andalso atomics:get(Queue, ?QUEUE_WAITING) > 0 of
        true -> Link ! room, ok;
        false -> ok
    end.

-spec cost(#route{}, teleport_codec:element()) ->
    {way(), Cost :: pos_integer()} | {error, too_large}.
cost(#route{large_bytes = Large, message_bytes_max = Max}, Element) ->
    teleport_cost:cost(Large, Max, Element).

%% After its cost was counted.
-spec hand_over(way(), #route{}, Key :: pid(), teleport_codec:element(), pos_integer(),
                teleport_writer:lost()) -> ok.
hand_over(small, #route{writers = Writers} = Route, Key, Element, Cost, Lost) ->
    to_writer(lane(Key, Writers), Route, Key, {small, Element}, Cost, Lost);
hand_over(large, #route{writers = Writers} = Route, Key, Element, Cost, Lost) ->
    Encoded = teleport_large:encode(Element),
    to_writer(lane(Key, Writers), Route, Key, {large, Encoded}, Cost, Lost).

to_writer(Writer, _, Key, Payload, Cost, none) ->
    teleport_writer:post(Writer, Key, Payload, Cost, none);
to_writer(Writer, #route{node = Node, queue = Queue}, Key, Payload, Cost, {Pid, Name} = Lost) ->
    ok = teleport_writer:post(Writer, Key, Payload, Cost, Lost),
    %% Long after the link's end, by a route that is as old. Both may tell it then.
    case atomics:get(Queue, ?QUEUE_ENDED) =:= 0 andalso is_process_alive(Writer) of
        true -> ok;
        false -> Pid ! {teleport_lost, Node, [Name]}, ok
    end.

%% Of the writers, or of what else there is one of for each lane: that of the lane of all that is
%% posted under this key.
-spec lane(Key :: pid(), tuple()) -> term().
lane(Key, Writers) -> element(erlang:phash2(Key, tuple_size(Writers)) + 1, Writers).
