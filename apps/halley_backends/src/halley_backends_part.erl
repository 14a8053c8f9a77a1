%% The rows of back ends in the brain's tables.
-module(halley_backends_part).
-behaviour(halley_part).

-export([settings/1, files/0]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_backends_config:settings()} | {error, iodata()}.
settings(Values) -> halley_backends_config:settings(Values).

-spec files() -> [string()].
files() -> ["remote.secret_file"].
