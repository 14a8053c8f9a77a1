%% Starts the application: a bad option in the environment refuses the start with its name.
-module(teleport_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case teleport_options:read() of
        {ok, Options} ->
            ok = teleport_options:put(Options),
            teleport_sup:start_link(Options);
        {error, _} = Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.
