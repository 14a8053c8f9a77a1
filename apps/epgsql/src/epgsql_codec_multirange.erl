%% Multiranges of PostgreSQL 14 and later, as lists of ranges, and numrange, whose elements are
%% those of `epgsql_codec_numeric'. The option `bounds' reads `{Lower, Upper, '[)'}'.
-module(epgsql_codec_multirange).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-type name() :: numrange | int4multirange | int8multirange | nummultirange | tsmultirange
              | tstzmultirange | datemultirange.

-spec init(bounds | any(), epgsql_sock:pg_sock()) -> epgsql_range:style().
init(bounds, _) -> bounds;
init(_, _) -> plain.

-spec names() -> [name()].
names() ->
    [numrange, int4multirange, int8multirange, nummultirange, tsmultirange, tstzmultirange,
     datemultirange].

-spec encode(epgsql_range:range() | [epgsql_range:range()], name(), epgsql_range:style()) ->
          iodata().
encode(Range, numrange, _) -> epgsql_range:encode(Range, writer(numrange));
encode(Ranges, Name, _) -> epgsql_range:encode_many(Ranges, writer(Name)).

-spec decode(binary(), name(), epgsql_range:style()) ->
          epgsql_range:range() | [epgsql_range:range()].
decode(Bin, numrange, Style) -> epgsql_range:decode(Bin, reader(numrange), Style);
decode(Bin, Name, Style) -> epgsql_range:decode_many(Bin, reader(Name), Style).

writer(Name) ->
    {Module, Element} = element_of(Name),
    fun(Value) -> Module:encode(Value, Element, []) end.

reader(Name) ->
    {Module, Element} = element_of(Name),
    fun(Bin) -> Module:decode(Bin, Element, []) end.

element_of(numrange) -> {epgsql_codec_numeric, numeric};
element_of(nummultirange) -> {epgsql_codec_numeric, numeric};
element_of(int4multirange) -> {epgsql_codec_integer, int4};
element_of(int8multirange) -> {epgsql_codec_integer, int8};
element_of(tsmultirange) -> {epgsql_codec_datetime, timestamp};
element_of(tstzmultirange) -> {epgsql_codec_datetime, timestamptz};
element_of(datemultirange) -> {epgsql_codec_datetime, date}.
