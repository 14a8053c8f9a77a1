%% The codec of the queue's records: whatever a disk makes of the bytes.
-module(halley_hooks_entry_tests).

-include_lib("eunit/include/eunit.hrl").

vector(N) -> list_to_tuple(lists:seq(N, N + 7)).

entries() ->
    [{header, 7, 9, 1 bsl 40}, {told, [{user, <<"ann">>}, {subject, <<"room">>}]}, {told, []},
     {complete, vector(1), vector(2)}, {position, vector(3), vector(4)},
     {opened, 5, <<"ann">>}, {closed, -5, binary:copy(<<"x">>, 255)}, {occupied, 5, <<"s">>},
     {vacated, 5, <<"s">>}, {published, 1 bsl 47}, {undelivered, 3, true, [<<"a">>, <<"b">>]},
     {undelivered, 3, false, []}, {gap, too_old, 0, 5}, {gap, damaged, 0, 5}].

packed(Entry) -> iolist_to_binary(halley_hooks_entry:encode(Entry)).

what_is_packed_is_unpacked_test() ->
    [begin
         Bytes = packed(Entry),
         ?assertEqual({ok, Entry, byte_size(Bytes)},
                      halley_hooks_entry:decode(<<Bytes/binary, "more">>))
     end || Entry <- entries()].

every_flipped_bit_and_every_cut_is_noticed_test() ->
    [begin
         Bytes = packed(Entry),
         [begin
              <<Before:Bit/bits, One:1, After/bits>> = Bytes,
              ?assertNotMatch({ok, _, _},
                              halley_hooks_entry:decode(<<Before/bits, (1 - One):1, After/bits>>))
          end || Bit <- lists:seq(0, bit_size(Bytes) - 1)],
         [?assertEqual(more, halley_hooks_entry:decode(binary_part(Bytes, 0, N)))
          || N <- lists:seq(0, byte_size(Bytes) - 1)]
     end || Entry <- entries()].

%% With a good checksum, too.
bytes_that_say_nothing_are_no_record_test() ->
    [begin
         Body = rand:bytes(rand:uniform(60)),
         Bytes = <<16#FF484B51:32, (byte_size(Body)):32, (erlang:crc32(Body)):32, Body/binary>>,
         case halley_hooks_entry:decode(Bytes) of
             damaged -> ok;
             {ok, Entry, _} -> ?assertEqual(Body, binary_part(packed(Entry), 12, byte_size(Body)))
         end
     end || _ <- lists:seq(1, 20000)].

the_next_record_is_found_test() ->
    Record = packed({opened, 5, <<"ann">>}),
    ?assertEqual({ok, 9}, halley_hooks_entry:resync(<<"xx", 16#FF, "HK xxx", Record/binary>>, 0)),
    ?assertEqual(none, halley_hooks_entry:resync(Record, 1)),
    ?assertEqual(none, halley_hooks_entry:resync(Record, 1000)).
