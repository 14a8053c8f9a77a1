%% Ages and counts of events by their subjects: the configuration, and which events are shown.
-module(halley_history_shown_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

parse_test_() ->
    [?_assertEqual({ok, Ages}, halley_history_shown:parse(Text))
     || {Text, Ages} <-
            [{"", []}, {" , ", []},
             {"room/* 1h", [{{prefix, <<"room/">>}, {age, 3600000}}]},
             {"* 2d, room/* 90s,room/7 1m, a b 1s",
              [{{id, <<"room/7">>}, {age, 60000}}, {{id, <<"a b">>}, {age, 1000}},
               {{prefix, <<"room/">>}, {age, 90000}}, {{prefix, <<>>}, {age, 172800000}}]},
             {"room/* 1, a 5 1000", [{{id, <<"a 5">>}, {count, 1000}},
                                     {{prefix, <<"room/">>}, {count, 1}}]}]].

%% In any order.
both_test() ->
    {ok, Rules} = halley_history_shown:parse("room/* 1h, room/* 100"),
    ?assertEqual([{{prefix, <<"room/">>}, {age, 3600000}}, {{prefix, <<"room/">>}, {count, 100}}],
                 lists:sort(Rules)).

mistakes_test_() ->
    [?_assertMatch({error, _}, halley_history_shown:parse(Text))
     || Text <- ["room/*", "room/* x", "room/* 0", "room/* 1001", "room/* 999ms", "room/* -1h",
                 " 1h",
                 "room/* 1h, room/* 2h", "room/* 1, room/* 2", "room/* 12345678901h",
                 lists:duplicate(256, $x) ++ " 1h"]].

shown_test_() ->
    {timeout, 60, fun() ->
        Ages = [{{id, <<"room/7">>}, {age, 3600000}}, {{prefix, <<"room/">>}, {age, 1000}}],
        ?H:silently(fun() -> ?H:with([{history_retention_of, Ages}], fun shown/0) end)
    end}.

%% Where the log keeps all for longer than `history.retention', private events aren't shown for
%% longer than that: they have no subject.
private_test_() ->
    All = {{prefix, <<>>}, {age, 1000}},
    [{timeout, 60, fun() ->
        ?H:silently(fun() ->
            ?H:with([{history_retention_of, [{{id, <<"room">>}, {age, KeptMs}}, All]},
                     {history_plain_retention_ms, 1000}, {history_retention_ms, KeptMs}],
                    fun() -> ?assertEqual(Shown, halley_history_shown:oldest(private) =:= 0) end)
        end)
    end} || {KeptMs, Shown} <- [{3600000, false}, {1000, true}]].

at(Subject, AgeMs) ->
    {ok, Seq} = ?H:publish(Subject, <<"1">>, #{at => erlang:system_time(millisecond) - AgeMs}),
    Seq.

shown() ->
    Old = at(<<"room/1">>, 60000),
    Young = at(<<"room/1">>, 0),
    Exempt = at(<<"room/7">>, 60000),
    Other = at(<<"live/1">>, 60000),
    Read = fun(Seq, Subject) ->
        element(1, halley_history_reader:event(Seq, Subject, halley_history_reader:new()))
    end,
    ?assertMatch({old, _}, Read(Old, <<"room/1">>)),
    ?assertEqual([ok, ok, ok], [Read(Seq, S) || {Seq, S} <- [{Young, <<"room/1">>},
                                                              {Exempt, <<"room/7">>},
                                                              {Other, <<"live/1">>}]]),
    ?H:wait_written(),
    {ok, #{events := [_], gaps := [#{reason := too_old}], next := none}} =
        halley_past:page(<<"room/1">>, none, none, 20),
    {ok, #{events := [_], gaps := []}} = halley_past:page(<<"room/7">>, none, none, 20).

%% --- counts --------------------------------------------------------------------------------------

counted_test_() ->
    Counts = [{{id, <<"room/7">>}, {count, 4}}, {{prefix, <<"room/">>}, {count, 5}}],
    [{timeout, 60, {Title, fun() ->
        ?H:silently(fun() -> ?H:with([{history_retention_of, Counts}], Fun) end)
    end}} || {Title, Fun} <- [{"pages end at the count", fun counted/0},
                              {"as many as are shown, and no gap", fun no_more/0},
                              {"by the newest, not by a page's place", fun moves_on/0},
                              {"who comes with a cursor gets all", fun missed/0}]].

published(Subject, Count) -> ?H:publish_all([Subject || _ <- lists:seq(1, Count)]).

pages(Subject, Before, After, Limit) ->
    {ok, #{next := Next} = Page} = halley_past:page(Subject, Before, After, Limit),
    case Next of
        none -> [Page];
        _ -> [Page | pages(Subject, Next, After, Limit)]
    end.

seqs(Pages) -> [?H:seq(Cursor) || #{events := Events} <- Pages, {Cursor, _} <- Events].

gaps(Pages) -> [Reason || #{gaps := Gaps} <- Pages, #{reason := Reason} <- Gaps].

counted() ->
    [begin
         Older = published(Subject, 7),
         _ = published(<<"live/1">>, 9),
         Seqs = Older ++ published(Subject, 3),
         Newest = lists:sublist(lists:reverse(Seqs), Count),
         [begin
              Pages = pages(Subject, none, none, Limit),
              ?assertEqual({Newest, [too_old]}, {seqs(Pages), gaps(Pages)}),
              ?assertEqual((Count + Limit - 1) div Limit, length(Pages))
          end || Limit <- [1, 2, 4, 5, 1000]]
     end || {Subject, Count} <- [{<<"room/1">>, 5}, {<<"room/7">>, 4}, {<<"room/2">>, 5}]],
    ?assertEqual(27, length(seqs(pages(<<"live/1">>, none, none, 1000)))).

no_more() ->
    Seqs = published(<<"room/1">>, 5),
    Pages = pages(<<"room/1">>, none, none, 1000),
    ?assertEqual({lists:reverse(Seqs), []}, {seqs(Pages), gaps(Pages)}),
    %% Nor is there a gap for who has what is beyond.
    [_, Sixth | _] = published(<<"room/1">>, 6),
    After = pages(<<"room/1">>, none, ?H:cursor(Sixth), 1000),
    ?assertMatch({[_, _, _, _], []}, {seqs(After), gaps(After)}).

%% What was shown when the first page was read may be beyond the count at the next.
moves_on() ->
    _ = published(<<"room/1">>, 5),
    {ok, #{events := [_, _], next := Next}} = halley_past:page(<<"room/1">>, none, none, 2),
    _ = published(<<"room/1">>, 4),
    ?assertMatch({ok, #{events := [], next := none, gaps := [#{reason := too_old}]}},
                 halley_past:page(<<"room/1">>, Next, none, 2)).

missed() ->
    Seqs = published(<<"room/1">>, 20),
    Read = fun(Seq) ->
        element(1, halley_history_reader:event(Seq, <<"room/1">>, halley_history_reader:new()))
    end,
    ?assertEqual([ok], lists:usort([Read(Seq) || Seq <- Seqs])).
