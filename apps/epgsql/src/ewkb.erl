%% PostGIS's "Extended Well-Known Binary" (its documentation, chapter 4; OGC 06-103r4, clause 8).
%%
%% Pure. A geometry is `{Kind, Dimensions, Parts}', where parts are geometries; a point is
%% `{point, Dimensions, X, Y, Z, M}'. The numbers of a reference system (SRID) are read over: a
%% column has its own one. Either byte order is read; little endian is written.
-module(ewkb).

-export([encode_geometry/1, decode_geometry/1]).

-export_type([geometry/0, dimensions/0, point/0]).

-type dimensions() :: '2d' | '2dm' | '3d' | '3dm'.
-type point() :: {point, dimensions(), X :: float(), Y :: float(), Z :: float() | undefined,
                  M :: float() | undefined}.
-type geometry() :: point() | {Kind :: atom(), dimensions(), [geometry()]}.

-define(HAS_Z, 16#80000000).
-define(HAS_M, 16#40000000).
-define(HAS_SRID, 16#20000000).
-define(KIND, 16#0fffffff).
%% How deep collections may lie in each other. PostGIS has the same bound.
-define(DEPTH_MAX, 200).

%% Kinds, and what their parts are: geometries whole, or a given kind without a head of its own.
kinds() ->
    [{1, point, point}, {2, line_string, {each, point}}, {3, polygon, {each, line_string}},
     {4, multi_point, geometries}, {5, multi_line_string, geometries},
     {6, multi_polygon, geometries}, {7, geometry_collection, geometries},
     {8, circular_string, {each, point}}, {9, compound_curve, geometries},
     {10, curve_polygon, geometries}, {11, multi_curve, geometries},
     {12, multi_surface, geometries}, {15, polyhedral_surface, geometries},
     {16, tin, geometries}, {17, triangle, {each, line_string}}].

-spec encode_geometry(geometry()) -> iodata().
encode_geometry(Geometry) ->
    {Number, Kind, Shape} = lists:keyfind(element(1, Geometry), 2, kinds()),
    Head = Number bor flags(element(2, Geometry)),
    [<<1, Head:32/little>> | body(Shape, Kind, Geometry)].

flags('2d') -> 0;
flags('2dm') -> ?HAS_M;
flags('3d') -> ?HAS_Z;
flags('3dm') -> ?HAS_Z bor ?HAS_M.

body(point, _, {point, Dimensions, X, Y, Z, M}) ->
    [<<Value:64/little-float>> || Value <- [X, Y | case Dimensions of
                                                       '2d' -> [];
                                                       '2dm' -> [M];
                                                       '3d' -> [Z];
                                                       '3dm' -> [Z, M]
                                                   end]];
body({each, Part}, _, {_, _, Parts}) ->
    {_, Part, Shape} = lists:keyfind(Part, 2, kinds()),
    [<<(length(Parts)):32/little>> | [body(Shape, Part, Each) || Each <- Parts]];
body(geometries, _, {_, _, Parts}) ->
    [<<(length(Parts)):32/little>> | [encode_geometry(Each) || Each <- Parts]].

-spec decode_geometry(binary()) -> geometry().
decode_geometry(Bin) ->
    {Geometry, <<>>} = whole(Bin, ?DEPTH_MAX),
    Geometry.

whole(<<Order, Bin/binary>>, Depth) when Depth > 0, Order =< 1 ->
    {Head, AfterHead} = number(Order, Bin),
    Rest = case Head band ?HAS_SRID of
               0 -> AfterHead;
               _ -> element(2, number(Order, AfterHead))
           end,
    Dimensions = case {Head band ?HAS_Z, Head band ?HAS_M} of
                     {0, 0} -> '2d';
                     {0, _} -> '2dm';
                     {_, 0} -> '3d';
                     {_, _} -> '3dm'
                 end,
    {_, Kind, Shape} = lists:keyfind(Head band ?KIND, 1, kinds()),
    part(Shape, Kind, Dimensions, Order, Rest, Depth - 1).

part(point, point, Dimensions, Order, Bin, _) ->
    {X, AfterX} = float(Order, Bin),
    {Y, AfterY} = float(Order, AfterX),
    {Z, AfterZ} = float_if(Dimensions =:= '3d' orelse Dimensions =:= '3dm', Order, AfterY),
    {M, Rest} = float_if(Dimensions =:= '2dm' orelse Dimensions =:= '3dm', Order, AfterZ),
    {{point, Dimensions, X, Y, Z, M}, Rest};
part(Shape, Kind, Dimensions, Order, Bin, Depth) ->
    {Count, Rest} = number(Order, Bin),
    {Parts, After} = parts(Count, Shape, Dimensions, Order, Rest, Depth, []),
    {{Kind, Dimensions, Parts}, After}.

parts(0, _, _, _, Bin, _, Acc) -> {lists:reverse(Acc), Bin};
parts(Count, Shape, Dimensions, Order, Bin, Depth, Acc) ->
    {Part, Rest} = case Shape of
                       geometries -> whole(Bin, Depth);
                       {each, Kind} ->
                           {_, Kind, Inner} = lists:keyfind(Kind, 2, kinds()),
                           part(Inner, Kind, Dimensions, Order, Bin, Depth)
                   end,
    parts(Count - 1, Shape, Dimensions, Order, Rest, Depth, [Part | Acc]).

number(1, <<Number:32/little, Rest/binary>>) -> {Number, Rest};
number(0, <<Number:32/big, Rest/binary>>) -> {Number, Rest}.

float_if(false, _, Bin) -> {undefined, Bin};
float_if(true, Order, Bin) -> float(Order, Bin).

float(1, <<Value:64/little-float, Rest/binary>>) -> {Value, Rest};
float(0, <<Value:64/big-float, Rest/binary>>) -> {Value, Rest}.
