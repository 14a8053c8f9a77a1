%% Dispatch, reads, probes and the demo, as the link calls them, before a brain that records.
-module(halley_api_tests).
-include_lib("eunit/include/eunit.hrl").

-export([inspect/3]).

-import(halley_api_fake, [call/4, call/6, get/1, get/2, header/2, json/1, failed/3, says/2]).
-compile({no_auto_import, [get/1]}).

handlers_test_() ->
    halley_api_fake:cases([fun unknown_paths/0, fun wrong_methods/0, fun pages/0, fun bad_pages/0,
                           fun users/0, fun forgetting/0, fun duplicates/0, fun sessions/0,
                           fun sessions_are_bounded/0, fun trace/0, fun health/0,
                           fun history/0, fun metrics/0, fun demo/0, fun demo_policy/0]).

%% --- dispatch ------------------------------------------------------------------------------------

unknown_paths() ->
    Get = fun(Listener, Path) -> call(Listener, <<"GET">>, Path, <<>>) end,
    Message = fun(Listener, Path) -> failed(404, not_found, Get(Listener, Path)) end,
    ?assert(says("api.listen = 127.0.0.1:8081", Message(public, "/v1/events"))),
    ?assert(says("api.listen", Message(public, "/metrics"))),
    ?assert(says("public.listen = 127.0.0.1:8080", Message(api, "/v1/stream"))),
    ?assert(says("public.listen", Message(api, "/demo"))),
    %% docs/guides/rules.md: a slash separates.
    [?assertEqual({Path, IsSlash, IsEnd},
                  {Path, says("write that as %2F", Text), says("leave out the /", Text)})
     || {Listener, Path, IsSlash, IsEnd} <-
            [{api, "/v1/subjects/room/7/events", true, false},
             {api, "/v1/users/a/b", true, false}, {api, "/v1/users/a/b/sessions", true, false},
             {api, "/v1/events/a/b/c/trace", true, false},
             {public, "/v1/me/follows/room/7", true, false},
             {public, "/v1/me/subjects/room/7/presence", true, false},
             {api, "/v1/events/", false, true}, {api, "/v1/users/a/sessions/", false, true},
             {public, "/v1/me/subjects/s/events/", false, true},
             {api, "/v1/nothing/room/7", false, false}, {api, "/v1/user", false, false},
             {public, "/v1/subjects/room/7/events", false, false}],
        Text <- [Message(Listener, Path)]],
    [Message(Listener, Path)
     || Listener <- [public, api],
        Path <- ["/x", "//", "/v1", "/v1/events/", "/v1//events", [$/, 255]]].

wrong_methods() ->
    Put = call(api, <<"PUT">>, "/v1/events", <<>>),
    failed(405, method_not_allowed, Put),
    ?assertEqual(<<"POST, OPTIONS">>, header(<<"allow">>, Put)),
    Post = call(api, <<"POST">>, "/metrics", <<>>),
    ?assertEqual(<<"GET, HEAD, OPTIONS">>, header(<<"allow">>, Post)),
    failed(405, method_not_allowed, call(api, <<"get">>, "/metrics", <<>>)),
    ?assertMatch({200, _, _}, call(api, <<"HEAD">>, "/metrics", <<>>)),
    Options = {204, _, []} = call(api, <<"OPTIONS">>, "/v1/follows", <<>>),
    ?assertEqual(<<"POST, DELETE, OPTIONS">>, header(<<"allow">>, Options)).

%% --- reads ---------------------------------------------------------------------------------------

