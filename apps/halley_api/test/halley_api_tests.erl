%% The handlers, as the link calls them, before a brain that records what it is asked.
-module(halley_api_tests).
-include_lib("eunit/include/eunit.hrl").

-compile({no_auto_import, [error/3, get/2]}).

-define(FOLLOWS, [<<"v1">>, <<"follows">>]).
-define(EVENTS, [<<"v1">>, <<"events">>]).

handlers_test_() ->
    {foreach, fun halley_api_fake:start/0, fun(_) -> halley_api_fake:stop() end,
     [{atom_to_list(Name), Case}
      || {Name, Case} <-
             [{unknown_paths, fun unknown_paths/0}, {wrong_methods, fun wrong_methods/0},
              {one_event, fun one_event/0}, {event_errors, fun event_errors/0},
              {event_bodies_are_bounded, fun event_bodies_are_bounded/0},
              {content_types_of_events, fun content_types_of_events/0}, {many_events, fun many_events/0},
              {too_many_events, fun too_many_events/0}, {a_long_line_of_events, fun a_long_line_of_events/0},
              {follows_of_both_formats, fun follows_of_both_formats/0},
              {unfollows, fun unfollows/0}, {errors_of_follows_have_their_lines, fun follow_lines/0},
              {listed_errors_are_bounded, fun listed_errors_are_bounded/0},
              {batches_commit_in_order, fun batches_commit_in_order/0},
              {an_overloaded_store_is_asked_again, fun an_overloaded_store_is_asked_again/0},
              {a_store_that_fails_ends_the_import, fun a_store_that_fails_ends_the_import/0},
              {a_client_that_leaves, fun a_client_that_leaves/0},
              {pages, fun pages/0}, {bad_pages, fun bad_pages/0}, {users, fun users/0},
              {health, fun health/0}, {metrics, fun metrics/0}, {demo, fun demo/0}]]}.

%% --- dispatch ------------------------------------------------------------------------------------

unknown_paths() ->
    Message = fun(Listener, Path) -> error(404, <<"not_found">>, call(Listener, <<"GET">>, Path, <<>>)) end,
    ?assertMatch({_, _}, binary:match(Message(public, [<<"v1">>, <<"events">>]), <<"api.listen = 127.0.0.1:8081">>)),
    ?assertMatch({_, _}, binary:match(Message(public, [<<"metrics">>]), <<"api.listen">>)),
    ?assertMatch({_, _}, binary:match(Message(api, [<<"v1">>, <<"stream">>]), <<"public.listen = 127.0.0.1:8080">>)),
    ?assertMatch({_, _}, binary:match(Message(api, [<<"demo">>]), <<"public.listen">>)),
    [Message(Listener, Path) || Listener <- [public, api],
                                Path <- [[<<"x">>], [<<>>], [<<"v1">>], [<<"v1">>, <<"events">>, <<>>], [255]]].

wrong_methods() ->
    Put = call(api, <<"PUT">>, ?EVENTS, <<>>),
    error(405, <<"method_not_allowed">>, Put),
    ?assertEqual(<<"POST, OPTIONS">>, halley_api_fake:header(<<"allow">>, Put)),
    Get = call(api, <<"POST">>, [<<"metrics">>], <<>>),
    ?assertEqual(<<"GET, HEAD, OPTIONS">>, halley_api_fake:header(<<"allow">>, Get)),
    error(405, <<"method_not_allowed">>, call(api, <<"get">>, [<<"metrics">>], <<>>)),
    ?assertMatch({200, _, _}, call(api, <<"HEAD">>, [<<"metrics">>], <<>>)),
    Options = {204, _, []} = call(api, <<"OPTIONS">>, ?FOLLOWS, <<>>),
    ?assertEqual(<<"POST, DELETE, OPTIONS">>, halley_api_fake:header(<<"allow">>, Options)).

%% --- events --------------------------------------------------------------------------------------

