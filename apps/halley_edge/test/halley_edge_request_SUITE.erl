%% Requests over a link: their answers, their bodies, and how they die alone (protocol/link.md 8).
-module(halley_edge_request_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

-define(END, 1).
-define(CLOSE, 2).
-define(EXPECT, 4).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [request_and_answer, head_and_query, says_which_link, bad_target_is_400, crash_is_500,
     what_has_ended_is_503,
     nonsense_is_500,
     heap_is_bounded, large_answer_is_split, gone_kills, link_end_kills, late_answer_is_504,
     stalled_body_is_408, streamed_body, expect_waits_for_credit, body_over_window,
     body_after_its_end, body_without_request_is_skipped, unread_body_stops_at_the_window,
     connection_is_used_again, too_many_in_flight,
     small_ones_need_no_process, posted_crash_is_500, posted_and_gone, posted_and_late,
     posted_to_a_shard_that_dies, posted_with_an_id_that_is_busy, too_many_posted,
     posted_and_used_again].

init_per_testcase(Case, Config) ->
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    Edge = fake_edge:start(halley_edge_dial:path(Dir)),
    ok = halley_edge_dialer:connect(Dir, self()),
    receive {link_up, _} -> ok after ?WAIT_MS -> error(not_up) end,
    {ok, Link} = halley_edge_dialer:link(),
    [fake_edge:send(Edge, Frame) || Frame <- [{sync_begin, 0, <<>>}, sync_end]],
    %% The worker has a slot, and the link has all of its processes.
    _ = halley_edge_helper:slot(),
    _ = halley_edge_helper:replays(),
    [{brain, Brain}, {dir, Dir}, {edge, Edge}, {link, Link} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%% An answer that isn't late has as long.
limits(late_answer_is_504) -> #{response_ms_max => 5000, heartbeat_ms => 50};
limits(stalled_body_is_408) -> #{response_ms_max => 2000, heartbeat_ms => 50};
limits(Case) when Case =:= too_many_in_flight; Case =:= too_many_posted ->
    #{requests_in_flight_max => 10};
limits(posted_and_late) -> #{publish_ms_max => 200};
limits(_) -> #{request_window_bytes => 100000}.

request_and_answer(Config) ->
    Twice = [{<<"x-say">>, <<"a">>}, {<<"x-say">>, <<"b">>}],
    request(Config, 5, <<"POST">>, <<"/echo">>, ?END, <<"hello">>, Twice),
    Body = <<"POST hello a, b">>,
    Bytes = byte_size(Body),
    ?assertEqual({response, 5, 200, ?END, Bytes, [{<<"content-type">>, <<"text/plain">>}], Body},
                 next(Config, response)).

head_and_query(Config) ->
    request(Config, 5, <<"HEAD">>, <<"/echo?a=1&b=x+y%21&c">>),
    ?assertMatch({response, 5, 200, ?END, _, _, <<"HEAD   a=1 b=x y! c=">>},
                 next(Config, response)).

%% For who makes large answers: whose they are, and whether there is room for them.
says_which_link(Config) ->
    Link = pid_to_list(proplists:get_value(link, Config)),
    Says = fun(HasRoom) ->
        request(Config, 5, <<"GET">>, <<"/link">>),
        {response, 5, 200, ?END, _, _, Body} = next(Config, response),
        ?assertEqual(Link ++ " " ++ HasRoom, binary_to_list(Body))
    end,
    Says("true"),
    ok = halley_limits:set(#{replay_queue_bytes_max => 0}),
    Says("false").

bad_target_is_400(Config) ->
    [begin
         request(Config, 5, <<"GET">>, Target),
         {response, 5, 400, ?END, _, _, Body} = next(Config, response),
         ?assertMatch(<<"{\"error\":{\"code\":\"bad_target\"", _/binary>>, Body)
     end || Target <- [<<"/%">>, <<"/%2">>, <<"/%zz">>, <<"/a?b=%">>, <<"nothing">>, <<>>]].

crash_is_500(Config) ->
    request(Config, 5, <<"GET">>, <<"/crash">>),
    {response, 5, 500, ?END, _, Headers, Body} = next(Config, response),
    ?assertEqual(<<"application/json">>, proplists:get_value(<<"content-type">>, Headers)),
    ?assertMatch(#{<<"error">> := #{<<"code">> := <<"internal">>, <<"message">> := _}},
                 jiffy:decode(Body, [return_maps])),
    still_linked(Config).

%% As while a process of the brain's is started again.
what_has_ended_is_503(Config) ->
    Name = <<"halley_requests_failed_total{reason=\"unavailable\"}">>,
    Counted = fun() -> maps:get(Name, halley_metrics:values()) end,
    Before = Counted(),
    [begin
         request(Config, 5, <<"GET">>, <<"/ask/", Whom/binary>>),
         {response, 5, 503, ?END, _, Headers, Body} = next(Config, response),
         ?assertEqual(<<"1">>, proplists:get_value(<<"retry-after">>, Headers)),
         ?assertMatch(#{<<"error">> := #{<<"code">> := <<"unavailable">>}},
                      jiffy:decode(Body, [return_maps]))
     end || Whom <- [<<"nobody">>, <<"no-table">>]],
    ?assertEqual(Before + 2, Counted()),
    still_linked(Config).

nonsense_is_500(Config) ->
    request(Config, 5, <<"GET">>, <<"/nonsense">>),
    ?assertMatch({response, 5, 500, _, _, _, _}, next(Config, response)),
    still_linked(Config).

heap_is_bounded(Config) ->
    request(Config, 5, <<"GET">>, <<"/heap">>),
    ?assertMatch({response, 5, 413, ?END bor ?CLOSE, _, _, _}, next(Config, response)),
    still_linked(Config).

large_answer_is_split(Config) ->
    request(Config, 5, <<"GET">>, <<"/big/700000">>),
    {response, 5, 200, 0, 700000, _, First} = next(Config, response),
    Parts = rest_of_body(Config),
    ?assertEqual(binary:copy(<<"x">>, 700000), iolist_to_binary([First | Parts])).

rest_of_body(Config) ->
    case next(Config, response_body) of
        {response_body, 5, 0, Part} -> [Part | rest_of_body(Config)];
        {response_body, 5, ?END, Part} -> [Part]
    end.

%% 8.6
gone_kills(Config) ->
    Handler = hanging(Config),
    Monitor = monitor(process, Handler),
    send(Config, {request_gone, 5}),
    receive {'DOWN', Monitor, _, _, killed} -> ok after ?WAIT_MS -> error(still_alive) end,
    send(Config, {request_gone, 5}),
    ?assertEqual([], answers(Config, 100)),
    still_linked(Config).

%% "a request never outlives its link"
link_end_kills(Config) ->
    Monitor = monitor(process, hanging(Config)),
    fake_edge:cut(proplists:get_value(edge, Config)),
    receive {'DOWN', Monitor, _, _, _} -> ok after ?WAIT_MS -> error(still_alive) end.

late_answer_is_504(Config) ->
    request(Config, 5, <<"GET">>, <<"/hang">>),
    ?assertMatch({response, 5, 504, ?END bor ?CLOSE, _, _, _}, next(Config, response)),
    until(fun() -> whereis(hanging_handler) =:= undefined end),
    ?assertEqual([], answers(Config, 300)),
    still_linked(Config).

stalled_body_is_408(Config) ->
    request(Config, 5, <<"POST">>, <<"/count">>, 0, <<"abc">>, []),
    ?assertMatch({response, 5, 408, ?END bor ?CLOSE, _, _, _}, next(Config, response)).

%% 8.3: ten times the window, and credit for all of it but the last part.
streamed_body(Config) ->
    request(Config, 5, <<"POST">>, <<"/count">>, 0, <<>>, []),
    Sent = stream(Config, 1000000, 100000),
    send(Config, {request_body, 5, ?END, <<"last">>}),
    Answer = integer_to_binary(Sent + 4),
    ?assertMatch({response, 5, 200, ?END, _, _, Answer}, next(Config, response)).

%% The window left is always enough for the four bytes at the end.
stream(Config, Left, Window) when Window < 20004 ->
    {request_credit, 5, Bytes} = next(Config, request_credit),
    stream(Config, Left, Window + Bytes);
stream(_, Left, _) when Left =< 0 ->
    0;
stream(Config, Left, Window) ->
    send(Config, {request_body, 5, 0, binary:copy(<<"z">>, 20000)}),
    20000 + stream(Config, Left - 20000, Window - 20000).

%% "the window is zero until the first REQUEST_CREDIT"
expect_waits_for_credit(Config) ->
    request(Config, 5, <<"POST">>, <<"/count">>, ?EXPECT, <<>>, []),
    ?assertEqual({request_credit, 5, 100000}, next(Config, request_credit)),
    send(Config, {request_body, 5, ?END, <<"four">>}),
    ?assertMatch({response, 5, 200, _, _, _, <<"4">>}, next(Config, response)).

body_over_window(Config) ->
    request(Config, 5, <<"POST">>, <<"/unread">>, 0, binary:copy(<<"a">>, 99999), []),
    send(Config, {request_body, 5, 0, <<"ab">>}),
    expect_goodbye(Config, 5, <<"8.3">>).

body_after_its_end(Config) ->
    request(Config, 5, <<"GET">>, <<"/hang">>),
    send(Config, {request_body, 5, 0, <<"ab">>}),
    expect_goodbye(Config, 5, <<"8.3">>).

%% 8.5, 8.6
body_without_request_is_skipped(Config) ->
    send(Config, {request_body, 77, 0, <<"ab">>}),
    send(Config, {request_gone, 77}),
    still_linked(Config).

unread_body_stops_at_the_window(Config) ->
    request(Config, 5, <<"POST">>, <<"/unread">>, 0, <<>>, []),
    send(Config, {request_body, 5, 0, binary:copy(<<"a">>, 100000)}),
    ?assertEqual(none, within(Config, request_credit, 200)),
    still_linked(Config).

connection_is_used_again(Config) ->
    [begin
         Body = integer_to_binary(N),
         request(Config, 5, <<"POST">>, <<"/echo">>, ?END, Body, []),
         Expected = <<"POST ", Body/binary, " ">>,
         ?assertMatch({response, 5, 200, ?END, _, _, Expected}, next(Config, response))
     end || N <- lists:seq(1, 500)],
    still_linked(Config).

%% The edge's own bound is 10; see halley_edge_requests for the factor of two.
too_many_in_flight(Config) ->
    [request(Config, N, <<"POST">>, <<"/count">>, 0, <<>>, []) || N <- lists:seq(1, 19)],
    still_linked(Config),
    [request(Config, N, <<"POST">>, <<"/count">>, 0, <<>>, []) || N <- [20, 21]],
    expect_goodbye(Config, 5, <<"8.1">>).

%%% Without a process (docs/internals/publish.md)

small_ones_need_no_process(Config) ->
    Link = proplists:get_value(link, Config),
    {links, Before} = process_info(Link, links),
    held_shards(fun() ->
        [post(Config, N, <<"s", (integer_to_binary(N))/binary>>) || N <- lists:seq(1, 100)],
        until(fun() -> halley_shard:queued() =:= 100 end),
        ?assertEqual({links, Before}, process_info(Link, links))
    end),
    Answers = [next(Config, response) || _ <- lists:seq(1, 100)],
    ?assertEqual(lists:seq(1, 100),
                 lists:sort([N || {response, N, 200, ?END, _, _, _} <- Answers])),
    [?assertMatch({ok, _}, halley_history:find(Id)) || {response, _, _, _, _, _, Id} <- Answers],
    request(Config, 5, <<"POST">>, <<"/now">>),
    ?assertMatch({response, 5, 200, ?END, _, _, <<"at once">>}, next(Config, response)),
    still_linked(Config).

%% Those beside it are answered.
posted_crash_is_500(Config) ->
    post(Config, 6, <<"s">>),
    [request(Config, N, <<"POST">>, Target, ?END, <<"1">>, [])
     || {N, Target} <- [{7, <<"/crash/now">>}, {8, <<"/crash/then">>}]],
    post(Config, 9, <<"s">>),
    Answers = [next(Config, response) || _ <- lists:seq(1, 4)],
    ?assertEqual([{6, 200}, {7, 500}, {8, 500}, {9, 200}],
                 lists:sort([{N, Status} || {response, N, Status, ?END, _, _, _} <- Answers])),
    still_linked(Config).

%% 8.6
posted_and_gone(Config) ->
    held_shards(fun() ->
        post(Config, 5, <<"s">>),
        until(fun() -> halley_shard:queued() =:= 1 end),
        send(Config, {request_gone, 5}),
        send(Config, {request_gone, 5}),
        still_linked(Config)
    end),
    ?assertEqual([], answers(Config, 300)),
    still_linked(Config).

posted_and_late(Config) ->
    held_shards(fun() ->
        [post(Config, N, <<"s">>) || N <- [5, 6]],
        ?assertMatch({response, 5, 503, ?END, _, _, <<"unavailable">>}, next(Config, response)),
        ?assertMatch({response, 6, 503, ?END, _, _, <<"unavailable">>}, next(Config, response))
    end),
    ?assertEqual([], answers(Config, 300)),
    still_linked(Config).

posted_to_a_shard_that_dies(Config) ->
    Shard = halley_shard:name(halley_shards:of_subject(<<"s">>)),
    Pid = whereis(Shard),
    ok = sys:suspend(Shard, infinity),
    post(Config, 5, <<"s">>),
    until(fun() -> halley_shard:queued() =:= 1 end),
    exit(Pid, kill),
    ?assertMatch({response, 5, 503, ?END, _, _, <<"unavailable">>}, next(Config, response)),
    until(fun() -> not lists:member(whereis(Shard), [Pid, undefined]) end),
    post(Config, 5, <<"s">>),
    ?assertMatch({response, 5, 200, ?END, _, _, _}, next(Config, response)),
    still_linked(Config).

%% Both get the first answer.
posted_with_an_id_that_is_busy(Config) ->
    ok = sys:suspend(halley_history_log, infinity),
    [request(Config, N, <<"POST">>, <<"/publish/s?id=x">>, ?END, <<"1">>, []) || N <- [5, 6]],
    ?assertEqual(none, within(Config, response, 200)),
    ok = sys:resume(halley_history_log, infinity),
    Answers = [next(Config, response) || _ <- [5, 6]],
    ?assertMatch([{response, 5, 200, _, _, _, <<"x">>}, {response, 6, 200, _, _, _, <<"x">>}],
                 lists:sort(Answers)),
    still_linked(Config).

%% Those that are gone count until their shard has answered.
too_many_posted(Config) ->
    held_shards(fun() ->
        [begin post(Config, N, <<"s">>), send(Config, {request_gone, N}) end
         || N <- lists:seq(1, 19)],
        still_linked(Config),
        [post(Config, N, <<"s">>) || N <- [20, 21]],
        expect_goodbye(Config, 5, <<"8.1">>)
    end).

posted_and_used_again(Config) ->
    [begin
         post(Config, 5, <<"s">>),
         ?assertMatch({response, 5, 200, ?END, _, _, _}, next(Config, response))
     end || _ <- lists:seq(1, 50)],
    ?assertEqual([], answers(Config, 0)),
    still_linked(Config).

held_shards(Fun) ->
    Shards = [halley_shard:name(N) || N <- lists:seq(1, halley_shards:count())],
    [ok = sys:suspend(Shard, infinity) || Shard <- Shards],
    try Fun() after [sys:resume(Shard, infinity) || Shard <- Shards] end.

post(Config, Conn, Subject) ->
    request(Config, Conn, <<"POST">>, <<"/publish/", Subject/binary>>, ?END, <<"1">>, []).

%%% Helpers

hanging(Config) ->
    request(Config, 5, <<"GET">>, <<"/hang">>),
    until(fun() -> is_pid(whereis(hanging_handler)) end),
    whereis(hanging_handler).

request(Config, Conn, Method, Target) ->
    request(Config, Conn, Method, Target, ?END, <<>>, []).

request(Config, Conn, Method, Target, Flags, Body, Headers) ->
    send(Config, {request, Conn, api, Flags, Method, Target, Headers, Body}).

send(Config, Frame) ->
    fake_edge:send(proplists:get_value(edge, Config), Frame).

next(Config, Tag) ->
    fake_edge:expect(proplists:get_value(edge, Config),
                     fun(Frame) -> is_tuple(Frame) andalso element(1, Frame) =:= Tag end).

within(Config, Tag, Ms) ->
    Edge = proplists:get_value(edge, Config),
    receive {Edge, Frame} when element(1, Frame) =:= Tag -> Frame
    after Ms -> none
    end.

answers(Config, Ms) ->
    timer:sleep(Ms),
    [F || F <- fake_edge:flush(proplists:get_value(edge, Config)), element(1, F) =:= response].

still_linked(Config) ->
    request(Config, 1000, <<"GET">>, <<"/echo">>),
    ?assertMatch({response, 1000, 200, _, _, _, _}, next(Config, response)),
    ?assertEqual({ok, proplists:get_value(link, Config)}, halley_edge_dialer:link()).

expect_goodbye(Config, Code, Clause) ->
    {goodbye, Code, Reason} = next(Config, goodbye),
    ?assertEqual(1, string:str(binary_to_list(Reason), binary_to_list(Clause))),
    ok = fake_edge:expect_closed(proplists:get_value(edge, Config)).
