%% docs/guides/hooks.md, "What undelivered means", case by case; and against a model of sessions.
-module(halley_hooks_owed_tests).
-include_lib("eunit/include/eunit.hrl").

-define(AT, 100000).
-define(SEQ, 50).
-define(OLD, {caught, {0, 0, 0, 0, 0, 0, 0, 0}}).          % a cursor from before the event
-define(NEW, {caught, {?SEQ, 0, 0, 0, 0, 0, 0, 0}}).       % one that has it

owed(Sessions, Moves, Facts) ->
    halley_hooks_owed:is_owed(#{at => ?AT, shard => 1, seq => ?SEQ, sessions => Sessions},
                              [{?AT + Ms, What} || {Ms, What} <- Moves],
                              maps:merge(#{is_there => false, is_told => false, began_at => 0,
                                           doubts => []}, Facts)).

cases_test_() ->
    [{Name, ?_assertEqual(Expected, owed(Sessions, Moves, Facts))}
     || {Name, Expected, Sessions, Moves, Facts} <- moment() ++ window() ++ doubts() ++ began()].

%% Who was there at the event's own moment.
moment() ->
    There = #{is_there => true},
    [{"never there", true, 1, [], #{}},
     {"always there", false, 1, [], There},
     {"left before", true, 1, [{-5000, left}], #{}},
     {"left after", false, 1, [{5000, left}], #{}},
     {"left just after, and the answer counts it", false, 1, [{5, left}], #{}},
     {"left just after, and nobody was found", true, 0, [{5, left}], #{}},
     {"came before", false, 1, [{-5000, came}], There},
     {"came just then, and the answer counts it", false, 1, [{5, came}], There},
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
     {"held since before", false, 1, [{-90, ?OLD}], #{}}].

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
     {"a doubt that began just after", false, 1, [{900, left}, {6000, synced}], Doubt}].

%% Published before this brain began.
began() ->
    Began = #{began_at => ?AT + 3000},
    Told = Began#{is_told => true},
    [{"told of as there", false, 1, [], Told},
     {"told of as there, but nobody was found", true, 0, [], Told},
     {"not told of as there", true, 1, [], Began},
     {"not told of, and there since", true, 1, [{9000, came}], Began#{is_there => true}}].

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
                 Facts = #{is_there => false, is_told => false, began_at => -1, doubts => []},
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
    lists:sort([{From, {caught, {Of, 0, 0, 0, 0, 0, 0, 0}}} || {From, _, {cursor, Of}} <- Sessions]
               ++ [{From, came} || {From, _, live} <- Sessions, Count(From - 1) =:= 0]
               ++ [{To, left} || {_, To, _} <- Sessions, Count(To) =:= 0]).

%% However many there are, a thousand are kept, and what was in doubt stays so.
doubts_are_bounded_test() ->
    Spans = [{N * 10, N * 10 + 1} || N <- lists:seq(1, 5000)],
    Kept = lists:foldl(fun halley_hooks_owed:doubted/2, [], Spans),
    ?assertEqual(1000, length(Kept)),
    ?assertEqual(lists:reverse(lists:sort(Kept)), Kept),
    ?assertEqual([], [Span || {From, To} = Span <- Spans,
                              not lists:any(fun({A, B}) -> A =< From andalso To =< B end, Kept)]).
