%% Vectors: one seq for each shard, "everything of shard I up to here"
%% (docs/internals/delivery.md).
%%
%% Pure. How a vector travels is `halley_cursor'; where the heads are is `halley_history'.
-module(halley_vector).

-export([is_reached/2, advance/3, furthest/2, lowest/2, at_least/2, is_crossed/4]).
-export([behind/2, largest/1, smallest/1]).

-type vector() :: halley_cursor:vector().
-type seq() :: halley_cursor:seq().

%% Whether all of the goal is in the vector.
-spec is_reached(Goal :: vector(), vector()) -> boolean().
is_reached({A, B, C, D, E, F, G, H}, {A1, B1, C1, D1, E1, F1, G1, H1}) ->
    A =< A1 andalso B =< B1 andalso C =< C1 andalso D =< D1
        andalso E =< E1 andalso F =< F1 andalso G =< G1 andalso H =< H1.

%% Where a vector is that goes to `UpTo' by ascending seqs, when it has passed this one.
-spec advance(seq(), vector(), UpTo :: vector()) -> vector().
advance(N, {A, B, C, D, E, F, G, H}, {A1, B1, C1, D1, E1, F1, G1, H1}) ->
    {max(A, min(N, A1)), max(B, min(N, B1)), max(C, min(N, C1)), max(D, min(N, D1)),
     max(E, min(N, E1)), max(F, min(N, F1)), max(G, min(N, G1)), max(H, min(N, H1))}.

%% Where it is that has passed both.
-spec furthest(vector(), vector()) -> vector().
furthest(Vector, Other) ->
    advance(largest(Other), Vector, Other).

%% What both have passed.
-spec lowest(vector(), vector()) -> vector().
lowest(Vector, Other) ->
    list_to_tuple(lists:zipwith(fun min/2, tuple_to_list(Vector), tuple_to_list(Other))).

-spec at_least(seq(), vector()) -> vector().
at_least(Seq, Vector) ->
    list_to_tuple([max(Seq, S) || S <- tuple_to_list(Vector)]).

%% Whether the way from a vector to `UpTo' meets any seq from `From' to `To'.
-spec is_crossed(From :: seq(), To :: seq(), vector(), UpTo :: vector()) -> boolean().
is_crossed(From, To, Vector, UpTo) ->
    lists:any(fun(Shard) -> element(Shard, Vector) < To andalso From =< element(Shard, UpTo) end,
              lists:seq(1, tuple_size(Vector))).

%% Behind which seq there is more on the way from a vector to `UpTo'; `reached' if there is none.
-spec behind(vector(), UpTo :: vector()) -> seq() | reached.
behind(Vector, UpTo) ->
    case [V || {V, U} <- lists:zip(tuple_to_list(Vector), tuple_to_list(UpTo)), V < U] of
        [] -> reached;
        Behind -> lists:min(Behind)
    end.

-spec largest(vector()) -> seq().
largest(Vector) ->
    lists:max(tuple_to_list(Vector)).

-spec smallest(vector()) -> seq().
smallest(Vector) ->
    lists:min(tuple_to_list(Vector)).
