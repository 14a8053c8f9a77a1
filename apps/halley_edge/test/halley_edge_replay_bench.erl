%% Many sessions that come back at once: how long until all of them have what they missed, while
%% others publish and listen. To be run by hand:
%%
%%   erl -noshell -pa ... -run halley_edge_replay_bench main 15000 100
%%
%% The worker is a socket that answers REPLAY with REPLAYED and gives credit back at once; what it
%% would write to clients is not measured here.
%%
%% One client that missed much about one subject, and what that costs the brain: its processor time
%% and memory, the worker being another process of the machine. Then the same again, with what it
%% needs in memory:
%%
%%   erl -noshell -pa ... -run halley_edge_replay_bench one 1200000
%%
%% Sessions that come back one by one and missed nothing: the brain's processor time for each, in
%% rounds, and the messages between its processes for one of them:
%%
%%   erl -noshell -pa ... -run halley_edge_replay_bench back 20000 5
-module(halley_edge_replay_bench).

-export([main/1, run/2, one/1, back/1, deliver/1]).
-export([one_worker/3, returning/3]).

-define(LIVE_MS, 2).
-define(SAMPLE_MS, 20).
-define(PAUSE_MS, 1000).

main([Sessions, Missed]) ->
    run(list_to_integer(Sessions), list_to_integer(Missed)),
    halt(0).

