%% Watches processes for a link: a process for each link.
%%
%% To a server that is called it is the caller. The server's reply goes to a writer by its alias;
%% one that is sent here by hand is handed on.
%%
%% Of this node's servers it hands on the 'DOWN's that readers get, to the writer of the process's
%% lane, after all that the process has sent: for the peer's monitors, and for its calls that the
%% process hasn't answered. Of this node's callers it monitors each while it waits: the call of one
%% that ends is cancelled.
%%
%% A server that replies can't be made to wait. So replies may take as much again as the bound of
%% the queue. This process looks at it every ?LOOK_MS; when they take more for ?STALL_MS on end, the
%% link ends (`replies_above_bound').
-module(teleport_watch).
-behaviour(gen_server).

-export([start_link/1, attach/2, call_apart/4, monitor/4, demonitor/2, calling/2, called/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("teleport.hrl").

-define(LOOK_MS, 250).
-define(STALL_MS, 1000).
%% To look into a writer's mailbox takes that writer a while: only if it has written hardly anything
%% since the last time, or if there may be very many replies in it.
-define(SLOW, 500).
-define(MANY_CALLS, 10000).

-record(state, {
    calls :: teleport_calls:calls(),
    route = none :: none | #route{},
    %% With the monitor's owner.
    monitors = #{} :: #{Ref :: reference() => {reference(), Owner :: pid(), Watcher :: pid()}},
    watched = #{} :: #{MRef :: reference() => Ref :: reference()},
    callers = teleport_watchers:new() :: teleport_watchers:watchers(),
    sent = 0 :: non_neg_integer(),                       % at the last look
    above_ms = none :: none | integer()                  % since when replies are above the bound
}).

-spec start_link(teleport_calls:calls()) -> {ok, pid()}.
start_link(Calls) ->
    {ok, Pid} = gen_server:start_link(?MODULE, Calls, []),
    {ok, Pid}.

%% Before anything else comes.
-spec attach(pid(), #route{}) -> ok.
attach(Watch, Route) -> gen_server:cast(Watch, {attach, Route}).

%% Begins a call for a caller that doesn't take 'DOWN's: another process has the monitor.
-spec call_apart(pid(), teleport_calls:calls(), Alias :: reference(), pid()) ->
    MRef :: reference().
call_apart(Watch, Calls, Alias, Process) ->
    Caller = self(),
    Begun = make_ref(),
    _ = spawn(fun() ->
        MRef = erlang:monitor(process, Process),
        Ends = erlang:monitor(process, Watch),
        ok = teleport_calls:begun(Calls, MRef, Alias, Process, self()),
        Caller ! {Begun, MRef},
        receive
            {'DOWN', MRef, process, _, _} = Down -> Watch ! Down;
            {demonitor, MRef} -> ok;
            {'DOWN', Ends, process, _, _} -> ok
        end
    end),
    receive {Begun, MRef} -> MRef end.

%% The peer watches a local process, which the caller has a monitor of: its 'DOWN' comes here. The
%% caller gets `{demonitor, MRef}' when the peer no longer does.
-spec monitor(pid(), reference(), Watcher :: pid(), MRef :: reference()) -> ok.
monitor(Watch, Ref, Watcher, MRef) ->
    gen_server:cast(Watch, {monitor, Ref, Watcher, MRef, self()}).

-spec demonitor(pid(), reference()) -> ok.
demonitor(Watch, Ref) -> gen_server:cast(Watch, {demonitor, Ref}).

%% This process calls one of the peer, and waits until it says `called'.
-spec calling(pid(), Alias :: reference()) -> ok.
calling(Watch, Alias) -> gen_server:cast(Watch, {calling, Alias, self()}).

-spec called(pid(), Alias :: reference()) -> ok.
called(Watch, Alias) -> gen_server:cast(Watch, {called, Alias}).

-spec init(teleport_calls:calls()) -> {ok, #state{}}.
init(Calls) -> {ok, #state{calls = Calls}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({attach, Route}, State) ->
    {noreply, look_later(State#state{route = Route})};
handle_cast({monitor, Ref, Watcher, MRef, Owner}, #state{monitors = Monitors,
                                                         watched = Watched} = State) ->
    {noreply, State#state{monitors = Monitors#{Ref => {MRef, Owner, Watcher}},
                          watched = Watched#{MRef => Ref}}};
handle_cast({demonitor, Ref}, #state{monitors = Monitors, watched = Watched} = State) ->
    case maps:take(Ref, Monitors) of
        {{MRef, Owner, _}, Rest} ->
            Owner ! {demonitor, MRef},
            {noreply, State#state{monitors = Rest, watched = maps:remove(MRef, Watched)}};
        error ->
            {noreply, State}
    end;
handle_cast({calling, Alias, Caller}, #state{callers = Callers} = State) ->
    {noreply, State#state{callers = teleport_watchers:add(Alias, Caller, Callers)}};
handle_cast({called, Alias}, #state{callers = Callers} = State) ->
    case teleport_watchers:take(Alias, Callers) of
        {_, Rest} -> {noreply, State#state{callers = Rest}};
        none -> {noreply, State}
    end;
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({'DOWN', MRef, process, Process, Reason},
            #state{route = #route{writers = Writers} = Route, monitors = Monitors,
                   watched = Watched, callers = Callers} = State) ->
    case {maps:take(MRef, Watched), teleport_watchers:find(MRef, Callers)} of
        {{Ref, Rest}, _} ->
            {{_, _, Watcher}, Others} = maps:take(Ref, Monitors),
            ok = teleport_writer:answer(teleport_post:lane(Process, Writers), {behind, Process},
                                        {down, Ref, Watcher, Reason}),
            {noreply, State#state{monitors = Others, watched = Rest}};
        {error, {ok, Alias}} ->
            {Caller, Left} = teleport_watchers:take(Alias, Callers),
            ok = teleport_post:withdraw(Route, Caller, {cancel, Alias}),
            {noreply, State#state{callers = Left}};
        {error, none} ->
            ok = teleport_writer:ended(teleport_post:lane(Process, Writers), MRef, Reason),
            {noreply, State}
    end;
handle_info({[[alias | Alias] | _], _} = Reply, State) when is_reference(Alias) ->
    Alias ! Reply,
    {noreply, State};
handle_info(look, State) ->
    case look(State) of
        {is_within, Now} -> {noreply, look_later(Now)};
        stop -> {stop, {shutdown, replies_above_bound}, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% --- the bound of replies ----------------------------------------------------------------------

look_later(State) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    State.

look(#state{route = #route{node = Node, queue_bytes_max = Max} = Route, above_ms = AboveMs,
            sent = Before} = State) ->
    Sent = atomics:get(teleport_table:stats(Node), ?SENT),
    Now = State#state{sent = Sent},
    NowMs = erlang:monotonic_time(millisecond),
    case counted(Route) + uncounted(Sent - Before, Now) > 2 * Max of
        true when AboveMs =/= none, NowMs - AboveMs >= ?STALL_MS -> stop;
        true when AboveMs =/= none -> {is_within, Now};
        true -> {is_within, Now#state{above_ms = NowMs}};
        false -> {is_within, Now#state{above_ms = none}}
    end.

%% What the bound didn't let in.
counted(#route{queue = Queue, queue_bytes_max = Max}) ->
    lists:sum([max(0, atomics:get(Queue, Way) - Max) || Way <- [?QUEUE_SMALL, ?QUEUE_LARGE]]).

uncounted(Sent, #state{calls = Calls, monitors = Monitors,
                       route = #route{writers = Writers, queue = Queue}}) ->
    Open = teleport_calls:count(Calls) + map_size(Monitors),
    Waits = atomics:get(Queue, ?QUEUE_SMALL) > 0 orelse atomics:get(Queue, ?QUEUE_LARGE) > 0,
    case Open > ?MANY_CALLS orelse (Waits andalso Open > 0 andalso Sent < ?SLOW) of
        true -> lists:sum([teleport_writer:waits(Writer) || Writer <- tuple_to_list(Writers)]);
        false -> 0
    end.
