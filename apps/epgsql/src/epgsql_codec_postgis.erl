%% geometry of PostGIS, as the tuples of `ewkb' and the records of epgsql_geometry.hrl.
%%
%% An extension's type: `CREATE EXTENSION postgis' is the application's.
-module(epgsql_codec_postgis).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [geometry].
names() -> [geometry].

-spec encode(ewkb:geometry(), geometry, any()) -> iodata().
encode(Geometry, geometry, _) -> ewkb:encode_geometry(Geometry).

-spec decode(binary(), geometry, any()) -> ewkb:geometry().
decode(Bin, geometry, _) -> ewkb:decode_geometry(Bin).
