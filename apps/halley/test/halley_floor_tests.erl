%% A floor that many raise at once is the highest of what they said, and never sinks.
-module(halley_floor_tests).

-include_lib("eunit/include/eunit.hrl").

raise_test() ->
    Ref = atomics:new(2, []),
    [begin
         ok = halley_floor:raise(Ref, 2, Seq),
         ?assertEqual({Seq, Floor}, {Seq, atomics:get(Ref, 2)})
     end || {Seq, Floor} <- [{0, 0}, {5, 5}, {3, 5}, {5, 5}, {1 bsl 62, 1 bsl 62}, {7, 1 bsl 62}]],
    ?assertEqual(0, atomics:get(Ref, 1)).

at_once_test_() ->
    {timeout, 60, fun() ->
        Ref = atomics:new(1, []),
        Raisers = [spawn_monitor(fun() ->
            lists:foreach(fun(N) ->
                Seq = 8 * N + Raiser,
                ok = halley_floor:raise(Ref, 1, Seq),
                true = atomics:get(Ref, 1) >= Seq
            end, lists:seq(1, 20000))
        end) || Raiser <- lists:seq(0, 7)],
        [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
         || {Pid, Monitor} <- Raisers],
        ?assertEqual(8 * 20000 + 7, atomics:get(Ref, 1))
    end}.
