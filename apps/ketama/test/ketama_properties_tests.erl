%% Runs the properties.
-module(ketama_properties_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    [{atom_to_list(Property), {timeout, 120,
      ?_assert(proper:quickcheck(prop_ketama:Property(), [{numtests, Times}, quiet]))}}
     || {Property, Times} <- [{prop_leaving, 150}, {prop_rebuilt, 150}, {prop_weights, 30},
                              {prop_owners, 150}, {prop_c_string, 1000}, {prop_file, 500}]].
