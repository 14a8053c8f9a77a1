%% Present users: pages, answers and rights.
-module(halley_api_presence_tests).
-include_lib("eunit/include/eunit.hrl").

-compile({no_auto_import, [get/1]}).
-import(halley_api_fake, [get/1, get/2, as_user/5, json/1, failed/3]).

presence_test_() ->
    {setup, fun() ->
         meck:new(halley_presence_query, [non_strict, no_link]),
         meck:expect(halley_presence_query, states, fun(_) -> [] end)
     end,
     fun(_) -> process_flag(priority, normal), meck:unload(halley_presence_query) end,
     halley_api_fake:cases([fun a_room/0, fun with_states/0, fun a_large_room/0,
                            fun who_is_online/0,
                            fun bad_requests/0, fun ones_own/0,
                            fun rights_to_those_followed/0])}.

-define(ROOM, "/v1/subjects/room7/presence").
-define(MINE, "/v1/me/following/online").

room(Room) ->
    ok = meck:expect(halley_presence_query, room, fun(_, _, _) -> Room end),
    ok = meck:expect(halley_presence_query, room_own, fun(_, _, _) -> Room end).

online(Users, Next) ->
    ok = meck:expect(halley_presence_query, following_online, fun(_, _, _) -> {Users, Next} end),
    ok = meck:expect(halley_presence_query, following_online_own,
                     fun(_, _, _, May) -> {lists:filter(May, Users), Next} end).

asked() ->
    History = meck:history(halley_presence_query),
    lists:last([Args || {_, {halley_presence_query, Read, Args}, _} <- History, Read =/= states]).

body({200, _, Body}) -> iolist_to_binary(Body).

own(Rights, Path) -> as_user({<<"ann">>, Rights}, <<"GET">>, Path, <<>>, <<>>).

%% http.md 22.1
a_room() ->
    room(#{online => 3, users => [<<"ann">>, <<"b\"b">>], next => <<"b\"b">>}),
    ?assertEqual(<<"{\"online\":3,\"users\":[\"ann\",\"b\\\"b\"],\"next\":\"b\\\"b\"}\n">>,
                 body(get(?ROOM, [{<<"limit">>, <<"2">>}, {<<"after">>, <<"x">>}]))),
    ?assertEqual([<<"room7">>, <<"x">>, 2], asked()),
    room(#{online => 0, users => [], next => done}),
    ?assertEqual(<<"{\"online\":0,\"users\":[],\"next\":null}\n">>, body(get(?ROOM))),
    ?assertEqual([<<"room7">>, start, 100], asked()).

%% http.md 23.3: as they were said; nothing of whom the right doesn't name.
with_states() ->
    Said = fun(Users) -> [{U, <<"{\"n\":1.10}">>} || U <- Users, U =/= <<"eve">>] end,
    meck:expect(halley_presence_query, states, Said),
    room(#{online => 2, users => [<<"b\"b">>, <<"eve">>], next => done}),
    ?assertEqual(<<"{\"online\":2,\"users\":[\"b\\\"b\",\"eve\"],\"next\":null,"
                   "\"states\":{\"b\\\"b\":{\"n\":1.10}}}\n">>, body(get(?ROOM))),
    online([<<"ann">>, <<"bob">>], done),
    ?assertEqual(#{<<"users">> => [<<"bob">>], <<"next">> => null,
                   <<"states">> => #{<<"bob">> => #{<<"n">> => 1.1}}},
                 json(own(<<"{\"presence\":[\"b*\"]}">>, ?MINE))),
    meck:expect(halley_presence_query, states, fun(_) -> [] end).

a_large_room() ->
    room(#{online => 1000000, users => large, next => done}),
    ?assertEqual(<<"{\"online\":1000000,\"users\":null,\"next\":null}\n">>, body(get(?ROOM))).

%% http.md 22.3
who_is_online() ->
    online([<<"bob">>], <<"eve">>),
    ?assertEqual(<<"{\"users\":[\"bob\"],\"next\":\"eve\"}\n">>,
                 body(get("/v1/users/ann/following/online", [{<<"limit">>, <<"1000">>}]))),
    ?assertEqual([<<"ann">>, start, 1000], asked()).

bad_requests() ->
    Unknown = {error, {unknown_id, <<"x">>}},
    room(Unknown),
    ok = meck:expect(halley_presence_query, following_online, fun(_, _, _) -> Unknown end),
    [begin
         failed(400, bad_after, get(Path, [{<<"after">>, <<"x">>}])),
         failed(400, bad_limit, get(Path, [{<<"limit">>, <<"1001">>}])),
         failed(405, method_not_allowed, halley_api_fake:call(api, <<"POST">>, Path, <<>>)),
         failed(404, not_found, halley_api_fake:call(public, <<"GET">>, Path, <<>>))
     end || Path <- [?ROOM, "/v1/users/ann/following/online"]],
    failed(400, bad_subject, get("/v1/subjects//presence")),
    failed(400, bad_user, get("/v1/users//following/online")),
    failed(400, bad_subject, own(<<"{\"presence\":[\"*\"]}">>, "/v1/me/subjects//presence")).

%% http.md 22.4: who of one's own followers is there is told by the right, as of anybody else's.
ones_own() ->
    room(#{online => 1, users => [<<"ann">>], next => done}),
    Path = "/v1/me/subjects/ann/presence",
    failed(403, right_missing, own(<<"{\"presence\":[]}">>, Path)),
    ?assertMatch({200, _, _}, own(<<"{\"presence\":[\"ann\"]}">>, Path)).

%% http.md 22.4: "users without the right aren't named".
rights_to_those_followed() ->
    online([<<"bob">>, <<"eve">>, <<"team/1">>], <<"x">>),
    [?assertEqual(#{<<"users">> => Users, <<"next">> => <<"x">>}, json(own(Rights, ?MINE)))
     || {Rights, Users} <- [{<<"{\"presence\":[\"*\"]}">>, [<<"bob">>, <<"eve">>, <<"team/1">>]},
                            {<<"{\"presence\":[\"team/*\",\"eve\"]}">>,
                             [<<"eve">>, <<"team/1">>]},
                            {<<"{\"presence\":[\"y\"]}">>, []}]],
    ?assertMatch([<<"ann">>, start, 100, _], asked()).
