%% Keeps one link to every worker of the edge: dials, and dials again when a link ends, for as long
%% as the runner says that there is an edge.
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
                by_monitor = #{} :: #{reference() => worker()}}).

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
    {reply, ok, lists:foldl(fun dial/2, Dialing, Indices)};
handle_call(disconnect, _, State) ->
    {reply, ok, reset(State)};
handle_call(leave, _, State) ->
    Up = maps:values(up(State)),
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
handle_info({up, Link, Hello}, #state{workers = Workers, owner = Owner} = State) ->
    case [W || {W, #slot{link = L}} <- maps:to_list(Workers), L =:= Link] of
        [Worker] ->
            Owner ! {link_up, Worker, Hello},
            Slot = maps:get(Worker, Workers),
            {noreply, State#state{workers = Workers#{Worker := Slot#slot{up_since = now_ms()}}}};
        [] ->
            {noreply, State}
    end;
handle_info({'DOWN', Monitor, process, _, _}, #state{by_monitor = ByMonitor} = State) ->
    case maps:take(Monitor, ByMonitor) of
        {Worker, Rest} -> {noreply, wait(Worker, State#state{by_monitor = Rest})};
        error -> {noreply, State}
    end;
handle_info({dial, Round, Worker}, #state{round = Round} = State) ->
    {noreply, dial(Worker, State)};
handle_info(_, State) ->
    {noreply, State}.

dial(Worker, #state{socket_dir = Dir, workers = Workers, by_monitor = ByMonitor} = State) ->
    {ok, Link} = halley_edge_link_sup:start_link_process(halley_edge_dial:path(Dir, Worker)),
    Slot = maps:get(Worker, Workers),
    State#state{workers = Workers#{Worker := Slot#slot{link = Link, up_since = undefined}},
                by_monitor = ByMonitor#{monitor(process, Link) => Worker}}.

wait(Worker, #state{workers = Workers, round = Round} = State) ->
    #slot{wait_ms = Waited, up_since = UpSince} = maps:get(Worker, Workers),
    Lasted = UpSince =/= undefined andalso now_ms() - UpSince >= ?LASTED_MS,
    WaitMs = case Lasted of true -> ?WAIT_MS_MIN; false -> Waited end,
    _ = erlang:send_after(WaitMs, self(), {dial, Round, Worker}),
    Next = min(2 * WaitMs, halley_limits:get(redial_ms_max)),
    State#state{workers = Workers#{Worker := #slot{wait_ms = Next}}}.

reset(State) ->
    reset(State, []).

%% All links but these end.
reset(#state{by_monitor = ByMonitor, workers = Workers, round = Round}, Stay) ->
    lists:foreach(fun(Monitor) -> demonitor(Monitor, [flush]) end, maps:keys(ByMonitor)),
    lists:foreach(fun halley_edge_link:stop/1,
                  [Link || #slot{link = Link} <- maps:values(Workers), is_pid(Link)] -- Stay),
    #state{round = Round + 1}.

up(#state{workers = Workers}) ->
    maps:from_list([{W, Link} || {W, #slot{link = Link, up_since = Since}} <- maps:to_list(Workers),
                                 is_pid(Link), Since =/= undefined]).

now_ms() ->
    erlang:monotonic_time(millisecond).
