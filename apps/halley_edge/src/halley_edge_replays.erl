%% Replays: the sessions of one link that came back with a cursor get what they missed
%% (protocol/link.md 10, docs/internals/delivery.md). One process per link, linked to it.
%%
%% The worker holds live events for such a session until LAST. Users take turns
%% (`halley_turns_ring'), one batch of one session each:
%%   1. Batches up to what the log has written. After each the session waits for REPLAYED, so it
%%      takes its client's pace and delays no other.
%%   2. When it had all of it, the link puts it into the directory, unless it has been closed: the
%%      link alone opens and closes its sessions. Then the link reads the heads, once for all that
%%      are ready, and the log says when it has written up to these. Whatever is above the heads
%%      finds the session.
%%   3. The rest up to the heads, and LAST, which the writer keeps until the link's cursor has
%%      reached them (10.5).
%%
%% A poll's first REPLAY with items is its last (10.7).
%%
%% Live events come first: the process has a low priority, so it runs every eighth time at most
%% while processes that carry live events want to run, and only with a permit, of which those of
%% all workers have a few together (`halley_turns_permits'). It makes batches only while less
%% than `replay_queue_bytes_max' waits for the link.
%%
%% No turn is long: a replay that has looked for some time and found nothing yet returns `yield',
%% and its session takes its next turn among the late ones. So a user that follows much or missed
%% much delays no other by more than a turn, however many sessions it has. The result of a long
%% gathering is kept as long as other sessions of its user wait for a turn: they begin with it, so
%% sessions that come back together need one gathering.
%%
%% At most `replays_max' sessions keep the state of their replay between two turns; the others keep
%% their cursor, from which it is made again. A session that has yielded needs its state to get on,
%% so it takes the place of one that waits for its client.
-module(halley_edge_replays).

-export([start_link/3, pid/1, add/2, add_entered/3, replayed/2, cancel/2, entered/3, waiting/1]).
-export([init/4]).
-export_type([handle/0, held/0]).

-include("halley_edge.hrl").

%% With what waits in the mailbox: the link sees to it that it isn't too much.
-opaque handle() :: {pid(), counters:counters_ref()}.
%% A session that is held.
-type held() :: {halley_edge_codec:conn(), UserNumber :: non_neg_integer(), Transport :: 1..5,
                 Cursor :: binary()}.

%% Gatherings that are kept for other sessions of their users. Each is as large as a replay's state.
-define(GATHERED_MAX, 16).
-define(PAUSE_MS, 2).                % while the link has enough to do
%% So that a batch and one event more fit a frame, with what halley_replay doesn't count.
-define(BATCH_EVENTS_MAX, 512).
-define(FRAME_SPARE_BYTES, 32768).

%% A dozen batches.
-define(HEAP_WORDS, 131072).

-record(session, {
    user :: halley_turns_ring:user(),
    transport :: 1..5,
    cursor :: binary(),                               % up to here it has got everything
    replay = none :: none | halley_replay:replay(),
    %% Whether it had all that was written; then, up to which heads it gets the rest.
    rest = unknown :: unknown | little | halley_history:vector(),
    %% turn: waits for it; taken: it has its turn now; sent: waits for REPLAYED; ready: for the
    %% directory and the heads.
    phase :: {turn | taken, halley_turns_ring:place()} | sent | ready
}).
-type entered() :: {halley_history:vector(), [halley_edge_codec:conn()]}.
-record(state, {
    link :: pid(),
    slot :: halley_links:slot(),
    writer :: halley_edge_sender:handle(),
    waiting :: counters:counters_ref(),
    reader :: halley_history_reader:reader(),
    limits :: map(),
    queue_bytes_max :: pos_integer(),
    replays_max :: pos_integer(),
    kept = #{} :: #{halley_edge_codec:conn() => []},  % sessions with the state of their replay
    sessions = #{} :: #{halley_edge_codec:conn() => #session{}},
    turns = halley_turns_ring:new() :: halley_turns_ring:turns(),
    gathered = #{} :: #{halley_turns_ring:user() => halley_replay:gathered()},
    ready = [] :: [halley_edge_codec:conn()],         % for the directory
    permit = none :: none | asked | halley_turns_permits:permit(),
    is_entering = false :: boolean(),                 % the link has some of them to enter
    %% In the directory, until the log has written what was drawn by then: those that it was asked
    %% about, and those that came meanwhile, with the furthest of their heads.
    awaits = none :: none | {reference(), entered()},
    later = none :: none | entered()
}).

%% To be called by the link. It receives {enter, Pid, [Conn]}, the sessions to be put into the
%% directory, and answers by entered/2; and {replay_ended, Pid, Conn}.
-spec start_link(Link :: pid(), halley_links:slot(), halley_edge_sender:handle()) -> handle().
start_link(Link, Slot, Writer) ->
    Waiting = counters:new(1, [atomics]),
    Options = [link, {priority, low}, {message_queue_data, off_heap},
               {min_heap_size, ?HEAP_WORDS},
               {min_bin_vheap_size, halley_history_reader:vheap_words()}],
    {spawn_opt(?MODULE, init, [Link, Slot, Writer, Waiting], Options), Waiting}.

-spec pid(handle()) -> pid().
pid({Replays, _}) -> Replays.

%% Sessions that were not yet looked at: those that came, went, or answered.
-spec waiting(handle()) -> non_neg_integer().
waiting({_, Waiting}) -> counters:get(Waiting, 1).

%% Sessions that came with a cursor and got their OPENED.
-spec add(handle(), [held()]) -> ok.
add(Replays, Held) ->
    send(Replays, length(Held), {add, Held}).

%% Sessions that had all when they came, and are in the directory now; what was drawn meanwhile, up
%% to these heads, they may lack.
-spec add_entered(handle(), [held()], Heads :: halley_history:vector()) -> ok.
add_entered(Replays, Entered, Heads) ->
    send(Replays, length(Entered), {add_entered, Entered, Heads}).

%% What was replayed has left the session's outbox.
-spec replayed(handle(), halley_edge_codec:conn()) -> ok.
replayed(Replays, Conn) ->
    send(Replays, 1, {replayed, Conn}).

%% The session has been closed.
-spec cancel(handle(), halley_edge_codec:conn()) -> ok.
cancel(Replays, Conn) ->
    send(Replays, 1, {cancel, Conn}).

%% Those of the sessions that were to enter that are in the directory now, and the heads, read after
%% that.
-spec entered(handle(), [halley_edge_codec:conn()], halley_history:vector()) -> ok.
entered(Replays, Conns, Heads) ->
    send(Replays, 0, {entered, Conns, Heads}).

send({Replays, Waiting}, Sessions, Message) ->
    counters:add(Waiting, 1, Sessions),
    Replays ! Message,
    ok.

-spec init(pid(), halley_links:slot(), halley_edge_sender:handle(), counters:counters_ref()) ->
    no_return().
init(Link, Slot, Writer, Waiting) ->
    BytesMax = ?FRAME_BYTES_MAX - ?FRAME_SPARE_BYTES - halley_limits:get(event_data_bytes_max),
    Limits = #{events_max => min(?BATCH_EVENTS_MAX, halley_limits:get(replay_events_max)),
               bytes_max => max(1, min(BytesMax, halley_limits:get(replay_bytes_max)))},
    loop(#state{link = Link, slot = Slot, writer = Writer, waiting = Waiting, limits = Limits,
                reader = halley_history_reader:new(),
                queue_bytes_max = halley_limits:get(replay_queue_bytes_max),
                replays_max = halley_limits:get(replays_max)}).

loop(State) ->
    {Doing, Ready} = doing(enter(State)),
    receive
        Message -> loop(handle(Message, Ready))
    after wait_ms(Doing) ->
        case Doing of
            turn -> loop(turn(used(Ready)));
            _ -> loop(Ready)
        end
    end.

doing(#state{turns = Turns, writer = Writer, queue_bytes_max = Max} = State) ->
    case halley_turns_ring:is_empty(Turns) of
        true ->
            {nothing, without_permit(State)};
        false ->
            case halley_edge_sender:queue_bytes(Writer) < Max of
                true -> permitted(State);
                false -> {pause, without_permit(State)}
            end
    end.

permitted(#state{permit = none} = State) ->
    permitted(State#state{permit = halley_turns_permits:ask()});
permitted(#state{permit = asked} = State) ->
    {nothing, State};
permitted(#state{permit = Permit} = State) ->
    case halley_turns_permits:is_over(Permit) of
        true -> permitted(without_permit(State));
        false -> {turn, State}
    end.

used(#state{permit = Permit} = State) ->
    State#state{permit = halley_turns_permits:used(Permit)}.

%% One that was asked for is given back once it has come.
without_permit(#state{permit = Permit} = State) when Permit =:= none; Permit =:= asked ->
    State;
without_permit(#state{permit = Permit} = State) ->
    ok = halley_turns_permits:give_back(Permit),
    State#state{permit = none}.

wait_ms(turn) -> 0;
wait_ms(pause) -> ?PAUSE_MS;
wait_ms(nothing) -> infinity.

handle({add, Held}, State) ->
    seen(length(Held), State),
    ok = halley_metrics:incr(replays, length(Held)),
    lists:foldl(fun({Conn, _, _, _} = One, S) -> take_turn(Conn, session(One), S) end, State, Held);
handle({add_entered, Entered, Heads}, #state{sessions = Sessions} = State) ->
    seen(length(Entered), State),
    ok = halley_metrics:incr(replays, length(Entered)),
    Added = maps:from_list([{Conn, session(One)} || {Conn, _, _, _} = One <- Entered]),
    written(maps:keys(Added), Heads, State#state{sessions = maps:merge(Sessions, Added)});
handle({replayed, Conn}, #state{sessions = Sessions} = State) ->
    seen(1, State),
    case Sessions of
        #{Conn := #session{phase = sent, rest = little} = Session} -> ready(Conn, Session, State);
        #{Conn := #session{phase = sent} = Session} -> take_turn(Conn, Session, State);
        #{} -> State
    end;
handle({cancel, Conn}, #state{sessions = Sessions, turns = Turns} = State) ->
    seen(1, State),
    case maps:take(Conn, Sessions) of
        {#session{phase = {turn, Place}, user = User}, Rest} ->
            Left = halley_turns_ring:remove(User, Conn, Place, Turns),
            of_nobody(User, forgotten(Conn, State#state{sessions = Rest, turns = Left}));
        {_, Rest} ->
            forgotten(Conn, State#state{sessions = Rest});
        error ->
            State
    end;
handle({replay_permit, Permit}, #state{permit = asked} = State) ->
    State#state{permit = Permit};
handle({entered, Conns, Heads}, State) ->
    written(Conns, Heads, State#state{is_entering = false});
handle({history_written, Ref}, #state{awaits = {Ref, {Heads, Conns}}, later = Later} = State) ->
    Next = rest(Conns, Heads, State#state{awaits = none, later = none}),
    case Later of
        none -> Next;
        {LaterHeads, LaterConns} -> written(LaterConns, LaterHeads, Next)
    end.

session({Conn, User, Transport, Cursor}) ->
    #session{user = taker(User, Conn), transport = Transport, cursor = Cursor, phase = ready}.

taker(?NOBODY, Conn) -> {visitor, Conn};
taker(User, _) -> User.

seen(Sessions, #state{waiting = Waiting}) ->
    counters:sub(Waiting, 1, Sessions).

take_turn(Conn, #session{user = User} = Session, #state{turns = Turns} = State) ->
    {Place, Next} = halley_turns_ring:add(User, Conn, Turns),
    waiting(Conn, Session, Place, State#state{turns = Next}).

take_late_turn(Conn, #session{user = User, phase = {taken, Place}} = Session,
               #state{turns = Turns} = State) ->
    Next = halley_turns_ring:yielded(User, Conn, Place, Turns),
    waiting(Conn, Session, Place, State#state{turns = Next}).

waiting(Conn, Session, Place, #state{sessions = Sessions} = State) ->
    State#state{sessions = Sessions#{Conn => Session#session{phase = {turn, Place}}}}.

ready(Conn, Session, #state{sessions = Sessions, ready = Ready} = State) ->
    State#state{sessions = Sessions#{Conn => Session#session{phase = ready}},
                ready = [Conn | Ready]}.

forgotten(Conn, #state{kept = Kept} = State) ->
    State#state{kept = maps:remove(Conn, Kept)}.

%%% Entering, many at a time

enter(#state{is_entering = false, ready = [_ | _] = Ready, sessions = Sessions,
             link = Link} = State) ->
    case [Conn || Conn <- Ready, is_map_key(Conn, Sessions)] of
        [] ->
            State#state{ready = []};
        Conns ->
            Link ! {enter, self(), Conns},
            State#state{ready = [], is_entering = true}
    end;
enter(State) ->
    State.

%% Later heads do as well: whatever is live is held until LAST.
written(Conns, Heads, #state{awaits = none} = State) ->
    case halley_history:notify(Heads) of
        written -> rest(Conns, Heads, State);
        {later, Ref} -> State#state{awaits = {Ref, {Heads, Conns}}}
    end;
written(Conns, Heads, #state{later = none} = State) ->
    State#state{later = {Heads, Conns}};
written(Conns, Heads, #state{later = {Others, Waiting}} = State) ->
    State#state{later = {halley_vector:furthest(Heads, Others), Conns ++ Waiting}}.

rest(Conns, Heads, State) ->
    lists:foldl(fun(Conn, #state{sessions = Sessions} = S) ->
        case Sessions of
            #{Conn := Session} -> take_turn(Conn, Session#session{rest = Heads}, S);
            #{} -> S
        end
    end, State, Conns).

%%% Turns

turn(#state{turns = Turns, sessions = Sessions} = State) ->
    {User, Conn, Place, Left} = halley_turns_ring:take(Turns),
    {Session, Others} = maps:take(Conn, Sessions),
    Next = forgotten(Conn, State#state{turns = Left, sessions = Others}),
    Taken = Session#session{phase = {taken, Place}},
    of_nobody(User, batch(Conn, begun(Conn, Taken, Next), Next)).

begun(Conn, #session{replay = none, user = User, cursor = Cursor} = Session,
      #state{slot = Slot, gathered = Gathered} = State) ->
    Replay = case halley_replay:new(name(User), {Slot, Conn}, Cursor) of
        {ok, New} ->
            New;
        {gap, Gap, New} ->
            gap(Conn, Gap, State),
            New
    end,
    Session#session{replay = case Gathered of
                                 #{User := Found} -> halley_replay:offer(Found, Replay);
                                 #{} -> Replay
                             end};
begun(_, Session, _) ->
    Session.

%% Visitors have turns of their own.
name({visitor, _}) -> nobody;
name(User) -> halley_ids:name(User).

batch(Conn, #session{replay = Replay, rest = Rest} = Session, State) ->
    UpTo = case is_tuple(Rest) of true -> Rest; false -> halley_history:written() end,
    #state{limits = Limits, reader = Reader} = State,
    {Items, What, Next, Later} =
        halley_replay:next(Replay, UpTo, Limits, fun halley_edge_encoder:add_item/3,
                           halley_edge_encoder:no_items(), Reader),
    {Gathered, Left} = halley_replay:gathered(Next),
    batch(What, Items, Conn, Session#session{replay = Left},
          gathered(Gathered, Session, State#state{reader = Later})).

gathered(none, _, State) ->
    State;
gathered(Found, #session{user = User}, #state{gathered = Gathered, turns = Turns} = State) ->
    IsWanted = halley_turns_ring:waits(User, Turns)
        andalso (map_size(Gathered) < ?GATHERED_MAX orelse is_map_key(User, Gathered)),
    case IsWanted of
        true -> State#state{gathered = Gathered#{User => Found}};
        false -> State
    end.

%% No session of the user waits any more: nobody needs what was gathered.
of_nobody(User, #state{gathered = Gathered, turns = Turns} = State)
  when is_map_key(User, Gathered) ->
    case halley_turns_ring:waits(User, Turns) of
        true -> State;
        false -> State#state{gathered = maps:remove(User, Gathered)}
    end;
of_nobody(_, State) ->
    State.

batch(done, Items, Conn, #session{rest = Heads}, #state{writer = Writer} = State)
  when is_tuple(Heads) ->
    ok = halley_edge_sender:last(Writer, Conn, Heads, Items),
    ended(Conn, State);
batch(done, {0, _, _}, Conn, Session, State) ->
    ready(Conn, Session#session{rest = little}, State);
batch(done, Items, Conn, Session, State) ->
    replay(Conn, Items, State),
    sent(Conn, Session#session{rest = little}, State);
batch(yield, _, Conn, Session, State) ->
    {Kept, Next} = keep(Conn, Session, with_room(State)),
    take_late_turn(Conn, Kept, Next);
batch(more, Items, Conn, Session, State) ->
    {Kept, Next} = keep(Conn, Session, State),
    replay(Conn, Items, State),
    sent(Conn, Kept, Next);
batch({gap, Gap}, {0, _, _}, Conn, Session, State) ->
    gap(Conn, Gap, State),
    {Kept, Next} = keep(Conn, Session, State),
    take_turn(Conn, Kept, Next);
batch({gap, Gap}, Items, Conn, Session, State) ->
    {Kept, Next} = keep(Conn, Session, State),
    replay(Conn, Items, State),
    gap(Conn, Gap, State),
    sent(Conn, Kept, Next).

sent(Conn, #session{transport = ?TRANSPORT_POLL}, State) ->
    ended(Conn, forgotten(Conn, State));
sent(Conn, Session, #state{sessions = Sessions} = State) ->
    State#state{sessions = Sessions#{Conn => Session#session{phase = sent}}}.

ended(Conn, #state{link = Link} = State) ->
    Link ! {replay_ended, self(), Conn},
    State.

%% In the midst of a replay its state is large.
keep(Conn, Session, #state{kept = Kept, replays_max = Max} = State) ->
    case map_size(Kept) < Max of
        true -> {Session, State#state{kept = Kept#{Conn => []}}};
        false -> {without_replay(Session), State}
    end.

without_replay(#session{replay = Replay} = Session) ->
    Session#session{replay = none, cursor = halley_replay:cursor(Replay)}.

%% If all sessions that keep their state are at work as well, they will soon be done.
with_room(#state{kept = Kept, replays_max = Max} = State) when map_size(Kept) < Max ->
    State;
with_room(#state{kept = Kept, sessions = Sessions} = State) ->
    case [Conn || Conn <- maps:keys(Kept), (map_get(Conn, Sessions))#session.phase =:= sent] of
        [Conn | _] ->
            Session = without_replay(map_get(Conn, Sessions)),
            forgotten(Conn, State#state{sessions = Sessions#{Conn := Session}});
        [] ->
            State
    end.

replay(Conn, {_, Cursor, _} = Items, #state{writer = Writer}) ->
    write(halley_edge_encoder:encode_replay(Conn, 0, Cursor, [], Items), Writer).

gap(Conn, Gap, #state{writer = Writer}) ->
    #{reason := Reason, from := FromMs, to := ToMs, cursor := Cursor} = Gap,
    Frame = {gap, atom_to_binary(Reason), FromMs, ToMs, Cursor, [Conn]},
    write(halley_edge_codec:encode(Frame), Writer).

write(Frame, Writer) ->
    halley_edge_sender:send(Writer, [iolist_to_binary(Frame)]).
