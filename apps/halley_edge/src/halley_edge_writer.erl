%% The writing half of a link: one process per link, which turns messages into frames, knows where
%% the link stands (halley_edge_position), and keeps the credit that the worker granted
%% (protocol/link.md 4).
%%
%% It gathers: frames collect until 64 KiB are together or its mailbox is empty, then they are
%% written at once, so batching needs no timer (halley_edge_output).
%%
%% The queue is bounded by bytes, not by messages: the sender of a frame adds its bytes to the
%% counter that halley_links gave the link (index 1), free ones too, and the writer subtracts them
%% when they were handed to the socket. Events stop at `link_queue_bytes_max': halley_links_queue
%% sends none and the link is behind. Once the backlog is small the writer starts a catch-up, as it
%% does when a sync began at an older cursor (10.6). Other frames may take as much again; beyond
%% that the link ends with GOODBYE 8 (4.7).
%%
%% Messages from halley_links_queue, which counts the first four only: {deliver, Deliveries},
%% {members, What, Group, Conns}, {close_sessions, Reason, Conns}, {presence, Told}, {end_group,
%% Group}, {mark, Shard, Seq}; the rest by halley_edge_sender and halley_edge_catchup. Messages
%% about groups stay in order with the events: while these are held, so are they
%% (docs/internals/celebrities.md).
%%
%% Not here: reading, the meaning of frames, and when the link ends for any other reason.
-module(halley_edge_writer).
-behaviour(halley_edge_gather).

-export([start_link/2]).
-export([init/3, handle/2, flush/1, rest/2]).

-include("halley_edge.hrl").

-record(state, {
    slot :: halley_links:slot(),
    output :: halley_edge_output:output(),
    position :: halley_edge_position:position(),
    catchup = none :: none | {pid(), running | waiting},
    due = halley_edge_gather:due() :: halley_edge_gather:due()
}).

%% Starts a writer for the calling link. It waits for halley_edge_sender:attach/3.
-spec start_link(gen_tcp:socket(), Window :: pos_integer()) -> {ok, pid()}.
start_link(Socket, Window) ->
    halley_edge_gather:start_link(?MODULE, [Socket, Window]).

-spec init(pid(), gen_tcp:socket(), pos_integer()) -> no_return().
init(Link, Socket, Window) ->
    receive
        {attach, Slot, Queue, Second, Heads} ->
            Output = halley_edge_output:new(Link, Socket, Window, Queue),
            Position = halley_edge_position:new(halley_history:store(), Heads),
            halley_edge_gather:run(?MODULE,
                                   #state{slot = Slot, output = Output,
                                          position = halley_edge_position:clock(Second, Position)})
    end.

-spec flush(#state{}) -> #state{}.
flush(#state{output = Output} = State) ->
    output(halley_edge_output:flush(Output), State).

-spec rest(pos_integer(), #state{}) -> #state{}.
rest(Second, State) ->
    behind(Second, pace(State)).

output(Output, State) ->
    State#state{output = Output}.

-spec handle(Message :: term(), #state{}) -> #state{}.
handle({deliver, Deliveries}, State) ->
    settle(lists:foldl(fun event/2, State, Deliveries));
handle({mark, Shard, Seq}, State) ->
    settle(mark(Shard, Seq, State));
handle({members, _, _, _} = Members, State) ->
    of_group(Members, State);
handle({end_group, _} = End, State) ->
    of_group(End, State);
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
    close_sessions(Reason, Conns, halley_links_queue:close_cost(Conns), State);
handle({presence, Told}, State) ->
    lists:foldl(fun presence/2, State, Told);
handle(cursor_due, State) ->
    cursor_due(State);
handle(ask_marks, #state{due = Due} = State) ->
    settle(State#state{due = halley_edge_gather:asked(Due)});
handle({sync_begin, Start}, State) ->
    begin_at(Start, State);
handle(sync_end, State) ->
    sync_ended(State);
handle(Message, #state{output = Output} = State) ->
    output(halley_edge_output:handle(Message, Output), State).

%%% Events and where the link stands

event({Delivery, To}, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        live ->
            deliver(Delivery, To, halley_links_queue:cost(Delivery, To), State);
        holding ->
            State#state{position = halley_edge_position:keep({Delivery, To}, Position)};
        skipping ->
            uncount(halley_links_queue:cost(Delivery, To), State)
    end.

%% Counted is what the queue's counter knows of it.
deliver(Delivery, To, Counted, #state{position = Position} = State) ->
    {Frames, Passed} = halley_edge_delivery:frames(Delivery, To, Position),
    enqueue(Frames, Counted, State#state{position = Passed}).

enqueue(Frames, Counted, #state{output = Output} = State) ->
    output(halley_edge_output:frames(Frames, Counted, Output), State).

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
told(#state{due = Due} = State) ->
    State#state{due = halley_edge_gather:told(Due)}.

mark(Shard, Seq, #state{position = Position} = State) ->
    case halley_edge_position:marked(Shard, Seq, Position) of
        {moved, Next} -> moved(State#state{position = Next});
        {same, Next} -> State#state{position = Next}
    end.

moved(#state{due = Due} = State) ->
    State#state{due = halley_edge_gather:moved(Due)}.

cursor_due(#state{due = Due} = State) ->
    case halley_edge_gather:is_cursor_due(Due) of
        {true, Next} -> tell_cursor(State#state{due = Next});
        {false, Next} -> State#state{due = Next}
    end.

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
    queue(Counted, halley_edge_sender:last_frame(Conn, Cursor, Heads, Items), told(Next)).

ask_marks(#state{due = Due, position = Position, slot = Slot} = State) ->
    case halley_links_backpressure:is_behind(Slot) of
        true -> State;
        false -> State#state{due = halley_edge_gather:ask_marks(
                                       Slot, halley_edge_position:lagging(Position), Due)}
    end.

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
    State#state{position = halley_edge_position:enter(skipping, Moved)}.

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
    State#state{catchup = {Catchup, running},
                position = halley_edge_position:enter(skipping, Position)}.

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
behind(Second, #state{catchup = none, slot = Slot, position = Position} = State) ->
    case halley_links_backpressure:is_behind(Slot) of
        false ->
            State#state{position = halley_edge_position:clock(Second, Position)};
        true ->
            Begins = is_little(State) andalso halley_edge_position:mode(Position) =:= live,
            case Begins of true -> start_catchup(State); false -> State end
    end;
behind(_, State) ->
    State.

is_little(#state{output = Output}) ->
    halley_edge_output:is_little(Output).

catchup({portion, Gaps, Events, Next}, State) ->
    Told = lists:foldl(fun gap/2, State, Gaps),
    Deliver = fun({Delivery, Conns}, S) -> deliver(Delivery, Conns, 0, S) end,
    #state{position = Position, catchup = {Pid, _}} = Sent = lists:foldl(Deliver, Told, Events),
    pace(moved(Sent#state{catchup = {Pid, waiting},
                          position = halley_edge_position:move_to(Next, Position)}));
catchup(hold, #state{slot = Slot, position = Position, catchup = {Pid, _}} = State) ->
    ok = halley_links_backpressure:resume(Slot),
    ok = halley_edge_catchup:go_on(Pid),
    State#state{position = halley_edge_position:enter(holding, Position)};
catchup({reached, Heads}, #state{position = Position} = State) ->
    {Held, Marks, Live} = halley_edge_position:release(Heads, Position),
    Sent = lists:foldl(fun(Kept, S) -> release(Kept, Heads, S) end,
                       moved(State#state{position = Live, catchup = none}), Held),
    lists:foldl(fun({Shard, Seq}, S) -> mark(Shard, Seq, S) end, Sent, Marks).

release({{Shard, Seq, _} = Delivery, To}, Heads, State) when Seq =< element(Shard, Heads) ->
    uncount(halley_links_queue:cost(Delivery, To), State);
release({{_, _, _} = Delivery, To}, _, State) ->
    deliver(Delivery, To, halley_links_queue:cost(Delivery, To), State);
release(OfGroup, _, State) ->
    tell_group(OfGroup, State).

%%% Frames

queue(Counted, Frame, #state{output = Output} = State) ->
    output(halley_edge_output:queue(Counted, Frame, Output), State).

uncount(Bytes, #state{output = Output} = State) ->
    ok = halley_edge_output:count(-Bytes, Output),
    State.

presence({Json, Conns} = Told, State) ->
    Frame = halley_edge_codec:encode({presence, Json, Conns}),
    queue(halley_links_queue:presence_cost(Told), Frame, State).

close_sessions(Reason, Conns, Counted, State) ->
    [First | Rest] = halley_edge_delivery:close_sessions(Reason, Conns),
    lists:foldl(fun(Frame, S) -> queue(0, Frame, S) end, queue(Counted, First, State), Rest).
