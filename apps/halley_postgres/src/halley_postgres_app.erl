%% The application: without `postgres.follows' and `postgres.publish' it runs nothing.
-module(halley_postgres_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    Settings = application:get_env(halley_postgres, settings, none),
    %% Later there may be no descriptor to read a module by. The driver loads what TLS needs.
    _ = [ok = halley_code:load([halley_postgres, epgsql]) || Settings =/= none],
    halley_postgres_sup:start_link(Settings).

-spec stop(term()) -> ok.
stop(_) -> ok.
