%% The application: handlers, which the link calls, and one process.
-module(halley_api_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case halley_api_sup:start_link() of
        {ok, _} = Started -> Started;
        {error, _} = Error -> Error
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.
