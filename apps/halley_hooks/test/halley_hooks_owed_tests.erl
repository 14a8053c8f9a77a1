%% docs/guides/hooks.md, "What undelivered means", case by case; and against a model of sessions.
-module(halley_hooks_owed_tests).
-include_lib("eunit/include/eunit.hrl").

-define(AT, 100000).
-define(SEQ, 50).
-define(OLD, {caught, {0, 0, 0, 0, 0, 0, 0, 0}}).          % a cursor from before the event
-define(NEW, {caught, {?SEQ, 0, 0, 0, 0, 0, 0, 0}}).       % one that has it

owed(Sessions, Moves, Facts) ->
    halley_hooks_owed:is_owed(#{at => ?AT, shard => 1, seq => ?SEQ, sessions => Sessions,
                                is_alone => maps:get(is_alone, Facts, false)},
                              [{?AT + Ms, What, drawn(Ms)} || {Ms, What} <- Moves],
                              maps:merge(#{is_there => false, doubts => [], unsure => []},
                                         maps:remove(is_alone, Facts))).

%% What comes in the same millisecond comes behind it.
drawn(Ms) when Ms < 0 -> ?SEQ - 1;
drawn(_) -> ?SEQ.

cases_test_() ->
    [{Name, ?_assertEqual(Expected, owed(Sessions, Moves, Facts))}
     || {Name, Expected, Sessions, Moves, Facts} <- moment() ++ window() ++ doubts() ++ killed()].

