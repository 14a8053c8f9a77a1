%% Rows of the table of brains that name no place to dial.
-module(halley_cluster_links_tests).

-include_lib("eunit/include/eunit.hrl").

%% Names come from a table, and atoms stay for ever.
a_name_without_a_place_is_no_atom_test() ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    {ok, Links} = halley_cluster_links:start_link(<<"me@halley">>),
    try
        Names = [<<"brain-", (integer_to_binary(erlang:unique_integer([positive])))/binary>>
                 || _ <- lists:seq(1, 4)],
        Addresses = [<<"nowhere">>, <<"host:">>, <<"host:70000">>, <<"host:x">>],
        ok = halley_cluster_links:members([#{name => Name, address => Address}
                                           || {Name, Address} <- lists:zip(Names, Addresses)]),
        _ = sys:get_state(Links),
        [?assertError(badarg, binary_to_existing_atom(Name)) || Name <- Names]
    after
        ok = gen_server:stop(Links),
        ok = logger:set_primary_config(level, Level)
    end.
