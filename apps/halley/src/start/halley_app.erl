%% The application: configuration, node name, log and store come first, in this order; see
%% `halley_boot'.
%%
%% With `settings' in its environment it is embedded in another application's release: it takes
%% these, and leaves node, log and signals to that release. A start that fails is then an error of
%% the application, not the end of the node.
-module(halley_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) ->
    {ok, pid()} | {ok, pid(), embedded} | {error, binary()}.
start(_, _) ->
    case application:get_env(halley, settings) of
        undefined -> start_whole(halley_boot:prepare());
        {ok, Settings} -> start_embedded(halley_boot:embed(Settings))
    end.

start_embedded(ok) ->
    case halley_sup:start_link() of
        {ok, Pid} ->
            ok = halley_sessions:began(),
            {ok, Pid, embedded};
        {error, Reason} ->
            {error, unicode:characters_to_binary(halley_boot:explain(Reason))}
    end;
start_embedded({error, Lines}) ->
    {error, unicode:characters_to_binary(Lines)}.

start_whole(ok) -> start_tree();
start_whole({error, Line}) -> halley_boot:fail(Line).

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
-spec prep_stop(term()) -> asked | embedded.
prep_stop(embedded) -> embedded;
prep_stop(_) -> asked.

-spec stop(asked | embedded | term()) -> ok.
stop(embedded) ->
    ok;
stop(State) ->
    ok = halley_pidfile:remove(),
    ok = halley_drain:remove(),
    case State of
        asked -> halley_launcher:closed();
        _ -> ok
    end.
