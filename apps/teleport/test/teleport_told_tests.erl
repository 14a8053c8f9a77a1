%% Which of many equal refusals are logged.
-module(teleport_told_tests).

-include_lib("eunit/include/eunit.hrl").

once_and_again_after_ten_minutes_test() ->
    {log, 0, First} = teleport_told:told(ann, not_me, 0, teleport_told:new(600000)),
    Many = lists:foldl(fun(Ms, Told) ->
        {quiet, Next} = teleport_told:told(ann, not_me, Ms, Told),
        Next
    end, First, lists:seq(200, 599800, 200)),
    {log, 2999, Again} = teleport_told:told(ann, not_me, 600000, Many),
    ?assertMatch({quiet, _}, teleport_told:told(ann, not_me, 600200, Again)).

another_reason_and_another_peer_are_news_test() ->
    {log, 0, First} = teleport_told:told(ann, not_me, 0, teleport_told:new(600000)),
    {log, 0, Second} = teleport_told:told(bob, not_me, 1, First),
    {log, 0, Third} = teleport_told:told(ann, bad_secret, 2, Second),
    ?assertMatch({quiet, _}, teleport_told:told(ann, bad_secret, 3, Third)).

bounded_test() ->
    Full = lists:foldl(fun(N, Told) ->
        {log, 0, Next} = teleport_told:told(N, not_me, 0, Told),
        Next
    end, teleport_told:new(600000), lists:seq(1, 1000)),
    {log, 0, Same} = teleport_told:told(1001, not_me, 1, Full),
    ?assertEqual(1000, teleport_told:size(Same)),
    {log, 0, Later} = teleport_told:told(1001, not_me, 600000, Same),
    ?assertEqual(1, teleport_told:size(Later)).

%% Two that are set up wrong in two ways, behind one address.
reasons_that_alternate_are_a_line_each_test() ->
    Lines = lists:foldl(fun(Ms, {Logged, Told}) ->
        case teleport_told:told(ann, lists:nth(1 + Ms rem 2, [not_me, bad_secret]), Ms, Told) of
            {log, _, Next} -> {Logged + 1, Next};
            {quiet, Next} -> {Logged, Next}
        end
    end, {0, teleport_told:new(600000)}, lists:seq(1, 1000)),
    ?assertMatch({2, _}, Lines).
