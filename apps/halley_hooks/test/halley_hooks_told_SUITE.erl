%% When a user or subject that has nothing any more causes `closed' or `vacated': not before
%% `closed_after', not while a session is there or on its way, and no more than were requested.
-module(halley_hooks_told_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([not_before_its_time/1, whoever_is_back_stays/1, session_on_its_way_is_one/1,
         changed_ones_are_left_out/1, at_most_so_many/1, subjects_are_vacated/1,
         nothing_happens_before_it_is_applied/1]).

-define(BOB, {user, <<"bob">>}).
-define(ROOM, {subject, <<"room">>}).

suite() -> [{timetrap, {minutes, 1}}].

all() ->
    [not_before_its_time, whoever_is_back_stays, session_on_its_way_is_one,
     changed_ones_are_left_out, at_most_so_many, subjects_are_vacated,
     nothing_happens_before_it_is_applied].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) -> halley_test_brain:start(Config).
end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% All of these have left at one moment, and are due so much later.
left(Keys, AfterMs) ->
    Told = halley_hooks_told:new(Keys, AfterMs),
    ok = halley_hooks_told:began(Keys, Told),
    Told.

%% What is told, without its times.
due(Max, Changed, Told) ->
    {Entries, Effects} = halley_hooks_told:due(Max, Changed, Told),
    {[{What, Id} || {What, _, Id} <- Entries], Effects}.

%% The same, once so many are due.
awaited(Count, Told) ->
    case due(100, [], Told) of
        {_, Effects} = Due when length(Effects) =:= Count -> Due;
        _ -> timer:sleep(10), awaited(Count, Told)
    end.

not_before_its_time(_) ->
    AfterMs = 300,
    Since = erlang:monotonic_time(millisecond),
    Told = left([?BOB], AfterMs),
    ?assertEqual({[{closed, <<"bob">>}], [{gone, ?BOB}]}, awaited(1, Told)),
    ?assert(erlang:monotonic_time(millisecond) - Since >= AfterMs),
    ?assertEqual({[], []}, due(10, [], left([?BOB], 3600000))).

whoever_is_back_stays(_) ->
    Told = left([?BOB], 1),
    ok = halley:login(<<"bob">>),
    Due = awaited(1, Told),
    ?assertEqual({[], [{stays, ?BOB}]}, Due),
    ok = halley_hooks_told:apply_changes(element(2, Due), Told),
    ?assertEqual({[], []}, due(10, [], Told)),
    ?assertEqual([?BOB], halley_hooks_told:keys(Told)).

%% It is looked at again: it may end before it is open.
session_on_its_way_is_one(_) ->
    {_, Slot, _} = halley_test_brain:link_with([], #{}),
    Bob = halley_test_brain:number(<<"bob">>),
    Told = left([?BOB], 1),
    ok = halley_directory_leaving:hold(Bob, Slot),
    {[], [{leaves, ?BOB}] = Effects} = awaited(1, Told),
    ok = halley_hooks_told:apply_changes(Effects, Told),
    ok = halley_directory_leaving:release(Bob, Slot),
    ?assertEqual({[{closed, <<"bob">>}], [{gone, ?BOB}]}, awaited(1, Told)).

%% What a round took of their changes says more than that their time has come.
changed_ones_are_left_out(_) ->
    Told = left([?BOB, {user, <<"eve">>}], 1),
    {[_, _], _} = awaited(2, Told),
    ?assertEqual({[{closed, <<"eve">>}], [{gone, {user, <<"eve">>}}]}, due(10, [?BOB], Told)).

at_most_so_many(_) ->
    Keys = [{user, <<"u", N>>} || N <- lists:seq($0, $9)],
    Told = left(Keys, 1),
    {All, _} = awaited(10, Told),
    ?assertEqual(10, length(All)),
    {First, Effects} = due(4, [], Told),
    ?assertEqual(4, length(First)),
    ok = halley_hooks_told:apply_changes(Effects, Told),
    {Rest, _} = due(10, [], Told),
    ?assertEqual(lists:sort(All), lists:sort(First ++ Rest)),
    ?assertEqual(6, length(Rest)).

subjects_are_vacated(_) ->
    {_, Slot, _} = halley_test_brain:link_with([], #{}),
    Told = left([?ROOM, {subject, <<"hall">>}], 1),
    [] = halley_subscriptions:open(Slot, [{1, nobody, live, [<<"hall">>]}]),
    {Entries, Effects} = awaited(2, Told),
    ?assertEqual([{vacated, <<"room">>}], Entries),
    ?assertEqual([{gone, ?ROOM}, {stays, {subject, <<"hall">>}}], lists:sort(Effects)).

%% A round whose append fails is done again.
nothing_happens_before_it_is_applied(_) ->
    Told = left([?BOB], 1),
    Due = awaited(1, Told),
    ?assertEqual(Due, due(10, [], Told)),
    ok = halley_hooks_told:apply_changes(element(2, Due), Told),
    ?assertEqual({[], []}, due(10, [], Told)),
    ?assertEqual([], halley_hooks_told:keys(Told)).
