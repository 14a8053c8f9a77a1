%% Codecs read the same values that they have written; bytes that they can't read are an error,
%% never a wrong value for ever or a crash of the machine.
-module(prop_epgsql_codecs).

-include("epgsql_proper.hrl").

-export([prop_numeric/0, prop_timestamps/0, prop_arrays/0, prop_damaged/0]).

codec() -> epgsql_binary:new_codec(epgsql_session:new(), #{}).

oid(Type) -> epgsql_binary:type_to_oid(Type, codec()).

reread(Type, Value) ->
    <<Size:32, Cell:Size/binary>> = iolist_to_binary(epgsql_binary:encode(Type, Value, codec())),
    epgsql_binary:decode(Cell, epgsql_binary:oid_to_decoder(oid(Type), binary, codec())).

digits(Max) -> ?LET(Digits, resize(Max, list(range($0, $9))), Digits).

%% As PostgreSQL shows it: no zeros before, a digit before the point.
prop_numeric() ->
    ?FORALL({Sign, First, Whole, Fraction},
            {oneof(["", "-"]), range($1, $9), digits(60), digits(60)},
            begin
                Text = list_to_binary([Sign, First, Whole, case Fraction of
                                                               "" -> "";
                                                               _ -> [$., Fraction]
                                                           end]),
                reread(numeric, Text) =:= Text
            end).

prop_timestamps() ->
    ?FORALL(Us, range(-210866803200000000, 9224318015999999999 - 2000000000000),
            begin
                Cell = <<Us:64>>,
                Value = epgsql_datetime:decode(timestamp, Cell),
                Cell =:= epgsql_datetime:encode(timestamp, Value)
            end).

prop_arrays() ->
    ?FORALL({Rows, Columns, Values},
            {range(1, 5), range(1, 5), vector(25, oneof([null, integer()]))},
            begin
                Array = [lists:sublist(Values, Row * Columns + 1, Columns)
                         || Row <- lists:seq(0, Rows - 1)],
                reread({array, int8}, Array) =:= Array
            end).

%% Any bytes for any type: a value or an error, soon.
prop_damaged() ->
    Oids = [Oid || {_, Its, Array} <- epgsql_oid_db:builtin(), Oid <- [Its, Array]] ++ [2249, 2287],
    Codec = codec(),
    ?FORALL({Oid, Bytes, Count}, {oneof(Oids), binary(), range(0, 8)},
            begin
                Decoder = epgsql_binary:oid_to_decoder(Oid, binary, Codec),
                Cell = <<Count:32, Bytes/binary>>,
                {Us, _} = timer:tc(fun() -> catch epgsql_binary:decode(Cell, Decoder) end),
                Us < 1000000
            end).
