%% The application: without `postgres.follows' and `postgres.publish' it runs nothing.
-module(halley_postgres_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    halley_postgres_sup:start_link(application:get_env(halley_postgres, settings, none)).

-spec stop(term()) -> ok.
stop(_) -> ok.
