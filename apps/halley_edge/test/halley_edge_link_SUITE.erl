%% A link against a fake edge: clause by clause of protocol/link.md, and fault by fault.
-module(halley_edge_link_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, next/2, alive/1, link_process/0, slot/0]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [handshake_carries_the_settings, bad_magic, wrong_version, second_hello,
     first_frame_not_hello, handshake_timeout, frame_too_large, unknown_type, wrong_direction,
     open_before_sync, credit_is_given_back, credit_overflow, frames_wait_for_credit,
     heartbeat_overtakes_large_frames, silence_closes,
     silence_of_its_own_is_not_the_peers, ping_flood_is_bounded, open_and_close,
     bad_ids_are_refused, too_many_ids, forged_close_changes_nothing, link_cut_during_sync,
     two_links_do_not_disturb, deliver_reaches_the_edge, large_event_is_split_by_conns,
     a_full_deliver_passes_its_event, close_sessions, stats_reach_metrics,
     stats_of_another_length].

init_per_suite(Config) ->
    Config.

end_per_suite(_) ->
    ok.

init_per_testcase(Case, Config) ->
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

limits(handshake_timeout) -> #{handshake_ms_max => 100};
limits(silence_closes) -> #{silence_ms => 10000, heartbeat_ms => 50};
limits(heartbeat_overtakes_large_frames) -> #{heartbeat_ms => 50};
limits(ping_flood_is_bounded) -> #{link_queue_bytes_max => 1000000, heartbeat_ms => 100};
limits(too_many_ids) -> #{ids_max => 50};
limits(_) -> #{}.

%%% 3 Handshake

