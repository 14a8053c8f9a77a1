%% JSON: what is judged, and that a member is cut out as it was written.
-module(halley_api_json_tests).
-include_lib("eunit/include/eunit.hrl").

cut(Text, N) ->
    {ok, _} = halley_api_json:object(Text),
    {ok, Value} = halley_api_json:cut(Text, N, 256),
    Value.

a_member_comes_as_it_was_written_test_() ->
    [?_assertEqual(Value, cut(<<"{\"a\":", Value/binary, ",\"b\":", Value/binary, "}">>, N))
     || N <- [1, 2],
        Value <- [<<"1.0">>, <<"1.10">>, <<"-0.0">>, <<"1E5">>, <<"null">>, <<"true">>, <<"\"\"">>,
                  <<"123456789012345678901234567890">>, <<"3.14159265358979323846264338327950">>,
                  <<"\"\\u00e9\\/\\\"}\"">>, <<"\"ä😀\""/utf8>>, <<"{\"z\":1,\"a\":{\"z\":[]}}">>,
                  <<"{}">>, <<"[]">>, <<"[\"]\",\"\\\\\",[[1]]]">>, <<"{\"a\":1,\"a\":2}">>]].

it_is_one_line_test() ->
    ?assertEqual(<<"{\"x\": [1,2 ]}">>, cut(<<" {\r\n\t\"a\" : {\"x\":\n [1,\r\n\t2 ]} }\n">>, 1)),
    ?assertEqual(<<"\"a\\nb\"">>, cut(<<"{\"x\":0 ,\n\"a\":\n\"a\\nb\"\n}">>, 2)).

escaped_names_are_counted_as_members_test() ->
    Text = <<"{\"d\\u0061\\\"ta\":\"no\",\"data\":7}">>,
    ?assertEqual(<<"7">>, cut(Text, 2)).

what_is_no_object_is_named_test_() ->
    [?_assertEqual({error, Message}, object(Text))
     || {Text, Message} <-
            [{<<"[1]">>, "a JSON object was expected, not an array"},
             {<<"\"x\"">>, "a JSON object was expected, not a string"},
             {<<"1">>, "a JSON object was expected, not a number"},
             {<<"null">>, "a JSON object was expected, not null"},
             {<<>>, "the JSON is not valid at byte 1: the text ends before the JSON does"},
             {<<"{\"a\":1}x">>,
              "the JSON is not valid at byte 8: something follows the end of the JSON"},
             {<<"{\"a\":1,}">>, "the JSON is not valid at byte 8: this is not expected here"},
             {<<"{\"a\":tru}">>,
              "the JSON is not valid at byte 6: only true, false and null are words"},
             {<<"{\"a\":1.}">>, "the JSON is not valid at byte 8: a number is malformed"},
             {<<"{\"a\":1e999}">>, "a number is too large for a 64-bit float"}]].

bad_strings_are_refused_test_() ->
    [?_assertMatch({error, "the JSON is not valid at byte " ++ _},
                   object(<<"{\"a\":\"", Bad/binary, "\"}">>))
     || Bad <- [<<255>>, <<"a\nb">>, <<0>>, <<"\\x">>, <<"\\ud83d">>, <<16#ed, 16#a0, 16#80>>,
                <<16#c0, 16#80>>]].

long_numbers_are_refused_before_they_cost_test() ->
    Digits = binary:copy(<<"9">>, 100000),
    ?assertEqual({error, "a number has more than 4096 digits"},
                 object(<<"{\"a\":-", Digits/binary, "}">>)),
    ?assertMatch({ok, _}, object(<<"{\"a\":\"\\\"", Digits/binary, "\"}">>)),
    ?assertMatch({ok, _}, object(<<"{\"a\":\"", Digits/binary, "\\\\\",\"b\":12}">>)).

nesting_has_a_bound_test_() ->
    [begin
         Deep = nested(Open, Close, 256),
         [?_assertEqual({ok, Deep}, cut_deep(Deep))
          | [?_assertEqual({error, too_deep}, cut_deep(nested(Open, Close, N)))
             || N <- [257, 10000]]]
     end || {Open, Close} <- [{<<"[">>, <<"]">>}, {<<"{\"a\":">>, <<"}">>},
                              {<<"[[],{},">>, <<",[]]">>}]].

nested(Open, Close, Levels) ->
    Most = Levels - 1,
    <<(binary:copy(Open, Most))/binary, "[1]", (binary:copy(Close, Most))/binary>>.

cut_deep(Value) ->
    Text = <<"{\"a\":", Value/binary, "}">>,
    {ok, _} = halley_api_json:object(Text),
    halley_api_json:cut(Text, 1, 256).

object(Text) ->
    case halley_api_json:object(Text) of
        {error, What} -> {error, lists:flatten(What)};
        Ok -> Ok
    end.
