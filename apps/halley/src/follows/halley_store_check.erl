%% Are both directions of the follows the same set, and does every number in them have an id?
%%
%% It runs once, when the store opens, so it must be cheap: of each direction the pairs are counted
%% and three sums are made, of the users, of the subjects, and of their products. Two different sets
%% can have the same sums; two sets that differ by damage or by a fault of ours won't. The first
%% member of each pair is checked for an id, in both directions, and so both are: it has one if it
%% is durable (`halley_ids_pages').
-module(halley_store_check).

-export([run/0]).

-define(SUM_BITS, 56).
-define(SUM(X), ((X) band ((1 bsl ?SUM_BITS) - 1))).

-spec run() -> ok | {error, What :: string()}.
run() ->
    try {sums(halley_following), sums(halley_followers)} of
        {{N, Users, Subjects, Products}, {N, Subjects, Users, Products}} -> ok;
        {Following, Followers} ->
            {error, io_lib:format("the two directions of the follows disagree, ~b and ~b pairs",
                                  [element(1, Following), element(1, Followers)])}
    catch
        throw:{nobody, Table, Number} ->
            {error, io_lib:format("the number ~b in ~ts is nobody's", [Number, Table])};
        throw:{malformed, Table, Fence} ->
            {error, io_lib:format("the page ~b of ~ts is none", [Fence, Table])}
    end.

sums(Table) ->
    {Sums, _} = ets:foldl(fun({Fence, Page}, {Sums, Last}) -> page(Page, Table, Fence, Last, Sums)
                          end, {{0, 0, 0, 0}, none}, Table),
    Sums.

%% `Last': the first member of the pair before, whose id is known.
page(<<A:32, N:16, Rest/binary>>, Table, Fence, Last, Sums) when N > 0 ->
    A =:= Last orelse halley_ids_pages:is_durable(A) orelse throw({nobody, Table, A}),
    members(N, Rest, 0, {A, N}, Table, Fence, Sums);
page(<<>>, _, _, Last, Sums) ->
    {Sums, Last};
page(_, Table, Fence, _, _) ->
    throw({malformed, Table, Fence}).

%% In the same walk over the page, and four at a time: this is what the check costs.
members(N, <<B:32, C:32, D:32, E:32, Rest/binary>>, Sum, Group, Table, Fence, Sums) when N >= 4 ->
    members(N - 4, Rest, Sum + B + C + D + E, Group, Table, Fence, Sums);
members(0, Rest, Sum, {A, N}, Table, Fence, {Count, As, Bs, Products}) ->
    page(Rest, Table, Fence, A, {Count + N, ?SUM(As + A * N), ?SUM(Bs + Sum),
                                 ?SUM(Products + A * ?SUM(Sum))});
members(N, <<B:32, Rest/binary>>, Sum, Group, Table, Fence, Sums) ->
    members(N - 1, Rest, Sum + B, Group, Table, Fence, Sums);
members(_, _, _, _, Table, Fence, _) ->
    throw({malformed, Table, Fence}).
