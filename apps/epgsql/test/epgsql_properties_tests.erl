%% Runs the properties. A failure is printed with its counterexample.
-module(epgsql_properties_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    [{atom_to_list(Property), {timeout, 120,
      ?_assertEqual(true, proper:quickcheck(Module:Property(),
                                            [{numtests, Times}, quiet, long_result]))}}
     || {Module, Property, Times} <- [{prop_epgsql_backend, prop_framing, 300},
                                      {prop_epgsql_backend, prop_damaged, 5000},
                                      {prop_epgsql_backend, prop_random, 3000},
                                      {prop_epgsql_backend, prop_columns, 300},
                                      {prop_epgsql_backend, prop_cells, 300},
                                      {prop_epgsql_codecs, prop_numeric, 500},
                                      {prop_epgsql_codecs, prop_timestamps, 2000},
                                      {prop_epgsql_codecs, prop_arrays, 300},
                                      {prop_epgsql_codecs, prop_damaged, 5000},
                                      {prop_epgsql_pgoutput, prop_damaged, 5000},
                                      {prop_epgsql_stream, prop_replication, 3000},
                                      {prop_epgsql_stream, prop_copy, 3000},
                                      {prop_epgsql_stream, prop_query, 3000}]].
