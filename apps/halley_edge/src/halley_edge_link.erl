%% The reading half of a link: one process for all workers of the edge, as the link is a trunk
%% (protocol/link.md, 13).
%%
%% It dials, has the handshake, starts its writer, and then does what frames ask for: what is about
%% sessions and metrics by its workers (halley_edge_worker), and requests, which it answers or
%% starts processes for (halley_edge_requests). It decides nothing about events, and holds little
%% about a connection: sessions are in the directory, under a worker's slot.
%%
%% A worker is there from its SYNC_BEGIN, by which it gets its slot, to its WORKER_GONE. Requests
%% are those of all workers, so that what one read brought is posted together; there a connection is
%% the word of slot and id.
%%
%% It tells the edge the keys of tokens when they change (12.1): by their version it knows whether
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
%% of them outlives it. A request's death is its answer's business, the others' ends the link,
%% unless it was this process that ended a worker's replays.
-module(halley_edge_link).
-behaviour(gen_server).
-behaviour(halley_inspection).

-export([start_link/2, stop/1, shutdown_edge/2, inspect/3, behind/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-define(READS, 64).                  % messages before the socket asks whether to go on
-define(QUIET_BYTES, 4096).          % that wait for a link which does little
-define(INSPECT_MS_SPARE, 100).      % for a link that has just something else to do
-define(GOODBYE_MS_MAX, 5000).       % for the writer to have a turn
-define(GOODBYE_LOOK_MS, 200).

-record(state, {
    path :: binary(),
    dialer :: pid(),
    socket :: gen_tcp:socket() | undefined,
    hello = #{} :: map(),
    metrics = {0, none} :: halley_edge_worker:metrics(),
    writer :: halley_edge_sender:handle() | undefined,
    writer_pid :: pid() | undefined,
    way :: halley_links:slot() | undefined,
    workers = #{} :: #{halley_edge_worker:index() => halley_edge_worker:worker()},
    by_replays = #{} :: #{pid() => halley_edge_worker:index()},
    requests :: halley_edge_requests:requests() | undefined,
    token_keys = none :: none | halley_token_keys:version(),
    buffer = <<>> :: binary(),
    window :: pos_integer() | undefined,
    allowance = 0 :: integer(),          % what the edge may still send
    dealt = 0 :: non_neg_integer(),      % and isn't given back yet
    heard_at = 0 :: integer(),
    doubted_at = [] :: [integer()],      % `heard_at' of a silence that was too long
    nonce = 0 :: non_neg_integer(),
    samples = halley_edge_idle_gc:new() :: halley_edge_idle_gc:samples()
}).

%% Starts a link to the edge at Path. It tells the dialer {up, self(), HelloEdge} when it stands.
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

-spec inspect(halley_links:slot(), halley_edge_codec:conn(), TimeoutMs :: pos_integer()) ->
    {ok, halley_inspection:waiting() | [halley_inspection:waiting()]} | timeout | gone.
inspect(Slot, Conn, TimeoutMs) ->
    case halley_links:info(Slot) of
        #{link := Link} ->
            try gen_server:call(Link, {inspect, Slot, Conn, TimeoutMs},
                                TimeoutMs + ?INSPECT_MS_SPARE)
            catch
                exit:{timeout, _} -> timeout;
                exit:_ -> gone
            end;
        _ ->
            gone
    end.

-spec behind(halley_links:slot(), TimeoutMs :: pos_integer()) ->
    {ok, [halley_inspection:waiting()]} | unknown | timeout | gone.
behind(Slot, TimeoutMs) ->
    case inspect(Slot, 1 bsl 47, TimeoutMs) of
        {ok, Slow} when is_list(Slow) -> {ok, Slow};
        {ok, _} -> unknown;
        Answer -> Answer
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
    Linked = attached(Handshake, State#state{socket = Socket, hello = Hello,
                                             metrics = metrics(Hello, State)}),
    Linked#state.dialer ! {up, self(), Hello},
    _ = erlang:send_after(halley_limits:get(heartbeat_ms), self(), tick),
    self() ! read,
    take(Frames, token_keys(Linked#state{token_keys = TokenKeys, buffer = Rest, window = Window,
                                         allowance = Window, heard_at = now_ms()})).

attached(#{socket := Socket, hello := #{window := Credit, workers := Workers}}, State) ->
    {ok, Pid} = halley_edge_trunk_writer:start_link(Socket, Credit),
    {ok, Way, Queue} = halley_links:register_trunk(Pid),
    Writer = halley_edge_sender:attach(Pid, Way, Queue),
    Requests = halley_edge_requests:new(halley_edge_sender:to_words(Writer), Workers),
    State#state{writer = Writer, writer_pid = Pid, way = Way, requests = Requests}.

info(Index, #state{hello = #{pid := OsPid, workers := Workers} = Hello}) ->
    #{worker => Index, workers => Workers, pid => OsPid, build => copy(build, Hello),
      link => self()}.

with_worker(Index, Worker, #state{workers = Workers, by_replays = ByReplays} = State) ->
    State#state{workers = Workers#{Index => Worker},
                by_replays = ByReplays#{halley_edge_worker:replays(Worker) => Index}}.

metrics(#{metrics := Definitions}, #state{path = Path}) ->
    List = halley_metrics:definitions(Definitions),
    List =:= none andalso
        ?LOG_WARNING("link ~ts: its metrics aren't shown: edges have sent more different lists of "
                     "metrics than the brain keeps", [Path]),
    {length(Definitions), List}.

copy(Key, Map) ->
    binary:copy(maps:get(Key, Map)).

%%% Messages

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {noreply, #state{}} | {reply, timeout | gone, #state{}}.
handle_call({inspect, Slot, Conn, TimeoutMs}, From, #state{workers = Workers} = State) ->
    case [{I, W} || {I, W} <- maps:to_list(Workers), halley_edge_worker:slot(W) =:= Slot] of
        [{Index, Worker}] ->
            case halley_edge_worker:inspect(From, Conn, TimeoutMs, Worker) of
                {ok, Asked} -> {noreply, State#state{workers = Workers#{Index := Asked}}};
                full -> {reply, timeout, State}
            end;
        [] ->
            {reply, gone, State}
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
handle_info({enter, Replays, Conns}, #state{by_replays = ByReplays} = State)
  when is_map_key(Replays, ByReplays) ->
    {noreply, of_replays(fun(W) -> halley_edge_worker:enter(Conns, W) end, Replays, State)};
handle_info({connect_judged, {Index, Conn}, Judgement}, #state{workers = Workers} = State)
  when is_map_key(Index, Workers) ->
    #{Index := Worker} = Workers,
    handled(case halley_edge_worker:judged(Conn, Judgement, Worker) of
        {broken, Problem} -> {broken, Problem, State};
        Next -> State#state{workers = Workers#{Index := Next}}
    end);
%% From `halley_sessions:close_user/2', and from `halley_subscriptions_end'.
handle_info({What, Slot, Whose, With}, #state{workers = Workers, hello = Hello} = State)
  when What =:= close_user; What =:= subscriptions_ended ->
    _ = [ok = halley_edge_worker:told({What, Whose, With}, Hello, Worker)
         || Worker <- maps:values(Workers), halley_edge_worker:slot(Worker) =:= Slot],
    {noreply, State};
handle_info({replay_ended, Replays, Conn}, #state{by_replays = ByReplays} = State)
  when is_map_key(Replays, ByReplays) ->
    {noreply, of_replays(fun(W) -> halley_edge_worker:replay_ended(Conn, W) end, Replays, State)};
handle_info({'EXIT', Pid, Reason}, #state{writer_pid = Writer, by_replays = ByReplays} = State)
  when Pid =:= Writer; is_map_key(Pid, ByReplays) ->
    {stop, Reason, State};
handle_info({'EXIT', Pid, Reason}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:ended(Pid, Reason, Requests)}};
handle_info({request_credit, Pid, Conn, Bytes}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:credit(Pid, Conn, Bytes, Requests)}};
handle_info({subscribe, {Pid, Ref}, Conn, User, Subject}, #state{workers = Workers} = State) ->
    Answer = fun(Result) -> Pid ! {Ref, Result}, ok end,
    case [Worker || Worker <- maps:values(Workers),
                    halley_edge_worker:slot(Worker) =:= Conn bsr 48] of
        [Worker] -> ok = halley_edge_worker:wish({add_from, Conn, User, Subject, Answer}, Worker);
        [] -> ok = Answer({no_session, halley_history:heads()})
    end,
    {noreply, State};
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

of_replays(Do, Replays, #state{workers = Workers, by_replays = ByReplays} = State) ->
    #{Replays := Index} = ByReplays,
    State#state{workers = maps:update_with(Index, Do, Workers)}.

read(#state{socket = Socket} = State) ->
    case inet:setopts(Socket, [{active, ?READS}]) of
        ok -> {noreply, State};
        {error, Reason} -> {stop, {shutdown, {tcp, Reason}}, State}
    end.

append(<<>>, Data) -> Data;
append(Buffer, Data) -> <<Buffer/binary, Data/binary>>.

handled(#state{} = State) ->
    {noreply, State};
handled({closed, State}) ->
    {stop, {shutdown, closed}, State};
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
    ok = halley_edge_sender:goodbye(Writer, goodbye(Reason)),
    ok = await_goodbye(Pid, ?GOODBYE_MS_MAX),
    _ = inet:setopts(Socket, [{linger, {true, 1}}]),
    gen_tcp:close(Socket).

%% A writer that is stuck in a write, as the edge doesn't read, is not waited for; one that had no
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

%% They are told if they aren't those that the edge has.
token_keys(#state{token_keys = Version, writer = Writer} = State) ->
    case halley_token_keys:current() of
        {New, Set} when New =/= Version ->
            ok = halley_edge_sender:free(Writer, {keys, Set}),
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
            ok = halley_edge_sender:free(Writer, {ping, Nonce}),
            Tick = fun(_, Worker) -> halley_edge_worker:tick(Worker) end,
            bounded(idle_gc(State#state{doubted_at = [HeardAt || Silence > Max], nonce = Nonce + 1,
                                        requests = halley_edge_requests:tick(Requests),
                                        workers = maps:map(Tick, State#state.workers)}))
    end.

%% The heaps of a login or a storm: with a link for each of 56 workers they were a quarter of the
%% brain's memory (docs/internals/memory.md). A writer that may be stuck in a write isn't sampled.
idle_gc(#state{writer = Writer, writer_pid = Pid, by_replays = ByReplays} = State) ->
    #state{samples = Samples} = State,
    case halley_edge_sender:queue_bytes(Writer) < ?QUIET_BYTES of
        true ->
            Sampled = [self(), Pid | maps:keys(ByReplays)],
            State#state{samples = halley_edge_idle_gc:sample(Sampled, Samples)};
        false ->
            State
    end.

%% The writer watches its queue's bound itself, unless it is stuck in a write to an edge that
%% doesn't read.
bounded(#state{writer = Writer} = State) ->
    Max = halley_edge_sender:bytes_max(),
    case halley_edge_sender:queue_bytes(Writer) of
        Queued when Queued =< Max -> State;
        Queued -> broken(<<"4.7">>, "~b bytes wait for the link, at most ~b may", [Queued, Max],
                         State)
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
    ok = halley_edge_sender:free(State#state.writer, {credit, Portion}),
    give_back(State#state{dealt = Dealt - Portion, allowance = Allowance + Portion}).

free({ping, Nonce}, #state{writer = Writer} = State) ->
    ok = halley_edge_sender:free(Writer, {pong, Nonce}),
    State;
free({pong, _}, State) ->
    State;
free({credit, Bytes}, #state{writer = Writer} = State) ->
    ok = halley_edge_sender:credit(Writer, Bytes),
    State;
free({goodbye, Code, Reason}, State) ->
    {said_goodbye, Code, Reason, State};
free({hello_edge, _}, State) ->
    broken(<<"3.1">>, "a second hello", [], State);
free(_, State) ->
    broken(<<"2.3">>, "a frame of the other direction", [], State).

costly({from_worker, Index, Frame}, #state{workers = Workers} = State)
  when is_map_key(Index, Workers) ->
    #{Index := Worker} = Workers,
    of_worker(to_word(Frame, halley_edge_worker:slot(Worker)), Index, State);
costly({from_worker, Index, {sync_begin, _, _} = Begin}, #state{hello = #{workers := N}} = State)
  when Index < N ->
    case place(Index, State) of
        #state{} = Placed -> of_worker(Begin, Index, Placed);
        Ended -> Ended
    end;
costly({from_worker, Index, _}, State) ->
    broken(<<"13.4">>, "a frame of worker ~b, which has no slot", [Index], State);
costly({worker_gone, Index}, #state{workers = Workers} = State) when is_map_key(Index, Workers) ->
    gone(maps:get(Index, Workers), Index, State);
costly({worker_gone, Index}, State) ->
    broken(<<"13.7">>, "worker ~b has no slot that could end", [Index], State);
costly(Frame, State) ->
    case halley_edge_codec:is_from_edge(Frame) of
        true -> broken(<<"13.2">>, "a frame that doesn't travel by itself on a trunk", [], State);
        false -> broken(<<"2.3">>, "a frame of the other direction", [], State)
    end.

%% Of all workers, a request has this word (13.5).
to_word(Frame, Slot) when element(1, Frame) =:= request; element(1, Frame) =:= request_body;
                          element(1, Frame) =:= request_gone; element(1, Frame) =:= operation ->
    setelement(2, Frame, Slot bsl 48 bor element(2, Frame));
to_word(Frame, _) ->
    Frame.

place(Index, #state{way = Way, writer = Writer, metrics = Metrics} = State) ->
    case halley_links:register_worker(Way, info(Index, State)) of
        {ok, Slot} ->
            send({place, Index, Slot}, State),
            Handle = halley_edge_sender:to_slot(Slot, Writer),
            Worker = halley_edge_worker:new(Index, Slot, Handle, Metrics, State#state.hello),
            with_worker(Index, Worker, State);
        %% The writer found the socket closed before this process did.
        {error, gone} ->
            {closed, State};
        %% Slots come back when they were purged: the edge is dialled again.
        {error, too_many_links} ->
            ?LOG_WARNING("link ~ts: there are as many links as there can be", [State#state.path]),
            {closed, State}
    end.

gone(Worker, Index, #state{workers = Workers, by_replays = ByReplays} = State) ->
    ok = halley_edge_worker:ended(Worker),
    Left = halley_edge_requests:slot_ended(halley_edge_worker:slot(Worker), State#state.requests),
    State#state{workers = maps:remove(Index, Workers), requests = Left,
                by_replays = maps:remove(halley_edge_worker:replays(Worker), ByReplays)}.

of_worker(Request, Index, #state{workers = Workers} = State)
  when element(1, Request) =:= request; element(1, Request) =:= operation ->
    case halley_edge_requests:open(Request, State#state.requests) of
        {wish, Wish, Requests} ->
            ok = halley_edge_worker:wish(Wish, maps:get(Index, Workers)),
            State#state{requests = Requests};
        Opened ->
            requests(Opened, State)
    end;
of_worker({request_body, Conn, Flags, Data}, _, State) ->
    requests(halley_edge_requests:body(Conn, Flags, Data, State#state.requests), State);
of_worker({request_gone, Conn}, _, State) ->
    requests(halley_edge_requests:gone(Conn, State#state.requests), State);
of_worker(Frame, Index, #state{workers = Workers} = State) ->
    #{Index := Worker} = Workers,
    case halley_edge_worker:frame(Frame, Worker) of
        {broken, Problem} -> {broken, Problem, State};
        Next -> State#state{workers = Workers#{Index := Next}}
    end.

requests({broken, Problem}, State) -> {broken, Problem, State};
requests(Requests, State) -> State#state{requests = Requests}.

send(Frame, #state{writer = Writer}) ->
    halley_edge_sender:send(Writer, [iolist_to_binary(halley_edge_codec:encode(Frame))]).

broken(Clause, Format, Args, State) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}, State}.

now_ms() ->
    erlang:monotonic_time(millisecond).
