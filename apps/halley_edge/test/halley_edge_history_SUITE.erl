%% Nothing is lost between the brain and a worker: protocol/link.md 10, against the real history and
%% a worker that does what the page says.
-module(halley_edge_history_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, alive/1, counted/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [cursor_is_exact, cursor_without_a_deliver, opened_has_the_links_cursor,
     replay_then_live, replay_in_batches, replay_of_nothing, nothing_missed_is_no_replay,
     drawn_while_it_enters, published_while_they_come_back, the_log_stands_still,
     stalled_client_delays_nobody,
     close_cancels_a_replay, gap_malformed, gap_other_store, gap_too_old, poll_gets_one_replay,
     poll_with_nothing_missed, behind_catches_up, cut_in_the_middle, cut_in_a_replay,
     sync_without_a_cursor, sync_with_a_cursor_of_another_store,
     sync_with_a_cursor_too_old, published_in_a_sync, held_session_opened_twice,
     inspect_answers, inspections_are_bounded].

init_per_testcase(Case, Config) ->
    _ = [application:set_env(halley, history_bytes, 300000)
         || lists:member(Case, [gap_too_old, sync_with_a_cursor_too_old])],
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = application:unset_env(halley, history_bytes),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

limits(replay_in_batches) -> #{replay_events_max => 7, replays_max => 2};
limits(behind_catches_up) -> #{link_queue_bytes_max => 300000, replay_queue_bytes_max => 50000};
limits(_) -> #{}.

%%% 10.1 The link's cursor

%% "everything that concerns a live session of this worker, up to here, has been sent on the link",
%% with two shards in turn.
cursor_is_exact(Config) ->
    [A, B] = subjects_of_two_shards(),
    follow([{<<"anna">>, A}, {<<"anna">>, B}]),
    Opened = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    [publish(Subject, N) || N <- lists:seq(1, 20), Subject <- [A, B]],
    Worker = fake_worker:until(saw(1, 40), Opened),
    lists:foldl(fun(Item = #{shard := Shard, seq := Seq}, Before) ->
        Vector = vector(Item),
        ?assertEqual(Seq, element(Shard, Vector)),
        Others = lists:seq(1, tuple_size(Vector)) -- [Shard],
        Before =:= none orelse
            [?assert(element(S, Vector) >= element(S, Before)) || S <- Others],
        Vector
    end, none, fake_worker:seen(1, Worker)),
    ordered_and_once(1, 40, Worker).

%% "The brain sends CURSOR when the cursor has moved without a DELIVER"
cursor_without_a_deliver(Config) ->
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    {ok, _} = halley:publish(<<"nobody's">>, 1),
    Heads = halley_history:heads(),
    Moved = fake_worker:until(fun(W) ->
        {ok, #{vector := Vector}} = halley_cursor:decode(fake_worker:cursor(W)),
        halley_vector:is_reached(Heads, Vector)
    end, Worker),
    ?assertEqual([], fake_worker:seen(1, Moved)).

%% 6.2 "OPENED has the cursor for the welcome, empty for sessions that came with a cursor." Events
%% that are published after the welcome are after its cursor.
opened_has_the_links_cursor(Config) ->
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    Welcome = fake_worker:cursor(1, Worker),
    publish(<<"anna">>, 1),
    Away = fake_worker:close(1, 1, Worker),
    publish(<<"anna">>, 2),
    Back = live(2, fake_worker:open(2, <<"anna">>, Welcome, Away)),
    ?assertEqual([1, 2], numbers(2, Back)).

%%% 10.2 to 10.5 Replays

replay_then_live(Config) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 5)],
    Users = [<<"u", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    follow([{User, Subject} || User <- Users, Subject <- Subjects]),
    Worker = worker(Config),
    Cursor = cursor_now(),
    [publish(Subject, N) || N <- lists:seq(1, 60), Subject <- Subjects],
    Publisher = publisher(Subjects, 61, 260),
    Opened = lists:foldl(fun({Conn, User}, W) ->
        fake_worker:run(3, fake_worker:open(Conn, User, Cursor, W))
    end, Worker, lists:enumerate(Users)),
    Total = 260 * length(Subjects),
    Saw = fake_worker:until(all_saw(lists:seq(1, 20), Total), Opened),
    join(Publisher),
    %% Its LAST may come behind all of it.
    Done = lists:foldl(fun live/2, Saw, lists:seq(1, 20)),
    [ordered_and_once(Conn, Total, Done) || Conn <- lists:seq(1, 20)].

%% More than fits a batch, for more sessions than keep their state.
replay_in_batches(Config) ->
    Worker = worker(Config),
    Cursor = cursor_now(),
    [publish(<<"anna">>, N) || N <- lists:seq(1, 100)],
    Opened = lists:foldl(fun(Conn, W) -> fake_worker:open(Conn, <<"anna">>, Cursor, W) end,
                         Worker, lists:seq(1, 10)),
    Done = lists:foldl(fun live/2, Opened, lists:seq(1, 10)),
    [begin
         ordered_and_once(Conn, 100, Done),
         ?assert(fake_worker:replays(Conn, Done) >= 100 div 7)
     end || Conn <- lists:seq(1, 10)].

%% A cursor that has the heads needs no replay process: whatever that process would have is sent to
%% it, and it gets nothing.
nothing_missed_is_no_replay(Config) ->
    Worker = worker(Config),
    publish(<<"anna">>, 1),
    marked(),
    Cursor = cursor_now(),
    _ = erlang:trace(all, true, [call]),
    _ = erlang:trace_pattern({halley_edge_replays, '_', '_'}, true, [global]),
    Counted = counted("halley_replays_total"),
    Back = live(1, fake_worker:open(1, <<"anna">>, Cursor, Worker)),
    Calls = called(),
    _ = erlang:trace_pattern({halley_edge_replays, '_', '_'}, false, [global]),
    _ = erlang:trace(all, false, [call]),
    ?assertEqual([waiting], lists:usort(Calls)),
    publish(<<"anna">>, 2),
    ?assertEqual([2], numbers(1, fake_worker:until(saw(1, 1), Back))),
    ?assertEqual(1, counted("halley_replays_total") - Counted).

%% The heads of quiet shards have risen for the last time.
marked() ->
    until(fun() ->
        lists:usort(tuple_to_list(halley_history:heads())) =:= [halley_history:drawn()]
    end).

called() ->
    receive {trace, _, call, {_, Function, _}} -> [Function | called()] after 0 -> [] end.

%% An event is drawn after the cursor was found to have the heads, and looks for sessions before
%% this one is in the directory.
drawn_while_it_enters(Config) ->
    Worker = worker(Config),
    publish(<<"anna">>, 1),
    marked(),
    Cursor = cursor_now(),
    ok = meck:new(halley_sessions, [passthrough]),
    ok = meck:expect(halley_sessions, open, fun(User, Session, Rule) ->
        publish(<<"anna">>, 2),
        meck:passthrough([User, Session, Rule])
    end),
    Back = live(1, fake_worker:open(1, <<"anna">>, Cursor, Worker)),
    ok = meck:unload(halley_sessions),
    publish(<<"anna">>, 3),
    ?assertEqual([2, 3], numbers(1, fake_worker:until(saw(1, 2), Back))).

%% Whatever they lack by then: nothing, what is drawn meanwhile, or more.
published_while_they_come_back(Config) ->
    Publisher = publisher([<<"anna">>], 1, 600),
    {Seen, _, _} = lists:foldl(fun(Conn, {Before, Cursor, Worker}) ->
        Live = live(Conn, fake_worker:open(Conn, <<"anna">>, Cursor, Worker)),
        Back = fake_worker:run(Conn rem 4, Live),
        {Before ++ numbers(Conn, Back), fake_worker:cursor(Conn, Back),
         fake_worker:close(Conn, 1, Back)}
    end, {[], cursor_now(), worker(Config)}, lists:seq(1, 150)),
    join(Publisher),
    ?assert(length(Seen) > 0),
    ?assertEqual(lists:seq(hd(Seen), lists:last(Seen)), lists:usort(Seen)).

%% The log hasn't written what was drawn: all that come back wait, and ask it once.
the_log_stands_still(Config) ->
    Worker = worker(Config),
    Old = cursor_now(),
    publish(<<"anna">>, 1),
    marked(),
    Cursor = cursor_now(),
    Seq = halley_history:draw(3),
    Opened = lists:foldl(fun(Conn, W) ->
        From = case Conn rem 2 of 0 -> Cursor; 1 -> Old end,
        fake_worker:run(10, fake_worker:open(Conn, <<"anna">>, From, W))
    end, Worker, lists:seq(1, 10)),
    Waiting = fake_worker:run(200, Opened),
    ?assertEqual([held], lists:usort([fake_worker:state(Conn, Waiting)
                                      || Conn <- lists:seq(1, 10)])),
    ?assertEqual(1, ets:info(halley_history_waiting, size)),
    ok = halley_history_log:mark(3, Seq),
    Done = lists:foldl(fun live/2, Waiting, lists:seq(1, 10)),
    [?assertEqual(case Conn rem 2 of 0 -> []; 1 -> [1] end, numbers(Conn, Done))
     || Conn <- lists:seq(1, 10)],
    ?assertEqual(0, ets:info(halley_history_waiting, size)).

replay_of_nothing(Config) ->
    Worker = worker(Config),
    publish(<<"anna">>, 1),
    Back = live(1, fake_worker:open(1, <<"anna">>, cursor_now(), Worker)),
    publish(<<"anna">>, 2),
    ?assertEqual([2], numbers(1, fake_worker:until(saw(1, 1), Back))),
    ?assertEqual(1, fake_worker:replays(1, Back)).

%% "a replay takes the client's pace"
stalled_client_delays_nobody(Config) ->
    Worker = worker(Config),
    Cursor = cursor_now(),
    [publish(<<"anna">>, N) || N <- lists:seq(1, 10)],
    Stalled = fake_worker:stall(1, fake_worker:open(1, <<"anna">>, Cursor, Worker)),
    Done = live(2, fake_worker:open(2, <<"anna">>, Cursor, fake_worker:run(100, Stalled))),
    ?assertEqual(held, fake_worker:state(1, Done)),
    ?assertEqual(1, fake_worker:replays(1, Done)),
    ?assertEqual([{link, slot(), 2}], sessions(<<"anna">>)).

%% The link alone puts a session into the directory, and a CLOSE that came first is last.
close_cancels_a_replay(Config) ->
    Worker = worker(Config),
    Cursor = cursor_now(),
    publish(<<"anna">>, 1),
    Stalled = fake_worker:stall(1, fake_worker:open(1, <<"anna">>, Cursor, Worker)),
    Waiting = fake_worker:until(saw(1, 1), Stalled),
    fake_edge:send(maps:get(edge, Waiting), {replayed, 1}),
    Closed = fake_worker:close(1, 2, Waiting),
    Done = live(2, fake_worker:open(2, <<"bert">>, Cursor, Closed)),
    until(fun() -> sessions(<<"anna">>) =:= [] end),
    ?assertEqual([{link, slot(), 2}], sessions(<<"bert">>)),
    Done.

%%% 10.4 Gaps

gap_malformed(Config) ->
    Back = live(1, fake_worker:open(1, <<"anna">>, <<"-">>, worker(Config))),
    ?assertMatch([{<<"malformed">>, 0, _}], fake_worker:gaps(1, Back)),
    publish(<<"anna">>, 1),
    ?assertEqual([1], numbers(1, fake_worker:until(saw(1, 1), Back))).

gap_other_store(Config) ->
    Foreign = halley_cursor:encode(halley_history:store() bxor 1, 1700000000,
                                   halley_history:heads()),
    Back = live(1, fake_worker:open(1, <<"anna">>, Foreign, worker(Config))),
    ?assertMatch([{<<"other_store">>, 1700000000000, _}], fake_worker:gaps(1, Back)).

%% What the history has still is told behind the gap.
gap_too_old(Config) ->
    Worker = worker(Config),
    Cursor = cursor_now(),
    more_than_is_kept(),
    publish(<<"anna">>, 1),
    Back = live(1, fake_worker:open(1, <<"anna">>, Cursor, Worker)),
    ?assertMatch([{<<"too_old">>, _, _} | _], fake_worker:gaps(1, Back)),
    ?assertEqual([1], numbers(1, Back)).

%%% 10.7 Polls

poll_gets_one_replay(Config) ->
    Worker = worker(Config),
    Cursor = cursor_now(),
    publish(<<"anna">>, 1),
    Polled = fake_worker:until(saw(1, 1), fake_worker:open(1, 5, <<"anna">>, Cursor, Worker)),
    publish(<<"anna">>, 2),
    Later = fake_worker:run(300, Polled),
    ?assertEqual({[1], 1}, {numbers(1, Later), fake_worker:replays(1, Later)}),
    Next = fake_worker:cursor(1, Later),
    Again = fake_worker:open(2, 5, <<"anna">>, Next, fake_worker:close(1, 7, Later)),
    ?assertEqual([2], numbers(2, fake_worker:until(saw(2, 1), Again))).

poll_with_nothing_missed(Config) ->
    Polled = live(1, fake_worker:open(1, 5, <<"anna">>, cursor_now(), worker(Config))),
    publish(<<"anna">>, 1),
    ?assertEqual([1], numbers(1, fake_worker:until(saw(1, 1), Polled))).

%%% 4.7, 10.6 Links that were behind or came back

%% "Events beyond it are not queued"; "so a slow edge costs no other link anything"
behind_catches_up(Config) ->
    follow([{<<"anna">>, S} || S <- [<<"a">>, <<"b">>, <<"c">>]]),
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    Starving = fake_worker:run(50, fake_worker:starve(Worker)),
    Text = binary:copy(<<"x">>, 2000),
    Publish = fun(From, To) ->
        [{ok, _} = halley:publish(S, #{n => N, text => Text}, #{ack => memory})
         || N <- lists:seq(From, To), S <- [<<"a">>, <<"b">>, <<"c">>]]
    end,
    Before = counted("halley_links_behind_total"),
    Publish(1, 500),
    %% It was, with 3 MB for a window of 1 MB and a queue of 300 KB. It may not be now: a catch-up
    %% that waits for credit in its last round takes what is live again.
    ?assert(counted("halley_links_behind_total") > Before),
    ?assert(queued() =< 2 * 300000),
    Publisher = spawn_monitor(fun() -> Publish(501, 700) end),
    Fed = fake_worker:until(saw(1, 2100), fake_worker:feed(Starving)),
    join(Publisher),
    Later = fake_worker:until(fun(_) -> not halley_links_backpressure:is_behind(slot()) end,
                              fake_worker:run(200, Fed)),
    ordered_and_once(1, 2100, Later),
    until(fun() -> queued() =:= 0 end).

cut_in_the_middle(Config) ->
    Conns = lists:seq(1, 20),
    follow([{user(Conn), S} || Conn <- Conns, S <- [<<"a">>, <<"b">>, <<"c">>]]),
    Opened = ready(lists:foldl(fun(Conn, W) -> fake_worker:open(Conn, user(Conn), W) end,
                               worker(Config), Conns)),
    Publisher = publisher([<<"a">>, <<"b">>, <<"c">>], 1, 400),
    Cut = lists:foldl(fun(_, W) -> fake_worker:cut(fake_worker:run(150, W)) end, Opened,
                      [1, 2, 3]),
    join(Publisher),
    Done = fake_worker:until(all_saw(Conns, 1200), Cut),
    [ordered_and_once(Conn, 1200, fake_worker:run(50, Done)) || Conn <- Conns].

%% "Sessions that were held come with their own cursor in the sync ... what was held for them stays
%% held."
cut_in_a_replay(Config) ->
    follow([{<<"anna">>, S} || S <- [<<"a">>, <<"b">>]]),
    Worker = worker(Config),
    Cursor = cursor_now(),
    [publish(S, N) || N <- lists:seq(1, 300), S <- [<<"a">>, <<"b">>]],
    Publisher = publisher([<<"a">>, <<"b">>], 301, 400),
    Opened = lists:foldl(fun(Conn, W) -> fake_worker:open(Conn, <<"anna">>, Cursor, W) end,
                         Worker, lists:seq(1, 30)),
    Some = fake_worker:until(saw(1, 1), Opened),
    Done = fake_worker:until(all_saw(lists:seq(1, 30), 800), fake_worker:cut(Some)),
    join(Publisher),
    [ordered_and_once(Conn, 800, fake_worker:run(20, Done)) || Conn <- lists:seq(1, 30)].

%% A worker that never had a cursor has nothing to catch up.
sync_without_a_cursor(Config) ->
    publish(<<"anna">>, 1),
    Worker = worker(Config),
    ?assertMatch({ok, _}, halley_cursor:decode(fake_worker:cursor(Worker))),
    Live = ready(fake_worker:open(1, <<"anna">>, Worker)),
    publish(<<"anna">>, 2),
    ?assertEqual([2], numbers(1, fake_worker:until(saw(1, 1), Live))).

sync_with_a_cursor_of_another_store(Config) ->
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    Foreign = halley_cursor:encode(halley_history:store() bxor 1, 1700000000,
                                   halley_history:heads()),
    Back = fake_worker:until(fun(W) -> fake_worker:gaps(1, W) =/= [] end,
                             fake_worker:cut(Foreign, Worker)),
    ?assertMatch([{<<"other_store">>, 1700000000000, _}], fake_worker:gaps(1, Back)),
    publish(<<"anna">>, 1),
    ?assertEqual([1], numbers(1, fake_worker:until(saw(1, 1), Back))).

sync_with_a_cursor_too_old(Config) ->
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    #{cursor := Old} = Worker,
    more_than_is_kept(),
    publish(<<"anna">>, 1),
    Here = fake_worker:until(saw(1, 1), Worker),
    Back = fake_worker:until(fun(W) -> fake_worker:gaps(1, W) =/= [] end,
                             fake_worker:cut(Old, Here)),
    ?assertMatch([{<<"too_old">>, _, _} | _], fake_worker:gaps(1, Back)),
    publish(<<"anna">>, 2),
    %% What was read behind the old cursor comes again, and nothing else is missing.
    ?assertEqual([1, 1, 2], numbers(1, fake_worker:until(saw(1, 3), Back))).

%% Whatever the cursor was: what is published while the sessions are told comes with a catch-up.
published_in_a_sync(Config) ->
    Worker = ready(fake_worker:open(1, <<"anna">>, worker(Config))),
    Edge = maps:get(edge, Worker),
    Foreign = halley_cursor:encode(halley_history:store() bxor 1, 1, halley_history:heads()),
    [begin
         ok = fake_edge:cut(Edge),
         _ = fake_edge:expect(Edge, fun(Frame) -> element(1, Frame) =:= hello_brain end),
         fake_edge:send(Edge, {sync_begin, 1, Cursor}),
         %% The brain has dealt with that; a CURSOR may come before, as the heads move.
         alive(Edge),
         publish(<<"anna">>, N),
         fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}]}),
         fake_edge:send(Edge, sync_end),
         {deliver, Item, _} =
             fake_edge:expect(Edge, fun(Frame) -> element(1, Frame) =:= deliver end),
         ?assertEqual({<<"anna">>, N}, data(Item))
     end || {N, Cursor} <- [{1, <<>>}, {2, Foreign}, {3, <<"nonsense">>}]].

