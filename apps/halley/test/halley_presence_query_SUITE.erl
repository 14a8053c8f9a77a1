%% Present users: pages compared with the truth, and what counts as present.
-module(halley_presence_query_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [follow_all/2, number/1, link_with/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [who_is_in_a_room, pages_of_a_room, large_rooms, following, following_in_pages].

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

user(N) -> iolist_to_binary(io_lib:format("u~4..0b", [N])).

subscribe({_, Slot, _}, Conn, User, As, Subject) ->
    [] = halley_subscriptions:open(Slot, [{Conn, User, As, [Subject]}]),
    ok.

room(Subject) -> halley_presence_query:room(Subject, start, 100).

%% All pages of what a function reads, and how many there were.
pages(Read) -> pages(Read, start, [], 0).

pages(Read, After, Acc, N) ->
    case Read(After) of
        {Ids, done} -> {Acc ++ Ids, N + 1};
        {Ids, Next} -> pages(Read, Next, Acc ++ Ids, N + 1)
    end.

%% --- rooms ---------------------------------------------------------------------------------------

%% http.md 22.1: followers that are online, the subject itself, who is subscribed; each user once;
%% visitors by their sessions. Nobody else, and not who is held.
who_is_in_a_room(_) ->
    ?assertEqual(#{online => 0, users => [], next => done}, room(<<"room">>)),
    [ok = follow_all(User, [<<"room">>]) || User <- [<<"ann">>, <<"bob">>, <<"eve">>]],
    [Ann, Eve, Sub, Other] = [number(U) || U <- [<<"ann">>, <<"eve">>, <<"sub">>, <<"other">>]],
    Link = link_with([{Ann, 1}, {Ann, 2}, {Eve, 3}, {Sub, 4}, {Other, 5}]),
    ok = subscribe(Link, 2, Ann, live, <<"room">>),
    ok = subscribe(Link, 4, Sub, live, <<"room">>),
    ok = subscribe(Link, 6, nobody, live, <<"room">>),
    ok = subscribe(Link, 7, nobody, live, <<"room">>),
    ok = subscribe(Link, 8, Other, held, <<"room">>),
    ok = subscribe(Link, 5, Other, live, <<"live">>),
    ?assertEqual(#{online => 5, users => [<<"ann">>, <<"eve">>, <<"sub">>], next => done},
                 room(<<"room">>)),
    ?assertEqual(#{online => 1, users => [<<"ann">>], next => done}, room(<<"ann">>)),
    ok = follow_all(<<"other">>, [<<"ann">>]),
    ?assertEqual(#{online => 2, users => [<<"ann">>, <<"other">>], next => done}, room(<<"ann">>)),
    {_, Slot, _} = Link,
    ok = halley_directory:close(Ann, {link, Slot, 1}),
    ?assertMatch(#{users := [<<"ann">> | _]}, room(<<"room">>)),
    ok = halley_directory:close(Ann, {link, Slot, 2}),
    ok = halley_subscriptions:close(Slot, [2, 6]),
    ?assertEqual(#{online => 3, users => [<<"eve">>, <<"sub">>], next => done}, room(<<"room">>)).

pages_of_a_room(_) ->
    {ok, _} = halley:follow([{user(N), <<"room">>} || N <- lists:seq(1, 25)]),
    Online = [N || N <- lists:seq(1, 25), N rem 3 =/= 0],
    _ = link_with([{number(user(N)), N} || N <- Online]),
    Read = fun(After) ->
        #{online := Count, users := Users, next := Next} =
            halley_presence_query:room(<<"room">>, After, 5),
        ?assertEqual(length(Online), Count),
        {Users, Next}
    end,
    ?assertEqual({[user(N) || N <- Online], 4}, pages(Read)),
    ?assertEqual({error, {unknown_id, <<"x">>}},
                 halley_presence_query:room(<<"room">>, <<"x">>, 5)).

%% Past the bound they are counted; followers and subscribed sessions alike.
large_rooms(_) ->
    ok = halley_test_brain:limits(#{presence_listed_max => 3}),
    {ok, _} = halley:follow([{user(N), <<"room">>} || N <- [1, 2, 3]]),
    Link = link_with([{number(user(N)), N} || N <- [1, 2]]),
    ?assertMatch(#{online := 2, users := [_, _]}, room(<<"room">>)),
    {ok, _} = halley:follow([{user(4), <<"room">>}]),
    ?assertEqual(#{online => 2, users => large, next => done}, room(<<"room">>)),
    [ok = subscribe(Link, 100 + N, nobody, live, <<"live">>) || N <- [1, 2, 3]],
    ?assertEqual(#{online => 3, users => [], next => done}, room(<<"live">>)),
    ok = subscribe(Link, 104, nobody, live, <<"live">>),
    ?assertEqual(#{online => 4, users => large, next => done}, room(<<"live">>)),
    %% It is counted once in a while, not at each request.
    ok = subscribe(Link, 105, nobody, live, <<"live">>),
    ?assertMatch(#{online := 4}, room(<<"live">>)),
    halley_test_brain:wait(fun() -> maps:get(online, room(<<"live">>)) =:= 5 end).

%% --- those whom a user follows -------------------------------------------------------------------

following(_) ->
    Read = fun(After) -> halley_presence_query:following_online(<<"ann">>, After, 10) end,
    ?assertEqual({[], done}, Read(start)),
    ok = follow_all(<<"ann">>, [<<"bob">>, <<"eve">>, <<"room">>]),
    ?assertEqual({[], done}, Read(start)),
    _ = link_with([{number(<<"eve">>), 1}, {number(<<"other">>), 2}, {number(<<"ann">>), 3}]),
    ?assertEqual({[<<"eve">>], done}, Read(start)),
    ?assertEqual({error, {unknown_id, <<"x">>}}, Read(<<"x">>)).

%% Whatever the size of a page, and however many are looked at in vain.
following_in_pages(_) ->
    All = lists:seq(1, 25000),
    {ok, _} = halley:follow([{<<"ann">>, iolist_to_binary(io_lib:format("u~5..0b", [N]))}
                             || N <- All]),
    Online = [N || N <- All, N rem 997 =:= 0 orelse N > 24990],
    Users = [iolist_to_binary(io_lib:format("u~5..0b", [N])) || N <- Online],
    _ = link_with(lists:zip([number(User) || User <- Users], Online)),
    [begin
         Read = fun(After) ->
             {Page, _} = Result = halley_presence_query:following_online(<<"ann">>, After, Limit),
             ?assert(length(Page) =< Limit),
             Result
         end,
         ?assertEqual({Users, Pages}, pages(Read))
     end || {Limit, Pages} <- [{1, length(Users)}, {7, 5}, {1000, 3}]].
