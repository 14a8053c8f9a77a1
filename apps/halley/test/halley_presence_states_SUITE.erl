%% States that sessions publish of themselves (http.md 23): in the state of a subject, with a join,
%% and when they change; the last one counts. halley_presence_between_SUITE has listeners that begin
%% between two changes.
-module(halley_presence_states_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_presence_SUITE, [open/4, close/3, here/1, key/1, told/1, nothing_told/1, state/2,
                                join/2, leave/2, change/3]).
-import(halley_test_brain, [follow_all/2, number/1, wait/1]).

%% That of halley_presence_SUITE.
-define(LEAVE_MS, 400).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [states, states_come_back, states_of_those_followed, states_by_the_way].

init_per_testcase(Case, Config) -> halley_presence_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_presence_SUITE:end_per_testcase(Case, Config).

say({_, Slot, _}, Conn, User, Text) ->
    Pieces = case Text of
        none -> [];
        _ -> halley_session_states:pieces(erlang:system_time(millisecond), Text)
    end,
    stated = halley_subscriptions:state(Slot, {Conn, User, live}, Pieces).

update(Subject, User, Data) ->
    (change(Subject, User, <<"update">>))#{<<"data">> => Data}.

%% Some changes may be told on the way.
told_until(Last, Link) ->
    case told(Link) of
        {_, Last} -> ok;
        {_, #{<<"state">> := <<"update">>}} -> told_until(Last, Link)
    end.

%% In the state, with a join, and when it changes; the last counts.
states(Config) ->
    Link = here(Config),
    [U1, U2, U3] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>]],
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, U2, [<<"room/1">>]),
    say(Link, 1, U1, <<"{\"is\":\"busy\"}">>),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], (state(<<"room/1">>, [<<"u1">>, <<"u2">>]))#{
                           <<"states">> => #{<<"u1">> => #{<<"is">> => <<"busy">>}}}}, told(Link)),
    say(Link, 2, U2, <<"7">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u2">>, 7)}, told(Link)),
    [say(Link, 2, U2, integer_to_binary(N)) || N <- [8, 9, 10]],
    ok = told_until(update(<<"room/1">>, <<"u2">>, 10), Link),
    say(Link, 2, U2, <<"10">>),
    say(Link, 2, U2, none),
    ?assertEqual({[9], update(<<"room/1">>, <<"u2">>, null)}, told(Link)),
    ok = open(Link, 3, U3, []),
    say(Link, 3, U3, <<"\"new\"">>),
    {_, Slot, _} = Link,
    {added, _} = halley_subscriptions:add(Slot, {3, U3, live}, <<"room/1">>),
    ?assertEqual({[9], (join(<<"room/1">>, <<"u3">>))#{<<"data">> => <<"new">>}}, told(Link)),
    nothing_told(Link).

%% A connection that breaks and says it again tells nothing, and nothing is said of who has left.
%% Of several sessions it is what was said last, and goes with its session.
states_come_back(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    say(Link, 1, U1, <<"1">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 1)}, told(Link)),
    ok = close(Link, 1, U1),
    timer:sleep(?LEAVE_MS div 3),
    ok = open(Link, 2, U1, [<<"room/1">>]),
    say(Link, 2, U1, <<"1">>),
    nothing_told(Link),
    ok = open(Link, 3, U1, []),
    timer:sleep(2),
    say(Link, 3, U1, <<"3">>),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 3)}, told(Link)),
    ok = close(Link, 3, U1),
    ?assertEqual({[9], update(<<"room/1">>, <<"u1">>, 1)}, told(Link)),
    ok = close(Link, 2, U1),
    ?assertEqual({[9], leave(<<"room/1">>, <<"u1">>)}, told(Link)),
    nothing_told(Link),
    ?assertEqual(false, halley_session_states:is_any()).

states_of_those_followed(Config) ->
    Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = follow_all(<<"u2">>, [<<"u1">>]),
    ok = open(Link, 1, U1, []),
    say(Link, 1, U1, <<"1">>),
    ok = open(Link, 2, U2, [key(<<"*">>)]),
    ?assertEqual({[2], (state(<<"*">>, [<<"u1">>]))#{<<"states">> => #{<<"u1">> => 1}}},
                 told(Link)),
    say(Link, 1, U1, <<"2">>),
    ?assertEqual({[2], update(<<"*">>, <<"u1">>, 2)}, told(Link)),
    ?assertEqual([{<<"u1">>, <<"2">>}],
                 halley_presence_query:states([<<"u2">>, <<"u1">>, <<"x">>])).

%% A session that is held has none yet; a link that ends takes all of its own; what isn't a state
%% is none; and all of them count as subscriptions do.
states_by_the_way(Config) ->
    Link = {_, Slot, _} = here(Config),
    U1 = number(<<"u1">>),
    Pieces = halley_session_states:pieces(1, binary:copy(<<"1">>, 1024)),
    ?assertEqual(5, length(Pieces)),
    ?assert(halley_session_states:check(Pieces)),
    Texts = [<<>>, <<"1,2">>, <<"[\n1]">>, binary:copy(<<"1">>, 1025)],
    [?assertNot(halley_session_states:check(Bad))
     || Bad <- [tl(Pieces), lists:reverse(Pieces), [<<2>>], [<<2, 0>>], [<<2, 0, 1>>]
                | [halley_session_states:pieces(1, Text) || Text <- Texts]]],
    [] = halley_subscriptions:open(Slot, [{1, U1, held, [<<"room/1">> | Pieces]}]),
    ?assertEqual([<<"room/1">>], halley_subscriptions:subjects(Slot, 1)),
    ?assertEqual(none, halley_session_states:of_user(U1)),
    ok = halley_subscriptions:enter(Slot, [1]),
    ?assertEqual({ok, binary:copy(<<"1">>, 1024)}, halley_session_states:of_user(U1)),
    ok = halley_session_states:forget(U1),
    ?assertEqual(none, halley_session_states:of_user(U1)),
    ok = halley_test_brain:limits(#{subscriptions_max => 8}),
    ?assertEqual(stated, halley_subscriptions:state(Slot, {2, U1, live}, [hd(Pieces)])),
    ?assertEqual(too_many, halley_subscriptions:state(Slot, {2, U1, live}, Pieces)),
    {Writer, _, _} = Link,
    ok = halley_subscriptions:ended(Slot),
    wait(fun() -> not halley_session_states:is_any() end),
    exit(Writer, kill).
