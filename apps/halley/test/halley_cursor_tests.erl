%% Cursors: what travels to clients and comes back from anyone.
-module(halley_cursor_tests).

-include_lib("eunit/include/eunit.hrl").

vector(Seq) ->
    erlang:make_tuple(halley_shards:count(), Seq).

token() ->
    halley_cursor:encode(16#C0FFEE, 1700000000, {5000, 4999, 4000, 5000, 300, 5000, 5000, 5000}).

round_trip_test() ->
    ?assertEqual({ok, #{store => 16#C0FFEE, at => 1700000000,
                        vector => {5000, 4999, 4000, 5000, 300, 5000, 5000, 5000}}},
                 halley_cursor:decode(token())).

%% Clients keep tokens over our upgrades: the layout stays.
token_is_what_it_was_test() ->
    ?assertEqual(<<"AQDA_-5lU_EAAAAAABOIFgHoB9wk">>, token()).

%% link.md 10.9: the edge makes and reads the same, from the same file.
tokens_of_the_link_test() ->
    {ok, Text} = file:read_file(filename:join(protocol(), "cursors.json")),
    #{<<"cursors">> := Cursors} = jiffy:decode(Text, [return_maps]),
    ?assert(length(Cursors) >= 6),
    [?assertEqual({Token, {ok, #{store => Store, at => Seconds, vector => Vector}}},
                  {halley_cursor:encode(Store, Seconds, Vector), halley_cursor:decode(Token)})
     || #{<<"store">> := Store, <<"seconds">> := Seconds, <<"vector">> := Seqs,
          <<"token">> := Token} <- Cursors,
        Vector <- [list_to_tuple(Seqs)]].

protocol() ->
    Here = proplists:get_value(source, ?MODULE:module_info(compile)),
    filename:join(filename:dirname(Here), "../../../protocol").

vector_has_one_seq_for_each_shard_test() ->
    ?assertMatch({ok, _}, halley_cursor:decode(halley_cursor:encode(1, 1, vector(7)))).

%% link.md 7.2
alphabet_and_length_test() ->
    Longest = halley_cursor:encode(16#FFFFFFFF, 16#FFFFFFFF,
                                   setelement(8, vector(0), 16#FFFFFFFFFFFF)),
    ?assertMatch({match, _}, re:run(Longest, "^[A-Za-z0-9_-]{1,255}$")),
    ?assert(byte_size(Longest) =< 92).

%% Shards that mark four times a second are at most some thousand events apart.
typical_length_test() ->
    Vector = {1000000000, 999999000, 999998000, 1000000000, 999997500, 999999999, 999990000,
              999984000},
    ?assert(byte_size(halley_cursor:encode(1, 1700000000, Vector)) =< 48).

hostile_input_test_() ->
    Token = token(),
    <<_, Tail/binary>> = Token,
    [?_assertEqual(error, halley_cursor:decode(Bad))
     || Bad <- [<<>>, <<"-">>, <<"A">>, <<"AAAA">>, Tail, <<Token/binary, "AAAA">>,
                <<"B", Tail/binary>>, <<"%", Tail/binary>>, <<Token/binary, Token/binary>>,
                binary:part(Token, 0, byte_size(Token) - 4), binary:copy(<<"A">>, 256),
                binary:copy(<<"_">>, 252), <<255, 254, 253, 252>>,
                %% A delta larger than the seq that it is taken from.
                base64url(<<1, 1:32, 1:32, 5:48, 1, 6, 0, 0>>),
                %% A delta of nothing, one in more bytes than it needs, and one without an end.
                base64url(<<1, 1:32, 1:32, 5:48, 1, 0, 0, 0>>),
                base64url(<<1, 1:32, 1:32, 5:48, 1, 16#81, 0, 0>>),
                base64url(<<1, 1:32, 1:32, 5:48, 1, 16#FFFFFFFFFFFFFFFF:64>>),
                %% Padding that isn't zero.
                base64url(<<1, 1:32, 1:32, 5:48, 1, 2, 3>>)]].

base64url(Bytes) ->
    Padded = <<Bytes/binary, 0:((3 - byte_size(Bytes) rem 3) rem 3 * 8)>>,
    << <<(case C of $+ -> $-; $/ -> $_; _ -> C end)>> || <<C>> <= base64:encode(Padded) >>.

properties_test_() ->
    [{timeout, 60, ?_assert(proper:quickcheck(prop_halley_cursor:Property(),
                                              [{numtests, 500}, {to_file, user}, quiet]))}
     || Property <- [prop_round_trip, prop_noise_is_no_cursor,
                     prop_changed_token_is_another_vector]].