%% 6.3 "each is sent once"
held_session_opened_twice(Config) ->
    Worker = worker(Config),
    Opened = fake_worker:stall(1, fake_worker:open(1, <<"anna">>, <<"-">>, Worker)),
    Edge = maps:get(edge, Opened),
    fake_edge:send(Edge, {open, [{2, 1, <<"bert">>, <<"-">>}, {2, 1, <<"zoe">>, <<"-">>}]}),
    {goodbye, 1, <<"6.3", _/binary>>} =
        fake_edge:expect(Edge, fun(Frame) -> element(1, Frame) =:= goodbye end).

%%% 10.8 Inspections

inspect_answers(Config) ->
    Edge = maps:get(edge, worker(Config)),
    Slot = slot(),
    Asking = spawn_monitor(fun() -> exit(halley_edge_link:inspect(Slot, 7, 60000)) end),
    {inspect, Token, 7} = fake_edge:expect(Edge, fun(Frame) -> element(1, Frame) =:= inspect end),
    Seen = #{state => 2, transport => 3, outbox_bytes => 10, outbox_pieces => 2, outbox_ms => 5,
             held => 4, dropped => 0, conflated => 1},
    fake_edge:send(Edge, {inspected, Token + 1, 7, Seen}),
    fake_edge:send(Edge, {inspected, Token, 7, Seen}),
    ?assertEqual({ok, Seen#{state := held, transport := websocket}}, join(Asking)),
    ?assertEqual(timeout, halley_edge_link:inspect(Slot, 8, 50)),
    ?assertEqual(gone, halley_edge_link:inspect(Slot + 1, 8, 50)).

%% Those that were never answered make room again.
inspections_are_bounded(Config) ->
    _ = worker(Config),
    Slot = slot(),
    Askers = [spawn_monitor(fun() -> exit(halley_edge_link:inspect(Slot, 8, 300)) end)
              || _ <- lists:seq(1, 200)],
    [?assertEqual(timeout, join(Asker)) || Asker <- Askers],
    ?assertEqual(timeout, halley_edge_link:inspect(Slot, 8, 2500)).

%%% Helpers

%% A worker that is linked and has nothing to sync.
worker(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir)),
    ok = halley_edge_dialer:connect(Dir, self()),
    fake_worker:until(fun(W) -> fake_worker:cursor(W) =/= <<>> end, fake_worker:new(Edge)).

ready(Worker) -> fake_worker:until(fun fake_worker:connected/1, Worker).

live(Conn, Worker) ->
    fake_worker:until(fun(W) -> fake_worker:state(Conn, W) =:= live end, Worker).

saw(Conn, N) -> fun(Worker) -> length(fake_worker:seen(Conn, Worker)) >= N end.

all_saw(Conns, N) -> fun(Worker) -> lists:all(fun(C) -> (saw(C, N))(Worker) end, Conns) end.

%% A cursor that has seen everything published so far.
cursor_now() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).

