%% An edge for tests: one process per worker, which listens on a Unix socket and speaks the edge's
%% side of the link with the codec, exactly as the test orders. It is also a program (main/0), for
%% the runner.
-module(fake_edge).

-export([start/1, start/2, stop/1, send/2, send_raw/2, expect/2, expect_closed/1, flush/1, hello/0,
         cut/1, cut/2, mute/1, pause/1, resume/1, say/2]).
-export([main/0]).

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
send(Edge, Frame) -> send_raw(Edge, halley_edge_codec:encode(Frame)).
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
        _ -> gen_tcp:send(Socket, halley_edge_codec:encode({hello_edge, Hello}))
    end,
    Owner ! {self(), Frame};
got({ping, Nonce}, Socket, _, _) ->
    get(mute) =/= true andalso gen_tcp:send(Socket, halley_edge_codec:encode({pong, Nonce}));
got(Frame, _, _, Owner) ->
    Owner ! {self(), Frame}.

%%% As a program

%% Arguments are those of halley-edge. A public port of 1 stands for one that is in use, one of 2
%% for an edge that speaks version 2 of the link; a SIGTERM stops it.
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
            IsOlder = lists:suffix(":2", Public),
            [start(halley_edge_dial:path(Dir, W), case IsOlder of
                true -> {older, 2};
                false -> Hello#{worker := W}
            end) || W <- lists:seq(0, Count - 1)],
            until_shutdown(),
            [file:delete(halley_edge_dial:path(Dir, W)) || W <- lists:seq(0, Count - 1)],
            halt(0)
    end.

options(["--sandbox=off" | Rest]) -> options(Rest);
options(["--trunk=on" | Rest]) -> options(Rest);
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
