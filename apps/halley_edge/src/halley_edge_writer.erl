%% The writing half of a link: one process per link, which turns messages into frames and keeps the
%% credit that the worker granted (protocol/link.md 4).
%%
%% It gathers: frames collect until 64 KiB are together or its mailbox is empty, then they are
%% written at once, so batching needs no timer. Free frames (PING, PONG, CREDIT) go into the next
%% write; costly ones wait in `waiting' while the credit is used up, so a worker that deals with
%% nothing still hears heartbeats.
%%
%% The queue is bounded by bytes, not by messages: whoever sends a frame adds its bytes to the
%% counter that halley_links gave the link (index 1), free ones too, and the writer subtracts them
%% when they were handed to the socket. Beyond `link_queue_bytes_max' the link ends with GOODBYE 8
%% (4.7).
%%
%% Messages: {deliver, Event, Conns} and {close_sessions, Reason, Conns} from halley_links, which
%% counts the first and not the second; the others come through the functions here.
%%
%% Writes go by erlang:port_command/2 and the driver's {inet_reply, ...} is taken from the mailbox
%% in turn: gen_tcp:send/2 would search the mailbox for it, past every event that waits there. A
%% worker that doesn't read makes the port busy and suspends the writer; then the link (silence, or
%% the queue's bound) ends both.
%%
%% Not here: reading, the meaning of frames, and when the link ends for any other reason.
-module(halley_edge_writer).

-export([start_link/3, attach/2, send/2, free/2, credit/2, goodbye/2, queue_bytes/1]).
-export([init/4]).
-export_type([handle/0]).

-include("halley_edge.hrl").

-opaque handle() :: {pid(), counters:counters_ref()}.

-define(FLUSH_BYTES, 65536).
%% Conns per frame where the list isn't bounded by who sends it.
-define(CLOSE_CONNS_MAX, 8192).
-define(DELIVER_HEAD_BYTES, 16).

-record(state, {
    link :: pid(),
    socket :: gen_tcp:socket(),
    window :: pos_integer(),
    credit :: integer(),
    queue :: counters:counters_ref(),
    queue_bytes_max :: pos_integer(),
    waiting = queue:new() :: queue:queue({pos_integer(), iodata()}),
    out = [] :: iolist(),            % in reverse
    out_bytes = 0 :: non_neg_integer()
}).

%% Starts a writer for the calling link. It waits for attach/2, since only a registered writer has a
%% counter.
-spec start_link(gen_tcp:socket(), Window :: pos_integer(), QueueBytesMax :: pos_integer()) ->
    {ok, pid()}.
start_link(Socket, Window, QueueBytesMax) ->
    Link = self(),
    Options = [link, {message_queue_data, off_heap}, {fullsweep_after, 20}],
    {ok, spawn_opt(?MODULE, init, [Link, Socket, Window, QueueBytesMax], Options)}.

%% Hands over the counter that halley_links:register/2 gave for this writer.
-spec attach(pid(), counters:counters_ref()) -> handle().
attach(Writer, Queue) ->
    Writer ! {attach, Queue},
    {Writer, Queue}.

%% Queues whole, encoded, costly frames; they stay together and in order.
-spec send(handle(), [binary()]) -> ok.
send({Writer, Queue}, Frames) ->
    counters:add(Queue, 1, iolist_size(Frames)),
    Writer ! {send, Frames},
    ok.

%% Queues a frame that costs no credit.
-spec free(handle(), {ping | pong, non_neg_integer()} | {credit, non_neg_integer()}) -> ok.
free({Writer, Queue}, Frame) ->
    Encoded = halley_edge_codec:encode(Frame),
    counters:add(Queue, 1, byte_size(Encoded)),
    Writer ! {free, Encoded},
    ok.

%% The worker gave credit back.
-spec credit(handle(), Bytes :: non_neg_integer()) -> ok.
credit({Writer, _}, Bytes) ->
    Writer ! {credit, Bytes},
    ok.

%% Writes GOODBYE behind what is already written, drops what waits, and ends the writer.
-spec goodbye(handle(), {goodbye, 1..8, binary()}) -> ok.
goodbye({Writer, _}, Goodbye) ->
    Writer ! Goodbye,
    ok.

%% What waits to be written.
-spec queue_bytes(handle()) -> integer().
queue_bytes({_, Queue}) ->
    counters:get(Queue, 1).

-spec init(pid(), gen_tcp:socket(), pos_integer(), pos_integer()) -> no_return().
init(Link, Socket, Window, QueueBytesMax) ->
    receive
        {attach, Queue} ->
            idle(#state{link = Link, socket = Socket, window = Window, credit = Window,
                        queue = Queue, queue_bytes_max = QueueBytesMax})
    end.

idle(State) ->
    receive
        Message -> busy(handle(Message, State))
    end.

