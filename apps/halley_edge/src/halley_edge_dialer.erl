%% Keeps the link to the edge: dials, and dials again when it ends, for as long as the runner says
%% that there is an edge.
%%
%% The link is a process of its own under halley_edge_link_sup and dies alone; this process only
%% watches and waits. The wait grows from 50 ms to redial_ms_max, and starts anew once a link has
%% lasted.
-module(halley_edge_dialer).
-behaviour(gen_server).

-export([start_link/0, connect/2, disconnect/0, leave/0, shutdown_edge/1, link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(WAIT_MS_MIN, 50).
-define(LASTED_MS, 5000).

%% `round' tells timers of an earlier connect/2 from those of this one. A link that is dialled has
%% no `up_since' yet.
-record(state, {socket_dir :: file:filename_all() | undefined, owner :: pid() | undefined,
                round = 0 :: non_neg_integer(),
                link = none :: none | {pid(), Monitor :: reference()},
                up_since :: integer() | undefined,
                wait_ms = ?WAIT_MS_MIN :: pos_integer()}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Calls wait for as long as it takes: on a machine that a million clients keep busy that is longer
%% than five seconds, and nobody here would have another use for an answer that is late.

%% Links to the edge in this directory. Owner receives {link_up, HelloEdge} whenever the link is up.
-spec connect(file:filename_all(), Owner :: pid()) -> ok.
connect(SocketDir, Owner) ->
    gen_server:call(?MODULE, {connect, SocketDir, Owner}, infinity).

%% Dials no more, and ends the link.
-spec disconnect() -> ok.
disconnect() ->
    gen_server:call(?MODULE, disconnect, infinity).

%% Dials no more, and gives the link to the caller, if it stands: it lasts until its edge ends it.
-spec leave() -> {ok, pid()} | none.
leave() ->
    gen_server:call(?MODULE, leave, infinity).

%% Asks the edge to stop, if the link stands.
-spec shutdown_edge(DrainMs :: non_neg_integer()) -> ok | no_link.
shutdown_edge(DrainMs) ->
    gen_server:call(?MODULE, {shutdown_edge, DrainMs}, infinity).

%% The link's process, if the link stands.
-spec link() -> {ok, pid()} | none.
link() ->
    gen_server:call(?MODULE, link, infinity).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({connect, SocketDir, Owner}, _, State) ->
    Fresh = reset(State),
    {reply, ok, dial(Fresh#state{socket_dir = SocketDir, owner = Owner})};
handle_call(disconnect, _, State) ->
    {reply, ok, reset(State)};
handle_call(leave, _, #state{round = Round} = State) ->
    case up(State) of
        {ok, _} = Up ->
            {_, Monitor} = State#state.link,
            demonitor(Monitor, [flush]),
            {reply, Up, #state{round = Round + 1}};
        none ->
            {reply, none, reset(State)}
    end;
handle_call({shutdown_edge, DrainMs}, _, State) ->
    case up(State) of
        {ok, Link} -> {reply, halley_edge_link:shutdown_edge(Link, DrainMs), State};
        none -> {reply, no_link, State}
    end;
handle_call(link, _, State) ->
    {reply, up(State), State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({up, Link, Hello}, #state{link = {Link, _}, owner = Owner} = State) ->
    Owner ! {link_up, Hello},
    {noreply, State#state{up_since = now_ms()}};
handle_info({'DOWN', Monitor, process, _, _}, #state{link = {_, Monitor}} = State) ->
    {noreply, dial_later(State#state{link = none})};
handle_info({dial, Round}, #state{round = Round, link = none} = State) ->
    {noreply, dial(State)};
handle_info(_, State) ->
    {noreply, State}.

dial(#state{socket_dir = Dir} = State) ->
    {ok, Link} = halley_edge_link_sup:start_link_process(halley_edge_dial:path(Dir)),
    State#state{link = {Link, monitor(process, Link)}, up_since = undefined}.

dial_later(#state{wait_ms = Waited, up_since = UpSince, round = Round} = State) ->
    Lasted = UpSince =/= undefined andalso now_ms() - UpSince >= ?LASTED_MS,
    WaitMs = case Lasted of true -> ?WAIT_MS_MIN; false -> Waited end,
    _ = erlang:send_after(WaitMs, self(), {dial, Round}),
    State#state{wait_ms = min(2 * WaitMs, halley_limits:get(redial_ms_max)), up_since = undefined}.

reset(#state{link = none, round = Round}) ->
    #state{round = Round + 1};
reset(#state{link = {Link, Monitor}, round = Round}) ->
    demonitor(Monitor, [flush]),
    ok = halley_edge_link:stop(Link),
    #state{round = Round + 1}.

up(#state{link = {Link, _}, up_since = Since}) when Since =/= undefined -> {ok, Link};
up(_) -> none.

now_ms() ->
    erlang:monotonic_time(millisecond).
