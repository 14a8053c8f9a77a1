%% Ages of events whose times are from before the clock was set (`halley_history_steps').
-module(halley_history_steps_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(HOUR_MS, 3600000).
-define(DAY_MS, 86400000).

%% Stamps say how the machine's two clocks went between segments.
stamps_test_() ->
    Now = 1700000000000,
    Cases =
        [{"both went on",
          [{{7, 0, Now}, 0}, {{7, 60000, Now + 60000}, 100}], [{50, 0}, {100, 0}, {101, 0}]},
         {"off by less than a second",
          [{{7, 0, Now}, 0}, {{7, 60000, Now + 60900}, 100}], [{100, 0}]},
         {"an hour on",
          [{{7, 0, Now}, 0}, {{7, 60000, Now + 60000 + ?HOUR_MS}, 100}],
          [{100, ?HOUR_MS}, {101, 0}]},
         {"a day on and back",
          [{{7, 0, Now}, 0}, {{7, 1, Now + 1 + ?DAY_MS}, 10}, {{7, 2, Now + 2}, 20}],
          [{10, 0}, {11, -?DAY_MS}, {20, -?DAY_MS}, {21, 0}]},
         {"the machine slept: what was before has not grown old",
          [{{7, 0, Now}, 0}, {{7, 1000, Now + ?DAY_MS}, 10}], [{10, ?DAY_MS - 1000}, {11, 0}]},
         {"the machine was restarted: nobody can say",
          [{{7, 9000, Now}, 0}, {{8, 10, Now + ?DAY_MS}, 10}], [{10, 0}, {11, 0}]},
         {"no start is known",
          [{{0, 0, Now}, 0}, {{0, 10, Now + ?DAY_MS}, 10}], [{10, 0}]}],
    [{Title, fun() ->
        _ = halley_history_steps:start(Stamps),
        ?assertEqual([{Seq, Now + Ms} || {Seq, Ms} <- Wanted],
                     [{Seq, halley_history_steps:as_of_now(Seq, Now)} || {Seq, _} <- Wanted]),
        forget()
    end} || {Title, Stamps, Wanted} <- Cases].

forget() -> halley_history_steps:start([{{0, 0, 0}, 0}]).

%% However often it was set, what the list says is bounded, and of all together.
many_steps_test() ->
    Stamps = [{{7, 0, N * 2000}, N} || N <- lists:seq(0, 200)],
    _ = halley_history_steps:start(Stamps),
    ?assertEqual(400000, halley_history_steps:as_of_now(1, 0)),
    ?assertEqual(2000, halley_history_steps:as_of_now(200, 0)),
    forget().

%% While the log runs, and over its restart; the machine's clock is another one for this test alone.
steps_test_() ->
    Ages = [{{prefix, <<"live/">>}, {age, 30000}}],
    [{timeout, 120, {Title, fun() ->
        %% Not while the log runs: what runs in a module that is replaced twice is killed.
        ok = meck:new(halley_clock, [passthrough]),
        try
            ?H:silently(fun() ->
                ?H:with([{history_retention_of, Ages}, {history_retention_ms, ?DAY_MS}],
                        fun() -> stepped(StepMs) end)
            end)
        after
            meck:unload(halley_clock),
            forget()
        end
    end}} || {Title, StepMs} <- [{"a day on", ?DAY_MS}, {"an hour back", -?HOUR_MS},
                                 {"ten seconds back", -10000}]].

stepped(StepMs) ->
    Before = publish(0),
    OldBefore = publish(-60000),
    %% So long that the log has looked at the clock since.
    timer:sleep(600),
    ok = meck:expect(halley_clock, wall_ms, fun() -> os:system_time(millisecond) + StepMs end),
    %% It begins a segment behind the step.
    ?H:until(fun() -> length(?H:segments()) > 1 end),
    Behind = publish(StepMs),
    OldBehind = publish(StepMs - 60000),
    Read = fun() -> [read(Seq) || Seq <- [Before, OldBefore, Behind, OldBehind]] end,
    ?assertEqual([ok, old, ok, old], Read()),
    %% The next start knows it from the segments.
    forget(),
    ?H:restart(),
    ?assertEqual([ok, old, ok, old], Read()).

publish(AgoMs) ->
    {ok, Seq} = ?H:publish(<<"live/1">>, <<"1">>, #{at => os:system_time(millisecond) + AgoMs}),
    Seq.

read(Seq) ->
    case halley_history_reader:event(Seq, <<"live/1">>, halley_history_reader:new()) of
        {ok, _, _, _} -> ok;
        {{old, _}, _} -> old
    end.
