%% The calls by which commands, those of applications too, send and read messages, under the names
%% of epgsql 4.8: `epgsql_frontend' and `epgsql_backend', with types and codecs put in.
%%
%% Pure, but for what codecs do.
-module(epgsql_wire).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([decode_message/1, decode_error/1, decode_strings/1, decode_complete/1, decode_columns/3,
         decode_parameters/2, build_decoder/2, decode_data/2, decode_rows/3,
         encode_types/2, encode_formats/1, format/2, encode_parameters/2,
         build_parameters_encoder/2, encode_parameters_with_encoder/3,
         build_run/4, encode_run/2,
         build_copy_row_encoder/2, encode_copy_header/0, encode_copy_row_with_encoder/3,
         encode_copy_trailer/0, encode_standby_status_update/3,
         encode_command/1, encode_command/2, encode_query/1, encode_parse/3, encode_describe/2,
         encode_bind/4, encode_execute/2, encode_close/2, encode_flush/0, encode_sync/0,
         encode_copy_done/0]).

-export_type([packet_type/0, row_decoder/0, parameters_encoder/0, copy_row_encoder/0, run/0]).

-type packet_type() :: byte().
-opaque row_decoder() :: {[epgsql_binary:decoder()], Null :: any()}.
-opaque parameters_encoder() :: [epgsql_binary:encoder() | text].
%% Bind, Execute and Sync of one statement, but for the values: see `build_run/4'.
-opaque run() :: {Length :: pos_integer(), Head :: binary(), Tail :: binary(),
                  parameters_encoder(), Nulls :: [any()]}.
-opaque copy_row_encoder() :: {[epgsql_binary:encoder()], non_neg_integer()}.

%% --- reading ------------------------------------------------------------------------------------

-spec decode_message(binary()) -> {packet_type(), binary(), binary()} | binary().
decode_message(Bin) ->
    case epgsql_backend:message(Bin) of
        more -> Bin;
        Message -> Message
    end.

-spec decode_error(binary()) -> epgsql:query_error().
decode_error(Payload) -> epgsql_backend:error(Payload).

-spec decode_strings(binary()) -> [binary()].
decode_strings(Payload) -> epgsql_backend:strings(Payload).

-spec decode_complete(binary()) -> epgsql_backend:complete().
decode_complete(Payload) -> epgsql_backend:complete(Payload).

%% RowDescription, behind its count.
-spec decode_columns(non_neg_integer(), binary(), epgsql_binary:codec()) -> [epgsql:column()].
decode_columns(Count, Bin, Codec) ->
    [#column{name = Name, type = epgsql_binary:oid_to_name(Oid, Codec), oid = Oid, size = Size,
             modifier = Modifier, format = Format, table_oid = Table,
             table_attr_number = Attribute}
     || {Name, Table, Attribute, Oid, Size, Modifier, Format}
            <- epgsql_backend:columns(<<Count:16, Bin/binary>>)].

-spec decode_parameters(binary(), epgsql_binary:codec()) ->
          [epgsql_oid_db:type_info() | {unknown_oid, epgsql_oid_db:oid()}].
decode_parameters(Payload, Codec) ->
    [case epgsql_binary:oid_to_info(Oid, Codec) of
         undefined -> {unknown_oid, Oid};
         Type -> Type
     end || Oid <- epgsql_backend:parameters(Payload)].

-spec build_decoder([epgsql:column()], epgsql_binary:codec()) -> row_decoder().
build_decoder(Columns, Codec) ->
    {[epgsql_binary:oid_to_decoder(Oid, format_name(Format), Codec)
      || #column{oid = Oid, format = Format} <- Columns],
     epgsql_binary:null(Codec)}.

format_name(0) -> text;
format_name(1) -> binary.

%% DataRow, behind its count. What a codec can't read is no value of its type.
-spec decode_data(binary(), row_decoder()) -> tuple().
decode_data(Cells, {Decoders, Null}) ->
    try list_to_tuple(row(Cells, Decoders, Null))
    catch
        error:{malformed, _} = Reason -> error(Reason);
        error:_ -> error({malformed, data_row})
    end.

row(<<>>, [], _) -> [];
row(<<8:32, Value:64/signed, Rest/binary>>, [int8 | Decoders], Null) ->
    [Value | row(Rest, Decoders, Null)];
row(<<4:32, Value:32/signed, Rest/binary>>, [int4 | Decoders], Null) ->
    [Value | row(Rest, Decoders, Null)];
row(<<-1:?int32, Rest/binary>>, [_ | Decoders], Null) ->
    [Null | row(Rest, Decoders, Null)];
row(<<Size:32, Cell:Size/binary, Rest/binary>>, [Decoder | Decoders], Null) ->
    [epgsql_binary:decode(Cell, Decoder) | row(Rest, Decoders, Null)].

%% All DataRows that these bytes begin with, last first and before `Acc', and what is behind them.
-spec decode_rows(binary(), row_decoder(), [tuple()]) -> {[tuple()], binary()}.
decode_rows(Bytes, Decoder, Acc) ->
    try rows(Bytes, Decoder, Acc)
    catch
        error:{malformed, _} = Reason -> error(Reason);
        error:_ -> error({malformed, data_row})
    end.

