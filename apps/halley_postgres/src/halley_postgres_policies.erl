%% Whether row security shows a table's rows to Halley's role, all of them, and lets it write any.
%%
%% A copy and later questions see what policies show, and the stream brings every row: so both must
%% be the same. It is so without row security; for roles that pass it; and where a policy for the
%% command is `true', and no restrictive one applies. Any other policy is the application's, and
%% isn't guessed at.
-module(halley_postgres_policies).

-export([hide/3, refuse/3]).

%% The role may not see some rows.
-spec hide(epgsql:connection(), User :: binary(), Table :: non_neg_integer()) -> boolean().
hide(C, User, Oid) -> are_in_the_way(C, User, Oid, [<<"r">>]).

%% It may not insert or delete some.
-spec refuse(epgsql:connection(), User :: binary(), Table :: non_neg_integer()) -> boolean().
refuse(C, User, Oid) -> are_in_the_way(C, User, Oid, [<<"r">>, <<"a">>, <<"d">>]).

-define(PASSES, "coalesce((SELECT rolsuper OR rolbypassrls "
    "OR NOT c.relforcerowsecurity AND pg_has_role(oid, c.relowner, 'usage') FROM pg_roles "
    "WHERE rolname = $1), false)").
%% Of a role that this one belongs to, or of all.
-define(APPLIES, "p.polrelid = c.oid AND p.polcmd::text IN ('*', command.name) "
    "AND EXISTS (SELECT FROM unnest(p.polroles) AS role(oid) "
    "WHERE role.oid = 0 OR pg_has_role($1, role.oid, 'usage'))").
%% A constant's text needs no table, and so no lock on one.
-define(IS_TRUE(Condition), "CASE WHEN " Condition "::text LIKE '{CONST %' "
    "THEN pg_get_expr(" Condition ", 0) = 'true' ELSE false END").
-define(ALLOWS, "CASE WHEN command.name = 'a' AND p.polwithcheck IS NOT NULL THEN "
    ?IS_TRUE("p.polwithcheck") " ELSE " ?IS_TRUE("p.polqual") " END").

are_in_the_way(C, User, Oid, Commands) ->
    case epgsql:equery(C,
            "SELECT c.relrowsecurity AND NOT " ?PASSES " AND EXISTS (SELECT "
            "FROM unnest($3::text[]) AS command(name) WHERE NOT EXISTS (SELECT FROM pg_policy p "
            "WHERE " ?APPLIES " AND p.polpermissive AND " ?ALLOWS ") "
            "OR EXISTS (SELECT FROM pg_policy p WHERE " ?APPLIES " AND NOT p.polpermissive)) "
            "FROM pg_class c WHERE c.oid = $2::int8::oid", [User, Oid, Commands]) of
        {ok, _, [{Are}]} -> Are;
        {error, Error} -> exit({query_failed, Error})
    end.
