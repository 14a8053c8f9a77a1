%% The needs of the outbox without a stream: two tables, a trigger, and rights on them. No
%% replication, no publication, no setting of the server.
-module(halley_postgres_outbox_needs).

-export([look/2]).

-import(halley_postgres_finding, [finding/2]).

-type finding() :: halley_postgres_finding:finding().

%% `notes': without the trigger rows are found once a second.
-spec look(epgsql:connection(), User :: binary()) ->
    #{findings := [finding()], notes := [finding()]}.
look(C, User) ->
    {Outbox, Rejected} = halley_postgres_objects:oids(C),
    Tables = [finding("there is no table halley.outbox", halley_postgres_objects:outbox())
              || Outbox =:= null]
        ++ [finding("there is no table halley.rejected", halley_postgres_objects:rejected())
            || Rejected =:= null],
    case Tables of
        [] -> #{findings => rights(C, User, Outbox, Rejected),
                notes => notes(C, User, Outbox, Rejected)};
        _ -> #{findings => Tables ++ [grant(User)], notes => notes(C, User, null, null)}
    end.

notes(C, User, Outbox, Rejected) ->
    wakes(C, Outbox) ++ halley_postgres_objects:bounded(C, User, Rejected).

wakes(C, Outbox) ->
    halley_postgres_functions:look(C, [outbox_wakes])
    ++ [finding("halley.outbox has no trigger that wakes Halley up",
                halley_postgres_objects:wakes()) || not has_trigger(C, Outbox)].

has_trigger(_, null) -> false;
has_trigger(C, Outbox) ->
    {ok, _, Triggers} = epgsql:equery(C,
        "SELECT 1 FROM pg_trigger WHERE tgrelid = $1::int8::oid AND tgname = 'outbox_wakes' "
        "AND tgenabled <> 'D'", [Outbox]),
    Triggers =/= [].

%% To lock a row for the time of its publishing takes the right to update it.
rights(C, User, Outbox, Rejected) ->
    {ok, _, [{May}]} = epgsql:equery(C,
        "SELECT has_schema_privilege($1, 'halley', 'usage') "
        "AND has_table_privilege($1, $2::int8::oid, 'select') "
        "AND has_table_privilege($1, $2::int8::oid, 'update') "
        "AND has_table_privilege($1, $2::int8::oid, 'delete') "
        "AND has_table_privilege($1, $3::int8::oid, 'select') "
        "AND has_table_privilege($1, $3::int8::oid, 'insert')", [User, Outbox, Rejected]),
    [grant(User) || not May].

grant(User) ->
    Role = halley_postgres_sql:ident(User),
    finding(["the role ", User, " may not take and delete rows of halley.outbox, or write "
             "halley.rejected"],
            ["GRANT USAGE ON SCHEMA halley TO ", Role,
             "; GRANT SELECT, UPDATE, DELETE ON halley.outbox TO ", Role,
             "; GRANT SELECT, INSERT ON halley.rejected TO ", Role]).
