%% When a checkpoint of the follows begins.
-module(halley_store_pace_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MIB, (1 bsl 20)).

due_test() ->
    Pace = halley_store_pace:new(0, 0),
    {none, Almost} = halley_store_pace:journalled(16 * ?MIB - 1, 0, Pace),
    ?assertMatch({due, _}, halley_store_pace:journalled(1, 0, Almost)),
    ?assertMatch({none, _}, halley_store_pace:journalled(1, 17 * ?MIB, Almost)),
    ?assert(halley_store_pace:is_due_idle(0, Almost)),
    ?assertNot(halley_store_pace:is_due_idle(0, Pace)).

%% What is written while it is on its way counts for the next.
on_its_way_test() ->
    {due, Due} = halley_store_pace:journalled(16 * ?MIB, 0, halley_store_pace:new(0, 0)),
    Begun = halley_store_pace:begun(Due),
    ?assertNot(halley_store_pace:may_begin(0, Begun)),
    {none, More} = halley_store_pace:journalled(10 * ?MIB, 0, Begun),
    ?assertMatch({late, _}, halley_store_pace:journalled(38 * ?MIB, 0, More)),
    Done = halley_store_pace:done(More),
    ?assert(halley_store_pace:may_begin(0, Done)),
    ?assertMatch({none, _}, halley_store_pace:journalled(6 * ?MIB - 1, 0, Done)),
    ?assertMatch({due, _}, halley_store_pace:journalled(6 * ?MIB, 0, Done)).

%% A try writes all that there is, so tries that fail get rarer; the first that succeeds ends that.
backoff_test() ->
    {Pauses, Failed} = lists:mapfoldl(fun(_, Pace) ->
        {AfterMs, Next} = halley_store_pace:failed(0, halley_store_pace:begun(Pace)),
        ?assertNot(halley_store_pace:may_begin(AfterMs - 1, Next)),
        ?assert(halley_store_pace:may_begin(AfterMs, Next)),
        {AfterMs div 1000, Next}
    end, halley_store_pace:new(0, 0), lists:seq(1, 8)),
    ?assertEqual([30, 60, 120, 240, 480, 960, 960, 960], Pauses),
    Done = halley_store_pace:done(halley_store_pace:begun(Failed)),
    ?assertMatch({30000, _}, halley_store_pace:failed(0, Done)).

%% What a checkpoint that failed would have made up for still counts.
failure_keeps_count_test() ->
    {due, Due} = halley_store_pace:journalled(16 * ?MIB, 0, halley_store_pace:new(0, 0)),
    {_, Failed} = halley_store_pace:failed(0, halley_store_pace:begun(Due)),
    ?assertMatch({due, _}, halley_store_pace:journalled(1, 0, Failed)).
