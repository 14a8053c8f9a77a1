%% Watches local processes for the peer: a process for each link, which answers calls and sends the
%% 'DOWN's of monitors.
%%
%% To a server that is called it is the caller, so the reply reaches it by a local message and goes
%% back over the link. What it posts is posted under the server's pid, so replies and 'DOWN's stay
%% behind what the server sent before.
%%
%% A server that replies can't be made to wait. So replies may take as much again as the bound of
%% the queue; beyond that this process waits, and if nothing is sent for ?STALL_MS meanwhile, the
%% link ends (`replies_above_bound').
-module(teleport_watch).
-behaviour(gen_server).

-export([start_link/0, attach/2, call/4, call_apart/3, cancel/2, from/2, reply/4]).
-export([monitor/4, demonitor/2, down/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("teleport.hrl").

-define(STALL_MS, 1000).
-define(WAIT_MS, 2).

-record(state, {
    route = none :: none | #route{},
    %% With the monitor's owner.
    calls = #{} :: #{Alias :: reference() => {reference(), pid(), Owner :: pid()}},
    monitors = #{} :: #{Ref :: reference() => {reference(), Owner :: pid(), Watcher :: pid()}},
    watched = #{} :: #{reference() => {call | monitor, reference()}}
}).

-spec start_link() -> {ok, pid()}.
start_link() ->
    {ok, Pid} = gen_server:start_link(?MODULE, [], []),
    {ok, Pid}.

%% Before anything else comes.
-spec attach(pid(), #route{}) -> ok.
attach(Watch, Route) -> gen_server:cast(Watch, {attach, Route}).

%% A call to a local process begins, which the caller has a monitor of: its 'DOWN' comes here. Said
%% before the process gets the request. The caller gets `{demonitor, MRef}' when it's answered.
-spec call(pid(), Alias :: reference(), pid(), MRef :: reference()) -> ok.
call(Watch, Alias, Process, MRef) ->
    gen_server:cast(Watch, {call, Alias, Process, MRef, self()}).

%% The same for a caller that doesn't take 'DOWN's: another process has the monitor.
-spec call_apart(pid(), Alias :: reference(), pid()) -> ok.
call_apart(Watch, Alias, Process) ->
    Caller = self(),
    Begun = make_ref(),
    _ = spawn(fun() ->
        MRef = erlang:monitor(process, Process),
        Ends = erlang:monitor(process, Watch),
        ok = call(Watch, Alias, Process, MRef),
        Caller ! Begun,
        receive
            {'DOWN', MRef, process, _, _} = Down -> Watch ! Down;
            {demonitor, MRef} -> ok;
            {'DOWN', Ends, process, _, _} -> ok
        end
    end),
    receive Begun -> ok end.

%% The caller no longer waits: a reply would be for nobody.
-spec cancel(pid(), Alias :: reference()) -> ok.
cancel(Watch, Alias) -> gen_server:cast(Watch, {cancel, Alias}).

%% What a server replies to.
-spec from(pid(), Alias :: reference()) -> {pid(), term()}.
from(Watch, Alias) -> {Watch, {teleport_call, Alias}}.

-spec reply(pid(), Key :: pid(), Alias :: reference(), {ok, term()} | {exit, term()}) -> ok.
reply(Watch, Key, Alias, Result) -> gen_server:cast(Watch, {reply, Key, Alias, Result}).

%% The peer watches a local process, which the caller has a monitor of: its 'DOWN' comes here. The
%% caller gets `{demonitor, MRef}' when the peer no longer does.
-spec monitor(pid(), reference(), Watcher :: pid(), MRef :: reference()) -> ok.
monitor(Watch, Ref, Watcher, MRef) ->
    gen_server:cast(Watch, {monitor, Ref, Watcher, MRef, self()}).

-spec demonitor(pid(), reference()) -> ok.
demonitor(Watch, Ref) -> gen_server:cast(Watch, {demonitor, Ref}).

-spec down(pid(), reference(), Watcher :: pid(), Reason :: term()) -> ok.
down(Watch, Ref, Watcher, Reason) -> gen_server:cast(Watch, {down, Ref, Watcher, Reason}).

-spec init([]) -> {ok, #state{}}.
init([]) -> {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({attach, Route}, State) ->
    {noreply, State#state{route = Route}};
handle_cast({call, Alias, Process, MRef, Owner}, State) ->
    {noreply, begun(Alias, Process, MRef, Owner, State)};
handle_cast({cancel, Alias}, State) ->
    case over(Alias, State) of
        {_, Rest} -> {noreply, Rest};
        none -> {noreply, State}
    end;
handle_cast({reply, Key, Alias, Result}, State) ->
    post(Key, {reply, Alias, Result}, State);
handle_cast({monitor, Ref, Watcher, MRef, Owner}, #state{monitors = Monitors,
                                                         watched = Watched} = State) ->
    {noreply, State#state{monitors = Monitors#{Ref => {MRef, Owner, Watcher}},
                          watched = Watched#{MRef => {monitor, Ref}}}};
handle_cast({demonitor, Ref}, #state{monitors = Monitors, watched = Watched} = State) ->
    case maps:take(Ref, Monitors) of
        {{MRef, Owner, _}, Rest} ->
            Owner ! {demonitor, MRef},
            {noreply, State#state{monitors = Rest, watched = maps:remove(MRef, Watched)}};
        error ->
            {noreply, State}
    end;
handle_cast({down, Ref, Watcher, Reason}, State) ->
    post(self(), {down, Ref, Watcher, Reason}, State);
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({{teleport_call, Alias}, Reply}, State) ->
    case over(Alias, State) of
        {Process, Rest} -> post(Process, {reply, Alias, {ok, Reply}}, Rest);
        none -> {noreply, State}
    end;
handle_info({'DOWN', MRef, process, Process, Reason},
            #state{calls = Calls, monitors = Monitors, watched = Watched} = State) ->
    case maps:take(MRef, Watched) of
        {{call, Alias}, Rest} ->
            post(Process, {reply, Alias, {exit, Reason}},
                 State#state{calls = maps:remove(Alias, Calls), watched = Rest});
        {{monitor, Ref}, Rest} ->
            #{Ref := {_, _, Watcher}} = Monitors,
            post(Process, {down, Ref, Watcher, Reason},
                 State#state{monitors = maps:remove(Ref, Monitors), watched = Rest});
        error ->
            {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

begun(Alias, Process, MRef, Owner, #state{calls = Calls, watched = Watched} = State) ->
    State#state{calls = Calls#{Alias => {MRef, Process, Owner}},
                watched = Watched#{MRef => {call, Alias}}}.

%% The call no longer is. Gives who was called.
over(Alias, #state{calls = Calls, watched = Watched} = State) ->
    case maps:take(Alias, Calls) of
        {{MRef, Process, Owner}, Rest} ->
            Owner ! {demonitor, MRef},
            {Process, State#state{calls = Rest, watched = maps:remove(MRef, Watched)}};
        error ->
            none
    end.

post(Key, Element, State) -> post(Key, Element, now_ms(), sent(State), State).

post(Key, Element, SinceMs, Sent, #state{route = Route} = State) ->
    case teleport_post:always(Route, Key, Element) of
        ok ->
            {noreply, State};
        {error, too_large} ->
            post(Key, smaller(Element), State);
        {error, busy} ->
            timer:sleep(?WAIT_MS),
            case sent(State) of
                Sent ->
                    now_ms() - SinceMs < ?STALL_MS orelse exit({shutdown, replies_above_bound}),
                    post(Key, Element, SinceMs, Sent, State);
                More ->
                    post(Key, Element, now_ms(), More, State)
            end
    end.

now_ms() -> erlang:monotonic_time(millisecond).

sent(#state{route = #route{node = Node}}) ->
    atomics:get(teleport_table:stats(Node), ?SENT).

smaller({reply, Alias, _}) -> {reply, Alias, {exit, too_large}};
smaller({down, Ref, Watcher, _}) -> {down, Ref, Watcher, too_large}.
