%% The pages of subscribed sessions: see the property.
-module(halley_subscriptions_tests).

-include_lib("eunit/include/eunit.hrl").

pages_test_() ->
    {timeout, 120, ?_assert(proper:quickcheck(prop_halley_subscriptions:prop_words(),
                                              [{numtests, 200}, {to_file, user}]))}.
