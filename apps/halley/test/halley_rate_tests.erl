%% As many as may be, neither more nor fewer, by a clock of the test's own.
-module(halley_rate_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SECOND, 1_000_000_000).

%% How many of `N' pass that come at once at this time.
passing(N, Meter, PerS, At) ->
    length([ok || _ <- lists:seq(1, N), halley_rate:take(Meter, PerS, At) =:= ok]).

new(At) ->
    Meter = halley_rate:new(),
    atomics:put(Meter, 1, At),
    Meter.

a_second_may_come_at_once_test() ->
    Meter = new(0),
    ?assertEqual(100, passing(1000, Meter, 100, 0)),
    ?assertEqual(0, passing(1000, Meter, 100, 9_999_999)),
    ?assertEqual(1, passing(1000, Meter, 100, 10_000_000)),
    ?assertEqual(99, passing(1000, Meter, 100, ?SECOND)),
    %% Time that nobody used is a second's worth, not more.
    ?assertEqual(100, passing(1000, Meter, 100, 50 * ?SECOND)).

one_a_second_test() ->
    Meter = new(-7),
    ?assertEqual(1, passing(3, Meter, 1, -7)),
    ?assertEqual({wait, 1000}, halley_rate:take(Meter, 1, -7)),
    ?assertEqual({wait, 1}, halley_rate:take(Meter, 1, ?SECOND - 8)),
    ?assertEqual(ok, halley_rate:take(Meter, 1, ?SECOND - 7)).

%% Who waits as long as it was told passes, whoever else was refused meanwhile.
the_wait_is_true_test() ->
    Meter = new(0),
    7 = passing(7, Meter, 7, 0),
    {wait, Ms} = halley_rate:take(Meter, 7, 0),
    0 = passing(50, Meter, 7, 1000),
    ?assertMatch({wait, _}, halley_rate:take(Meter, 7, (Ms - 1) * 1_000_000)),
    ?assertEqual(ok, halley_rate:take(Meter, 7, Ms * 1_000_000)).

steady_test() ->
    Meter = new(0),
    Passed = lists:sum([passing(20, Meter, 1000, Ms * 1_000_000) || Ms <- lists:seq(0, 9999)]),
    ?assertEqual(10_000 + 1000 - 1, Passed).

%% By all schedulers at once: not one more.
many_processes_test() ->
    Meter = new(0),
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), passing(2000, Meter, 1000, 0)} end)
            || _ <- lists:seq(1, 8)],
    ?assertEqual(1000, lists:sum([receive {Pid, N} -> N end || Pid <- Pids])).

%% However long the test stands still between any two of these.
of_this_clock_test() ->
    Meter = halley_rate:new(),
    Before = erlang:monotonic_time(nanosecond),
    ?assertEqual(ok, halley_rate:take(Meter, 1)),
    After = erlang:monotonic_time(nanosecond),
    Due = atomics:get(Meter, 1),
    ?assert(Before + ?SECOND =< Due andalso Due =< After + ?SECOND),
    atomics:put(Meter, 1, Due + 3600 * ?SECOND),
    ?assertMatch({wait, Ms} when Ms > 3_000_000 andalso Ms =< 3_601_000,
                 halley_rate:take(Meter, 1)).
