%% Each case that a trace can find, and what is said of it.
-module(halley_api_verdict_tests).
-include_lib("eunit/include/eunit.hrl").

-define(LIVE, #{state => live, transport => sse, passed => true, outbox_bytes => 0, dropped => 0}).

says(Trace) ->
    Default = #{followed => true, sessions => [], ended => []},
    unicode:characters_to_list(halley_api_verdict:sentence(maps:merge(Default, Trace))).

sentences_test_() ->
    [{Part, fun() ->
                ?assertMatch({match, _}, re:run(Said, ["^", Answer, "[:,]"])),
                ?assertNotEqual({nomatch, Said}, {string:find(Said, Part), Said})
            end}
     || {Trace, Answer, Part} <-
            [{#{followed => false, private => true}, "No", "none of them"},
             {#{followed => false}, "No", "did not follow the subject when"},
             {#{followed => false, sessions => [?LIVE]}, "No", "did not follow the subject when"},
             {#{}, "No, not yet", "had no session since"},
             {#{ended => [#{at => 2000, reason => slow_consumer}, #{at => 1500, reason => stop}]},
              "Not known", "the last one ended (slow consumer) after"},
             {#{sessions => [?LIVE]}, "Yes", "written to the connection of a live"},
             {#{sessions => [#{state => live, transport => process, passed => true}]},
              "Yes", "it is in the mailbox"},
             {#{sessions => [(?LIVE)#{dropped := 3}]}, "Not known",
              "among the events that were dropped"},
             {#{sessions => [(?LIVE)#{outbox_bytes := 77}]}, "Not known",
              "among the 77 bytes that wait"},
             {#{sessions => [(?LIVE)#{state := held}]}, "Not known yet",
              "among that, or comes right after"},
             {#{sessions => [(?LIVE)#{state := held, passed := false}]},
              "Not known yet", "among that, or comes right after"},
             {#{sessions => [(?LIVE)#{state := closing}]}, "Not known", "the session is closing"},
             {#{sessions => [#{state => gone, transport => unknown, passed => true}]},
              "Not known", "the session is closing"},
             {#{sessions => [#{state => unknown, transport => unknown, passed => true}]},
              "Not known", "does not answer now"},
             {#{sessions => [(?LIVE)#{passed := false}]}, "No, not yet", "which is behind"}],
        Said <- [says(Trace)]].

%% One session that has it is the answer, wherever it stands in the list.
the_furthest_session_decides_test_() ->
    Behind = (?LIVE)#{passed := false},
    Slow = (?LIVE)#{outbox_bytes := 9},
    [?_assertMatch("Yes" ++ _, says(#{sessions => Sessions}))
     || Sessions <- [[?LIVE, Behind, Slow], [Behind, Slow, ?LIVE], [Slow, ?LIVE, Behind]]].
