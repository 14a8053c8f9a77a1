%% The server's messages as terms: PostgreSQL's documentation, "Message Formats".
%%
%% Pure. Bytes that the protocol doesn't allow give `error({malformed, What})', whatever they are,
%% and nothing else; so a connection can name the message that it gave up at. Lengths are looked at
%% before anything is built of them. Values of cells are bytes here; `epgsql_binary' reads them.
-module(epgsql_backend).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([message/1, authentication/1, key_data/1, parameter_status/1, notification/1, error/1,
         ready/1, complete/1, columns/1, parameters/1, cells/1, copy_response/1, copy_data/1,
         strings/1]).

-export_type([message/0, malformed/0, column/0, complete/0, copy/0, stream/0, authentication/0]).

%% The longest message that PostgreSQL sends: MaxAllocSize.
-define(LENGTH_MAX, 16#3fffffff).

-type message() :: {Type :: byte(), Payload :: binary(), Rest :: binary()} | more.
-type malformed() :: atom().
-type column() :: {Name :: binary(), Table :: non_neg_integer(), Attribute :: integer(),
                   Oid :: non_neg_integer(), Size :: integer(), Modifier :: integer(),
                   Format :: 0 | 1}.
-type complete() :: atom() | {atom(), non_neg_integer()}.
-type copy() :: {text | binary, [text | binary]}.
-type stream() :: {x_log_data, Start :: integer(), End :: integer(), Time :: integer(), binary()}
                | {keepalive, End :: integer(), Time :: integer(), MustReply :: boolean()}.
-type authentication() :: ok | cleartext | {md5, binary()} | {sasl, [binary()]}
                        | {sasl_continue, binary()} | {sasl_final, binary()}
                        | {unsupported, atom() | {unknown, integer()}}.

%% The first message of what has arrived.
-spec message(binary()) -> message().
message(<<Type, Length:32, Rest/binary>>) ->
    if
        Length < 4; Length > ?LENGTH_MAX -> malformed(message_length);
        true ->
            Size = Length - 4,
            case Rest of
                <<Payload:Size/binary, After/binary>> -> {Type, Payload, After};
                _ -> more
            end
    end;
message(_) ->
    more.

-spec authentication(binary()) -> authentication().
authentication(<<0:32>>) -> ok;
authentication(<<3:32>>) -> cleartext;
authentication(<<5:32, Salt:4/binary>>) -> {md5, Salt};
authentication(<<10:32, Methods/binary>>) ->
    {sasl, [Method || Method <- strings(Methods), Method =/= <<>>]};
authentication(<<11:32, Data/binary>>) -> {sasl_continue, Data};
authentication(<<12:32, Data/binary>>) -> {sasl_final, Data};
authentication(<<2:32, _/binary>>) -> {unsupported, kerberosV5};
authentication(<<4:32, _/binary>>) -> {unsupported, crypt};
authentication(<<6:32, _/binary>>) -> {unsupported, scm};
authentication(<<7:32, _/binary>>) -> {unsupported, gss};
authentication(<<9:32, _/binary>>) -> {unsupported, sspi};
authentication(<<Other:32, _/binary>>) -> {unsupported, {unknown, Other}};
authentication(_) -> malformed(authentication).

-spec key_data(binary()) -> {Pid :: integer(), Key :: integer()}.
key_data(<<Pid:?int32, Key:?int32>>) -> {Pid, Key};
key_data(_) -> malformed(key_data).

-spec parameter_status(binary()) -> {binary(), binary()}.
parameter_status(Payload) ->
    case strings(Payload) of
        [Name, Value] -> {Name, Value};
        _ -> malformed(parameter_status)
    end.

-spec notification(binary()) -> {Channel :: binary(), Pid :: integer(), Payload :: binary()}.
notification(<<Pid:?int32, Rest/binary>>) ->
    case strings(Rest) of
        [Channel, Payload] -> {Channel, Pid, Payload};
        [Channel] -> {Channel, Pid, <<>>};
        _ -> malformed(notification)
    end;
notification(_) ->
    malformed(notification).

%% Transaction status: `$I' idle, `$T' in a transaction, `$E' in a failed one.
-spec ready(binary()) -> byte().
ready(<<Status>>) when Status =:= $I; Status =:= $T; Status =:= $E -> Status;
ready(_) -> malformed(ready_for_query).

%% --- ErrorResponse, NoticeResponse --------------------------------------------------------------

-spec error(binary()) -> #error{}.
error(Payload) ->
    Fields = fields(Payload, []),
    {Severity, Localized} =
        case Fields of
            #{$V := V} -> {V, [{severity, S} || #{$S := S} <- [Fields]]};
            #{} -> {maps:get($S, Fields, undefined), []}
        end,
    Code = maps:get($C, Fields, undefined),
    #error{severity = severity(Severity),
           code = Code,
           codename = codename(Code),
           message = maps:get($M, Fields, undefined),
           extra = lists:sort(Localized ++ [{Name, Value} || {Type, Value} <- maps:to_list(Fields),
                                                             Name <- extra(Type)])}.

fields(<<0>>, Acc) -> maps:from_list(Acc);
fields(<<Type, Rest/binary>>, Acc) ->
    {Value, After} = string(Rest, error_fields),
    fields(After, [{Type, Value} | Acc]);
fields(<<>>, _) -> malformed(error_fields).

severity(undefined) -> undefined;
severity(<<"ERROR">>) -> error;
severity(<<"FATAL">>) -> fatal;
severity(<<"PANIC">>) -> panic;
severity(<<"WARNING">>) -> warning;
severity(<<"NOTICE">>) -> notice;
severity(<<"DEBUG", _/binary>>) -> debug;
severity(<<"INFO">>) -> info;
severity(<<"LOG">>) -> log;
severity(_) -> undefined.

codename(undefined) -> undefined;
codename(Code) -> epgsql_errcodes:to_name(Code).

extra($D) -> [detail];
extra($H) -> [hint];
extra($P) -> [position];
extra($p) -> [internal_position];
extra($q) -> [internal_query];
extra($W) -> [where];
extra($s) -> [schema_name];
extra($t) -> [table_name];
extra($c) -> [column_name];
extra($d) -> [data_type_name];
extra($n) -> [constraint_name];
extra($F) -> [file];
extra($L) -> [line];
extra($R) -> [routine];
extra(_) -> [].

%% --- results ------------------------------------------------------------------------------------

%% CommandComplete: the command's first word, and the number of rows where the command writes,
%% moves or copies. A word that is in no list here is `other': atoms are not made of input.
-spec complete(binary()) -> complete().
complete(Payload) ->
    case string(Payload, command_complete) of
        {Tag, <<>>} -> tag(binary:split(Tag, <<" ">>, [global]));
        _ -> malformed(command_complete)
    end.

