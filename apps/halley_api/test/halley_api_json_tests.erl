%% JSON: what is judged, and that a member is cut out as it was written.
-module(halley_api_json_tests).
-include_lib("eunit/include/eunit.hrl").

%% The Nth member's value, on one line.
cut(Text, N) ->
    {ok, Members} = halley_api_json:texts(Text, <<"a">>, 256),
    {_, Value} = lists:nth(N, Members),
    halley_api_json:one_line(Value).

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
    ?assertEqual({ok, [{<<"da\"ta">>, <<"\"no\"">>}, {<<"data">>, <<"7">>}]},
                 halley_api_json:texts(Text, <<"data">>, 256)).

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
    case halley_api_json:texts(<<"{\"a\":", Value/binary, "}">>, <<"a">>, 256) of
        {ok, [{<<"a">>, Text}]} -> {ok, Text};
        {error, _} = Error -> Error
    end.

%% The other members aren't an event's data.
only_one_member_is_bounded_test() ->
    Deep = nested(<<"[">>, <<"]">>, 1000),
    ?assertMatch({ok, [{<<"a">>, <<"1">>}, {<<"b">>, Deep}]},
                 halley_api_json:texts(<<"{\"a\":1,\"b\":", Deep/binary, "}">>, <<"a">>, 256)).

%% What the scan is unsure of is as jiffy says.
unsure_test_() ->
    Nines = binary:copy(<<"9">>, 400),
    [?_assertEqual({Text, {ok, [{<<"a">>, Text}]}}, {Text, texts(Text)})
     || Text <- [<<"1e100">>, <<"1e-999">>, <<"0.1E+308">>, Nines, <<"0.", Nines/binary>>,
                 <<"[\"\\ud83d\\uDE00\"]">>, <<"\"\\uD83D\\ude00\\u00e9\"">>]]
    ++ [?_assertMatch({Text, {error, _}}, {Text, texts(Text)})
        || Text <- [<<"1e309">>, <<"[1e999]">>, <<Nines/binary, "e1">>, <<"\"\\ud83d\"">>,
                    <<"\"\\ud83dx\"">>, <<"\"\\ud83d\\ud83d\"">>, <<"\"\\ude00\"">>,
                    <<"\"\\ud83d\\u0041\"">>, <<"1e+">>, binary:copy(<<"9">>, 4097)]].

texts(Value) ->
    halley_api_json:texts(<<"{\"a\":", Value/binary, "}">>, <<"a">>, 256).

%% One scan says what jiffy and the grammar say one after the other. Texts are made of pieces of
%% JSON, whole and broken, by a seed.
as_decoded_and_skipped_test_() ->
    {timeout, 60, fun() ->
        rand:seed(exsss, 15),
        Texts = [random_text() || _ <- lists:seq(1, 30000)],
        Taken = [as_before(Text) || Text <- Texts],
        %% Neither all nor none of them.
        ?assert(lists:sum([1 || true <- Taken]) > 3000),
        ?assert(lists:sum([1 || false <- Taken]) > 3000)
    end}.

as_before(Text) ->
    Got = halley_api_json:texts(Text, <<"a">>, 4),
    case {halley_api_json:object(Text), halley_json_text:skip(Text, byte_size(Text) + 1)} of
        {{error, What}, _} ->
            ?assertEqual({Text, {error, What}}, {Text, Got}),
            false;
        {{ok, Members}, {ok, _}} ->
            IsDeep = lists:any(fun({Name, Value}) -> Name =:= <<"a">> andalso depth(Value) > 4 end,
                               Members),
            case Got of
                {ok, Values} ->
                    ?assertEqual({Text, false}, {Text, IsDeep}),
                    ?assertEqual({Text, Members},
                                 {Text, [{Name, halley_api_json:value(Value)}
                                         || {Name, Value} <- Values]});
                {error, too_deep} ->
                    ?assertEqual({Text, true}, {Text, IsDeep})
            end,
            true;
        {{ok, _}, {error, _, _}} ->
            ?assertMatch({Text, {error, _}}, {Text, Got}),
            false
    end.

depth({Members}) -> 1 + lists:max([0 | [depth(Value) || {_, Value} <- Members]]);
depth(Values) when is_list(Values) -> 1 + lists:max([0 | lists:map(fun depth/1, Values)]);
depth(_) -> 0.

random_text() ->
    Members = lists:join(<<",">>, [[random_of([<<"\"a\"">>, <<"\"data\"">>, <<"\"\\u0061\"">>]),
                                    random_of([<<":">>, <<" : ">>]), random_value(6)]
                                   || _ <- lists:seq(1, rand:uniform(3))]),
    Text = iolist_to_binary([<<"{">>, Members, <<"}">>]),
    case rand:uniform(3) of
        1 ->
            At = rand:uniform(byte_size(Text)) - 1,
            Cut = random_of([0, 1]),
            <<Before:At/binary, _:Cut/binary, After/binary>> = Text,
            <<Before/binary, (random_of(pieces()))/binary, After/binary>>;
        _ -> Text
    end.

pieces() ->
    [<<>>, <<"\"">>, <<"\\">>, <<",">>, <<":">>, <<"{">>, <<"}">>, <<"]">>, <<"0">>, <<"-">>,
     <<"e5">>, <<".">>, <<"\\ud83d">>, <<"\\ude00">>, <<255>>, <<"\n">>, <<" ">>, <<"x">>,
     <<"null">>].

random_value(0) -> <<"0">>;
random_value(Depth) ->
    case rand:uniform(9) of
        N when N =< 2 ->
            [<<"[">>, lists:join(<<",">>, [random_value(Depth - 1)
                                           || _ <- lists:seq(1, rand:uniform(3) - 1)]), <<"]">>];
        3 ->
            [<<"{">>, lists:join(<<",">>, [[<<"\"k\":">>, random_value(Depth - 1)]
                                           || _ <- lists:seq(1, rand:uniform(3) - 1)]), <<"}">>];
        N when N =< 6 ->
            random_of([<<"0">>, <<"-1.50">>, <<"12e3">>, <<"1E-5">>, <<"1e100">>, <<"1e308">>,
                       <<"1e309">>, <<"1e+">>, <<"01">>, <<"-">>, <<"1.">>,
                       binary:copy(<<"7">>, 250)]);
        _ ->
            random_of([<<"\"x\"">>, <<"\"\"">>, <<"\"\\ud83d\\ude00\"">>, <<"\"\\ud83d\"">>,
                       <<"\"\\\"\\n\"">>, <<"\"ä\""/utf8>>, <<"true">>, <<"false">>, <<"null">>,
                       <<"nul">>, <<"\"\t\"">>])
    end.

random_of(Values) -> lists:nth(rand:uniform(length(Values)), Values).

object(Text) ->
    case halley_api_json:object(Text) of
        {error, What} -> {error, lists:flatten(What)};
        Ok -> Ok
    end.
