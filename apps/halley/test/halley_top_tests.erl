%% The busiest subjects, from the counts of shards while there are readers.
-module(halley_top_tests).

-include_lib("eunit/include/eunit.hrl").

top_test_() ->
    {foreach,
     fun() -> ok = halley_top:new() end,
     fun(_) -> ets:delete(halley_top) end,
     [fun nobody_looks/0, fun somebody_looks/0, fun very_many_events/0,
      fun private_events_have_no_subject/0]}.

entry(Subject, Sessions) -> entry(Subject, Sessions, 0).

entry(Subject, Sessions, N) ->
    #{subject => Subject, sessions => Sessions, id => integer_to_binary(N)}.

shown(Shard, Entries) ->
    halley_top:show(Shard, halley_top:note(Entries, halley_top:none())).

nobody_looks() ->
    ?assertEqual(none, shown(1, [entry(<<"ann">>, 1)])),
    ?assertMatch(#{by_events := [], by_sessions := []}, halley_top:read()).

somebody_looks() ->
    _ = halley_top:read(),
    Often = [entry(<<"often">>, 1) || _ <- lists:seq(1, 5)],
    _ = shown(1, Often ++ [entry(<<"nobody">>, 0)]),
    _ = shown(2, [entry(<<"widely">>, 1000)]),
    #{by_events := ByEvents, by_sessions := BySessions, missed := 0} = halley_top:read(),
    ?assertEqual([{<<"often">>, 5, 5}, {<<"nobody">>, 1, 0}, {<<"widely">>, 1, 1000}],
                 [{S, E, N} || #{subject := S, events := E, sessions := N} <- ByEvents]),
    ?assertEqual([<<"widely">>, <<"often">>], [S || #{subject := S} <- BySessions]).

%% Of 41,000 events one in eight is counted, beyond the first thousand: the counts are still close.
very_many_events() ->
    _ = halley_top:read(),
    _ = shown(1, [entry(case N rem 4 of 0 -> <<"rare">>; _ -> <<"often">> end, 2, N)
                  || N <- lists:seq(1, 41000)]),
    #{by_events := [#{subject := <<"often">>, events := Often, sessions := Sessions},
                    #{subject := <<"rare">>, events := Rare}]} = halley_top:read(),
    ?assert(abs(Often - 30750) < 1500),
    ?assert(abs(Rare - 10250) < 1000),
    ?assertEqual(2 * Often, Sessions).

private_events_have_no_subject() ->
    _ = halley_top:read(),
    _ = shown(1, [#{users => [<<"ann">>], sessions => 1}]),
    ?assertMatch(#{by_events := []}, halley_top:read()).
