%% The shape of a table at its copy: which table, how it stands in the publication, its two columns
%% and the settings that their values' texts depend on, and its partitions.
%%
%% The stream brings rows that change, and nothing of other changes of rows: a rewrite by ALTER
%% TABLE, a label of an enum, a partition that comes, goes or is truncated, changes that a
%% publication left out for a while. All of that leaves traces in the catalogs, also when it was
%% undone since: other OIDs, other files of rows (`relfilenode'), catalog rows that another
%% transaction wrote (`xmin'). So the shape is kept with each copy, as the copy's own snapshot shows
%% it, and compared at every start, every few seconds, and when the stream describes the table
%% again. Where something differs the copy is no good, and the table is copied anew.
%%
%% A table without partitions gets another file of rows by VACUUM FULL, CLUSTER and TRUNCATE, too,
%% and the stream has the TRUNCATE: that alone is no difference. The stream doesn't have a TRUNCATE
%% of one partition, so there another file is a difference, whatever made it.
%%
%% One query for all tables. It reads catalogs alone and waits for no lock on a table.
-module(halley_postgres_shape).

-export([read/3, differences/2, is_unique/2]).
-export_type([shape/0]).

%% Texts, or what `short/1' makes of long ones.
-type shape() :: #{Part :: binary() => binary()}.

%% By the tables' texts in the configuration; a table that isn't there has none.
-spec read(epgsql:connection(), Publication :: binary(), [halley_postgres_config:table()]) ->
    #{Table :: binary() => shape()}.
read(_, _, []) ->
    #{};
read(C, Publication, Tables) ->
    Column = fun(Key) -> [maps:get(Key, Table) || Table <- Tables] end,
    case epgsql:equery(C, sql(), [Column(schema), Column(name), Column(user), Column(subject),
                                  Publication]) of
        {ok, _, Rows} ->
            maps:from_list([{map_get(text, lists:nth(N, Tables)),
                             maps:from_list(lists:zip(parts(), [short(Each) || Each <- Parts]))}
                            || Row <- Rows, [N | Parts] <- [tuple_to_list(Row)]]);
        {error, Error} -> exit({query_failed, Error})
    end.

short(null) -> <<>>;
short(Text) when byte_size(Text) =< 64 -> Text;
short(Text) -> base64:encode(binary_part(crypto:hash(sha256, Text), 0, 18)).

parts() ->
    [<<"table">>, <<"publication">>, <<"columns">>, <<"values">>, <<"partitions">>,
     <<"security">>, <<"file">>, <<"attributes">>, <<"unique">>].

%% In the order of `parts/0'.
sql() ->
    ["WITH RECURSIVE asked AS (SELECT i::int4, c.*, c.oid AS table_oid, u, s FROM "
     "unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS t(n, r, u, s, i) "
     "JOIN pg_namespace n ON n.nspname = t.n JOIN pg_class c ON c.relnamespace = n.oid "
     "AND c.relname = t.r AND c.relkind IN ('r', 'p')), "
     "below(i, oid, link) AS (SELECT i, table_oid, '' FROM asked UNION ALL "
     "SELECT i, inhrelid, link || '<' || h.xmin::text FROM below "
     "JOIN pg_inherits h ON inhparent = oid AND NOT inhdetachpending), "
     "pair AS (SELECT i, a.* , a.xmin::text AS written FROM asked JOIN pg_attribute a "
     "ON a.attrelid = table_oid AND a.attname IN (u, s) AND attnum > 0 AND NOT attisdropped), "
     "types(i, oid) AS (SELECT i, atttypid FROM pair UNION SELECT i, of.oid FROM types "
     "JOIN pg_type t ON t.oid = types.oid CROSS JOIN LATERAL (", types_of("t"), ") AS of(oid) "
     "WHERE of.oid <> 0) "
     "SELECT i, table_oid::text, "
     "(SELECT concat_ws(' ', p.oid, p.xmin, r.oid, s.oid, (SELECT string_agg(inhparent::text, ' ') "
     "FROM pg_inherits WHERE inhrelid = table_oid)) FROM pg_publication p "
     "LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = table_oid "
     "LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = relnamespace "
     "WHERE p.pubname = $5), "
     "(SELECT string_agg(concat_ws(' ', attname, attnum, format_type(atttypid, atttypmod), "
     "attgenerated), ', ' ORDER BY attnum) FROM pair WHERE pair.i = asked.i), "
     "(SELECT string_agg(concat_ws(' ', t.oid, (", labels("t"), "), (", fields("t"), ")), ', ' "
     "ORDER BY t.oid) FROM types JOIN pg_type t ON t.oid = types.oid WHERE types.i = asked.i), "
     "(SELECT string_agg(concat_ws(' ', c.oid, link, c.relfilenode, c.relkind, c.relpersistence, "
     "c.relreplident, (", identities("c"), ")), ', ' ORDER BY c.oid) "
     "FROM below JOIN pg_class c ON c.oid = below.oid "
     "WHERE below.i = asked.i AND c.oid <> table_oid AND c.relkind <> 'p'), "
     "concat_ws(' ', relrowsecurity, relforcerowsecurity, (SELECT string_agg(concat_ws(' ', oid, "
     "xmin), ', ' ORDER BY oid) FROM pg_policy WHERE polrelid = table_oid)), "
     "concat_ws(' ', CASE WHEN EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p "
     "ON p.oid = r.prpubid WHERE r.prrelid = table_oid AND p.pubname = $5) THEN 'named' "
     "ELSE 'all' END, relfilenode), "
     "(SELECT string_agg(written, ' ' ORDER BY attnum) FROM pair WHERE pair.i = asked.i), "
     "(SELECT min(x.indexrelid::int8)::text FROM pg_index x WHERE x.indrelid = table_oid "
     "AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indpred IS NULL "
     "AND NOT EXISTS (SELECT FROM unnest(x.indkey[0:x.indnkeyatts - 1]) AS k(number) "
     "WHERE number NOT IN (SELECT attnum FROM pair WHERE pair.i = asked.i))) "
     "FROM asked"].

%% Indexes that are a replica identity, or may have been one.
identities(Table) ->
    ["SELECT string_agg(concat_ws('=', indexrelid, x.xmin), ',' ORDER BY indexrelid) "
     "FROM pg_index x WHERE indrelid = ", Table, ".oid AND indisunique AND indimmediate"].

%% What a value of a type consists of: the domain's type, the array's element, the row's columns,
%% the range's bounds.
types_of(Type) ->
    ["SELECT ", Type, ".typbasetype UNION ALL SELECT ", Type, ".typelem "
     "UNION ALL SELECT atttypid FROM pg_attribute WHERE attrelid = ", Type, ".typrelid "
     "AND attnum > 0 AND NOT attisdropped "
     "UNION ALL SELECT rngsubtype FROM pg_range WHERE ", Type, ".oid IN (rngtypid, rngmultitypid)"].

labels(Type) ->
    ["SELECT string_agg(concat_ws('=', oid, enumlabel), ',' ORDER BY oid) FROM pg_enum "
     "WHERE enumtypid = ", Type, ".oid"].

fields(Type) ->
    ["SELECT string_agg(concat_ws('=', attnum, atttypid), ',' ORDER BY attnum) FROM pg_attribute "
     "WHERE attrelid = ", Type, ".typrelid AND attnum > 0 AND NOT attisdropped"].

%% Why a copy that was made of the one isn't one of the other, for the log; [] if it is.
-spec differences(Before :: shape() | unknown, Now :: shape()) -> [string()].
differences(unknown, _) ->
    ["an earlier version of Halley copied it, and didn't note what it was"];
differences(Before, Now) ->
    [Why || {Part, Why} <- [
        {<<"table">>, "it is another table than before"},
        {<<"publication">>, "its publication was altered, or it was out of that"},
        {<<"columns">>, "its columns were altered"},
        {<<"values">>, "a type of its columns was altered"},
        {<<"partitions">>, "its partitions were altered, truncated or rewritten"},
        {<<"security">>, "its row security was altered"}], differ(Part, Before, Now)]
    ++ ["its rows were rewritten" || is_rewritten(Before, Now)].

%% A column that gets other values by ALTER TABLE gets another row in the catalog as well. A table
%% that was unlogged for a while had changes that no stream brings; one that a publication names
%% can't be.
is_rewritten(Before, Now) ->
    differ(<<"file">>, Before, Now)
        andalso (differ(<<"attributes">>, Before, Now)
                 orelse not is_named(Before) orelse not is_named(Now)).

differ(Part, Before, Now) -> maps:get(Part, Before, none) =/= maps:get(Part, Now, none).

is_named(#{<<"file">> := <<"named ", _/binary>>}) -> true;
is_named(_) -> false.

%% Whether no two rows had the same pair at any time from the one to the other: an index sees to it,
%% the same one all the time.
-spec is_unique(Before :: shape(), Now :: shape()) -> boolean().
is_unique(#{<<"unique">> := Index}, #{<<"unique">> := Now}) ->
    Index =:= Now andalso Index =/= <<>>.
