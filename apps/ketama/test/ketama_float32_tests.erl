%% Roundings to binary32, by the standard's rules and by values worked out by hand.
-module(ketama_float32_tests).

-include_lib("eunit/include/eunit.hrl").

integers_up_to_24_bits_are_exact_test() ->
    [?assertEqual(float(N), ketama_float32:of_integer(N))
     || N <- [0, 1, 2, 3, 16#FFFFFF, 16#1000000, 1 bsl 40, 16#FFFFFF bsl 40, 1 bsl 63]].

%% IEEE 754, 4.3.1: halves to the even one.
integers_round_to_nearest_even_test() ->
    [?assertEqual(float(Nearest), ketama_float32:of_integer(N))
     || {N, Nearest} <- [{16#1000001, 16#1000000}, {16#1000002, 16#1000002},
                         {16#1000003, 16#1000004}, {16#2000001, 16#2000000},
                         {16#2000002, 16#2000000}, {16#2000003, 16#2000004},
                         {16#2000006, 16#2000008}, {16#1FFFFFF, 16#2000000},
                         {1 bsl 64 - 1, 1 bsl 64}]].

%% By way of a double this one would be a half, and become even.
integers_round_once_test() ->
    N = 16#1000001 bsl 36 + 1,
    ?assertEqual(float(16#1000002 bsl 36), ketama_float32:of_integer(N)),
    ?assertEqual(float(16#1000000 bsl 36), ketama_float32:nearest(float(N))).

doubles_test() ->
    ?assertEqual(0.5, ketama_float32:nearest(0.5)),
    ?assertEqual(13421773 / (1 bsl 27), ketama_float32:nearest(0.1)),
    ?assertEqual(16.0, ketama_float32:nearest(ketama_float32:nearest(0.04) * 40.0 * 10.0)).
