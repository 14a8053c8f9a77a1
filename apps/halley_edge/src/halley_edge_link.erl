%% The reading half of a link: one process per worker of the edge (protocol/link.md).
%%
%% It dials, shakes hands, starts its writer, and from then on turns frames into what they ask for:
%% sessions opened and closed in the directory, a process for each request, counters for the
%% metrics. It decides nothing about events, and holds nothing about a connection: sessions are in
%% the directory, under this link's slot; only open requests are in its state
%% (halley_edge_requests).
%%
%% Whatever breaks a clause ends the link: GOODBYE with the clause, one line in the log, exit.
%% Nothing is repaired; the registry forgets the slot's sessions when the writer dies, and
%% halley_edge_dialer dials again.
%%
%% Credit (4.3): a frame is dealt with when its sessions are in the directory or refused, its
%% request has a process, its body bytes are with that process (which request windows bound by
%% themselves, 8.3), or there was nothing to do.
%%
%% Lifetimes: writer and requests are linked to this process and none of them outlives it. A
%% request's death is its answer's business; the writer's death is the link's.
-module(halley_edge_link).
-behaviour(gen_server).

-export([start_link/2, stop/1, shutdown_edge/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-define(READS, 64).                  % messages before the socket asks whether to go on
-define(OPENED_MAX, 16384).          % per frame: OPEN's entries are smaller than OPENED's

-record(state, {
    path :: binary(),
    dialer :: pid(),
    socket :: gen_tcp:socket() | undefined,
    hello = #{} :: map(),
    writer :: halley_edge_writer:handle() | undefined,
    writer_pid :: pid() | undefined,
    slot :: halley_links:slot() | undefined,
    requests :: halley_edge_requests:requests() | undefined,
    buffer = <<>> :: binary(),
    sync = before :: before | running | done,
    window :: pos_integer() | undefined,
    %% What the worker may still send, and what was dealt with and isn't given back yet.
    allowance = 0 :: integer(),
    dealt = 0 :: non_neg_integer(),
    heard_at = 0 :: integer(),
    nonce = 0 :: non_neg_integer()
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

%%% Meeting

-spec init({binary(), pid()}) -> {ok, #state{}, {continue, dial}}.
init({Path, Dialer}) ->
    process_flag(trap_exit, true),
    {ok, #state{path = Path, dialer = Dialer}, {continue, dial}}.

-spec handle_continue(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_continue(dial, #state{path = Path} = State) ->
    case halley_edge_dial:dial(Path) of
        {ok, Meeting} ->
            handled(met(Meeting, State));
        {error, Reason} ->
            log_refusal(Path, Reason),
            {stop, {shutdown, {dial, Reason}}, State}
    end.

%% An edge that isn't there yet is the dialer's patience, not news.
log_refusal(_, {connect, _}) ->
    ok;
log_refusal(Path, Reason) ->
    ?LOG_WARNING("link ~ts: ~ts", [Path, halley_edge_dial:reason_text(Reason)]).

met(#{socket := Socket, hello := Hello, window := Window, frames := Frames, rest := Rest}, State) ->
    #{window := Credit, worker := Worker, pid := OsPid} = Hello,
    QueueBytesMax = halley_limits:get(link_queue_bytes_max),
    {ok, WriterPid} = halley_edge_writer:start_link(Socket, Credit, QueueBytesMax),
    {ok, Slot, Queue} = halley_links:register(WriterPid, #{worker => Worker, pid => OsPid,
                                                           build => copy(build, Hello)}),
    Writer = halley_edge_writer:attach(WriterPid, Queue),
    State#state.dialer ! {up, self(), Hello},
    _ = erlang:send_after(halley_limits:get(heartbeat_ms), self(), tick),
    self() ! read,
    take(Frames, State#state{
        socket = Socket, writer = Writer, writer_pid = WriterPid, slot = Slot, hello = Hello,
        requests = halley_edge_requests:new(Writer), buffer = Rest, window = Window,
        allowance = Window, heard_at = now_ms()}).

copy(Key, Map) ->
    binary:copy(maps:get(Key, Map)).

%%% Messages

-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
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
handle_info({'EXIT', Pid, Reason}, #state{writer_pid = Pid} = State) ->
    {stop, Reason, State};
handle_info({'EXIT', Pid, Reason}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:ended(Pid, Reason, Requests)}};
handle_info({request_credit, Pid, Conn, Bytes}, #state{requests = Requests} = State) ->
    {noreply, State#state{requests = halley_edge_requests:credit(Pid, Conn, Bytes, Requests)}};
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

log_broken({Clause, What}, #state{path = Path}) ->
    ?LOG_WARNING("link ~ts: closed, clause ~ts of link.md is broken: ~ts", [Path, Clause, What]).

-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{socket = undefined}) ->
    ok;
terminate(Reason, #state{socket = Socket, writer = Writer, writer_pid = Pid}) ->
    ok = halley_edge_writer:goodbye(Writer, goodbye(Reason)),
    receive {'EXIT', Pid, _} -> ok after 200 -> exit(Pid, kill) end,
    _ = inet:setopts(Socket, [{linger, {true, 1}}]),
    gen_tcp:close(Socket).

goodbye({shutdown, {broken, Problem}}) -> halley_edge_codec:goodbye(Problem);
goodbye(_) -> {goodbye, ?GOODBYE_STOPPING, <<"the brain stops this link">>}.

%%% Time

tick(#state{heard_at = HeardAt, writer = Writer, nonce = Nonce, requests = Requests} = State) ->
    Silence = now_ms() - HeardAt,
    case halley_limits:get(silence_ms) of
        Max when Silence > Max ->
            broken(<<"4.5">>, "nothing heard for ~b ms", [Silence], State);
        _ ->
            _ = erlang:send_after(halley_limits:get(heartbeat_ms), self(), tick),
            ok = halley_edge_writer:free(Writer, {ping, Nonce}),
            bounded(State#state{requests = halley_edge_requests:tick(Requests), nonce = Nonce + 1})
    end.

%% The writer watches its queue's bound itself, unless it is stuck in a write to a worker that
%% doesn't read.
bounded(#state{writer = Writer} = State) ->
    Max = halley_limits:get(link_queue_bytes_max),
    case halley_edge_writer:queue_bytes(Writer) of
        Queued when Queued =< Max ->
            State;
        Queued ->
            broken(<<"4.7">>, "~b bytes wait for the link, at most ~b may", [Queued, Max], State)
    end.

%%% Frames

received({ok, Frames, Rest}, State) ->
    take(Frames, State#state{buffer = Rest, heard_at = now_ms()});
received({error, Problem}, State) ->
    {broken, Problem, State}.

take([], State) ->
    bounded(give_back(State));
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
free({hello_brain, _}, State) ->
    broken(<<"2.3">>, "a frame of the other direction", [], State).

costly({request, _, _, _, _, _, _, _} = Request, State) ->
    requests(halley_edge_requests:open(Request, State#state.requests), State);
costly({request_body, Conn, Flags, Data}, State) ->
    requests(halley_edge_requests:body(Conn, Flags, Data, State#state.requests), State);
costly({request_gone, Conn}, State) ->
    requests(halley_edge_requests:gone(Conn, State#state.requests), State);
costly({sync_begin, _}, #state{sync = before} = State) ->
    State#state{sync = running};
costly(sync_end, #state{sync = running} = State) ->
    State#state{sync = done};
costly({stats, Values}, State) ->
    stats(Values, State);
costly({open, Opening}, #state{sync = Sync} = State) when Sync =/= before ->
    open(Opening, State);
costly({close, Closing}, #state{sync = Sync, slot = Slot} = State) when Sync =/= before ->
    lists:foreach(fun({Conn, Number}) ->
        ok = halley_directory:close(Number, {link, Slot, Conn})
    end, Closing),
    State;
costly(Frame, State) ->
    case halley_edge_codec:is_from_edge(Frame) of
        true -> broken(<<"6.1">>, "a frame out of its place in the sync", [], State);
        false -> broken(<<"2.3">>, "a frame of the other direction", [], State)
    end.

requests({broken, Problem}, State) -> {broken, Problem, State};
requests(Requests, State) -> State#state{requests = Requests}.

stats(Values, #state{hello = #{metrics := Metrics}, slot = Slot} = State)
  when length(Values) =:= length(Metrics) ->
    ok = halley_metrics:edge(Slot, Metrics, Values),
    State;
stats(Values, #state{hello = #{metrics := Metrics}} = State) ->
    broken(<<"3.4">>, "~b values for ~b metrics", [length(Values), length(Metrics)], State).

%%% Sessions

%% OPENED is sent after the directory knows, so that no event that is published after the client's
%% welcome is missed (6.2).
open(Opening, #state{slot = Slot} = State) ->
    {Opened, Refused} = halley_edge_sessions:open(Slot, Opening),
    send_opened(Opened, State),
    lists:foreach(fun(Refusal) -> send(Refusal, State) end, Refused),
    State.

send_opened([], _) ->
    ok;
send_opened(Opened, State) ->
    {Now, Later} = lists:split(min(?OPENED_MAX, length(Opened)), Opened),
    send({opened, Now}, State),
    send_opened(Later, State).

send(Frame, #state{writer = Writer}) ->
    halley_edge_writer:send(Writer, [iolist_to_binary(halley_edge_codec:encode(Frame))]).

broken(Clause, Format, Args, State) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}, State}.

now_ms() ->
    erlang:monotonic_time(millisecond).
