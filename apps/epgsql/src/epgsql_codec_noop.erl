%% The value is the bytes: for codecs of types whose text is all that an application wants.
-module(epgsql_codec_noop).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3, decode_text/3]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [].
names() -> [].

-spec encode(binary(), epgsql:type_name(), any()) -> binary().
encode(Bytes, _, _) when is_binary(Bytes) -> Bytes.

-spec decode(binary(), epgsql:type_name(), any()) -> binary().
decode(Bytes, _, _) -> Bytes.

-spec decode_text(binary(), epgsql:type_name(), any()) -> binary().
decode_text(Bytes, _, _) -> Bytes.
