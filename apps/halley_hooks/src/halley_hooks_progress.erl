%% How far the queue is on disk, and how far its hooks were taken by the endpoint: two words that
%% the taker and the sender share, and what the gauges show.
%%
%% A place in the queue is a segment's number and an offset, in one word, so it is read whole.
-module(halley_hooks_progress).

-export([new/0, set/2, get/1, count/2]).
-compile({no_auto_import, [get/1]}).
-export_type([place/0]).

-type place() :: {Segment :: non_neg_integer(), Offset :: non_neg_integer()}.

-define(INDEX, #{written => 1, acked => 2, waiting => 3, told => 4, since => 5}).
-define(OFFSET_BITS, 36).

-spec new() -> ok.
new() ->
    persistent_term:put(?MODULE, atomics:new(5, [{signed, true}])),
    halley_metrics:gauges([hooks_waiting, hooks_behind, hooks_told], fun() ->
        Values = persistent_term:get(?MODULE),
        Waiting = atomics:get(Values, 3),
        #{hooks_waiting => Waiting, hooks_told => atomics:get(Values, 4),
          hooks_behind => case atomics:get(Values, 5) of
                              Since when Waiting > 0, Since > 0 -> now_s() - Since;
                              _ -> 0
                          end}
    end).

%% Seconds that don't jump; never zero.
now_s() -> erlang:monotonic_time(second) - erlang:system_info(start_time) div 1000000000 + 1.

-spec set(written | acked, place()) -> ok.
set(Which, {Segment, Offset}) ->
    store(Which, Segment bsl ?OFFSET_BITS bor Offset).

-spec get(written | acked) -> place().
get(Which) ->
    Word = atomics:get(persistent_term:get(?MODULE), map_get(Which, ?INDEX)),
    {Word bsr ?OFFSET_BITS, Word band (1 bsl ?OFFSET_BITS - 1)}.

%% `up_to_date': everything was taken just now.
-spec count(waiting | told | up_to_date, non_neg_integer()) -> ok.
count(up_to_date, _) -> store(since, now_s());
count(Which, Value) -> store(Which, Value).

store(Which, Value) ->
    atomics:put(persistent_term:get(?MODULE), map_get(Which, ?INDEX), Value).
