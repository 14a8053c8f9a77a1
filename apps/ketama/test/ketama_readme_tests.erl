%% The examples of the README: the expression after a prompt gives the value below it.
-module(ketama_readme_tests).

-include_lib("eunit/include/eunit.hrl").

examples_test() ->
    {ok, Text} = file:read_file(ketama_test_rings:here("README.md")),
    [ServersFile] = blocks("text", Text),
    File = string:trim(os:cmd("mktemp")),
    ok = file:write_file(File, ServersFile),
    Blocks = blocks("erlang", Text),
    ?assert(length(Blocks) >= 5),
    try [example(Block, File) || Block <- Blocks] after
        _ = [gen_server:stop(ketama) || is_pid(whereis(ketama))],
        file:delete(File)
    end.

blocks(Language, Text) ->
    {match, Found} = re:run(Text, "^```" ++ Language ++ "\n(.*?)^```$",
                            [multiline, dotall, global, {capture, [1], list}]),
    lists:append(Found).

example(Block, File) ->
    Parts = re:split(Block, "^\\d+> ", [multiline, {return, list}, trim]),
    lists:foldl(fun(Part, Bindings) ->
        [Code | Printed] = string:split(Part, "\n"),
        {ok, Tokens, _} = erl_scan:string(Code),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, After} = erl_eval:exprs(Expressions, Bindings),
        ?assertEqual({Code, words(Printed)}, {Code, words(io_lib:format("~p", [Value]))}),
        After
    end, erl_eval:add_binding('File', File, erl_eval:new_bindings()), tl(Parts)).

words(Text) -> lists:flatten(string:lexemes(lists:flatten(Text), " \n")).
