%% The application. Stopping it stops the edge, too, unless SIGTERM's drain did already; a brain
%% that dies leaves the edge running (protocol/link.md 9).
-module(halley_edge_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case halley_edge_sup:start_link() of
        {ok, Pid} ->
            ok = halley_drain:set_edge(fun halley_edge_runner:stop_edge/1),
            ok = halley_inspection:set(halley_edge_link),
            {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% Here and not in the runner's terminate/2, which also runs when the runner is merely restarted. A
%% brain whose core has died is not stopped by anybody: its edge keeps the connections for the next.
-spec prep_stop(State) -> State.
prep_stop(State) ->
    case whereis(halley_sup) of
        undefined -> ok;
        _ -> ok = halley_edge_runner:stop_edge(application:get_env(halley, drain_ms, 0))
    end,
    State.

-spec stop(term()) -> ok.
stop(_) ->
    ok.
