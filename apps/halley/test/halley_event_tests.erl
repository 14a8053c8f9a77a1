%% Events and their JSON text.
-module(halley_event_tests).

-include_lib("eunit/include/eunit.hrl").

event(Id, Subject, Data) ->
    {ok, Json} = halley_event:encode_data(Data),
    halley_event:event(halley_event:draft(Id, Subject, Json), halley_event:id_prefix(14), {3, 35},
                       1700000000000).

%% link.md 7.1
text_is_one_line_with_data_last_test() ->
    Event = event(generated, <<"ann">>, {json, <<"{\"a\":1}">>}),
    #{json := Json, data_offset := Offset} = text(Event),
    ?assertEqual(<<"{\"id\":\"E-Z\",\"subject\":\"ann\","
                   "\"at\":1700000000000,\"data\":{\"a\":1}}">>, Json),
    ?assertEqual(<<"{\"a\":1}">>, binary_part(Json, Offset, byte_size(Json) - Offset - 1)),
    ?assertMatch(#{id := <<"E-Z">>, subject := <<"ann">>, shard := 3, seq := 35,
                   at := 1700000000000, sessions := 0, chosen := false},
                 Event).

%% link.md 2.2, with an empty cursor
text(#{wire := Wire}) ->
    <<3, 35:64, 1700000000000:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16, 0, Bytes:32,
      Json:Bytes/binary>> = Wire,
    #{json => Json, data_offset => DataOffset, subject_offset => SubjectOffset,
      subject_bytes => SubjectBytes}.

%% What is made of an event and of its record in the history is the same.
delivery_test() ->
    Event = event(<<"mine">>, <<"a\"b">>, #{a => 1}),
    {Record, _} = halley_history_record:event(7, 3, Event),
    {ok, Body, _} = halley_history_record:decode(7, iolist_to_binary(Record)),
    {ok, Read} = halley_history_record:body(Body),
    ?assertEqual({3, 35, maps:get(wire, Event)}, halley_event:delivery(Event)),
    ?assertEqual(halley_event:delivery(Event), halley_event:delivery(Read)),
    ?assertEqual(halley_event:data(Event), halley_event:data(Read)).

%% link.md 7.1
subject_stands_where_it_is_said_test_() ->
    [?_assertEqual(halley_event:escape(Subject), binary_part(Json, Offset, Bytes))
     || Id <- [generated, <<"mine">>, <<"\"">>, binary:copy(<<"\\">>, 255)],
        Subject <- [<<"a">>, <<"a\"b\\c">>, <<"Zoë"/utf8>>, binary:copy(<<"\"">>, 255)],
        #{json := Json, subject_offset := Offset, subject_bytes := Bytes}
            <- [text(event(Id, Subject, 1))]].

draft_knows_a_chosen_id_test() ->
    ?assertEqual([generated, <<"mine">>],
                 [halley_event:chosen_id(halley_event:draft(Id, <<"s">>, <<"1">>))
                  || Id <- [generated, <<"mine">>]]).

ids_are_escaped_test_() ->
    [?_assertMatch(#{<<"id">> := Id, <<"subject">> := Id},
                   jiffy:decode(maps:get(json, text(event(Id, Id, 1))), [return_maps]))
     || Id <- [<<"\"">>, <<"\\">>, <<"a\"b\\c">>, <<"Zoë Ünïcode"/utf8>>, <<"日本"/utf8>>,
               <<"{}">>, binary:copy(<<"\\">>, 255)]].

chosen_id_wins_test() ->
    ?assertMatch(#{id := <<"mine">>}, event(<<"mine">>, <<"s">>, null)).

data_as_a_term_test() ->
    ?assertEqual(#{<<"a">> => [1, null, <<"x">>]},
                 halley_event:data(event(generated, <<"s">>, #{a => [1, null, <<"x">>]}))).

control_characters_in_data_are_escaped_test() ->
    #{json := Json} = text(event(generated, <<"s">>, <<"a\nb", 0, 31>>)),
    ?assertEqual(nomatch, re:run(Json, "[\\x00-\\x1f]")).

no_json_test_() ->
    [?_assertMatch({error, {bad_data, _}}, halley_event:encode_data(Term))
     || Term <- [self(), {a, b, c}, <<16#FF>>, [make_ref()]]].

private(Id, Users, Data) ->
    {ok, Json} = halley_event:encode_data(Data),
    halley_event:private_event(halley_event:private(Id, Users, Json), halley_event:id_prefix(14),
                               {3, 35}, 1790000000000).

%% http.md 20.1: its text says that it is private, and not for whom.
private_test() ->
    #{wire := <<3, 35:64, 1790000000000:64, DataOffset:32, Offset:16, Bytes:16, 0, Size:32,
                Json:Size/binary>>} = Event = private(generated, [<<"bob">>, <<"eve">>], [1]),
    ?assertMatch(#{id := <<"E-Z">>, users := [<<"bob">>, <<"eve">>], shard := 3, seq := 35,
                   sessions := 0, chosen := false}, Event),
    ?assertEqual(<<"{\"id\":\"E-Z\",\"private\":true,\"at\":1790000000000,\"data\":[1]}">>, Json),
    ?assertEqual(<<"[1]">>, binary_part(Json, DataOffset, Size - DataOffset - 1)),
    ?assertEqual(<<"\"E-Z">>, binary_part(Json, Offset, Bytes)),
    ?assertEqual([1], halley_event:data(Event)),
    ?assertEqual({<<"x">>, [<<"u">>]},
                 halley_event:users(halley_event:private(<<"x">>, [<<"u">>], <<"1">>))).

%% link.md 7.1: the longest ids, every byte an escape.
private_offsets_test_() ->
    [begin
         #{wire := <<_:17/binary, DataOffset:32, Offset:16, Bytes:16, 0, Size:32,
                     Json:Size/binary>>} = private(Id, [<<"u">>], <<"d">>),
         [?_assertEqual(<<"\"d\"">>, binary_part(Json, DataOffset, Size - DataOffset - 1)),
          ?_assertEqual(<<$", (halley_event:escape(Id))/binary>>,
                        binary_part(Json, Offset, Bytes)),
          ?_assertMatch(#{<<"id">> := Id}, jiffy:decode(Json, [return_maps]))]
     end || Id <- [<<"i">>, <<"a\"b">>, binary:copy(<<"\"">>, 255), binary:copy(<<1>>, 255)]].