more_than_is_kept() ->
    Text = binary:copy(<<"x">>, 20000),
    [{ok, _} = halley:publish(<<"nobody's">>, Text) || _ <- lists:seq(1, 60)],
    until(fun() -> halley_history:floor() > 10 end).

vector(#{cursor := Cursor}) ->
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    Vector.

follow(Pairs) ->
    {ok, #{errors := []}} = halley:follow(Pairs).

publish(Subject, N) ->
    {ok, _} = halley:publish(Subject, N).

publisher(Subjects, From, To) ->
    spawn_monitor(fun() ->
        [{ok, _} = halley:publish(S, N) || N <- lists:seq(From, To), S <- Subjects]
    end).

join({Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, Reason} -> Reason after 120000 -> error(hangs) end.

subjects_of_two_shards() ->
    [First | Rest] = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 50)],
    Shard = halley_shards:of_subject(First),
    [First, hd([S || S <- Rest, halley_shards:of_subject(S) =/= Shard])].

user(Conn) -> <<"user", (integer_to_binary(Conn))/binary>>.

data(#{json := Json}) ->
    #{<<"subject">> := Subject, <<"data">> := Data} = jiffy:decode(Json, [return_maps]),
    {Subject, case Data of #{<<"n">> := N} -> N; N -> N end}.

numbers(Conn, Worker) -> [N || {_, N} <- lists:map(fun data/1, fake_worker:seen(Conn, Worker))].

%% Every event exactly once, those about a subject in their order.
ordered_and_once(Conn, Total, Worker) ->
    Seen = lists:map(fun data/1, fake_worker:seen(Conn, Worker)),
    ?assertEqual(Total, length(Seen)),
    BySubject = maps:groups_from_list(fun({S, _}) -> S end, fun({_, N}) -> N end, Seen),
    [?assertEqual(lists:seq(1, length(Ns)), Ns) || Ns <- maps:values(BySubject)].

slot() ->
    [#{slot := Slot}] = halley_links:list(),
    Slot.
queued() -> lists:sum([B || #{queue_bytes := B} <- halley_links:list()]).
sessions(User) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> lists:sort(halley_directory:sessions(Number))
    end.
