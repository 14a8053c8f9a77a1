%% The catch-ups that run for a trunk: for which slots each is, and what it waits for. Part of the
%% state of halley_edge_trunk_writer, whose processes they are linked to.
%%
%% A catch-up is
%%   working   the next message is its own;
%%   waiting   for little to wait for the trunk;
%%   asking    for events to be sent again.
-module(halley_edge_catchups).

-export([new/0, is_empty/1, start/5, find/2, ended/2, go_on/2, put/3, in/2, is_apart/1, without/2]).
-export_type([catchups/0, whose/0]).

%% `trunk': for those who follow it.
-type whose() :: trunk | #{halley_links:slot() => []}.
-type phase() :: working | waiting | asking.
-opaque catchups() :: #{pid() => {whose(), phase()}}.

-spec new() -> catchups().
new() -> #{}.

-spec is_empty(catchups()) -> boolean().
is_empty(Catchups) -> map_size(Catchups) =:= 0.

%% For these slots, from there on.
-spec start(whose(), #{halley_links:slot() => []}, halley_history:vector(),
            Second :: non_neg_integer(), catchups()) -> catchups().
start(Whose, Slots, Vector, Second, Catchups) ->
    Catchups#{halley_edge_catchup:start_link(Slots, Vector, Second) => {Whose, working}}.

-spec find(pid(), catchups()) -> {ok, whose()} | none.
find(Pid, Catchups) ->
    case Catchups of
        #{Pid := {Whose, _}} -> {ok, Whose};
        #{} -> none
    end.

-spec ended(pid(), catchups()) -> catchups().
ended(Pid, Catchups) -> maps:remove(Pid, Catchups).

%% What it said has been dealt with.
-spec go_on(pid(), catchups()) -> catchups().
go_on(Pid, Catchups) ->
    ok = halley_edge_catchup:go_on(Pid),
    put(Pid, working, Catchups).

-spec put(pid(), phase(), catchups()) -> catchups().
put(Pid, Phase, Catchups) ->
    maps:update_with(Pid, fun({Whose, _}) -> {Whose, Phase} end, Catchups).

%% Those that are so.
-spec in(phase(), catchups()) -> [pid()].
in(Phase, Catchups) ->
    [Pid || {Pid, {_, P}} <- maps:to_list(Catchups), P =:= Phase].

%% Whether one runs for slots that don't follow the trunk.
-spec is_apart(catchups()) -> boolean().
is_apart(Catchups) ->
    lists:any(fun({Whose, _}) -> Whose =/= trunk end, maps:values(Catchups)).

%% A slot has ended. A catch-up without slots ends, too.
-spec without(halley_links:slot(), catchups()) -> catchups().
without(Slot, Catchups) ->
    maps:filtermap(fun
        (_, {trunk, _}) ->
            true;
        (Pid, {Slots, Phase}) ->
            case maps:remove(Slot, Slots) of
                Left when map_size(Left) > 0 ->
                    {true, {Left, Phase}};
                _ ->
                    unlink(Pid),
                    exit(Pid, kill),
                    false
            end
    end, Catchups).
