%% An edge that was taken over can't take the brain's memory or time by what it asks, answers or
%% never reads; see halley_edge_taken_SUITE. `taken_edge' has the honest link.
-module(halley_edge_taken_flow_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(taken_edge, [attacked/2, synced/1, handshake/1, cut/1, again/2, builds/0, goodbye/1,
                     queued/0, broken/1, user/1]).
-import(halley_edge_helper, [until/1, alive/1, next/2, link_process/0, writer/0, slot/0,
                             counted/1]).

-define(VICTIM, <<"anna">>).
%% The honest worker's connection.
-define(CONN, 1).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [credit_too_much, credit_for_nothing, closings_without_end, never_any_credit,
     replayed_without_end, requests_without_end, bodies_without_end, requests_that_ask_nothing,
     who_it_says_is_asking, views_that_it_does_not_keep,
     answers_that_nobody_asked_for, metrics_of_all_kinds,
     comings_and_goings_of_a_group, cursors_of_all_kinds, reads_nothing, silence,
     comes_again_and_again].

init_per_testcase(Case, Config) ->
    taken_edge:start(Config, limits(Case), handler(Case)).

end_per_testcase(_, Config) ->
    taken_edge:stop(Config).

%% A catch-up on top of a full queue stays within twice the queue's bound.
limits(never_any_credit) -> #{link_queue_bytes_max => 1000000, replay_queue_bytes_max => 100000};
limits(closings_without_end) ->
    #{link_queue_bytes_max => 1000000, heartbeat_ms => 100, silence_ms => 60000,
      sessions_per_user_max => 1};
limits(credit_for_nothing) ->
    #{link_queue_bytes_max => 1000000, heartbeat_ms => 100, silence_ms => 60000};
limits(reads_nothing) -> #{link_queue_bytes_max => 1000000, silence_ms => 3000};
limits(requests_without_end) -> #{requests_in_flight_max => 50};
limits(comings_and_goings_of_a_group) ->
    #{group_followers_min => 10, group_followers_low => 5, group_marks_max => 1000};
limits(silence) -> #{silence_ms => 3000, heartbeat_ms => 100};
limits(comes_again_and_again) -> #{redial_ms_max => 1000};
limits(_) -> #{}.

handler(who_it_says_is_asking) -> halley_api;
handler(views_that_it_does_not_keep) -> halley_api;
handler(_) -> halley_edge_test_brain.


%%% 4 Flow control

credit_too_much(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:send(Edge, {credit, 16#FFFFFFFF}),
        ?assertMatch({goodbye, 5, <<"4.3", _/binary>>}, goodbye(Edge)),
        %% The writer has said so, the link counts it.
        until(fun() -> broken("flow_control") =:= 1 end)
    end).

%% 4.7: a writer that is stuck, since its worker doesn't read, is told of no end of PING and CREDIT.
credit_for_nothing(Config) ->
    attacked(Config, fun(Edge) ->
        [begin
             Writer = writer(),
             erlang:suspend_process(Writer),
             Monitor = monitor(process, link_process()),
             Flood = binary:copy(iolist_to_binary(halley_edge_codec:encode(Frame)), 50000),
             fake_edge:send_raw(Edge, Flood),
             receive {'DOWN', Monitor, _, _, Reason} ->
                 ?assertMatch({shutdown, {broken, {<<"4.7">>, _}}}, Reason)
             after 60000 -> error({unbounded, process_info(Writer, message_queue_len)})
             end,
             synced(Edge)
         end || Frame <- [{credit, 0}, {ping, 7}]]
    end).

%% 4.7: each session over a user's bound has the brain ask for up to 64 others to be closed.
closings_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:send(Edge, {open, [{Conn, 1, <<"many">>, <<>>} || Conn <- lists:seq(1, 64)]}),
        until(fun() -> length(halley_sessions:of_user(<<"many">>)) =:= 64 end),
        alive(Edge),
        Number = halley_ids:lookup(<<"many">>),
        Writer = writer(),
        erlang:suspend_process(Writer),
        Monitor = monitor(process, link_process()),
        Frames = [{open, [{65, 1, <<"many">>, <<>>}]}, {close, [{65, Number, 1}]}],
        fake_edge:send_raw(Edge, lists:duplicate(5000, [fake_edge:bytes(Frame)
                                                        || Frame <- Frames])),
        receive {'DOWN', Monitor, _, _, Reason} ->
            ?assertMatch({shutdown, {broken, {<<"4.7">>, _}}}, Reason)
        after 60000 -> error({unbounded, process_info(Writer, message_queue_len)})
        end
    end).

%% 4.7: its events are left to the history, and the queue stays within its bound.
never_any_credit(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:send(Edge, {open, [{7, 1, <<"big">>, <<>>}]}),
        until(fun() -> halley_sessions:of_user(<<"big">>) =/= [] end),
        Text = binary:copy(<<"x">>, 50000),
        Behind = counted("halley_links_behind_total"),
        [{ok, _} = halley:publish(<<"big">>, Text) || _ <- lists:seq(1, 100)],
        ?assert(queued() =< 2000000),
        ?assert(counted("halley_links_behind_total") > Behind)
    end).

%% Replays have a low priority: what a worker says to them must not wait without bound.
replayed_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        Replays = halley_edge_helper:replays(),
        erlang:suspend_process(Replays),
        Replayed = binary:copy(iolist_to_binary(fake_edge:bytes({replayed, 7})), 10000),
        Send = fun(_) -> fake_edge:send_raw(Edge, Replayed) end,
        lists:foreach(Send, lists:seq(1, 101)),
        {goodbye, 8, <<"4.7", _/binary>>} = goodbye(Edge),
        ?assertEqual(1, broken("overloaded"))
    end).

%%% 8 Requests

requests_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        %% At once: who still writes when the brain closes may not read its goodbye.
        Requests = [request(Conn, <<"/count">>, 0) || Conn <- lists:seq(1, 200)],
        fake_edge:send_raw(Edge, [fake_edge:bytes(Request) || Request <- Requests]),
        ?assertMatch({goodbye, 5, <<"8.1", _/binary>>}, goodbye(Edge))
    end).

%% 8.3: more than the window at once; and a body that never ends, a byte now and then.
bodies_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:send(Edge, request(1, <<"/unread">>, 0)),
        [fake_edge:send(Edge, {request_body, 1, 0, binary:copy(<<0>>, 100000)})
         || _ <- [1, 2, 3]],
        ?assertMatch({goodbye, 5, <<"8.3", _/binary>>}, goodbye(Edge)),
        %% For the next link, so that the first body had its time.
        ok = halley_edge_test_brain:limits(#{redial_ms_max => 50, response_ms_max => 500}),
        synced(Edge),
        fake_edge:send(Edge, request(2, <<"/count">>, 0)),
        ?assertMatch({response, 2, 408, _, _, _, _}, next(Edge, response))
    end).

requests_that_ask_nothing(Config) ->
    attacked(Config, fun(Edge) ->
        Targets = [<<>>, <<"nonsense">>, <<"/%">>, <<"/%zz">>, <<"/", 0>>, <<"http://">>,
                   binary:copy(<<"/a">>, 30000)],
        [fake_edge:send(Edge, {request, Conn, public, 1, <<"GET">>, Target, [], <<>>})
         || {Conn, Target} <- lists:enumerate(Targets)],
        Answers = [next(Edge, response) || _ <- Targets],
        [?assert(Status >= 400) || {response, _, Status, _, _, _, _} <- Answers],
        %% One connection asks again and again without waiting for answers.
        [fake_edge:send(Edge, request(9, <<"/count">>, 0)) || _ <- lists:seq(1, 5000)],
        alive(Edge)
    end).

%% 12.6 "the brain may believe them": of users. On the API listener a key is needed all the same.
who_it_says_is_asking(Config) ->
    {Text, Key} = halley_server_key:new(<<"test">>, [read], 0),
    ok = halley_server_keys:force(true, [Key]),
    attacked(Config, fun(Edge) ->
        Forged = [{<<"halley-user">>, ?VICTIM},
                  {<<"halley-rights">>, <<"{\"publish\":[\"*\"],\"follow\":[\"*\"]}">>}],
        Ask = fun(Listener, Method, Target, Headers) ->
            fake_edge:send(Edge, {request, 1, Listener, 1, Method, Target, Headers, <<>>}),
            {response, 1, Status, _, _, _, _} = next(Edge, response),
            Status
        end,
        ?assertEqual(200, Ask(public, <<"GET">>, <<"/v1/me/follows">>, Forged)),
        [?assertEqual(401, Ask(api, Method, Target, Forged))
         || {Method, Target} <- [{<<"POST">>, <<"/v1/events">>}, {<<"GET">>, <<"/metrics">>},
                                 {<<"DELETE">>, <<"/v1/users/anna/sessions">>}]],
        Header = {<<"authorization">>, <<"Bearer ", Text/binary>>},
        ?assertEqual(200, Ask(api, <<"GET">>, <<"/v1/users/anna">>, [Header])),
        ?assertEqual(403, Ask(api, <<"DELETE">>, <<"/v1/users/anna/sessions">>, [Header]))
    end).

%% 19.3: a worker of a build before would say to the next brain that a session may see everybody, so
%% it needs the right to that.
views_that_it_does_not_keep(Config) ->
    ok = halley_presence_dirty:turn_on("*"),
    attacked(Config, fun(Edge) ->
        Everybody = <<1, $*>>,
        Some = <<"{\"presence\":[\"room/*\"]}">>,
        fake_edge:send(Edge, {subscriptions, 1, Some, [Everybody]}),
        fake_edge:send(Edge, {open, [{1, 1, ?VICTIM, <<>>}]}),
        ?assertMatch({refused, 1, 403, 0, <<"right_missing">>, _}, next(Edge, refused)),
        fake_edge:send(Edge, {subscriptions, 2, <<"{\"presence\":[\"*\"]}">>, [Everybody]}),
        fake_edge:send(Edge, {open, [{2, 1, ?VICTIM, <<>>}]}),
        {opened, _, _} = next(Edge, opened),
        fake_edge:send(Edge, {rights, 2, Some}),
        ?assertEqual({ended, 2, <<"right_missing">>, [Everybody]}, next(Edge, ended)),
        %% One that keeps it says so by its pieces.
        fake_edge:send(Edge, {subscriptions, 3, Some, [Everybody, <<4, 0, 6, "room/*">>]}),
        fake_edge:send(Edge, {open, [{3, 1, ?VICTIM, <<>>}]}),
        {opened, _, _} = next(Edge, opened)
    end).

%%% 10 and 3.4 Answers

answers_that_nobody_asked_for(Config) ->
    attacked(Config, fun(Edge) ->
        [fake_edge:send(Edge, {inspected, N, N, inspected()}) || N <- lists:seq(1, 5000)],
        [fake_edge:send(Edge, {behind, N, [{N, N, 1, 2, 3, 4}]}) || N <- lists:seq(1, 5000)],
        [fake_edge:send(Edge, {replayed, N}) || N <- lists:seq(1, 5000)],
        [fake_edge:send(Edge, {pong, N}) || N <- lists:seq(1, 5000)],
        alive(Edge),
        %% What it says of another's connection is no answer about that one.
        Slot = slot(),
        Self = self(),
        spawn_link(fun() -> Self ! {seen, halley_edge_link:inspect(Slot, 7, 500)} end),
        {inspect, Token, 7} = next(Edge, inspect),
        fake_edge:send(Edge, {inspected, Token, 8, inspected()}),
        fake_edge:send(Edge, {behind, Token, []}),
        receive {seen, Seen} -> ?assertEqual(timeout, Seen) end,
        %% Who is behind, as told; and by a worker of a build that knows no such question, or lies.
        Slow = #{conn => 8, user_number => 9, transport => sse, outbox_bytes => 2,
                 outbox_pieces => 3, outbox_ms => 4},
        lists:foreach(fun({Answer, Expected}) ->
            spawn_link(fun() -> Self ! {behind, halley_edge_link:behind(Slot, 5000)} end),
            {inspect, Asked, Nobody} = next(Edge, inspect),
            fake_edge:send(Edge, Answer(Asked, Nobody)),
            receive {behind, Told} -> ?assertEqual(Expected, Told) end
        end, [{fun(T, _) -> {behind, T, [{8, 9, 1, 2, 3, 4}]} end, {ok, [Slow]}},
              {fun(T, C) -> {inspected, T, C, (inspected())#{state := 0}} end, unknown},
              {fun(T, C) -> {inspected, T, C, inspected()} end, unknown}])
    end).

metrics_of_all_kinds(Config) ->
    Name = fun(N) -> <<"halley_edge_", (integer_to_binary(N))/binary>> end,
    attacked(Config, fun(Edge) ->
        Bad = [<<"halley_ids">>, <<"halley_edge_">>, <<"halley_edge_A">>, <<"halley_edge_a{b=\"">>,
               <<"halley_edge_a\n">>],
        [begin
             again(Edge, [{N, counter, <<"help">>}]),
             ?assertMatch({goodbye, 3, <<"3.4", _/binary>>}, goodbye(Edge))
         end || N <- Bad],
        again(Edge, [{Name(0), counter, <<"not UTF-8: ", 255>>}]),
        ?assertMatch({goodbye, 3, <<"3.4", _/binary>>}, goodbye(Edge)),
        again(Edge, [{Name(N), counter, <<>>} || N <- lists:seq(1, 257)]),
        ?assertMatch({goodbye, 3, <<"3.4", _/binary>>}, goodbye(Edge)),
        %% Other names each time: as many lists as are kept, and no more.
        [begin
             Build = again(Edge, [{Name(256 * N + I), gauge, <<"help\n# TYPE x">>}
                                  || I <- [1, 2, 3]]),
             synced(Edge),
             until(fun() -> lists:member(Build, builds()) end),
             fake_edge:send(Edge, {stats, [16#FFFFFFFFFFFFFFFF, 0, 1]}),
             alive(Edge)
         end || N <- lists:seq(1, 20)],
        Lists = ets:select_count(halley_metrics_edge, [{{{list, '_'}, '_'}, [], [true]}]),
        ?assertEqual(16, Lists),
        ?assert(counted("halley_metric_lists_refused_total") >= 4),
        Text = iolist_to_binary(halley_metrics:render()),
        ?assertEqual(nomatch, binary:match(Text, <<"\n# TYPE x\n">>)),
        fake_edge:send(Edge, {stats, [1]}),
        ?assertMatch({goodbye, 3, <<"3.4", _/binary>>}, goodbye(Edge))
    end).

%%% 11 Groups, 10 Cursors

comings_and_goings_of_a_group(Config) ->
    {ok, _} = halley:follow([{user(N), <<"star">>} || N <- lists:seq(1, 100)]
                            ++ [{?VICTIM, <<"star">>}]),
    {ok, _} = halley:publish(<<"star">>, 0),
    attacked(Config, fun(Edge) ->
        until(fun() -> halley_groups_table:size() =:= 1 end),
        Numbers = [{N, halley_ids:lookup(user(N))} || N <- lists:seq(1, 100)],
        [begin
             fake_edge:send(Edge, {open, [{1000 * R + N, 1, user(N), <<>>} || {N, _} <- Numbers]}),
             fake_edge:send(Edge, {close, [{1000 * R + N, U, 1} || {N, U} <- Numbers]})
         end || R <- lists:seq(1, 100)],
        alive(Edge),
        ?assert(halley_groups_marks:count() =< 1000),
        {ok, #{sessions := Sessions}} = halley:publish(<<"star">>, 1),
        ?assert(Sessions >= 1)
    end).

cursors_of_all_kinds(Config) ->
    attacked(Config, fun(Edge) ->
        Far = halley_cursor:encode(halley_history:store(), 16#FFFFFFFF,
                                   list_to_tuple([16#FFFFFFFFFF || _ <- lists:seq(1, 8)])),
        Cursors = [<<"-">>, <<"AAAA">>, binary:copy(<<"A">>, 255), Far,
                   halley_cursor:encode(12345, 1, halley_history:heads())],
        [begin
             cut(Edge),
             fake_edge:send(Edge, {sync_begin, 1, Cursor}),
             Opening = [{N, 1, user(N), C} || {N, C} <- lists:enumerate(Cursors)],
             fake_edge:send(Edge, {open, Opening}),
             fake_edge:send(Edge, sync_end),
             alive(Edge)
         end || Cursor <- Cursors],
        fake_edge:send_raw(Edge, <<7:32, 16#41, 0:32, 1, 255>>),
        ?assertMatch({goodbye, 1, <<"7.2", _/binary>>}, goodbye(Edge))
    end).

%%% Time

%% It hears nothing of it, so it is 4.5 that ends it; until then its queue has a bound.
reads_nothing(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:send(Edge, {open, [{7, 1, <<"big">>, <<>>}]}),
        until(fun() -> halley_sessions:of_user(<<"big">>) =/= [] end),
        Monitor = monitor(process, link_process()),
        fake_edge:pause(Edge),
        Text = binary:copy(<<"x">>, 50000),
        [{ok, _} = halley:publish(<<"big">>, Text) || _ <- lists:seq(1, 100)],
        ?assert(queued() =< 2000000),
        receive {'DOWN', Monitor, _, _, Reason} ->
            ?assertMatch({shutdown, {broken, {<<"4.5">>, _}}}, Reason)
        after 60000 -> error(still_there)
        end,
        fake_edge:resume(Edge)
    end).

silence(Config) ->
    attacked(Config, fun(Edge) ->
        fake_edge:mute(Edge),
        ?assertMatch({goodbye, 4, <<"4.5", _/binary>>}, goodbye(Edge)),
        ?assert(broken("silence") >= 1)
    end).

%% Broken as soon as it stands, as often as it is dialled: once in redial_ms_max at most, after some
%% times of less.
comes_again_and_again(Config) ->
    attacked(Config, fun(Edge) ->
        rarely(Edge, 3, 30)
    end).

%% So many times in a row, before so many times in all. A link that stood for five seconds, as on a
%% machine that was busy with other things, has lasted, and the pauses grow anew.
rarely(_, 0, _) ->
    ok;
rarely(Edge, More, Tries) when Tries > 0 ->
    Pause = broken_again(Edge),
    ct:log("~b ms", [Pause]),
    case Pause >= 1000 of
        true -> rarely(Edge, More - 1, Tries - 1);
        false -> rarely(Edge, 3, Tries - 1)
    end.

%% Until the next handshake; so it takes no less than the pause.
broken_again(Edge) ->
    Began = erlang:monotonic_time(millisecond),
    fake_edge:send_raw(Edge, <<1:32, 0>>),
    goodbye(Edge),
    handshake(Edge),
    erlang:monotonic_time(millisecond) - Began.

%%%

request(Conn, Path, Flags) ->
    {request, Conn, public, Flags, <<"POST">>, Path, [], <<>>}.

inspected() ->
    #{state => 3, transport => 1, outbox_bytes => 1, outbox_pieces => 1, outbox_ms => 1,
      held => 0, dropped => 0, conflated => 0}.
