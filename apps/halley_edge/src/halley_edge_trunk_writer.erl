%% The writing half of a link (protocol/link.md 13): one process, which turns messages into frames,
%% knows where the trunk and its slots stand (halley_edge_position), and keeps the credit that the
%% edge granted (4).
%%
%% It gathers: frames collect until 64 KiB are together or its mailbox is empty, then they are
%% written at once, so batching needs no timer (halley_edge_output).
%%
%% The queue is bounded by bytes, not by messages: the sender of a frame adds its bytes to the
%% counter that halley_links gave the link (index 1), free ones too, and the writer subtracts them
%% when they were handed to the socket. Events stop at `link_queue_bytes_max': halley_links_queue
%% sends none and the trunk is behind. Once the backlog is small the writer starts a catch-up, as it
%% does when a sync began at an older cursor (10.6). Other frames may take as much again; beyond
%% that the link ends with GOODBYE 8 (4.7).
%%
%% Messages from halley_links_queue, which counts the first four only: {deliver, Deliveries},
%% {members, What, Group, Words}, {close_sessions, Reason, Words}, {presence, Told}, {end_group,
%% Group}, {mark, Shard, Seq}; the rest by halley_edge_sender and halley_edge_catchup, of which
%% {to_slot, Slot, Message} is for one worker. Messages about groups stay in order with the events:
%% while these are held, so are they (docs/internals/celebrities.md).
%%
%% A slot follows the trunk, or is apart (halley_edge_apart). Those that follow have the trunk's
%% position, and an event for them is one frame. A worker that syncs with sessions is apart: it gets
%% what it missed by a catch-up, and what is new, in TO_SLOT, and follows once it is live and the
%% trunk is. At most one catch-up runs for slots that are apart; it is for all that stand at one
%% place and wait for one, so after a kill of the brain two serve all workers.
%%
%% When the trunk is behind, live slots want a catch-up: those that follow have one together, in
%% frames of the trunk. The mark `behind' is the trunk's: it is taken away when one of the catch-ups
%% requests events again (`hold'), and no slot is live or holds then. Such a slot would lack events
%% that were left out until then.
%%
%% Slots follow only while the trunk isn't behind. Then nothing has been left out since the trunk,
%% and they, began to hold; both were sent everything since, so both have what concerns them up to
%% the further of the two positions.
%%
%% Not here: reading, the meaning of frames, and when the trunk ends for any other reason.
-module(halley_edge_trunk_writer).
-behaviour(halley_edge_gather).

-export([start_link/2]).
-export([init/3, handle/2, flush/1, rest/2]).

-include("halley_edge.hrl").

-record(state, {
    way :: halley_links:slot(),
    output :: halley_edge_output:output(),
    position :: halley_edge_position:position(),
    following = #{} :: #{halley_links:slot() => []},
    apart = #{} :: halley_edge_apart:apart(),
    catchups = halley_edge_catchups:new() :: halley_edge_catchups:catchups(),
    due = halley_edge_gather:due() :: halley_edge_gather:due()
}).

%% Starts a writer for the calling link. It waits for halley_edge_sender:attach/3.
-spec start_link(gen_tcp:socket(), Window :: pos_integer()) -> {ok, pid()}.
start_link(Socket, Window) ->
    halley_edge_gather:start_link(?MODULE, [Socket, Window]).

-spec init(pid(), gen_tcp:socket(), pos_integer()) -> no_return().
init(Link, Socket, Window) ->
    receive
        {attach, Way, Queue, Second, Heads} ->
            Output = halley_edge_output:new(Link, Socket, Window, Queue),
            Position = halley_edge_position:new(halley_history:store(), Heads),
            State = #state{way = Way, output = Output,
                           position = halley_edge_position:clock(Second, Position)},
            halley_edge_gather:run(?MODULE, tell_cursor(State))
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
handle({to_slot, Slot, Message}, State) ->
    settle(to_slot(Message, Slot, State));
handle({mark, Shard, Seq}, State) ->
    settle(mark(Shard, Seq, State));
handle({members, _, _, <<Slot:16, _/binary>>} = Members, State) ->
    members(Slot, Members, State);
handle({end_group, _} = End, #state{apart = Apart} = State) ->
    {Written, Next} = halley_edge_apart:of_group(all, End, Apart),
    of_group(End, written(Written, State#state{apart = Next}));
handle({credit, Bytes}, #state{output = Output} = State) ->
    pace(output(halley_edge_output:credit(Bytes, Output), State));
handle({catchup, Pid, What}, #state{catchups = Catchups} = State) ->
    case halley_edge_catchups:find(Pid, Catchups) of
        {ok, Whose} -> settle(catchup(What, Pid, Whose, State));
        %% All its slots are gone.
        none -> State
    end;
handle({close_sessions, Reason, [Word | _] = Words}, State) ->
    close_sessions(Word bsr 48, Reason, Words, State);
handle({presence, Told}, State) ->
    lists:foldl(fun presence/2, State, Told);
handle(cursor_due, #state{due = Due} = State) ->
    case halley_edge_gather:is_cursor_due(Due) of
        {true, Next} -> tell_cursor(State#state{due = Next});
        {false, Next} -> State#state{due = Next}
    end;
handle(ask_marks, #state{due = Due} = State) ->
    settle(State#state{due = halley_edge_gather:asked(Due)});
handle(Message, #state{output = Output} = State) ->
    output(halley_edge_output:handle(Message, Output), State).

%%% Events and where the trunk stands

event({Delivery, To}, #state{apart = Apart} = State) ->
    case map_size(Apart) of
        0 -> following(Delivery, To, State);
        _ -> apart(Delivery, To, State)
    end.

following(Delivery, To, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        live -> deliver(Delivery, To, halley_links_queue:cost(Delivery, To), State);
        holding -> keep({Delivery, To}, State);
        skipping -> count(-halley_links_queue:cost(Delivery, To), State)
    end.

keep(Message, #state{position = Position} = State) ->
    State#state{position = halley_edge_position:keep(Message, Position)}.

apart({Shard, Seq, _} = Delivery, To, #state{apart = Apart} = State) ->
    {Following, Written, Next} = halley_edge_apart:event(Delivery, To, Apart),
    Uncounted = count(-halley_links_queue:cost(Delivery, To), State#state{apart = Next}),
    case Following of
        none ->
            written(Written, trunk_marked(Shard, Seq, Uncounted));
        _ ->
            Counted = count(halley_links_queue:cost(Delivery, Following), Uncounted),
            written(Written, following(Delivery, Following, Counted))
    end.

%% Counted is what the queue's counter knows of it.
deliver(Delivery, To, Counted, #state{position = Position} = State) ->
    {Frames, Passed} = halley_edge_delivery:trunk_frames(Delivery, To, Position),
    enqueue(Frames, Counted, State#state{position = Passed}).

enqueue(Frames, Counted, #state{output = Output} = State) ->
    output(halley_edge_output:frames(Frames, Counted, Output), State).

%% What halley_edge_apart gives.
written({Delta, Frames}, #state{output = Output} = State) ->
    Delta =:= 0 orelse halley_edge_output:count(Delta, Output),
    Enqueue = fun({Bytes, Frame}, O) -> halley_edge_output:enqueue(Bytes, Frame, O) end,
    output(lists:foldl(Enqueue, Output, Frames), State).

mark(Shard, Seq, #state{apart = Apart} = State) ->
    trunk_marked(Shard, Seq, State#state{apart = halley_edge_apart:marked(Shard, Seq, Apart)}).

trunk_marked(Shard, Seq, #state{position = Position} = State) ->
    case halley_edge_position:marked(Shard, Seq, Position) of
        {moved, Next} -> moved(State#state{position = Next});
        {same, Next} -> State#state{position = Next}
    end.

moved(#state{due = Due} = State) ->
    State#state{due = halley_edge_gather:moved(Due)}.

%% A frame that tells where the trunk stands.
told(#state{due = Due} = State) ->
    State#state{due = halley_edge_gather:told(Due)}.

cursor(#state{position = Position} = State) ->
    {Cursor, Next} = halley_edge_position:cursor(Position),
    {Cursor, State#state{position = Next}}.

tell_cursor(State) ->
    {Cursor, Next} = cursor(State),
    queue(0, halley_edge_codec:encode({cursor, Cursor}), Next).

%%% Groups

members(Slot, {members, What, Group, Words} = Members, #state{apart = Apart} = State) ->
    case is_map_key(Slot, Apart) of
        true ->
            Conns = << <<Conn:64>> || <<_:16, Conn:48>> <= Words >>,
            {Written, Next} = halley_edge_apart:of_group(Slot, {members, What, Group, Conns},
                                                         Apart),
            written(Written, count(-byte_size(Words), State#state{apart = Next}));
        false ->
            of_group(Members, State)
    end.

%% A catch-up looks nothing up in groups, so their changes need not wait for it; but they must not
%% overtake events that are held.
of_group(Message, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        holding -> keep(Message, State);
        _ -> tell_group(Message, State)
    end.

tell_group({members, What, Group, <<Slot:16, _/binary>> = Words}, State) ->
    Conns = << <<Conn:64>> || <<_:16, Conn:48>> <= Words >>,
    Frames = halley_edge_delivery:members(What, Group, Conns),
    enqueue(halley_edge_delivery:to_slot(Slot, Frames), byte_size(Words), State);
tell_group({end_group, Group}, #state{following = Following} = State) ->
    to_each(maps:keys(Following), {group_end, Group}, State).

to_each(Slots, Frame, State) ->
    Encoded = halley_edge_codec:encode(Frame),
    lists:foldl(fun(Slot, S) -> queue_to(Slot, 0, Encoded, S) end, State, Slots).

%%% What is for one slot

to_slot({opened, Counted, Heads, Opened}, Slot, State) ->
    await(Slot, opening, Heads, {opened, Slot, Counted, Opened}, State);
to_slot({last, Counted, Conn, Heads, Items}, Slot, State) ->
    await(Slot, last, Heads, {last, Slot, Counted, Conn, Items}, State);
to_slot({sync_begin, Start}, Slot, State) ->
    begin_at(Start, Slot, State);
to_slot(sync_end, Slot, #state{apart = Apart} = State) ->
    start_due(State#state{apart = halley_edge_apart:synced(Slot, Apart)});
to_slot(gone, Slot, State) ->
    #state{following = Following, apart = Apart, catchups = Catchups} = State,
    start_due(permit(State#state{following = maps:remove(Slot, Following),
                                 apart = maps:remove(Slot, Apart),
                                 catchups = halley_edge_catchups:without(Slot, Catchups)})).

await(Slot, What, Heads, Waiter, #state{apart = Apart, position = Position} = State) ->
    case is_map_key(Slot, Apart) of
        true ->
            State#state{apart = halley_edge_apart:await(Slot, What, Heads, Waiter, Apart)};
        false ->
            State#state{position = halley_edge_position:await(What, Heads, Waiter, Position)}
    end.

%% What waited for a vector is sent; while something waits, the shards are asked to mark.
settle(State) ->
    ask_marks(settle_trunk(settle_apart(State))).

settle_trunk(#state{position = Position} = State) ->
    case halley_edge_position:awaits(Position) of
        false ->
            State;
        true ->
            {Reached, Next} = halley_edge_position:reached(Position),
            lists:foldl(fun({Heads, Waiter}, S) ->
                {Cursor, After} = cursor(S),
                told(reached(Heads, Waiter, Cursor, After))
            end, State#state{position = Next}, Reached)
    end.

settle_apart(#state{apart = Apart} = State) when map_size(Apart) =:= 0 ->
    State;
settle_apart(#state{apart = Apart} = State) ->
    {Reached, Next} = halley_edge_apart:reached(Apart),
    lists:foldl(fun({Heads, Waiter, Cursor}, S) -> reached(Heads, Waiter, Cursor, S) end,
                State#state{apart = Next}, Reached).

reached(_, {opened, Slot, Counted, Opened}, Cursor, State) ->
    queue_to(Slot, Counted, halley_edge_codec:encode({opened, Cursor, Opened}), State);
reached(Heads, {last, Slot, Counted, Conn, Items}, Cursor, State) ->
    queue_to(Slot, Counted, halley_edge_sender:last_frame(Conn, Cursor, Heads, Items), State).

ask_marks(#state{due = Due, position = Position, apart = Apart, way = Way} = State) ->
    case lists:umerge(halley_edge_position:lagging(Position), halley_edge_apart:lagging(Apart)) of
        [] ->
            State;
        Lagging ->
            case halley_links_backpressure:is_behind(Way) of
                true -> State;
                false -> State#state{due = halley_edge_gather:ask_marks(Way, Lagging, Due)}
            end
    end.

%%% Syncs

%% A worker without sessions lacks nothing from before.
begin_at(here, Slot, #state{position = Position} = State) ->
    case halley_edge_position:mode(Position) of
        live ->
            follow([Slot], State);
        _ ->
            Now = halley_clock:wall_s(),
            begin_at({from, Now, halley_history:heads()}, Slot, State)
    end;
begin_at({from, Second, Vector}, Slot, State) ->
    {Cursor, Begun} = begin_apart(Slot, Second, Vector, State),
    to_each([Slot], {cursor, Cursor}, Begun);
begin_at({gap, Reason, FromMs, ToMs, Vector}, Slot, State) ->
    Counter = case Reason of malformed -> gap_malformed; other_store -> gap_other_store end,
    ok = halley_metrics:incr(Counter),
    {Cursor, Begun} = begin_apart(Slot, ToMs div 1000, Vector, State),
    Gap = #{reason => Reason, from => FromMs, to => ToMs, cursor => Cursor},
    to_each([Slot], {cursor, Cursor}, gap(Gap, [Slot], Begun)).

begin_apart(Slot, Second, Vector, #state{apart = Apart} = State) ->
    New = halley_edge_position:new(halley_history:store(), Vector),
    Position = halley_edge_position:clock(Second, New),
    {Cursor, Next} = halley_edge_apart:add(Slot, Position, Apart),
    {Cursor, State#state{apart = Next}}.

%% To every session of these workers.
gap(#{reason := Reason, from := FromMs, to := ToMs, cursor := Cursor}, Slots, State) ->
    to_each(Slots, {gap, atom_to_binary(Reason), FromMs, ToMs, Cursor, []}, State).

%% The trunk's cursor comes first: it may be below that of the slot.
follow([], State) ->
    State;
follow(Slots, #state{following = Following} = State) ->
    Followed = State#state{following = maps:merge(Following, maps:from_keys(Slots, []))},
    to_each(Slots, {cursor, <<>>}, told(tell_cursor(Followed))).

join(#state{apart = Apart, position = Position, way = Way} = State) ->
    CanJoin = map_size(Apart) > 0
        andalso halley_edge_position:mode(Position) =:= live
        andalso not halley_links_backpressure:is_behind(Way),
    case CanJoin of
        true ->
            {Slots, Joined, Left} = halley_edge_apart:join(Position, Apart),
            follow(Slots, State#state{position = Joined, apart = Left});
        false ->
            State
    end.

%%% Catch-ups

%% A trunk that is behind catches up when what waits is little. Never in the midst of a message:
%% what is sent then would be sent again. The time that cursors carry is that of the last moment at
%% which nothing waited here, or was left to a catch-up: what they lack is not older.
behind(Second, #state{way = Way, position = Position} = State) ->
    case halley_links_backpressure:is_behind(Way) of
        false ->
            permit(State#state{position = halley_edge_position:clock(Second, Position)});
        true ->
            case is_little(State) of
                true -> permit(start_due(fall_behind(State)));
                false -> State
            end
    end.

fall_behind(#state{position = Position, apart = Apart, following = Following} = State) ->
    Fallen = State#state{apart = halley_edge_apart:fall_behind(Apart)},
    case halley_edge_position:mode(Position) of
        live ->
            {Vector, Second} = halley_edge_position:stands_at(Position),
            Skipping = Fallen#state{position = halley_edge_position:enter(skipping, Position)},
            start(trunk, Following, Vector, Second, Skipping);
        _ ->
            Fallen
    end.

start_due(#state{catchups = Catchups, apart = Apart} = State) ->
    case halley_edge_catchups:is_apart(Catchups) orelse halley_edge_apart:due(Apart) of
        true ->
            State;
        none ->
            State;
        {Slots, Vector, Second, Begun} ->
            start(Slots, Slots, Vector, Second, State#state{apart = Begun})
    end.

start(Whose, Slots, Vector, Second, #state{catchups = Catchups} = State) ->
    State#state{catchups = halley_edge_catchups:start(Whose, Slots, Vector, Second, Catchups)}.

%% Catch-ups go on when what waits is little.
pace(#state{catchups = Catchups} = State) ->
    case halley_edge_catchups:is_empty(Catchups) orelse not is_little(State) of
        true -> State;
        false -> lists:foldl(fun go_on/2, State, halley_edge_catchups:in(waiting, Catchups))
    end.

go_on(Pid, #state{catchups = Catchups} = State) ->
    State#state{catchups = halley_edge_catchups:go_on(Pid, Catchups)}.

now(Phase, Pid, #state{catchups = Catchups} = State) ->
    State#state{catchups = halley_edge_catchups:put(Pid, Phase, Catchups)}.

ended(Pid, #state{catchups = Catchups} = State) ->
    State#state{catchups = halley_edge_catchups:ended(Pid, Catchups)}.

is_little(#state{output = Output}) ->
    halley_edge_output:is_little(Output).

catchup({portion, Gaps, Events, Next}, Pid, trunk, State) ->
    Followers = maps:keys(State#state.following),
    Told = lists:foldl(fun(Gap, S) -> gap(Gap, Followers, S) end, State, Gaps),
    Deliver = fun({Delivery, Words}, S) -> deliver(Delivery, Words, 0, S) end,
    #state{position = Position} = Sent = lists:foldl(Deliver, Told, Events),
    Moved = Sent#state{position = halley_edge_position:move_to(Next, Position)},
    pace(now(waiting, Pid, moved(Moved)));
catchup({portion, Gaps, Events, Next}, Pid, Slots, State) ->
    Told = lists:foldl(fun(Gap, S) -> gap(Gap, maps:keys(Slots), S) end, State, Gaps),
    {Written, Apart} = halley_edge_apart:portion(Events, Next, Slots, State#state.apart),
    pace(now(waiting, Pid, written(Written, Told#state{apart = Apart})));
catchup(hold, Pid, _, State) ->
    permit(now(asking, Pid, State));
catchup({reached, Heads}, Pid, trunk, #state{position = Position} = State) ->
    {Held, Marks, Live} = halley_edge_position:release(Heads, Position),
    Sent = lists:foldl(fun(Kept, S) -> release(Kept, Heads, S) end,
                       moved(ended(Pid, State#state{position = Live})), Held),
    join(lists:foldl(fun({Shard, Seq}, S) -> trunk_marked(Shard, Seq, S) end, Sent, Marks));
catchup({reached, Heads}, Pid, Slots, #state{apart = Apart} = State) ->
    {Written, Released} = halley_edge_apart:release(Heads, Slots, Apart),
    start_due(join(written(Written, ended(Pid, State#state{apart = Released})))).

release({{Shard, Seq, _} = Delivery, To}, Heads, State) when Seq =< element(Shard, Heads) ->
    count(-halley_links_queue:cost(Delivery, To), State);
release({{_, _, _} = Delivery, To}, _, State) ->
    deliver(Delivery, To, halley_links_queue:cost(Delivery, To), State);
release(OfGroup, _, State) ->
    tell_group(OfGroup, State).

%% Events are sent again for those whose catch-up asks for it, when that does nobody harm.
permit(#state{catchups = Catchups} = State) ->
    case halley_edge_catchups:is_empty(Catchups) of
        true -> State;
        false -> lists:foldl(fun permit/2, State, halley_edge_catchups:in(asking, Catchups))
    end.

permit(Pid, #state{way = Way, position = Position, apart = Apart} = State) ->
    IsFlowing = halley_edge_position:mode(Position) =/= skipping
        orelse halley_edge_apart:is_flowing(Apart),
    case halley_links_backpressure:is_behind(Way) of
        true when IsFlowing ->
            State;
        true ->
            ok = halley_links_backpressure:resume(Way),
            hold(Pid, State);
        false ->
            hold(Pid, State)
    end.

hold(Pid, #state{catchups = Catchups, position = Position, apart = Apart} = State) ->
    go_on(Pid, case halley_edge_catchups:find(Pid, Catchups) of
        {ok, trunk} -> State#state{position = halley_edge_position:enter(holding, Position)};
        {ok, Slots} -> State#state{apart = halley_edge_apart:hold(Slots, Apart)}
    end).

%%% Frames

queue(Counted, Frame, #state{output = Output} = State) ->
    output(halley_edge_output:queue(Counted, Frame, Output), State).

queue_to(Slot, Counted, Frame, State) ->
    queue(Counted, halley_edge_encoder:encode_to_slot(Slot, Frame), State).

count(Bytes, #state{output = Output} = State) ->
    ok = halley_edge_output:count(Bytes, Output),
    State.

presence({Json, [Word | _] = Words} = Told, State) ->
    Conns = [W band (?CONN_LIMIT - 1) || W <- Words],
    queue_to(Word bsr 48, halley_links_queue:presence_cost(Told),
             halley_edge_codec:encode({presence, Json, Conns}), State).

close_sessions(Slot, Reason, Words, State) ->
    Conns = [Word band (?CONN_LIMIT - 1) || Word <- Words],
    [First | Rest] = halley_edge_delivery:close_sessions(Reason, Conns),
    lists:foldl(fun(Frame, S) -> queue_to(Slot, 0, Frame, S) end,
                queue_to(Slot, halley_links_queue:close_cost(Words), First, State), Rest).
