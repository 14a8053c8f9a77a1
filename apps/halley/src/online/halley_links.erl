%% The registry of links: a slot for each, and the way to its writer.
%%
%% A link's writer registers and gets a slot (1..1023) and a counter of the bytes that wait for it.
%%   {deliver, [{halley_event:delivery(), to()}]}  events, the oldest first, each to connections, or
%%                                               to a group and others
%%   {members, join | leave, Group, Conns}       members of a group; they are sent though it is
%%   {end_group, Group}                          behind, since no history has them
%%   {mark, Shard, Seq}                          the shard has nothing more for anyone up to Seq
%%   behind                                      the link has been marked behind; see below
%%   {presence, [{Json, Conns}]}                 presence for connections, in order
%%   {close_sessions, Reason :: binary(), Conns} Conns: a list
%% are the messages it receives. All but the last three come from the shard alone, so they stay in
%% its order. `deliver/2' adds `cost/2' to the counter before it sends, `members/4' the bytes of
%% the connections, `close_sessions/3' `close_cost/1', `presence/2' `presence_cost/1'; the writer
%% subtracts as many when they were handed to the socket.
%%
%% The counter bounds a link's queue. An event that would take it past `link_queue_bytes_max' is not
%% sent: the link is *behind*, and as long as it is, neither events nor marks are sent to it
%% (link.md 4.7, 10.6). When the queue has drained, the writer calls `resume/1', reads the heads
%% after that, and gets from the history what is not above them. Nothing is lost in between: a shard
%% moves its head before it looks at the flag, so an event that found the link behind is not above
%% heads that are read after the flag was cleared. `behind' is sent once each time that the flag is
%% set, because a writer that drained before it was set would sleep. The flag, not the message, is
%% the truth.
%%
%% A *trunk* is one connection for all workers of an edge (docs/internals/trunk.md). Its writer has
%% a slot of its own, in which no session is, and each of its workers has one. Queue and mark are
%% those of the trunk's slot, the *way* of them all: they are behind together. In its messages
%% connections are words as in the directory, and an event for a group names the slots that have
%% members. A link of a worker is its own way.
%%
%% A single slow link makes no publisher wait. `overloaded/1' turns true when every link has
%% `link_queue_refuse_bytes' waiting: then it is the brain that is too fast.
%%
%% A slot is free again only when the directory has been purged of the dead link's sessions, and
%% the slot that was free for the longest is given out first: a message or a session of a dead link
%% never reaches its slot's next owner.
%%
%% Delivering asks no process: it reads the ETS table, which belongs to the supervisor.
%% A restarted registry monitors the writers that it finds there, and knows by atomics in which
%% order slots became free.
-module(halley_links).
-behaviour(gen_server).

