%% The keys that were counted most, in bounded memory.
%%
%% Misra and Gries, "Finding repeated elements" (1982), in batches, as Anderson et al. do it ("A
%% high-performance algorithm for identifying frequent items in data streams", 2017): keys have
%% counts until there are twice as many as wanted; then the count of the first that is too many is
%% subtracted from all, and those without anything left go.
%%
%% Invariants: at most `2 * Keys' keys are held; a count is at most the true one, and below it by
%% `missed/1' at most, which is never more than the sum of all weights over `Keys'. So a key that is
%% heavier than that is there.
%%
%% Pure. It doesn't forget by itself: whoever wants a window begins a new one.
-module(halley_sketch).

-export([new/1, add/3, top/2, missed/1, merge/2]).
-export_type([sketch/0]).

-record(sketch, {keys :: pos_integer(), counts = #{} :: #{term() => pos_integer()},
                 missed = 0 :: non_neg_integer()}).
-opaque sketch() :: #sketch{}.

-spec new(Keys :: pos_integer()) -> sketch().
new(Keys) ->
    #sketch{keys = Keys}.

-spec add(Key :: term(), Weight :: non_neg_integer(), sketch()) -> sketch().
add(_, 0, Sketch) ->
    Sketch;
add(Key, Weight, #sketch{counts = Counts} = Sketch) ->
    case Counts of
        #{Key := Count} -> Sketch#sketch{counts = Counts#{Key := Count + Weight}};
        #{} -> bounded(Sketch#sketch{counts = Counts#{Key => Weight}})
    end.

bounded(#sketch{keys = Keys, counts = Counts} = Sketch) when map_size(Counts) =< 2 * Keys ->
    Sketch;
bounded(#sketch{keys = Keys, counts = Counts, missed = Missed} = Sketch) ->
    Cut = lists:nth(Keys + 1, lists:sort(fun erlang:'>='/2, maps:values(Counts))),
    Left = maps:filtermap(fun(_, Count) when Count > Cut -> {true, Count - Cut};
                             (_, _) -> false
                          end, Counts),
    Sketch#sketch{counts = Left, missed = Missed + Cut}.

%% The heaviest, at most so many, with their counts.
-spec top(non_neg_integer(), sketch()) -> [{Key :: term(), Count :: pos_integer()}].
top(N, #sketch{counts = Counts}) ->
    Heavier = fun({KeyA, A}, {KeyB, B}) -> {A, KeyB} >= {B, KeyA} end,
    lists:sublist(lists:sort(Heavier, maps:to_list(Counts)), N).

%% By how much a count may be too low.
-spec missed(sketch()) -> non_neg_integer().
missed(#sketch{missed = Missed}) ->
    Missed.

%% What both have counted, with the bounds of the first.
-spec merge(sketch(), sketch()) -> sketch().
merge(#sketch{missed = MissedA} = A, #sketch{counts = Counts, missed = MissedB}) ->
    maps:fold(fun add/3, A#sketch{missed = MissedA + MissedB}, Counts).
