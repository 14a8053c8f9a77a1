%% Each case that a trace can find, and what is said of it.
-module(halley_api_verdict_tests).
-include_lib("eunit/include/eunit.hrl").

-define(LIVE, #{state => live, transport => sse, passed => true, outbox_bytes => 0, dropped => 0}).

says(Trace) ->
    Default = #{followed => true, sessions => [], ended => []},
    unicode:characters_to_list(halley_api_verdict:sentence(maps:merge(Default, Trace))).

sentences_test_() ->
    [{Part, ?_assertNotEqual({nomatch, Said}, {string:find(Said, Part), Said})}
     || {Trace, Part} <-
            [{#{followed => false}, "did not follow the subject when"},
             {#{followed => false, sessions => [?LIVE]}, "did not follow the subject when"},
             {#{}, "had no session since"},
             {#{ended => [#{at => 2000, reason => slow_consumer}, #{at => 1500, reason => stop}]},
              "the last one ended (slow consumer) after"},
             {#{sessions => [?LIVE]}, "Written: a live session was sent everything"},
             {#{sessions => [#{state => live, transport => process, passed => true}]},
              "Written: it is in the mailbox"},
             {#{sessions => [(?LIVE)#{dropped := 3}]}, "among the events that were dropped"},
             {#{sessions => [(?LIVE)#{outbox_bytes := 77}]}, "among the 77 bytes that wait"},
             {#{sessions => [(?LIVE)#{state := held}]}, "among that, or comes right after"},
             {#{sessions => [(?LIVE)#{state := held, passed := false}]},
              "among that, or comes right after"},
             {#{sessions => [(?LIVE)#{state := closing}]}, "The session is closing"},
             {#{sessions => [#{state => gone, transport => unknown, passed => true}]},
              "The session is closing"},
             {#{sessions => [#{state => unknown, transport => unknown, passed => true}]},
              "does not answer now"},
             {#{sessions => [(?LIVE)#{passed := false}]}, "which is behind"}],
        Said <- [says(Trace)]].

%% One session that has it is the answer, wherever it stands in the list.
the_furthest_session_decides_test_() ->
    Behind = (?LIVE)#{passed := false},
    Slow = (?LIVE)#{outbox_bytes := 9},
    [?_assertMatch("Written" ++ _, says(#{sessions => Sessions}))
     || Sessions <- [[?LIVE, Behind, Slow], [Behind, Slow, ?LIVE], [Slow, ?LIVE, Behind]]].
