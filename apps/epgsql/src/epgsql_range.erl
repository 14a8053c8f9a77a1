%% Ranges and multiranges of any element: `rangetypes.c' and `multirangetypes.c' have their format.
%%
%% Pure. `empty', `{Lower, Upper}' or `{Lower, Upper, Bounds}', where a side without an end is
%% `minus_infinity' or `plus_infinity'. `{Lower, Upper}' is written as '[)'. Read ranges have their
%% bounds only with the option `bounds', since epgsql 4.8's never do.
-module(epgsql_range).

-export([encode/2, decode/3, encode_many/2, decode_many/3]).

-export_type([range/0, style/0]).

-type range() :: empty | {Lower :: any(), Upper :: any()}
               | {Lower :: any(), Upper :: any(), Bounds :: '[]' | '[)' | '(]' | '()'}.
-type style() :: plain | bounds.
-type writer() :: fun((any()) -> iodata()).
-type reader() :: fun((binary()) -> any()).

-define(EMPTY, 16#01).
-define(LOWER_INCLUSIVE, 16#02).
-define(UPPER_INCLUSIVE, 16#04).
-define(LOWER_INFINITE, 16#08).
-define(UPPER_INFINITE, 16#10).

-spec encode(range(), writer()) -> iodata().
encode(empty, _) -> <<?EMPTY>>;
encode({Lower, Upper}, Writer) -> encode({Lower, Upper, '[)'}, Writer);
encode({Lower, Upper, Bounds}, Writer) ->
    {LowerFlag, UpperFlag} = flags(Bounds),
    {A, LowerBytes} = bound(Lower, minus_infinity, ?LOWER_INFINITE, LowerFlag, Writer),
    {B, UpperBytes} = bound(Upper, plus_infinity, ?UPPER_INFINITE, UpperFlag, Writer),
    [A bor B, LowerBytes, UpperBytes].

bound(Infinity, Infinity, Infinite, _, _) -> {Infinite, []};
bound(Value, _, _, Flag, Writer) -> {Flag, sized(Writer(Value))}.

flags('[]') -> {?LOWER_INCLUSIVE, ?UPPER_INCLUSIVE};
flags('[)') -> {?LOWER_INCLUSIVE, 0};
flags('(]') -> {0, ?UPPER_INCLUSIVE};
flags('()') -> {0, 0}.

-spec decode(binary(), reader(), style()) -> range().
decode(<<Flags, _/binary>>, _, _) when Flags band ?EMPTY =/= 0 -> empty;
decode(<<Flags, Bin/binary>>, Reader, Style) ->
    {Lower, Rest} = read(Flags band ?LOWER_INFINITE, minus_infinity, Bin, Reader),
    {Upper, <<>>} = read(Flags band ?UPPER_INFINITE, plus_infinity, Rest, Reader),
    case Style of
        plain -> {Lower, Upper};
        bounds -> {Lower, Upper, name(Flags band ?LOWER_INCLUSIVE, Flags band ?UPPER_INCLUSIVE)}
    end.

read(0, _, <<Size:32, Value:Size/binary, Rest/binary>>, Reader) -> {Reader(Value), Rest};
read(Infinite, Infinity, Bin, _) when Infinite =/= 0 -> {Infinity, Bin}.

name(0, 0) -> '()';
name(0, _) -> '(]';
name(_, 0) -> '[)';
name(_, _) -> '[]'.

-spec encode_many([range()], writer()) -> iodata().
encode_many(Ranges, Writer) ->
    [<<(length(Ranges)):32>> | [sized(encode(Range, Writer)) || Range <- Ranges]].

-spec decode_many(binary(), reader(), style()) -> [range()].
decode_many(<<Count:32, Bin/binary>>, Reader, Style) -> many(Count, Bin, Reader, Style).

many(0, <<>>, _, _) -> [];
many(Count, <<Size:32, Range:Size/binary, Rest/binary>>, Reader, Style) ->
    [decode(Range, Reader, Style) | many(Count - 1, Rest, Reader, Style)].

sized(Bytes) -> [<<(iolist_size(Bytes)):32>> | Bytes].
