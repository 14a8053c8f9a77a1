%% Marks, and which subjects become groups.
-module(halley_groups_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    {timeout, 60, ?_assert(proper:quickcheck(prop_halley_groups:prop_settled_is_exact(),
                                             [quiet, {numtests, 300}]))}.

marks_test_() ->
    {setup, fun halley_groups_marks:new/0, fun(ok) -> ets:delete(halley_groups_marks) end,
     [fun marks_are_taken_in_portions/0, fun a_walk_ends/0]}.

marks_are_taken_in_portions() ->
    [new = halley_groups_marks:leave(7, User) || User <- [3, 1, 2]],
    new = halley_groups_marks:leave(6, 9),
    new = halley_groups_marks:leave(8, 0),
    ?assertEqual(there, halley_groups_marks:leave(7, 2)),
    ?assertEqual(5, halley_groups_marks:count()),
    ?assertEqual({[1, 2], more}, halley_groups_marks:take(7, 2)),
    ?assertEqual({[3], done}, halley_groups_marks:take(7, 2)),
    ?assertEqual({[], done}, halley_groups_marks:take(7, 2)),
    ?assertEqual([9], halley_groups_marks:take_all(6)),
    ?assertEqual([0], halley_groups_marks:take_all(8)),
    ?assertEqual(0, halley_groups_marks:count()).

%% Somebody leaves the same marks again as fast as they are taken.
a_walk_ends() ->
    Leaver = spawn_link(fun leave_forever/0),
    [?assert(length(halley_groups_marks:take_all(1)) =< 50) || _ <- lists:seq(1, 1000)],
    unlink(Leaver),
    Monitor = monitor(process, Leaver),
    exit(Leaver, kill),
    receive {'DOWN', Monitor, process, Leaver, _} -> ok end.

leave_forever() ->
    _ = [halley_groups_marks:leave(1, User) || User <- lists:seq(1, 50)],
    leave_forever().

%% On at `min', off below `low', in between as it was; never more than there may be.
hysteresis_test_() ->
    Limits = #{min => 100, low => 80, groups => 3},
    [?_assertEqual(Expected, halley_groups:decide(IsGroup, Followers, Groups, Limits))
     || {IsGroup, Followers, Groups, Expected} <-
            [{false, 99, 0, stay}, {false, 100, 0, start}, {false, 100, 3, stay},
             {true, 99, 1, stay}, {true, 80, 3, stay}, {true, 79, 3, stop},
             {true, 1000, 9, stay}]].

%% Limits the wrong way round don't make a group come and go.
limits_the_wrong_way_round_test() ->
    Limits = #{min => 10, low => 20, groups => 3},
    ?assertEqual(start, halley_groups:decide(false, 15, 0, Limits)),
    ?assertEqual(stay, halley_groups:decide(true, 15, 1, Limits)).
