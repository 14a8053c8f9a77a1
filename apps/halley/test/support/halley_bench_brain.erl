%% A brain of its own for a benchmark: in a folder that goes afterwards, with the default limits.
%% Not for suites: those name their limits and look inside (`halley_test_brain').
-module(halley_bench_brain).

-export([with/1]).

%% Runs `Measure' while the brain is up.
-spec with(fun(() -> Result)) -> Result.
with(Measure) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = application:set_env(halley, data_dir, Dir),
    ok = halley_limits:set(#{}),
    {ok, Brain} = halley_sup:start_link(),
    try Measure()
    after
        unlink(Brain),
        exit(Brain, shutdown),
        ok = halley_store:close(),
        ok = file:del_dir_r(Dir)
    end.
