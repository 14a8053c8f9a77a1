%% Code is loaded before it is needed: what the brain calls must not be missing when there is no
%% descriptor left to read it by.
-module(halley_code_tests).

-include_lib("eunit/include/eunit.hrl").

%% Of those that only read the configuration, and of the store's own application.
-define(LATER, [conf_parse, cuttlefish_conf, cuttlefish_datatypes, cuttlefish_error,
                cuttlefish_generator, cuttlefish_mapping, cuttlefish_schema, cuttlefish_util,
                mnesia]).

all_that_is_called_is_loaded_test_() ->
    {timeout, 60, fun() ->
        Called = called_by([halley_code, halley_edge_link, halley_api]),
        ?assert(lists:member(halley_replay, Called)),
        ?assertEqual("[]", unloaded(Called, []))
    end}.

%% Whoever has configured it loads these as well.
and_what_not_everybody_has_test_() ->
    {timeout, 120, fun() ->
        Called = fun
            %% By that public_key reads certificates.
            ([halley_hooks_app] = Modules) -> [asn1rt_nif | called_by(Modules)];
            %% `remote.listen' isn't encrypted.
            ([halley_backends, teleport] = Modules) -> called_by(Modules) -- [ssl];
            (Modules) -> called_by(Modules)
        end,
        [?assertEqual({Applications, "[]"},
                      {Applications, unloaded(Called(Modules), Applications)})
         || {Modules, Applications} <- [{[halley_hooks_app],
                                         [halley_hooks, asn1, public_key, ssl]},
                                        {[halley_postgres_app, epgsql],
                                         [halley_postgres, epgsql, public_key, ssl]},
                                        {[halley_backends, teleport],
                                         [halley_backends, teleport]}]]
    end}.

%% In a node of its own: here everything is loaded by other tests.
unloaded(Called, Applications) ->
    Eval = lists:flatten(io_lib:format(
        "ok = halley_code:load(), ok = halley_code:load(~0p), "
        "io:format(\"~~0p\", [[M || M <- ~0p, not erlang:module_loaded(M)]]), halt().",
        [Applications, Called])),
    Paths = [[" -pa ", filename:dirname(code:which(M))]
             || M <- [halley_code, halley_edge_link, halley_api, halley_hooks_app,
                      halley_postgres_app, epgsql, halley_backends, teleport]],
    os:cmd(["erl -noinput", Paths, " -eval '", Eval, "'"]).

%% By all modules of the applications of these.
called_by(Modules) ->
    Beams = lists:append([filelib:wildcard(filename:join(filename:dirname(code:which(M)),
                                                         "*.beam")) || M <- Modules]),
    lists:usort(lists:append([imports(Beam) || Beam <- Beams])) -- ?LATER.

imports(Beam) ->
    {ok, {_, [{imports, Imports}]}} = beam_lib:chunks(Beam, [imports]),
    [Module || {Module, _, _} <- Imports].
