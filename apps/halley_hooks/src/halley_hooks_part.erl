%% The rows of hooks in the brain's tables.
-module(halley_hooks_part).
-behaviour(halley_part).

-export([settings/1, files/0]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_hooks_config:settings()} | {error, iodata()}.
settings(Values) -> halley_hooks_config:settings(Values).

-spec files() -> [string()].
files() -> ["hooks.secret_file", "hooks.tls_ca"].
