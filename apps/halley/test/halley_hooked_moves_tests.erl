%% When users came and went, as it is kept for hooks: whose, in which order, by which clock.
-module(halley_hooked_moves_tests).
-include_lib("eunit/include/eunit.hrl").

-define(HOUR_MS, 3600000).

moves_test_() ->
    {foreach, fun on/0, fun off/1,
     [fun in_order/1, fun of_nobody/1, fun clock_that_was_set/1, fun judged/1, fun bounded/1]}.

%% User 1 has an id, user 2 has none any more.
on() ->
    halley_hooked_moves:on({fun(1) -> <<"ann">>; (2) -> undefined end, fun() -> 7 end,
                            fun() -> 3 end}).

off(_) ->
    true = ets:delete(halley_hooked_moves),
    true = ets:delete(halley_hooked_moves_unwritten).

whats() -> [What || {_, What, 7} <- halley_hooked_moves:of_user(<<"ann">>)].

in_order(_) ->
    fun() ->
        ok = halley_hooked_moves:left(1),
        ok = halley_hooked_moves:caught(1, {1, 2}),
        ok = halley_hooked_moves:in_sync(fun() -> halley_hooked_moves:came(1) end),
        ?assertEqual([left, {caught, {1, 2}}, synced], whats()),
        ?assertEqual([], halley_hooked_moves:of_user(<<"bob">>))
    end.

of_nobody(_) ->
    fun() ->
        ok = halley_hooked_moves:left(2),
        ?assertEqual([], ets:tab2list(halley_hooked_moves))
    end.

%% Its time is by the clock as it is now, as that of the events is.
clock_that_was_set(_) ->
    [fun() ->
         WallMs = halley_clock:wall_ms(),
         Key = {<<"ann">>, erlang:monotonic_time(millisecond), 1},
         true = ets:delete_all_objects(halley_hooked_moves),
         true = ets:insert(halley_hooked_moves, {Key, left, WallMs + SetMs, 7}),
         [{Ms, left, 7}] = halley_hooked_moves:of_user(<<"ann">>),
         ?assert(abs(Ms - WallMs) =< 900)
     end || SetMs <- [-?HOUR_MS, -1500, -500, 0, 500, 1500, ?HOUR_MS]].

judged(_) ->
    fun() ->
        ok = halley_hooked_moves:left(1),
        timer:sleep(20),
        Then = erlang:monotonic_time(millisecond),
        ok = halley_hooked_moves:came(1),
        ok = halley_hooked_moves:forget(Then),
        ?assertEqual([came], whats()),
        [ok = halley_hooked_moves:left(1) || _ <- [1, 2]],
        ?assertEqual(none, halley_hooked_moves:lost())
    end.

bounded(_) ->
    fun() ->
        [ok = halley_hooked_moves:left(1) || _ <- lists:seq(1, 10)],
        ?assertEqual(3, length(whats())),
        ?assert(is_integer(halley_hooked_moves:lost())),
        ok = halley_hooked_moves:clear(),
        ?assertEqual(none, halley_hooked_moves:lost()),
        ok = halley_hooked_moves:came(1),
        ?assertEqual([came], whats())
    end.
