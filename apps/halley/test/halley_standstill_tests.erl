%% Late timers, one after the other: when no user may count as gone, and for how long at most.
-module(halley_standstill_tests).

-include_lib("eunit/include/eunit.hrl").

%% Whether it is over at each of these times, with timers that fired: {Due, Now}.
over(Fired, Times) ->
    Standstill = lists:foldl(fun({Due, Now}, S) -> halley_standstill:fired(Due, Now, S) end,
                             halley_standstill:new(), Fired),
    [halley_standstill:is_over(Time, Standstill) || Time <- Times].

%% Times of an emulator may be below zero.
in_time_test() ->
    ?assertEqual([true, true], over([], [-9000, 0])),
    ?assertEqual([true, true], over([{-9000, -8900}, {-8800, -8650}], [-8650, -8600])).

late_test() ->
    ?assertEqual([false, false, true], over([{-9000, -7000}], [-7000, -6100, -6000])),
    Again = [{-9000, -7000}, {-6900, -6890}],
    ?assertEqual([false, false, true], over(Again, [-6890, -6001, -6000])).

%% The second time it stands still counts as the first did.
again_test() ->
    ?assertEqual([false, true], over([{0, 3000}, {4100, 6000}], [6900, 7000])).

%% Also if each is later than a hold.
always_very_late_test_() ->
    [fun() ->
         Fired = [{Now - LateMs, Now} || Now <- lists:seq(Every, 20 * Every, Every)],
         {First, _} = lists:split(9, Fired),
         ?assertEqual([false], over(First, [9 * Every])),
         ?assertEqual([true], over(Fired, [20 * Every]))
     end || {LateMs, Every} <- [{1000, 1100}, {1400, 1500}, {59900, 60000}]].

%% It had much to do for some seconds, and then stood still for a minute.
late_and_then_still_test() ->
    Late = [{Now - 500, Now} || Now <- lists:seq(500, 5000, 500)],
    ?assertEqual([false, true], over(Late ++ [{5100, 65000}], [65999, 66000])).

%% One that is always late is held up for a while, and then no more.
always_late_test() ->
    Fired = [{Now - 500, Now} || Now <- lists:seq(1000, 20000, 500)],
    {First, _} = lists:split(15, Fired),
    ?assertEqual([false], over(First, [8500])),
    ?assertEqual([true], over(Fired, [20000])).