%% Who was there at the event's own moment.
moment() ->
    There = #{is_there => true},
    [{"never there", true, 1, [], #{}},
     {"always there", false, 1, [], There},
     {"left before", true, 1, [{-5000, left}], #{}},
     {"left after", false, 1, [{5000, left}], #{}},
     {"left just after, and the answer counts it", false, 1, [{5, left}], #{is_alone => true}},
     {"left just after, and others were found", false, 1, [{5, left}], #{}},
     {"left just after, and nobody was found", true, 0, [{5, left}], #{}},
     {"came before", false, 1, [{-5000, came}], There},
     {"came just then, and the answer counts it alone", false, 1, [{5, came}],
      There#{is_alone => true}},
     {"came just then, and others were found", true, 1, [{5, came}], There},
     {"came just then, and nobody was found", true, 0, [{5, came}], There},
     {"came in the same millisecond, and nobody was found", true, 0, [{0, came}], There},
     {"came in the same millisecond with a cursor that has it", true, 0, [{0, ?NEW}], There},
     {"came in the same millisecond with a cursor from before", false, 0, [{0, ?OLD}], There},
     {"left in the same millisecond, and the answer counts it", false, 1, [{0, left}], #{}},
     {"left in the same millisecond, and nobody was found", true, 0, [{0, left}], #{}},
     {"there, and gone, and there again since", false, 1,
      [{-90, came}, {90000, left}, {95000, came}], There},
     {"gone, there and gone again since", true, 1,
      [{-90, left}, {5000, came}, {9000, left}], #{}},
     {"held since before", false, 1, [{-90, ?OLD}], #{}},
     {"held since before, and open just after", false, 0, [{-5, ?OLD}, {5, came}], There},
     {"held since before, and gone just after", false, 0, [{-5, ?OLD}, {5, left}], #{}},
     {"there, and its end was noted late", true, 0, [{-90, came}, {400, left}], #{}},
     {"there, and its begin was noted late", false, 1, [{400, came}], There#{is_alone => true}},
     {"there, nobody was found, and it stayed", false, 0, [{-90, came}, {1400, left}], #{}}].

%% What came of it afterwards.
window() ->
    There = #{is_there => true},
    [{"back at once without a cursor", true, 1, [{-90, left}, {900, came}], There},
     {"back at once with a cursor", false, 1, [{-90, left}, {900, ?OLD}, {950, came}], There},
     {"back at once with a cursor that has it", true, 1, [{-90, left}, {900, ?NEW}], There},
     {"without a cursor first, then with one", false, 1,
      [{-90, left}, {300, came}, {900, ?OLD}], There},
     {"back with a cursor, too late", true, 1, [{-90, left}, {2100, ?OLD}], There},
     {"back hours later, without a cursor", true, 0, [{9000000, came}], There},
     {"back hours later, with a cursor", true, 0, [{9000000, ?OLD}], There}].

%% While nobody knew who is there.
doubts() ->
    Doubt = #{doubts => [{?AT + 200000, ?AT + 300000}, {?AT - 1000, ?AT + 8000}],
              is_there => true},
    [{"its link was cut, and its session said again", false, 1,
      [{-500, left}, {6000, synced}], Doubt},
     {"nobody was found, as its link was cut", false, 0, [{-500, left}, {6000, synced}], Doubt},
     {"back with a cursor by the end of it", false, 1, [{-500, left}, {7000, ?OLD}], Doubt},
     {"back with a cursor after it", true, 1, [{-500, left}, {8100, ?OLD}], Doubt},
     {"back without a cursor meanwhile", true, 1, [{-500, left}, {6000, came}], Doubt},
     {"said by the sync of a later doubt", true, 1, [{-500, left}, {250000, synced}], Doubt},
     {"said by a sync, having come before that", true, 1,
      [{-500, left}, {3000, came}, {4000, left}, {6000, synced}], Doubt},
     {"a doubt that began just after", false, 1, [{900, left}, {6000, synced}], Doubt},
     {"away when it began, and said by the sync", true, 1, [{6000, synced}], Doubt},
     {"gone just before it began, and said by the sync", true, 1,
      [{-1100, left}, {6000, synced}], Doubt},
     {"there before it began, and said by the sync", false, 1,
      [{-1100, came}, {-500, left}, {6000, synced}], Doubt}].

%% The brain was killed: who was there left at the next start, 3 s behind the event, and is said by
%% a sync. What happened since 50 ms before the event isn't known, unless it says so.
killed() ->
    Killed = #{doubts => [{?AT - 60, ?AT + 8000}], unsure => [{?AT - 50, ?AT + 3000}]},
    Known = Killed#{unsure => [{?AT + 10, ?AT + 3000}]},
    Alone = Killed#{is_alone => true},
    [{"there, and said again", false, 2, [{3000, left}, {6000, synced}], Killed},
     {"there, and not said again", true, 2, [{3000, left}], Killed},
     {"there, and back with its cursor", false, 2, [{3000, left}, {7000, ?OLD}], Killed},
     {"there, and back without a cursor", true, 2, [{3000, left}, {7000, came}], Killed},
     {"there, and found", false, 1, [{3000, left}], Alone},
     {"there, and not found", true, 0, [{3000, left}], Alone},
     {"away", true, 2, [{-500, left}], Killed},
     {"away, and came before the kill, unseen", true, 2, [{-500, left}, {6000, synced}], Killed},
     {"away, and came before the event, unseen", false, 1, [{-500, left}, {6000, synced}], Alone},
     {"not there for long, and said by the sync", true, 0, [{6000, synced}], Killed},
     {"there, and known to be", false, 2, [{3000, left}], Known},
     {"there, and known to be, and back without a cursor", false, 2,
      [{3000, left}, {7000, came}], Known},
     {"away, and known to be", true, 2, [{-500, left}, {6000, synced}], Known},
     {"away, known to be, and back with its cursor", false, 2, [{-500, left}, {7000, ?OLD}], Known},
     {"away, known to be, and back before the kill", true, 2,
      [{-500, left}, {500, came}, {3000, left}, {6000, synced}], Known}].

%% Sessions of one user that come with a cursor or without, overlap and go, and events at any
%% moment: owed is what no session had in time, whatever else happens before it is judged.
model_test_() ->
    {timeout, 60, fun() ->
        lists:foreach(fun(Seed) ->
            _ = rand:seed(exsss, Seed),
            {Moves, Sessions} = life(0, [], []),
            [begin
                 IsThere = [S || {From, To, _} = S <- Sessions, From =< At, At < To] =/= [],
                 InTime = [S || {From, _, {cursor, Of}} = S <- Sessions, From > At,
                                From =< At + halley_hooks_owed:window_ms(), Of < At] =/= [],
                 Event = #{at => At, shard => 1, seq => At, sessions => case IsThere of
                                                                            true -> 1;
                                                                            false -> 0
                                                                        end},
                 Facts = #{is_there => false, doubts => [], unsure => []},
                 ?assertEqual({Seed, At, not IsThere andalso not InTime},
                              {Seed, At, halley_hooks_owed:is_owed(Event, Moves, Facts)})
             end || At <- [rand:uniform(60000) * 2 + 1 || _ <- lists:seq(1, 100)]]
        end, lists:seq(1, 200))
    end}.

%% At even milliseconds; a cursor has what was before some moment.
life(Ms, Open, Done) when Ms > 120000 ->
    Sessions = Done ++ [{From, Ms + 1, How} || {From, How} <- Open],
    {moves(Sessions), Sessions};
life(Ms, Open, Done) ->
    Next = Ms + 2 * rand:uniform(2500),
    case rand:uniform(2) of
        1 when Open =/= [] ->
            {From, How} = lists:nth(rand:uniform(length(Open)), Open),
            life(Next, lists:delete({From, How}, Open), [{From, Next, How} | Done]);
        _ when length(Open) < 3 ->
            How = case rand:uniform(2) of
                1 -> live;
                2 -> {cursor, max(0, Next - rand:uniform(6000))}
            end,
            life(Next, [{Next, How} | Open], Done);
        _ ->
            life(Next, Open, Done)
    end.

%% What the directory says of them: first sessions and last ones, and each that comes with a cursor.
moves(Sessions) ->
    Count = fun(Ms) -> length([S || {From, To, _} = S <- Sessions, From =< Ms, Ms < To]) end,
    Moves = [{From, {caught, {Of, 0, 0, 0, 0, 0, 0, 0}}} || {From, _, {cursor, Of}} <- Sessions]
        ++ [{From, came} || {From, _, live} <- Sessions, Count(From - 1) =:= 0]
        ++ [{To, left} || {_, To, _} <- Sessions, Count(To) =:= 0],
    [{Ms, What, Ms} || {Ms, What} <- lists:sort(Moves)].

%% However many there are, a thousand are kept, and what was in doubt stays so.
doubts_are_bounded_test() ->
    Spans = [{N * 10, N * 10 + 1} || N <- lists:seq(1, 5000)],
    Kept = lists:foldl(fun halley_hooks_owed:doubted/2, [], Spans),
    ?assertEqual(1000, length(Kept)),
    ?assertEqual(lists:reverse(lists:sort(Kept)), Kept),
    ?assertEqual([], [Span || {From, To} = Span <- Spans,
                              not lists:any(fun({A, B}) -> A =< From andalso To =< B end, Kept)]).