handshake_carries_the_settings(Config) ->
    Edge = edge(Config, fake_edge:hello()),
    {hello_brain, Hello} = next(Edge, hello_brain),
    ?assertMatch(#{version := 6, window := 8388608}, Hello),
    Settings = [{<<"link_version_max">>, <<"6">>} | halley_limits:for_edge()],
    ?assertEqual(lists:sort(Settings), lists:sort(maps:get(settings, Hello))),
    receive {link_up, #{build := <<"fake">>}} -> ok after ?WAIT_MS -> error(not_up) end.

bad_magic(Config) ->
    refused_hello(Config, <<8:32, 16#40, "HLY", 2:16, 0:16>>, 3, <<"3.1">>).

wrong_version(Config) ->
    {goodbye, _, Reason} = refused_hello(Config, <<7:32, 16#40, "HLY1", 7:16>>, 2, <<"3.2">>),
    %% "with both in the reason"
    ?assertMatch({match, _}, re:run(Reason, "6 to 6 here, 7 there")).

first_frame_not_hello(Config) ->
    refused_hello(Config, halley_edge_codec:encode({ping, 1}), 3, <<"3.1">>).

refused_hello(Config, Bytes, Code, Clause) ->
    Edge = edge(Config, {raw, Bytes}),
    expect_goodbye(Edge, Code, Clause).

second_hello(Config) ->
    Edge = linked(Config),
    fake_edge:send(Edge, {hello_edge, fake_edge:hello()}),
    expect_goodbye(Edge, 3, <<"3.1">>).

handshake_timeout(Config) ->
    Edge = edge(Config, none),
    expect_goodbye(Edge, 3, <<"3.5">>).

%%% 2 Frames

frame_too_large(Config) ->
    Edge = linked(Config),
    fake_edge:send_raw(Edge, <<262145:32, 16#43>>),
    expect_goodbye(Edge, 1, <<"2.1">>).

unknown_type(Config) ->
    Edge = linked(Config),
    fake_edge:send_raw(Edge, <<1:32, 16#7f>>),
    expect_goodbye(Edge, 1, <<"2.3">>).

wrong_direction(Config) ->
    Edge = linked(Config),
    fake_edge:send_raw(Edge, halley_edge_codec:encode({shutdown, 0})),
    expect_goodbye(Edge, 1, <<"2.3">>).

open_before_sync(Config) ->
    Edge = linked(Config),
    fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}]}),
    expect_goodbye(Edge, 1, <<"13.4">>),
    ?assertEqual([], sessions(<<"anna">>)).

%%% 4 Flow control and heartbeats

credit_is_given_back(Config) ->
    Edge = synced(Config),
    Body = {request_body, 1, 0, binary:copy(<<0>>, 100000)},
    Cost = iolist_size(fake_edge:bytes(Body)),
    [fake_edge:send(Edge, Body) || _ <- lists:seq(1, 100)],
    Given = credits(Edge, 0, 100 * Cost - 8388608 div 4),
    ?assert(Given =< 100 * Cost + 100).

credits(_, Given, Enough) when Given > Enough ->
    Given;
credits(Edge, Given, Enough) ->
    {credit, Bytes} = next(Edge, credit),
    ?assert(Bytes =< 8388608 div 2),
    credits(Edge, Given + Bytes, Enough).

credit_overflow(Config) ->
    Edge = linked(Config),
    fake_edge:send(Edge, {credit, 1000}),
    expect_goodbye(Edge, 5, <<"4.3">>).

%% "only while its credit is above zero; the last frame may take the credit below zero"
frames_wait_for_credit(Config) ->
    Edge = synced(Config, (fake_edge:hello())#{window := 524288}),
    Slot = slot(),
    [deliver(Slot, N, 100000) || N <- lists:seq(1, 20)],
    Sent = [next(Edge, deliver) || _ <- lists:seq(1, 6)],
    ?assertEqual(none, quiet(Edge, deliver, 200)),
    Cost = iolist_size(halley_edge_codec:encode(hd(Sent))),
    ?assert(5 * Cost < 524288 andalso 6 * Cost > 524288),
    fake_edge:send(Edge, {credit, 6 * Cost}),
    [next(Edge, deliver) || _ <- lists:seq(1, 6)],
    ?assertEqual(none, quiet(Edge, deliver, 200)).

heartbeat_overtakes_large_frames(Config) ->
    Edge = synced(Config, (fake_edge:hello())#{window := 524288}),
    Slot = slot(),
    [deliver(Slot, N, 200000) || N <- lists:seq(1, 100)],
    [next(Edge, deliver) || _ <- lists:seq(1, 3)],
    %% 19 MB wait without credit. Pings and pongs don't.
    fake_edge:send(Edge, {ping, 77}),
    {pong, 77} = next(Edge, pong),
    ?assertEqual(none, quiet(Edge, deliver, 50)).

silence_closes(Config) ->
    Edge = linked(Config),
    Link = link_process(),
    timer:sleep(11000),
    ?assertEqual({ok, Link}, halley_edge_dialer:link()),
    fake_edge:mute(Edge),
    ok = halley_edge_test_brain:limits(#{silence_ms => 1000, heartbeat_ms => 50}),
    expect_goodbye(Edge, 4, <<"4.5">>).

%% 4.5: "a side that stood still itself reads what has come before it judges".
silence_of_its_own_is_not_the_peers(Config) ->
    Edge = linked(Config),
    Link = link_process(),
    fake_edge:mute(Edge),
    ok = halley_edge_test_brain:limits(#{silence_ms => 3000, heartbeat_ms => 1000}),
    %% Its last tick has heard nothing either.
    timer:sleep(1500),
    true = erlang:suspend_process(Link),
    timer:sleep(3500),
    fake_edge:send(Edge, {pong, 1}),
    until(fun() ->
        {messages, Waiting} = process_info(Link, messages),
        [] =/= [pong || {tcp, _, _} <- Waiting]
    end),
    true = erlang:resume_process(Link),
    alive(Edge),
    ?assertEqual(Link, link_process()).

%% PINGs are free, their answers wait in the brain if nobody reads them.
ping_flood_is_bounded(Config) ->
    Edge = linked(Config),
    Link = link_process(),
    Monitor = monitor(process, Link),
    Pings = binary:copy(halley_edge_codec:encode({ping, 0}), 400000),
    fake_edge:send_raw(Edge, Pings),
    fake_edge:pause(Edge),
    receive {'DOWN', Monitor, _, _, {shutdown, {broken, {<<"4.7">>, _}}}} -> ok
    after ?WAIT_MS -> error({unbounded, process_info(Link, current_function)})
    end,
    fake_edge:resume(Edge).

%%% 6 Sessions

open_and_close(Config) ->
    Edge = synced(Config),
    Slot = slot(),
    fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}, {2, 3, <<"anna">>, <<>>},
                                 {3, 2, <<"bert">>, <<>>}]}),
    {opened, _, Opened} = next(Edge, opened),
    ?assertMatch([{1, A}, {2, A}, {3, B}] when A =/= B, lists:sort(Opened)),
    ?assertEqual([{link, Slot, 1}, {link, Slot, 2}], sessions(<<"anna">>)),
    [{1, Anna}] = [O || {1, _} = O <- Opened],
    fake_edge:send(Edge, {close, [{1, Anna, 1}]}),
    alive(Edge),
    ?assertEqual([{link, Slot, 2}], sessions(<<"anna">>)),
    ?assertMatch([#{reason := closed, worker := 0, conn := 1}], halley_closings:of_user(Anna)),
    ?assertEqual([{link, Slot, 3}], sessions(<<"bert">>)).

bad_ids_are_refused(Config) ->
    Edge = synced(Config),
    Users = [<<>>, <<255>>, <<"good">>, <<"a\nb">>],
    fake_edge:send(Edge, {open, [{N, 1, User, <<>>} || {N, User} <- lists:enumerate(Users)]}),
    {opened, _, [{3, _}]} = next(Edge, opened),
    Refused = [next(Edge, refused) || _ <- [1, 2, 4]],
    ?assertMatch([{refused, 1, 400, 0, <<"bad_user">>, _}, {refused, 2, 400, 0, _, _},
                  {refused, 4, 400, 0, _, _}], lists:sort(Refused)).

too_many_ids(Config) ->
    Edge = synced(Config),
    Free = halley_limits:get(ids_max) - halley_ids:count(),
    Users = [{N, 1, <<"user", (integer_to_binary(N))/binary>>, <<>>}
             || N <- lists:seq(1, Free + 3)],
    fake_edge:send(Edge, {open, Users}),
    {opened, _, Opened} = next(Edge, opened),
    ?assertEqual(Free, length(Opened)),
    [?assertMatch({refused, _, 503, _, <<"too_many_users">>, _}, next(Edge, refused))
     || _ <- [1, 2, 3]].

%% "a CLOSE for a session of another link changes nothing"
forged_close_changes_nothing(Config) ->
    {Honest, _, Forger} = pair(Config),
    fake_edge:send(Honest, {open, [{7, 1, <<"anna">>, <<>>}]}),
    {opened, _, [{7, Number}]} = next(Honest, opened),
    Before = sessions(<<"anna">>),
    ?assertMatch([{link, _, 7}], Before),
    fake_edge:send(Forger, {close, [{7, Number, 1}, {8, Number, 1}, {7, 4294967295, 1}]}),
    fake_edge:send(Forger, {open, [{9, 1, <<"zoe">>, <<>>}]}),
    {opened, _, _} = next(Forger, opened),
    ?assertEqual(Before, sessions(<<"anna">>)).

%% "state is replaced": nothing of a sync that broke off stays.
link_cut_during_sync(Config) ->
    Edge = linked(Config),
    fake_edge:send(Edge, {sync_begin, 2, <<>>}),
    fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}]}),
    {opened, _, _} = next(Edge, opened),
    ?assertMatch([_], sessions(<<"anna">>)),
    fake_edge:cut(Edge),
    {hello_brain, _} = next(Edge, hello_brain),
    fake_edge:send(Edge, {sync_begin, 1, <<>>}),
    fake_edge:send(Edge, {open, [{5, 1, <<"anna">>, <<>>}]}),
    fake_edge:send(Edge, sync_end),
    {opened, _, [{5, _}]} = next(Edge, opened),
    until(fun() -> case sessions(<<"anna">>) of [{link, _, 5}] -> true; _ -> false end end).

