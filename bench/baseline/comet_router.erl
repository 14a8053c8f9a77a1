%% Logged-in users, and messages to them: the article's `router`.
%%
%% Two ETS bags map ids and processes to each other. A process that dies is logged out, because the
%% router is linked to it. Each `send` runs in a process of its own, so the router only ever waits
%% for ETS. Two sends about one id may overtake each other: the article promises no order.
-module(comet_router).

-behaviour(gen_server).

-export([start_link/0, send/2, login/2, logout/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(state, {pid2id :: ets:tid(), id2pid :: ets:tid()}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Sends `{router_msg, Msg}' to everyone who follows `Id', and to `Id' itself; says to how
%% many.
-spec send(comet_subsmanager:id(), Msg :: iodata()) -> {ok, non_neg_integer()}.
send(Id, Msg) ->
    gen_server:call(?MODULE, {send, Id, Msg}).

-spec login(comet_subsmanager:id(), pid()) -> ok.
login(Id, Pid) ->
    gen_server:call(?MODULE, {login, Id, Pid}).

-spec logout(pid()) -> ok.
logout(Pid) ->
    gen_server:call(?MODULE, {logout, Pid}).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(trap_exit, true),
    {ok, #state{pid2id = ets:new(pid2id, [bag]), id2pid = ets:new(id2pid, [bag])}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, ok, #state{}} | {noreply, #state{}}.
handle_call({login, Id, Pid}, _From, State) ->
    ets:insert(State#state.pid2id, {Pid, Id}),
    ets:insert(State#state.id2pid, {Id, Pid}),
    link(Pid),
    {reply, ok, State};
handle_call({logout, Pid}, _From, State) ->
    unlink(Pid),
    forget(Pid, State),
    {reply, ok, State};
handle_call({send, Id, Msg}, From, State) ->
    spawn(fun() ->
        Users = comet_subsmanager:get_subscribers(Id),
        Pids = [Pid || User <- [Id | Users], {_, Pid} <- ets:lookup(State#state.id2pid, User)],
        lists:foreach(fun(Pid) -> Pid ! {router_msg, Msg} end, Pids),
        gen_server:reply(From, {ok, length(Pids)})
    end),
    {noreply, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'EXIT', Pid, _Why}, State) ->
    forget(Pid, State),
    {noreply, State}.

forget(Pid, #state{pid2id = Pid2Id, id2pid = Id2Pid}) ->
    lists:foreach(
        fun({_, Id}) -> ets:delete_object(Id2Pid, {Id, Pid}) end, ets:lookup(Pid2Id, Pid)
    ),
    ets:delete(Pid2Id, Pid).
