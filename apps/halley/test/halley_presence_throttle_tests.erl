%% When states of users are sent.
-module(halley_presence_throttle_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_presence_throttle, [new/0, look/4, due/2, sent/4, shown/3, forget/2]).

-define(LEAVE_MS, 500).

throttle_test_() ->
    {setup,
     fun() ->
         ok = meck:new(halley_limits, [passthrough]),
         meck:expect(halley_limits, get, fun(presence_states_ms) -> 1000 end)
     end,
     fun(_) -> meck:unload(halley_limits) end,
     [fun at_most_so_often/0, fun one_that_is_gone_may_come_back/0, fun of_each_user/0,
      fun who_asks_in_between/0]}.

tell(User, Text, Now, States) ->
    {send, Next} = look(User, Text, {Now, ?LEAVE_MS}, States),
    {differs, Told} = sent(User, Text, Now, Next),
    Told.

same(User, Text, Now, States) ->
    {same, Next} = look(User, Text, {Now, ?LEAVE_MS}, States),
    Next.

%% The first at once, then the last of a second.
at_most_so_often() ->
    First = tell(1, {ok, <<"a">>}, 0, new()),
    Changed = lists:foldl(fun({Now, Text}, States) -> same(1, {ok, Text}, Now, States) end,
                          First, [{1, <<"b">>}, {2, <<"c">>}, {998, <<"d">>}]),
    ?assertMatch({[], _}, due(999, Changed)),
    {[1], Due} = due(1000, Changed),
    {differs, Told} = sent(1, {ok, <<"d">>}, 1000, Due),
    ?assertMatch({[], _}, due(100000, Told)),
    Back = same(1, {ok, <<"d">>}, 1001, same(1, {ok, <<"e">>}, 1001, Told)),
    ?assertMatch({[], _}, due(100000, Back)),
    _ = tell(1, {ok, <<"e">>}, 2000, Told).

one_that_is_gone_may_come_back() ->
    First = tell(1, {ok, <<"a">>}, 0, new()),
    Gone = same(1, none, 10, First),
    ?assertMatch({[], _}, due(10 + ?LEAVE_MS - 1, Gone)),
    Back = same(1, {ok, <<"a">>}, 300, Gone),
    ?assertMatch({[], _}, due(100000, Back)),
    {[1], Due} = due(10 + ?LEAVE_MS, Gone),
    {differs, Left} = sent(1, none, 510, Due),
    _ = tell(1, {ok, <<"a">>}, 511, Left).

%% In the order of time; told once more it is the same.
of_each_user() ->
    All = lists:foldl(fun(User, States) -> tell(User, {ok, <<"a">>}, User, States) end,
                      new(), [3, 1, 2]),
    Next = lists:foldl(fun(User, States) -> same(User, {ok, <<"b">>}, 9, States) end,
                       All, [3, 1, 2]),
    ?assertMatch({[1, 2], _}, due(1002, Next)),
    ?assertMatch({same, _}, sent(3, {ok, <<"a">>}, 9, Next)).

%% What was told, not what is so by then; of who told nothing yet, that.
who_asks_in_between() ->
    First = tell(1, {ok, <<"a">>}, 0, new()),
    Changed = same(2, none, 1, same(1, {ok, <<"b">>}, 1, First)),
    Said = [{1, <<"b">>}, {3, <<"c">>}],
    ?assertEqual([{1, <<"a">>}, {3, <<"c">>}], shown([1, 2, 3], Said, Changed)),
    ?assertEqual([{1, <<"a">>}], shown([1], [], same(1, none, 2, Changed))),
    ?assertEqual(Said, shown([1, 2, 3], Said, new())),
    Forgotten = forget(1, Changed),
    ?assertEqual(Said, shown([1, 2, 3], Said, Forgotten)),
    ?assertMatch({[2], _}, due(100000, Forgotten)).
