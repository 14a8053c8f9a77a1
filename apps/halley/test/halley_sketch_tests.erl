%% The keys that were counted most.
-module(halley_sketch_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    [{timeout, 60, ?_assert(proper:quickcheck(prop_halley_sketch:Property(),
                                              [quiet, {numtests, 300}, {to_file, user}]))}
     || Property <- [prop_bounds, prop_merged]].

%% What is often is found among very many that are seen once.
a_needle_in_a_haystack_test() ->
    Sketch = lists:foldl(fun(N, S) ->
        Key = case N rem 10 of 0 -> needle; _ -> N end,
        halley_sketch:add(Key, 1, S)
    end, halley_sketch:new(20), lists:seq(1, 10000)),
    [{needle, Count} | _] = halley_sketch:top(5, Sketch),
    ?assert(Count =< 1000 andalso Count >= 1000 - halley_sketch:missed(Sketch)),
    ?assert(halley_sketch:missed(Sketch) =< 500).

nothing_test() ->
    Empty = halley_sketch:new(3),
    ?assertEqual([], halley_sketch:top(3, Empty)),
    ?assertEqual(Empty, halley_sketch:add(a, 0, Empty)).
