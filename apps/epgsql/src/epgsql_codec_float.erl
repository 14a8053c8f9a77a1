%% float4, float8: floats, `nan', `plus_infinity', `minus_infinity', which Erlang's floats lack.
-module(epgsql_codec_float).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([data/0]).

-type data() :: float() | nan | plus_infinity | minus_infinity.
-type name() :: float4 | float8.

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [name()].
names() -> [float4, float8].

-spec encode(number() | data(), name(), any()) -> binary().
encode(Number, float8, _) when is_number(Number) -> <<Number:64/float>>;
encode(Number, float4, _) when is_number(Number) ->
    %% Outside of float4's range no float comes out of the bits.
    case <<Number:32/float>> of
        <<_:32/float>> = Bits -> Bits;
        _ -> error({float_overflow, float4, Number})
    end;
encode(nan, float4, _) -> <<0:1, 255:8, 1:1, 0:22>>;
encode(nan, float8, _) -> <<0:1, 2047:11, 1:1, 0:51>>;
encode(plus_infinity, float4, _) -> <<0:1, 255:8, 0:23>>;
encode(plus_infinity, float8, _) -> <<0:1, 2047:11, 0:52>>;
encode(minus_infinity, float4, _) -> <<1:1, 255:8, 0:23>>;
encode(minus_infinity, float8, _) -> <<1:1, 2047:11, 0:52>>.

-spec decode(binary(), name(), any()) -> data().
decode(<<Number:64/float>>, float8, _) -> Number;
decode(<<Number:32/float>>, float4, _) -> Number;
decode(<<0:1, 255:8, 0:23>>, float4, _) -> plus_infinity;
decode(<<1:1, 255:8, 0:23>>, float4, _) -> minus_infinity;
decode(<<_:1, 255:8, _:23>>, float4, _) -> nan;
decode(<<0:1, 2047:11, 0:52>>, float8, _) -> plus_infinity;
decode(<<1:1, 2047:11, 0:52>>, float8, _) -> minus_infinity;
decode(<<_:1, 2047:11, _:52>>, float8, _) -> nan.