tag([<<"INSERT">>, _Oid, Rows]) -> {insert, count(Rows)};
tag([<<"UPDATE">>, Rows]) -> {update, count(Rows)};
tag([<<"DELETE">>, Rows]) -> {delete, count(Rows)};
tag([<<"MERGE">>, Rows]) -> {merge, count(Rows)};
tag([<<"MOVE">>, Rows]) -> {move, count(Rows)};
tag([<<"FETCH">>, Rows]) -> {fetch, count(Rows)};
tag([<<"COPY">>, Rows]) -> {copy, count(Rows)};
tag([Word | _]) -> epgsql_command_tags:to_name(Word).

count(Rows) ->
    try binary_to_integer(Rows) of
        Count when Count >= 0 -> Count;
        _ -> malformed(command_complete)
    catch
        error:badarg -> malformed(command_complete)
    end.

%% RowDescription.
-spec columns(binary()) -> [column()].
columns(<<Count:16, Rest/binary>>) -> columns(Count, Rest, []);
columns(_) -> malformed(row_description).

columns(0, <<>>, Acc) -> lists:reverse(Acc);
columns(Count, Bin, Acc) when Count > 0 ->
    {Name, Fields} = string(Bin, row_description),
    case Fields of
        <<Table:32, Attribute:?int16, Oid:32, Size:?int16, Modifier:?int32, Format:16,
          Rest/binary>> when Format =< 1 ->
            Column = {Name, Table, Attribute, Oid, Size, Modifier, Format},
            columns(Count - 1, Rest, [Column | Acc]);
        _ -> malformed(row_description)
    end;
columns(_, _, _) -> malformed(row_description).

%% ParameterDescription.
-spec parameters(binary()) -> [Oid :: non_neg_integer()].
parameters(<<Count:16, Oids/binary>>) when byte_size(Oids) =:= Count * 4 ->
    [Oid || <<Oid:32>> <= Oids];
parameters(_) -> malformed(parameter_description).

%% DataRow.
-spec cells(binary()) -> [null | binary()].
cells(<<Count:16, Cells/binary>>) -> cells(Count, Cells);
cells(_) -> malformed(data_row).

cells(0, <<>>) -> [];
cells(Count, <<-1:?int32, Rest/binary>>) when Count > 0 -> [null | cells(Count - 1, Rest)];
cells(Count, <<Size:32, Cell:Size/binary, Rest/binary>>) when Count > 0 ->
    [Cell | cells(Count - 1, Rest)];
cells(_, _) -> malformed(data_row).

%% --- COPY and replication -----------------------------------------------------------------------

%% CopyInResponse, CopyOutResponse, CopyBothResponse.
-spec copy_response(binary()) -> copy().
copy_response(<<Format, Count:16, Formats/binary>>) when Format =< 1,
                                                         byte_size(Formats) =:= Count * 2 ->
    {copy_format(Format), [copy_format(Each) || <<Each:16>> <= Formats]};
copy_response(_) -> malformed(copy_response).

copy_format(0) -> text;
copy_format(1) -> binary;
copy_format(_) -> malformed(copy_response).

%% A CopyData of a replication stream.
-spec copy_data(binary()) -> stream().
copy_data(<<?X_LOG_DATA, Start:?int64, End:?int64, Time:?int64, Data/binary>>) ->
    {x_log_data, Start, End, Time, Data};
copy_data(<<?PRIMARY_KEEPALIVE_MESSAGE, End:?int64, Time:?int64, MustReply>>) ->
    {keepalive, End, Time, MustReply =/= 0};
copy_data(_) -> malformed(replication_message).

%% --- strings ------------------------------------------------------------------------------------

%% All strings of a payload, each ended by NUL.
-spec strings(binary()) -> [binary()].
strings(<<>>) -> [];
strings(Bin) ->
    {String, Rest} = string(Bin, string),
    [String | strings(Rest)].

string(Bin, What) ->
    case binary:split(Bin, <<0>>) of
        [String, Rest] -> {String, Rest};
        [_] -> malformed(What)
    end.

-spec malformed(malformed()) -> no_return().
malformed(What) -> erlang:error({malformed, What}).
