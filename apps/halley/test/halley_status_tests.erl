%% Samples of how it goes: each is given once to a reader that says what it has.
-module(halley_status_tests).

-include_lib("eunit/include/eunit.hrl").

status_test_() ->
    {setup,
     fun() ->
         ok = halley_metrics:new(),
         ok = halley_links:new(),
         ok = meck:new(halley_clock, [passthrough]),
         {ok, Pid} = halley_status:start_link(),
         Pid
     end,
     fun(Pid) ->
         unlink(Pid),
         exit(Pid, kill),
         meck:unload(halley_clock),
         [ets:delete(Table) || Table <- [halley_metrics_edge, halley_links, halley_links_about]]
     end,
     fun(_) -> {timeout, 90, [fun samples_come_once/0, fun nobody_waits_for_longer/0,
                              fun of_another_brain/0, fun counters_of_then/0,
                              {timeout, 60, fun the_clock_is_set/0},
                              fun too_many_readers/0]} end}.

samples_come_once() ->
    [{First, Values} | _] = halley_status:since(0, 2000),
    ?assertEqual(length(halley_status:columns()), length(Values)),
    [Rss | _] = Values,
    ?assert(Rss > 1_000_000),
    [{Second, _}] = halley_status:since(First, 3000),
    ?assert(Second > First),
    ?assertMatch([{First, _}, {Second, _} | _], halley_status:since(0, 0)).

nobody_waits_for_longer() ->
    {Last, _} = lists:last(halley_status:since(0, 2000)),
    ?assertEqual([], halley_status:since(Last, 1)).

of_another_brain() ->
    Ahead = erlang:system_time(millisecond) + 3_600_000,
    ?assertMatch([_ | _], halley_status:since(Ahead, 0)).

%% Samples stay a second apart, and their times are those of the clock.
the_clock_is_set() ->
    lists:foreach(fun the_clock_is_set/1, [-1000, -3_600_000, -86_400_000, 10_000, 0]).

the_clock_is_set(StepMs) ->
    {Before, _} = lists:last(halley_status:since(0, 2000)),
    Now = fun() -> os:system_time(millisecond) + StepMs end,
    ok = meck:expect(halley_clock, wall_ms, Now),
    Told = told(halley_status:since(Before, 3000), Before, 3),
    {Last, _} = lists:last(Told),
    ?assert(abs(Last - Now()) < 5000, StepMs),
    Ats = [At || {At, _} <- halley_status:since(0, 0)],
    Apart = [Later - At || {At, Later} <- lists:zip(lists:droplast(Ats), tl(Ats))],
    ?assert(lists:all(fun(Ms) -> Ms >= 500 end, Apart), {StepMs, Apart}).

told([], Before, Tries) when Tries > 0 ->
    told(halley_status:since(Before, 3000), Before, Tries - 1);
told(Samples, _, _) ->
    Samples.

counters_of_then() ->
    halley_metrics:incr(key_missing, 3),
    {Last, _} = lists:last(halley_status:since(0, 2000)),
    [_ | _] = halley_status:since(Last, 3000),
    {Now, {At, Before}} = halley_status:lately(),
    Name = <<"halley_requests_refused_total{reason=\"key_missing\"}">>,
    ?assertEqual(3, map_get(Name, Now) - map_get(Name, Before)),
    ?assert(At =< erlang:system_time(millisecond)).

%% Who would wait beyond the bound is told so, and counted; those that wait are answered.
too_many_readers() ->
    {Last, _} = lists:last(halley_status:since(0, 2000)),
    [_ | _] = halley_status:since(Last, 3000),
    {Newest, _} = lists:last(halley_status:since(0, 0)),
    ok = halley_limits:set(#{status_readers_max => 2}),
    Self = self(),
    Readers = [spawn_link(fun() -> Self ! {self(), halley_status:since(Newest, 5000)} end)
               || _ <- [1, 2, 3]],
    Answers = [receive {Reader, Answer} -> Answer end || Reader <- Readers],
    ok = halley_limits:set(#{}),
    ?assertEqual(1, length([refused || {error, too_many} <- Answers])),
    ?assertEqual(2, length([Samples || [_ | _] = Samples <- Answers])),
    ?assertEqual(1, maps:get(<<"halley_status_refused_total">>, halley_metrics:values())).
