%% The registry of links: a slot for each, and its writer.
%%
%% An edge has one link for all of its workers, a *trunk* (docs/internals/trunk.md). Its writer
%% registers and gets a slot (1..1023), in which no session is, and a counter of the bytes that wait
%% for it. Each of its workers has a slot of its own. Queue and mark are those of the trunk's slot,
%% the *way* of them all.
%%
%% `halley_links_queue' sends to the writer, `halley_links_backpressure' knows which links take no
%% events for now.
%%
%% A slot is free again only when the directory has been purged of the dead link's sessions, and
%% the slot that was free for the longest is given out first: a message or a session of a dead link
%% never reaches its slot's next owner.
%%
%% A look-up asks no process: it reads the ETS table, which belongs to the supervisor.
%% A restarted registry monitors the writers that it finds there, and knows by atomics in which
%% order slots became free.
-module(halley_links).
-behaviour(gen_server).

-export([new/0, start_link/1]).
-export([register_trunk/1, register_worker/2, end_worker/1, end_all/0]).
-export([find/1, way/1, list/0, info/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([slot/0, link/0, info/0]).

-include("halley_links.hrl").

-type slot() :: halley_directory:slot().
%% For `halley_links_queue' alone.
-type link() :: #link{}.
%% What a link says about itself, for metrics and health.
-type info() :: map().

%% The rows of events' ways are in ?LINKS. What metrics and health read of a link is in a table of
%% its own, so that a look-up doesn't copy it.
-define(ABOUT, halley_links_about).
-define(SLOT_MAX, 1023).
%% For each slot how many links had ended when its last one did, then how many have.
-define(ENDED, {?MODULE, ended}).
-define(ENDED_ALL, (?SLOT_MAX + 1)).

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
    ?LINKS = ets:new(?LINKS, [named_table, public, {keypos, #link.slot}, {read_concurrency, true}]),
    ok = halley_metrics:gauges([links, link_queue], fun gauges/0),
    ok = halley_links_backpressure:new(?SLOT_MAX),
    persistent_term:put(?ENDED, atomics:new(?ENDED_ALL, [])).

%% `Purged' is called for each user of whom a session has ended with its link, behind that, in a
%% process that may wait.
-spec start_link(Purged :: fun((halley_id:user_number()) -> ok)) -> gen_server:start_ret().
start_link(Purged) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Purged, []).

%% Gives a trunk its slot, and the counter (index 1) of the bytes that wait for its writer. When
%% the writer dies the trunk has ended, and all of its workers' slots with it: their sessions are
%% forgotten and their edge metrics kept in the sums.
-spec register_trunk(Writer :: pid()) ->
    {ok, Way :: slot(), counters:counters_ref()} | {error, too_many_links}.
register_trunk(Writer) ->
    gen_server:call(?MODULE, {register_trunk, Writer}, infinity).

%% Gives a worker of a trunk its slot. It ends with the trunk, or before it by `end_worker/1'.
-spec register_worker(Way :: slot(), info()) -> {ok, slot()} | {error, too_many_links | gone}.
register_worker(Way, Info) ->
    gen_server:call(?MODULE, {register_worker, Way, Info}, infinity).

%% Ends a worker's slot as the end of its trunk does.
-spec end_worker(slot()) -> ok.
end_worker(Slot) ->
    gen_server:call(?MODULE, {end_worker, Slot}, infinity).

%% Ends all links: their edges dial again and send all of their sessions. Returns when no writer is
%% left that had a place before.
-spec end_all() -> ok.
end_all() ->
    Writers = [Writer || #link{slot = Way, way = Way, writer = Writer} <- ets:tab2list(?LINKS)],
    Monitors = [monitor(process, Writer) || Writer <- Writers],
    lists:foreach(fun(Writer) -> exit(Writer, kill) end, Writers),
    lists:foreach(fun(Monitor) -> receive {'DOWN', Monitor, process, _, _} -> ok end end, Monitors).

%% A slot's link, for as long as the caller is at some events. `gone': it has ended.
-spec find(slot()) -> {ok, link()} | gone.
find(Slot) ->
    case ets:lookup(?LINKS, Slot) of
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

%% The workers. Those of one trunk have the writer and the queue in common.
-spec list() -> [#{slot := slot(), writer := pid(), queue_bytes := integer(),
                   since := integer(), info := info()}].
list() ->
    [#{slot => Slot, writer => Writer, queue_bytes => counters:get(Queue, 1),
       since => Since, info => Info}
     || #link{slot = Slot, writer = Writer, queue = Queue} <- ets:tab2list(?LINKS),
        #about{since = Since, info = Info} <- ets:lookup(?ABOUT, Slot)].

-spec info(slot()) -> info() | undefined.
info(Slot) ->
    case ets:lookup(?ABOUT, Slot) of
        [#about{info = Info}] -> Info;
        [] -> undefined
    end.

gauges() ->
    Queues = [counters:get(Queue, 1)
              || #link{slot = Way, way = Way, queue = Queue} <- ets:tab2list(?LINKS)],
    #{links => ets:info(?ABOUT, size), link_queue => lists:sum(Queues)}.

%% --- the owner ---------------------------------------------------------------------------------

-spec init(fun((halley_id:user_number()) -> ok)) -> {ok, #state{}}.
init(Purged) ->
    _ = process_flag(trap_exit, true),
    Links = ets:tab2list(?LINKS),
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
handle_call({register_trunk, Writer}, _, State) ->
    with_slot(fun(Slot, Taken) -> opened(Writer, Slot, Taken) end, State);
handle_call({register_worker, Way, Info}, _, State) ->
    case ets:lookup(?LINKS, Way) of
        [#link{way = Way} = Trunk] ->
            with_slot(fun(Slot, Taken) ->
                ok = about(Slot, Info),
                true = ets:insert_new(?LINKS, Trunk#link{slot = Slot}),
                {reply, {ok, Slot}, Taken}
            end, State);
        _ ->
            {reply, {error, gone}, State}
    end;
handle_call({end_worker, Slot}, _, State) ->
    case ets:lookup(?LINKS, Slot) of
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
    ok.

opened(Writer, Slot, State = #state{writers = Writers}) ->
    Queue = counters:new(1, [atomics]),
    ok = halley_links_backpressure:resume(Slot),
    true = ets:insert_new(?LINKS, #link{slot = Slot, way = Slot, writer = Writer, queue = Queue}),
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
    Workers = [Slot || #link{slot = Slot, way = W} <- ets:tab2list(?LINKS), W =:= Way, Slot =/= W],
    lists:foldl(fun ended/2, State, Workers ++ [Way]).

%% Shut before the row goes: a registry that is killed in between finds one or the other.
ended(Slot, State) ->
    Ended = persistent_term:get(?ENDED),
    ok = atomics:put(Ended, Slot, atomics:add_get(Ended, ?ENDED_ALL, 1)),
    ok = halley_directory:mark(Slot, ended),
    ok = halley_metrics:edge_gone(Slot),
    true = ets:delete(?LINKS, Slot),
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
