%% Whether each change of a table says which pair it is about, and whether the table and its
%% partitions can be published without harm to those who write them.
%%
%% PostgreSQL refuses UPDATE and DELETE on a published table without a replica identity, and on one
%% whose replica identity lacks a column of the publication's filter, or has one that a list of
%% columns leaves out. Each partition has its own replica identity, and what is set on the whole
%% table isn't handed down, neither to those that are there nor to those that come. A primary key is
%% handed down, and by default is the replica identity, unless it is deferrable.
%%
%% So all is looked at for the table and for each partition, before the table is published: who runs
%% what is found, in its order, never has a table that can be written less than before.
-module(halley_postgres_identity).

-export([look/5]).

-import(halley_postgres_connection, [rows/3]).
-import(halley_postgres_finding, [finding/2, by_hand/1]).

-type finding() :: halley_postgres_finding:finding().

%% `Columns': those that Halley's publication sends; `Again' publishes all of them.
-spec look(epgsql:connection(), Table :: non_neg_integer(), halley_postgres_config:table(),
           Publication :: binary(), {Columns :: all | [binary()], Again :: iodata()}) ->
    [finding()].
look(C, Oid, #{user := User, subject := Subject} = Spec, Publication, {Columns, Again}) ->
    Lists = lists_of_columns(C, Oid, Publication),
    Filter = lists:usort(of_filter(C, Oid, Spec, Publication)) -- [User, Subject],
    Table = halley_postgres_sql:table(Spec),
    Parts = parts(C, Oid),
    Lacks = lists:append([of_part(Part, Table, [User, Subject], Filter, Lists) || Part <- Parts]),
    %% A replica identity that becomes FULL is refused beside a list of columns, so that goes first.
    [finding(["the publication ", Publication, " leaves out ", lists:join(" and ", Missing), " of ",
              Table], Again)
     || Columns =/= all,
        [_ | _] = Missing <- [left_out([User, Subject], Columns, Lacks, Parts, names(C, Oid))]]
    ++ Lacks.

left_out(Pair, Columns, Lacks, Parts, All) ->
    Needed = lists:append([case Identity of <<"f">> -> All; _ -> Key end
                           || {_, _, _, _, _, Identity, Key} <- Parts]),
    lists:usort(Pair ++ Needed ++ [Name || #{how := run} <- Lacks, Name <- All]) -- Columns.

names(C, Oid) ->
    [Name || {Name} <- rows(C, "SELECT attname::text FROM pg_attribute WHERE attrelid = "
                               "$1::int8::oid AND attnum > 0 AND NOT attisdropped "
                               "AND attgenerated = '' ORDER BY attnum", [Oid])].

%% The table, and the partitions that have rows, with the columns of what is the replica identity.
parts(C, Oid) ->
    rows(C, "WITH RECURSIVE below(oid) AS (SELECT $1::int8::oid UNION ALL SELECT inhrelid "
            "FROM below JOIN pg_class c ON c.oid = below.oid AND c.relkind = 'p' "
            "JOIN pg_inherits ON inhparent = below.oid AND NOT inhdetachpending) "
            "SELECT CASE WHEN c.oid = $1::int8::oid THEN 'table' ELSE 'partition' END, "
            "n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, "
            "c.relreplident::text, array(SELECT a.attname::text FROM pg_index i "
            "CROSS JOIN unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(number) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid "
            "AND i.indpred IS NULL AND CASE c.relreplident WHEN 'd' THEN i.indisprimary "
            "WHEN 'i' THEN i.indisreplident ELSE false END) "
            "FROM below JOIN pg_class c ON c.oid = below.oid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind <> 'p' OR c.oid = $1::int8::oid ORDER BY 1 DESC, 2, 3", [Oid]).

of_part({Kind, Schema, Name, <<"f">>, _, _, _}, Table, _, _, _) ->
    [by_hand([named(Kind, Schema, Name, Table), " is a foreign table, and PostgreSQL doesn't send "
              "its changes"])];
of_part({Kind, Schema, Name, _, <<"u">>, _, _}, Table, _, _, _) ->
    [by_hand([named(Kind, Schema, Name, Table), " is unlogged, and PostgreSQL doesn't send its "
              "changes: ALTER TABLE ", sql_name(Schema, Name), " SET LOGGED"])];
of_part({Kind, Schema, Name, _, _, Identity, Columns}, Table, Pair, Filter, Lists) ->
    Of = named(Kind, Schema, Name, Table),
    Full = ["ALTER TABLE ", sql_name(Schema, Name), " REPLICA IDENTITY FULL"],
    Lacks = case Identity of
        <<"f">> -> [];
        _ ->
            [[" doesn't have ", lists:join(" and ", Missing), ", so a delete wouldn't say whom it "
              "is about"] || [_ | _] = Missing <- [Pair -- Columns]]
            ++ [[" doesn't have ", lists:join(" and ", Missing), ", which the condition needs"]
                || [_ | _] = Missing <- [Filter -- Columns]]
    end,
    case {Lacks, Lists} of
        {[], _} -> [];
        {[What | _], []} -> [finding(["the replica identity of ", Of, What], Full)];
        {[What | _], [Other | _]} ->
            [by_hand(["the replica identity of ", Of, What, ". It can't be FULL: the publication ",
                      Other, " has some of the columns alone, and PostgreSQL would refuse updates "
                      "and deletes. Publish all columns there, and then: ", Full])]
    end.

named(<<"table">>, Schema, Name, _) -> sql_name(Schema, Name);
named(<<"partition">>, Schema, Name, Table) ->
    [sql_name(Schema, Name), ", a partition of ", Table, ","].

sql_name(Schema, Name) -> [halley_postgres_sql:ident(Schema), $., halley_postgres_sql:ident(Name)].

%% Publications with a list of columns for the table, for what it is a partition of, or for one of
%% its partitions. Halley's own list goes where it matters.
lists_of_columns(C, Oid, Publication) ->
    [Name || {Name} <- rows(C,
        "WITH RECURSIVE below(oid) AS (SELECT $1::int8::oid UNION ALL SELECT inhrelid FROM below "
        "JOIN pg_inherits ON inhparent = below.oid), "
        "above(oid) AS (SELECT $1::int8::oid UNION ALL SELECT inhparent FROM above "
        "JOIN pg_inherits ON inhrelid = above.oid) "
        "SELECT DISTINCT p.pubname::text FROM pg_publication_rel r "
        "JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prattrs IS NOT NULL "
        "AND NOT p.puballtables AND p.pubname <> $2 AND r.prrelid IN (SELECT oid FROM below "
        "UNION ALL SELECT oid FROM above) ORDER BY 1", [Oid, Publication])].

%% Columns of the filter. Of one that the publication has the catalogs say them; of one that it
%% hasn't yet, all names of columns count that stand in the condition.
of_filter(_, _, #{where := none}, _) ->
    [];
of_filter(C, Oid, #{where := Where}, Publication) ->
    case rows(C, "SELECT a.attname::text FROM pg_publication_rel r "
                 "JOIN pg_publication p ON p.oid = r.prpubid "
                 "JOIN pg_depend d ON d.classid = 'pg_publication_rel'::regclass "
                 "AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass "
                 "JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid "
                 "WHERE p.pubname = $2 AND r.prrelid = $1::int8::oid AND r.prqual IS NOT NULL "
                 "AND r.prattrs IS NULL AND d.refobjsubid > 0", [Oid, Publication]) of
        [] ->
            [Name || Name <- names(C, Oid), has_word(Where, Name)];
        Columns -> [Name || {Name} <- Columns]
    end.

has_word(Text, Name) ->
    Quoted = re:replace(Name, "[^\\w]", "\\\\&", [global, unicode, {return, binary}]),
    re:run(Text, [<<"(?<!\\w)">>, Quoted, <<"(?!\\w)">>], [caseless, unicode, ucp,
                                                           {capture, none}]) =:= match.
