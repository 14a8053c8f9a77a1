%% One event from JSON text to what publishing takes.
-module(halley_api_event_tests).
-include_lib("eunit/include/eunit.hrl").

members_in_any_order_test() ->
    ?assertEqual({ok, {<<"s">>, <<"[1.0]">>, #{}}},
                 halley_api_event:parse(<<"{\"subject\":\"s\",\"data\":[1.0]}">>)),
    ?assertEqual({ok, {<<"s">>, <<"null">>, #{id => <<"7">>}}},
                 halley_api_event:parse(<<"{\"data\":null,\"id\":\"7\",\"subject\":\"s\"}">>)).

ack_is_disk_or_memory_test_() ->
    Parse = fun(Ack) ->
                Rest = <<",\"data\":1,\"subject\":\"s\"}">>,
                halley_api_event:parse(<<"{\"ack\":", Ack/binary, Rest/binary>>)
            end,
    [?_assertEqual({ok, {<<"s">>, <<"1">>, #{ack => memory}}}, Parse(<<"\"memory\"">>)),
     ?_assertEqual({ok, {<<"s">>, <<"1">>, #{ack => disk}}}, Parse(<<"\"disk\"">>)),
     [?_assertMatch({error, {400, <<"bad_ack">>, <<"ack is \"disk\" ", _/binary>>}},
                    binary_message(Parse(Ack)))
      || Ack <- [<<"\"Disk\"">>, <<"\"\"">>, <<"null">>, <<"true">>, <<"[\"disk\"]">>]]].

binary_message({error, {Status, Code, Message}}) ->
    {error, {Status, Code, iolist_to_binary(Message)}}.

errors_say_what_and_what_would_be_right_test_() ->
    Long = binary:copy(<<"x">>, 256),
    [{Code, ?_assertEqual({400, list_to_binary(Code), Message}, failed(Text))}
     || {Text, Code, Message} <-
            [{<<"{\"data\":1}">>, "bad_event", event("member subject is missing")},
             {<<"{\"subject\":\"s\"}">>, "bad_event", event("member data is missing")},
             {<<"{\"subject\":\"s\",\"data\":1,\"data\":2}">>, "bad_event",
              event("member data is there twice")},
             {<<"{\"subject\":\"s\",\"data\":1,\"id\":[]}">>, "bad_id",
              "bad id: an id must be text"},
             {<<"{\"subject\":\"s\",\"subject\":\"t\",\"data\":2}">>, "bad_event",
              event("member subject is there twice")},
             {<<"{\"id\":\"s\",\"id\":\"t\",\"data\":2}">>, "bad_event",
              event("member id is there twice")},
             {<<"{\"ack\":\"disk\",\"ack\":\"disk\",\"data\":2}">>, "bad_event",
              event("member ack is there twice")},
             {<<"{\"subject\":\"s\",\"data\":1,\"Id\":2}">>, "bad_event",
              event("unknown member \"Id\"")},
             {<<"{\"subject\":\"\",\"data\":1}">>, "bad_subject",
              "bad subject: an id must not be empty"},
             {<<"{\"subject\":null,\"data\":1}">>, "bad_subject",
              "bad subject: an id must be text"},
             {<<"{\"subject\":7,\"data\":1}">>, "bad_subject", "bad subject: an id must be text"},
             {<<"{\"subject\":{},\"data\":1}">>, "bad_subject", "bad subject: an id must be text"},
             {<<"{\"subject\":\"", Long/binary, "\",\"data\":1}">>, "bad_subject",
              "bad subject: an id must not be longer than 255 bytes"},
             {<<"{\"subject\":\"s\",\"data\":1,\"id\":\"\\u0000\"}">>, "bad_id",
              "bad id: an id must not contain control characters (U+0000 to U+001F, "
              "U+007F to U+009F)"},
             {<<"[]">>, "bad_json", "a JSON object was expected, not an array"}]].

event(What) ->
    What ++ "; an event is {\"subject\":S,\"data\":any JSON,\"id\":optional,\"ack\":optional}".

failed(Text) ->
    {error, {Status, Code, Message}} = halley_api_event:parse(Text),
    {Status, Code, unicode:characters_to_list(Message)}.
