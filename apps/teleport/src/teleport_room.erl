%% The senders that wait at a link for room. Each is monitored: one that ends waits no more.
-module(teleport_room).

-export([new/0, add/4, remove/2, sender_ended/2, wake/2, count/1]).
-export_type([room/0]).

-type way() :: teleport_cost:way().
%% From each wait, named by an alias, to its number, which is higher for who came later, and to the
%% monitor of its sender; and from that monitor back.
-opaque room() :: #{Alias :: reference() => {integer(), way(), MRef :: reference()}
                                            | (Alias :: reference())}.

-spec new() -> room().
new() -> #{}.

-spec add(way(), Alias :: reference(), Sender :: pid(), room()) -> room().
add(Way, Alias, Sender, Room) ->
    MRef = erlang:monitor(process, Sender),
    Room#{Alias => {erlang:unique_integer([monotonic]), Way, MRef}, MRef => Alias}.

-spec remove(Alias :: reference(), room()) -> room().
remove(Alias, Room) ->
    case Room of
        #{Alias := {_, _, MRef}} ->
            true = erlang:demonitor(MRef, [flush]),
            maps:without([Alias, MRef], Room);
        #{} ->
            Room
    end.

-spec sender_ended(MRef :: reference(), room()) -> room().
sender_ended(MRef, Room) ->
    case Room of
        #{MRef := Alias} when is_reference(Alias) -> maps:without([Alias, MRef], Room);
        #{} -> Room
    end.

%% All that wait for room of this kind, in the order of asking.
-spec wake(way(), room()) -> room().
wake(_, Room) when map_size(Room) =:= 0 -> Room;
wake(Way, Room) ->
    Waiting = lists:sort([{Number, Alias} || {Alias, {Number, Of, _}} <- maps:to_list(Room),
                                             Of =:= Way]),
    lists:foldl(fun({_, Alias}, Left) ->
        Alias ! {Alias, room},
        remove(Alias, Left)
    end, Room, Waiting).

-spec count(room()) -> non_neg_integer().
count(Room) -> map_size(Room) div 2.
