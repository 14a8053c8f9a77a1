%% int2, int4, int8: integers. Lists and binaries of digits are written too. A value that doesn't
%% fit is `error({integer_overflow, Type, Value})', never cut off.
-module(epgsql_codec_integer).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-type name() :: int2 | int4 | int8.

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [name()].
names() -> [int2, int4, int8].

-spec encode(integer() | string() | binary(), name(), any()) -> binary().
encode(Digits, Name, State) when is_list(Digits) ->
    encode(list_to_integer(Digits), Name, State);
encode(Digits, Name, State) when is_binary(Digits) ->
    encode(binary_to_integer(Digits), Name, State);
encode(Value, int4, _) when Value >= -(1 bsl 31), Value < 1 bsl 31 -> <<Value:32>>;
encode(Value, int8, _) when Value >= -(1 bsl 63), Value < 1 bsl 63 -> <<Value:64>>;
encode(Value, int2, _) when Value >= -(1 bsl 15), Value < 1 bsl 15 -> <<Value:16>>;
encode(Value, Name, _) when is_integer(Value) -> error({integer_overflow, Name, Value}).

-spec decode(binary(), name(), any()) -> integer().
decode(<<Value:32/signed>>, int4, _) -> Value;
decode(<<Value:64/signed>>, int8, _) -> Value;
decode(<<Value:16/signed>>, int2, _) -> Value.
