%% Keeps one link to every worker of the edge, or a trunk in their place: dials, and dials again
%% when a link ends, for as long as the runner says that there is an edge.
%%
%% The trunk is dialled if there is a socket of its name, the workers if there is none or it has no
%% listener (protocol/link.md 13.1). Which it is can change only when no link is left.
%%
%% A link is a process of its own under halley_edge_link_sup and dies alone; this process only
%% watches and waits. The wait grows from 50 ms to redial_ms_max, and starts anew once a link has
%% lasted.
-module(halley_edge_dialer).
-behaviour(gen_server).

-export([start_link/0, connect/3, disconnect/0, leave/0, shutdown_edge/1, links/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(WAIT_MS_MIN, 50).
-define(LASTED_MS, 5000).

-type worker() :: non_neg_integer().

-record(slot, {link :: pid() | undefined, up_since :: integer() | undefined,
               wait_ms = ?WAIT_MS_MIN :: pos_integer()}).
%% `round' tells timers of an earlier connect/3 from those of this one.
-record(state, {socket_dir :: file:filename_all() | undefined, owner :: pid() | undefined,
                round = 0 :: non_neg_integer(), workers = #{} :: #{worker() => #slot{}},
                trunk = #slot{} :: #slot{},
                by_monitor = #{} :: #{reference() => worker() | trunk}}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Calls wait for as long as it takes: on a machine that a million clients keep busy that is longer
%% than five seconds, and nobody here would have another use for an answer that is late.

%% Links to workers 0 to Workers - 1. Owner receives {link_up, Worker, HelloEdge} whenever one
%% stands.
-spec connect(file:filename_all(), Workers :: pos_integer(), Owner :: pid()) -> ok.
connect(SocketDir, Workers, Owner) ->
    gen_server:call(?MODULE, {connect, SocketDir, Workers, Owner}, infinity).

%% Dials no more, and ends the links that stand.
-spec disconnect() -> ok.
disconnect() ->
    gen_server:call(?MODULE, disconnect, infinity).

%% Dials no more, and gives the links that stand to the caller: they last until their edge ends
%% them.
-spec leave() -> [pid()].
leave() ->
    gen_server:call(?MODULE, leave, infinity).

%% Asks the edge to stop, over any link that stands.
-spec shutdown_edge(DrainMs :: non_neg_integer()) -> ok | no_link.
shutdown_edge(DrainMs) ->
    gen_server:call(?MODULE, {shutdown_edge, DrainMs}, infinity).

%% The workers that are linked, and the processes of their links.
-spec links() -> #{worker() => pid()}.
links() ->
    gen_server:call(?MODULE, links, infinity).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({connect, SocketDir, Workers, Owner}, _, State) ->
    Indices = lists:seq(0, Workers - 1),
    Fresh = reset(State),
    Dialing = Fresh#state{socket_dir = SocketDir, owner = Owner,
                          workers = maps:from_list([{W, #slot{}} || W <- Indices])},
    {reply, ok, dial_edge(Dialing)};
handle_call(disconnect, _, State) ->
    {reply, ok, reset(State)};
handle_call(leave, _, State) ->
    Up = lists:usort(maps:values(up(State))),
    {reply, Up, reset(State, Up)};
handle_call({shutdown_edge, DrainMs}, _, State) ->
    case maps:values(up(State)) of
        [Link | _] -> {reply, halley_edge_link:shutdown_edge(Link, DrainMs), State};
        [] -> {reply, no_link, State}
    end;
handle_call(links, _, State) ->
    {reply, up(State), State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({up, Link, Hello}, #state{trunk = #slot{link = Link} = Trunk} = State) ->
    lists:foreach(fun(Worker) -> State#state.owner ! {link_up, Worker, Hello} end,
                  maps:keys(State#state.workers)),
    {noreply, State#state{trunk = Trunk#slot{up_since = now_ms()}}};
handle_info({up, Link, Hello}, #state{workers = Workers, owner = Owner} = State) ->
    case [W || {W, #slot{link = L}} <- maps:to_list(Workers), L =:= Link] of
        [Worker] ->
            Owner ! {link_up, Worker, Hello},
            Slot = maps:get(Worker, Workers),
            {noreply, State#state{workers = Workers#{Worker := Slot#slot{up_since = now_ms()}}}};
        [] ->
            {noreply, State}
    end;
handle_info({'DOWN', Monitor, process, _, Reason}, #state{by_monitor = ByMonitor} = State) ->
    case maps:take(Monitor, ByMonitor) of
        {trunk, Rest} -> {noreply, trunk_ended(Reason, State#state{by_monitor = Rest})};
        {Worker, Rest} -> {noreply, wait(Worker, State#state{by_monitor = Rest})};
        error -> {noreply, State}
    end;
handle_info({dial, Round, _}, #state{round = Round, trunk = #slot{link = Trunk}} = State)
  when Trunk =/= undefined ->
    {noreply, State};
handle_info({dial, Round, Worker}, #state{round = Round, workers = Workers} = State) ->
    case {links(State), Workers} of
        {[], _} -> {noreply, dial_edge(Worker, State)};
        {_, #{Worker := #slot{link = undefined}}} -> {noreply, dial(Worker, State)};
        _ -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

dial_edge(State) ->
    dial_edge(trunk, State).

%% The trunk, or else this worker; all of them if it was the trunk's turn.
dial_edge(Whose, #state{socket_dir = Dir} = State) ->
    Path = halley_edge_dial:trunk_path(Dir),
    case {file:read_link_info(Path), Whose} of
        {{ok, _}, _} ->
            {Link, Monitored} = start(Path, trunk, State),
            Monitored#state{trunk = (State#state.trunk)#slot{link = Link, up_since = undefined}};
        {{error, _}, trunk} ->
            dial_workers(State);
        {{error, _}, Worker} ->
            dial(Worker, State)
    end.

dial_workers(#state{workers = Workers} = State) ->
    lists:foldl(fun dial/2, State, lists:sort(maps:keys(Workers))).

dial(Worker, #state{socket_dir = Dir, workers = Workers} = State) ->
    {Link, Monitored} = start(halley_edge_dial:path(Dir, Worker), Worker, State),
    Slot = maps:get(Worker, Workers),
    Monitored#state{workers = Workers#{Worker := Slot#slot{link = Link, up_since = undefined}}}.

start(Path, Whose, #state{by_monitor = ByMonitor} = State) ->
    {ok, Link} = halley_edge_link_sup:start_link_process(Path),
    {Link, State#state{by_monitor = ByMonitor#{monitor(process, Link) => Whose}}}.

%% Nobody listens at what has the trunk's name, which may be known before the link is monitored; or
%% it is dialled again.
trunk_ended(Reason, #state{trunk = Trunk} = State)
  when Reason =:= noproc; element(1, element(2, element(2, Reason))) =:= connect ->
    dial_workers(State#state{trunk = Trunk#slot{link = undefined}});
trunk_ended(_, #state{trunk = Trunk} = State) ->
    State#state{trunk = again(trunk, Trunk, State)}.

wait(Worker, #state{workers = Workers} = State) ->
    Slot = again(Worker, maps:get(Worker, Workers), State),
    State#state{workers = Workers#{Worker := Slot}}.

again(Whose, #slot{wait_ms = Waited, up_since = UpSince}, #state{round = Round}) ->
    Lasted = UpSince =/= undefined andalso now_ms() - UpSince >= ?LASTED_MS,
    WaitMs = case Lasted of true -> ?WAIT_MS_MIN; false -> Waited end,
    _ = erlang:send_after(WaitMs, self(), {dial, Round, Whose}),
    #slot{wait_ms = min(2 * WaitMs, halley_limits:get(redial_ms_max))}.

reset(State) ->
    reset(State, []).

%% All links but these end.
reset(#state{by_monitor = ByMonitor, round = Round} = State, Stay) ->
    lists:foreach(fun(Monitor) -> demonitor(Monitor, [flush]) end, maps:keys(ByMonitor)),
    lists:foreach(fun halley_edge_link:stop/1, links(State) -- Stay),
    #state{round = Round + 1}.

%% Those that stand, and those that are dialled.
links(#state{workers = Workers, trunk = Trunk}) ->
    [Link || #slot{link = Link} <- [Trunk | maps:values(Workers)], is_pid(Link)].

up(#state{trunk = #slot{link = Link, up_since = Since}, workers = Workers})
  when Since =/= undefined ->
    maps:from_keys(maps:keys(Workers), Link);
up(#state{workers = Workers}) ->
    maps:from_list([{W, Link} || {W, #slot{link = Link, up_since = Since}} <- maps:to_list(Workers),
                                 is_pid(Link), Since =/= undefined]).

now_ms() ->
    erlang:monotonic_time(millisecond).
