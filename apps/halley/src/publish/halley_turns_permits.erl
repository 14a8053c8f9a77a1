%% Whose replays run: of all workers' processes (`halley_edge_replays') a few at a time for each
%% scheduler; the others wait in the order in which they asked.
%%
%% A process of low priority runs every eighth time while others want to run. But each of them
%% counts for itself: with 56 workers, seven ran for each time that the link did, so a herd of
%% clients with cursors had the processor, and what was published waited for it. With four at a
%% time all replays together have a third of it at most (docs/internals/bad-day.md).
%%
%% Protocol: ask/0, then the caller receives {replay_permit, Permit}. It calls used/1 before each
%% turn, and gives the permit back once it has nothing to do, or is_over/1. So each permit is good
%% for a turn at least, however late its process runs. A permit of a process that ends is the next
%% one's. Where this process doesn't run, as in tests of a link alone, each has a permit at once.
%%
%% Bound: a process waits at most once, so no more wait than there are workers.
-module(halley_turns_permits).
-behaviour(gen_server).

-export([start_link/0, start_link/1, ask/0, used/1, is_over/1, give_back/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([permit/0]).

%% Each has an eighth of the others' time: together half of it, which is a third of the whole.
-define(PER_SCHEDULER, 4).
%% Enough that asking costs little, few enough that the others don't wait long: none is long.
-define(TURNS, 8).

-type permit() :: free | {turns, Left :: non_neg_integer()}.
-type process() :: {pid(), Monitor :: reference()}.
-record(state, {
    permits :: pos_integer(),
    holding = [] :: [process()],
    waiting = queue:new() :: queue:queue(process())
}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    start_link(?PER_SCHEDULER * erlang:system_info(schedulers_online)).

%% With so many permits.
-spec start_link(Permits :: pos_integer()) -> gen_server:start_ret().
start_link(Permits) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Permits, []).

%% Asks for a permit for the calling process, which has none and hasn't asked.
-spec ask() -> asked | permit().
ask() ->
    case whereis(?MODULE) of
        undefined ->
            free;
        Permits ->
            ok = gen_server:cast(Permits, {ask, self()}),
            asked
    end.

%% One turn less.
-spec used(permit()) -> permit().
used(free) -> free;
used({turns, Left}) when Left > 0 -> {turns, Left - 1}.

%% Whether it is another one's time.
-spec is_over(permit()) -> boolean().
is_over(Permit) -> Permit =:= {turns, 0}.

-spec give_back(permit()) -> ok.
give_back(free) -> ok;
give_back({turns, _}) -> gen_server:cast(?MODULE, {give_back, self()}).

-spec init(pos_integer()) -> {ok, #state{}}.
init(Permits) ->
    {ok, #state{permits = Permits}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call(_, _, State) ->
    {noreply, State}.

-spec handle_cast({ask | give_back, pid()}, #state{}) -> {noreply, #state{}}.
handle_cast({ask, Pid}, #state{waiting = Waiting} = State) ->
    Process = {Pid, monitor(process, Pid)},
    {noreply, grant(State#state{waiting = queue:in(Process, Waiting)})};
handle_cast({give_back, Pid}, State) ->
    {noreply, grant(without(Pid, State))}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', _, process, Pid, _}, State) ->
    {noreply, grant(without(Pid, State))};
handle_info(_, State) ->
    {noreply, State}.

grant(#state{permits = Permits, holding = Holding, waiting = Waiting} = State)
  when length(Holding) < Permits ->
    case queue:out(Waiting) of
        {{value, {Pid, _} = Process}, Rest} ->
            Pid ! {replay_permit, {turns, ?TURNS}},
            grant(State#state{holding = [Process | Holding], waiting = Rest});
        {empty, _} ->
            State
    end;
grant(State) ->
    State.

%% It holds no permit any more, and waits for none.
without(Pid, #state{holding = Holding, waiting = Waiting} = State) ->
    {Its, Others} = lists:partition(fun({Of, _}) -> Of =:= Pid end, Holding),
    _ = [demonitor(Monitor, [flush]) || {_, Monitor} <- Its],
    Left = case Its of
        [] -> queue:filter(fun({Of, _}) -> Of =/= Pid end, Waiting);
        _ -> Waiting
    end,
    State#state{holding = Others, waiting = Left}.
