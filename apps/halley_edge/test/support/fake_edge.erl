%% An edge for tests: a process that listens on a Unix socket and speaks the edge's side of the link
%% with the codec, exactly as the test orders. It is also a program (main/0), for the runner.
%%
%% With a hello of worker 0 (hello/0) it is an edge of one worker, and the test sends and sees the
%% frames of that worker: here they travel in FROM_WORKER and TO_SLOT, and an event for the slot is
%% a DELIVER (protocol/link.md 13). With the hello of a trunk (fake_trunk) frames are as they are.
-module(fake_edge).

-export([start/1, start/2, stop/1, send/2, send_raw/2, expect/2, expect_closed/1, flush/1, hello/0,
         cut/1, cut/2, mute/1, pause/1, resume/1, say/2]).
-export([bytes/1, of_worker/1, main/0]).

-include("halley_edge.hrl").
-include("halley_edge_wait.hrl").

hello() ->
    #{version => ?LINK_VERSION, window => 1048576, pid => list_to_integer(os:getpid()),
      worker => 0, workers => 1, build => <<"fake">>,
      public_listen => <<"127.0.0.1:1">>, api_listen => <<"127.0.0.1:2">>,
      connections_max => 10, metrics => []}.

start(Path) ->
    start(Path, hello()).

%% Hello: a map, `none' for a worker that never answers, or {older, Version} for one that says so
%% (3.2). The caller receives {Edge, Frame} and
%% {Edge, closed}; PING is answered unless the fake is told otherwise.
start(Path, Hello) ->
    Owner = self(),
    Edge = spawn_link(fun() -> listen(Path, Hello, Owner) end),
    receive {Edge, listening} -> Edge after ?WAIT_MS -> error(fake_edge_does_not_listen) end.

stop(Edge) ->
    unlink(Edge),
    Monitor = monitor(process, Edge),
    exit(Edge, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% To {trunk, Edge, Worker}: as this worker of a trunk.
send({trunk, Edge, Worker}, Frame) -> send(Edge, {from_worker, Worker, Frame});
send(Edge, Frame) -> Edge ! {say_frame, Frame}, ok.
send_raw(Edge, Bytes) -> Edge ! {write, Bytes}, ok.

%% Closes the connection, goes on listening.
cut(Edge) -> Edge ! cut, ok.

%% The same, and then the caller receives {Edge, Mark}: behind all frames of that connection, and
%% before those of the next.
cut(Edge, Mark) -> Edge ! {cut, Mark}, ok.

%% Answers no more PING, as a worker that is stuck.
mute(Edge) -> Edge ! mute, ok.

%% Another hello from the next handshake on.
say(Edge, Hello) -> Edge ! {say, Hello}, ok.

%% Reads nothing more, as a worker that hangs.
pause(Edge) -> Edge ! pause, ok.
resume(Edge) -> Edge ! resume, ok.

%% The next frame for which Match gives true; others before it are dropped.
expect(Edge, Match) ->
    receive
        {Edge, Frame} when Frame =/= closed ->
            case Match(Frame) of
                true -> Frame;
                false -> expect(Edge, Match)
            end
    after ?WAIT_MS ->
        error({frame_missing, process_info(self(), messages)})
    end.

expect_closed(Edge) ->
    receive {Edge, closed} -> ok after ?WAIT_MS -> error(link_still_open) end.

%% All frames that came so far.
flush(Edge) ->
    receive {Edge, Frame} -> [Frame | flush(Edge)] after 0 -> [] end.

listen(Path, Hello, Owner) ->
    _ = file:delete(Path),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false},
                                     {linger, {true, 0}}]),
    Owner ! {self(), listening},
    accept(Listen, Hello, Owner).

accept(Listen, Hello, Owner) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    _ = [erase(Key) || Key <- [slot, follows, cursor]],
    ok = inet:setopts(Socket, [{active, once}]),
    serve(Socket, <<>>, Listen, Hello, Owner).

serve(Socket, Buffer, Listen, Hello, Owner) ->
    receive
        {tcp, Socket, <<_:32, 16#10, "HLY1", Theirs:16, _/binary>>}
          when element(1, Hello) =:= older ->
            {older, Ours} = Hello,
            What = io_lib:format("the brain speaks version ~b, this edge ~b (3.2)", [Theirs, Ours]),
            Goodbye = {goodbye, ?GOODBYE_VERSION, iolist_to_binary(What)},
            ok = gen_tcp:send(Socket, halley_edge_codec:encode(Goodbye)),
            ok = gen_tcp:close(Socket),
            accept(Listen, Hello, Owner);
        {tcp, Socket, Data} ->
            {ok, Frames, Rest} = halley_edge_codec:deframe(<<Buffer/binary, Data/binary>>),
            [got(Frame, Socket, Hello, Owner) || {_, Frame} <- Frames],
            case inet:setopts(Socket, [{active, once}]) of
                ok ->
                    serve(Socket, Rest, Listen, Hello, Owner);
                {error, _} ->
                    Owner ! {self(), closed},
                    accept(Listen, Hello, Owner)
            end;
        {tcp_closed, Socket} ->
            Owner ! {self(), closed},
            accept(Listen, Hello, Owner);
        {say_frame, Frame} ->
            _ = gen_tcp:send(Socket, halley_edge_codec:encode(out(Frame, is_trunk(Hello)))),
            serve(Socket, Buffer, Listen, Hello, Owner);
        {write, Bytes} ->
            _ = gen_tcp:send(Socket, Bytes),
            serve(Socket, Buffer, Listen, Hello, Owner);
        {say, Another} ->
            serve(Socket, Buffer, Listen, Another, Owner);
        mute ->
            put(mute, true),
            serve(Socket, Buffer, Listen, Hello, Owner);
        pause ->
            receive resume -> ok end,
            serve(Socket, Buffer, Listen, Hello, Owner);
        cut ->
            ok = gen_tcp:close(Socket),
            accept(Listen, Hello, Owner);
        {cut, Mark} ->
            ok = gen_tcp:close(Socket),
            Owner ! {self(), Mark},
            accept(Listen, Hello, Owner)
    end.

got({hello_brain, _} = Frame, Socket, Hello, Owner) ->
    case Hello of
        none -> ok;
        {raw, Bytes} -> gen_tcp:send(Socket, Bytes);
        _ -> gen_tcp:send(Socket, bytes({hello_edge, Hello}))
    end,
    Owner ! {self(), Frame};
got({ping, Nonce}, Socket, _, _) ->
    get(mute) =/= true andalso gen_tcp:send(Socket, halley_edge_codec:encode({pong, Nonce}));
got(Frame, _, Hello, Owner) ->
    [Owner ! {self(), In} || In <- in(Frame, is_trunk(Hello))].

is_trunk(#{worker := Worker}) -> Worker =:= ?TRUNK_WORKER;
is_trunk(_) -> false.

%%% The only worker of an edge

%% A frame of it as it travels.
bytes(Frame) -> halley_edge_codec:encode(out(Frame, false)).

%% What it says.
out({hello_edge, Hello}, false) ->
    {hello_edge, Hello#{worker := ?TRUNK_WORKER}};
out(Frame, false) ->
    Kind = case is_tuple(Frame) of true -> element(1, Frame); false -> Frame end,
    case lists:member(Kind, [ping, pong, credit, goodbye]) of
        true -> Frame;
        false -> {from_worker, 0, Frame}
    end;
out(Frame, true) ->
    Frame.

%% What it sees of a frame.
in(Frame, true) ->
    [Frame];
in({place, 0, Slot}, false) ->
    put(slot, Slot),
    put(follows, false),
    [];
in({cursor, Cursor}, false) ->
    put(cursor, Cursor),
    [{cursor, Cursor} || get(follows) =:= true];
in({to_slot, Slot, {cursor, <<>>}}, false) ->
    Slot = get(slot),
    put(follows, true),
    [{cursor, get(cursor)}];
in({to_slot, Slot, Frame}, false) ->
    [Frame || Slot =:= get(slot)];
in({trunk_deliver, Item, Words}, false) ->
    Slot = get(slot),
    [{deliver, Item, << <<Conn:64>> || <<S:16, Conn:48>> <= Words, S =:= Slot >>}];
in({trunk_group_deliver, Group, Item, _}, false) ->
    [{group_deliver, Group, Item}];
in(Frame, false) ->
    [Frame].

%% The hello of a worker with a link of its own.
of_worker(Hello) -> {raw, iolist_to_binary(halley_edge_codec:encode({hello_edge, Hello}))}.

%%% As a program

%% Arguments are those of halley-edge. A public port of 1 stands for one that is in use, one that
%% ends in 2 for an edge that speaks version 2 of the link, one that ends in 3 for an edge with a
%% link for each worker; a SIGTERM stops it.
main() ->
    main(init:get_plain_arguments()).

main(["--version"]) ->
    io:format("halley-edge fake~n"),
    halt(0);
main(Arguments) ->
    #{"--public" := Public, "--api" := Api, "--workers" := Workers, "--socket-dir" := Dir} =
        options(Arguments),
    case lists:suffix(":1", Public) of
        true ->
            io:put_chars(standard_error, "halley-edge: public.listen: port in use\n"),
            halt(1);
        false ->
            Count = list_to_integer(Workers),
            Hello = (hello())#{public_listen := list_to_binary(Public), workers := Count,
                               api_listen := list_to_binary(Api)},
            {Path, Says} = case lists:last(Public) of
                $2 -> {halley_edge_dial:path(Dir), {older, 2}};
                $3 -> {halley_edge_dial:path_of_worker(Dir), of_worker(Hello)};
                _ -> {halley_edge_dial:path(Dir), Hello}
            end,
            start(Path, Says),
            until_shutdown(),
            file:delete(Path),
            halt(0)
    end.

options(["--sandbox=off" | Rest]) -> options(Rest);
options(["--user=" ++ _ | Rest]) -> options(Rest);
options(["--beside" | Rest]) -> options(Rest);
options([Name, Value | Rest]) -> (options(Rest))#{Name => Value};
options([]) -> #{}.

%% It takes the whole drain; a later shutdown may cut it short. A drain of 4 s is one that it
%% ignores.
until_shutdown() ->
    receive
        {_, {shutdown, 4000}} -> until_shutdown();
        {_, {shutdown, DrainMs}} -> _ = erlang:send_after(DrainMs, self(), stop), until_shutdown();
        stop -> ok;
        _ -> until_shutdown()
    end.
