%% Runs the properties of this application under EUnit.
-module(halley_cluster_properties_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    [{timeout, 120, {atom_to_list(Name),
                     fun() ->
                         Property = prop_halley_cluster_records:Name(),
                         ?assert(proper:quickcheck(Property, [{numtests, 2000}, quiet,
                                                              noshrink]))
                     end}}
     || {Name, 0} <- prop_halley_cluster_records:module_info(exports),
        lists:prefix("prop_", atom_to_list(Name))].
