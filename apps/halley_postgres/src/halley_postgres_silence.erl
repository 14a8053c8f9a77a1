%% Ends its owner if that waits for something for too long: for what has no time-out of its own.
-module(halley_postgres_silence).

-export([watch/1, busy/1, waits/1, over/1]).

%% The caller waits from now on, for so long at most.
-spec watch(Ms :: pos_integer()) -> pid().
watch(Ms) -> spawn_link(fun() -> waiting(Ms) end).

%% It has other work, which takes its time.
-spec busy(pid()) -> ok.
busy(Watch) -> tell(Watch, busy).

-spec waits(pid()) -> ok.
waits(Watch) -> tell(Watch, waits).

-spec over(pid()) -> ok.
over(Watch) ->
    _ = unlink(Watch),
    tell(Watch, over).

tell(Watch, What) ->
    Watch ! What,
    ok.

waiting(Ms) ->
    receive
        busy -> resting(Ms);
        waits -> waiting(Ms);
        over -> ok
    after Ms -> exit({error, {silent, Ms}})
    end.

resting(Ms) ->
    receive
        waits -> waiting(Ms);
        busy -> resting(Ms);
        over -> ok
    end.
