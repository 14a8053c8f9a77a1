%% The reading half of a link: one process per worker of the edge (protocol/link.md).
%%
%% It dials, has the handshake, starts its writer, and then does what frames ask for: it opens and
%% closes sessions (halley_edge_sessions), answers requests or starts processes for them, and counts
%% metrics. It decides nothing about events, and holds little about a connection: sessions are in
%% the directory, under this link's slot. Its state has only sessions that are being replayed, open
%% requests (halley_edge_requests) and inspections.
%%
%% It tells its worker the keys of tokens when they change (12.1): by their version it knows whether
%% they did, as `token_keys_changed' may come late or, before the link is registered, not at all.
%%
%% Whatever breaks a clause ends the link: GOODBYE with the clause, one line in the log, exit.
%% Nothing is repaired; the registry forgets the slot's sessions when the writer dies, and
%% halley_edge_dialer dials again.
%%
%% Credit (4.3): a frame is dealt with when its sessions are in the directory or refused, its
%% request is answered, posted or has a process, its body bytes are with that process (bounded by
%% the request's window, 8.3), or there was nothing to do.
%%
%% Lifetimes: writer, replays (halley_edge_replays) and requests are linked to this process and none
%% of them outlives it. A request's death is its answer's business, the others' ends the link.
-module(halley_edge_link).
-behaviour(gen_server).

-export([start_link/2, stop/1, shutdown_edge/2, inspect/3]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-define(READS, 64).                  % messages before the socket asks whether to go on
-define(QUIET_BYTES, 4096).          % that wait for a link which does little
-define(REPLAYS_WAITING_MAX, 1000000). % that came, went or answered and weren't looked at
-define(INSPECT_MS_SPARE, 100).      % for a link that has just something else to do
-define(GOODBYE_MS_MAX, 5000).       % for the writer to have a turn
-define(GOODBYE_LOOK_MS, 200).

-record(state, {
    path :: binary(),
    dialer :: pid(),
    socket :: gen_tcp:socket() | undefined,
    hello = #{} :: map(),
    metrics = none :: halley_metrics:list_number(),
    writer :: halley_edge_writer:handle() | undefined,
    writer_pid :: pid() | undefined,
    slot :: halley_links:slot() | undefined,
    replays :: halley_edge_replays:handle() | undefined,
    replays_pid :: pid() | undefined,
    sessions :: halley_edge_sessions:sessions() | undefined,
    inspections = halley_edge_inspections:new() :: halley_edge_inspections:inspections(),
    requests :: halley_edge_requests:requests() | undefined,
    token_keys = none :: none | halley_token_keys:version(),
    buffer = <<>> :: binary(),
    sync = before :: before | running | done,
    window :: pos_integer() | undefined,
    allowance = 0 :: integer(),          % what the worker may still send
    dealt = 0 :: non_neg_integer(),      % and isn't given back yet
    heard_at = 0 :: integer(),
    doubted_at = [] :: [integer()],      % `heard_at' of a silence that was too long
    nonce = 0 :: non_neg_integer(),
    samples = halley_edge_idle_gc:new() :: halley_edge_idle_gc:samples()
}).

%% Starts a link to the worker at Path. It tells the dialer {up, self(), HelloEdge} when it stands.
-spec start_link(Path :: binary(), Dialer :: pid()) -> gen_server:start_ret().
start_link(Path, Dialer) ->
    gen_server:start_link(?MODULE, {Path, Dialer}, []).

%% Asks the whole edge to stop (9.1).
-spec shutdown_edge(pid(), DrainMs :: non_neg_integer()) -> ok.
shutdown_edge(Link, DrainMs) ->
    gen_server:cast(Link, {shutdown_edge, DrainMs}).

%% Ends the link, not the edge.
-spec stop(pid()) -> ok.
stop(Link) ->
    gen_server:cast(Link, stop).

%% What a connection of the link with this slot has waiting (10.8): a map of the fields of
%% INSPECTED, `state' and `transport' as atoms. `gone': there is no such link any more.
-spec inspect(halley_links:slot(), halley_edge_codec:conn(), TimeoutMs :: pos_integer()) ->
    {ok, map()} | timeout | gone.
