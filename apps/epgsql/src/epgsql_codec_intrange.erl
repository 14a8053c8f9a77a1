%% int4range, int8range: `epgsql_range' says what values they have. The option `bounds' reads
%% `{Lower, Upper, '[)'}'.
-module(epgsql_codec_intrange).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-type name() :: int4range | int8range.

-spec init(bounds | any(), epgsql_sock:pg_sock()) -> epgsql_range:style().
init(bounds, _) -> bounds;
init(_, _) -> plain.

-spec names() -> [name()].
names() -> [int4range, int8range].

-spec encode(epgsql_range:range(), name(), epgsql_range:style()) -> iodata().
encode(Range, Name, _) ->
    epgsql_range:encode(Range, fun(Value) ->
        epgsql_codec_integer:encode(Value, element_name(Name), [])
    end).

-spec decode(binary(), name(), epgsql_range:style()) -> epgsql_range:range().
decode(Bin, Name, Style) ->
    epgsql_range:decode(Bin, fun(Value) ->
        epgsql_codec_integer:decode(Value, element_name(Name), [])
    end, Style).

element_name(int4range) -> int4;
element_name(int8range) -> int8.
