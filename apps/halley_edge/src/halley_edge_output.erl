%% The output of a link's writer: the frames that are gathered for the next write, those that wait
%% for credit (protocol/link.md 4), and the count of both. Part of the writer's state and used in
%% its process.
%%
%% Frames collect until 64 KiB are together or the writer's mailbox is empty. Free frames (PING,
%% PONG, CREDIT) go into the next write; costly ones wait while the credit is used up, so a worker
%% that deals with nothing still hears heartbeats.
%%
%% The bytes of a frame are in the queue's counter before the frame comes here, and leave it when
%% they were handed to the socket; those of a message (?MESSAGE_BYTES), where one is counted, leave
%% it here.
%%
%% Writes go by erlang:port_command/2 and the driver's {inet_reply, ...} is taken from the mailbox
%% in turn: gen_tcp:send/2 would search the mailbox for it, past every event that waits there. A
%% worker that doesn't read makes the port busy and suspends the writer; then the link (silence, or
%% the queue's bound) ends both.
-module(halley_edge_output).

-export([new/4, handle/2, enqueue/3, frames/3, queue/3, credit/2, flush/1, is_little/1, count/2]).
-export_type([output/0]).

-include("halley_edge.hrl").

-define(FLUSH_BYTES, 65536).

-record(output, {
    link :: pid(),
    socket :: gen_tcp:socket(),
    window :: pos_integer(),
    credit :: integer(),
    queue :: counters:counters_ref(),
    bytes_max :: pos_integer(),
    low_bytes :: pos_integer(),      % below it the backlog is small
    waiting = queue:new() :: queue:queue({pos_integer(), iodata()}),
    waiting_bytes = 0 :: non_neg_integer(),
    out = [] :: iolist(),            % in reverse
    out_bytes = 0 :: non_neg_integer()
}).
-opaque output() :: #output{}.

%% Queue: its first counter is what waits for the link; when it passes the bound the link ends.
-spec new(Link :: pid(), gen_tcp:socket(), Window :: pos_integer(), counters:counters_ref()) ->
    output().
new(Link, Socket, Window, Queue) ->
    #output{link = Link, socket = Socket, window = Window, credit = Window, queue = Queue,
            bytes_max = halley_edge_sender:bytes_max(),
            low_bytes = halley_limits:get(replay_queue_bytes_max)}.

%% Messages that concern what is written and nothing else.
-spec handle(Message :: tuple() | behind, output()) -> output().
handle({send, Frames}, Output) ->
    lists:foldl(fun frame/2, Output, Frames);
handle({inet_reply, _, ok}, Output) ->
    Output;
handle({free, Frame}, Output) ->
    free(Frame, Output);
handle({goodbye, _, _} = Goodbye, Output) ->
    stop(Goodbye, Output);
handle(behind, Output) ->
    Output;
handle({inet_reply, _, {error, Reason}}, _) ->
    exit({shutdown, {send, Reason}}).

