%% The promises of `halley_sketch': counts are at most the true ones, miss no more than it says,
%% which is at most the sum of weights over the number of keys; and it holds no more than twice as
%% many.
-module(prop_halley_sketch).

-export([prop_bounds/0, prop_merged/0]).

-import(proper_types, [list/1, oneof/1, range/2]).

-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).

keys() -> range(1, 8).
added() -> list({oneof([range(1, 5), range(1, 60)]), range(0, 9)}).

sketch(Keys, Added) ->
    lists:foldl(fun({Key, Weight}, S) -> halley_sketch:add(Key, Weight, S) end,
                halley_sketch:new(Keys), Added).

true_count(Key, Added) ->
    lists:sum([Weight || {Added1, Weight} <- Added, Added1 =:= Key]).

holds(Keys, Sketch, Added) ->
    Missed = halley_sketch:missed(Sketch),
    Top = halley_sketch:top(1000, Sketch),
    Sum = lists:sum([Weight || {_, Weight} <- Added]),
    Counted = maps:from_list(Top),
    length(Top) =< 2 * Keys
        andalso Missed * Keys =< Sum
        andalso lists:reverse(lists:sort([C || {_, C} <- Top])) =:= [C || {_, C} <- Top]
        andalso lists:all(fun(Key) ->
                              True = true_count(Key, Added),
                              Count = maps:get(Key, Counted, 0),
                              Count =< True andalso Count >= True - Missed
                          end, lists:usort([Key || {Key, _} <- Added])).

prop_bounds() ->
    ?FORALL({Keys, Added}, {keys(), added()}, holds(Keys, sketch(Keys, Added), Added)).

prop_merged() ->
    ?FORALL({Keys, A, B}, {keys(), added(), added()},
            holds(Keys, halley_sketch:merge(sketch(Keys, A), sketch(Keys, B)), A ++ B)).
