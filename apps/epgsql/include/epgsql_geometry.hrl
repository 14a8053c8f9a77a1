%% Records for the geometries of `ewkb', under the names of epgsql 4.8.

-record(point, {point_type :: ewkb:dimensions(), x :: float(), y :: float(),
                z :: float() | undefined, m :: float() | undefined}).
-record(multi_point, {point_type :: ewkb:dimensions(), points :: [ewkb:geometry()]}).
-record(line_string, {point_type :: ewkb:dimensions(), points :: [ewkb:geometry()]}).
-record(multi_line_string, {point_type :: ewkb:dimensions(), line_strings :: [ewkb:geometry()]}).
-record(circular_string, {point_type :: ewkb:dimensions(), points :: [ewkb:geometry()]}).
-record(compound_curve, {point_type :: ewkb:dimensions(), lines :: [ewkb:geometry()]}).
-record(multi_curve, {point_type :: ewkb:dimensions(), curves :: [ewkb:geometry()]}).
-record(polygon, {point_type :: ewkb:dimensions(), rings :: [ewkb:geometry()]}).
-record(multi_polygon, {point_type :: ewkb:dimensions(), polygons :: [ewkb:geometry()]}).
-record(triangle, {point_type :: ewkb:dimensions(), rings :: [ewkb:geometry()]}).
-record(curve_polygon, {point_type :: ewkb:dimensions(), rings :: [ewkb:geometry()]}).
-record(polyhedral_surface, {point_type :: ewkb:dimensions(), polygons :: [ewkb:geometry()]}).
-record(multi_surface, {point_type :: ewkb:dimensions(), surfaces :: [ewkb:geometry()]}).
-record(tin, {point_type :: ewkb:dimensions(), triangles :: [ewkb:geometry()]}).