rows(<<?DATA_ROW, Length:32, _Count:16, Rest/binary>> = Bytes, {Decoders, Null} = Decoder, Acc)
  when Length >= 6 ->
    Size = Length - 6,
    case Rest of
        <<Cells:Size/binary, After/binary>> ->
            rows(After, Decoder, [list_to_tuple(row(Cells, Decoders, Null)) | Acc]);
        _ -> {Acc, Bytes}
    end;
rows(Bytes, _, Acc) ->
    {Acc, Bytes}.

%% --- parameters ---------------------------------------------------------------------------------

%% For Parse. `undefined': the server finds out.
-spec encode_types([epgsql:epgsql_type() | undefined], epgsql_binary:codec()) -> iodata().
encode_types(Types, Codec) ->
    [<<(length(Types)):16>> | [<<(type_oid(Type, Codec)):32>> || Type <- Types]].

type_oid(undefined, _) -> 0;
type_oid({unknown_oid, Oid}, _) -> Oid;
type_oid(Type, Codec) -> epgsql_binary:type_to_oid(Type, Codec).

-spec encode_formats([epgsql:column()]) -> iodata().
encode_formats(Columns) ->
    [<<(length(Columns)):16>> | [<<Format:16>> || #column{format = Format} <- Columns]].

%% The format that a column is asked for in.
-spec format(epgsql:column(), epgsql_binary:codec()) -> 0 | 1.
format(#column{oid = Oid}, Codec) ->
    case epgsql_binary:supports(Oid, Codec) of
        true -> 1;
        false -> 0
    end.

-spec encode_parameters([{epgsql:epgsql_type(), any()}], epgsql_binary:codec()) -> iodata().
encode_parameters(Typed, Codec) ->
    {Types, Values} = lists:unzip(Typed),
    encode_parameters_with_encoder(Values, build_parameters_encoder(Types, Codec), Codec).

-spec build_parameters_encoder([epgsql:epgsql_type()], epgsql_binary:codec()) ->
          parameters_encoder().
build_parameters_encoder(Types, Codec) ->
    [case Type of
         {unknown_oid, _} -> text;
         _ -> epgsql_binary:type_to_encoder(Type, Codec)
     end || Type <- Types].

-spec encode_parameters_with_encoder([any()], parameters_encoder(), epgsql_binary:codec()) ->
          iodata().
encode_parameters_with_encoder(Values, Encoders, Codec) ->
    Count = length(Encoders),
    Nulls = epgsql_binary:nulls(Codec),
    [<<Count:16>>, [parameter_format(Encoder) || Encoder <- Encoders], <<Count:16>>
     | parameters(Values, Encoders, Nulls)].

%% A statement's Bind, Execute and Sync, as one write: all that doesn't depend on the values.
-spec build_run(Statement :: binary(), parameters_encoder(), Formats :: binary(),
                epgsql_binary:codec()) -> run().
build_run(Statement, Encoders, Formats, Codec) ->
    Count = length(Encoders),
    Head = iolist_to_binary([0, Statement, 0, <<Count:16>>,
                             [parameter_format(Encoder) || Encoder <- Encoders], <<Count:16>>]),
    Tail = iolist_to_binary([Formats, epgsql_frontend:encode([encode_execute("", 0),
                                                              encode_sync()])]),
    {4 + byte_size(Head) + byte_size(Formats), Head, Tail, Encoders, epgsql_binary:nulls(Codec)}.

-spec encode_run([any()], run()) -> iodata().
encode_run(Values, {Length, Head, Tail, Encoders, Nulls}) ->
    Cells = parameters(Values, Encoders, Nulls),
    [<<?BIND, (Length + iolist_size(Cells)):32, Head/binary>>, Cells | Tail].

parameters([Value | Values], [Encoder | Encoders], Nulls) ->
    [parameter(Value, Encoder, Nulls) | parameters(Values, Encoders, Nulls)];
parameters([], [], _) -> [].

parameter_format(text) -> <<0:16>>;
parameter_format(_) -> <<1:16>>.

parameter(Value, Encoder, Nulls) ->
    case lists:member(Value, Nulls) of
        true -> <<-1:32>>;
        false when Encoder =:= text ->
            Text = text(Value),
            [<<(byte_size(Text)):32>> | Text];
        false -> epgsql_binary:encode(Value, Encoder)
    end.

%% Types without a codec are given as text.
text(Value) when is_binary(Value) -> Value;
text(Value) when is_atom(Value) -> atom_to_binary(Value);
text(Value) when is_integer(Value) -> integer_to_binary(Value);
text(Value) when is_float(Value) -> float_to_binary(Value);
text(Value) when is_list(Value) ->
    try iolist_to_binary(Value)
    catch error:badarg -> <<_/binary>> = unicode:characters_to_binary(Value)
    end.

%% --- COPY in the binary format, replication -----------------------------------------------------

-spec build_copy_row_encoder([epgsql:epgsql_type()], epgsql_binary:codec()) -> copy_row_encoder().
build_copy_row_encoder(Types, Codec) ->
    {[epgsql_binary:type_to_encoder(Type, Codec) || Type <- Types], length(Types)}.

%% "Signature", no flags, no extension of the header.
-spec encode_copy_header() -> binary().
encode_copy_header() -> <<"PGCOPY\n", 16#ff, "\r\n", 0, 0:32, 0:32>>.

-spec encode_copy_row_with_encoder(tuple() | [any()], copy_row_encoder(), epgsql_binary:codec()) ->
          iodata().
encode_copy_row_with_encoder(Row, Encoder, Codec) when is_tuple(Row) ->
    encode_copy_row_with_encoder(tuple_to_list(Row), Encoder, Codec);
encode_copy_row_with_encoder(Row, {Encoders, Count}, Codec) ->
    [<<Count:16>> | parameters(Row, Encoders, epgsql_binary:nulls(Codec))].

-spec encode_copy_trailer() -> binary().
encode_copy_trailer() -> <<-1:16>>.

-spec encode_standby_status_update(integer(), integer(), integer()) -> binary().
encode_standby_status_update(Received, Flushed, Applied) ->
    %% Microseconds since 2000.
    Time = os:system_time(microsecond) - 946684800000000,
    <<?STANDBY_STATUS_UPDATE, Received:64, Flushed:64, Applied:64, Time:64, 0>>.

%% --- messages -----------------------------------------------------------------------------------

%% Without a type: the first ones of a connection.
-spec encode_command(iodata()) -> iodata().
encode_command(Payload) -> [<<(iolist_size(Payload) + 4):32>> | Payload].

-spec encode_command(packet_type(), iodata()) -> iodata().
encode_command(Type, Payload) -> epgsql_frontend:encode({Type, Payload}).

-spec encode_query(iodata()) -> epgsql_frontend:message().
encode_query(Sql) -> epgsql_frontend:query(Sql).

-spec encode_parse(iodata(), iodata(), iodata()) -> epgsql_frontend:message().
encode_parse(Name, Sql, Types) -> epgsql_frontend:parse(Name, Sql, Types).

-spec encode_describe(byte() | epgsql_frontend:object(), iodata()) -> epgsql_frontend:message().
encode_describe(Object, Name) -> epgsql_frontend:describe(object(Object), Name).

-spec encode_bind(iodata(), iodata(), iodata(), iodata()) -> epgsql_frontend:message().
encode_bind(Portal, Statement, Parameters, Formats) ->
    epgsql_frontend:bind(Portal, Statement, Parameters, Formats).

-spec encode_execute(iodata(), non_neg_integer()) -> epgsql_frontend:message().
encode_execute(Portal, RowsMax) -> epgsql_frontend:execute(Portal, RowsMax).

-spec encode_close(byte() | epgsql_frontend:object(), iodata()) -> epgsql_frontend:message().
encode_close(Object, Name) -> epgsql_frontend:close(object(Object), Name).

-spec encode_flush() -> epgsql_frontend:message().
encode_flush() -> epgsql_frontend:plain(flush).

-spec encode_sync() -> epgsql_frontend:message().
encode_sync() -> epgsql_frontend:plain(sync).

-spec encode_copy_done() -> epgsql_frontend:message().
encode_copy_done() -> epgsql_frontend:plain(copy_done).

object(?PREPARED_STATEMENT) -> statement;
object(?PORTAL) -> portal;
object(Object) -> Object.
