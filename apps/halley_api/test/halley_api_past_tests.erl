%% Pages of past events: requests, answers and rights.
-module(halley_api_past_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [get/2, as_user/5, json/1, failed/3, says/2]).

past_test_() ->
    {setup, fun() -> meck:new(halley_past, [non_strict, no_link]) end,
     fun(_) -> meck:unload(halley_past) end,
     halley_api_fake:cases([fun a_page/0, fun the_last_page/0, fun what_is_asked_for/0,
                            fun bad_requests/0, fun what_waits_is_503/0, fun ones_own/0,
                            fun turns_by_who_asks/0])}.

-define(PATH, "/v1/subjects/room/events").

answers(Page) ->
    ok = meck:expect(halley_past, page, fun(_, _, _, _) -> Page end).

empty() ->
    answers({ok, #{events => [], gaps => [], kept => none, next => none, cursor => none}}).

asked() ->
    {_, {halley_past, page, Args}, _} = lists:last(meck:history(halley_past)),
    Args.

%% http.md 19.2: the events are as in 7.4, "the cursor is the first member of its object".
a_page() ->
    answers({ok, #{events => [{<<"c2">>, <<"{\"id\":\"2\",\"data\":{\"n\":1.0}}">>},
                              {<<"c1">>, <<"{\"id\":\"1\",\"data\":null}">>}],
                   gaps => [#{from => 5, to => 7, reason => damaged}], next => <<"c0">>,
                   kept => <<"{\"id\":\"0\",\"data\":7}">>, cursor => <<"now">>}}),
    {200, _, Body} = Answer = get(?PATH, []),
    ?assertEqual(<<"{\"events\":[{\"cursor\":\"c2\",\"id\":\"2\",\"data\":{\"n\":1.0}},"
                   "{\"cursor\":\"c1\",\"id\":\"1\",\"data\":null}],"
                   "\"gaps\":[{\"from\":5,\"to\":7,\"reason\":\"damaged\"}],"
                   "\"next\":\"c0\",\"kept\":{\"id\":\"0\",\"data\":7},\"cursor\":\"now\"}\n">>,
                 iolist_to_binary(Body)),
    ?assertEqual(<<"application/json">>, halley_api_fake:header(<<"content-type">>, Answer)).

the_last_page() ->
    answers({ok, #{events => [], gaps => [#{from => 0, to => 9, reason => too_old}], kept => none,
                   next => none, cursor => none}}),
    {200, _, Body} = get(?PATH, []),
    ?assertEqual(<<"{\"events\":[],\"gaps\":[{\"from\":null,\"to\":9,\"reason\":\"too_old\"}],"
                   "\"next\":null}\n">>, iolist_to_binary(Body)).

what_is_asked_for() ->
    empty(),
    [begin
         {200, _, _} = get("/v1/subjects/" ++ Subject ++ "/events", Query),
         ?assertEqual(Expected, asked())
     end || {Subject, Query, Expected} <-
                [{"room", [], [<<"room">>, none, none, 20]},
                 {"room", [{<<"limit">>, <<>>}, {<<"before">>, <<>>}],
                  [<<"room">>, none, none, 20]},
                 {"nobody", [{<<"limit">>, <<"1000">>}, {<<"before">>, <<"b">>}],
                  [<<"nobody">>, <<"b">>, none, 1000]},
                 {"room", [{<<"after">>, <<"a">>}, {<<"before">>, <<"b">>}],
                  [<<"room">>, <<"b">>, <<"a">>, 20]}]],
    ok = halley_limits:set(#{past_events_max => 7}),
    {200, _, _} = get(?PATH, []),
    ?assertEqual([<<"room">>, none, none, 7], asked()),
    failed(400, bad_limit, get(?PATH, [{<<"limit">>, <<"8">>}])),
    ok = halley_limits:set(#{}).

bad_requests() ->
    empty(),
    [?assert(says("1 to 1000", failed(400, bad_limit, get(?PATH, [{<<"limit">>, Limit}]))))
     || Limit <- [<<"0">>, <<"1001">>, <<"x">>, <<"-1">>, binary:copy(<<"9">>, 5000)]],
    failed(400, bad_subject, get("/v1/subjects//events", [])),
    [begin
         answers({error, {bad_cursor, Name, Why}}),
         ?assert(says("leave it out", failed(400, Code, get(?PATH, []))))
     end || {Name, Code} <- [{before, bad_before}, {'after', bad_after}],
            Why <- [malformed, other_store]],
    failed(405, method_not_allowed, halley_api_fake:call(api, <<"POST">>, ?PATH, <<>>)),
    failed(404, not_found, halley_api_fake:call(public, <<"GET">>, ?PATH, <<>>)),
    failed(400, bad_subject, own(<<"{\"history\":[\"*\"]}">>, "/v1/me/subjects//events")).

what_waits_is_503() ->
    answers({error, behind}),
    Answer = get(?PATH, []),
    ?assert(says("ask again", failed(503, history_behind, Answer))),
    ?assertEqual(<<"1">>, halley_api_fake:header(<<"retry-after">>, Answer)).

own(Rights, Path) ->
    as_user({<<"ann">>, Rights}, <<"GET">>, Path, <<>>, <<>>).

%% What is about a user reaches it live, whatever its token says.
ones_own() ->
    empty(),
    ?assertMatch({200, _, _}, own(<<"{}">>, "/v1/me/subjects/ann/events")),
    ?assertEqual([<<"ann">>, none, none, 20], asked()).

%% A server's requests are one caller's, each user's its own; nothing is read without room.
turns_by_who_asks() ->
    empty(),
    ok = meck:new(halley_past_turns, [no_link]),
    Test = self(),
    ok = meck:expect(halley_past_turns, take, fun(Link, Who) -> Test ! {Link, Who}, ok end),
    Looks = counters:new(1, []),
    HasRoom = fun() ->
        counters:add(Looks, 1, 1),
        counters:get(Looks, 1) > 2
    end,
    Ask = fun(Request) ->
        halley_api:handle(Request#{link => here, has_room => HasRoom})
    end,
    try
        {200, _, _} = Ask(halley_api_fake:with_headers(api, <<"GET">>, ?PATH, #{})),
        receive First -> ?assertEqual({here, server}, First) end,
        ?assertEqual(3, counters:get(Looks, 1)),
        Headers = #{<<"halley-user">> => <<"ann">>, <<"halley-rights">> => <<"{}">>},
        {200, _, _} = Ask(halley_api_fake:with_headers(public, <<"GET">>,
                                                       "/v1/me/subjects/ann/events", Headers)),
        receive Second -> ?assertEqual({here, {user, <<"ann">>}}, Second) end
    after
        process_flag(priority, normal),
        meck:unload(halley_past_turns)
    end.
