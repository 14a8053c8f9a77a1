%% The examples of the README: the expression after a prompt gives the value below it.
-module(epgsql_readme_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [examples].

init_per_suite(Config) -> [{server, epgsql_test_server:start()} | Config].

end_per_suite(Config) -> epgsql_test_server:stop(?config(server, Config)).

examples(Config) ->
    #{port := Port} = epgsql_test_server:options(?config(server, Config)),
    {ok, Text} = file:read_file(filename:join(here(), "README.md")),
    {match, Blocks} = re:run(Text, "^```erlang\n(.*?)^```$",
                             [multiline, dotall, global, {capture, [1], list}]),
    ?assert(Blocks =/= []),
    _ = [example(Block, Port) || [Block] <- Blocks].

here() ->
    Source = proplists:get_value(source, ?MODULE:module_info(compile)),
    filename:join(filename:dirname(Source), "..").

example(Block, Port) ->
    Parts = re:split(Block, "^\\d+> ", [multiline, {return, list}, trim]),
    lists:foldl(fun(Part, Bindings) ->
        [Code | Printed] = string:split(Part, "\n"),
        {ok, Tokens, _} = erl_scan:string(Code),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, After} = erl_eval:exprs(Expressions, Bindings),
        ?assertEqual({Code, words(Printed)}, {Code, words(io_lib:format("~p", [Value]))}),
        After
    end, erl_eval:add_binding('Port', Port, erl_eval:new_bindings()), tl(Parts)).

words(Text) -> lists:flatten(string:lexemes(lists:flatten(Text), " \n")).