run(Sessions, Missed) ->
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    Users = [<<"user", (integer_to_binary(N))/binary>> || N <- lists:seq(1, Sessions)],
    Subjects = Sessions div 10,
    Subject = fun(N) -> <<"subject", (integer_to_binary(N rem Subjects))/binary>> end,
    [{ok, _} = halley:follow(Part) || Part <- parts([{User, Subject(N)}
                                                     || {N, User} <- lists:enumerate(Users)])],
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    {PublishUs, _} = timer:tc(fun() ->
        [[{ok, _} = halley:publish(Subject(S), #{n => N, text => binary:copy(<<"x">>, 100)},
                                   #{ack => memory}) || S <- lists:seq(1, Subjects)]
         || N <- lists:seq(1, Missed)]
    end),
    {ok, _} = halley:publish(<<"last">>, 1),
    io:format("published ~b events in ~b ms~n", [Subjects * Missed, PublishUs div 1000]),
    Live = spawn_link(fun() -> live([]) end),
    {Us, Items} = timer:tc(fun() -> worker(Dir, Users, Cursor) end),
    Live ! {stop, self()},
    Worst = receive {live, Publishes} -> lists:nthtail(length(Publishes) * 99 div 100,
                                                       lists:sort(Publishes))
            end,
    io:format("~b sessions, ~b events in ~b ms; live p99 ~b us (publish to session in the brain)~n",
              [Sessions, Items, Us div 1000, hd(Worst)]),
    ok = halley_edge_test_brain:stop(Brain),
    ok = file:del_dir_r(Dir).

parts([]) -> [];
parts(List) ->
    {Part, Rest} = lists:split(min(5000, length(List)), List),
    [Part | parts(Rest)].

%% Publishes and waits for the event, over and over.
live(Us) ->
    ok = halley:login(<<"live">>),
    Started = erlang:monotonic_time(microsecond),
    {ok, _} = halley:publish(<<"live">>, 1, #{ack => memory}),
    receive {halley, _} -> ok end,
    Took = erlang:monotonic_time(microsecond) - Started,
    receive {stop, From} -> From ! {live, [Took | Us]}
    after ?LIVE_MS -> live([Took | Us])
    end.

one([Missed]) ->
    N = list_to_integer(Missed),
    ok = application:set_env(halley, history_bytes, 1 bsl 34),
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    {ok, _} = halley:follow([{<<"ann">>, <<"busy">>}]),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    fill(<<"busy">>, N),
    {ok, Peer, _} = peer:start_link(#{connection => standard_io,
                                      args => ["-pa" | code:get_path()]}),
    [one_round(Round, Peer, Dir, Cursor) || Round <- ["first", "again"]],
    ok = peer:stop(Peer),
    ok = halley_edge_test_brain:stop(Brain),
    ok = file:del_dir_r(Dir),
    halt(0).

%% Small events, straight to the log: nobody else publishes.
fill(Subject, N) ->
    Shard = halley_shards:of_subject(Subject),
    Data = <<"{\"text\":\"an ordinary message of an ordinary length\"}">>,
    Event = halley_event:event(halley_event:draft(<<"e">>, Subject, Data), <<>>, {Shard, 1},
                               erlang:system_time(millisecond)),
    lists:foreach(fun(_) ->
        ok = halley_history:append(Shard, [Event#{seq := halley_history:draw(Shard), sessions => 0}
                                           || _ <- lists:seq(1, 1000)], [none]),
        ok = halley_history:await(setelement(Shard, halley_history:written(),
                                             element(Shard, halley_history:heads())), 60000)
    end, lists:seq(1, N div 1000)),
    {ok, _} = halley:publish(Subject, 1).

one_round(Round, Peer, Dir, Cursor) ->
    RestCache = halley_history_cache:bytes(),
    [garbage_collect(Pid) || Pid <- processes()],
    Rest = {RestTotal, RestRss} = memory(),
    {CpuBefore, _} = erlang:statistics(runtime),
    Bench = self(),
    Sampler = spawn_link(fun() -> sample(Bench, Rest) end),
    Path = halley_edge_dial:path(Dir),
    Asked = spawn_monitor(fun() ->
        exit(timer:tc(fun() -> peer:call(Peer, ?MODULE, one_worker, [Path, [<<"ann">>], Cursor],
                                         infinity)
                      end))
    end),
    ok = halley_edge_dialer:connect(Dir, self()),
    {Us, Items} = receive {'DOWN', Monitor, process, Pid, Result} when {Pid, Monitor} =:= Asked ->
                      Result
                  end,
    {CpuAfter, _} = erlang:statistics(runtime),
    Sampler ! stop,
    {Total, Rss} = receive {peak, Peak} -> Peak end,
    Cache = halley_history_cache:bytes(),
    ok = halley_edge_dialer:disconnect(),
    io:format("~-6s ~b events in ~.2f s, brain's processor time ~.2f s, ~.2f us an event; memory "
              "above rest: ~.1f MB, ~.1f MB of it the history's cache; resident ~.1f MB~n",
              [Round, Items, Us / 1.0e6, (CpuAfter - CpuBefore) / 1000,
               (CpuAfter - CpuBefore) * 1000 / Items, mb(Total - RestTotal),
               mb(Cache - RestCache), mb(Rss - RestRss)]).

mb(Bytes) -> Bytes / 1048576.

back([Users, Rounds]) ->
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    Ids = [<<"user", (integer_to_binary(N))/binary>> || N <- lists:seq(1, list_to_integer(Users))],
    {ok, _} = halley:follow([{Id, <<"subject">>} || Id <- Ids]),
    {ok, _} = halley:publish(<<"subject">>, 1),
    %% Until all shards have marked their places.
    timer:sleep(?PAUSE_MS),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    {ok, Peer, _} = peer:start_link(#{connection => standard_io,
                                      args => ["-pa" | code:get_path()]}),
    Us = lists:sort([back_round(Peer, Dir, Ids, Cursor)
                     || _ <- lists:seq(1, list_to_integer(Rounds))]),
    Bench = self(),
    Counter = spawn_link(fun() -> Bench ! {sent, sent([])} end),
    {ok, _} = timer:apply_after(?PAUSE_MS div 2, erlang, trace,
                                [processes, true, [send, {tracer, Counter}]]),
    _ = back_round(Peer, Dir, [<<"one">>], Cursor),
    _ = erlang:trace(processes, false, [send]),
    Counter ! stop,
    Messages = receive {sent, Sent} -> Sent end,
    io:format("a reconnect with nothing missed: ~.1f us of the brain's processor time (~.1f to "
              "~.1f), ~b messages: ~0p~n",
              [lists:nth((length(Us) + 1) div 2, Us), hd(Us), lists:last(Us), length(Messages),
               Messages]),
    ok = peer:stop(Peer),
    ok = halley_edge_test_brain:stop(Brain),
    ok = file:del_dir_r(Dir),
    halt(0).

%% Microseconds for each of the users. Each comes in an OPEN of its own.
back_round(Peer, Dir, Users, Cursor) ->
    Path = halley_edge_dial:path(Dir),
    {_, Monitor} = spawn_monitor(fun() ->
        0 = peer:call(Peer, ?MODULE, returning, [Path, Users, Cursor], infinity)
    end),
    ok = halley_edge_dialer:connect(Dir, self()),
    timer:sleep(?PAUSE_MS div 2),
    {Before, _} = erlang:statistics(runtime),
    receive {'DOWN', Monitor, process, _, normal} -> ok end,
    {After, _} = erlang:statistics(runtime),
    ok = halley_edge_dialer:disconnect(),
    timer:sleep(?PAUSE_MS),
    (After - Before) * 1000 / length(Users).

%% What each message between the link, its writer, its replays, the shards and the log is called, in
%% order.
sent(Tags) ->
    receive
        {trace, _, send, {'$gen_cast', {Tag, _}}, _} -> sent(known(Tag) ++ Tags);
        {trace, _, send, Message, _} when is_tuple(Message) ->
            sent(known(element(1, Message)) ++ Tags);
        {trace, _, _, Message, _} -> sent(known(Message) ++ Tags);
        stop -> lists:reverse(Tags)
    end.

known(Tag) ->
    [Tag || lists:member(Tag, [send, opened, last, to_slot, add, add_entered, enter, entered,
                               replay_ended, mark, ask_marks, history, notify, history_written,
                               ask, replay_permit, give_back])].

%% The emulator's own number, and the machine's of the process.
memory() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kb]} = re:run(Status, "VmRSS:\\s+(\\d+)", [{capture, all_but_first, list}]),
    {erlang:memory(total), list_to_integer(Kb) * 1024}.

