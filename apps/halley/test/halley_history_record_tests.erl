%% The codec of records: whatever a disk makes of the bytes.
-module(halley_history_record_tests).

-include_lib("eunit/include/eunit.hrl").

-define(STORE, 16#ABCD1234).

event() ->
    Draft = halley_event:draft(<<"i1">>, <<"alice">>, <<"[1]">>),
    (halley_event:event(Draft, <<>>, {3, 77}, 5))#{sessions := 9, chosen := true}.

bytes() ->
    {Record, Bytes} = halley_history_record:event(?STORE, 3, event()),
    Packed = iolist_to_binary(Record),
    ?assertEqual(Bytes, byte_size(Packed)),
    Packed.

what_is_packed_is_unpacked_test() ->
    Bytes = bytes(),
    {ok, Body, Size} = halley_history_record:decode(?STORE, <<Bytes/binary, "more">>),
    ?assertEqual(byte_size(Bytes), Size),
    Json = <<"{\"id\":\"i1\",\"subject\":\"alice\",\"at\":5,\"data\":[1]}">>,
    ?assertEqual({ok, #{kind => event, shard => 3, id => <<"i1">>, subject => <<"alice">>, at => 5,
                        seq => 77, json => Json, data_offset => byte_size(Json) - 4,
                        subject_offset => 22, subject_bytes => 5, sessions => 9,
                        chosen => true}}, halley_history_record:body(Body)).

