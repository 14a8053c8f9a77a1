%% The processes with monitors on a link: for the link's process, which monitors each watcher once
%% for each of its monitors, to withdraw them when it ends.
-module(teleport_watchers).

-export([new/0, add/3, take/2, find/2]).
-export_type([watchers/0]).

%% From each monitor to the link's own monitor of its watcher, and back.
-opaque watchers() :: #{Ref :: reference() => {MRef :: reference(), Watcher :: pid()}
                                             | reference()}.

-spec new() -> watchers().
new() -> #{}.

-spec add(reference(), Watcher :: pid(), watchers()) -> watchers().
add(Ref, Watcher, Watchers) ->
    MRef = erlang:monitor(process, Watcher),
    Watchers#{Ref => {MRef, Watcher}, MRef => Ref}.

%% Forgets it. Gives whose it was.
-spec take(reference(), watchers()) -> {Watcher :: pid(), watchers()} | none.
take(Ref, Watchers) ->
    case Watchers of
        #{Ref := {MRef, Watcher}} ->
            true = erlang:demonitor(MRef, [flush]),
            {Watcher, maps:without([Ref, MRef], Watchers)};
        #{} -> none
    end.

%% Whose watcher has ended.
-spec find(MRef :: reference(), watchers()) -> {ok, Ref :: reference()} | none.
find(MRef, Watchers) ->
    case Watchers of
        #{MRef := Ref} when is_reference(Ref) -> {ok, Ref};
        #{} -> none
    end.
