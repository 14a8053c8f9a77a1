%% How often something may happen: GCRA (ITU-T I.371) on one word of `atomics', for any number of
%% processes, without a lock.
%%
%% The word is the time at which the next one would be due if all came evenly spaced. It may lie a
%% second ahead, so a second's worth may come at once. Refused requests consume no quota.
%%
%% Not here: what is counted, and how often it may happen. A meter belongs to its caller, which
%% bounds their number; refusals aren't remembered.
-module(halley_rate).

-export([new/0, take/2, take/3]).
-export_type([meter/0]).

-opaque meter() :: atomics:atomics_ref().

-define(SECOND_NS, 1_000_000_000).

-spec new() -> meter().
new() ->
    Meter = atomics:new(1, [{signed, true}]),
    atomics:put(Meter, 1, now_ns()),
    Meter.

%% Counts one, if it may be. Otherwise: after how many milliseconds it may.
-spec take(meter(), PerS :: pos_integer()) -> ok | {wait, Ms :: pos_integer()}.
take(Meter, PerS) ->
    take(Meter, PerS, now_ns()).

-spec take(meter(), PerS :: pos_integer(), NowNs :: integer()) -> ok | {wait, Ms :: pos_integer()}.
take(Meter, PerS, NowNs) ->
    take(Meter, max(1, ?SECOND_NS div PerS), NowNs, atomics:get(Meter, 1)).

take(Meter, Interval, NowNs, Due) ->
    case max(Due, NowNs) + Interval of
        Next when Next - NowNs > ?SECOND_NS ->
            {wait, (Next - NowNs - ?SECOND_NS + 999_999) div 1_000_000};
        Next ->
            case atomics:compare_exchange(Meter, 1, Due, Next) of
                ok -> ok;
                Other -> take(Meter, Interval, NowNs, Other)
            end
    end.

now_ns() ->
    erlang:monotonic_time(nanosecond).
