%% The schema `halley_cluster' in the cluster's PostgreSQL: what is in it, whether it is there, and
%% what mends it.
%%
%% `halley' is another schema, that of `halley_postgres', which may be in another database as well.
%% Both may be in one.
%%
%% Ids and values are bytea, so that no encoding of a database or a session can refuse or change
%% them; its order is that of the bytes. The log's tables take no autovacuum: their rows are only
%% inserted, and whole segments are truncated. Their bodies aren't compressed, and stay in the row
%% up to 8 kB.
%%
%% The functions are this Halley's, and are compared by their text (`halley_cluster_functions').
%% Tables are compared by their columns.
-module(halley_cluster_tables).

-export([install/1, missing/1, missing/2, version/0, tables/0]).

-export_type([finding/0]).

%% `run': SQL that `install' runs. `hand': a person has to decide. `warning': it works without.
-type finding() :: #{what := iodata(), sql := iodata(), how := run | hand | warning}.
-type table() :: #{name := string(), columns := [{string(), string()}], create := iodata(),
                   rights := [string()]}.

%% Of tables and functions together; brains of two versions can't share a log.
-define(VERSION, 1).
-define(OLDEST, 130000).
%% More than a round trip on a bad day.
-define(CLOCKS_MS, 1000).

-spec version() -> pos_integer().
version() -> ?VERSION.

-spec tables() -> [table()].
tables() ->
    [log(K) || K <- lists:seq(0, halley_cluster_functions:segments() - 1)]
    ++ [table("epochs", [{"n", "integer"}, {"store", "bigint"}, {"after", "bigint"},
                         {"stretch", "text"}], "PRIMARY KEY (n), UNIQUE (store)"),
        table("follows", [{"user_id", "bytea"}, {"subject", "bytea"}],
              "PRIMARY KEY (subject, user_id)"),
        table("kept", [{"subject", "bytea"}, {"seq", "bigint"}, {"at", "bigint"},
                       {"event", "bytea"}],
              "PRIMARY KEY (subject)"),
        table("keys", [{"id", "bytea"}, {"record", "bytea"}], "PRIMARY KEY (id)"),
        table("brains", [{"name", "text"}, {"address", "text"}, {"version", "integer"},
                         {"head", "bigint"}, {"seen", "bigint"}], "PRIMARY KEY (name)"),
        table("roles", [{"role", "text"}, {"brain", "text"}, {"term", "bigint"},
                        {"until", "timestamp with time zone"}], "PRIMARY KEY (role)"),
        table("positions", [{"consumer", "text"}, {"position", "bytea"}],
              "PRIMARY KEY (consumer)")].

log(K) ->
    Name = "log_" ++ integer_to_list(K),
    #{create := Create} = Log = table(Name,
        [{"lane", "smallint"}, {"prev", "bigint"}, {"last", "bigint"}, {"at", "bigint"},
         {"token", "bytea"}, {"next", "smallint"}, {"body", "bytea"}],
        "PRIMARY KEY (lane, prev), CHECK (last > prev)"),
    Log#{create := [Create, " WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off, "
                    "toast_tuple_target = 8160); ALTER TABLE halley_cluster.", Name,
                    " ALTER lane SET DEFAULT 0, ALTER next DROP NOT NULL, "
                    "ALTER body SET STORAGE EXTERNAL"],
         rights := ["select", "insert", "truncate"]}.

table(Name, Columns, Constraints) ->
    #{name => Name, columns => Columns,
      create => ["CREATE TABLE IF NOT EXISTS halley_cluster.", Name, " (",
                 [["\"", Column, "\" ", Type, " NOT NULL, "] || {Column, Type} <- Columns],
                 Constraints, ")"],
      rights => ["select", "insert", "update", "delete"]}.

%% Runs what `missing' finds, in one transaction, and returns what is left. Two at once wait for
%% each other. The connection's role will own the schema, if it isn't there.
-spec install(epgsql:connection()) -> {ok, Left :: [finding()]} | {error, epgsql:query_error()}.
install(C) ->
    ok = sql(C, "BEGIN"),
    try
        ok = sql(C, "SELECT pg_advisory_xact_lock(hashtext('halley_cluster'))"),
        _ = [ok = sql(C, Sql) || #{how := run, sql := Sql} <- missing(C)],
        ok = sql(C, "COMMIT"),
        {ok, missing(C)}
    catch
        exit:{query_failed, Error} ->
            _ = epgsql:squery(C, "ROLLBACK"),
            {error, Error}
    end.

%% For the role that this connection has.
-spec missing(epgsql:connection()) -> [finding()].
missing(C) ->
    [{Role}] = rows(C, "SELECT current_user::text", []),
    missing(C, Role).

%% For a role that brains will have. Ends by `{query_failed, #error{}}' when PostgreSQL can't
%% answer.
-spec missing(epgsql:connection(), Role :: binary()) -> [finding()].
missing(C, Role) ->
    case server(C) of
        [] -> schema(C) ++ missing_tables(C) ++ functions(C) ++ rights(C, Role) ++ warnings(C);
        Unfit -> Unfit
    end.

server(C) ->
    [{Version, IsStandby, IsReadOnly, Isolation}] = rows(C,
        "SELECT current_setting('server_version_num')::int4, pg_is_in_recovery(), "
        "current_setting('default_transaction_read_only')::bool, "
        "current_setting('default_transaction_isolation')", []),
    [by_hand("PostgreSQL is older than 13: the cluster's log needs a newer one")
     || Version < ?OLDEST]
    ++ [by_hand("this server is a standby: brains need the primary, or all hosts of which one is "
                "the primary") || IsStandby]
    ++ [by_hand("transactions of this role can't write: ALTER ROLE ... RESET "
                "default_transaction_read_only, or the same for the database") || IsReadOnly]
    ++ [by_hand(["transactions of this role are ", Isolation, ", and the log needs them read "
                 "committed: ALTER ROLE ... RESET default_transaction_isolation, or the same for "
                 "the database"]) || Isolation =/= <<"read committed">>].

schema(C) ->
    case rows(C, "SELECT FROM pg_namespace WHERE nspname = 'halley_cluster'", []) of
        [] -> [finding("there is no schema halley_cluster", "CREATE SCHEMA halley_cluster")];
        _ -> []
    end.

missing_tables(C) ->
    There = maps:from_list(rows(C,
        "SELECT c.relname::text, string_agg(a.attname || ' ' || format_type(a.atttypid, "
        "a.atttypmod), ', ' ORDER BY a.attnum) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE n.nspname = 'halley_cluster' AND c.relkind IN ('r', 'p') GROUP BY c.relname", [])),
    lists:append([missing_table(Table, There) || Table <- tables()])
    ++ [finding("halley_cluster.follows has no index on the user",
                "CREATE INDEX IF NOT EXISTS follows_user ON halley_cluster.follows "
                "(user_id, subject)")
        || {true} <- rows(C, "SELECT to_regclass('halley_cluster.follows_user') IS NULL", [])].

missing_table(#{name := Name, columns := Columns, create := Create}, There) ->
    Wanted = iolist_to_binary(lists:join(", ", [[Column, " ", Type] || {Column, Type} <- Columns])),
    case maps:find(list_to_binary(Name), There) of
        {ok, Wanted} -> [];
        {ok, Other} ->
            [by_hand(["the table halley_cluster.", Name, " has the columns ", Other, ", and this "
                      "Halley's has ", Wanted, ": it is another Halley's, or was changed"])];
        error -> [finding(["there is no table halley_cluster.", Name], Create)]
    end.

%% `version' tells a brain in one query whether the rest is as it knows it.
functions(C) ->
    There = maps:from_list(rows(C,
        "SELECT p.proname::text, p.prosrc || coalesce(obj_description(p.oid, 'pg_proc'), '') "
        "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'halley_cluster'", [])),
    lists:append([function(Function, There) || Function <- halley_cluster_functions:all()]
                 ++ [version(There)]).

function(#{name := Name, body := Body, create := Create}, There) ->
    Mark = mark(Create),
    Wanted = iolist_to_binary([Body, Mark]),
    Made = [Create, "; COMMENT ON FUNCTION halley_cluster.", Name, " IS '", Mark, "'"],
    case maps:find(list_to_binary(Name), There) of
        {ok, Wanted} -> [];
        {ok, _} ->
            [finding(["the function halley_cluster.", Name, " isn't the one that this Halley "
                      "makes: it is another Halley's, or was changed"],
                     ["DROP FUNCTION halley_cluster.", Name, "; ", Made])];
        error -> [finding(["there is no function halley_cluster.", Name], Made)]
    end.

%% Arguments and settings aren't in the source.
mark(Create) -> binary:encode_hex(erlang:md5(iolist_to_binary(Create))).

version(There) ->
    Body = iolist_to_binary([" SELECT ", integer_to_list(?VERSION), " "]),
    case There of
        #{<<"version">> := Body} -> [];
        #{} -> [finding("halley_cluster.version isn't this Halley's",
                        ["CREATE OR REPLACE FUNCTION halley_cluster.version() RETURNS int4 "
                         "LANGUAGE sql IMMUTABLE AS $$", Body, "$$"])]
    end.

