%% Which type an OID or a name is, and which codec it has.
%%
%% Pure. A database is two maps: by OID, and by name and whether it is an array. One entry of a
%% type gives two infos, the type's and its array's.
-module(epgsql_oid_db).

-export([builtin/0, from_list/1, update/2, find_by_oid/2, find_by_name/3, oid_by_name/3,
         join_codecs_oids/2, type_to_codec_entry/1, type_to_oid_info/1, type_to_element_oid/1]).

-export_type([db/0, oid/0, oid_info/0, oid_entry/0, type_info/0]).

-type oid() :: non_neg_integer().
-type oid_info() :: {oid(), epgsql:type_name(), IsArray :: boolean()}.
-type oid_entry() :: {epgsql:type_name(), oid(), ArrayOid :: oid()}.

-record(type, {oid :: oid(),
               name :: epgsql:type_name(),
               is_array :: boolean(),
               element_oid :: oid(),               %% its own one, unless it is an array
               codec :: epgsql_codec:codec_entry()}).
-record(db, {by_oid :: #{oid() => #type{}},
             by_name :: #{{epgsql:type_name(), boolean()} => #type{}}}).

-opaque type_info() :: #type{}.
-opaque db() :: #db{}.

%% Types whose OIDs are the same in every database: `pg_type.dat' of PostgreSQL 15.
-spec builtin() -> [oid_entry()].
builtin() ->
    [{bool, 16, 1000}, {bytea, 17, 1001}, {char, 18, 1002}, {int8, 20, 1016}, {int2, 21, 1005},
     {int4, 23, 1007}, {text, 25, 1009}, {json, 114, 199}, {point, 600, 1017}, {lseg, 601, 1018},
     {path, 602, 1019}, {box, 603, 1020}, {polygon, 604, 1027}, {line, 628, 629},
     {cidr, 650, 651}, {float4, 700, 1021}, {float8, 701, 1022}, {circle, 718, 719},
     {macaddr8, 774, 775}, {macaddr, 829, 1040}, {inet, 869, 1041}, {bpchar, 1042, 1014},
     {varchar, 1043, 1015}, {date, 1082, 1182}, {time, 1083, 1183}, {timestamp, 1114, 1115},
     {timestamptz, 1184, 1185}, {interval, 1186, 1187}, {timetz, 1266, 1270},
     {numeric, 1700, 1231}, {uuid, 2950, 2951}, {jsonb, 3802, 3807}, {int4range, 3904, 3905},
     {numrange, 3906, 3907}, {tsrange, 3908, 3909}, {tstzrange, 3910, 3911},
     {daterange, 3912, 3913}, {int8range, 3926, 3927}, {int4multirange, 4451, 6150},
     {nummultirange, 4532, 6151}, {tsmultirange, 4533, 6152}, {tstzmultirange, 4534, 6153},
     {datemultirange, 4535, 6155}, {int8multirange, 4536, 6157}].

%% The entries that a codec is there for.
-spec join_codecs_oids([oid_entry()], [epgsql_codec:codec_entry()]) -> [type_info()].
join_codecs_oids(Oids, Codecs) ->
    ByName = maps:from_list([{element(1, Codec), Codec} || Codec <- Codecs]),
    lists:append([infos(Entry, maps:get(Name, ByName))
                  || {Name, _, _} = Entry <- Oids, is_map_key(Name, ByName)]).

infos({Name, Oid, ArrayOid}, Codec) ->
    [#type{oid = Oid, name = Name, is_array = false, element_oid = Oid, codec = Codec},
     #type{oid = ArrayOid, name = Name, is_array = true, element_oid = Oid, codec = Codec}].

-spec from_list([type_info()]) -> db().
from_list(Types) -> update(Types, #db{by_oid = #{}, by_name = #{}}).

-spec update([type_info()], db()) -> db().
update(Types, #db{by_oid = ByOid, by_name = ByName}) ->
    #db{by_oid = maps:merge(ByOid, maps:from_list([{Oid, Type}
                                                   || #type{oid = Oid} = Type <- Types])),
        by_name = maps:merge(ByName, maps:from_list(
            [{{Name, IsArray}, Type}
             || #type{name = Name, is_array = IsArray} = Type <- Types]))}.

-spec find_by_oid(oid(), db()) -> type_info() | undefined.
find_by_oid(Oid, #db{by_oid = ByOid}) -> maps:get(Oid, ByOid, undefined).

-spec find_by_name(epgsql:type_name(), boolean(), db()) -> type_info() | undefined.
find_by_name(Name, IsArray, #db{by_name = ByName}) ->
    maps:get({Name, IsArray}, ByName, undefined).

-spec oid_by_name(epgsql:type_name(), boolean(), db()) -> oid().
oid_by_name(Name, IsArray, Db) ->
    case find_by_name(Name, IsArray, Db) of
        #type{oid = Oid} -> Oid;
        undefined -> error({unknown_type, Name})
    end.

-spec type_to_codec_entry(type_info()) -> epgsql_codec:codec_entry().
type_to_codec_entry(#type{codec = Codec}) -> Codec.

-spec type_to_oid_info(type_info()) -> oid_info().
type_to_oid_info(#type{oid = Oid, name = Name, is_array = IsArray}) -> {Oid, Name, IsArray}.

-spec type_to_element_oid(type_info()) -> oid() | undefined.
type_to_element_oid(#type{is_array = true, element_oid = Oid}) -> Oid;
type_to_element_oid(_) -> undefined.