%% Corrects the count of what waits.
-spec count(Bytes :: integer(), output()) -> ok.
count(Bytes, #output{queue = Queue}) ->
    counters:add(Queue, 1, Bytes).

%% Is what waits here little, without what is still in the writer's mailbox?
-spec is_little(output()) -> boolean().
is_little(#output{out_bytes = Out, waiting_bytes = Waiting, low_bytes = Low}) ->
    Out + Waiting < Low.

%% A frame of which the queue's counter knows `Counted' bytes.
-spec queue(Counted :: non_neg_integer(), iodata(), output()) -> output().
queue(Counted, Frame, Output) ->
    Whole = iolist_to_binary(Frame),
    ok = count(byte_size(Whole) - Counted, Output),
    frame(Whole, Output).

%% The same of frames whose sizes are known.
-spec frames([halley_edge_delivery:frame(), ...], Counted :: non_neg_integer(), output()) ->
    output().
frames([{Bytes, Frame}], Counted, Output) ->
    Counted =:= Bytes orelse count(Bytes - Counted, Output),
    enqueue(Bytes, Frame, Output);
frames([First | Rest], Counted, Output) ->
    frames(Rest, 0, frames([First], Counted, Output)).

frame(Frame, Output) ->
    enqueue(byte_size(Frame), Frame, Output).

%% Invariant: frames wait only while the credit is used up, so order is kept without looking at the
%% queue.
-spec enqueue(Bytes :: pos_integer(), iodata(), output()) -> output().
enqueue(Cost, Frame, #output{credit = Credit} = Output) when Credit > 0 ->
    #output{out = Out, out_bytes = Bytes} = Output,
    gathered(Output#output{credit = Credit - Cost, out = [Frame | Out], out_bytes = Bytes + Cost});
enqueue(Cost, Frame, #output{waiting = Waiting, waiting_bytes = Bytes} = Output) ->
    bounded(Output#output{waiting = queue:in({Cost, Frame}, Waiting),
                          waiting_bytes = Bytes + Cost}).

gathered(#output{out_bytes = Bytes} = Output) when Bytes >= ?FLUSH_BYTES -> flush(Output);
gathered(Output) -> Output.

%% A frame that costs no credit.
free(Frame, #output{out = Out, out_bytes = Bytes} = Output) ->
    ok = count(-?MESSAGE_BYTES, Output),
    gathered(Output#output{out = [Frame | Out], out_bytes = Bytes + byte_size(Frame)}).

%% The worker gave credit back.
-spec credit(Bytes :: non_neg_integer(), output()) -> output().
credit(Bytes, #output{credit = Credit, window = Window} = Output)
  when Credit + Bytes =< Window ->
    ok = count(-?MESSAGE_BYTES, Output),
    drain(Output#output{credit = Credit + Bytes});
credit(Bytes, #output{credit = Credit, window = Window} = Output) ->
    What = io_lib:format("CREDIT ~b on top of ~b in a window of ~b", [Bytes, Credit, Window]),
    fail({<<"4.3">>, iolist_to_binary(What)}, Output).

drain(#output{credit = Credit, waiting = Waiting, waiting_bytes = Bytes} = Output)
  when Credit > 0 ->
    case queue:out(Waiting) of
        {{value, {Cost, Frame}}, Rest} ->
            drain(enqueue(Cost, Frame, Output#output{waiting = Rest,
                                                     waiting_bytes = Bytes - Cost}));
        {empty, _} ->
            Output
    end;
drain(Output) ->
    Output.

bounded(#output{queue = Queue, bytes_max = Max} = Output) ->
    case counters:get(Queue, 1) of
        Bytes when Bytes =< Max ->
            Output;
        Bytes ->
            What = io_lib:format("~b bytes wait for the link, at most ~b may", [Bytes, Max]),
            fail({<<"4.7">>, iolist_to_binary(What)}, Output)
    end.

-spec flush(output()) -> output().
flush(#output{out_bytes = 0} = Output) ->
    Output;
flush(#output{out = Out, out_bytes = Bytes, queue = Queue} = Output) ->
    write(Out, Output),
    counters:sub(Queue, 1, Bytes),
    Output#output{out = [], out_bytes = 0}.

%% One binary: the driver writes at most sixteen parts of an iovec in one go and queues the rest.
write(Out, #output{socket = Socket}) ->
    try erlang:port_command(Socket, iolist_to_binary(lists:reverse(Out))) of
        true -> ok
    catch
        error:_ -> exit({shutdown, {send, closed}})
    end.

-spec fail(halley_edge_codec:problem(), output()) -> no_return().
fail(Problem, #output{link = Link} = Output) ->
    Link ! {broken, Problem},
    stop(halley_edge_goodbye:answer(Problem), Output).

%% Writes GOODBYE behind what is gathered and ends the writer.
stop(Goodbye, #output{out = Out} = Output) ->
    write([halley_edge_codec:encode(Goodbye) | Out], Output),
    exit({shutdown, goodbye}).
