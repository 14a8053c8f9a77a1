%% Rows that are remembered of users: one user has its share, and a floor says which are missing.
-module(halley_user_rows_tests).

-include("support/halley_store_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-define(ROWS, ?MODULE).
-define(MAX, 20).

%% 2 of 20 rows are one user's share.
with_rows(Test) ->
    ok = halley_limits:set(#{user_share_percent_max => 10}),
    ok = halley_user_rows:new(?ROWS),
    try
        Test()
    after
        {_, Order} = persistent_term:get({halley_user_rows, ?ROWS}),
        ets:delete(?ROWS),
        ets:delete(Order),
        ok = halley_limits:set(#{})
    end.

record(User, Drawn) ->
    halley_user_rows:record(?ROWS, ?MAX, {User, Drawn, {what, Drawn}}).

drawn(User) ->
    [Drawn || {_, Drawn, {what, Drawn}} <- halley_user_rows:of_user(?ROWS, User)].

floors(Users) ->
    [halley_user_rows:floor(?ROWS, User) || User <- Users].

%% Before, it had all places after twenty rows, and the other user's was gone.
one_user_pushes_out_its_own_test() ->
    with_rows(fun() ->
        ok = record(1, 1),
        [ok = record(7, Drawn) || Drawn <- lists:seq(2, 1000)],
        ?assertEqual([1], drawn(1)),
        ?assertEqual([1000, 999], drawn(7)),
        ?assertEqual([0, 998, 0], floors([1, 7, 8])),
        ?assertEqual(0, halley_user_rows:floor(?ROWS)),
        ?assertEqual([1, 7], halley_user_rows:users(?ROWS)),
        ?assertMatch([{_, 7, 1000, _}, {_, 7, 999, _}, {_, 1, 1, _}],
                     halley_user_rows:matching(?ROWS, {what, '_'}))
    end).

%% The floor is common then; that of a user of its own goes when its rows do.
beyond_the_bound_the_oldest_goes_test() ->
    with_rows(fun() ->
        [ok = record(7, Drawn) || Drawn <- lists:seq(1, 5)],
        [ok = record(User, User) || User <- lists:seq(10, 28)],
        ?assertEqual([[5], [10], [28]], [drawn(User) || User <- [7, 10, 28]]),
        ?assertEqual(4, halley_user_rows:floor(?ROWS)),
        ok = record(29, 29),
        ?assertEqual([[], [10]], [drawn(User) || User <- [7, 10]]),
        ?assertEqual([5, 5], floors([7, 10])),
        ?assertEqual(?MAX, ets:info(?ROWS, size)),
        ok = halley_user_rows:record(?ROWS, 0, {30, 30, no}),
        ?assertEqual([30], lists:usort(floors([7, 10, 30])))
    end).

%% At least one, of however few.
small_bounds_test() ->
    with_rows(fun() ->
        [ok = halley_user_rows:record(?ROWS, 3, {User, Drawn, x})
         || {User, Drawn} <- [{1, 1}, {1, 2}, {2, 3}, {3, 4}]],
        ?assertEqual([1, 2, 3], halley_user_rows:users(?ROWS)),
        %% A lower bound.
        ok = halley_user_rows:record(?ROWS, 1, {4, 5, x}),
        ?assertEqual([4], halley_user_rows:users(?ROWS)),
        ?assertEqual([4, 4], floors([1, 4]))
    end).

forgotten_users_leave_nothing_test() ->
    with_rows(fun() ->
        [ok = record(7, Drawn) || Drawn <- lists:seq(1, 5)],
        ok = record(8, 6),
        ?assertEqual([3, 4, 5], lists:sort(halley_user_rows:forget(?ROWS, [7, 9]))),
        ?assertEqual({[], [6]}, {drawn(7), drawn(8)}),
        ?assertEqual([0, 0], floors([7, 8])),
        ?assertEqual([8], halley_user_rows:users(?ROWS)),
        ?assertEqual(1, ets:info(?ROWS, size)),
        %% Their places are free.
        [ok = record(User, User) || User <- lists:seq(10, 28)],
        ?assertEqual({[6], 0}, {drawn(8), halley_user_rows:floor(?ROWS)})
    end).

%% Above its floor each of a user's rows is there, whatever was recorded and in which order.
what_is_missing_is_known_test_() ->
    {timeout, 120, ?_assert(proper:quickcheck(prop_missing(), [{to_file, user},
                                                               {numtests, 300}]))}.

prop_missing() ->
    ?FORALL(Users, list(frequency([{3, 1}, {1, range(2, 30)}])),
        with_rows(fun() ->
            All = lists:zip(Users, lists:seq(1, length(Users))),
            [ok = record(User, Drawn) || {User, Drawn} <- All],
            lists:all(fun(User) ->
                Known = drawn(User),
                [Floor] = floors([User]),
                Due = [Drawn || {U, Drawn} <- All, U =:= User, Drawn > Floor],
                length(Known) =< 2 andalso Due -- Known =:= []
                    andalso (Floor =:= 0 orelse length(All) > ?MAX orelse length(Known) =:= 2)
            end, lists:seq(1, 30))
                andalso length(halley_user_rows:matching(?ROWS, '_')) =< ?MAX
        end)).

%% Many write at once, as links do.
at_once_test_() ->
    {timeout, 60, fun() -> with_rows(fun at_once/0) end}.

at_once() ->
    Last = atomics:new(1, []),
    Writers = [spawn_monitor(fun() ->
        [ok = record(rand:uniform(3) * rand:uniform(20), atomics:add_get(Last, 1, 1))
         || _ <- lists:seq(1, 3000)]
    end) || _ <- lists:seq(1, 4)],
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
     || {Pid, Monitor} <- Writers],
    Left = halley_user_rows:matching(?ROWS, '_'),
    ?assertEqual(?MAX, length(Left)),
    {State, Order} = persistent_term:get({halley_user_rows, ?ROWS}),
    ?assertEqual(?MAX, atomics:get(State, 3)),
    ?assertEqual(lists:sort([Place || {Place, _, _, _} <- Left]),
                 [Place || {Place, _, _} <- ets:tab2list(Order)]),
    Counts = maps:groups_from_list(fun({_, User, _, _}) -> User end, Left),
    ?assertEqual([], [User || {User, Rows} <- maps:to_list(Counts), length(Rows) > 2]).
