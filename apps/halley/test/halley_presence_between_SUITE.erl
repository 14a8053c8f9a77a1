%% A session that begins to listen between two changes of a state knows the same as all others: so
%% the next message is right for each of them. And the state comes first, whatever changes
%% meanwhile.
-module(halley_presence_between_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_presence_SUITE, [open/4, close/3, here/1, key/1, told/1, nothing_told/1,
                                nothing_told/2, state/2, join/2, leave/2]).
-import(halley_presence_states_SUITE, [say/4, update/3]).
-import(halley_test_brain, [follow_all/2, number/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [the_state_comes_first, the_state_of_follows_comes_first, while_it_asks,
          nothing_before_what_is_owed,
          while_it_is_away, while_a_change_is_due, as_its_user_is_deleted, deleted_while_held].

init_per_testcase(Case, Config) -> halley_presence_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_presence_SUITE:end_per_testcase(Case, Config).

state_of_u1(Subject, Data) ->
    (state(Subject, [<<"u1">>]))#{<<"states">> => #{<<"u1">> => Data}}.

%% Who comes, who says something and who asks are looked at together.
the_state_comes_first(Config) ->
    Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    ok = sys:suspend(halley_presence),
    ok = open(Link, 2, U2, [<<"room/1">>]),
    say(Link, 1, U1, <<"1">>),
    ok = open(Link, 8, nobody, [key(<<"room/1">>)]),
    ok = sys:resume(halley_presence),
    All = (state(<<"room/1">>, [<<"u1">>, <<"u2">>]))#{<<"states">> => #{<<"u1">> => 1}},
    ?assertEqual([{[9], update(<<"room/1">>, <<"u1">>, 1)}, {[9], join(<<"room/1">>, <<"u2">>)},
                  {[8], All}],
                 [told(Link), told(Link), told(Link)]),
    ok = close(Link, 2, U2),
    ?assertEqual({[8, 9], leave(<<"room/1">>, <<"u2">>)}, told(Link)),
    ?assertEqual([], ets:tab2list(halley_presence_pending)).

the_state_of_follows_comes_first(Config) ->
    Link = here(Config),
    [U1, U2, U3] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>]],
    [ok = follow_all(U, [<<"u2">>]) || U <- [<<"u1">>, <<"u3">>]],
    ok = open(Link, 9, U1, [key(<<"*">>)]),
    ?assertEqual({[9], state(<<"*">>, [])}, told(Link)),
    ok = sys:suspend(halley_presence),
    ok = open(Link, 2, U2, []),
    ok = open(Link, 8, U3, [key(<<"*">>)]),
    ok = sys:resume(halley_presence),
    ?assertEqual([{[9], join(<<"*">>, <<"u2">>)}, {[8], state(<<"*">>, [<<"u2">>])}],
                 [told(Link), told(Link)]),
    nothing_told(Link).

%% The table of subscriptions has it, and its note isn't there yet. It may also end before.
while_it_asks(Config) ->
    {_, Slot, _} = Link = here(Config),
    U1 = number(<<"u1">>),
    Key = key(<<"room/1">>),
    ok = open(Link, 9, nobody, [Key]),
    ?assertEqual({[9], state(<<"room/1">>, [])}, told(Link)),
    Word = Slot bsl 48 bor 8,
    ok = halley_presence_pending:add(Word, [Key]),
    ok = halley_subscriptions_table:add(Key, Word),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ?assertEqual({[9], join(<<"room/1">>, <<"u1">>)}, told(Link)),
    ok = open(Link, 8, nobody, [Key]),
    ?assertEqual({[8], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    [] = halley_subscriptions:open(Slot, [{Conn, U1, held, [Key, <<"room/1">>]}
                                          || Conn <- [6, 7]]),
    ?assertMatch([_, _], ets:tab2list(halley_presence_pending)),
    removed = halley_subscriptions:remove(Slot, 7, Key),
    ok = halley_subscriptions:close(Slot, [6]),
    ?assertEqual([], ets:tab2list(halley_presence_pending)).

%% A link without room is owed the state: a change that has room before that is not told.
nothing_before_what_is_owed(Config) ->
    {Writer, _, Queue} = Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], state(<<"room/1">>, [])}, told(Link)),
    Full = halley_limits:get(link_queue_bytes_max),
    ok = counters:add(Queue, 1, Full),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    nothing_told(Link, 300),
    receive {Writer, behind} -> ok after 0 -> ok end,
    ok = counters:sub(Queue, 1, Full div 4),
    ok = open(Link, 2, U2, [<<"room/1">>]),
    nothing_told(Link, 300),
    ok = counters:sub(Queue, 1, Full - Full div 4),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Link)),
    nothing_told(Link).

