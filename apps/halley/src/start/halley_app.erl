%% The application: configuration, node name, log and store come first, in this order; see
%% `halley_boot'.
-module(halley_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case halley_boot:prepare() of
        ok -> start_tree();
        {error, Line} -> halley_boot:fail(Line)
    end.

start_tree() ->
    case halley_sup:start_link() of
        {ok, Pid} ->
            ok = halley_sessions:began(),
            ok = halley_drain:install(),
            ok = halley_boot:ready(),
            {ok, Pid};
        {error, Reason} ->
            halley_boot:fail(halley_boot:explain(Reason))
    end.

%% It is asked to stop. A tree that fails stops without this.
-spec prep_stop(term()) -> asked.
prep_stop(_) -> asked.

-spec stop(asked | term()) -> ok.
stop(State) ->
    ok = halley_pidfile:remove(),
    ok = halley_drain:remove(),
    case State of
        asked -> halley_launcher:closed();
        _ -> ok
    end.
