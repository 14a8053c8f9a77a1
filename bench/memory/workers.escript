#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none
%% Workers without connections: they speak the edge's side of the link (protocol/link.md) with the
%% brain's own codec, open sessions as fast as they get credit for it, and stay.
%%
%%   ERL_LIBS=RELEASE/lib escript bench/memory/workers.escript DIRECTORY WORKERS FIRST COUNT
%%
%% Users FIRST to FIRST + COUNT - 1 have one session each, shared out over WORKERS sockets
%% DIRECTORY/0.sock and so on. The brain must be told to dial them. One line for each worker whose
%% sessions have all been OPENED; it ends when stdin does.
-mode(compile).

-define(OPEN_SESSIONS, 512).
-define(WINDOW_BYTES, (4 bsl 20)).
-define(TRANSPORT_SSE, 1).

main([Directory | Numbers]) ->
    [Workers, First, Count] = [list_to_integer(Number) || Number <- Numbers],
    Self = self(),
    Each = (Count + Workers - 1) div Workers,
    [spawn_link(fun() ->
         From = First + W * Each,
         worker(filename:join(Directory, integer_to_list(W) ++ ".sock"), W, Workers,
                From, min(From + Each, First + Count), Self)
     end) || W <- lists:seq(0, Workers - 1)],
    [receive listening -> ok end || _ <- lists:seq(1, Workers)],
    io:format("listening~n"),
    spawn(fun() -> until_eof(), halt(0) end),
    [receive {opened, W, Sessions} -> io:format("worker ~b ~b~n", [W, Sessions]) end
     || _ <- lists:seq(1, Workers)],
    receive after infinity -> ok end.

until_eof() ->
    case io:get_line("") of
        Line when is_list(Line) -> until_eof();
        _ -> ok
    end.

worker(Path, W, Workers, First, End, Main) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false}]),
    Main ! listening,
    {ok, Socket} = gen_tcp:accept(Listen),
    State = #{socket => Socket, main => Main, worker => W, workers => Workers, next => First,
              'end' => End, missing => End - First, credit => 0, owed => 0, synced => false},
    serve(<<>>, State).

serve(Buffer, #{socket := Socket} = State) ->
    {ok, Data} = gen_tcp:recv(Socket, 0),
    {ok, Frames, Rest} = halley_edge_codec:deframe(<<Buffer/binary, Data/binary>>),
    Next = open(lists:foldl(fun({Cost, Frame}, S) -> got(Frame, owe(Cost, S)) end,
                            State, Frames)),
    serve(Rest, pay(Next)).

got({hello_brain, #{version := Version, window := Window}}, State) ->
    #{worker := W, workers := Workers, next := First, 'end' := End} = State,
    send({hello_edge, #{version => Version, window => ?WINDOW_BYTES,
                        pid => list_to_integer(os:getpid()), worker => W, workers => Workers,
                        build => <<"bench">>, public_listen => <<"127.0.0.1:1">>,
                        api_listen => <<"127.0.0.1:2">>, connections_max => End - First,
                        metrics => []}}, State),
    spend({sync_begin, End - First, <<>>}, State#{credit := Window});
got({credit, Bytes}, #{credit := Credit} = State) ->
    State#{credit := Credit + Bytes};
got({ping, Nonce}, State) ->
    send({pong, Nonce}, State),
    State;
got({opened, _, Opened}, #{missing := Missing} = State) ->
    #{main := Main, worker := W, next := Next} = State,
    Left = Missing - length(Opened),
    Left =:= 0 andalso (Main ! {opened, W, Next}),
    State#{missing := Left};
got({refused, _, Status, _, Code, _}, _) ->
    error({refused, Status, Code});
got(_, State) ->
    State.

%% As many as there is credit for.
open(#{credit := Credit, next := Next, 'end' := End} = State)
  when Credit > 64 * ?OPEN_SESSIONS, Next < End ->
    Users = lists:seq(Next, min(Next + ?OPEN_SESSIONS, End) - 1),
    Frame = {open, [{User, ?TRANSPORT_SSE, integer_to_binary(User), <<>>} || User <- Users]},
    open(spend(Frame, State#{next := lists:last(Users) + 1}));
open(#{next := End, 'end' := End, synced := false} = State) ->
    spend(sync_end, State#{synced := true});
open(State) ->
    State.

send(Frame, #{socket := Socket}) ->
    ok = gen_tcp:send(Socket, halley_edge_codec:encode(Frame)).

spend(Frame, #{socket := Socket, credit := Credit} = State) ->
    Bytes = iolist_to_binary(halley_edge_codec:encode(Frame)),
    ok = gen_tcp:send(Socket, Bytes),
    State#{credit := Credit - byte_size(Bytes)}.

owe(Cost, #{owed := Owed} = State) -> State#{owed := Owed + Cost}.

pay(#{owed := Owed} = State) when Owed > ?WINDOW_BYTES div 4 ->
    Portion = min(Owed, ?WINDOW_BYTES div 2),
    send({credit, Portion}, State),
    pay(State#{owed := Owed - Portion});
pay(State) ->
    State.
