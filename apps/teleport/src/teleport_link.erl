%% A link to a peer: one process, from the first handshake to the end. It holds the control
%% connection, opens and hands out the others, asks if the peer is there, and lets waiting senders
%% go on when there is room.
%%
%% A link is a whole: when any of its connections or processes ends, it ends, with a reason for the
%% log (teleport_peers has it) and the peer; the next message makes another link. Its readers are
%% dead before any process hears of its end, so nothing of an old link arrives after messages of a
%% new one.
%%
%% The side that dialled opens all connections; the other side requests them (`open'). Unused ones
%% are closed again (teleport_connection).
%%
%% Messages don't pass through it. It knows no pairs and no order.
-module(teleport_link).
-behaviour(gen_server).

-export([start_link/1, route/1, attach/3, watched/3, unwatched/2, wait_for_room/3,
         waits_no_more/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([args/0]).

-include("teleport.hrl").

%% `theirs': what the peer said of itself, if it dialed. `up': told when a dialed link is up, with
%% the peer's instance and epoch.
-type args() :: #{node := node(), id := binary(), epoch := non_neg_integer(),
                  instance := binary(), stats := atomics:atomics_ref(),
                  theirs := dial | teleport_handshake:about(),
                  up := fun((pid(), #route{}, {binary(), non_neg_integer()}) -> ok)}.

-define(CONTROL_BYTES_MAX, 65536).
%% A batch of a writer, one small element beyond it, and what they are wrapped in.
-define(FRAME_BYTES_MAX, 262144).
-define(FRAMES, 20).
-define(SEEN_MS, 10).
-define(DONE_MAX, 500).

-record(state, {
    args :: args(),
    options :: teleport_options:options(),
    address = none :: none | {term(), inet:port_number(), binary() | any},
    %% Of an accepted link it comes after its route is known.
    control = none :: none | teleport_socket:socket(),
    unwritten = [] :: [teleport_control:frame()],        % before it came, newest first
    route = none :: none | #route{},
    watch = none :: none | pid(),
    calls = none :: none | teleport_calls:calls(),
    reply_to = {} :: tuple(),                            % the writers' aliases
    seen = none :: none | atomics:atomics_ref(),
    writers = #{} :: #{{lane | large, pos_integer()} => pid()},
    connections = #{} :: #{{lane | large, pos_integer()} => teleport_connection:state()},
    room :: teleport_room:room(),                        % who waits
    watchers = teleport_watchers:new() :: teleport_watchers:watchers(),
    heard_ms :: integer(),
    want_seen = [] :: [pos_integer()]
}).

-spec start_link(args()) -> gen_server:start_ret().
start_link(Args) -> gen_server:start_link(?MODULE, Args, []).

%% Of a link that was accepted.
-spec route(pid()) -> #route{}.
route(Link) -> gen_server:call(Link, route, infinity).

%% A connection that the peer dialed; the caller's until now.
-spec attach(pid(), teleport_handshake:hello(), teleport_socket:socket()) -> ok.
attach(Link, #{kind := Kind, lane := Number}, Socket) ->
    _ = teleport_socket:give(Socket, Link),
    gen_server:cast(Link, {attach, Kind, Number, Socket}).

%% The watcher has a monitor on this link: it's withdrawn if the watcher ends.
-spec watched(pid(), reference(), pid()) -> ok.
watched(Link, Ref, Watcher) -> gen_server:cast(Link, {watched, Ref, Watcher}).

-spec unwatched(pid(), reference()) -> ok.
unwatched(Link, Ref) -> gen_server:cast(Link, {unwatched, Ref}).

%% `{Alias, room}' comes to the caller by the alias when there may be room.
-spec wait_for_room(pid(), teleport_post:way(), reference()) -> ok.
wait_for_room(Link, Way, Alias) -> gen_server:cast(Link, {wait, Way, Alias, self()}).

%% It was too long.
-spec waits_no_more(pid(), reference()) -> ok.
waits_no_more(Link, Alias) -> gen_server:cast(Link, {waits_no_more, Alias}).

-spec init(args()) -> {ok, #state{}, {continue, dial}} | {ok, #state{}}.
init(#{theirs := Theirs} = Args) ->
    State = #state{args = Args, options = teleport_options:get(), heard_ms = now_ms(),
                   room = teleport_room:new()},
    case Theirs of
        dial -> {ok, State, {continue, dial}};
        _ -> {ok, up(Theirs, State)}
    end.

%% --- beginning ---------------------------------------------------------------------------------

-spec handle_continue(dial, #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_continue(dial, #state{args = #{node := Node}, options = Options} = State) ->
    case teleport_discovery:where(Node, maps:get(connect_ms_max, Options)) of
        {ok, Address} -> dial(State#state{address = Address});
        error -> {stop, {shutdown, unknown_address}, State}
    end.

dial(#state{args = #{up := Tell}, address = {Host, Port, _} = Address} = State) ->
    case teleport_greeting:dial(Address, hello(control, 0, State), about(State)) of
        {ok, Socket, Instance, #{epoch := Epoch} = Theirs} ->
            Up = control(Socket, up(Theirs, State#state{address = {Host, Port, Instance}})),
            ok = Tell(self(), Up#state.route, {Instance, Epoch}),
            {noreply, Up};
        {error, Reason} ->
            {stop, {shutdown, {dial, Reason}}, State}
    end.

hello(Kind, Number, #state{args = #{node := Node, id := Id, epoch := Epoch,
                                    instance := Instance}}) ->
    #{kind => Kind, lane => Number, nonce => teleport_handshake:nonce(), link => Id,
      epoch => Epoch, instance => Instance, from => atom_to_binary(node()),
      to => atom_to_binary(Node)}.

about(#state{args = #{epoch := Epoch}, options = Options}) ->
    (maps:with([message_bytes_max, lanes], Options))#{epoch => Epoch}.

up(#{lanes := TheirLanes, message_bytes_max := TheirMax},
   #state{args = #{node := Node, stats := Stats}, options = Options} = State) ->
    #{lanes := Lanes, queue_bytes_max := Max, large_bytes := Large, ping_ms := PingMs} = Options,
    %% Not before: while it dials, it is to end at once when it's told to.
    process_flag(trap_exit, true),
    Queue = atomics:new(?QUEUE, []),
    EachMax = Max div 2,
    Numbers = lists:seq(1, min(Lanes, TheirLanes)),
    Calls = teleport_calls:new(),
    {ok, Watch} = teleport_watch:start_link(Calls),
    Pairs = [begin
                 LargeWriter = teleport_large_writer:start_link(N),
                 {Writer, Alias} = teleport_writer:start_link(
                     #{node => Node, number => N, queue => Queue, low_bytes => EachMax div 2,
                       stats => Stats, large => LargeWriter, calls => Calls,
                       large_bytes => Large, message_bytes_max => TheirMax}),
                 {N, Writer, Alias, LargeWriter}
             end || N <- Numbers],
    Route = #route{node = Node, link = self(), watch = Watch, queue = Queue,
                   queue_bytes_max = EachMax, message_bytes_max = TheirMax, large_bytes = Large,
                   writers = list_to_tuple([Writer || {_, Writer, _, _} <- Pairs])},
    ok = teleport_watch:attach(Watch, Route),
    _ = erlang:send_after(PingMs, self(), tick),
    _ = erlang:send_after(maps:get(idle_ms, Options), self(), idle),
    Writers = [[{{lane, N}, Writer}, {{large, N}, LargeWriter}]
               || {N, Writer, _, LargeWriter} <- Pairs],
    State#state{route = Route, watch = Watch, calls = Calls,
                reply_to = list_to_tuple([Alias || {_, _, Alias, _} <- Pairs]),
                seen = atomics:new(length(Numbers), []),
                writers = maps:from_list(lists:append(Writers)), heard_ms = now_ms()}.

control(Socket, State) ->
    Ready = teleport_socket:frames(Socket, ?CONTROL_BYTES_MAX) =:= ok
        andalso teleport_socket:activate(Socket, ?FRAMES) =:= ok,
    _ = [self() ! {'EXIT', self(), {control, closed}} || not Ready],
    #state{unwritten = Unwritten} = State,
    Written = lists:foldr(fun write/2, State#state{control = Socket, unwritten = []}, Unwritten),
    counted(Written).

%% --- messages ----------------------------------------------------------------------------------

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(route, _, #state{route = Route} = State) -> {reply, Route, State};
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_cast({attach, control, 0, Socket}, #state{control = none} = State) ->
    {noreply, ping(control(Socket, State))};
handle_cast({attach, Kind, Number, Socket}, #state{writers = Writers} = State)
  when is_map_key({Kind, Number}, Writers) ->
    {noreply, opened({Kind, Number}, Socket, State)};
handle_cast({attach, _, _, _}, State) ->
    {stop, {shutdown, {malformed, connection}}, State};
handle_cast({watched, Ref, Watcher}, #state{watchers = Watchers} = State) ->
    {noreply, State#state{watchers = teleport_watchers:add(Ref, Watcher, Watchers)}};
handle_cast({unwatched, Ref}, State) ->
    {noreply, unwatch(Ref, State)};
handle_cast({wait, Way, Alias, Sender}, #state{room = Room} = State) ->
    %% Counted before it's looked whether there is room.
    {noreply, room(wait(teleport_room:add(Way, Alias, Sender, Room), State))};
handle_cast({waits_no_more, Alias}, #state{room = Room} = State) ->
    {noreply, wait(teleport_room:remove(Alias, Room), State)};
handle_cast(disconnect, State) ->
    {stop, {shutdown, disconnected}, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info(room, State) ->
    {noreply, room(State)};
handle_info({monitor_ended, Ref}, State) ->
    {noreply, forget(Ref, State)};
handle_info({open, Kind, Number}, State) ->
    {noreply, connection(want, {Kind, Number}, State)};
handle_info({opened, Connection, Socket}, State) ->
    {noreply, opened(Connection, Socket, State)};
handle_info({rests, Connection, Count}, State) ->
    {noreply, connection({writer, {rests, Count}}, Connection, State)};
handle_info({stays, Connection}, State) ->
    {noreply, connection({writer, stays}, Connection, State)};
handle_info({look, Connection}, State) ->
    {noreply, connection({seen, seen(Connection, State)}, Connection, State)};
handle_info(idle, State) ->
    idle(State);
handle_info({done, Number, Id}, State) ->
    {noreply, done(Number, [Id], State)};
handle_info({want_seen, Number}, #state{want_seen = Want} = State) ->
    _ = [erlang:send_after(?SEEN_MS, self(), ask_seen) || Want =:= []],
    {noreply, State#state{want_seen = [Number | Want]}};
handle_info(ask_seen, State) ->
    {noreply, ping(State)};
handle_info(tick, State) ->
    tick(State);
handle_info({'DOWN', MRef, process, _, _}, #state{watchers = Watchers, room = Room} = State) ->
    case teleport_watchers:find(MRef, Watchers) of
        {ok, Ref} ->
            case teleport_monitors:drop(Ref) of
                {ok, _} -> {noreply, unwatch(Ref, State)};
                none -> {noreply, forget(Ref, State)}
            end;
        none -> {noreply, wait(teleport_room:sender_ended(MRef, Room), State)}
    end;
handle_info({'EXIT', Pid, normal}, State) ->
    ok = teleport_table:reader_gone(self(), Pid),
    {noreply, State};
handle_info({'EXIT', Pid, Reason}, #state{connections = Connections} = State) ->
    case [Reader || {parked, Reader} <- maps:values(Connections), Reader =:= Pid] of
        [_] ->
            ok = teleport_table:reader_gone(self(), Pid),
            {noreply, State};
        [] ->
            {stop, {shutdown, reason(Reason)}, State}
    end;
handle_info(_, #state{control = none} = State) ->
    {noreply, State};
handle_info(Message, #state{control = Control} = State) ->
    case teleport_socket:message(Message, Control) of
        {frame, Frame} ->
            case teleport_control:decode(Frame) of
                {ok, Read} -> control_frame(Read, State#state{heard_ms = now_ms()});
                {error, malformed} -> {stop, {shutdown, {malformed, control}}, State}
            end;
        passive ->
            _ = teleport_socket:activate(Control, ?FRAMES),
            {noreply, State};
        {ended, Reason} -> {stop, {shutdown, {control, Reason}}, State};
        _ -> {noreply, State}
    end.

control_frame({ping, Time}, #state{seen = Seen} = State) ->
    Counts = [atomics:get(Seen, N) || N <- lists:seq(1, maps:get(size, atomics:info(Seen)))],
    {noreply, write({pong, Time, Counts}, State)};
control_frame({pong, Time, Counts}, #state{args = #{stats := Stats}, writers = Writers,
                                           want_seen = Want} = State) ->
    ok = atomics:put(Stats, ?ROUND_TRIP_US, max(1, erlang:monotonic_time(microsecond) - Time)),
    _ = [maps:get({lane, N}, Writers) ! {seen, lists:nth(N, Counts)}
         || N <- Want, N =< length(Counts)],
    {noreply, State#state{want_seen = []}};
control_frame({open, Kind, Number}, #state{writers = Writers} = State)
  when is_map_key({Kind, Number}, Writers) ->
    {noreply, connection(want, {Kind, Number}, State)};
control_frame({What, Kind, Number, Count}, #state{writers = Writers} = State)
  when is_map_key({Kind, Number}, Writers) ->
    {noreply, connection({peer, {What, Count}}, {Kind, Number}, State)};
control_frame({stays, Kind, Number}, #state{writers = Writers} = State)
  when is_map_key({Kind, Number}, Writers) ->
    {noreply, connection({peer, stays}, {Kind, Number}, State)};
control_frame({done, Number, Ids}, #state{writers = Writers} = State)
  when is_map_key({lane, Number}, Writers) ->
    maps:get({lane, Number}, Writers) ! {done, Ids},
    {noreply, State};
control_frame({close, Reason}, State) ->
    {stop, {shutdown, {peer, Reason}}, State};
control_frame(_, State) ->
    {stop, {shutdown, {malformed, control}}, State}.

write(Frame, #state{control = none, unwritten = Unwritten} = State) ->
    State#state{unwritten = [Frame | Unwritten]};
write(Frame, #state{control = Control} = State) ->
    case teleport_socket:write(Control, teleport_control:encode(Frame)) of
        ok -> ok;
        {error, Reason} -> self() ! {'EXIT', self(), {control, Reason}}, ok
    end,
    State.

%% --- connections -------------------------------------------------------------------------------

connection(Event, Connection, #state{connections = Connections} = State) ->
    {Next, Actions} = teleport_connection:handle(Event, maps:get(Connection, Connections, none)),
    Now = State#state{connections = Connections#{Connection => Next}},
    lists:foldl(fun(Action, Acc) -> act(Action, Connection, Acc) end, counted(Now), Actions).

act(open, {Kind, Number} = Connection,
    #state{args = #{theirs := dial}, address = Address} = State) ->
    Hello = hello(Kind, Number, State),
    About = about(State),
    Link = self(),
    _ = spawn_link(fun() ->
        case teleport_greeting:dial_again(Address, Hello, About) of
            {ok, Socket} ->
                _ = teleport_socket:give(Socket, Link),
                Link ! {opened, Connection, Socket};
            {error, Reason} ->
                exit({dial, Reason})
        end
    end),
    State;
act(open, {Kind, Number}, State) -> write({open, Kind, Number}, State);
act(look, Connection, State) ->
    connection({seen, seen(Connection, State)}, Connection, State);
act(look_later, Connection, State) ->
    _ = erlang:send_after(?SEEN_MS, self(), {look, Connection}),
    State;
act(ask, {Kind, Number}, #state{writers = Writers} = State) ->
    maps:get({lane, Number}, Writers) ! {rest, Kind},
    State;
act({give, Socket}, Connection, #state{writers = Writers} = State) ->
    maps:get(Connection, Writers) ! {socket, Socket},
    State;
act({say, stays}, {Kind, Number}, State) -> write({stays, Kind, Number}, State);
act({say, {What, Count}}, {Kind, Number}, State) -> write({What, Kind, Number, Count}, State);
act({will_rest, Reader}, {lane, _}, State) -> ok = teleport_reader:will_rest(Reader), State;
act({will_rest, _}, {large, _}, State) -> State;
act({rest, Reader}, {lane, _}, State) -> ok = teleport_reader:rest(lane, Reader), State;
act({rest, Reader}, {large, _}, State) ->
    ok = teleport_reader:rest(large, Reader),
    ok = teleport_table:reader_gone(self(), Reader),
    State;
act(malformed, _, State) ->
    self() ! {'EXIT', self(), {malformed, connection}},
    State.

%% Of large elements a writer knows when all were delivered; then there are none to wait for.
seen({lane, Number}, #state{seen = Seen}) -> atomics:get(Seen, Number);
seen({large, _}, _) -> 0.

%% Who dialed asks for both sides.
idle(#state{args = #{theirs := dial}, options = #{idle_ms := Ms}, connections = Connections,
            writers = Writers} = State) ->
    _ = erlang:send_after(Ms, self(), idle),
    _ = [maps:get({lane, Number}, Writers) ! {rest, Kind}
         || {{Kind, Number}, {open, _, _}} <- maps:to_list(Connections)],
    {noreply, State};
idle(State) ->
    {noreply, State}.

opened({Kind, Number} = Connection, Socket,
       #state{args = #{node := Node, stats := Stats}, options = Options, watch = Watch,
              calls = Calls, reply_to = ReplyTo, route = #route{writers = Writers},
              seen = Seen} = State) ->
    Args = #{node => Node, number => Number, seen => Seen, stats => Stats, watch => Watch,
             calls => Calls, reply_to => ReplyTo, writers => Writers,
             bytes_max => maps:get(message_bytes_max, Options),
             receivers => maps:get(receivers, Options)},
    case connection(opened, Connection, State) of
        #state{connections = #{Connection := opening}} = Expected ->
            %% Before anybody reads or writes. If it fails, the reader finds the connection closed.
            {Reader, _} = case Kind of
                lane ->
                    {teleport_reader:start_link(Args),
                     teleport_socket:frames(Socket, ?FRAME_BYTES_MAX)};
                large ->
                    {teleport_large_reader:start_link(Args), teleport_socket:plain(Socket)}
            end,
            ok = teleport_table:reader(self(), Reader),
            _ = teleport_socket:give(Socket, Reader),
            ok = teleport_reader:go(Reader, Socket),
            connection({ready, Socket, Reader}, Connection, Expected);
        Unexpected ->
            ok = teleport_socket:abort(Socket),
            Unexpected
    end.

counted(#state{args = #{stats := Stats}} = State) ->
    ok = atomics:put(Stats, ?CONNECTIONS, 1 + length(sockets(State))),
    State.

sockets(#state{connections = Connections}) ->
    lists:append([teleport_connection:sockets(State) || State <- maps:values(Connections)]).

%% What came together is one frame for each lane.
done(Number, Ids, State) when length(Ids) < ?DONE_MAX ->
    receive {done, Number, Id} -> done(Number, [Id | Ids], State)
    after 0 -> write({done, Number, lists:reverse(Ids)}, State)
    end;
done(Number, Ids, State) ->
    write({done, Number, lists:reverse(Ids)}, State).

%% --- time and room -----------------------------------------------------------------------------

tick(#state{heard_ms = HeardMs, options = #{ping_ms := PingMs, silent_ms_max := Max}} = State) ->
    case now_ms() - HeardMs > Max of
        true ->
            {stop, {shutdown, silent}, State};
        false ->
            _ = erlang:send_after(PingMs, self(), tick),
            {noreply, ping(State)}
    end.

ping(#state{control = none} = State) -> State;
ping(State) -> write({ping, erlang:monotonic_time(microsecond)}, State).

now_ms() -> erlang:monotonic_time(millisecond).

%% Wakes as many as may find room: each of them asks again.
room(#state{room = Room, route = #route{queue = Queue, queue_bytes_max = Max}} = State) ->
    Free = [Way || Way <- [small, large], atomics:get(Queue, ?QUEUE_OF(Way)) =< Max div 2],
    wait(lists:foldl(fun teleport_room:wake/2, Room, Free), State).

%% How many wait is for writers and senders to read.
wait(Room, #state{route = #route{queue = Queue}} = State) ->
    ok = atomics:put(Queue, ?QUEUE_WAITING, teleport_room:count(Room)),
    State#state{room = Room}.

unwatch(Ref, #state{watchers = Watchers, route = Route} = State) ->
    case teleport_watchers:take(Ref, Watchers) of
        {Watcher, Rest} ->
            ok = teleport_post:withdraw(Route, Watcher, {demonitor, Ref}),
            State#state{watchers = Rest};
        none ->
            State
    end.

%% Its 'DOWN' was sent: the peer has forgotten it, or never heard of it.
forget(Ref, #state{watchers = Watchers} = State) ->
    case teleport_watchers:take(Ref, Watchers) of
        {_, Rest} -> State#state{watchers = Rest};
        none -> State
    end.

%% --- the end -----------------------------------------------------------------------------------

-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{control = Control, args = #{stats := Stats}} = State) ->
    _ = [farewell(Reason, State) || Control =/= none],
    Open = sockets(State),
    Ended = [begin true = exit(Reader, kill), erlang:monitor(process, Reader) end
             || {_, Reader} <- Open],
    _ = [receive {'DOWN', MRef, process, _, _} -> ok end || MRef <- Ended],
    _ = [teleport_socket:abort(Socket) || {Socket, _} <- Open],
    _ = [teleport_socket:abort(Control) || Control =/= none],
    ok = atomics:put(Stats, ?CONNECTIONS, 0).

farewell({shutdown, {Where, _}}, _) when Where =:= control; Where =:= peer -> ok;
farewell(Reason, #state{control = Control}) ->
    Text = iolist_to_binary(io_lib:format("~0p", [reason(Reason)])),
    teleport_socket:write(Control, teleport_control:encode({close, Text})).

reason({shutdown, Reason}) -> Reason;
reason(Reason) -> Reason.