one_event() ->
    Answer = {200, _, _} = publish(<<"{\"subject\":\"s\",\"data\":[1.10]}">>),
    ?assertEqual(#{<<"id">> => <<"generated">>, <<"sessions">> => 2}, halley_api_fake:json(Answer)),
    ?assert(meck:called(halley, publish, [<<"s">>, {json, <<"[1.10]">>}, #{}])),
    Chosen = publish(<<"{\"subject\":7,\"data\":null,\"id\":\"a \\\"b\\\" ä\"}"/utf8>>),
    ?assertEqual(#{<<"id">> => <<"a \"b\" ä"/utf8>>, <<"sessions">> => 2}, halley_api_fake:json(Chosen)),
    Chunks = [<<"{\"subject\":">>, <<"\"s\",">>, <<"\"data\":1}">>],
    ?assertMatch({200, _, _}, halley_api:handle(halley_api_fake:request(api, <<"POST">>, ?EVENTS,
                                                                         halley_api_fake:stream(Chunks)))).

event_errors() ->
    error(400, <<"bad_json">>, publish(<<"{">>)),
    error(400, <<"bad_json">>, publish(<<>>)),
    error(400, <<"bad_event">>, publish(<<"{}">>)),
    error(400, <<"bad_subject">>, publish(<<"{\"subject\":\"\",\"data\":1}">>)),
    [begin
         meck:expect(halley, publish, fun(_, _, _) -> {error, Reason} end),
         Answer = publish(<<"{\"subject\":\"s\",\"data\":1}">>),
         error(Status, Code, Answer),
         ?assertEqual(Status =:= 503, halley_api_fake:header(<<"retry-after">>, Answer) =:= <<"1">>)
     end || {Reason, Status, Code} <- [{overloaded, 503, <<"overloaded">>}, {unavailable, 503, <<"unavailable">>},
                                       {data_too_large, 413, <<"data_too_large">>},
                                       {{bad_id, <<>>}, 400, <<"bad_id">>}, {odd, 500, <<"internal">>}]].

event_bodies_are_bounded() ->
    Max = 2 * 65536 + 8192,
    Large = binary:copy(<<" ">>, Max + 1),
    error(413, <<"body_too_large">>, publish(Large)),
    Endless = {stream, fun() -> {ok, binary:copy(<<" ">>, 10000)} end},
    error(413, <<"body_too_large">>, halley_api:handle(halley_api_fake:request(api, <<"POST">>, ?EVENTS, Endless))),
    error(400, <<"bad_json">>, publish(binary:copy(<<" ">>, Max))).

content_types_of_events() ->
    Event = <<"{\"subject\":\"s\",\"data\":1}">>,
    [?assertMatch({Status, _, _}, call(api, <<"POST">>, ?EVENTS, Event, Type))
     || {Type, Status} <- [{<<"application/json">>, 200}, {<<"Application/JSON; charset=utf-8">>, 200},
                           {<<"application/x-www-form-urlencoded">>, 200}, {<<>>, 200},
                           {<<"application/x-ndjson">>, 200}, {<<"text/plain">>, 415}, {<<";">>, 200},
                           {<<"text/html">>, 415}]].

many_events() ->
    Lines = [<<"{\"subject\":\"a\",\"data\":1,\"id\":\"1\"}\n">>, <<"nonsense\n">>, <<"\r\n">>,
             <<"{\"subject\":\"b\",\"data\":2,\"id\":\"2\"}\r\n">>, <<"{\"subject\":\"\",\"data\":2}\n">>,
             <<"{\"subject\":\"a\",\"data\":3,\"id\":\"3\"}">>],
    Answer = {200, _, _} = ndjson(halley_api_fake:stream(Lines)),
    ?assertEqual(<<"application/x-ndjson">>, halley_api_fake:header(<<"content-type">>, Answer)),
    ?assertMatch([#{<<"id">> := <<"1">>, <<"sessions">> := 2},
                  #{<<"error">> := #{<<"code">> := <<"bad_json">>}},
                  #{<<"id">> := <<"2">>},
                  #{<<"error">> := #{<<"code">> := <<"bad_subject">>}},
                  #{<<"id">> := <<"3">>}], results(Answer)),
    Items = lists:append([Group || {_, {halley, publish_many, [Group]}, _} <- meck:history(halley)]),
    ?assertEqual([<<"a">>, <<"b">>, <<"a">>], [Subject || {Subject, _, _} <- Items]),
    meck:expect(halley, publish_many, fun(Group) -> [{error, overloaded} || _ <- Group] end),
    ?assertMatch([#{<<"error">> := #{<<"code">> := <<"overloaded">>}}],
                 results(ndjson({full, <<"{\"subject\":\"a\",\"data\":1}">>}))),
    ?assertMatch({200, _, []}, ndjson({full, <<>>})).

too_many_events() ->
    Event = <<"{\"subject\":\"a\",\"data\":1}\n">>,
    Fits = binary:copy(Event, 100000),
    ?assertMatch({200, _, _}, ndjson({full, Fits})),
    Answer = {413, _, _} = ndjson(halley_api_fake:stream([Fits, Event, Event])),
    Results = results(Answer),
    ?assertEqual(100001, length(Results)),
    ?assertMatch(#{<<"error">> := #{<<"code">> := <<"too_many_events">>}}, lists:last(Results)).

a_long_line_of_events() ->
    Blank = binary:copy(<<" ">>, 50000),
    Chunks = [<<"{\"subject\":">>, Blank, Blank, Blank, Blank, <<"1}\n{\"subject\":1,\"data\":1}\n">>],
    ?assertMatch([#{<<"error">> := #{<<"code">> := <<"line_too_long">>}}, #{<<"id">> := _}],
                 results(ndjson(halley_api_fake:stream(Chunks)))).

%% --- follows -------------------------------------------------------------------------------------

follows_of_both_formats() ->
    Expected = #{<<"added">> => 2, <<"already">> => 0, <<"errors">> => [], <<"errors_total">> => 0},
    Pairs = [{<<"a">>, <<"b">>}, {<<"a">>, <<"c">>}],
    NdJson = <<"{\"user\":\"a\",\"subject\":\"b\"}\n{\"subject\":\"c\",\"user\":\"a\"}">>,
    [begin
         meck:reset(halley_follows),
         ?assertEqual(Expected, halley_api_fake:json(call(api, <<"POST">>, ?FOLLOWS, Body, Type))),
         ?assertEqual([Pairs], committed(follow))
     end || {Body, Type} <- [{NdJson, <<"application/x-ndjson">>}, {NdJson, <<"application/json">>},
                             {NdJson, <<"application/x-www-form-urlencoded">>}, {<<"\n ", NdJson/binary>>, <<>>},
                             {<<"a b\na c\n">>, <<"text/plain; charset=utf-8">>}, {<<"\na b\na c">>, <<>>}]],
    error(415, <<"unsupported_media_type">>, call(api, <<"POST">>, ?FOLLOWS, <<"a b">>, <<"text/csv">>)),
    ?assertMatch(#{<<"added">> := 0}, halley_api_fake:json(follow(<<>>))).

unfollows() ->
    Answer = call(api, <<"DELETE">>, ?FOLLOWS, <<"a b\nx\n">>, <<"text/plain">>),
    ?assertMatch(#{<<"removed">> := 1, <<"absent">> := 0,
                   <<"errors">> := [#{<<"line">> := 2, <<"error">> := #{<<"code">> := <<"bad_line">>}}]},
                 halley_api_fake:json(Answer)),
    ?assertEqual([[{<<"a">>, <<"b">>}]], committed(unfollow)).

%% The store names a pair by its place among those it was given; the client knows lines.
follow_lines() ->
    meck:expect(halley_follows, follow,
                fun(Pairs) ->
                        Bad = [{N, {bad_id, subject, control_character}}
                               || {N, {_, <<"bad">>}} <- lists:zip(lists:seq(0, length(Pairs) - 1), Pairs)],
                        {ok, #{added => length(Pairs) - length(Bad), already => 0, errors => Bad}}
                end),
    Body = <<"a bad\n\na b\nx\n\na bad\na bad\na b\ny\na bad\n">>,
    Expected = [{1, <<"bad_subject">>}, {4, <<"bad_line">>}, {6, <<"bad_subject">>}, {7, <<"bad_subject">>},
                {9, <<"bad_line">>}, {10, <<"bad_subject">>}],
    [begin
         #{<<"added">> := 2, <<"errors">> := Errors, <<"errors_total">> := 6} =
             halley_api_fake:json(call_stream(<<"POST">>, ?FOLLOWS, Chunks, <<"text/plain">>)),
         ?assertEqual(Expected, [{Line, Code} || #{<<"line">> := Line, <<"error">> := #{<<"code">> := Code}} <- Errors])
     end || Chunks <- [[Body], [<<C>> || <<C>> <= Body]]].

listed_errors_are_bounded() ->
    #{<<"errors">> := Errors, <<"errors_total">> := 70000, <<"added">> := 1} =
        halley_api_fake:json(follow([binary:copy(<<"x\n">>, 70000), <<"a b">>])),
    ?assertEqual(lists:seq(1, 100), [Line || #{<<"line">> := Line} <- Errors]).

batches_commit_in_order() ->
    Line = fun(N) -> [integer_to_binary(N), <<" s\n">>] end,
    Chunks = [iolist_to_binary([Line(N) || N <- lists:seq(From, From + 9999)]) || From <- lists:seq(1, 200000, 10000)],
    ?assertMatch(#{<<"added">> := 200000}, halley_api_fake:json(follow(Chunks))),
    Batches = committed(follow),
    ?assertEqual([{integer_to_binary(N), <<"s">>} || N <- lists:seq(1, 200000)], lists:append(Batches)),
    ?assert(lists:all(fun(Batch) -> length(Batch) < 80000 end, Batches)).

an_overloaded_store_is_asked_again() ->
    Asked = counters:new(1, []),
    meck:expect(halley_follows, follow,
                fun(Pairs) ->
                        counters:add(Asked, 1, 1),
                        case counters:get(Asked, 1) of
                            1 -> {error, overloaded};
                            2 -> {ok, #{added => length(Pairs), already => 0, errors => []}}
                        end
                end),
    ?assertMatch(#{<<"added">> := 1}, halley_api_fake:json(follow(<<"a b\n">>))).

a_store_that_fails_ends_the_import() ->
    meck:expect(halley_follows, follow,
                fun([{<<"a">>, _} | _] = Pairs) -> {ok, #{added => length(Pairs), already => 0, errors => []}};
                   (_) -> {error, {store_failed, enospc}}
                end),
    Good = binary:copy(<<"a b\n">>, 70000),
    Answer = {500, _, _} = follow([Good, binary:copy(<<"b c\n">>, 70000), binary:copy(<<"a c\n">>, 200000)]),
    ?assertMatch(#{<<"error">> := #{<<"code">> := <<"store_failed">>}, <<"added">> := 70000}, halley_api_fake:json(Answer)),
    ?assertMatch({_, _}, binary:match(error(500, <<"store_failed">>, Answer), <<"lines 1 to 70000 are done">>)),
    meck:expect(halley_follows, follow, fun(_) -> exit(killed) end),
    error(500, <<"internal">>, follow(<<"a b">>)).

a_client_that_leaves() ->
    {400, _, _} = follow([binary:copy(<<"a b\n">>, 70000), closed]),
    ?assertMatch([_], committed(follow)).

%% --- reads ---------------------------------------------------------------------------------------

pages() ->
    [begin
         First = halley_api_fake:json(get(Path, [{<<"limit">>, <<"2">>}])),
         ?assertEqual(#{Member => [<<"a">>, <<"b">>], <<"next">> => <<"b">>}, First),
         Next = halley_api_fake:json(get(Path, [{<<"limit">>, <<"2">>}, {<<"after">>, <<"b">>}])),
         ?assertEqual(#{Member => [<<"c">>], <<"next">> => null}, Next),
         ?assertMatch(#{<<"next">> := null}, halley_api_fake:json(get(Path, []))),
         ?assert(meck:called(halley_follows, Function, [<<"x/y">>, start, 100]))
     end || {Path, Member, Function} <-
                [{[<<"v1">>, <<"subjects">>, <<"x/y">>, <<"followers">>], <<"followers">>, followers},
                 {[<<"v1">>, <<"users">>, <<"x/y">>, <<"following">>], <<"following">>, following}]].

bad_pages() ->
    Followers = fun(Subject) -> [<<"v1">>, <<"subjects">>, Subject, <<"followers">>] end,
    [error(400, <<"bad_limit">>, get(Followers(<<"x">>), [{<<"limit">>, Limit}]))
     || Limit <- [<<"0">>, <<"-1">>, <<"1001">>, <<"x">>, <<"1.0">>, <<"99999999999">>, <<255>>]],
    ?assertMatch({200, _, _}, get(Followers(<<"x">>), [{<<"limit">>, <<"1000">>}])),
    error(400, <<"bad_after">>, get(Followers(<<"x">>), [{<<"after">>, <<255>>}])),
    meck:expect(halley_follows, followers, fun(_, After, _) -> {error, {unknown_id, After}} end),
    error(400, <<"bad_after">>, get(Followers(<<"x">>), [{<<"after">>, <<"nobody">>}])),
    error(400, <<"bad_subject">>, get(Followers(<<>>), [])),
    error(400, <<"bad_user">>, get([<<"v1">>, <<"users">>, binary:copy(<<"x">>, 256)], [])).

users() ->
    User = [<<"v1">>, <<"users">>, <<"123">>],
    ?assertEqual(#{<<"user">> => <<"123">>, <<"online">> => true, <<"sessions">> => 1, <<"following">> => 4,
                   <<"followers">> => 5}, halley_api_fake:json(get(User, []))),
    Close = call(api, <<"DELETE">>, User ++ [<<"sessions">>], <<>>),
    ?assertEqual(#{<<"closed">> => 3}, halley_api_fake:json(Close)),
    ?assert(meck:called(halley, close_sessions, [<<"123">>])).

health() ->
    ?assertMatch({200, _, _}, get([<<"healthz">>], [])),
    ?assertMatch({_, _}, binary:match(error(503, <<"not_ready">>, get([<<"readyz">>], [])), <<"store">>)),
    Store = spawn(fun() -> receive stop -> ok end end),
    register(halley_follows_owner, Store),
    try
        ?assertMatch({200, _, _}, get([<<"readyz">>], [])),
        meck:expect(halley_links, list, fun() -> [] end),
        ?assertMatch({_, _}, binary:match(error(503, <<"not_ready">>, get([<<"readyz">>], [])), <<"linked">>))
    after
        Store ! stop
    end.

metrics() ->
    Answer = {200, _, <<"halley_up 1\n">>} = get([<<"metrics">>], []),
    ?assertEqual(<<"text/plain; version=0.0.4; charset=utf-8">>, halley_api_fake:header(<<"content-type">>, Answer)).

%% --- demo ----------------------------------------------------------------------------------------

demo() ->
    Get = fun(Path) -> call(public, <<"GET">>, Path, <<>>) end,
    ?assertEqual(<<"/demo">>, halley_api_fake:header(<<"location">>, Get([]))),
    [begin
         Answer = {200, _, Body} = Get([<<"demo">> | Asset]),
         ?assertEqual(Type, hd(binary:split(halley_api_fake:header(<<"content-type">>, Answer), <<";">>))),
         ?assert(iolist_size(Body) > 100)
     end || {Asset, Type} <- [{[], <<"text/html">>}, {[<<>>], <<"text/html">>}, {[<<"demo.css">>], <<"text/css">>},
                              {[<<"demo.js">>], <<"text/javascript">>}, {[<<"icon.svg">>], <<"image/svg+xml">>}]],
    ?assertEqual(#{<<"api_port">> => 8081}, halley_api_fake:json(Get([<<"demo">>, <<"config.json">>]))),
    [error(404, <<"not_found">>, Get([<<"demo">> | Asset]))
     || Asset <- [[<<"..">>], [<<"../../ebin/halley_api.app">>], [<<"x">>, <<"y">>], [<<"demo.css">>, <<>>]]],
    demo_policy(),
    application:set_env(halley_api, auth_mode, jwt),
    try error(404, <<"not_found">>, Get([<<"demo">>])), error(404, <<"not_found">>, Get([]))
    after application:unset_env(halley_api, auth_mode)
    end.

%% The page may call the API of the host that it was loaded from, and a strange Host gets nothing
%% into the header.
demo_policy() ->
    Policy = fun(Host) ->
                     Request = halley_api_fake:request(public, <<"GET">>, [<<"demo">>], {full, <<>>}),
                     Answer = halley_api:handle(Request#{headers := #{<<"host">> => Host}}),
                     Text = halley_api_fake:header(<<"content-security-policy">>, Answer),
                     {match, [Connect]} = re:run(Text, "connect-src ([^;]*);", [{capture, [1], binary}]),
                     Connect
             end,
    ?assertEqual(<<"'self' http://localhost:8081">>, Policy(<<"localhost:8080">>)),
    ?assertEqual(<<"'self' http://[::1]:8081">>, Policy(<<"[::1]:8080">>)),
    [?assertEqual(<<"'self'">>, Policy(Host)) || Host <- [<<>>, <<"a;script-src *">>, <<"a b">>, <<"a\n">>, <<"*">>]].

%% --- helpers -------------------------------------------------------------------------------------

call(Listener, Method, Path, Body) ->
    halley_api:handle(halley_api_fake:request(Listener, Method, Path, {full, Body})).

call(Listener, Method, Path, Body, Type) ->
    Request = halley_api_fake:request(Listener, Method, Path, {full, Body}),
    halley_api:handle(Request#{headers := #{<<"content-type">> => Type}}).

call_stream(Method, Path, Chunks, Type) ->
    Request = halley_api_fake:request(api, Method, Path, halley_api_fake:stream(Chunks)),
    halley_api:handle(Request#{headers := #{<<"content-type">> => Type}}).

get(Path, Query) ->
    halley_api:handle((halley_api_fake:request(api, <<"GET">>, Path, {full, <<>>}))#{query := Query}).

publish(Body) ->
    call(api, <<"POST">>, ?EVENTS, Body).

ndjson({full, Body}) -> call(api, <<"POST">>, ?EVENTS, Body, <<"application/x-ndjson">>);
ndjson(Stream) ->
    Request = halley_api_fake:request(api, <<"POST">>, ?EVENTS, Stream),
    halley_api:handle(Request#{headers := #{<<"content-type">> => <<"application/x-ndjson">>}}).

results({_, _, Body}) ->
    [jiffy:decode(Line, [return_maps])
     || Line <- binary:split(iolist_to_binary(Body), <<"\n">>, [global, trim])].

follow(Body) when is_binary(Body) -> call(api, <<"POST">>, ?FOLLOWS, Body, <<"text/plain">>);
follow(Chunks) -> call_stream(<<"POST">>, ?FOLLOWS, Chunks, <<"text/plain">>).

committed(Function) ->
    [Pairs || {_, {halley_follows, Called, [Pairs]}, _} <- meck:history(halley_follows), Called =:= Function].

%% Every error has the one form; its message is given back.
error(Status, Code, {Status, _, _} = Answer) ->
    ?assertEqual(<<"application/json">>, halley_api_fake:header(<<"content-type">>, Answer)),
    #{<<"error">> := #{<<"code">> := Code, <<"message">> := Message}} = halley_api_fake:json(Answer),
    ?assert(byte_size(Message) > 10),
    Message.
