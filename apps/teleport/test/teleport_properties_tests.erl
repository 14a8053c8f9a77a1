%% Runs the properties.
-module(teleport_properties_tests).

-include_lib("eunit/include/eunit.hrl").

%% Some atoms are made by who else runs here; were they made of bytes, there would be hundreds.
-define(ATOMS_MAX, 100).

properties_test_() ->
    [{atom_to_list(Property), {timeout, 120, fun() -> holds(Property, Times) end}}
     || {Property, Times} <- [{prop_round_trip, 500}, {prop_large_round_trip, 100},
                              {prop_any_bytes, 2000}, {prop_damaged, 2000}, {prop_cut_apart, 500},
                              {prop_control, 300}, {prop_greeting, 1000}]].

losses_test_() ->
    {timeout, 120, fun() ->
        Holds = proper:quickcheck(prop_teleport_writer:prop_losses_are_told(),
                                  [{numtests, 150}, {max_size, 30}, quiet]),
        ?assertEqual(none, case Holds of true -> none; _ -> proper:counterexample() end)
    end}.

large_reader_test_() ->
    [{atom_to_list(Property), {timeout, 120, fun() ->
        ?assert(proper:quickcheck(prop_teleport_large_reader:Property(),
                                  [{numtests, Times}, quiet]))
    end}} || {Property, Times} <- [{prop_any_fragments, 100}, {prop_damaged, 200}]].

holds(Property, Times) ->
    ?assert(proper:quickcheck(prop_teleport:Property(), [{numtests, 5}, quiet])),
    Atoms = erlang:system_info(atom_count),
    ?assert(proper:quickcheck(prop_teleport:Property(), [{numtests, Times}, quiet])),
    ?assert(erlang:system_info(atom_count) - Atoms < ?ATOMS_MAX).