inspect(Slot, Conn, TimeoutMs) ->
    case halley_links:info(Slot) of
        #{link := Link} ->
            try gen_server:call(Link, {inspect, Conn, TimeoutMs}, TimeoutMs + ?INSPECT_MS_SPARE)
            catch
                exit:{timeout, _} -> timeout;
                exit:_ -> gone
            end;
        _ ->
            gone
    end.

%%% Handshake

-spec init({binary(), pid()}) -> {ok, #state{}, {continue, dial}}.
init({Path, Dialer}) ->
    process_flag(trap_exit, true),
    {ok, #state{path = Path, dialer = Dialer}, {continue, dial}}.

-spec handle_continue(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_continue(dial, #state{path = Path} = State) ->
    case halley_edge_dial:dial(Path) of
        {ok, Handshake} ->
            handled(linked(Handshake, State));
        {error, Reason} ->
            log_refusal(Path, Reason),
            {stop, {shutdown, {dial, Reason}}, State}
    end.

%% An edge that isn't there yet is the dialer's patience, not news.
log_refusal(_, {connect, _}) ->
    ok;
log_refusal(Path, Reason) ->
    case Reason of
        {broken, Problem} -> halley_metrics:incr(halley_edge_goodbye:counter(Problem));
        handshake_timeout -> halley_metrics:incr(link_handshake);
        _ -> ok
    end,
    ?LOG_WARNING("link ~ts: ~ts", [Path, halley_edge_dial:reason_text(Reason)]).

linked(#{socket := Socket, hello := Hello, window := Window} = Handshake, State) ->
    #{frames := Frames, rest := Rest, token_keys := TokenKeys} = Handshake,
    #{window := Credit, worker := Worker, pid := OsPid} = Hello,
    {ok, WriterPid} = halley_edge_writer:start_link(Socket, Credit),
    {ok, Slot, Queue} = halley_links:register(WriterPid, #{worker => Worker, pid => OsPid,
                                                           build => copy(build, Hello),
                                                           link => self()}),
    Writer = halley_edge_writer:attach(WriterPid, Slot, Queue, halley_history:heads()),
    Replays = halley_edge_replays:start_link(self(), Writer),
    State#state.dialer ! {up, self(), Hello},
    _ = erlang:send_after(halley_limits:get(heartbeat_ms), self(), tick),
    self() ! read,
    take(Frames, token_keys(State#state{
        socket = Socket, writer = Writer, writer_pid = WriterPid, slot = Slot, hello = Hello,
        metrics = metrics(Hello, State), token_keys = TokenKeys, replays = Replays,
        replays_pid = halley_edge_replays:pid(Replays),
        sessions = halley_edge_sessions:new(Slot, Worker, Writer, Replays),
        requests = halley_edge_requests:new(Writer), buffer = Rest, window = Window,
        allowance = Window, heard_at = now_ms()})).

metrics(#{metrics := Definitions}, #state{path = Path}) ->
    List = halley_metrics:definitions(Definitions),
    List =:= none andalso
        ?LOG_WARNING("link ~ts: its metrics aren't shown: edges have sent more different lists of "
                     "metrics than the brain keeps", [Path]),
    List.

copy(Key, Map) ->
    binary:copy(maps:get(Key, Map)).

%%% Messages

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {noreply, #state{}} | {reply, timeout, #state{}}.
handle_call({inspect, Conn, TimeoutMs}, From, #state{inspections = Inspections} = State) ->
    case halley_edge_inspections:ask(From, Conn, TimeoutMs, Inspections) of
        {Frame, Asked} ->
            send(Frame, State),
            {noreply, State#state{inspections = Asked}};
        full ->
            {reply, timeout, State}
    end;
handle_call(_, _, State) ->
    {noreply, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_cast(stop, State) ->
    {stop, {shutdown, stopped}, State};
handle_cast({shutdown_edge, DrainMs}, #state{writer = Writer} = State) when Writer =/= undefined ->
    send({shutdown, DrainMs}, State),
    {noreply, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({tcp, Socket, Data}, #state{socket = Socket, buffer = Buffer} = State) ->
    handled(received(halley_edge_codec:deframe(append(Buffer, Data)), State));
handle_info({enter, Replays, Conns}, #state{replays_pid = Replays, sessions = Sessions} = State) ->
    {noreply, State#state{sessions = halley_edge_sessions:enter(Conns, Sessions)}};
handle_info({replay_ended, Replays, Conn}, #state{replays_pid = Replays} = State) ->
    Sessions = halley_edge_sessions:replay_ended(Conn, State#state.sessions),
    {noreply, State#state{sessions = Sessions}};
handle_info({'EXIT', Pid, Reason}, #state{writer_pid = Writer, replays_pid = Replays} = State)
  when Pid =:= Writer; Pid =:= Replays ->
    {stop, Reason, State};
handle_info({'EXIT', Pid, Reason}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:ended(Pid, Reason, Requests)}};
handle_info({request_credit, Pid, Conn, Bytes}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:credit(Pid, Conn, Bytes, Requests)}};
handle_info({posted, Answers}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:posted(Answers, Requests)}};
handle_info({timeout, Timer, posts}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:late(Timer, Requests)}};
handle_info({'DOWN', Monitor, process, _, _}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:shard_down(Monitor, Requests)}};
handle_info(token_keys_changed, #state{writer = Writer} = State) when Writer =/= undefined ->
    {noreply, token_keys(State)};
handle_info({tcp_passive, Socket}, #state{socket = Socket} = State) ->
    read(State);
handle_info(read, State) ->
    read(State);
handle_info(tick, State) ->
    handled(tick(State));
handle_info({tcp_closed, Socket}, #state{socket = Socket, path = Path} = State) ->
    ?LOG_NOTICE("link ~ts: closed by the edge", [Path]),
    {stop, {shutdown, closed}, State};
handle_info({tcp_error, Socket, Reason}, #state{socket = Socket} = State) ->
    {stop, {shutdown, {tcp, Reason}}, State};
handle_info({broken, Problem}, State) ->
    log_broken(Problem, State),
    {stop, {shutdown, {broken, Problem}}, State};
handle_info(_, State) ->
    {noreply, State}.

read(#state{socket = Socket} = State) ->
    case inet:setopts(Socket, [{active, ?READS}]) of
        ok -> {noreply, State};
        {error, Reason} -> {stop, {shutdown, {tcp, Reason}}, State}
    end.

append(<<>>, Data) -> Data;
append(Buffer, Data) -> <<Buffer/binary, Data/binary>>.

handled(#state{} = State) ->
    {noreply, State};
handled({broken, Problem, State}) ->
    log_broken(Problem, State),
    {stop, {shutdown, {broken, Problem}}, State};
handled({said_goodbye, Code, Text, #state{path = Path} = State}) ->
    ?LOG_NOTICE("link ~ts: ~ts", [Path, halley_edge_dial:reason_text({goodbye, Code, Text})]),
    {stop, {shutdown, {goodbye, Code}}, State}.

log_broken({Clause, What} = Problem, #state{path = Path}) ->
    ok = halley_metrics:incr(halley_edge_goodbye:counter(Problem)),
    ?LOG_WARNING("link ~ts: closed, clause ~ts of link.md is broken: ~ts", [Path, Clause, What]).

-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{socket = undefined}) ->
    ok;
terminate(Reason, #state{socket = Socket, writer = Writer, writer_pid = Pid}) ->
    ok = halley_edge_writer:goodbye(Writer, goodbye(Reason)),
    ok = await_goodbye(Pid, ?GOODBYE_MS_MAX),
    _ = inet:setopts(Socket, [{linger, {true, 1}}]),
    gen_tcp:close(Socket).

%% A writer that is stuck in a write, as its worker doesn't read, is not waited for; one that had no
%% turn yet on a busy machine is.
await_goodbye(Writer, LeftMs) ->
    receive {'EXIT', Writer, _} -> ok
    after ?GOODBYE_LOOK_MS ->
        case process_info(Writer, status) of
            {status, Status} when Status =/= suspended, LeftMs > 0 ->
                await_goodbye(Writer, LeftMs - ?GOODBYE_LOOK_MS);
            _ ->
                exit(Writer, kill),
                ok
        end
    end.

goodbye({shutdown, {broken, Problem}}) -> halley_edge_goodbye:answer(Problem);
goodbye(_) -> {goodbye, ?GOODBYE_STOPPING, <<"the brain stops this link">>}.

%% They are told if they aren't those that the worker has.
token_keys(#state{token_keys = Version, writer = Writer} = State) ->
    case halley_token_keys:current() of
        {New, Set} when New =/= Version ->
            ok = halley_edge_writer:free(Writer, {keys, Set}),
            State#state{token_keys = New};
        _ ->
            State
    end.

%%% Time

%% After a pause of this process the tick is in the mailbox before what came meanwhile. So silence
%% is judged at the next tick.
tick(#state{heard_at = HeardAt, writer = Writer, nonce = Nonce, requests = Requests} = State) ->
    Max = halley_limits:get(silence_ms),
    case now_ms() - HeardAt of
        Silence when Silence > Max, State#state.doubted_at =:= [HeardAt] ->
            broken(<<"4.5">>, "nothing heard for ~b ms", [Silence], State);
        Silence ->
            _ = erlang:send_after(halley_limits:get(heartbeat_ms), self(), tick),
            ok = halley_edge_writer:free(Writer, {ping, Nonce}),
            Inspections = halley_edge_inspections:expire(State#state.inspections),
            bounded(idle_gc(State#state{doubted_at = [HeardAt || Silence > Max], nonce = Nonce + 1,
                                        requests = halley_edge_requests:tick(Requests),
                                        inspections = Inspections}))
    end.

%% The heaps of a login or a storm: on 56 links they were a quarter of the brain's memory
%% (docs/internals/memory.md). A writer that may be stuck in a write isn't sampled.
idle_gc(#state{writer = Writer, writer_pid = Pid, replays_pid = Replays} = State) ->
    #state{samples = Samples} = State,
    case halley_edge_writer:queue_bytes(Writer) < ?QUIET_BYTES of
        true -> State#state{samples = halley_edge_idle_gc:sample([self(), Pid, Replays], Samples)};
        false -> State
    end.

%% The writer watches its queue's bound itself, unless it is stuck in a write to a worker that
%% doesn't read. The replays have a low priority, so a worker that says much may be ahead of them.
bounded(#state{writer = Writer, replays = Replays} = State) ->
    Max = halley_edge_writer:bytes_max(),
    case {halley_edge_writer:queue_bytes(Writer), halley_edge_replays:waiting(Replays)} of
        {Queued, Waiting} when Queued =< Max, Waiting =< ?REPLAYS_WAITING_MAX ->
            State;
        {Queued, _} when Queued > Max ->
            broken(<<"4.7">>, "~b bytes wait for the link, at most ~b may", [Queued, Max], State);
        {_, Waiting} ->
            broken(<<"4.7">>, "~b sessions wait for the replays", [Waiting], State)
    end.

%%% Frames

received({ok, Frames, Rest}, State) ->
    take(Frames, State#state{buffer = Rest, heard_at = now_ms()});
received({error, Problem}, State) ->
    {broken, Problem, State}.

take([], #state{requests = Requests} = State) ->
    bounded(give_back(State#state{requests = halley_edge_requests:send(Requests)}));
take([{0, Frame} | Rest], State) ->
    next(free(Frame, State), Rest);
take([_ | _], #state{allowance = Allowance} = State) when Allowance =< 0 ->
    broken(<<"4.2">>, "a frame without credit", [], State);
take([{Cost, Frame} | Rest], #state{allowance = Allowance, dealt = Dealt} = State) ->
    next(costly(Frame, State#state{allowance = Allowance - Cost, dealt = Dealt + Cost}), Rest).

next(#state{} = State, Rest) -> take(Rest, State);
next(End, _) -> End.

%% In portions not larger than half the window (4.3), once a quarter is together.
give_back(#state{dealt = Dealt, window = Window} = State) when Dealt * 4 < Window ->
    State;
give_back(#state{dealt = Dealt, window = Window, allowance = Allowance} = State) ->
    Portion = min(Dealt, Window div 2),
    ok = halley_edge_writer:free(State#state.writer, {credit, Portion}),
    give_back(State#state{dealt = Dealt - Portion, allowance = Allowance + Portion}).

free({ping, Nonce}, #state{writer = Writer} = State) ->
    ok = halley_edge_writer:free(Writer, {pong, Nonce}),
    State;
free({pong, _}, State) ->
    State;
free({credit, Bytes}, #state{writer = Writer} = State) ->
    ok = halley_edge_writer:credit(Writer, Bytes),
    State;
free({goodbye, Code, Reason}, State) ->
    {said_goodbye, Code, Reason, State};
free({hello_edge, _}, State) ->
    broken(<<"3.1">>, "a second hello", [], State);
free(_, State) ->
    broken(<<"2.3">>, "a frame of the other direction", [], State).

costly({request, _, _, _, _, _, _, _} = Request, State) ->
    requests(halley_edge_requests:open(Request, State#state.requests), State);
costly({request_body, Conn, Flags, Data}, State) ->
    requests(halley_edge_requests:body(Conn, Flags, Data, State#state.requests), State);
costly({request_gone, Conn}, State) ->
    requests(halley_edge_requests:gone(Conn, State#state.requests), State);
costly({sync_begin, Sessions, Cursor}, #state{sync = before, writer = Writer} = State) ->
    Start = halley_edge_catchup:begins(Sessions, Cursor, halley_history:store(),
                                       halley_history:heads(), erlang:system_time(millisecond)),
    ok = halley_edge_writer:sync_begin(Writer, Start),
    State#state{sync = running};
costly(sync_end, #state{sync = running, writer = Writer} = State) ->
    ok = halley_edge_writer:sync_end(Writer),
    State#state{sync = done};
costly({stats, Values}, State) ->
    stats(Values, State);
costly({open, Opening}, #state{sync = Sync, sessions = Sessions} = State) when Sync =/= before ->
    case halley_edge_sessions:open(Opening, Sessions) of
        {ok, Opened} -> State#state{sessions = Opened};
        {broken, Problem} -> {broken, Problem, State}
    end;
costly({close, Closing}, #state{sync = Sync, sessions = Sessions} = State) when Sync =/= before ->
    State#state{sessions = halley_edge_sessions:close(Closing, Sessions)};
costly({replayed, Conn}, #state{replays = Replays} = State) ->
    ok = halley_edge_replays:replayed(Replays, Conn),
    State;
costly({inspected, Token, Conn, Seen}, #state{inspections = Inspections} = State) ->
    State#state{inspections = halley_edge_inspections:answered(Token, Conn, Seen, Inspections)};
costly(Frame, State) ->
    case halley_edge_codec:is_from_edge(Frame) of
        true -> broken(<<"6.1">>, "a frame out of its place in the sync", [], State);
        false -> broken(<<"2.3">>, "a frame of the other direction", [], State)
    end.

requests({broken, Problem}, State) -> {broken, Problem, State};
requests(Requests, State) -> State#state{requests = Requests}.

stats(Values, #state{hello = #{metrics := Metrics}, metrics = List, slot = Slot} = State)
  when length(Values) =:= length(Metrics) ->
    ok = halley_metrics:edge(Slot, List, Values),
    State;
stats(Values, #state{hello = #{metrics := Metrics}} = State) ->
    broken(<<"3.4">>, "~b values for ~b metrics", [length(Values), length(Metrics)], State).

send(Frame, #state{writer = Writer}) ->
    halley_edge_writer:send(Writer, [iolist_to_binary(halley_edge_codec:encode(Frame))]).

broken(Clause, Format, Args, State) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}, State}.

now_ms() ->
    erlang:monotonic_time(millisecond).