two_links_do_not_disturb(Config) ->
    {Good, GoodLink, Bad} = pair(Config),
    BadLink = link_process(),
    fake_edge:send(Good, {open, [{1, 1, <<"anna">>, <<>>}]}),
    {opened, _, _} = next(Good, opened),
    Monitor = monitor(process, BadLink),
    fake_edge:send_raw(Bad, <<0:32>>),
    expect_goodbye(Bad, 1, <<"2.1">>),
    receive {'DOWN', Monitor, _, _, _} -> ok after ?WAIT_MS -> error(still_there) end,
    ?assert(is_process_alive(GoodLink)),
    ?assertMatch([{link, _, 1}], sessions(<<"anna">>)),
    {hello_brain, _} = next(Bad, hello_brain),
    ?assertNotEqual(BadLink, link_process()),
    ?assert(is_process_alive(GoodLink)).

%%% 7 Delivery

deliver_reaches_the_edge(Config) ->
    Edge = synced(Config),
    Delivery = event(1, 10),
    ok = told(slot(), Delivery, <<5:64, 9:64>>),
    {deliver, Item, <<5:64, 9:64>>} = next(Edge, deliver),
    ?assertEqual({<<>>, Delivery}, {maps:get(cursor, Item), halley_event:delivery(Item)}),
    until(fun() -> queued() =:= 0 end).

