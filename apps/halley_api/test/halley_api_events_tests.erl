%% POST /v1/events, one and many, before a brain that records.
-module(halley_api_events_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [call/4, call/5, header/2, json/1, failed/3, says/2, stream/1, post/3,
                          prepared/1]).

-define(DATA_BYTES_MAX, 65536).

events_test_() ->
    halley_api_fake:cases([fun one/0, fun errors/0, fun a_full_disk_is_named/0, fun acks/0,
                           fun private/0, fun largest_private/0,
                           fun lines_fail_alone/0, fun bodies_are_bounded/0, fun content_types/0,
                           fun many/0, fun too_many/0, fun a_long_line/0,
                           fun small_ones_are_answered_alike/0, fun others_are_for_later/0]).

publish(Body) ->
    call(api, <<"POST">>, "/v1/events", Body).

publish_lines(Body) ->
    call(api, <<"POST">>, "/v1/events", Body, <<"application/x-ndjson">>).

results({_, _, Body}) ->
    Lines = binary:split(iolist_to_binary(Body), <<"\n">>, [global, trim]),
    [case jiffy:decode(Line, [return_maps]) of
         #{<<"id">> := Id, <<"sessions">> := 2} -> Id;
         #{<<"error">> := #{<<"code">> := Code}} -> binary_to_atom(Code)
     end || Line <- Lines].

