%% Where a link stands (docs/internals/delivery.md, protocol/link.md 10.1, 10.5, 10.6).
-module(halley_edge_position_tests).

-include_lib("eunit/include/eunit.hrl").

-define(STORE, 7).
-define(ZERO, {0, 0, 0, 0, 0, 0, 0, 0}).

%% "everything that concerns a live session of this worker, up to here, has been sent"
cursor_follows_every_shard_test() ->
    Passed = pass([{1, 5}, {3, 6}, {1, 9}], position()),
    ?assertEqual({9, 0, 6, 0, 0, 0, 0, 0}, vector(Passed)),
    {moved, Marked} = halley_edge_position:marked(2, 12, Passed),
    ?assertEqual({9, 12, 6, 0, 0, 0, 0, 0}, vector(Marked)),
    ?assertMatch({same, _}, halley_edge_position:marked(2, 12, Marked)).

%% An event in several messages, the second behind a mark of another shard.
vector_never_goes_back_test() ->
    ?assertEqual({9, 0, 0, 0, 0, 0, 0, 0}, vector(pass([{1, 9}, {1, 4}, {1, 9}], position()))).

cursor_has_the_time_test() ->
    Clocked = halley_edge_position:clock(1700000000, position()),
    {Cursor, Position} = halley_edge_position:cursor(Clocked),
    ?assertMatch({ok, #{store := ?STORE, at := 1700000000}}, halley_cursor:decode(Cursor)),
    ?assertEqual({Cursor, Position}, halley_edge_position:cursor(Position)).

%% What a link lacks that catches up is older than the catch-up.
time_stands_still_in_a_catch_up_test() ->
    Live = halley_edge_position:clock(1700000000, position()),
    Time = fun(Position) ->
        {Cursor, _} = halley_edge_position:cursor(Position),
        {ok, #{at := Second}} = halley_cursor:decode(Cursor),
        Second
    end,
    Skipping = halley_edge_position:clock(1700000001, halley_edge_position:enter(skipping, Live)),
    Holding = halley_edge_position:clock(1700000002, halley_edge_position:enter(holding, Skipping)),
    ?assertEqual([1700000000, 1700000000], lists:map(Time, [Skipping, Holding])),
    {[], [], Again} = halley_edge_position:release(?ZERO, Holding),
    ?assertEqual(1700000003, Time(halley_edge_position:clock(1700000003, Again))).

%% Before a catch-up has read its heads, marks say nothing: what they are about may be missing.
skipping_ignores_marks_test() ->
    Skipping = halley_edge_position:enter(skipping, position()),
    {same, Same} = halley_edge_position:marked(1, 100, Skipping),
    ?assertMatch({?ZERO, _}, halley_edge_position:stands_at(Same)).

held_until_the_heads_test() ->
    Holding = halley_edge_position:enter(holding, halley_edge_position:enter(skipping, position())),
    Kept = lists:foldl(fun halley_edge_position:keep/2, Holding, [a, b, c]),
    {same, Marked} = halley_edge_position:marked(2, 50, Kept),
    ?assertMatch({?ZERO, _}, halley_edge_position:stands_at(Marked)),
    {Held, Marks, Live} = halley_edge_position:release({9, 8, 7, 6, 5, 4, 3, 2}, Marked),
    ?assertEqual({[a, b, c], [{2, 50}], live}, {Held, Marks, halley_edge_position:mode(Live)}),
    ?assertEqual({9, 8, 7, 6, 5, 4, 3, 2}, vector(Live)).

%% "the brain sends LAST only when the link's cursor is not below the heads"
last_waits_for_every_part_test() ->
    Waiting = halley_edge_position:await(last, {2, 2, 0, 0, 0, 0, 0, 0}, first,
                                      pass([{1, 2}], position())),
    ?assertMatch({[], _}, halley_edge_position:reached(Waiting)),
    Second = halley_edge_position:await(last, {1, 1, 0, 0, 0, 0, 0, 0}, second, Waiting),
    {Reached, Rest} = halley_edge_position:reached(pass([{2, 3}], Second)),
    ?assertMatch([{_, first}, {_, second}], Reached),
    ?assertNot(halley_edge_position:awaits(Rest)).

%% A first cursor isn't below what was published before; a catch-up keeps nobody waiting.
opening_waits_while_live_test() ->
    Heads = {0, 3, 0, 0, 0, 0, 0, 0},
    Waiting = halley_edge_position:await(opening, Heads, opened, position()),
    ?assertMatch({[], _}, halley_edge_position:reached(Waiting)),
    ?assertMatch({[{Heads, opened}], _}, halley_edge_position:reached(pass([{2, 3}], Waiting))),
    Skipping = halley_edge_position:enter(skipping, Waiting),
    {[{Heads, opened}], Rest} = halley_edge_position:reached(Skipping),
    ?assertNot(halley_edge_position:awaits(Rest)).

%% Those whose marks bring what waits closer: the newest LAST's, and the openings'.
lagging_test() ->
    ?assertEqual([], halley_edge_position:lagging(position())),
    Last = halley_edge_position:await(last, {2, 2, 0, 0, 0, 0, 0, 0}, first,
                                      pass([{1, 2}], position())),
    ?assertEqual([2], halley_edge_position:lagging(Last)),
    Newer = halley_edge_position:await(last, {2, 2, 0, 4, 0, 0, 0, 0}, second, Last),
    ?assertEqual([2, 4], halley_edge_position:lagging(Newer)),
    All = halley_edge_position:await(opening, {2, 2, 0, 0, 0, 0, 0, 8}, third, Newer),
    ?assertEqual([2, 4, 8], halley_edge_position:lagging(All)),
    ?assertEqual([8], halley_edge_position:lagging(pass([{2, 3}, {4, 4}], All))),
    ?assertEqual([], halley_edge_position:lagging(halley_edge_position:enter(holding, All))).

%% 6.1, 10.6: what the cursor of SYNC_BEGIN means.
begins_test_() ->
    Heads = {9, 9, 9, 9, 9, 9, 9, 9},
    Begins = fun(Sessions, Cursor) ->
        halley_edge_catchup:begins(Sessions, Cursor, ?STORE, Heads, 1700000009000)
    end,
    Cursor = fun(Store, Vector) -> halley_cursor:encode(Store, 1700000000, Vector) end,
    [?_assertEqual(here, Begins(0, Cursor(?STORE, ?ZERO))),
     ?_assertEqual({from, 1700000009, Heads}, Begins(3, <<>>)),
     ?_assertEqual({from, 1700000000, ?ZERO}, Begins(3, Cursor(?STORE, ?ZERO))),
     ?_assertEqual({from, 1700000000, Heads}, Begins(3, Cursor(?STORE, Heads))),
     ?_assertEqual({gap, malformed, 1700000000000, 1700000009000, Heads},
                   Begins(3, Cursor(?STORE, setelement(4, Heads, 10)))),
     ?_assertEqual({gap, other_store, 1700000000000, 1700000009000, Heads},
                   Begins(3, Cursor(?STORE + 1, ?ZERO))),
     ?_assertEqual({gap, malformed, 0, 1700000009000, Heads}, Begins(3, <<"nonsense">>))].

position() ->
    halley_edge_position:new(?STORE, ?ZERO).

pass(Events, Position) ->
    Pass = fun({Shard, Seq}, Before) -> halley_edge_position:passed(Shard, Seq, Before) end,
    lists:foldl(Pass, Position, Events).

%% As the cursor says it.
vector(Position) ->
    {Cursor, _} = halley_edge_position:cursor(Position),
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    Vector.
