%% How long a caller goes on with its connection while others wait for one: its turn.
%%
%% To hand a connection on wakes another process for each query. A caller that asks again at once
%% is running already, and its memory is in the processor's caches. So who asked again at once, and
%% had to wait, has a turn of `turn_ms' once a connection is handed to it. Within its turn it leaves
%% the connection idle between two queries, and takes it again before those who wait.
%%
%% A caller that pauses between queries has no turn: its connection is handed on directly. So the
%% bound of a wait is a turn and one query for each caller ahead, shared by all connections.
%%
%% In the caller's dictionary, of the pool that it waited for last:
%%   {Slots, gave, Since}    it has handed its connection on
%%   {Slots, asks}           it waits, and asked at once
%%   {Slots, Slot, Until}    its turn
-module(epgsql_pool_turn).

-export([waits/1, begins/3, goes_on/2, again/2]).

-define(AT_ONCE_US, 100).

%% The caller is about to wait.
-spec waits(epgsql_pool_slots:slots()) -> ok.
waits(Slots) ->
    IsAtOnce = case get(?MODULE) of
        {Slots, gave, Since} -> erlang:monotonic_time() - Since < native(?AT_ONCE_US);
        %% Somebody else took what it had left for a moment.
        {Slots, _, Until} -> erlang:monotonic_time() < Until;
        _ -> false
    end,
    _ = case IsAtOnce of
            true -> put(?MODULE, {Slots, asks});
            false -> erase(?MODULE)
        end,
    ok.

%% A connection was handed to it.
-spec begins(epgsql_pool_slots:slot(), epgsql_pool_slots:slots(), TurnMs :: non_neg_integer()) ->
          ok.
begins(Slot, Slots, TurnMs) ->
    _ = case get(?MODULE) of
            {Slots, asks} ->
                put(?MODULE, {Slots, Slot, erlang:monotonic_time() + native(1000 * TurnMs)});
            _ -> none
        end,
    ok.

%% It gives the connection back while others wait. `false': to one of them.
-spec goes_on(epgsql_pool_slots:slot(), epgsql_pool_slots:slots()) -> boolean().
goes_on(Slot, Slots) ->
    Now = erlang:monotonic_time(),
    case get(?MODULE) of
        {Slots, Slot, Until} when Now < Until -> true;
        _ ->
            _ = put(?MODULE, {Slots, gave, Now}),
            false
    end.

%% It asks while others wait.
-spec again(Me :: epgsql_pool_slots:word(), epgsql_pool_slots:slots()) ->
          {ok, epgsql_pool_slots:slot()} | none.
again(Me, Slots) ->
    case get(?MODULE) of
        {Slots, Slot, Until} when is_integer(Slot) ->
            case erlang:monotonic_time() < Until
                 andalso epgsql_pool_slots:exchange(Slot, idle, Me, Slots) of
                true -> {ok, Slot};
                false -> none
            end;
        _ -> none
    end.

native(Us) -> erlang:convert_time_unit(Us, microsecond, native).
