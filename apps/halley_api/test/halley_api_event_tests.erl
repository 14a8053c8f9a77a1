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
    [{Code, ?_assertEqual({status(Code), list_to_binary(Code), Message}, failed(Text))}
     || {Text, Code, Message} <- errors_of_whom() ++
            [{<<"{\"data\":1}">>, "bad_event",
              event("member subject is missing, or subjects, or to")},
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

errors_of_whom() ->
    [{<<"{\"to\":[\"bob\"]}">>, "bad_event", event("member data is missing")},
     {<<"{\"to\":[\"bob\"],\"to\":[\"eve\"],\"data\":1}">>, "bad_event",
      event("member to is there twice")},
     {<<"{\"to\":[\"bob\"],\"subject\":\"s\",\"data\":1}">>, "bad_event", event(both())},
     {<<"{\"subject\":\"s\",\"data\":1,\"to\":[\"bob\"]}">>, "bad_event", event(both())},
     {<<"{\"to\":[\"bob\",\"\"],\"data\":1}">>, "bad_to",
      "bad to: an id must not be empty"},
     {<<"{\"to\":[\"bob\",7],\"data\":1}">>, "bad_to", "bad to: an id must be text"},
     {<<"{\"to\":\"bob\",\"data\":1}">>, "bad_to", bad_to()},
     {<<"{\"to\":[],\"data\":1}">>, "bad_to", bad_to()},
     {<<"{\"to\":null,\"data\":1}">>, "bad_to", bad_to()},
     {<<"{\"subjects\":[\"a\"],\"subject\":\"s\",\"data\":1}">>, "bad_event",
      event(both())},
     {<<"{\"to\":[\"a\"],\"subjects\":[\"s\"],\"data\":1}">>, "bad_event",
      event(both())},
     {<<"{\"subjects\":[\"a\"],\"to\":[\"s\"],\"data\":1}">>, "bad_event",
      event(both())},
     {<<"{\"subjects\":[\"a\"],\"subjects\":[\"s\"],\"data\":1}">>, "bad_event",
      event("member subjects is there twice")},
     {<<"{\"subjects\":[\"a\",7],\"data\":1}">>, "bad_subjects",
      "bad subjects: an id must be text"},
     {<<"{\"subjects\":[],\"data\":1}">>, "bad_subjects", bad_subjects()},
     {<<"{\"subjects\":\"a\",\"data\":1}">>, "bad_subjects", bad_subjects()},
     {several(17), "too_many_subjects",
      "an event is about at most 16 subjects, this one about 17: publish it several times, "
      "each with an id of its own, or have them follow one subject"},
     {<<"{\"subject\":\"s\",\"data\":1,\"keep\":1}">>, "bad_keep",
      "bad keep: it is true or false"},
     {<<"{\"subjects\":[\"s\"],\"data\":1,\"keep\":true}">>, "bad_keep", bad_keep()},
     {<<"{\"keep\":true,\"to\":[\"s\"],\"data\":1}">>, "bad_keep", bad_keep()},
     {<<"{\"keep\":true,\"keep\":true,\"subject\":\"s\",\"data\":1}">>, "bad_event",
      event("member keep is there twice")},
     {to(1001), "to_too_long",
      "a private event is for at most 1000 users, this one for 1001: publish it several "
      "times, each with an id of its own"}].

status("to_too_long") -> 413;
status("too_many_subjects") -> 413;
status(_) -> 400.

both() ->
    "an event has one of subject, subjects and to: it is about one or about several, or for some "
    "users alone; publish two".

bad_keep() ->
    "bad keep: it is for an event about one subject, named by \"subject\"".

bad_subjects() ->
    "bad subjects: it is a list of 1 to 16 subjects, such as [\"ann\",\"room/7\"]".

bad_to() ->
    "bad to: it is a list of 1 to 1000 users, such as [\"bob\",\"eve\"]".

to(N) ->
    Users = [["\"u", integer_to_list(I), $"] || I <- lists:seq(1, N)],
    iolist_to_binary(["{\"to\":[", lists:join($,, Users), "],\"data\":1}"]).

several(N) ->
    binary:replace(to(N), <<"\"to\"">>, <<"\"subjects\"">>).

%% http.md 24.1.
joint_test() ->
    {ok, {{subjects, [<<"u1">> | _] = Subjects}, <<"1">>, #{}}} = Parsed =
        halley_api_event:parse(several(16)),
    ?assertEqual(16, length(Subjects)),
    ?assertEqual(16, halley_api_event:messages(Parsed)).

%% http.md 20.1.
private_test() ->
    ?assertEqual({ok, {{to, [<<"eve">>, <<"bob">>]}, <<"{}">>, #{id => <<"7">>, ack => memory}}},
                 halley_api_event:parse(<<"{\"data\":{},\"id\":\"7\",\"to\":[\"eve\",\"bob\"],"
                                          "\"ack\":\"memory\"}">>)),
    {ok, {{to, Users}, _, _}} = Parsed = halley_api_event:parse(to(1000)),
    ?assertEqual(1000, length(Users)),
    ?assertEqual(1000, halley_api_event:messages(Parsed)),
    ?assertEqual(1, halley_api_event:messages(halley_api_event:parse(
        <<"{\"subject\":\"s\",\"data\":1}">>))),
    ?assertEqual(1, halley_api_event:messages(halley_api_event:parse(<<"{">>))).

event(What) ->
    What ++ "; an event is {\"subject\":S,\"data\":any JSON,\"id\":optional,\"ack\":optional,"
        "\"keep\":optional}, one "
        "about several has \"subjects\":[subjects] in place of the subject, a private one "
        "\"to\":[users]".

failed(Text) ->
    {error, {Status, Code, Message}} = halley_api_event:parse(Text),
    {Status, Code, unicode:characters_to_list(Message)}.