%% The connection of u1 breaks, and it comes back and says the same.
while_it_is_away(Config) ->
    {_, Slot, _} = Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = follow_all(<<"u2">>, [<<"u1">>]),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    say(Link, 1, U1, <<"1">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 1)}, told(Link)),
    %% However slow this is, it hasn't left.
    ok = halley_directory_leaving:hold(U1, Slot),
    ok = open(Link, 6, U2, [key(<<"*">>)]),
    ?assertEqual({[6], state_of_u1(<<"*">>, 1)}, told(Link)),
    ok = close(Link, 1, U1),
    ?assertEqual(none, halley_session_states:of_user(U1)),
    ok = open(Link, 8, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[8], state_of_u1(<<"room/1">>, 1)}, told(Link)),
    ok = open(Link, 7, U2, [key(<<"*">>)]),
    ?assertEqual({[7], state_of_u1(<<"*">>, 1)}, told(Link)),
    ok = open(Link, 2, U1, [<<"room/1">>]),
    say(Link, 2, U1, <<"1">>),
    nothing_told(Link).

%% What u1 says too early isn't told, and it takes it back: by then somebody else has asked, and it
%% has come to another room.
while_a_change_is_due(Config) ->
    ok = halley_test_brain:limits(#{presence_states_ms => 60000}),
    {_, Slot, _} = Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 9, nobody, [key(<<"room/1">>), key(<<"room/2">>)]),
    ?assertEqual(lists:sort([{[9], state(<<"room/1">>, [<<"u1">>])},
                             {[9], state(<<"room/2">>, [])}]),
                 lists:sort([told(Link), told(Link)])),
    say(Link, 1, U1, <<"1">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 1)}, told(Link)),
    say(Link, 1, U1, <<"2">>),
    ok = open(Link, 8, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[8], state_of_u1(<<"room/1">>, 1)}, told(Link)),
    {added, _} = halley_subscriptions:add(Slot, {1, U1, live}, <<"room/2">>),
    ?assertEqual({[9], (join(<<"room/2">>, <<"u1">>))#{<<"data">> => 1}}, told(Link)),
    say(Link, 1, U1, <<"1">>),
    nothing_told(Link).

%% http.md 23.2: that is told at once, however many a leave waits for.
as_its_user_is_deleted(Config) ->
    {_, Slot, _} = Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    say(Link, 1, U1, <<"1">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 1)}, told(Link)),
    ok = halley_directory_leaving:hold(U1, Slot),
    {ok, _} = halley:forget(<<"u1">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, null)}, told(Link)),
    ok = open(Link, 8, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[8], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    nothing_told(Link).

%% What it missed is being sent, so the directory doesn't have it, and nobody asks it to close.
deleted_while_held(Config) ->
    {_, Slot, _} = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    Pieces = halley_session_states:pieces(1, binary:copy(<<"1">>, 1024)),
    [] = halley_subscriptions:open(Slot, [{Conn, User, held, [<<"room/1">> | Pieces]}
                                          || {Conn, User} <- [{1, U1}, {2, U2}]]),
    [] = halley_subscriptions:open(Slot, [{3, U1, held, Pieces}]),
    [ok = halley_directory_leaving:hold(U, Slot) || U <- [U1, U2]],
    {ok, _} = halley:forget(<<"u1">>),
    ?assertEqual(2 + length(Pieces), subscriptions()),
    ok = halley_subscriptions:enter(Slot, [1, 2, 3]),
    ?assertEqual(none, halley_session_states:of_user(U1)),
    ?assertMatch({ok, _}, halley_session_states:of_user(U2)),
    ?assertEqual([<<"room/1">>], halley_subscriptions:subjects(Slot, 1)),
    ok = halley_subscriptions:close(Slot, [1, 2, 3]),
    ?assertEqual(0, subscriptions()).

subscriptions() -> maps:get(<<"halley_subscriptions">>, halley_metrics:values()).
