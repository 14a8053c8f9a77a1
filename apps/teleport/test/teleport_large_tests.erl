%% Large elements: parts are cut out without a copy, and elements that don't fit are malformed.
-module(teleport_large_tests).

-include_lib("eunit/include/eunit.hrl").

-define(PEER, 'peer@127.0.0.1').

not_copied_test() ->
    Bin = binary:copy(<<1>>, 1 bsl 20),
    {Rest, Cut} = teleport_large:encode([self() | {data, #{body => [Bin]}, Bin}]),
    ?assert(iolist_size(Rest) < 200),
    ?assertEqual([Bin, Bin], Cut),
    ?assert(lists:all(fun(B) -> erts_debug:same(B, Bin) end, Cut)).

%% Only so many cells are looked at; a long list is encoded as it is.
long_list_test() ->
    Term = [name | lists:seq(1, 200000) ++ [binary:copy(<<1>>, 40000)]],
    {Rest, Cut} = teleport_large:encode(Term),
    ?assertEqual([], Cut),
    ?assertEqual({ok, Term}, teleport_large:decode(iolist_to_binary(Rest), Cut, ?PEER)).

refused_test() ->
    Ref = make_ref(),
    Bin = binary:copy(<<1>>, 40000),
    {Rest, Cut} = teleport_large:encode({call, Ref, self(), {Bin, fun() -> ok end}}),
    ?assertEqual({refused, {call, Ref, a_fun}},
                 teleport_large:decode(iolist_to_binary(Rest), Cut, ?PEER)).

malformed_test_() ->
    Bin = binary:copy(<<1>>, 40000),
    {Rest, [Bin]} = teleport_large:encode([name | {Bin}]),
    Whole = iolist_to_binary(Rest),
    Holes = [hole, {cons, none, hole}, {cons, none, {tuple, [{2, hole}]}},
             {cons, none, {map, [{1, hole}]}}, {tuple, 7}, what, {cons, none, {tuple, none}}],
    [?_assertEqual({error, malformed}, teleport_large:decode(Rest1, Cut, ?PEER))
     || {Rest1, Cut} <- [{Whole, []}, {Whole, [Bin, Bin]}, {<<>>, [Bin]},
                         {term_to_binary([[name | 1]]), []}]
                        ++ [{term_to_binary([[name | {<<>>}], Hole]), [Bin]} || Hole <- Holes]].