-export([new/0, start_link/1]).
-export([register/2, register_trunk/1, register_worker/2, end_worker/1]).
-export([find/1, way/1, deliver/2, members/4, end_group/1, mark/2, mark/3]).
-export([close_sessions/3, presence/2, cost/2, close_cost/1, presence_cost/1]).
-export([is_behind/1, resume/1, leave_to_history/0]).
-export([list/0, info/1, pressure/0, overloaded/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([slot/0, link/0, info/0, to/0, told/0]).

-type slot() :: halley_directory:slot().
%% What a link says about itself, for metrics and health.
-type info() :: map().
%% Packed u64, big-endian, all of the link; or a group, and connections that aren't its members. To
%% a trunk words, and of a group the slots that have members, ascending.
-type to() :: Conns :: binary()
            | {group, halley_id:user_number(), Conns :: binary()}
            | {group, halley_id:user_number(), [slot(), ...], Conns :: binary()}.

-type told() :: {Json :: binary(), To :: [halley_directory:conn() | halley_directory:word(), ...]}.

%% The way of every event; what is only asked for stands apart, so that a look-up doesn't copy it.
-define(TABLE, halley_links).
-define(ABOUT, halley_links_about).
-define(SLOT_MAX, 1023).
-define(OVERLOADED, {?MODULE, overloaded}).
-define(BEHIND, {?MODULE, behind}).
%% For each slot how many links had ended when its last one did, then how many have.
-define(ENDED, {?MODULE, ended}).
-define(ENDED_ALL, (?SLOT_MAX + 1)).
%% DELIVER without its item and conns, GROUP_DELIVER without its item (link.md 2).
-define(DELIVER_BYTES, 7).
-define(GROUP_DELIVER_BYTES, 9).
%% The count of the slots in that of a trunk.
-define(SLOTS_BYTES, 2).
%% About what a CLOSE_SESSIONS and its message have besides the connections.
-define(CLOSE_BYTES, 128).
%% Of the connections in one (7.3).
-define(CONNS_BYTES_MAX, (8 * 8192)).

-record(link, {slot :: slot(), way :: slot(), writer :: pid(), queue :: counters:counters_ref()}).
-opaque link() :: #link{}.
-record(about, {slot :: slot(), since :: integer(), info :: info()}).
%% How long the end waits for purges; the supervisor waits longer.
-define(PURGES_MS_MAX, 50000).

-record(state, {purged :: fun((halley_id:user_number()) -> ok),
                free :: queue:queue(slot()),
                writers = #{} :: #{reference() => slot()},
                purges = #{} :: #{reference() => {pid(), slot()}}}).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    ?ABOUT = ets:new(?ABOUT, [named_table, public, {keypos, #about.slot}]),
    ?TABLE = ets:new(?TABLE, [named_table, public, {keypos, #link.slot}, {read_concurrency, true}]),
    ok = halley_metrics:gauges([links, link_queue], fun gauges/0),
    persistent_term:put(?BEHIND, atomics:new(?SLOT_MAX, [])),
    persistent_term:put(?ENDED, atomics:new(?ENDED_ALL, [])),
    persistent_term:put(?OVERLOADED, atomics:new(1, [])).

%% `Purged' is called for each user of whom a session has ended with its link, behind that, in a
%% process that may wait.
-spec start_link(Purged :: fun((halley_id:user_number()) -> ok)) -> gen_server:start_ret().
start_link(Purged) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Purged, []).

%% Gives a link its slot, and the counter (index 1) of the bytes that wait for its writer. When
%% the writer dies the link has ended: its sessions are forgotten and its edge metrics kept in the
%% sums.
-spec register(Writer :: pid(), info()) ->
    {ok, slot(), counters:counters_ref()} | {error, too_many_links}.
register(Writer, Info) ->
    gen_server:call(?MODULE, {register, Writer, Info}, infinity).

%% The same for the writer of a trunk: its way.
-spec register_trunk(Writer :: pid()) ->
    {ok, Way :: slot(), counters:counters_ref()} | {error, too_many_links}.
register_trunk(Writer) ->
    gen_server:call(?MODULE, {register_trunk, Writer}, infinity).

%% Gives a worker of a trunk its slot. It ends with the trunk, or before it by `end_worker/1'.
-spec register_worker(Way :: slot(), info()) -> {ok, slot()} | {error, too_many_links | gone}.
register_worker(Way, Info) ->
    gen_server:call(?MODULE, {register_worker, Way, Info}, infinity).

%% Ends a worker's slot on a trunk as the end of a link does.
-spec end_worker(slot()) -> ok.
end_worker(Slot) ->
    gen_server:call(?MODULE, {end_worker, Slot}, infinity).

%% A link, for as long as the caller is at some events. `gone': it has ended.
-spec find(slot()) -> {ok, link()} | gone.
find(Slot) ->
    case ets:lookup(?TABLE, Slot) of
        [Link] -> {ok, Link};
        [] -> gone
    end.

%% Where the slot's queue and mark are: its own slot, or that of its trunk.
-spec way(slot() | link()) -> slot().
way(#link{way = Way}) ->
    Way;
way(Slot) ->
    case find(Slot) of
        {ok, #link{way = Way}} -> Way;
        gone -> Slot
    end.

%% Sends events to connections of a link, the oldest first, in one message. `behind': it gets those
%% that are over its bound, or all, from the history, later.
-spec deliver(link(), [{halley_event:delivery(), to()}, ...]) -> ok | behind.
deliver(#link{way = Way, writer = Writer, queue = Queue}, Deliveries) ->
    Behind = persistent_term:get(?BEHIND),
    case atomics:get(Behind, Way) of
        0 ->
            Waiting = counters:get(Queue, 1),
            Room = halley_limits:get(link_queue_bytes_max) - Waiting,
            {Sent, Cost, Left} = fitting(Deliveries, Room),
            note_pressure(Waiting + Cost + left_cost(Left)),
            counters:add(Queue, 1, Cost),
            _ = Sent =/= [] andalso (Writer ! {deliver, Sent}),
            left(Left, Behind, Way, Writer);
        1 ->
            behind
    end.

%% Those that fit into so many bytes, what they cost, and the others.
fitting(Deliveries, Room) ->
    Cost = lists:foldl(fun({Delivery, To}, Sum) -> Sum + cost(Delivery, To) end, 0, Deliveries),
    case Cost =< Room of
        true -> {Deliveries, Cost, []};
        false -> fitting(Deliveries, Room, 0, [])
    end.

fitting([{Delivery, To} = First | Rest] = Left, Room, Cost, Sent) ->
    case Cost + cost(Delivery, To) of
        More when More =< Room -> fitting(Rest, Room, More, [First | Sent]);
        _ -> {lists:reverse(Sent), Cost, Left}
    end.

left_cost([]) -> 0;
left_cost([{Delivery, To} | _]) -> cost(Delivery, To).

left([], _, _, _) ->
    ok;
left(_, Behind, Way, Writer) ->
    halley_metrics:incr(links_behind, set_behind(Behind, Way, Writer)),
    behind.

%% 1 if it wasn't before.
set_behind(Behind, Way, Writer) ->
    case atomics:exchange(Behind, Way, 1) of
        0 ->
            Writer ! behind,
            1;
        1 ->
            0
    end.

%% The bytes of the DELIVER frames that one `deliver' message becomes, without the cursors that the
%% writer puts into them when there are several.
-spec cost(halley_event:delivery(), to()) -> pos_integer().
cost({_, _, Wire}, {group, _, <<>>}) ->
    ?GROUP_DELIVER_BYTES + byte_size(Wire);
cost({_, _, Wire} = Delivery, {group, _, Conns}) ->
    ?GROUP_DELIVER_BYTES + byte_size(Wire) + cost(Delivery, Conns);
cost(Delivery, {group, Group, Slots, Conns}) ->
    ?SLOTS_BYTES + 2 * length(Slots) + cost(Delivery, {group, Group, Conns});
cost({_, _, Wire}, Conns) ->
    Frames = 1 + byte_size(Conns) div ?CONNS_BYTES_MAX,
    Frames * (?DELIVER_BYTES + byte_size(Wire)) + byte_size(Conns).

%% Tells a link of members of a group. The subject's shard alone calls it, so it stays in order with
%% the group's events. Nothing is told to a link that has ended: its sessions are no members.
-spec members(slot(), join | leave, Group :: halley_id:user_number(), Conns :: binary()) -> ok.
members(Slot, What, Group, Conns) ->
    case ets:lookup(?TABLE, Slot) of
        [#link{writer = Writer, queue = Queue} = Link] ->
            counters:add(Queue, 1, byte_size(Conns)),
            Writer ! {members, What, Group, packed_words(Conns, Link)},
            ok;
        [] ->
            ok
    end.

packed_words(Conns, #link{slot = Way, way = Way}) -> Conns;
packed_words(Conns, #link{slot = Slot}) -> << <<Slot:16, Conn:48>> || <<_:16, Conn:48>> <= Conns >>.

%% Tells every link that a group is none any more. Only the subject's shard calls it.
-spec end_group(Group :: halley_id:user_number()) -> ok.
end_group(Group) ->
    each_writer(fun(#link{writer = Writer}) -> Writer ! {end_group, Group} end).

each_writer(Do) ->
    ets:foldl(fun(#link{slot = Way, way = Way} = Link, ok) -> _ = Do(Link), ok;
                 (_, ok) -> ok
              end, ok, ?TABLE).

%% Tells every link that isn't behind how far the shard is. Only the shard calls it.
-spec mark(halley_shards:index(), halley_cursor:seq()) -> ok.
mark(Shard, Seq) ->
    Behind = persistent_term:get(?BEHIND),
    Message = {mark, Shard, Seq},
    each_writer(fun(#link{way = Way, writer = Writer}) ->
        atomics:get(Behind, Way) =:= 0 andalso (Writer ! Message)
    end).

%% The same for one, by its way.
-spec mark(slot(), halley_shards:index(), halley_cursor:seq()) -> ok.
mark(Slot, Shard, Seq) ->
    _ = [Writer ! {mark, Shard, Seq} || not is_behind(Slot),
                                        #link{writer = Writer} <- ets:lookup(?TABLE, Slot)],
    ok.

%% Marks every link behind, whatever waits there. For a shard that starts in place of one that
%% died: what two processes send may overtake each other, so its first mark could arrive before the
%% last events of the other one. Now it finds no link that takes it, and the events come from the
%% history.
-spec leave_to_history() -> ok.
leave_to_history() ->
    Behind = persistent_term:get(?BEHIND),
    each_writer(fun(#link{way = Way, writer = Writer}) -> set_behind(Behind, Way, Writer) end).

%% Whether events for what has this way have been left to the history.
-spec is_behind(Way :: slot()) -> boolean().
is_behind(Way) ->
    atomics:get(persistent_term:get(?BEHIND), Way) =:= 1.

%% Events are sent this way again. The writer calls it, and reads the heads afterwards.
-spec resume(Way :: slot()) -> ok.
resume(Way) ->
    atomics:put(persistent_term:get(?BEHIND), Way, 0).

%% Asks a link to close connections; it does nothing if the link has ended.
-spec close_sessions(slot(), [halley_directory:conn()], Reason :: binary()) -> ok.
close_sessions(Slot, Conns, Reason) ->
    case ets:lookup(?TABLE, Slot) of
        [#link{writer = Writer, queue = Queue} = Link] ->
            counters:add(Queue, 1, close_cost(Conns)),
            Writer ! {close_sessions, Reason, words(Conns, Link)},
            ok;
        [] ->
            ok
    end.

%% Tells connections of a link of presence, in one message. `behind': too much waits for the link.
-spec presence(slot(), [told(), ...]) -> ok | behind | gone.
presence(Slot, Told) ->
    Cost = lists:sum([presence_cost(One) || One <- Told]),
    case ets:lookup(?TABLE, Slot) of
        [#link{writer = Writer, queue = Queue} = Link] ->
            HasRoom = counters:get(Queue, 1) + Cost =< halley_limits:get(link_queue_bytes_max),
            HasRoom andalso counters:add(Queue, 1, Cost),
            HasRoom andalso (Writer ! {presence, [{J, words(C, Link)} || {J, C} <- Told]}),
            case HasRoom of true -> ok; false -> behind end;
        [] -> gone
    end.

-spec presence_cost(told()) -> pos_integer().
presence_cost({Json, Conns}) -> byte_size(Json) + close_cost(Conns).

words(Conns, #link{slot = Way, way = Way}) -> Conns;
words(Conns, #link{slot = Slot}) -> [Slot bsl 48 bor Conn || Conn <- Conns].

%% What counts for a `close_sessions' message while it waits for the writer.
-spec close_cost([halley_directory:conn()]) -> pos_integer().
close_cost(Conns) ->
    ?CLOSE_BYTES + 8 * length(Conns).

%% The links of workers, and the workers of trunks, which have a queue in common.
-spec list() -> [#{slot := slot(), writer := pid(), queue_bytes := integer(),
                   since := integer(), info := info()}].
list() ->
    [#{slot => Slot, writer => Writer, queue_bytes => counters:get(Queue, 1),
       since => Since, info => Info}
     || #link{slot = Slot, writer = Writer, queue = Queue} <- ets:tab2list(?TABLE),
        #about{since = Since, info = Info} <- ets:lookup(?ABOUT, Slot)].

-spec info(slot()) -> info() | undefined.
info(Slot) ->
    case ets:lookup(?ABOUT, Slot) of
        [#about{info = Info}] -> Info;
        [] -> undefined
    end.

gauges() ->
    Queues = [counters:get(Queue, 1)
              || #link{slot = Way, way = Way, queue = Queue} <- ets:tab2list(?TABLE)],
    #{links => ets:info(?ABOUT, size), link_queue => lists:sum(Queues)}.

%% The share of `link_queue_bytes_max' that the fullest link's queue uses; it may pass 1.
-spec pressure() -> float().
pressure() ->
    fullest_bytes() / halley_limits:get(link_queue_bytes_max).

%% Whether events of these must be refused because every link's queue is near its bound.
-spec overloaded(halley_limits:whose()) -> boolean().
overloaded(Whose) ->
    Flag = persistent_term:get(?OVERLOADED),
    atomics:get(Flag, 1) =:= 1 andalso still_overloaded(Flag, Whose).

%% Clearing first and looking then: a delivery that passes the bound in between sets the flag again.
still_overloaded(Flag, Whose) ->
    ok = atomics:put(Flag, 1, 0),
    case all_full(users) of
        true ->
            ok = atomics:put(Flag, 1, 1),
            Whose =:= users orelse all_full(Whose);
        false -> false
    end.

%% It ends at the first link that has room, so a slow link among others costs little.
all_full(Whose) ->
    Bytes = halley_limits:part(Whose, link_queue_refuse_bytes),
    true = ets:safe_fixtable(?TABLE, true),
    try
        First = ets:first(?TABLE),
        First =/= '$end_of_table' andalso full_from(First, Bytes)
    after
        ets:safe_fixtable(?TABLE, false)
    end.

full_from('$end_of_table', _) -> true;
full_from(Slot, Bytes) ->
    is_full(ets:lookup(?TABLE, Slot), Bytes) andalso full_from(ets:next(?TABLE, Slot), Bytes).

is_full([#link{queue = Queue}], Bytes) -> counters:get(Queue, 1) >= Bytes;
is_full([], _) -> true.

%% From half of the bound on: to look where users' part ends is too much for each delivery.
note_pressure(Bytes) ->
    case Bytes >= halley_limits:get(link_queue_refuse_bytes) bsr 1 of
        true -> atomics:put(persistent_term:get(?OVERLOADED), 1, 1);
        false -> ok
    end.

fullest_bytes() ->
    ets:foldl(fun(#link{queue = Queue}, Max) -> max(Max, counters:get(Queue, 1)) end, 0, ?TABLE).

%% --- the owner ---------------------------------------------------------------------------------

-spec init(fun((halley_id:user_number()) -> ok)) -> {ok, #state{}}.
init(Purged) ->
    _ = process_flag(trap_exit, true),
    Links = ets:tab2list(?TABLE),
    Taken = [Slot || #link{slot = Slot} <- Links],
    Writers = maps:from_list([{monitor(process, W), S}
                              || #link{slot = S, way = S, writer = W} <- Links]),
    Shut = halley_directory:shut_slots() -- Taken,
    Free = lists:seq(1, ?SLOT_MAX) -- (Taken ++ Shut),
    Ended = persistent_term:get(?ENDED),
    {_, Oldest} = lists:unzip(lists:sort([{atomics:get(Ended, Slot), Slot} || Slot <- Free])),
    {ok, lists:foldl(fun purge/2, #state{purged = Purged, free = queue:from_list(Oldest),
                                         writers = Writers}, Shut)}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({register, Writer, Info}, _, State) ->
    with_slot(fun(Slot, Taken) -> opened(Writer, about(Slot, Info), Taken) end, State);
handle_call({register_trunk, Writer}, _, State) ->
    with_slot(fun(Slot, Taken) -> opened(Writer, Slot, Taken) end, State);
handle_call({register_worker, Way, Info}, _, State) ->
    case ets:lookup(?TABLE, Way) of
        [#link{way = Way} = Trunk] ->
            with_slot(fun(Slot, Taken) ->
                Slot = about(Slot, Info),
                true = ets:insert_new(?TABLE, Trunk#link{slot = Slot}),
                {reply, {ok, Slot}, Taken}
            end, State);
        [] ->
            {reply, {error, gone}, State}
    end;
handle_call({end_worker, Slot}, _, State) ->
    case ets:lookup(?TABLE, Slot) of
        [#link{way = Way}] when Way =/= Slot -> {reply, ok, ended(Slot, State)};
        _ -> {reply, ok, State}
    end.

with_slot(Use, State = #state{free = Free}) ->
    case queue:out(Free) of
        {{value, Slot}, Rest} ->
            ok = halley_directory:mark(Slot, given),
            Use(Slot, State#state{free = Rest});
        {empty, _} -> {reply, {error, too_many_links}, State}
    end.

about(Slot, Info) ->
    ok = halley_metrics:edge_came(Slot, Info),
    true = ets:insert(?ABOUT, #about{slot = Slot, since = halley_clock:wall_ms(),
                                     info = Info}),
    Slot.

opened(Writer, Slot, State = #state{writers = Writers}) ->
    Queue = counters:new(1, [atomics]),
    ok = resume(Slot),
    true = ets:insert_new(?TABLE, #link{slot = Slot, way = Slot, writer = Writer, queue = Queue}),
    {reply, {ok, Slot, Queue},
     State#state{writers = Writers#{monitor(process, Writer) => Slot}}}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', Monitor, process, _, Reason}, State = #state{writers = Writers}) ->
    case maps:take(Monitor, Writers) of
        {Way, Rest} -> {noreply, link_down(Way, State#state{writers = Rest})};
        error -> {noreply, purge_ended(Monitor, Reason, State)}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% When the brain stops, its tables go soon after this process: no purge may still walk one then, as
%% the emulator can crash over that (docs/internals/brain.md).
-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{purges = Purges}) when Reason =:= shutdown; Reason =:= normal ->
    End = erlang:monotonic_time(millisecond) + ?PURGES_MS_MAX,
    lists:foreach(fun({Monitor, {Pid, _}}) ->
        receive {'DOWN', Monitor, process, _, _} -> ok
        after max(0, End - erlang:monotonic_time(millisecond)) ->
            exit(Pid, kill),
            receive {'DOWN', Monitor, process, _, _} -> ok end
        end
    end, maps:to_list(Purges));
terminate(_, _) ->
    ok.

%% A trunk's own slot is the last: a registry that is killed in between finds the rest by it.
link_down(Way, State) ->
    Workers = [Slot || #link{slot = Slot, way = W} <- ets:tab2list(?TABLE), W =:= Way, Slot =/= W],
    lists:foldl(fun ended/2, State, Workers ++ [Way]).

%% Shut before the row goes: a registry that is killed in between finds one or the other.
ended(Slot, State) ->
    Ended = persistent_term:get(?ENDED),
    ok = atomics:put(Ended, Slot, atomics:add_get(Ended, ?ENDED_ALL, 1)),
    ok = halley_directory:mark(Slot, ended),
    ok = halley_metrics:edge_gone(Slot),
    true = ets:delete(?TABLE, Slot),
    true = ets:delete(?ABOUT, Slot),
    purge(Slot, State).

%% A purge that was interrupted, because the directory's owner was restarted, is done again.
purge_ended(Monitor, Reason, State = #state{purges = Purges, free = Free}) ->
    case maps:take(Monitor, Purges) of
        {{_, Slot}, Rest} when Reason =:= normal ->
            State#state{free = queue:in(Slot, Free), purges = Rest};
        {{_, Slot}, Rest} ->
            purge(Slot, State#state{purges = Rest});
        error ->
            State
    end.

%% Linked: none goes on without a registry that waits for its end.
purge(Slot, State = #state{purged = Purged, purges = Purges}) ->
    {Pid, Monitor} = spawn_opt(halley_directory, purge, [Slot, Purged], [link, monitor]),
    State#state{purges = Purges#{Monitor => {Pid, Slot}}}.
