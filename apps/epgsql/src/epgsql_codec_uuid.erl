%% uuid: `<<"550e8400-e29b-41d4-a716-446655440000">>'. Written with or without hyphens.
-module(epgsql_codec_uuid).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [uuid].
names() -> [uuid].

-spec encode(iodata(), uuid, any()) -> binary().
encode(Text, uuid, _) ->
    case << <<Digit>> || <<Digit>> <= iolist_to_binary(Text), Digit =/= $- >> of
        Digits when byte_size(Digits) =:= 32 -> binary:decode_hex(Digits);
        _ -> error({not_uuid, Text})
    end.

-spec decode(binary(), uuid, any()) -> binary().
decode(<<Uuid:16/binary>>, uuid, _) ->
    <<A:8/binary, B:4/binary, C:4/binary, D:4/binary, E:12/binary>> =
        << <<(hex(Digit))>> || <<Digit:4>> <= Uuid >>,
    <<A/binary, $-, B/binary, $-, C/binary, $-, D/binary, $-, E/binary>>.

hex(Digit) when Digit < 10 -> $0 + Digit;
hex(Digit) -> $a + Digit - 10.
