%% The codec of moves on disk: whatever a disk makes of the bytes.
-module(halley_hooks_moves_entry_tests).

-include_lib("eunit/include/eunit.hrl").

-define(STAMP, {7, 1 bsl 40, 1 bsl 41}).
-define(EARLIER, {0, 5, -5}).

entries() ->
    [{header, 9, ?STAMP}, {there, []}, {there, [<<"ann">>, binary:copy(<<"x">>, 255)]},
     {whole, ?STAMP}, {moves, ?STAMP, []},
     {moves, ?STAMP, [{1 bsl 40, 7, <<"ann">>, left}, {-1, 0, <<"bob">>, came},
                      {0, 1 bsl 47, <<"b">>, synced},
                      {5, 6, <<"eve">>, {caught, {1, 2, 3, 4, 5, 6, 7, 1 bsl 47}}},
                      {6, 6, <<"eve">>, left}]},
     {began, ?EARLIER, ?STAMP, 9}, {doubt, ?EARLIER, ?STAMP}, {lost, ?STAMP, -7}].

packed(Entry) -> iolist_to_binary(halley_hooks_moves_entry:encode(Entry)).

what_is_packed_is_unpacked_test() ->
    [begin
         Bytes = packed(Entry),
         ?assertEqual({ok, Entry, byte_size(Bytes)},
                      halley_hooks_moves_entry:decode(<<Bytes/binary, "more">>))
     end || Entry <- entries()].

every_flipped_bit_and_every_cut_is_noticed_test() ->
    [begin
         Bytes = packed(Entry),
         [begin
              <<Before:Bit/bits, One:1, After/bits>> = Bytes,
              Flipped = <<Before/bits, (1 - One):1, After/bits>>,
              ?assertNotMatch({ok, _, _}, halley_hooks_moves_entry:decode(Flipped))
          end || Bit <- lists:seq(0, bit_size(Bytes) - 1)],
         [?assertEqual(more, halley_hooks_moves_entry:decode(binary_part(Bytes, 0, N)))
          || N <- lists:seq(0, byte_size(Bytes) - 1)]
     end || Entry <- entries()].

%% With a good checksum, too.
any_body_gives_an_answer_test() ->
    [begin
         Body = <<(20 + rand:uniform(6)), (rand:bytes(rand:uniform(60)))/binary>>,
         case halley_hooks_moves_entry:decode(iolist_to_binary(halley_hooks_entry:framed(Body))) of
             damaged -> ok;
             {ok, Entry, Bytes} -> ?assertEqual(Bytes, byte_size(packed(Entry)))
         end
     end || _ <- lists:seq(1, 20000)].

%% A record of the queue is none of these, and the other way round.
the_queue_has_others_test() ->
    Position = iolist_to_binary(halley_hooks_entry:encode({published, 5})),
    ?assertEqual(damaged, halley_hooks_moves_entry:decode(Position)),
    [?assertEqual(damaged, halley_hooks_entry:decode(packed(Entry))) || Entry <- entries()].
