%% The content of a publication, as the catalogs have it.
%%
%% They are read themselves: PostgreSQL's own view, `pg_publication_tables', opens each published
%% table from version 16 on, so that a lock on any of them would hold up who asks; and it has all
%% tables of a database, where few are of interest. No query here waits for a lock on a table.
-module(halley_postgres_publication).

-export([look/2, entry/3]).
-export_type([publication/0, entry/0]).

-import(halley_postgres_connection, [rows/3]).

%% `is_whole': of inserts, updates, deletes and truncates none is left out. `via_root': changes of a
%% partition come by its table's name. `has_all': it is for all tables, also those that come.
-type publication() :: #{is_whole := boolean(), via_root := boolean(), has_all := boolean()}.
%% `number': one for the publication, its entry for the table and that for the schema. `has':
%% `whole' and `filtered' if it has the table; `above' if changes come by the name of what the table
%% is a partition of. `columns': those that it sends.
-type entry() :: #{number := non_neg_integer(), has := none | above | whole | filtered,
                   columns := all | [binary()]}.

-spec look(epgsql:connection(), Publication :: binary()) -> publication() | none.
look(C, Publication) ->
    case rows(C, "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot, "
                 "puballtables FROM pg_publication WHERE pubname = $1", [Publication]) of
        [] -> none;
        [{IsWhole, ViaRoot, HasAll}] ->
            #{is_whole => IsWhole, via_root => ViaRoot, has_all => HasAll}
    end.

%% A schema's tables, and all, have neither filters nor lists of columns, also where the table has
%% an entry of its own.
-define(HAS_ALL, "(p.puballtables OR s.oid IS NOT NULL)").
-define(HAS_ABOVE, "p.pubviaroot AND c.relispartition AND EXISTS (SELECT "
    "FROM pg_partition_ancestors(c.oid) AS a(oid) JOIN pg_class t ON t.oid = a.oid "
    "WHERE a.oid <> c.oid AND (p.puballtables "
    "OR EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = p.oid AND prrelid = t.oid) "
    "OR EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = p.oid "
    "AND pnnspid = t.relnamespace)))").

-spec entry(epgsql:connection(), Table :: non_neg_integer(), Publication :: binary()) -> entry().
entry(C, Oid, Publication) ->
    [{Number, Has, Columns}] = rows(C,
        "SELECT (coalesce(p.oid::int8, 0) + coalesce(r.oid::int8, 0) "
        "+ coalesce(s.oid::int8, 0))::int8, "
        "CASE WHEN p.oid IS NULL THEN 'none' WHEN " ?HAS_ABOVE " THEN 'above' "
        "WHEN " ?HAS_ALL " THEN 'whole' WHEN r.oid IS NULL THEN 'none' "
        "WHEN r.prqual IS NULL THEN 'whole' ELSE 'filtered' END, "
        "CASE WHEN r.prattrs IS NOT NULL AND NOT " ?HAS_ALL " THEN array(SELECT attname::text "
        "FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY(r.prattrs)) END "
        "FROM pg_class c LEFT JOIN pg_publication p ON p.pubname = $2 "
        "LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid "
        "LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid "
        "AND s.pnnspid = c.relnamespace WHERE c.oid = $1::int8::oid", [Oid, Publication]),
    #{number => Number, has => has(Has),
      columns => case Columns of null -> all; _ -> Columns end}.

has(<<"none">>) -> none;
has(<<"above">>) -> above;
has(<<"whole">>) -> whole;
has(<<"filtered">>) -> filtered.

