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
                 Roundtrip(halley_history_record:lost(?STORE, {3, -1}, {9, 12}))),
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
