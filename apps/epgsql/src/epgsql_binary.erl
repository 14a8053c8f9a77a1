%% Values in the binary format: which codec writes or reads which type, and the types that are made
%% of others, arrays and records.
%%
%% Reading is in two steps, since a column has many cells: `oid_to_decoder/3' once a column,
%% `decode/2' for each cell. NULL is handled here, never by a codec. Pure, but for what codecs do.
-module(epgsql_binary).

-include("protocol.hrl").

-export([new_codec/2, update_codec/2, null/1, nulls/1, type_to_oid/2, typeinfo_to_name_array/2,
         typeinfo_to_oid_info/2, oid_to_name/2, oid_to_info/2, supports/2, type_to_encoder/2,
         encode/2, encode/3, oid_to_decoder/3, decode/2]).

-export_type([codec/0, decoder/0, encoder/0]).

-define(NULLS, [null, undefined]).
-define(RECORD, 2249).
-define(RECORD_ARRAY, 2287).
%% PostgreSQL's own bound: MAXDIM.
-define(DIMENSIONS_MAX, 6).

-record(codec, {nulls = ?NULLS :: [any(), ...], db :: epgsql_oid_db:db()}).

-opaque codec() :: #codec{}.
%% Integers by their name: `epgsql_wire' reads them without a call.
-type decoder() :: int2 | int4 | int8 | fun((binary()) -> any()).
-opaque encoder() :: {codec, epgsql_codec:codec_entry()}
                   | {array, epgsql_codec:codec_entry(), Element :: epgsql_oid_db:oid(), codec()}.

-type type() :: epgsql:type_name() | {array, epgsql:type_name()}.
-type unknown() :: {unknown_oid, epgsql_oid_db:oid()}.

-spec new_codec(epgsql_sock:pg_sock(), #{nulls => [any(), ...]}) -> codec().
new_codec(Session, Options) ->
    Codecs = epgsql_codec:init_mods(builtin(), Session),
    Types = epgsql_oid_db:join_codecs_oids(epgsql_oid_db:builtin(), Codecs),
    #codec{nulls = maps:get(nulls, Options, ?NULLS), db = epgsql_oid_db:from_list(Types)}.

builtin() ->
    [{Module, []} || Module <- [epgsql_codec_boolean, epgsql_codec_bpchar, epgsql_codec_datetime,
                                epgsql_codec_float, epgsql_codec_geometric, epgsql_codec_integer,
                                epgsql_codec_intrange, epgsql_codec_json, epgsql_codec_multirange,
                                epgsql_codec_net, epgsql_codec_numeric, epgsql_codec_text,
                                epgsql_codec_timerange, epgsql_codec_uuid]].

-spec update_codec([epgsql_oid_db:type_info()], codec()) -> codec().
update_codec(Types, #codec{db = Db} = Codec) -> Codec#codec{db = epgsql_oid_db:update(Types, Db)}.

%% The term that NULL is read as.
-spec null(codec()) -> any().
null(#codec{nulls = [Null | _]}) -> Null.

%% The terms that are written as NULL.
-spec nulls(codec()) -> [any(), ...].
nulls(#codec{nulls = Nulls}) -> Nulls.

is_null(Value, #codec{nulls = Nulls}) -> lists:member(Value, Nulls).

-spec type_to_oid(type(), codec()) -> epgsql_oid_db:oid().
type_to_oid({array, Name}, #codec{db = Db}) -> epgsql_oid_db:oid_by_name(Name, true, Db);
type_to_oid(Name, #codec{db = Db}) -> epgsql_oid_db:oid_by_name(Name, false, Db).

-spec typeinfo_to_name_array(unknown() | epgsql_oid_db:type_info(), codec()) -> unknown() | type().
typeinfo_to_name_array({unknown_oid, _} = Unknown, _) -> Unknown;
typeinfo_to_name_array(Type, _) ->
    case epgsql_oid_db:type_to_oid_info(Type) of
        {_, Name, true} -> {array, Name};
        {_, Name, false} -> Name
    end.

-spec typeinfo_to_oid_info(unknown() | epgsql_oid_db:type_info(), codec()) ->
          unknown() | epgsql_oid_db:oid_info().
typeinfo_to_oid_info({unknown_oid, _} = Unknown, _) -> Unknown;
typeinfo_to_oid_info(Type, _) -> epgsql_oid_db:type_to_oid_info(Type).

-spec oid_to_name(epgsql_oid_db:oid(), codec()) -> unknown() | type().
oid_to_name(Oid, Codec) ->
    case oid_to_info(Oid, Codec) of
        undefined -> {unknown_oid, Oid};
        Type -> typeinfo_to_name_array(Type, Codec)
    end.

-spec oid_to_info(epgsql_oid_db:oid(), codec()) -> epgsql_oid_db:type_info() | undefined.
oid_to_info(Oid, #codec{db = Db}) -> epgsql_oid_db:find_by_oid(Oid, Db).

%% Can it be had in the binary format?
-spec supports(epgsql_oid_db:oid(), codec()) -> boolean().
supports(Oid, _) when Oid =:= ?RECORD; Oid =:= ?RECORD_ARRAY -> true;
supports(Oid, Codec) -> oid_to_info(Oid, Codec) =/= undefined.

%% --- reading ------------------------------------------------------------------------------------

-spec decode(binary(), decoder()) -> any().
decode(Cell, Decoder) when is_function(Decoder) -> Decoder(Cell);
decode(Cell, Integer) -> epgsql_codec_integer:decode(Cell, Integer, []).

-spec oid_to_decoder(epgsql_oid_db:oid(), binary | text, codec()) -> decoder().
oid_to_decoder(?RECORD, binary, Codec) ->
    fun(Cell) -> record(Cell, Codec) end;
oid_to_decoder(?RECORD_ARRAY, binary, Codec) ->
    array_decoder(oid_to_decoder(?RECORD, binary, Codec), Codec);
oid_to_decoder(Oid, Format, Codec) ->
    case oid_to_info(Oid, Codec) of
        undefined -> fun(Cell) -> Cell end;
        Type ->
            {_, _, IsArray} = epgsql_oid_db:type_to_oid_info(Type),
            decoder(Format, IsArray, epgsql_oid_db:type_to_codec_entry(Type), Codec)
    end.

decoder(binary, false, {Name, epgsql_codec_integer, _}, _) ->
    Name;
decoder(binary, false, {Name, Module, State}, _) ->
    fun(Cell) -> Module:decode(Cell, Name, State) end;
decoder(binary, true, Entry, Codec) ->
    array_decoder(decoder(binary, false, Entry, Codec), Codec);
decoder(text, false, {Name, Module, State}, _) ->
    case erlang:function_exported(Module, decode_text, 3) of
        true -> fun(Cell) -> Module:decode_text(Cell, Name, State) end;
        false -> fun(Cell) -> Cell end
    end;
decoder(text, true, _, _) ->
    fun(Cell) -> Cell end.

%% Dimensions, whether NULLs are in it, the elements' OID; of each dimension its length and lower
%% bound, which is not looked at; the elements.
array_decoder(Element, Codec) ->
    Null = null(Codec),
    fun(<<Count:32, _HasNull:32, _Oid:32, Rest/binary>>) when Count =< ?DIMENSIONS_MAX ->
        <<Dimensions:(Count * 8)/binary, Elements/binary>> = Rest,
        Lengths = [Length || <<Length:32, _Bound:32>> <= Dimensions],
        {Array, <<>>} = dimension(Lengths, Elements, Element, Null),
        Array
    end.

dimension([], Bin, _, _) -> {[], Bin};
dimension([Length], Bin, Element, Null) -> elements(Length, Bin, Element, Null, []);
dimension([Length | Inner], Bin, Element, Null) ->
    parts(Length, Inner, Bin, Element, Null, []).

%% Each part takes bytes, or the array ends: a length that isn't true can't make it run for long.
parts(0, _, Bin, _, _, Acc) -> {lists:reverse(Acc), Bin};
parts(Count, Inner, Bin, Element, Null, Acc) when Bin =/= <<>> ->
    {Part, Rest} = dimension(Inner, Bin, Element, Null),
    parts(Count - 1, Inner, Rest, Element, Null, [Part | Acc]).

elements(0, Bin, _, _, Acc) -> {lists:reverse(Acc), Bin};
elements(Count, <<-1:?int32, Rest/binary>>, Element, Null, Acc) ->
    elements(Count - 1, Rest, Element, Null, [Null | Acc]);
elements(Count, <<Size:32, Cell:Size/binary, Rest/binary>>, Element, Null, Acc) ->
    elements(Count - 1, Rest, Element, Null, [decode(Cell, Element) | Acc]).

record(<<Count:32, Fields/binary>>, Codec) ->
    list_to_tuple(fields(Count, Fields, Codec)).

fields(0, <<>>, _) -> [];
fields(Count, <<_Oid:32, -1:?int32, Rest/binary>>, Codec) ->
    [null(Codec) | fields(Count - 1, Rest, Codec)];
fields(Count, <<Oid:32, Size:32, Cell:Size/binary, Rest/binary>>, Codec) ->
    [decode(Cell, oid_to_decoder(Oid, binary, Codec)) | fields(Count - 1, Rest, Codec)].

%% --- writing ------------------------------------------------------------------------------------

%% With its length.
-spec encode(type(), any(), codec()) -> iodata().
encode(TypeName, Value, Codec) -> encode(Value, type_to_encoder(TypeName, Codec)).

-spec encode(any(), encoder()) -> iodata().
encode(Value, {codec, {Name, Module, State}}) ->
    sized(Module:encode(Value, Name, State));
encode(Array, {array, Entry, Oid, Codec}) ->
    {Lengths, Elements} = flatten(Array, depth(Array, Entry)),
    {Cells, HasNull} = lists:mapfoldl(fun(Value, HasNull) ->
        case is_null(Value, Codec) of
            true -> {<<-1:32>>, 1};
            false -> {encode(Value, {codec, Entry}), HasNull}
        end
    end, 0, Elements),
    sized([<<(length(Lengths)):32, HasNull:32, Oid:32>>,
           [<<Length:32, 1:32>> || Length <- Lengths], Cells]).

sized(Payload) -> [<<(iolist_size(Payload)):32>> | Payload].

-spec type_to_encoder(type(), codec()) -> encoder().
type_to_encoder({array, Name}, #codec{db = Db} = Codec) ->
    case epgsql_oid_db:find_by_name(Name, true, Db) of
        undefined -> error({unknown_type, {array, Name}});
        Type -> {array, epgsql_oid_db:type_to_codec_entry(Type),
                 epgsql_oid_db:type_to_element_oid(Type), Codec}
    end;
type_to_encoder(Name, #codec{db = Db}) ->
    case epgsql_oid_db:find_by_name(Name, false, Db) of
        undefined -> error({unknown_type, Name});
        Type -> {codec, epgsql_oid_db:type_to_codec_entry(Type)}
    end.

%% How deep an array is can only be seen in its value. Where values are lists themselves, one
%% dimension is all there can be.
depth([], _) -> 0;
depth(Array, {Name, _, _}) when is_list(Array) ->
    case lists:member(Name, [polygon, int4multirange, int8multirange, nummultirange, tsmultirange,
                             tstzmultirange, datemultirange]) of
        true -> 1;
        false -> depth(Array)
    end.

depth([First | _]) -> 1 + depth(First);
depth(_) -> 0.

%% The dimensions' lengths and the elements in order. All parts of a dimension are of one length.
flatten(_, 0) -> {[], []};
flatten(Array, 1) -> {[length(Array)], Array};
flatten(Array, Depth) ->
    Parts = [flatten(Part, Depth - 1) || Part <- Array],
    case lists:usort([Lengths || {Lengths, _} <- Parts]) of
        [Lengths] -> {[length(Array) | Lengths], lists:append([Part || {_, Part} <- Parts])};
        _ -> error({array_not_rectangular, Array})
    end.
