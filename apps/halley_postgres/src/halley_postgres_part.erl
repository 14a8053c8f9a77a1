%% The rows of PostgreSQL in the brain's tables.
-module(halley_postgres_part).
-behaviour(halley_part).

-export([settings/1, files/0]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_postgres_config:settings()} | {error, iodata()}.
settings(Values) -> halley_postgres_config:settings(Values).

%% Its files show at once, at the first login.
-spec files() -> [].
files() -> [].
