%% Tokens and vectors are one to one, and decoding takes anything.
-module(prop_halley_cursor).

-export([prop_round_trip/0, prop_noise_is_no_cursor/0, prop_changed_token_is_another_vector/0]).

-import(proper_types, [binary/0, oneof/1, range/2, vector/2]).

-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).

seq() ->
    oneof([range(0, 200), range(1 bsl 30, (1 bsl 30) + 20000), range(0, 16#FFFFFFFFFFFF)]).

u32() ->
    range(0, 16#FFFFFFFF).

prop_round_trip() ->
    ?FORALL({Store, Seconds, Seqs}, {u32(), u32(), vector(8, seq())},
            begin
                Vector = list_to_tuple(Seqs),
                {ok, #{store => Store, at => Seconds, vector => Vector}}
                    =:= halley_cursor:decode(halley_cursor:encode(Store, Seconds, Vector))
            end).

prop_noise_is_no_cursor() ->
    ?FORALL(Noise, oneof([binary(), text()]),
            case halley_cursor:decode(Noise) of
                error -> true;
                {ok, Cursor} -> encode(Cursor) =:= Noise
            end).

text() ->
    proper_types:bind(proper_types:list(oneof([range($a, $z), range($0, $9), $-, $_])),
                      fun(Chars) -> list_to_binary(["AQ" | Chars]) end, false).

%% No two tokens mean the same.
prop_changed_token_is_another_vector() ->
    ?FORALL({Seqs, At, By}, {vector(8, seq()), range(0, 1000), range(1, 255)},
            begin
                Token = halley_cursor:encode(1, 2, list_to_tuple(Seqs)),
                Place = At rem byte_size(Token),
                <<Before:Place/binary, Byte, After/binary>> = Token,
                case halley_cursor:decode(<<Before/binary, (Byte bxor By), After/binary>>) of
                    error -> true;
                    {ok, Cursor} -> Cursor =/= #{store => 1, at => 2,
                                                 vector => list_to_tuple(Seqs)}
                end
            end).

encode(#{store := Store, at := Seconds, vector := Vector}) ->
    halley_cursor:encode(Store, Seconds, Vector).
