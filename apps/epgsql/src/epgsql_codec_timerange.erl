%% tsrange, tstzrange, daterange: `epgsql_range' says what values they have. The option `bounds'
%% reads `{Lower, Upper, '[)'}'.
-module(epgsql_codec_timerange).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-type name() :: tsrange | tstzrange | daterange.

-spec init(bounds | any(), epgsql_sock:pg_sock()) -> epgsql_range:style().
init(bounds, _) -> bounds;
init(_, _) -> plain.

-spec names() -> [name()].
names() -> [tsrange, tstzrange, daterange].

-spec encode(epgsql_range:range(), name(), epgsql_range:style()) -> iodata().
encode(Range, Name, _) ->
    epgsql_range:encode(Range, fun(Value) -> epgsql_datetime:encode(element_name(Name), Value) end).

-spec decode(binary(), name(), epgsql_range:style()) -> epgsql_range:range().
decode(Bin, Name, Style) ->
    epgsql_range:decode(Bin, fun(Value) -> epgsql_datetime:decode(element_name(Name), Value) end,
                        Style).

element_name(tsrange) -> timestamp;
element_name(tstzrange) -> timestamptz;
element_name(daterange) -> date.
