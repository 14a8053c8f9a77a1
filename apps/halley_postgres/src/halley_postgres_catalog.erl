%% The needs of Halley in PostgreSQL: each thing that is missing with the SQL that adds it.
%%
%% The stream calls this at its start and from time to time, `./halley postgres check' prints it,
%% and `setup' runs the SQL. A thing that is missing for one table stops that table; one that is
%% missing for all stops the stream.
%%
%% Only catalogs are read, by functions that open no table: whoever holds a lock on one, for as long
%% as it takes, doesn't hold up the stream.
-module(halley_postgres_catalog).

-export([look/3]).
-export_type([look/0, table/0]).

-import(halley_postgres_connection, [rows/3]).
-import(halley_postgres_finding, [finding/2, by_hand/1]).

-type finding() :: halley_postgres_finding:finding().
%% `writes': what is missing to write it. `shape': whether it is what it was when it was copied.
-type table() :: #{spec := halley_postgres_config:table(), types := {binary(), binary()},
                   oid := non_neg_integer(), shape := halley_postgres_shape:shape(),
                   findings := [finding()], writes := [finding()]}.
-type look() :: #{findings := [finding()], unpublished := [finding()], tables := [table()],
                  notes := [finding()]}.

%% `User': Halley's role, for grants. Without `findings' a stream can begin. Those of them that are
%% `unpublished' are about the publication itself: with them a stream that runs misses changes of
%% any table. `notes' are about parts of publishing.
-spec look(epgsql:connection(), User :: binary(), halley_postgres_config:settings()) -> look().
look(C, User, #{publish := outbox}) ->
    (halley_postgres_outbox_needs:look(C, User))#{unpublished => [], tables => []};
look(C, User, #{follows := Specs, publish := Publish, publication := Publication} = Settings) ->
    Shapes = halley_postgres_shape:read(C, Publication, Specs),
    Tables = [written(C, User, Settings, table(C, User, Spec, Shapes, Settings)) || Spec <- Specs],
    Unpublished = publication(halley_postgres_publication:look(C, Publication), Publication,
                              [Spec || #{spec := Spec, findings := Findings} <- Tables,
                                       not are_for_a_person(Findings)]),
    #{findings => server(C, User) ++ Unpublished, unpublished => Unpublished, tables => Tables,
      notes => lists:append([publishing(C, User, Publication) || Publish])}.

are_for_a_person(Findings) -> [hand || #{how := hand} <- Findings] =/= [].

%% --- the server --------------------------------------------------------------------------------

server(C, User) ->
    [{Level, Version, MayReplicate}] = rows(C,
        "SELECT current_setting('wal_level'), current_setting('server_version_num')::int4, "
        "coalesce((SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = $1), false)",
        [User]),
    [#{what => ["wal_level is ", Level, ", and must be logical"],
       sql => "ALTER SYSTEM SET wal_level = logical", how => restart} || Level =/= <<"logical">>]
    ++ [by_hand("the server is older than PostgreSQL 15") || Version < 150000]
    ++ [finding(["the role ", User, " may not replicate"],
                ["ALTER ROLE ", halley_postgres_sql:ident(User), " REPLICATION"])
        || not MayReplicate].

%% --- the publication ---------------------------------------------------------------------------

%% `Tables': those that may be published. The others could be written less then.
publication(none, Name, Tables) ->
    Entries = [entry(Table) || Table <- Tables],
    [finding(["there is no publication ", Name],
             ["CREATE PUBLICATION ", halley_postgres_sql:ident(Name),
              [[" FOR TABLE ", lists:join(", ", Entries)] || Entries =/= []],
              " WITH (publish_via_partition_root = true)"])];
publication(#{is_whole := IsWhole, via_root := ViaRoot}, Name, _) ->
    [finding(["the publication ", Name, " leaves out inserts, updates, deletes or truncates"],
             ["ALTER PUBLICATION ", halley_postgres_sql:ident(Name),
              " SET (publish = 'insert, update, delete, truncate')"]) || not IsWhole]
    ++ [finding(["the publication ", Name, " names partitions, not their tables"],
                ["ALTER PUBLICATION ", halley_postgres_sql:ident(Name),
                 " SET (publish_via_partition_root = true)"]) || not ViaRoot].

entry(#{where := Where} = Table) ->
    [halley_postgres_sql:table(Table),
     [[" WHERE ", halley_postgres_sql:condition(Table)] || Where =/= none]].

%% --- a table -----------------------------------------------------------------------------------

%% What makes it safe to publish it comes before that. What only a person can decide comes before
%% everything.
table(C, User, #{schema := Schema, name := Name, text := Text} = Spec, Shapes,
      #{publication := Publication}) ->
    Empty = #{spec => Spec, types => {<<"text">>, <<"text">>}, oid => 0,
              shape => maps:get(Text, Shapes, #{}), findings => [], writes => []},
    case rows(C, "SELECT c.oid::int8, has_schema_privilege($3, n.oid, 'usage'), "
                 "has_table_privilege($3, c.oid, 'select') FROM pg_class c "
                 "JOIN pg_namespace n ON n.oid = c.relnamespace "
                 "WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')",
              [Schema, Name, User]) of
        [] -> Empty#{findings := [by_hand(["there is no table ", Schema, $., Name, " (", Text,
                                           ")"])]};
        [{Oid, MayUse, MayRead}] ->
            Entry = halley_postgres_publication:entry(C, Oid, Publication),
            {Types, Columns} = described(C, Oid, Spec, Entry, Publication),
            Findings = rights(User, Spec, MayUse, MayRead) ++ hidden(C, User, Oid, Spec) ++ Columns,
            Empty#{oid := Oid, types := Types,
                   findings := Findings ++ [Each || not are_for_a_person(Findings),
                                                    Each <- member(Spec, Entry, Publication)]}
    end.

rights(User, #{schema := Schema} = Spec, MayUse, MayRead) ->
    [finding(["the role ", User, " may not use the schema ", Schema],
             ["GRANT USAGE ON SCHEMA ", halley_postgres_sql:ident(Schema), " TO ",
              halley_postgres_sql:ident(User)]) || not MayUse]
    ++ [finding(["the role ", User, " may not read ", halley_postgres_sql:table(Spec)],
                ["GRANT SELECT ON ", halley_postgres_sql:table(Spec), " TO ",
                 halley_postgres_sql:ident(User)]) || not MayRead].

%% Rows that the stream has and no query, or the other way round.
hidden(C, User, Oid, Spec) ->
    [{HasHeirs}] = rows(C, "SELECT relkind = 'r' AND EXISTS (SELECT FROM pg_inherits "
                           "WHERE inhparent = c.oid) FROM pg_class c "
                           "WHERE c.oid = $1::int8::oid", [Oid]),
    Table = halley_postgres_sql:table(Spec),
    [by_hand(["row security may hide rows of ", Table, " from the role ", User, ": it needs a "
              "policy that shows all (CREATE POLICY halley ON ", Table, " FOR SELECT TO ",
              halley_postgres_sql:ident(User), " USING (true)) and no restrictive one, or "
              "BYPASSRLS"]) || halley_postgres_policies:hide(C, User, Oid)]
    ++ [by_hand(["other tables inherit from ", Table, ", and their changes come without its name"])
        || HasHeirs].

%% Without a publication the finding is that.
member(_, #{number := 0}, _) -> [];
member(Spec, #{has := none}, Publication) ->
    [finding(["the publication ", Publication, " doesn't have ", halley_postgres_sql:table(Spec)],
             [alter(Publication), "ADD TABLE ", entry(Spec)])];
member(Spec, #{has := above}, Publication) ->
    [by_hand(["the publication ", Publication, " has the table that ",
              halley_postgres_sql:table(Spec), " is a partition of, and sends changes by its "
              "name"])];
member(#{where := Where} = Spec, #{has := Has}, Publication) ->
    [finding(["the publication ", Publication, " has another filter for ",
              halley_postgres_sql:table(Spec)], again(Spec, Publication))
     || (Has =:= whole) =/= (Where =:= none)].

again(Spec, Publication) ->
    [alter(Publication), "DROP TABLE ", halley_postgres_sql:table(Spec), "; ", alter(Publication),
     "ADD TABLE ", entry(Spec)].

alter(Publication) -> ["ALTER PUBLICATION ", halley_postgres_sql:ident(Publication), " "].

described(C, Oid, #{user := User, subject := Subject} = Spec, Entry, Publication) ->
    #{columns := Published} = Entry,
    Types = maps:from_list([{Name, {Type, IsGenerated}} || {Name, Type, IsGenerated} <- rows(C,
        "SELECT attname::text, format_type(atttypid, atttypmod), attgenerated <> '' "
        "FROM pg_attribute WHERE attrelid = $1::int8::oid AND attnum > 0 AND NOT attisdropped",
        [Oid])]),
    case Types of
        #{User := {UserType, false}, Subject := {SubjectType, false}} ->
            {{UserType, SubjectType},
             halley_postgres_identity:look(C, Oid, Spec, Publication,
                                           {Published, again(Spec, Publication)})};
        #{User := _, Subject := _} ->
            Generated = [Column || Column <- [User, Subject],
                                   element(2, maps:get(Column, Types))],
            {{<<"text">>, <<"text">>},
             [by_hand([halley_postgres_sql:table(Spec), ": PostgreSQL doesn't send generated "
                       "columns, as ", lists:join(" and ", Generated)])]};
        #{} ->
            Missing = [Column || Column <- [User, Subject], not is_map_key(Column, Types)],
            {{<<"text">>, <<"text">>},
             [by_hand([halley_postgres_sql:table(Spec), " has no column ",
                       lists:join(" and no column ", Missing)])]}
    end.

%% --- the table that is written -----------------------------------------------------------------

%% Not of a table without these columns.
written(C, User, #{writes := #{text := Text}},
        #{spec := #{text := Text}, findings := Findings} = Table) ->
    case are_for_a_person(Findings) of
        false -> Table#{writes := halley_postgres_writable:look(C, User, Table)};
        true -> Table
    end;
written(_, _, _, Table) ->
    Table.

%% --- publishing --------------------------------------------------------------------------------

publishing(C, User, Publication) ->
    {Outbox, Rejected} = halley_postgres_objects:oids(C),
    halley_postgres_functions:look(C, [publish, publish_to])
    ++ [finding("there is no table halley.outbox", halley_postgres_objects:outbox())
        || Outbox =:= null]
    ++ [finding("there is no table halley.rejected", halley_postgres_objects:rejected())
        || Rejected =:= null]
    ++ granted(C, User, Outbox, Rejected) ++ halley_postgres_objects:bounded(C, User, Rejected)
    ++ [finding(["the publication ", Publication, " doesn't have halley.outbox"],
                ["ALTER PUBLICATION ", halley_postgres_sql:ident(Publication),
                 " ADD TABLE halley.outbox"])
        || not is_published(C, Outbox, Publication)].

is_published(C, null, Publication) ->
    case halley_postgres_publication:look(C, Publication) of
        #{has_all := HasAll} -> HasAll;
        none -> false
    end;
is_published(C, Outbox, Publication) ->
    #{has := Has} = halley_postgres_publication:entry(C, Outbox, Publication),
    Has =/= none.

granted(C, User, Outbox, Rejected) when is_integer(Outbox), is_integer(Rejected) ->
    case rows(C, "SELECT has_schema_privilege($1, 'halley', 'usage') "
                 "AND has_table_privilege($1, $2::int8::oid, 'select') "
                 "AND has_table_privilege($1, $2::int8::oid, 'delete') "
                 "AND has_table_privilege($1, $3::int8::oid, 'select') "
                 "AND has_table_privilege($1, $3::int8::oid, 'insert')",
              [User, Outbox, Rejected]) of
        [{true}] -> [];
        [{_}] -> [grant(User)]
    end;
granted(_, User, _, _) -> [grant(User)].

grant(User) ->
    Role = halley_postgres_sql:ident(User),
    finding(["the role ", User, " may not clean halley.outbox, or write halley.rejected"],
            ["GRANT USAGE ON SCHEMA halley TO ", Role,
             "; GRANT SELECT, DELETE ON halley.outbox TO ", Role,
             "; GRANT SELECT, INSERT ON halley.rejected TO ", Role]).
