%% bool: `true', `false'.
-module(epgsql_codec_boolean).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [bool].
names() -> [bool].

-spec encode(boolean(), bool, any()) -> binary().
encode(true, bool, _) -> <<1>>;
encode(false, bool, _) -> <<0>>.

-spec decode(binary(), bool, any()) -> boolean().
decode(<<1>>, bool, _) -> true;
decode(<<0>>, bool, _) -> false.
