%% char(n) and "char": one byte as a character, anything else as a binary.
-module(epgsql_codec_bpchar).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [bpchar | char].
names() -> [bpchar, char].

-spec encode(char() | iodata(), bpchar | char, any()) -> iodata().
encode(Char, _, _) when is_integer(Char), Char >= 0, Char =< 255 -> <<Char>>;
encode(Char, bpchar, _) when is_integer(Char) -> <<Char/utf8>>;
encode(Text, Name, _) when is_binary(Text); is_list(Text) -> epgsql_codec_text:bytes(Text, Name).

-spec decode(binary(), bpchar | char, any()) -> byte() | binary().
decode(<<Char>>, _, _) -> Char;
decode(Text, _, _) -> Text.
