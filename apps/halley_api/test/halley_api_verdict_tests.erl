%% Each case that a trace can find, and its sentence: docs/reference/http-api.md, "Trace".
-module(halley_api_verdict_tests).
-include_lib("eunit/include/eunit.hrl").

-define(LIVE, #{state => live, transport => sse, began => before, passed => true,
                outbox_bytes => 0, dropped => 0, conflated => 0}).
-define(PROCESS, #{state => live, transport => process, began => before, passed => true}).
-define(ENDED, [#{at => 2000, reason => slow_consumer}, #{at => 1500, reason => closed}]).

found(Trace) ->
    maps:merge(#{meant => followed, private => false, sessions => [], held => 0, ended => [],
                 unsubscribed => false, is_complete => true, deleted => false}, Trace).

says(Trace) -> unicode:characters_to_list(halley_api_verdict:sentence(found(Trace))).

sentences_test_() ->
    [{Part, fun() ->
                ?assertMatch({match, _}, re:run(Said, ["^", Answer, ": "])),
                ?assertNotEqual({nomatch, Said}, {string:find(Said, Part), Said}),
                ?assertEqual(answer(Answer), halley_api_verdict:answer(found(Trace)))
            end}
     || {Trace, Answer, Part} <- meant() ++ nobody() ++ one_session(), Said <- [says(Trace)]].

answer("Yes") -> yes;
answer("No" ++ [C | _]) when C =/= $t -> no;
answer("No") -> no;
answer("Not known" ++ _) -> not_known.

%% For whom it was.
meant() ->
    [{#{meant => no, private => true}, "No", "none of them"},
     {#{meant => no, private => true, is_complete => false, ended => ?ENDED}, "No", "none of them"},
     {#{meant => no}, "No", "did not follow the subject when"},
     {#{meant => no, sessions => [?LIVE]}, "No", "did not follow the subject when"},
     {#{meant => no, is_complete => false}, "Not known", "was subscribed to it when"},
     {#{meant => no, ended => ?ENDED}, "Not known", "was subscribed to it when"},
     {#{meant => no, held => 1}, "Not known", "was subscribed to it when"},
     {#{meant => no, unsubscribed => true}, "Not known", "was subscribed to it when"},
     {#{meant => follows_just_then, sessions => [?LIVE]}, "Not known", "was being made"},
     {#{deleted => true, sessions => [?LIVE]}, "Not known", "deleted after the event"},
     {#{meant => subscribed, sessions => [?LIVE]}, "Yes", "written to the connection"}].

%% Without a session that can have it.
nobody() ->
    Late = [(?LIVE)#{began := 'after'}],
    [{#{}, "No, not yet", "had no session since"},
     {#{is_complete => false}, "Not known", "does not remember all sessions that ended"},
     {#{unsubscribed => true}, "Not known", "has no session now"},
     {#{ended => ?ENDED}, "Not known", "the last one ended (slow consumer) after"},
     {#{held => 1}, "Not known yet", "has just come back"},
     {#{sessions => Late}, "No", "began after the event"},
     {#{sessions => Late ++ Late}, "No", "began after the event"},
     {#{sessions => Late, is_complete => false}, "Not known", "does not remember all sessions"},
     {#{sessions => Late, unsubscribed => true}, "Not known", "began after the event"},
     {#{sessions => Late, ended => ?ENDED}, "Not known", "Another one ended (slow consumer)"},
     {#{sessions => Late, held => 1}, "Not known yet", "has just come back"},
     {#{sessions => [(?PROCESS)#{began := 'after'}]}, "No", "began after the event"}].

one_session() ->
    [{#{sessions => [Session]}, Answer, Part}
     || {Session, Answer, Part} <-
            [{?LIVE, "Yes", "which was there when"},
             {(?LIVE)#{began := cursor_before}, "Yes", "came with a cursor from before"},
             {(?LIVE)#{began := cursor_after}, "Not known", "cursor that already has the event"},
             {(?LIVE)#{began := newest}, "Not known", "with the newest events"},
             {(?LIVE)#{began := subscribed}, "Not known", "was subscribed to it after"},
             {(?LIVE)#{began := unknown}, "Not known", "does not remember whether"},
             {?PROCESS, "Yes", "the Erlang process that is the session"},
             {(?PROCESS)#{began := unknown}, "Not known", "does not remember whether"},
             {(?PROCESS)#{transport := remote}, "Not known", "back end on another node"},
             {(?PROCESS)#{transport := remote, began := 'after'}, "Not known", "back end"},
             {(?LIVE)#{dropped := 3}, "Not known", "among the events that were dropped"},
             {(?LIVE)#{conflated := 3}, "Not known", "replaced by newer ones"},
             {(?LIVE)#{outbox_bytes := 77}, "Not known", "among the 77 bytes that wait"},
             {(?LIVE)#{transport := poll}, "Not known", "a poll that waits"},
             {(?LIVE)#{state := held, began := cursor_before}, "Not known yet", "among that, or"},
             {(?LIVE)#{state := held, began := cursor_after}, "Not known", "already has the event"},
             {(?LIVE)#{state := opening}, "Not known yet", "among that, or comes right after"},
             {(?LIVE)#{state := held, passed := false}, "Not known yet", "among that, or"},
             {(?LIVE)#{state := closing}, "Not known", "the session is closing"},
             {#{state => gone, transport => unknown, began => before, passed => true},
              "Not known", "the session is closing"},
             {#{state => unknown, transport => unknown, began => before, passed => true},
              "Not known", "does not answer now"},
             {(?LIVE)#{passed := false}, "Not known yet", "is behind"}]].

%% One session that has it is the answer, wherever it stands in the list; and only one that says
%% nothing of it leaves it to those that ended.
the_furthest_session_decides_test_() ->
    Others = [(?LIVE)#{passed := false}, (?LIVE)#{outbox_bytes := 9}, (?LIVE)#{began := 'after'},
              (?LIVE)#{began := unknown}, (?PROCESS)#{transport := remote}],
    [?_assertMatch("Yes" ++ _, says(#{sessions => Sessions}))
     || Other <- Others, Sessions <- [[?LIVE, Other], [Other, ?LIVE], [Other, ?LIVE | Others]]]
    ++ [?_assertMatch("Not known" ++ _, says(#{sessions => [Late, Other]}))
        || Late <- [(?LIVE)#{began := 'after'}], Other <- Others, Other =/= Late].
