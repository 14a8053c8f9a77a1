%% point, line, lseg, box, path, polygon, circle: `{X, Y}', `{A, B, C}' of Ax + By + C = 0,
%% `{Point, Point}' (of a box upper right and lower left), `{open | closed, [Point]}', `[Point]',
%% `{Center, Radius}'.
-module(epgsql_codec_geometric).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([point/0, data/0]).

-type coordinate() :: epgsql_codec_float:data() | integer().
-type point() :: {X :: coordinate(), Y :: coordinate()}.
-type data() :: point() | {coordinate(), coordinate(), coordinate()} | {point(), point()}
              | {open | closed, [point()]} | [point()] | {point(), coordinate()}.
-type name() :: point | line | lseg | box | path | polygon | circle.

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [name()].
names() -> [point, line, lseg, box, path, polygon, circle].

-spec encode(data(), name(), any()) -> iodata().
encode(Point, point, _) -> point(Point);
encode({A, B, C}, line, _) -> [coordinate(A), coordinate(B), coordinate(C)];
encode({A, B}, Name, _) when Name =:= lseg; Name =:= box -> [point(A), point(B)];
encode({open, Points}, path, _) -> [0 | points(Points)];
encode({closed, Points}, path, _) -> [1 | points(Points)];
encode(Points, polygon, _) -> points(Points);
encode({Center, Radius}, circle, _) -> [point(Center), coordinate(Radius)].

points(Points) -> [<<(length(Points)):32>> | [point(Point) || Point <- Points]].

point({X, Y}) -> [coordinate(X), coordinate(Y)].

coordinate(Value) -> epgsql_codec_float:encode(Value, float8, []).

-spec decode(binary(), name(), any()) -> data().
decode(Bin, point, _) -> read_point(Bin);
decode(<<A:8/binary, B:8/binary, C:8/binary>>, line, _) ->
    {read_float(A), read_float(B), read_float(C)};
decode(<<A:16/binary, B:16/binary>>, Name, _) when Name =:= lseg; Name =:= box ->
    {read_point(A), read_point(B)};
decode(<<0, Points/binary>>, path, _) -> {open, read_points(Points)};
decode(<<1, Points/binary>>, path, _) -> {closed, read_points(Points)};
decode(Bin, polygon, _) -> read_points(Bin);
decode(<<Center:16/binary, Radius:8/binary>>, circle, _) ->
    {read_point(Center), read_float(Radius)}.

read_points(<<Count:32, Points/binary>>) when byte_size(Points) =:= Count * 16 ->
    [read_point(Point) || <<Point:16/binary>> <= Points].

read_point(<<X:8/binary, Y:8/binary>>) -> {read_float(X), read_float(Y)}.

read_float(Bin) -> epgsql_codec_float:decode(Bin, float8, []).
