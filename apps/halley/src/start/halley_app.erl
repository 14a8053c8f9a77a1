%% The application: configuration, node name, log and store come first, in this order; see
%% `halley_boot'.
-module(halley_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case halley_boot:prepare() of
        ok -> start_tree();
        {error, Line} -> halley_boot:fail(Line)
    end.

start_tree() ->
    case halley_sup:start_link() of
        {ok, Pid} ->
            ok = halley_drain:install(),
            ok = halley_boot:ready(),
            {ok, Pid};
        {error, Reason} ->
            halley_boot:fail(halley_boot:explain(Reason))
    end.

-spec stop(term()) -> ok.
stop(_) ->
    ok = halley_pidfile:remove(),
    ok = halley_drain:remove(),
    halley_launcher:closed().