pages() ->
    [begin
         First = json(get(Path, [{<<"limit">>, <<"2">>}])),
         ?assertEqual(#{Member => [<<"a">>, <<"b">>], <<"next">> => <<"b">>}, First),
         Next = json(get(Path, [{<<"limit">>, <<"2">>}, {<<"after">>, <<"b">>}])),
         ?assertEqual(#{Member => [<<"c">>], <<"next">> => null}, Next),
         ?assertMatch(#{<<"next">> := null}, json(get(Path))),
         ?assert(meck:called(halley_follows, Function, [<<"x y">>, start, 100]))
     end || {Path, Member, Function} <-
                [{"/v1/subjects/x y/followers", <<"followers">>, followers},
                 {"/v1/users/x y/following", <<"following">>, following}]].

bad_pages() ->
    Followers = fun(Name, Value) -> get("/v1/subjects/x/followers", [{Name, Value}]) end,
    [failed(400, bad_limit, Followers(<<"limit">>, Limit))
     || Limit <- [<<"0">>, <<"-1">>, <<"1001">>, <<"x">>, <<"1.0">>, <<"99999999999">>, <<255>>]],
    ?assertMatch({200, _, _}, Followers(<<"limit">>, <<"1000">>)),
    failed(400, bad_after, Followers(<<"after">>, <<255>>)),
    meck:expect(halley_follows, followers, fun(_, After, _) -> {error, {unknown_id, After}} end),
    failed(400, bad_after, Followers(<<"after">>, <<"nobody">>)),
    failed(400, bad_subject, get("/v1/subjects//followers")),
    failed(400, bad_user, get("/v1/users/" ++ lists:duplicate(256, $x))).

users() ->
    ?assertEqual(#{<<"user">> => <<"123">>, <<"online">> => true, <<"sessions">> => 1,
                   <<"following">> => 4, <<"followers">> => 5}, json(get("/v1/users/123"))),
    Close = call(api, <<"DELETE">>, "/v1/users/123/sessions", <<>>),
    ?assertEqual(#{<<"closed">> => 3}, json(Close)),
    ?assert(meck:called(halley, close_sessions, [<<"123">>])).

forgetting() ->
    Forget = fun(User) -> call(api, <<"DELETE">>, "/v1/users/" ++ User, <<>>) end,
    meck:expect(halley, forget, fun(<<"bob">>) ->
        {ok, #{sessions => 1, following => 2, followers => 3}}
    end),
    ?assertEqual(#{<<"user">> => <<"bob">>, <<"sessions">> => 1, <<"following">> => 2,
                   <<"followers">> => 3}, json(Forget("bob"))),
    meck:expect(halley, forget, fun(_) -> {error, disk_full} end),
    failed(503, disk_full, Forget("bob")),
    failed(400, bad_user, Forget(lists:duplicate(256, $x))).

%% http.md 4.2: two readers must not choose two.
duplicates() ->
    [failed(400, duplicate_parameter, get(Path, [{Name, <<"1">>}, {Name, <<"1">>}]))
     || {Path, Name} <- [{"/v1/subjects/s/followers", <<"after">>},
                         {"/v1/users/u/following", <<"limit">>},
                         {"/v1/subjects/s/events", <<"before">>},
                         {"/v1/status", <<"after">>},
                         {"/v1/ended", <<"reason">>},
                         {"/v1/events/e/trace", <<"user">>}]],
    %% What nobody reads may be there as often as it likes.
    ?assertMatch({200, _, _}, get("/metrics", [{<<"x">>, <<"1">>}, {<<"x">>, <<"2">>}])).

sessions() ->
    ?assertEqual(#{<<"user">> => <<"nobody">>, <<"sessions">> => [], <<"sessions_total">> => 0},
                 json(get("/v1/users/nobody/sessions"))),
    Live = [{link, 1, 10}, {link, 1, 11}, {link, 2, 12}, self()],
    meck:expect(halley_directory, sessions, fun(7) -> Live end),
    meck:expect(halley_links, info, fun(1) -> #{worker => 3, pid => 99}; (2) -> undefined end),
    Waiting = #{state => live, transport => sse, outbox_bytes => 5, outbox_pieces => 2,
                outbox_ms => 7, held => 0, dropped => 1, conflated => 4},
    inspected(fun(1, 10, _) -> {ok, Waiting};
                 (1, 11, _) -> {ok, Waiting#{state := unknown, transport := unknown}};
                 (2, 12, _) -> gone
              end),
    Answer = json(get("/v1/users/u/sessions")),
    ?assertEqual([#{<<"worker">> => 3, <<"edge">> => 99, <<"transport">> => <<"sse">>,
                    <<"state">> => <<"live">>, <<"outbox_bytes">> => 5, <<"outbox_events">> => 2,
                    <<"outbox_ms">> => 7, <<"held">> => 0, <<"dropped">> => 1,
                    <<"conflated">> => 4},
                  #{<<"worker">> => 3, <<"edge">> => 99, <<"transport">> => <<"unknown">>,
                    <<"state">> => <<"gone">>},
                  #{<<"transport">> => <<"unknown">>, <<"state">> => <<"gone">>},
                  #{<<"transport">> => <<"process">>, <<"state">> => <<"live">>}],
                 maps:get(<<"sessions">>, Answer)),
    failed(400, bad_user, get("/v1/users//sessions")).

%% However many there are: a thousand are asked about, all are counted. One worker hangs, and one
%% crashes while it is asked: the others' answers are there, in time.
sessions_are_bounded() ->
    Many = [{link, Slot, Conn} || Conn <- lists:seq(1, 500), Slot <- [1, 2, 3]],
    meck:expect(halley_directory, sessions, fun(7) -> Many end),
    meck:expect(halley_links, info, fun(Slot) -> #{worker => Slot, pid => 99} end),
    halley_inspection:set(?MODULE),
    Began = erlang:monotonic_time(millisecond),
    #{<<"sessions">> := Listed, <<"sessions_total">> := 1500} = json(get("/v1/users/u/sessions")),
    ?assert(erlang:monotonic_time(millisecond) - Began < 20000),
    ?assertEqual(1000, length(Listed)),
    [?assertEqual(case Worker of 1 -> <<"live">>; _ -> <<"unknown">> end, State)
     || #{<<"worker">> := Worker, <<"state">> := State} <- Listed].

%% Not mocked: many mocked calls take a good part of the time that the workers are given.
inspect(1, _, _) ->
    {ok, #{state => live, transport => sse, outbox_bytes => 0, outbox_pieces => 0, outbox_ms => 0,
           held => 0, dropped => 0, conflated => 0}};
inspect(2, _, Ms) when Ms > 0, Ms =< 2000 ->
    timer:sleep(Ms),
    timeout;
inspect(3, _, _) ->
    exit(crashed).

trace() ->
    Trace = fun(User) -> get("/v1/events/e 1/trace", [{<<"user">>, User}]) end,
    Known = #{event => #{id => <<"e 1">>, subject => <<"s">>, at => 1000, sessions => 4},
              followed => true, meant => followed, unfollowed_at => none, held => 0,
              unsubscribed => false, is_complete => true, deleted => false,
              sessions => [#{session => self(), passed => true, began => before}],
              ended => [#{at => 900, reason => slow_consumer}]},
    meck:expect(halley_trace, trace, fun(<<"e 1">>, <<"u">>) -> {ok, Known} end),
    #{<<"verdict">> := Verdict} = Answer = json(Trace(<<"u">>)),
    ?assert(says("Yes", Verdict)),
    ?assertEqual(#{<<"event">> => #{<<"id">> => <<"e 1">>, <<"subject">> => <<"s">>,
                                    <<"at">> => 1000, <<"sessions">> => 4},
                   <<"user">> => <<"u">>, <<"followed">> => true, <<"unfollowed_at">> => null,
                   <<"sessions">> => [#{<<"transport">> => <<"process">>,
                                        <<"state">> => <<"live">>, <<"passed">> => true,
                                        <<"began">> => <<"before">>}],
                   <<"answer">> => <<"yes">>,
                   <<"ended">> => [#{<<"at">> => 900, <<"reason">> => <<"slow_consumer">>}]},
                 maps:remove(<<"verdict">>, Answer)),
    meck:expect(halley_trace, trace, fun(_, _) -> {ok, Known#{unfollowed_at := 1100}} end),
    ?assertMatch(#{<<"unfollowed_at">> := 1100}, json(Trace(<<"u">>))),
    meck:expect(halley_trace, trace, fun(_, _) -> {error, not_found} end),
    ?assert(says("never published, or it is older", failed(404, unknown_event, Trace(<<"v">>)))),
    failed(400, bad_user, Trace(<<>>)),
    failed(400, bad_user, get("/v1/events/e 1/trace")),
    failed(400, bad_id, get("/v1/events//trace", [{<<"user">>, <<"u">>}])).

inspected(Inspect) ->
    meck:expect(halley_links, inspect, Inspect),
    halley_inspection:set(halley_links).

%% --- probes --------------------------------------------------------------------------------------

health() ->
    ?assertMatch({200, _, _}, get("/healthz")),
    ?assert(says("store", failed(503, not_ready, get("/readyz")))),
    Store = spawn(fun() -> receive stop -> ok end end),
    register(halley_follows_owner, Store),
    try
        ?assertMatch({200, _, _}, get("/readyz")),
        [begin
             meck:expect(halley_history, refusing, fun() -> Reason end),
             ?assert(says(Part, failed(503, not_ready, get("/readyz"))))
         end || {Reason, Part} <- [{disk_full, "disk of the history is full"},
                                   {overloaded, "more to write"}, {failed, "cannot be written"}]],
        meck:expect(halley_history, refusing, fun() -> false end),
        meck:expect(halley_drain, is_draining, fun() -> true end),
        ?assert(says("draining", failed(503, not_ready, get("/readyz")))),
        ?assertMatch({200, _, _}, get("/healthz")),
        meck:expect(halley_drain, is_draining, fun() -> false end),
        meck:expect(halley_links, list, fun() -> [] end),
        ?assert(says("linked", failed(503, not_ready, get("/readyz"))))
    after
        Store ! stop
    end.

history() ->
    Info = #{store => 16#beef, floor => 7, floor_at => 0, oldest_at => none, events => 0,
             bytes => 0, queue_bytes => 3, damaged => []},
    meck:expect(halley_history, info, fun() -> Info end),
    application:set_env(halley, history_retention_ms, 600000),
    try
        ?assertEqual(#{<<"store">> => <<"0000beef">>, <<"events">> => 0, <<"bytes">> => 0,
                       <<"bytes_max">> => null, <<"retention_ms">> => 600000,
                       <<"kept_ms">> => 600000,
                       <<"oldest_at">> => null, <<"floor">> => 7, <<"floor_at">> => null,
                       <<"queue_bytes">> => 3, <<"refusing">> => null, <<"damaged">> => [],
                       <<"damaged_total">> => 0}, json(get("/v1/history")))
    after
        application:unset_env(halley, history_retention_ms)
    end,
    Damaged = [{N, N + 1, 1000 * N, 1000 * N + 5} || N <- lists:seq(1, 200)],
    meck:expect(halley_history, info,
                fun() -> Info#{oldest_at := 17, floor_at := 16, damaged := Damaged} end),
    meck:expect(halley_history, refusing, fun() -> disk_full end),
    #{<<"damaged">> := Listed} = Answer = json(get("/v1/history")),
    ?assertMatch(#{<<"oldest_at">> := 17, <<"floor_at">> := 16, <<"damaged_total">> := 200,
                   <<"refusing">> := <<"disk_full">>}, Answer),
    ?assertEqual(#{<<"from">> => 1000, <<"to">> => 1005}, hd(Listed)),
    ?assertEqual(100, length(Listed)).

metrics() ->
    Answer = {200, _, <<"halley_up 1\n">>} = get("/metrics"),
    ?assert(says("text/plain; version=0.0.4", header(<<"content-type">>, Answer))).

%% --- demo ----------------------------------------------------------------------------------------

demo() ->
    Get = fun(Path) -> call(public, <<"GET">>, Path, <<>>) end,
    ?assertEqual(<<"/demo">>, header(<<"location">>, Get("/"))),
    [begin
         Answer = {200, _, Body} = Get(Path),
         ?assert(says(Type, header(<<"content-type">>, Answer))),
         ?assert(iolist_size(Body) > 100)
     end || {Path, Type} <- [{"/demo", "text/html"}, {"/demo/", "text/html"},
                             {"/demo/demo.css", "text/css"}, {"/demo/demo.js", "text/javascript"},
                             {"/demo/halley.min.js", "text/javascript"},
                             {"/demo/icon.svg", "image/svg+xml"}]],
    ?assertEqual(#{<<"api_port">> => 8081, <<"brain">> => list_to_binary(os:getpid()),
                   <<"may_kill">> => false, <<"tells_presence">> => false},
                 json(Get("/demo/config.json"))),
    [failed(404, not_found, Get("/demo/" ++ Asset))
     || Asset <- ["..", "../../ebin/halley_api.app", "x/y", "demo.css/", [255]]],
    application:set_env(halley_api, auth_mode, jwt),
    try [failed(404, not_found, Get(Path)) || Path <- ["/", "/demo"]]
    after application:unset_env(halley_api, auth_mode)
    end.

%% The page asks at its own origin only, whatever Host it was asked for by.
demo_policy() ->
    Policy = fun(Host) ->
                     Answer = call(public, <<"GET">>, "/demo", <<>>, <<"host">>, Host),
                     header(<<"content-security-policy">>, Answer)
             end,
    [?assertMatch({match, _}, re:run(Policy(Host), "default-src 'none';.* connect-src 'self';"))
     || Host <- [<<"localhost:8080">>, <<>>, <<"a;script-src *">>, <<"*">>]].