busy(#state{out_bytes = Bytes} = State) when Bytes >= ?FLUSH_BYTES ->
    busy(flush(State));
busy(State) ->
    receive
        Message -> busy(handle(Message, State))
    after 0 ->
        idle(flush(State))
    end.

handle({deliver, Event, Conns}, State) ->
    #{json := Json, data_offset := DataOffset, cursor := Cursor} = Event,
    deliver(Cursor, DataOffset, Json, Conns, State);
handle({send, Frames}, State) ->
    lists:foldl(fun(Frame, S) -> enqueue(byte_size(Frame), Frame, S) end, State, Frames);
handle({inet_reply, _, ok}, State) ->
    State;
handle({free, Frame}, #state{out = Out, out_bytes = Bytes} = State) ->
    State#state{out = [Frame | Out], out_bytes = Bytes + byte_size(Frame)};
handle({credit, Bytes}, #state{credit = Credit, window = Window} = State)
  when Credit + Bytes =< Window ->
    drain(State#state{credit = Credit + Bytes});
handle({credit, Bytes}, #state{credit = Credit, window = Window} = State) ->
    What = io_lib:format("CREDIT ~b on top of ~b in a window of ~b", [Bytes, Credit, Window]),
    fail({<<"4.3">>, iolist_to_binary(What)}, State);
handle({close_sessions, Reason, Conns}, State) ->
    close_sessions(Reason, Conns, State);
handle({goodbye, _, _} = Goodbye, State) ->
    stop(Goodbye, State);
handle({inet_reply, _, {error, Reason}}, _) ->
    exit({shutdown, {send, Reason}}).

%% One frame as a rule. An event that leaves no room for all its connections travels several times.
deliver(Cursor, DataOffset, Json, Conns, State) ->
    Event = ?DELIVER_HEAD_BYTES + byte_size(Cursor) + byte_size(Json),
    Free = ?FRAME_BYTES_MAX + 4 - Event,
    case byte_size(Conns) of
        Bytes when Bytes =< Free ->
            Frame = halley_edge_codec:encode_deliver(Cursor, DataOffset, Json, Conns),
            enqueue(Event + Bytes, Frame, State);
        _ when Free >= 8 ->
            Part = Free div 8 * 8,
            <<First:Part/binary, Rest/binary>> = Conns,
            counters:add(State#state.queue, 1, Event),
            deliver(Cursor, DataOffset, Json, Rest,
                    deliver(Cursor, DataOffset, Json, First, State))
    end.

close_sessions(Reason, Conns, State) ->
    {Now, Later} = lists:split(min(?CLOSE_CONNS_MAX, length(Conns)), Conns),
    Frame = iolist_to_binary(halley_edge_codec:encode({close_sessions, Reason, Now})),
    counters:add(State#state.queue, 1, byte_size(Frame)),
    Next = enqueue(byte_size(Frame), Frame, State),
    case Later of
        [] -> Next;
        _ -> close_sessions(Reason, Later, Next)
    end.

%% Invariant: frames wait only while the credit is used up, so order is kept without looking at the
%% queue.
enqueue(Cost, Frame, #state{credit = Credit} = State) when Credit > 0 ->
    #state{out = Out, out_bytes = Bytes} = State,
    gathered(State#state{credit = Credit - Cost, out = [Frame | Out], out_bytes = Bytes + Cost});
enqueue(Cost, Frame, #state{waiting = Waiting} = State) ->
    bounded(State#state{waiting = queue:in({Cost, Frame}, Waiting)}).

gathered(#state{out_bytes = Bytes} = State) when Bytes >= ?FLUSH_BYTES -> flush(State);
gathered(State) -> State.

drain(#state{credit = Credit, waiting = Waiting} = State) when Credit > 0 ->
    case queue:out(Waiting) of
        {{value, {Cost, Frame}}, Rest} -> drain(enqueue(Cost, Frame, State#state{waiting = Rest}));
        {empty, _} -> State
    end;
drain(State) ->
    State.

bounded(#state{queue = Queue, queue_bytes_max = Max} = State) ->
    case counters:get(Queue, 1) of
        Bytes when Bytes =< Max ->
            State;
        Bytes ->
            What = io_lib:format("~b bytes wait for the link, at most ~b may", [Bytes, Max]),
            fail({<<"4.7">>, iolist_to_binary(What)}, State)
    end.

flush(#state{out_bytes = 0} = State) ->
    State;
flush(#state{out = Out, out_bytes = Bytes, queue = Queue} = State) ->
    write(Out, State),
    counters:sub(Queue, 1, Bytes),
    State#state{out = [], out_bytes = 0}.

%% One binary: the driver writes at most sixteen parts of an iovec in one go and queues the rest.
write(Out, #state{socket = Socket}) ->
    try erlang:port_command(Socket, iolist_to_binary(lists:reverse(Out))) of
        true -> ok
    catch
        error:_ -> exit({shutdown, {send, closed}})
    end.

-spec fail(halley_edge_codec:problem(), #state{}) -> no_return().
fail(Problem, #state{link = Link} = State) ->
    Link ! {broken, Problem},
    stop(halley_edge_codec:goodbye(Problem), State).

-spec stop({goodbye, 1..8, binary()}, #state{}) -> no_return().
stop(Goodbye, #state{out = Out} = State) ->
    write([halley_edge_codec:encode(Goodbye) | Out], State),
    exit({shutdown, goodbye}).
