%% The needs of Halley to write a table of follows: rights, policies, an index that shows whether a
%% pair is there, and other columns that can stay empty.
-module(halley_postgres_writable).

-export([look/3]).

-import(halley_postgres_connection, [rows/3]).
-import(halley_postgres_finding, [finding/2, by_hand/1]).

-type finding() :: halley_postgres_finding:finding().

-spec look(epgsql:connection(), User :: binary(),
           #{spec := halley_postgres_config:table(), _ => _}) -> [finding()].
look(C, User, #{spec := #{schema := Schema, name := Name} = Spec}) ->
    Table = halley_postgres_sql:table(Spec),
    [{Oid, MayWrite}] = rows(C,
        "SELECT c.oid::int8, has_table_privilege($3, c.oid, 'insert') "
        "AND has_table_privilege($3, c.oid, 'delete') FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        [Schema, Name, User]),
    [finding(["the role ", User, " may not write ", Table],
             ["GRANT INSERT, DELETE ON ", Table, " TO ", halley_postgres_sql:ident(User)])
     || not MayWrite]
    ++ [#{what => ["row security may refuse what is written into ", Table, " by the role ", User,
                   ": it needs a policy that lets it (CREATE POLICY halley ON ", Table, " TO ",
                   halley_postgres_sql:ident(User), " USING (true)) and no restrictive one, or "
                   "BYPASSRLS"], sql => [], how => hand}
        || halley_postgres_policies:refuse(C, User, Oid)]
    ++ unique(C, Oid, Spec, Table) ++ columns(C, Oid, Spec, Table) ++ sequences(C, User, Oid, Spec).

%% As ON CONFLICT needs it: of these two columns, whole, and checked at once.
unique(C, Oid, #{user := User, subject := Subject}, Table) ->
    Indexes = [lists:sort(Columns) || {Columns} <- rows(C,
        "SELECT array(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) k "
        "LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k) FROM pg_index i "
        "WHERE i.indrelid = $1::int8::oid AND i.indisvalid AND i.indisunique AND i.indimmediate "
        "AND i.indpred IS NULL", [Oid])],
    [by_hand([Table, " has no unique index on ", User, " and ", Subject, ", so that a follow that "
              "is there can't be told. With one PostgreSQL refuses a second row of a pair; if "
              "that is right: CREATE UNIQUE INDEX ON ", Table, " (",
              halley_postgres_sql:ident(User), ", ", halley_postgres_sql:ident(Subject), ")"])
     || not lists:member(lists:sort([User, Subject]), Indexes)].

columns(C, Oid, #{user := User, subject := Subject}, Table) ->
    [#{what => [Table, " has the column ", Name, ", which a row needs and Halley doesn't know: "
                "give it a default"], sql => [], how => hand}
     || {Name} <- rows(C,
        "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::int8::oid AND attnum > 0 "
        "AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = '' "
        "AND attname NOT IN ($2, $3) ORDER BY attnum", [Oid, User, Subject])].

%% Of columns of the type serial: one of an identity needs no right.
sequences(C, User, Oid, #{user := Column, subject := Subject}) ->
    [finding(["the role ", User, " may not use the sequence ", Sequence],
             ["GRANT USAGE ON SEQUENCE ", Sequence, " TO ", halley_postgres_sql:ident(User)])
     || {Sequence} <- rows(C,
        "SELECT s.oid::regclass::text FROM pg_depend d JOIN pg_class s ON s.oid = d.objid "
        "JOIN pg_attribute a ON a.attrelid = d.refobjid "
        "AND a.attnum = d.refobjsubid WHERE d.refobjid = $1::int8::oid AND d.deptype = 'a' "
        "AND a.attname NOT IN ($3, $4) AND CASE s.relkind "
        "WHEN 'S' THEN NOT has_sequence_privilege($2, s.oid, 'usage') ELSE false END",
        [Oid, User, Column, Subject])].