%% Of what is there.
rights(C, Role) ->
    Quoted = ["\"", string:replace(Role, "\"", "\"\"", all), "\""],
    [finding(["the role ", Role, " may not use the schema halley_cluster"],
             ["GRANT USAGE ON SCHEMA halley_cluster TO ", Quoted])
     || {false} <- rows(C, "SELECT has_schema_privilege($1, oid, 'usage') FROM pg_namespace "
                           "WHERE nspname = 'halley_cluster'", [Role])]
    ++ [finding(["the role ", Role, " may not ", Right, " in halley_cluster.", Name],
                ["GRANT ", Right, " ON halley_cluster.", Name, " TO ", Quoted])
        || #{name := Name, rights := Rights} <- tables(), Right <- Rights,
           {false} <- rows(C, "SELECT has_table_privilege($1, c.oid, $2) FROM pg_class c "
                              "JOIN pg_namespace n ON n.oid = c.relnamespace "
                              "WHERE n.nspname = 'halley_cluster' AND c.relname = $3",
                           [Role, Right, Name])]
    ++ [finding(["the role ", Role, " may not call halley_cluster.", Name],
                ["GRANT EXECUTE ON FUNCTION halley_cluster.", Name, " TO ", Quoted])
        || {Name, false} <- rows(C,
               "SELECT p.proname::text, has_function_privilege($1, p.oid, 'execute') "
               "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
               "WHERE n.nspname = 'halley_cluster'", [Role])].

