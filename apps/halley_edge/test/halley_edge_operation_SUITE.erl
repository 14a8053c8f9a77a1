%% Operations over a link: their answers, and how they end (protocol/link.md 20), as those of the
%% workers of a trunk.
-module(halley_edge_operation_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

-define(END, 1).
-define(ERROR, 16).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [posted, at_once, in_a_process, of_a_session, crashes_are_internal,
     what_has_ended_is_unavailable, heap_is_bounded, large_answers_are_split, late_answers,
     gone_kills, one_replaces_another, beside_a_request, without_a_handler].

init_per_testcase(Case, Config) ->
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    Edge = fake_trunk:start(Dir, 2),
    ok = halley_edge_dialer:connect(Dir, self()),
    receive {link_up, #{worker := 65535}} -> ok after ?WAIT_MS -> error(not_up) end,
    Trunk = fake_trunk:until(fun(T) ->
        fake_trunk:follows(0, T) andalso fake_trunk:follows(1, T)
    end, fake_trunk:new(Edge, 2)),
    [{brain, Brain}, {dir, Dir}, {edge, Edge}, {trunk, Trunk} | Config].

end_per_testcase(_, Config) ->
    ok = application:set_env(halley_edge, handler, halley_edge_test_brain),
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

limits(late_answers) -> #{response_ms_max => 5000, heartbeat_ms => 50};
limits(_) -> #{}.

%% Workers have connections of the same id; each answer has the number of its operation.
posted(Config) ->
    [publish(Config, W, 5, 100 + W) || W <- [0, 1]],
    [begin
         {Number, ?END, Id} = answer(Config, W, 5),
         ?assertEqual(100 + W, Number),
         ?assertMatch({ok, _}, halley_history:find(Id))
     end || W <- [1, 0]].

at_once(Config) ->
    operate(Config, 0, 5, 7, #{what => state, members => [{<<"data">>, <<"[1]">>}]}),
    ?assertEqual({7, ?END, <<"[1]">>}, answer(Config, 0, 5)).

in_a_process(Config) ->
    follow(Config, 5, 4294967295, <<"echo">>),
    ?assertEqual({4294967295, ?END, <<"ann {} 0">>}, answer(Config, 0, 5)),
    follow(Config, 5, 0, <<"refuse">>),
    ?assertEqual({0, ?END bor ?ERROR, <<"{\"code\":\"no\"}">>}, answer(Config, 0, 5)),
    operate(Config, 1, 5, 1, #{what => subscribe, subject => <<"echo">>, last => 20}),
    ?assertEqual({1, ?END, <<"ann {} 20">>}, answer(Config, 1, 5)).

%% The link knows the sessions.
of_a_session(Config) ->
    operate(Config, 0, 5, 1, #{what => subscribe, subject => <<"s">>}),
    ?assertEqual({1, ?END, <<"no_session">>}, answer(Config, 0, 5)),
    ok = send(Config, 0, {open, [{5, 3, <<"ann">>, <<>>}]}),
    _ = next(Config, 0, opened),
    [begin
         operate(Config, 0, 5, Number, #{what => subscribe, subject => <<"s">>}),
         ?assertEqual({Number, ?END, Result}, answer(Config, 0, 5))
     end || {Number, Result} <- [{2, <<"added">>}, {3, <<"already">>}]].

crashes_are_internal(Config) ->
    operate(Config, 0, 5, 1, #{what => unfollow, subject => <<"a">>}),
    [follow(Config, 5 + N, N, Subject) || {N, Subject} <- [{2, <<"crash">>}, {3, <<"nonsense">>}]],
    [?assertMatch({N, error, #{<<"code">> := <<"internal">>}}, failure(Config, Conn))
     || {Conn, N} <- [{5, 1}, {7, 2}, {8, 3}]],
    still_linked(Config).

what_has_ended_is_unavailable(Config) ->
    follow(Config, 5, 1, <<"ask/nobody">>),
    ?assertMatch({1, error, #{<<"code">> := <<"unavailable">>, <<"retry_after_s">> := 1}},
                 failure(Config, 5)).

heap_is_bounded(Config) ->
    follow(Config, 5, 1, <<"heap">>),
    ?assertMatch({1, error, #{<<"code">> := <<"request_too_large">>}}, failure(Config, 5)).

%% 20.5
large_answers_are_split(Config) ->
    follow(Config, 5, 9, <<"big">>),
    Parts = [answer(Config, 0, 5) || _ <- [1, 2, 3]],
    ?assertEqual([{9, 0}, {9, 0}, {9, ?END}], [{N, Flags} || {N, Flags, _} <- Parts]),
    ?assertEqual(binary:copy(<<"x">>, 140000), iolist_to_binary([J || {_, _, J} <- Parts])).

late_answers(Config) ->
    follow(Config, 5, 1, <<"hang">>),
    ?assertMatch({1, error, #{<<"code">> := <<"response_timeout">>}}, failure(Config, 5)),
    until(fun() -> whereis(hanging_handler) =:= undefined end),
    still_linked(Config).

%% 8.6
gone_kills(Config) ->
    Monitor = hanging(Config, 5, 1),
    ok = send(Config, 0, {request_gone, 5}),
    receive {'DOWN', Monitor, _, _, killed} -> ok after ?WAIT_MS -> error(still_alive) end,
    still_linked(Config).

%% 20.1: "a later one on its connection replaces it."
one_replaces_another(Config) ->
    Monitor = hanging(Config, 5, 1),
    follow(Config, 5, 2, <<"echo">>),
    receive {'DOWN', Monitor, _, _, killed} -> ok after ?WAIT_MS -> error(still_alive) end,
    ?assertMatch({2, ?END, _}, answer(Config, 0, 5)),
    still_linked(Config).

%% 20.7: workers of an earlier build send requests on the session's connection.
beside_a_request(Config) ->
    Request = {request, 5, public, ?END, <<"POST">>, <<"/echo">>, [], <<"x">>},
    ok = send(Config, 0, Request),
    {response, 5, 200, ?END, _, _, <<"POST x ">>} = next(Config, 0, response),
    follow(Config, 5, 3, <<"echo">>),
    ?assertMatch({3, ?END, _}, answer(Config, 0, 5)).

without_a_handler(Config) ->
    ok = application:unset_env(halley_edge, handler),
    publish(Config, 0, 5, 1),
    ?assertMatch({1, error, #{<<"code">> := <<"no_handler">>, <<"retry_after_s">> := 1}},
                 failure(Config, 5)).

%%% Helpers

operate(Config, Worker, Conn, Number, What) ->
    Operation = maps:merge(#{user => <<"ann">>, rights => <<"{}">>, subject => <<>>, last => 0,
                             members => []}, What),
    ok = send(Config, Worker, {operation, Conn, Number, Operation}).

publish(Config, Worker, Conn, Number) ->
    Members = [{<<"subject">>, <<"s">>}, {<<"data">>, <<"1">>}],
    operate(Config, Worker, Conn, Number, #{what => publish, members => Members}).

follow(Config, Conn, Number, Subject) ->
    operate(Config, 0, Conn, Number, #{what => follow, subject => Subject}).

hanging(Config, Conn, Number) ->
    follow(Config, Conn, Number, <<"hang">>),
    until(fun() -> is_pid(whereis(hanging_handler)) end),
    monitor(process, hanging_handler).

send(Config, Worker, Frame) ->
    fake_edge:send(proplists:get_value(edge, Config), {from_worker, Worker, Frame}).

next(Config, Worker, Tag) ->
    {Edge, Trunk} = {proplists:get_value(edge, Config), proplists:get_value(trunk, Config)},
    Slot = fake_trunk:slot(Worker, Trunk),
    receive {Edge, {to_slot, Slot, Frame}} when element(1, Frame) =:= Tag -> Frame
    after ?WAIT_MS -> error({frame_missing, Tag})
    end.

answer(Config, Worker, Conn) ->
    {operation_answer, Conn, Number, Flags, Json} = next(Config, Worker, operation_answer),
    {Number, Flags, Json}.

%% Answers may come in any order.
failure(Config, Conn) ->
    {Edge, Trunk} = {proplists:get_value(edge, Config), proplists:get_value(trunk, Config)},
    Slot = fake_trunk:slot(0, Trunk),
    receive
        {Edge, {to_slot, Slot, {operation_answer, Conn, Number, ?END bor ?ERROR, Json}}} ->
            {Number, error, jiffy:decode(Json, [return_maps])}
    after ?WAIT_MS -> error({no_answer, Conn})
    end.

still_linked(Config) ->
    follow(Config, 99, 99, <<"echo">>),
    ?assertMatch({99, ?END, _}, answer(Config, 0, 99)).