%% Who published it stands behind the text, and is no part of that.
publisher_is_kept_test() ->
    By = binary:copy(<<"b">>, 255),
    Private = halley_event:private_event(halley_event:private(<<"i2">>, [<<"u">>, <<"v">>],
                                                              <<"{}">>), <<>>, {3, 9}, 5),
    Joint = halley_event:joint_event(halley_event:joint(<<"i3">>, [<<"u">>, <<"v">>], <<"{}">>),
                                     <<>>, {3, 9}, 5),
    [begin
         {Record, Bytes} = Pack(?STORE, 3, Event#{by => By}),
         {ok, Body, Bytes} = halley_history_record:decode(?STORE, iolist_to_binary(Record)),
         {Plain, _} = Pack(?STORE, 3, Event),
         {ok, PlainBody, _} = halley_history_record:decode(?STORE, iolist_to_binary(Plain)),
         {ok, Said} = halley_history_record:body(PlainBody),
         ?assertEqual({ok, Said#{by => By}}, halley_history_record:body(Body)),
         ?assertEqual(halley_history_record:item(PlainBody), halley_history_record:item(Body)),
         [?assertEqual(halley_history_record:about(About, Seq, PlainBody),
                       halley_history_record:about(About, Seq, Body))
          || About <- [<<"alice">>, {to, 3, <<"u">>}, {in, 3, <<"u">>}], Seq <- [8, 9, 77]],
         %% However long it claims to be.
         Cut = binary_part(Body, 0, 40),
         ?assertEqual(damaged, halley_history_record:body(<<Cut/binary, 255>>))
     end || {Pack, Event} <- [{fun halley_history_record:event/3, event()},
                              {fun halley_history_record:event/3, Joint},
                              {fun halley_history_record:private/3, Private}]].

other_kinds_test() ->
    Roundtrip = fun({Record, Bytes}) ->
        {ok, Body, Bytes} = halley_history_record:decode(?STORE, iolist_to_binary(Record)),
        {ok, Unpacked} = halley_history_record:body(Body),
        Unpacked
    end,
    ?assertMatch(#{kind := unfollow, subject := <<"u">>, id := <<"s">>, seq := 8, shard := 2},
                 Roundtrip(halley_history_record:unfollow(?STORE, 2, 8, 1, {<<"u">>, <<"s">>}))),
    Follow = #{kind => follow, subject => <<"u">>, id => <<"s">>, seq => 8, shard => 2, at => -1,
               from => 7},
    ?assertEqual(Follow, Roundtrip(halley_history_record:follow(?STORE, 2, 8, -1,
                                                                {<<"u">>, <<"s">>, 7}))),
    ?assertEqual(#{kind => lost, from => 3, from_at => -1, seq => 9, at => 12},
                 Roundtrip(halley_history_record:lost(?STORE, [{3, 9, -1, 12}]))),
    ?assertEqual(#{kind => place, seq => 9, at => 12},
                 Roundtrip(halley_history_record:place(?STORE, 9, 12))).

a_record_of_another_store_is_none_test() ->
    ?assertEqual(damaged, halley_history_record:decode(?STORE + 1, bytes())).

every_flipped_bit_is_noticed_test() ->
    Bytes = bytes(),
    [?assertNotMatch({ok, _, _}, halley_history_record:decode(?STORE, flip(Bytes, Bit)))
     || Bit <- lists:seq(0, bit_size(Bytes) - 1)].

flip(Bytes, Bit) ->
    <<Before:Bit/bits, One:1, After/bits>> = Bytes,
    <<Before/bits, (1 - One):1, After/bits>>.

a_record_that_is_cut_asks_for_more_test() ->
    Bytes = bytes(),
    [?assertMatch({more, N} when N > Length,
                  halley_history_record:decode(?STORE, binary_part(Bytes, 0, Length)))
     || Length <- lists:seq(0, byte_size(Bytes) - 1)].

a_length_beyond_any_record_is_not_believed_test() ->
    <<Magic:4/binary, _:32, Rest/binary>> = bytes(),
    ?assertEqual(damaged, halley_history_record:decode(?STORE, <<Magic/binary, -1:32,
                                                                 Rest/binary>>)).

resync_finds_the_next_record_test() ->
    Bytes = <<"junk", 0, 255, "junk", (bytes())/binary>>,
    ?assertEqual({ok, 10}, halley_history_record:resync(Bytes, 0)),
    ?assertMatch({none, _}, halley_history_record:resync(Bytes, 11)).

%% What a publisher sends can't look like a record: its bytes are UTF-8, the magic isn't.
no_text_has_the_magic_test() ->
    <<Magic:4/binary, _/binary>> = bytes(),
    ?assertMatch({error, _, _}, unicode:characters_to_list(Magic)).

any_bytes_test_() ->
    {timeout, 30, ?_assert(proper:quickcheck(prop_halley_history:prop_any_bytes(),
                                             [{numtests, 2000}, quiet]))}.

private(Users) ->
    Private = halley_event:private(<<"i1">>, Users, <<"[1]">>),
    Event = (halley_event:private_event(Private, <<>>, {3, 77}, 5))#{sessions := 9, chosen := true},
    {Record, Bytes} = halley_history_record:private(?STORE, 3, Event),
    {ok, Body, Bytes} = halley_history_record:decode(?STORE, iolist_to_binary(Record)),
    Body.

%% Each user has a seq of its own in it, the last of them the record's.
private_test() ->
    Body = private([<<"ann">>, <<"bob">>, <<"eve">>]),
    {ok, Record} = halley_history_record:body(Body),
    ?assertMatch(#{kind := private, shard := 3, seq := 77, first := 75, at := 5, id := <<"i1">>,
                   sessions := 9, chosen := true}, Record),
    ?assertNot(is_map_key(subject, Record)),
    ?assertEqual([<<"ann">>, <<"bob">>, <<"eve">>], map_get(users, Record)),
    ?assertEqual({ok, 5}, halley_history_record:about({to, 3, <<"ann">>}, 75, Body)),
    ?assertEqual({ok, 5}, halley_history_record:about({to, 3, <<"eve">>}, 77, Body)),
    [?assertEqual(other, halley_history_record:about(About, Seq, Body))
     || {About, Seq} <- [{{to, 3, <<"ann">>}, 76}, {{to, 3, <<"ann">>}, 77}, {<<"ann">>, 75},
                         {<<"eve">>, 77}, {{to, 3, <<"bobby">>}, 76}]],
    [?assertEqual(damaged, halley_history_record:about({to, 3, <<"ann">>}, Seq, Body))
     || Seq <- [74, 78]],
    ?assertMatch({3, 77, 5, _, _, _, <<"{\"id\":\"i1\",\"private\":true", _/binary>>},
                 halley_history_record:item(Body)).

%% history.md: what bounds the log's bytes bounds the index, which has 32 for each user.
private_bytes_test_() ->
    [?_assert(byte_size(private([integer_to_binary(U) || U <- lists:seq(1, N)])) >= 32 * N)
     || N <- [1, 2, 77]].

%% An event is nothing that is for a user alone, whatever its subject.
private_of_event_test() ->
    {Record, _} = halley_history_record:event(?STORE, 3, event()),
    {ok, Body, _} = halley_history_record:decode(?STORE, iolist_to_binary(Record)),
    ?assertEqual({ok, 5}, halley_history_record:about(<<"alice">>, 77, Body)),
    ?assertEqual(other, halley_history_record:about({to, 3, <<"alice">>}, 77, Body)).

%% Whatever a failing disk makes of a body.
private_cut_test() ->
    Body = private([<<"ann">>, <<"bob">>]),
    [begin
         Cut = binary_part(Body, 0, Bytes),
         Read = halley_history_record:body(Cut),
         ?assert(Read =:= damaged orelse element(1, Read) =:= ok),
         ?assert(lists:member(halley_history_record:about({to, 3, <<"bob">>}, 77, Cut),
                              [damaged, {ok, 5}]))
     end || Bytes <- lists:seq(0, byte_size(Body))].

private_property_test_() ->
    {timeout, 60, ?_assert(proper:quickcheck(prop_halley_private:prop_users(),
                                             [{numtests, 300}, {to_file, user}]))}.
