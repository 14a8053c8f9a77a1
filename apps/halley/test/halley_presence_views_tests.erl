%% The users that a session with `presence=*' may see (link.md 19).
-module(halley_presence_views_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_presence_views, [split/1, read/1, pieces/1, allows/2]).

%% What a worker says is what it was told, and allows the same.
there_and_back_test_() ->
    Long = binary:copy(<<"x">>, 254),
    [?_assertEqual(View, read(pieces(View)))
     || View <- [everybody, [], [{id, <<"ann">>}], [{prefix, <<"team/">>}, {id, <<"ann">>}],
                 [{prefix, <<"*">>}], [{id, Long}, {prefix, Long}, {id, <<"z">>}],
                 [{id, integer_to_binary(N)} || N <- lists:seq(1, 300)]]].

pieces_test() ->
    ?assertEqual([<<4, 0, 6, "team/*", 3, "ann">>],
                 pieces([{prefix, <<"team/">>}, {id, <<"ann">>}])),
    ?assertEqual([<<4, 0>>], pieces([])),
    [?assert(byte_size(P) =< 255) || P <- pieces([{id, binary:copy(<<"x">>, 250)},
                                                  {id, binary:copy(<<"y">>, 250)}])].

%% No id is as long, so nothing is lost.
too_long_test() ->
    ?assertEqual([{id, <<"a">>}], read(pieces([{id, binary:copy(<<"x">>, 256)}, {id, <<"a">>}]))).

lies_test_() ->
    [?_assertEqual({Pieces, error}, {Pieces, read(Pieces)})
     || Pieces <- [[<<4>>], [<<4, 1>>], [<<4, 0, 5, "abc">>], [<<4, 0>>, <<4, 0>>],
                   [<<4, 0, 1, "a">>, <<4, 2, 1, "b">>]]].

split_test() ->
    ?assertEqual({[<<4, 0>>], [<<1, $*>>, <<2, 0>>, <<"a">>]},
                 split([<<1, $*>>, <<4, 0>>, <<2, 0>>, <<"a">>])).

%% What isn't understood gives nothing.
allows_test_() ->
    [?_assertEqual({View, Allows}, {View, allows(View, <<"team/1">>)})
     || {View, Allows} <- [{everybody, true}, {[], false}, {error, false},
                           {[{prefix, <<"team/">>}], true}, {[{id, <<"team/1">>}], true},
                           {[{id, <<"team/">>}, {prefix, <<"t/">>}], false}]].
