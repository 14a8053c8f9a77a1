%% The objects that `./halley postgres setup' puts into the database, in the schema `halley',
%% besides its functions (`halley_postgres_functions'): the outbox, and the table of rejected
%% messages.
-module(halley_postgres_objects).

-export([oids/1, outbox/0, wakes/0, rejected/0, bounded/3]).

-type finding() :: halley_postgres_finding:finding().

%% Of both tables, where they are there. A role that may not use the schema may ask so.
-spec oids(epgsql:connection()) -> {Outbox, Rejected}
    when Outbox :: null | pos_integer(), Rejected :: null | pos_integer().
oids(C) ->
    case epgsql:equery(C, "SELECT max(c.oid::int8) FILTER (WHERE c.relname = 'outbox'), "
                          "max(c.oid::int8) FILTER (WHERE c.relname = 'rejected') "
                          "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                          "WHERE n.nspname = 'halley' AND c.relkind IN ('r', 'p')", []) of
        {ok, _, [Oids]} -> Oids;
        {error, Error} -> exit({query_failed, Error})
    end.

%% `event_id': the event's id; without one it is made of the row's.
-spec outbox() -> iodata().
outbox() ->
    "CREATE SCHEMA IF NOT EXISTS halley; CREATE TABLE IF NOT EXISTS halley.outbox ("
    "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, subject text NOT NULL, "
    "data jsonb NOT NULL, event_id text, created_at timestamptz NOT NULL DEFAULT now())".

%% Where no stream brings the rows. NOTIFY costs transactions that use it a common lock when they
%% commit, so it isn't there otherwise.
-spec wakes() -> iodata().
wakes() ->
    "CREATE OR REPLACE TRIGGER outbox_wakes AFTER INSERT ON halley.outbox FOR EACH STATEMENT "
    "EXECUTE FUNCTION halley.outbox_wakes()".

%% `source': the message's place, with its server and timeline, or the outbox's row, with when it
%% was made. What comes again has the same, and nothing else has.
-spec rejected() -> iodata().
rejected() ->
    "CREATE SCHEMA IF NOT EXISTS halley; CREATE TABLE IF NOT EXISTS halley.rejected ("
    "source text PRIMARY KEY, lsn pg_lsn NOT NULL, reason text NOT NULL, content text NOT NULL, "
    "rejected_at timestamptz NOT NULL DEFAULT now())".

%% The right to delete what `halley_postgres_rejected' finds too old, or too much. It is asked for
%% by itself: without it everything else goes on.
-spec bounded(epgsql:connection(), User :: binary(), Rejected :: null | pos_integer()) ->
    [finding()].
bounded(_, User, null) -> [may_delete(User)];
bounded(C, User, Rejected) ->
    case epgsql:equery(C, "SELECT has_table_privilege($1, $2::int8::oid, 'delete')",
                       [User, Rejected]) of
        {ok, _, [{true}]} -> [];
        {ok, _, [{_}]} -> [may_delete(User)];
        {error, Error} -> exit({query_failed, Error})
    end.

may_delete(User) ->
    halley_postgres_finding:finding(
        ["the role ", User, " may not keep halley.rejected within its bounds"],
        ["GRANT DELETE ON halley.rejected TO ", halley_postgres_sql:ident(User)]).
