%% The writing half of a link: one process per link, which turns messages into frames, knows where
%% the link stands (halley_edge_position), and keeps the credit that the worker granted
%% (protocol/link.md 4).
%%
%% It gathers: frames collect until 64 KiB are together or its mailbox is empty, then they are
%% written at once, so batching needs no timer (halley_edge_output).
%%
%% The queue is bounded by bytes, not by messages: the sender of a frame adds its bytes to the
%% counter that halley_links gave the link (index 1), free ones too, and the writer subtracts them
%% when they were handed to the socket. Events stop at `link_queue_bytes_max': halley_links sends
%% none and the link is behind. Once the backlog is small the writer starts a catch-up, as it does
%% when a sync began at an older cursor (10.6). Other frames may take as much again; beyond that the
%% link ends with GOODBYE 8 (4.7).
%%
%% Messages from halley_links, which counts the first three only: {deliver, Deliveries}, {members,
%% What, Group, Conns}, {close_sessions, Reason, Conns}, {end_group, Group}, {mark, Shard, Seq}; the
%% rest by functions here and in halley_edge_catchup. Messages about groups stay in order with the
%% events: while these are held, so are they (docs/internals/celebrities.md).
%%
%% Not here: reading, the meaning of frames, and when the link ends for any other reason.
-module(halley_edge_writer).

-export([start_link/2, attach/4, send/2, free/2, credit/2, goodbye/2, queue_bytes/1, bytes_max/0]).
-export([opened/2, last/4, sync_begin/2, sync_end/1]).
-export([init/3]).
-export_type([handle/0]).

-include("halley_edge.hrl").

-opaque handle() :: {pid(), counters:counters_ref()}.

-define(CURSOR_MS, 250).             % between CURSOR frames
-define(MARK_MS, 10).                % between requests for marks
-define(CLOCK_MS, 1000).             % for which cursors' time may stand still

-record(state, {
    slot :: halley_links:slot(),
    output :: halley_edge_output:output(),
    low_bytes :: pos_integer(),      % below it the backlog is small
    position :: halley_edge_position:position(),
    catchup = none :: none | {pid(), running | waiting},
    %% A CURSOR is sent when the timer comes if the vector moved without a frame that told it.
    cursor_due = no :: no | idle | moved,
    marks_asked = false :: boolean()
}).

%% Starts a writer for the calling link. It waits for attach/4.
-spec start_link(gen_tcp:socket(), Window :: pos_integer()) -> {ok, pid()}.
start_link(Socket, Window) ->
    Link = self(),
    %% In words: room for the frames of a flush, so that fewer collections find nothing.
    Options = [link, {message_queue_data, off_heap}, {fullsweep_after, 20},
               {min_heap_size, 16384}, {min_bin_vheap_size, 131072}],
    {ok, spawn_opt(?MODULE, init, [Link, Socket, Window], Options)}.

%% Hands over what halley_links:register/2 gave, and heads of then or later to begin with.
-spec attach(pid(), halley_links:slot(), counters:counters_ref(), halley_history:vector()) ->
    handle().
attach(Writer, Slot, Queue, Heads) ->
    Writer ! {attach, Slot, Queue, Heads},
    {Writer, Queue}.

%% Queues whole, encoded, costly frames; they stay together and in order.
-spec send(handle(), [binary()]) -> ok.
send({Writer, Queue}, Frames) ->
    counters:add(Queue, 1, iolist_size(Frames)),
    Writer ! {send, Frames},
    ok.

%% Queues a frame that costs no credit.
-spec free(handle(), {ping | pong | credit, non_neg_integer()} | {keys, halley_jwks:set()}) -> ok.
free({Writer, Queue}, Frame) ->
    Encoded = iolist_to_binary(halley_edge_codec:encode(Frame)),
    counters:add(Queue, 1, ?MESSAGE_BYTES + byte_size(Encoded)),
    Writer ! {free, Encoded},
    ok.

%% The worker gave credit back.
-spec credit(handle(), Bytes :: non_neg_integer()) -> ok.
credit({Writer, Queue}, Bytes) ->
    counters:add(Queue, 1, ?MESSAGE_BYTES),
    Writer ! {credit, Bytes},
    ok.

%% Queues OPENED for sessions that came without a cursor and are in the directory. It is sent with
%% the link's once that has reached the present heads, so that nothing from before comes back by it.
-spec opened(handle(), [{halley_edge_codec:conn(), non_neg_integer()}]) -> ok.
opened({Writer, Queue}, Opened) ->
    Counted = iolist_size(halley_edge_codec:encode({opened, <<>>, Opened})),
    counters:add(Queue, 1, Counted),
    Writer ! {opened, Counted, halley_history:heads(), Opened},
    ok.

%% Queues the REPLAY with LAST; it is sent, with the link's cursor, once that has reached the heads
%% and those of the LASTs before it.
-spec last(handle(), halley_edge_codec:conn(), Heads :: halley_history:vector(),
           halley_edge_encoder:items()) -> ok.
last({Writer, Queue}, Conn, Heads, Items) ->
    Counted = iolist_size(last_frame(Conn, <<>>, Heads, Items)),
    counters:add(Queue, 1, Counted),
    Writer ! {last, Counted, Conn, Heads, Items},
    ok.

last_frame(Conn, Cursor, Heads, Items) ->
    halley_edge_encoder:encode_replay(Conn, ?FLAG_LAST, Cursor, tuple_to_list(Heads), Items).

%% SYNC_BEGIN came. The worker gets a CURSOR before any session is opened.
-spec sync_begin(handle(), halley_edge_catchup:start()) -> ok.
sync_begin({Writer, _}, Start) ->
    Writer ! {sync_begin, Start},
    ok.

%% SYNC_END came and all sessions that it ends are in the directory.
-spec sync_end(handle()) -> ok.
sync_end({Writer, _}) ->
    Writer ! sync_end,
    ok.

%% Writes GOODBYE behind what is already written, drops what waits, and ends the writer.
-spec goodbye(handle(), {goodbye, 1..8, binary()}) -> ok.
goodbye({Writer, _}, Goodbye) ->
    Writer ! Goodbye,
    ok.

-spec queue_bytes(handle()) -> integer().
queue_bytes({_, Queue}) ->
    counters:get(Queue, 1).

-spec bytes_max() -> pos_integer().
bytes_max() ->
    2 * halley_limits:get(link_queue_bytes_max).

-spec init(pid(), gen_tcp:socket(), pos_integer()) -> no_return().
init(Link, Socket, Window) ->
    receive
        {attach, Slot, Queue, Heads} ->
            Output = halley_edge_output:new(Link, Socket, Window, Queue, bytes_max()),
            idle(#state{slot = Slot, output = Output,
                        position = halley_edge_position:new(halley_history:store(), Heads),
                        low_bytes = halley_limits:get(replay_queue_bytes_max)})
    end.

idle(State) ->
    Ready = behind(pace(State)),
    receive
        Message -> busy(handle(Message, Ready))
    after ?CLOCK_MS ->
        %% Messages may have come before this process noticed that it is late.
        busy(Ready)
    end.

busy(State) ->
    receive
        Message -> busy(handle(Message, State))
    after 0 ->
        idle(output(halley_edge_output:flush(State#state.output), State))
    end.

output(Output, State) ->
    State#state{output = Output}.

handle({deliver, Deliveries}, State) ->
    settle(lists:foldl(fun event/2, State, Deliveries));
handle({send, Frames}, #state{output = Output} = State) ->
    output(lists:foldl(fun halley_edge_output:frame/2, Output, Frames), State);
handle({inet_reply, _, ok}, State) ->
    State;
handle({mark, Shard, Seq}, State) ->
    settle(mark(Shard, Seq, State));
handle({members, _, _, _} = Members, State) ->
    of_group(Members, State);
handle({end_group, _} = End, State) ->
    of_group(End, State);
handle({free, Frame}, #state{output = Output} = State) ->
    output(halley_edge_output:free(Frame, Output), State);
handle({credit, Bytes}, #state{output = Output} = State) ->
    pace(output(halley_edge_output:credit(Bytes, Output), State));
handle({opened, Counted, Heads, Opened}, #state{position = Position} = State) ->
    Waiter = {opened, Counted, Opened},
    settle(State#state{position = halley_edge_position:await(opening, Heads, Waiter, Position)});
handle({last, Counted, Conn, Heads, Items}, #state{position = Position} = State) ->
    Waiter = {Counted, Conn, Items},
    settle(State#state{position = halley_edge_position:await(last, Heads, Waiter, Position)});
handle({catchup, Pid, What}, #state{catchup = {Pid, _}} = State) ->
    settle(catchup(What, State));
handle({close_sessions, Reason, Conns}, State) ->
    close_sessions(Reason, Conns, halley_links:close_cost(Conns), State);
handle(cursor_due, State) ->
    cursor_due(State);
handle(ask_marks, State) ->
    settle(State#state{marks_asked = false});
handle({sync_begin, Start}, State) ->
    begin_at(Start, State);
handle(sync_end, State) ->
    sync_ended(State);
handle({goodbye, _, _} = Goodbye, #state{output = Output}) ->
    halley_edge_output:stop(Goodbye, Output);
handle(behind, State) ->
    State;
handle({inet_reply, _, {error, Reason}}, _) ->
    exit({shutdown, {send, Reason}}).

%%% Events and where the link stands

event({Delivery, To}, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        live ->
            deliver(Delivery, To, halley_links:cost(Delivery, To), State);
        holding ->
            State#state{position = halley_edge_position:keep({Delivery, To}, Position)};
        skipping ->
            uncount(halley_links:cost(Delivery, To), State)
    end.

%% Counted is what the queue's counter knows of it.
deliver(Delivery, To, Counted, #state{position = Position} = State) ->
    {Frames, Passed} = halley_edge_delivery:frames(Delivery, To, Position),
    enqueue(Frames, Counted, State#state{position = Passed}).

enqueue([{Bytes, Frame}], Counted, #state{output = Output} = State) ->
    Counted =:= Bytes orelse halley_edge_output:count(Bytes - Counted, Output),
    State#state{output = halley_edge_output:enqueue(Bytes, Frame, Output)};
enqueue([First | Rest], Counted, State) ->
    enqueue(Rest, 0, enqueue([First], Counted, State)).

%% A catch-up looks nothing up in groups, so their changes need not wait for it; but they must not
%% overtake events that are held.
of_group(Message, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        holding -> State#state{position = halley_edge_position:keep(Message, Position)};
        _ -> tell_group(Message, State)
    end.

tell_group({members, What, Group, Conns}, State) ->
    enqueue(halley_edge_delivery:members(What, Group, Conns), byte_size(Conns), State);
tell_group({end_group, Group}, State) ->
    queue(0, halley_edge_codec:encode({group_end, Group}), State).

cursor(#state{position = Position} = State) ->
    {Cursor, Next} = halley_edge_position:cursor(Position),
    {Cursor, State#state{position = Next}}.

%% A frame that tells the worker where the link stands.
told(#state{cursor_due = moved} = State) -> State#state{cursor_due = idle};
told(State) -> State.

mark(Shard, Seq, #state{position = Position} = State) ->
    case halley_edge_position:marked(Shard, Seq, Position) of
        {moved, Next} -> moved(State#state{position = Next});
        {same, Next} -> State#state{position = Next}
    end.

moved(#state{cursor_due = no} = State) ->
    _ = erlang:send_after(?CURSOR_MS, self(), cursor_due),
    State#state{cursor_due = moved};
moved(State) ->
    State#state{cursor_due = moved}.

cursor_due(#state{cursor_due = moved} = State) ->
    tell_cursor(State#state{cursor_due = no});
cursor_due(State) ->
    State#state{cursor_due = no}.

tell_cursor(State) ->
    {Cursor, Next} = cursor(State),
    queue(0, halley_edge_codec:encode({cursor, Cursor}), Next).

%% What waited for the vector is sent; while something waits, the shards are asked to mark.
settle(#state{position = Position} = State) ->
    case halley_edge_position:awaits(Position) of
        false ->
            State;
        true ->
            {Reached, Next} = halley_edge_position:reached(Position),
            ask_marks(lists:foldl(fun reached/2, State#state{position = Next}, Reached))
    end.

reached({_, {opened, Counted, Opened}}, State) ->
    {Cursor, Next} = cursor(State),
    queue(Counted, halley_edge_codec:encode({opened, Cursor, Opened}), Next);
reached({Heads, {Counted, Conn, Items}}, State) ->
    {Cursor, Next} = cursor(State),
    queue(Counted, last_frame(Conn, Cursor, Heads, Items), told(Next)).

ask_marks(#state{marks_asked = false, position = Position, slot = Slot} = State) ->
    Useful = halley_edge_position:awaits(Position)
        andalso halley_edge_position:mode(Position) =:= live
        andalso not halley_links:is_behind(Slot),
    case Useful of
        true ->
            ok = halley_shard:mark_all(Slot),
            _ = erlang:send_after(?MARK_MS, self(), ask_marks),
            State#state{marks_asked = true};
        false ->
            State
    end;
ask_marks(State) ->
    State.

%%% Syncs and catch-ups

begin_at(here, State) ->
    tell_cursor(State);
begin_at({from, Second, Vector}, State) ->
    tell_cursor(older(Second, Vector, State));
begin_at({gap, Reason, FromMs, ToMs, Vector}, State) ->
    Counter = case Reason of malformed -> gap_malformed; other_store -> gap_other_store end,
    ok = halley_metrics:incr(Counter),
    {Cursor, Next} = cursor(older(ToMs div 1000, Vector, State)),
    Gap = #{reason => Reason, from => FromMs, to => ToMs, cursor => Cursor},
    tell_cursor(gap(Gap, Next)).

older(Second, Vector, #state{position = Position} = State) ->
    Moved = halley_edge_position:clock(Second, halley_edge_position:move_to(Vector, Position)),
    State#state{position = halley_edge_position:skip(Moved)}.

%% To every session of the worker.
gap(#{reason := Reason, from := FromMs, to := ToMs, cursor := Cursor}, State) ->
    Frame = {gap, atom_to_binary(Reason), FromMs, ToMs, Cursor, []},
    queue(0, halley_edge_codec:encode(Frame), State).

sync_ended(#state{catchup = none, position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        skipping -> start_catchup(State);
        live -> State
    end;
sync_ended(State) ->
    State.

start_catchup(#state{slot = Slot, position = Position} = State) ->
    {Vector, Second} = halley_edge_position:stands_at(Position),
    Catchup = halley_edge_catchup:start_link(Slot, Vector, Second),
    State#state{catchup = {Catchup, running}, position = halley_edge_position:skip(Position)}.

%% A catch-up goes on when what waits is little.
pace(#state{catchup = {Pid, waiting}} = State) ->
    case is_little(State) of
        true ->
            ok = halley_edge_catchup:go_on(Pid),
            State#state{catchup = {Pid, running}};
        false ->
            State
    end;
pace(State) ->
    State.

%% A link that is behind catches up when what waits is little. Never in the midst of a message:
%% what is sent then would be sent again. The time that cursors carry is that of the last moment at
%% which nothing waited here, or was left to a catch-up: what they lack is not older.
behind(#state{catchup = none, slot = Slot, position = Position} = State) ->
    case halley_links:is_behind(Slot) of
        false ->
            Second = erlang:system_time(second),
            State#state{position = halley_edge_position:clock(Second, Position)};
        true ->
            Begins = is_little(State) andalso halley_edge_position:mode(Position) =:= live,
            case Begins of true -> start_catchup(State); false -> State end
    end;
behind(State) ->
    State.

is_little(#state{output = Output, low_bytes = Low}) ->
    halley_edge_output:backlog(Output) < Low.

catchup({portion, Gaps, Events, Next}, State) ->
    Told = lists:foldl(fun gap/2, State, Gaps),
    Deliver = fun({Delivery, Conns}, S) -> deliver(Delivery, Conns, 0, S) end,
    #state{position = Position, catchup = {Pid, _}} = Sent = lists:foldl(Deliver, Told, Events),
    pace(moved(Sent#state{catchup = {Pid, waiting},
                          position = halley_edge_position:move_to(Next, Position)}));
catchup(hold, #state{position = Position, catchup = {Pid, _}} = State) ->
    ok = halley_edge_catchup:go_on(Pid),
    State#state{position = halley_edge_position:hold(Position)};
catchup({reached, Heads}, #state{position = Position} = State) ->
    {Held, Marks, Live} = halley_edge_position:release(Heads, Position),
    Sent = lists:foldl(fun(Kept, S) -> release(Kept, Heads, S) end,
                       moved(State#state{position = Live, catchup = none}), Held),
    lists:foldl(fun({Shard, Seq}, S) -> mark(Shard, Seq, S) end, Sent, Marks).

release({{Shard, Seq, _} = Delivery, To}, Heads, State) when Seq =< element(Shard, Heads) ->
    uncount(halley_links:cost(Delivery, To), State);
release({{_, _, _} = Delivery, To}, _, State) ->
    deliver(Delivery, To, halley_links:cost(Delivery, To), State);
release(OfGroup, _, State) ->
    tell_group(OfGroup, State).

%%% Frames

%% A frame of which the queue's counter knows `Counted' bytes.
queue(Counted, Frame, #state{output = Output} = State) ->
    Whole = iolist_to_binary(Frame),
    ok = halley_edge_output:count(byte_size(Whole) - Counted, Output),
    output(halley_edge_output:frame(Whole, Output), State).

uncount(Bytes, #state{output = Output} = State) ->
    ok = halley_edge_output:count(-Bytes, Output),
    State.

close_sessions(Reason, Conns, Counted, State) ->
    [First | Rest] = halley_edge_delivery:close_sessions(Reason, Conns),
    lists:foldl(fun(Frame, S) -> queue(0, Frame, S) end, queue(Counted, First, State), Rest).
