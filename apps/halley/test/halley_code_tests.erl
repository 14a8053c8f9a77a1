%% Code is loaded before it is needed: what the brain calls must not be missing when there is no
%% descriptor left to read it by.
-module(halley_code_tests).

-include_lib("eunit/include/eunit.hrl").

%% Of those that only read the configuration, and of the store's own application.
-define(LATER, [conf_parse, cuttlefish_conf, cuttlefish_datatypes, cuttlefish_error,
                cuttlefish_generator, cuttlefish_mapping, cuttlefish_schema, cuttlefish_util,
                mnesia]).

%% In a node of its own: here everything is loaded by other tests.
all_that_is_called_is_loaded_test_() ->
    {timeout, 60, fun() ->
        Called = lists:usort(lists:append([imports(Beam) || Beam <- beams()])) -- ?LATER,
        ?assert(lists:member(halley_replay, Called)),
        Eval = lists:flatten(io_lib:format(
            "ok = halley_code:load(), "
            "io:format(\"~~0p\", [[M || M <- ~0p, not erlang:module_loaded(M)]]), halt().",
            [Called])),
        Paths = lists:append([[" -pa ", filename:dirname(Beam)] || Beam <- one_of_each_app()]),
        ?assertEqual("[]", os:cmd(["erl -noinput", Paths, " -eval '", Eval, "'"]))
    end}.

beams() -> lists:append([filelib:wildcard(filename:join(filename:dirname(Beam), "*.beam"))
                         || Beam <- one_of_each_app()]).

one_of_each_app() -> [code:which(M) || M <- [halley_code, halley_edge_link, halley_api]].

imports(Beam) ->
    {ok, {_, [{imports, Imports}]}} = beam_lib:chunks(Beam, [imports]),
    [Module || {Module, _, _} <- Imports].