%% A frame has 262,144 bytes: what doesn't fit travels with the event again.
large_event_is_split_by_conns(Config) ->
    Edge = synced(Config),
    Conns = << <<N:64>> || N <- lists:seq(1, 8192) >>,
    ok = told(slot(), event(1, 230000), Conns),
    {deliver, #{json := Json, cursor := Before}, First} = next(Edge, deliver),
    {deliver, #{json := Json, cursor := Before}, Second} = next(Edge, deliver),
    {deliver, #{json := Json, cursor := Behind}, Third} = next(Edge, deliver),
    %% Who read the first and lost the link has not got the event for all.
    {1, Seq, _} = event(0, 0),
    ?assertEqual([true, false], [element(1, vector(Cursor)) < Seq + 1
                                 || Cursor <- [Before, Behind]]),
    ?assertEqual(Conns, <<First/binary, Second/binary, Third/binary>>),
    until(fun() -> queued() =:= 0 end).

%% 7.3: a link gets an event in one message, so its only frame passes it, however full.
a_full_deliver_passes_its_event(Config) ->
    Edge = synced(Config),
    ok = told(slot(), event(1, 10), << <<N:64>> || N <- lists:seq(1, 8192) >>),
    {deliver, #{cursor := Cursor}, Conns} = next(Edge, deliver),
    ?assertEqual({8 * 8192, <<>>}, {byte_size(Conns), Cursor}).

close_sessions(Config) ->
    Edge = synced(Config),
    Conns = lists:seq(1, 10000),
    ok = halley_links_queue:close_sessions(slot(), Conns, <<"because">>),
    {close_sessions, <<"because">>, First} = next(Edge, close_sessions),
    {close_sessions, <<"because">>, Second} = next(Edge, close_sessions),
    ?assertEqual(Conns, First ++ Second),
    until(fun() -> queued() =:= 0 end).

%%% 3.4 Metrics

stats_reach_metrics(Config) ->
    Metrics = [{<<"halley_edge_test_total">>, counter, <<"help">>}],
    Edge = synced(Config, (fake_edge:hello())#{metrics := Metrics}),
    fake_edge:send(Edge, {stats, [123456]}),
    until(fun() ->
        Text = iolist_to_binary(halley_metrics:render()),
        nomatch =/= binary:match(Text, <<"\nhalley_edge_test_total 123456\n">>)
    end).

stats_of_another_length(Config) ->
    Edge = synced(Config),
    fake_edge:send(Edge, {stats, [1]}),
    expect_goodbye(Edge, 3, <<"3.4">>).

%%% Helpers

edge(Config, Hello) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir), Hello),
    ok = halley_edge_dialer:connect(Dir, self()),
    Edge.

linked(Config) ->
    linked(Config, fake_edge:hello()).

linked(Config, Hello) ->
    Edge = edge(Config, Hello),
    up(),
    {hello_brain, _} = next(Edge, hello_brain),
    Edge.

synced(Config) ->
    synced(Config, fake_edge:hello()).

synced(Config, Hello) ->
    Edge = linked(Config, Hello),
    fake_edge:send(Edge, {sync_begin, 0, <<>>}),
    fake_edge:send(Edge, sync_end),
    Edge.

%% Two edges, as while one replaces the other: one with its link, and that of the dialer.
pair(Config) ->
    Dir = proplists:get_value(dir, Config),
    {Beside, Link} = halley_edge_helper:linked_beside(Dir, fake_edge:hello()),
    Edge = edge(Config, fake_edge:hello()),
    up(),
    Edges = [Beside, Edge],
    [next(E, hello_brain) || E <- Edges],
    [fake_edge:send(E, Frame) || E <- Edges, Frame <- [{sync_begin, 0, <<>>}, sync_end]],
    {Beside, Link, Edge}.

up() ->
    receive {link_up, _} -> ok after ?WAIT_MS -> error(not_up) end.

slots() -> [S || #{slot := S} <- halley_links:list()].

queued() -> lists:sum([B || #{queue_bytes := B} <- halley_links:list()]).

sessions(User) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> lists:sort(halley_directory:sessions(Number))
    end.

event(N, DataBytes) ->
    Data = <<$", (binary:copy(<<"d">>, DataBytes))/binary, $">>,
    Seq = element(1, halley_history:heads()) + N,
    Draft = halley_event:draft(generated, <<"s">>, Data),
    halley_event:delivery(halley_event:event(Draft, <<"test-">>, {1, Seq}, 0)).

deliver(Slot, N, DataBytes) ->
    told(Slot, event(N, DataBytes), <<1:64>>).

told(Slot, Delivery, Conns) ->
    {ok, Link} = halley_links:find(Slot),
    Words = << <<Slot:16, Conn:48>> || <<Conn:64>> <= Conns >>,
    halley_links_queue:deliver(Link, [{Delivery, Words}]).

vector(Cursor) ->
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    Vector.

%% `none' if no such frame comes for a while.
quiet(Edge, Tag, Ms) ->
    receive
        {Edge, Frame} when element(1, Frame) =:= Tag -> Frame
    after Ms -> none
    end.

expect_goodbye(Edge, Code, Clause) ->
    {goodbye, Code, Reason} = Goodbye = next(Edge, goodbye),
    ?assertEqual(0, string:str(binary_to_list(Reason), binary_to_list(Clause)) - 1),
    ok = fake_edge:expect_closed(Edge),
    Goodbye.
