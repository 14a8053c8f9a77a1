%% Owns the tables, and does nothing else that could fail: so processes that wait for the end of a
%% link or of a monitor are still known when teleport_peers has crashed, and the next one informs
%% them.
-module(teleport_keeper).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2]).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, none}.
init([]) ->
    ok = teleport_table:new(),
    ok = teleport_monitors:new(),
    {ok, none}.

-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_, State) -> {noreply, State}.
