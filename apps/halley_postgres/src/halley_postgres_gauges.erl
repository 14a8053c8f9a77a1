%% The values of the gauges `halley_postgres_*'.
-module(halley_postgres_gauges).

-export([new/0, set/2, set_max/2]).

-define(INDEX, #{streaming => 1, confirmed => 2, written => 3, stopped => 4}).

-spec new() -> ok.
new() ->
    Values = atomics:new(4, [{signed, true}]),
    persistent_term:put(?MODULE, Values),
    halley_metrics:gauges([postgres_streaming, postgres_lag, postgres_stopped], fun() ->
        #{postgres_streaming => atomics:get(Values, 1),
          postgres_lag => max(0, atomics:get(Values, 3) - atomics:get(Values, 2)),
          postgres_stopped => atomics:get(Values, 4)}
    end).

%% `written' is the server's position, `confirmed' the one that it was told.
-spec set(streaming | confirmed | written | stopped, integer()) -> ok.
set(Name, Value) ->
    atomics:put(persistent_term:get(?MODULE), map_get(Name, ?INDEX), Value).

-spec set_max(written, integer()) -> ok.
set_max(Name, Value) ->
    Values = persistent_term:get(?MODULE),
    Index = map_get(Name, ?INDEX),
    atomics:put(Values, Index, max(Value, atomics:get(Values, Index))).
