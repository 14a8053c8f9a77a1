%% The console's requests: status, subjects and users, the rights of a key, and a drain.
-module(halley_api_console_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [get/2, with_headers/4, header/2, json/1, failed/3]).

console_test_() ->
    halley_api_fake:cases([fun pages/0, fun pages_again/0, fun nothing_else/0, fun root/0,
                           fun keys/0, fun ended/0, fun bad_questions/0,
                           fun drains_what_is_named/0]).

page(Path, Headers) ->
    halley_api:handle(with_headers(api, <<"GET">>, Path, Headers)).

%% Without a key, for there is nothing in it.
pages() ->
    ok = halley_server_keys:force(true, []),
    [begin
         {200, _, Body} = Answer = page(Path, #{}),
         ?assertMatch({match, _}, re:run(header(<<"content-type">>, Answer), Type)),
         Policy = iolist_to_binary(header(<<"content-security-policy">>, Answer)),
         ?assertMatch({match, _}, re:run(Policy, "default-src 'none'")),
         ?assertEqual(nomatch, re:run(Policy, "unsafe")),
         ?assert(byte_size(Body) > 100)
     end || {Path, Type} <- [{"/console", "^text/html"}, {"/console/", "^text/html"},
                             {"/console/console.js", "^text/javascript"},
                             {"/console/console.css", "^text/css"},
                             {"/console/icon.svg", "^image/svg"}]].

pages_again() ->
    {200, _, Plain} = First = page("/console/console.js", #{}),
    Etag = header(<<"etag">>, First),
    ?assertMatch({304, _, []}, page("/console/console.js", #{<<"if-none-match">> => Etag})),
    {200, _, Zipped} = page("/console/console.js", #{<<"accept-encoding">> => <<"br, gzip">>}),
    ?assertEqual(Plain, zlib:gunzip(Zipped)).

nothing_else() ->
    [failed(404, not_found, page(Path, #{}))
     || Path <- ["/console/nothing", "/console/..%2Fdemo%2Findex.html", "/console/a/b"]].

root() ->
    ?assertMatch({302, [{<<"location">>, <<"/console">>}], _}, page("/", #{})).

keys() ->
    ?assertMatch(#{<<"open">> := true, <<"scopes">> := [_ | _]}, json(page("/v1/key", #{}))),
    {Text, Key} = halley_server_key:new(<<"some">>, [publish, read], 0),
    ok = halley_server_keys:force(true, [Key]),
    Answer = page("/v1/key", #{<<"authorization">> => <<"Bearer ", Text/binary>>}),
    ?assertEqual(#{<<"open">> => false, <<"scopes">> => [<<"publish">>, <<"read">>]},
                 json(Answer)).

ended() ->
    ok = halley_closings:new(),
    try
        [halley_closings:record(User, #{reason => Reason, worker => 1, conn => 9, drawn => 1})
         || {User, Reason} <- [{7, slow_consumer}, {8, closed}, {9, slow_consumer}]],
        meck:expect(halley_ids, name, fun(N) -> integer_to_binary(N) end),
        #{<<"ended">> := Ended} = json(get("/v1/ended", [{<<"reason">>, <<"slow_consumer">>}])),
        ?assertMatch([#{<<"user">> := <<"9">>, <<"worker">> := 1}, #{<<"user">> := <<"7">>}],
                     Ended),
        #{<<"ended">> := [_]} = json(get("/v1/ended", [{<<"reason">>, <<"slow_consumer">>},
                                                    {<<"limit">>, <<"1">>}]))
    after
        ets:delete(halley_closings)
    end.

bad_questions() ->
    failed(400, bad_reason, page("/v1/ended", #{})),
    failed(400, bad_limit, get("/v1/ended", [{<<"reason">>, <<"closed">>},
                                              {<<"limit">>, <<"0">>}])),
    failed(400, bad_after, get("/v1/status", [{<<"after">>, <<"x">>}])),
    failed(400, bad_after, get("/v1/status", [{<<"after">>, <<"-1">>}])).

%% A drain can't be taken back: another server's name, or none, does nothing.
drains_what_is_named() ->
    meck:expect(halley_drain, ask, fun() -> true end),
    meck:expect(halley_directory, online, fun() -> #{sessions => 3, users => 2} end),
    Ask = fun(Body) -> halley_api_fake:call(api, <<"POST">>, "/v1/drain", Body) end,
    [failed(400, bad_node, Ask(Body)) || Body <- [<<>>, <<"{}">>, <<"{\"node\":\"other@host\"}">>]],
    ?assertEqual(0, meck:num_calls(halley_drain, ask, [])),
    Name = jiffy:encode({[{<<"node">>, atom_to_binary(node())}]}),
    {202, _, _} = Answer = Ask(iolist_to_binary(Name)),
    ?assertMatch(#{<<"draining">> := true, <<"sessions">> := 3}, json(Answer)),
    meck:expect(halley_drain, is_draining, fun() -> true end),
    ?assertMatch({202, _, _}, Ask(iolist_to_binary(Name))),
    ?assertEqual(1, meck:num_calls(halley_drain, ask, [])).