warnings(C) ->
    [{Standbys, Fsync}] = rows(C, "SELECT current_setting('synchronous_standby_names'), "
                                  "current_setting('fsync')::bool", []),
    [warning("fsync is off: a crash of the database's machine may lose acknowledged events, and "
             "the database with them") || not Fsync]
    ++ [warning("synchronous_standby_names is empty: after a failover to a standby acknowledged "
                "events may be missing. With standbys name them there, as in ALTER SYSTEM SET "
                "synchronous_standby_names = 'ANY 1 (standby1, standby2)'")
        || Standbys =:= <<>>]
    ++ [warning(["synchronous_standby_names is '", Standbys, "': with * each client that streams "
                 "counts as a standby, also one that keeps no copy. Name your standbys there"])
        || binary:match(Standbys, <<"*">>) =/= nomatch]
    ++ clocks(C).

%% Leases, `at' and retention are by PostgreSQL's clock; cursors and tokens are by the brain's.
clocks(C) ->
    Before = halley_clock:wall_ms(),
    [{There}] = rows(C, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::int8", []),
    After = halley_clock:wall_ms(),
    case max(Before - There, There - After) of
        Ms when Ms > ?CLOCKS_MS ->
            [warning(["this machine's clock and PostgreSQL's differ by ", integer_to_list(Ms),
                      " ms: let both be set by NTP"])];
        _ -> []
    end.

finding(What, Sql) -> #{what => What, sql => Sql, how => run}.

by_hand(What) -> #{what => What, sql => [], how => hand}.

warning(What) -> #{what => What, sql => [], how => warning}.

%% In one round trip, as a pooler may be between.
rows(C, Sql, Texts) ->
    Typed = [{text, Text} || Text <- Texts],
    case epgsql_sock:sync_command(C, halley_cluster_once, {Sql, Typed}) of
        {ok, Rows} -> Rows;
        {error, Error} -> exit({query_failed, Error})
    end.

sql(C, Sql) ->
    case [Error || {error, Error} <- lists:flatten([epgsql:squery(C, Sql)])] of
        [] -> ok;
        [Error | _] -> exit({query_failed, Error})
    end.