sample(Bench, {Total, Rss}) ->
    {TotalNow, RssNow} = memory(),
    Peak = {max(Total, TotalNow), max(Rss, RssNow)},
    receive stop -> Bench ! {peak, Peak} after ?SAMPLE_MS -> sample(Bench, Peak) end.

%% In the other process: a worker with these users, once the brain has dialled it.
one_worker(Path, Users, Cursor) ->
    _ = file:delete(Path),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false}]),
    Items = accepted(Listen, Users, Cursor),
    ok = gen_tcp:close(Listen),
    Items.

%% The same, one after the other; the first after a pause.
returning(Path, Users, Cursor) ->
    _ = file:delete(Path),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false}]),
    {ok, Socket} = gen_tcp:accept(Listen),
    send(Socket, [{hello_edge, (fake_edge:hello())#{window := 2097152}}, {sync_begin, 0, <<>>},
                  sync_end]),
    timer:sleep(?PAUSE_MS),
    _ = spawn_link(fun() ->
        [send(Socket, [{open, [{Conn, 1, User, Cursor}]}])
         || {Conn, User} <- lists:enumerate(Users)]
    end),
    Items = serve(Socket, <<>>, length(Users), 0),
    ok = gen_tcp:close(Socket),
    ok = gen_tcp:close(Listen),
    Items.

worker(Dir, Users, Cursor) ->
    Path = halley_edge_dial:path(Dir),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false}]),
    ok = halley_edge_dialer:connect(Dir, self()),
    accepted(Listen, Users, Cursor).

accepted(Listen, Users, Cursor) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Hello = (fake_edge:hello())#{window := 2097152},
    send(Socket, [{hello_edge, Hello}, {sync_begin, 0, <<>>}, sync_end]),
    Opening = [{Conn, 1, User, Cursor} || {Conn, User} <- lists:enumerate(Users)],
    send(Socket, [{open, lists:sublist(Opening, From, 1000)}
                  || From <- lists:seq(1, length(Opening), 1000)]),
    serve(Socket, <<>>, length(Users), 0).

send(Socket, Frames) ->
    ok = gen_tcp:send(Socket, [fake_edge:bytes(Frame) || Frame <- Frames]).

serve(_, _, 0, Items) ->
    Items;
serve(Socket, Buffer, Left, Items) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, 30000),
    {Out, Cost, Done, More, Rest} = frames(<<Buffer/binary, Data/binary>>, [], 0, 0, 0),
    ok = gen_tcp:send(Socket, [halley_edge_codec:encode({credit, Cost}) || Cost > 0] ++ Out),
    serve(Socket, Rest, Left - Done, Items + More).

frames(<<Length:32, Frame:Length/binary, Rest/binary>>, Out, Cost, Done, Items) ->
    case Frame of
        <<16#24, _:16, 16#19, Conn:64, Flags, L, _:L/binary, H, _:H/binary-unit:64, N:16,
          _/binary>> ->
            Answer = case Flags of
                0 -> [fake_edge:bytes({replayed, Conn})];
                8 -> []
            end,
            frames(Rest, Answer ++ Out, Cost + Length + 4, Done + Flags div 8, Items + N);
        <<16#01, Nonce:64>> ->
            frames(Rest, [halley_edge_codec:encode({pong, Nonce}) | Out], Cost, Done, Items);
        <<Type, _/binary>> when Type =< 4; Type =:= 16#10 ->
            frames(Rest, Out, Cost, Done, Items);
        _ ->
            frames(Rest, Out, Cost + Length + 4, Done, Items)
    end;
frames(Rest, Out, Cost, Done, Items) ->
    {Out, Cost, Done, Items, Rest}.

%% Microseconds that a DELIVER costs the writer before the socket.
deliver(N) ->
    Data = <<"{\"text\":\"", (binary:copy(<<"x">>, 100))/binary, "\"}">>,
    Draft = halley_event:draft(generated, <<"s">>, Data),
    Events = [halley_event:delivery(halley_event:event(Draft, <<"p-">>, {1 + Seq rem 8, Seq}, 0))
              || Seq <- lists:seq(1, 64)],
    Position = halley_edge_position:clock(1700000000, halley_edge_position:new(7, list_to_tuple(
        lists:duplicate(8, 0)))),
    {Us, _} = timer:tc(fun() -> deliver(N, 0, Events, Position) end),
    Us / N.

deliver(0, _, _, _) ->
    ok;
deliver(N, Base, Events, Position) ->
    deliver(max(0, N - 64), Base + 64, Events, lists:foldl(fun({Shard, Seq, Wire}, P) ->
        _ = halley_edge_encoder:encode_deliver(<<>>, Wire, <<1:64>>),
        halley_edge_position:passed(Shard, Base + Seq, P)
    end, Position, Events)).