one() ->
    Answer = {200, _, _} = publish(<<"{\"subject\":\"s\",\"data\":[1.10]}">>),
    ?assertEqual(#{<<"id">> => <<"generated">>, <<"sessions">> => 2}, json(Answer)),
    ?assert(meck:called(halley, publish, [<<"s">>, {json, <<"[1.10]">>}, #{}])),
    Chosen = publish(<<"{\"subject\":\"7\",\"data\":null,\"id\":\"a \\\"b\\\" ä\"}"/utf8>>),
    ?assertMatch(#{<<"id">> := <<"a \"b\" ä"/utf8>>}, json(Chosen)),
    Chunks = [<<"{\"subject\":">>, <<"\"s\",">>, <<"\"data\":1}">>],
    ?assertMatch({200, _, _}, publish(stream(Chunks))).

%% Whether it has a process or not.
small_ones_are_answered_alike() ->
    Rights = <<"{\"publish\":[\"s\"]}">>,
    User = #{<<"halley-user">> => <<"u">>, <<"halley-rights">> => Rights},
    Bodies = [<<"{\"subject\":\"s\",\"data\":[1.10]}">>, <<"{\"subject\":\"t\",\"data\":1}">>, <<>>,
              <<"{\"subject\":\"s\",\"data\":1,\"id\":\"x\"}">>, <<"{">>, <<"{}">>,
              <<"{\"subject\":\"\",\"data\":1}">>,
              <<"{\"subject\":\"s\",\"data\":1,\"ack\":\"x\"}">>],
    Types = [#{}, #{<<"content-type">> => <<"application/json; charset=utf-8">>}],
    Requests = [post(Listener, Path, {maps:merge(Who, Type), Body})
                || Type <- Types, Body <- Bodies,
                   {Listener, Path, Whos} <- [{api, "/v1/events", [#{}]},
                                              {public, "/v1/me/events", [#{}, User,
                                               User#{<<"halley-rights">> := <<"{}">>}]}],
                   Who <- Whos],
    Answers = [{halley_api:handle(Request), prepared(Request)} || Request <- Requests],
    [?assertEqual(Handled, Prepared) || {Handled, Prepared} <- Answers],
    ?assertEqual([200, 400, 401, 403], lists:usort([Status || {{Status, _, _}, _} <- Answers])),
    meck:expect(halley, publish, fun(_, _, _) -> {error, disk_full} end),
    failed(503, disk_full, prepared(hd(Requests))).

%% Nothing was counted of them.
others_are_for_later() ->
    ok = halley_server_keys:force(true, []),
    Body = <<"{\"subject\":\"s\",\"data\":1}">>,
    Lines = #{<<"content-type">> => <<"application/x-ndjson">>, <<"halley-user">> => <<"u">>,
              <<"halley-rights">> => <<"{\"publish\":[\"s\"]}">>},
    ?assertEqual(later, prepared(post(public, "/v1/me/events", {Lines, Body}))),
    ?assertEqual(later, prepared(post(api, "/v1/follows", {#{}, Body}))),
    ?assertEqual(later, prepared(post(api, "/nothing", {#{}, Body}))),
    Streamed = (post(api, "/v1/events", {#{}, Body}))#{body := stream([Body])},
    ?assertEqual(later, prepared(Streamed)),
    ?assertNot(meck:called(halley_metrics, incr, '_')).

errors() ->
    failed(400, bad_json, publish(<<"{">>)),
    failed(400, bad_json, publish(<<>>)),
    failed(400, bad_event, publish(<<"{}">>)),
    failed(400, bad_subject, publish(<<"{\"subject\":\"\",\"data\":1}">>)),
    failed(400, bad_body, publish(stream([<<"{">>, closed]))),
    [begin
         meck:expect(halley, publish, fun(_, _, _) -> {error, Reason} end),
         Answer = publish(<<"{\"subject\":\"s\",\"data\":1}">>),
         failed(Status, Code, Answer),
         ?assertEqual(RetryAfter, header(<<"retry-after">>, Answer))
     end || {Reason, Status, Code, RetryAfter} <-
                [{overloaded, 503, overloaded, <<"1">>}, {unavailable, 503, unavailable, <<"1">>},
                 {disk_full, 503, disk_full, <<"10">>},
                 {history_failed, 503, history_failed, <<"10">>},
                 {data_too_large, 413, data_too_large, undefined},
                 {{bad_id, <<>>}, 400, bad_id, undefined}, {odd, 500, internal, undefined}]].

%% Who runs the server is told what to do about it.
a_full_disk_is_named() ->
    application:set_env(halley, data_dir, "/srv/häl"),
    meck:expect(halley, publish, fun(_, _, _) -> {error, disk_full} end),
    try
        Message = failed(503, disk_full, publish(<<"{\"subject\":\"s\",\"data\":1}">>)),
        ?assert(says(<<"free space in data.dir = /srv/häl, or set history.bytes"/utf8>>, Message))
    after
        application:unset_env(halley, data_dir)
    end.

%% http.md 20.1: in place of a subject, alone and in a line among others.
private() ->
    Private = <<"{\"to\":[\"bob\",\"eve\"],\"data\":1}">>,
    {200, _, _} = publish(Private),
    ?assert(meck:called(halley, publish, [{to, [<<"bob">>, <<"eve">>]}, {json, <<"1">>}, #{}])),
    {200, _, _} = publish_lines(stream([Private, <<"\n{\"subject\":\"s\",\"data\":2}\n">>])),
    ?assertMatch([[{{to, [<<"bob">>, <<"eve">>]}, {json, <<"1">>}, _},
                   {<<"s">>, {json, <<"2">>}, _}]],
                 [Group || {_, {halley, publish_many, [Group]}, _} <- meck:history(halley)]),
    ?assert(says("list of 1 to 1000 users",
                 failed(400, bad_to, publish(<<"{\"to\":[],\"data\":1}">>)))).

%% The longest ids, and the largest data between white space.
largest_private() ->
    Users = [[$", binary:copy(<<"x">>, 251), integer_to_list(N), $"] || N <- lists:seq(1000, 1999)],
    Data = binary:copy(<<"1">>, halley_limits:get(event_data_bytes_max)),
    {200, _, _} = publish(iolist_to_binary(["{\"to\":[", lists:join(", ", Users), "],\"data\":\"",
                                            binary:part(Data, 2, byte_size(Data) - 2), "\"}"])).

%% What is asked for reaches the core, line by line.
acks() ->
    failed(400, bad_ack, publish(<<"{\"subject\":\"s\",\"data\":1,\"ack\":\"both\"}">>)),
    {200, _, _} = publish(<<"{\"subject\":\"s\",\"data\":1,\"ack\":\"memory\"}">>),
    ?assert(meck:called(halley, publish, [<<"s">>, {json, <<"1">>}, #{ack => memory}])),
    Lines = [<<"{\"subject\":\"a\",\"data\":1,\"id\":\"1\",\"ack\":\"disk\"}\n">>,
             <<"{\"subject\":\"a\",\"data\":1,\"id\":\"2\",\"ack\":1}\n">>,
             <<"{\"subject\":\"a\",\"data\":1,\"id\":\"3\",\"ack\":\"memory\"}\n">>,
             <<"{\"subject\":\"a\",\"data\":1,\"id\":\"4\"}\n">>],
    Answer = {200, _, _} = publish_lines(stream(Lines)),
    ?assertEqual([<<"1">>, bad_ack, <<"3">>, <<"4">>], results(Answer)),
    Groups = [Group || {_, {halley, publish_many, [Group]}, _} <- meck:history(halley)],
    ?assertEqual([#{id => <<"1">>, ack => disk}, #{id => <<"3">>, ack => memory},
                  #{id => <<"4">>}], [Opts || {_, _, Opts} <- lists:append(Groups)]).

%% Each line has a result of its own, whatever becomes of the others.
lines_fail_alone() ->
    meck:expect(halley, publish_many,
                fun([_, _, _]) -> [{ok, #{id => <<"1">>, sessions => 2}}, {error, disk_full},
                                   {error, overloaded}] end),
    Lines = binary:copy(<<"{\"subject\":\"a\",\"data\":1}\n">>, 3),
    ?assertEqual([<<"1">>, disk_full, overloaded], results({200, _, _} = publish_lines(Lines))).

bodies_are_bounded() ->
    Max = 2 * ?DATA_BYTES_MAX + 8192 + 1000 * (255 + 3),
    failed(413, body_too_large, publish(binary:copy(<<" ">>, Max + 1))),
    failed(400, bad_json, publish(binary:copy(<<" ">>, Max))),
    Endless = {stream, fun() -> {ok, binary:copy(<<" ">>, 10000)} end},
    failed(413, body_too_large, publish(Endless)),
    %% http.md 16.8: "refused with 413 before any of it is read".
    Unread = {stream, fun() -> error(read) end},
    Announced = fun(Bytes) ->
        Headers = #{<<"halley-length">> => Bytes},
        Request = halley_api_fake:with_headers(api, <<"POST">>, "/v1/events", Headers),
        halley_api:handle(Request#{body := Unread})
    end,
    failed(413, body_too_large, Announced(integer_to_binary(Max + 1))),
    %% No number is made of what no length can be.
    failed(413, body_too_large, Announced(binary:copy(<<"0">>, 21))),
    ?assertError(read, Announced(integer_to_binary(Max))).

content_types() ->
    Event = <<"{\"subject\":\"s\",\"data\":1}">>,
    [?assertMatch({Status, _, _}, call(api, <<"POST">>, "/v1/events", Event, Type))
     || {Type, Status} <- [{<<"application/json">>, 200},
                           {<<"Application/JSON; charset=utf-8">>, 200},
                           {<<"application/x-www-form-urlencoded">>, 200},
                           {<<>>, 200}, {<<";">>, 200},
                           {<<"application/x-ndjson">>, 200},
                           {<<"text/plain">>, 200}, {<<"text/plain;charset=UTF-8">>, 200},
                           {<<"text/html">>, 415}, {<<"multipart/form-data">>, 415}]].

many() ->
    Lines = [<<"{\"subject\":\"a\",\"data\":1,\"id\":\"1\"}\n">>, <<"nonsense\n">>, <<"\r\n">>,
             <<"{\"subject\":\"b\",\"data\":2,\"id\":\"2\"}\r\n">>,
             <<"{\"subject\":\"\",\"data\":2}\n">>,
             <<"{\"subject\":\"a\",\"data\":3,\"id\":\"3\"}">>],
    Answer = {200, _, _} = publish_lines(stream(Lines)),
    ?assertEqual(<<"application/x-ndjson">>, header(<<"content-type">>, Answer)),
    ?assertEqual([<<"1">>, bad_json, <<"2">>, bad_subject, <<"3">>], results(Answer)),
    Groups = [Group || {_, {halley, publish_many, [Group]}, _} <- meck:history(halley)],
    ?assertEqual([<<"a">>, <<"b">>, <<"a">>], [S || {S, _, _} <- lists:append(Groups)]),
    meck:expect(halley, publish_many, fun(Group) -> [{error, overloaded} || _ <- Group] end),
    ?assertEqual([overloaded], results(publish_lines(<<"{\"subject\":\"a\",\"data\":1}">>))),
    ?assertMatch({200, _, []}, publish_lines(<<>>)).

too_many() ->
    Event = <<"{\"subject\":\"a\",\"data\":1}\n">>,
    Fits = binary:copy(Event, 100000),
    ?assertMatch({200, _, _}, publish_lines(Fits)),
    Answer = {413, _, _} = publish_lines(stream([Fits, Event, Event])),
    ?assertEqual(lists:duplicate(100000, <<"generated">>) ++ [too_many_events], results(Answer)).

%% Whatever is kept of it, it is an error, and the next line is fine.
a_long_line() ->
    Blank = binary:copy(<<" ">>, 50000),
    Chunks = [<<"{\"subject\":">>, lists:duplicate(8, Blank),
              <<"1}\n{\"subject\":\"1\",\"data\":1}\n">>],
    [?assertEqual([line_too_long, <<"generated">>], results(publish_lines(Body)))
     || Body <- [iolist_to_binary(Chunks), stream(lists:flatten(Chunks))]].
