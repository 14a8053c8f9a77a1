%% An id, a prefix, everything; a star in the middle is a letter.
-module(halley_pattern_tests).
-include_lib("eunit/include/eunit.hrl").

match_test_() ->
    [?_assertEqual(Expected, halley_pattern:is_match(halley_pattern:new(Text), Id))
     || {Text, Id, Expected} <- [{<<"room/7">>, <<"room/7">>, true},
                                 {<<"room/7">>, <<"room/77">>, false},
                                 {<<"room/*">>, <<"room/7">>, true},
                                 {<<"room/*">>, <<"room/">>, true},
                                 {<<"room/*">>, <<"room">>, false},
                                 {<<"*">>, <<"anything">>, true},
                                 {<<"a*b">>, <<"a*b">>, true},
                                 {<<"a*b">>, <<"axb">>, false},
                                 {<<"**">>, <<"*x">>, true},
                                 {<<>>, <<"x">>, false}]].

everything_test_() ->
    [?_assertEqual({Text, Expected}, {Text, halley_pattern:is_everything(halley_pattern:new(Text))})
     || {Text, Expected} <- [{<<"*">>, true}, {<<"**">>, false}, {<<"a*">>, false},
                             {<<"*a">>, false}, {<<>>, false}]].
