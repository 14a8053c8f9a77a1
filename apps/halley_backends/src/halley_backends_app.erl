%% The application: without `remote.listen' it runs nothing, and teleport isn't started.
-module(halley_backends_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case halley_backends_sup:start_link(application:get_env(halley_backends, settings, none)) of
        {ok, _} = Started -> Started;
        {error, Reason} -> halley_boot:fail(halley_boot:explain(Reason))
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.
