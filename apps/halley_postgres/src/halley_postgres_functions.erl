%% The functions of the schema `halley': what `./halley postgres setup' makes of them, and which of
%% them are missing or aren't as it makes them, as those of an older Halley.
%%
%% Every role that may use the schema may call those that publish: they call
%% pg_logical_emit_message, which every role may. Only catalogs are read, so that a role that may
%% not use the schema gets the same answer.
-module(halley_postgres_functions).

-export([look/2]).
-export_type([name/0]).

-type name() :: publish | publish_to | outbox_wakes.
-type finding() :: halley_postgres_finding:finding().

%% Arguments and result as `pg_get_function_arguments' and `pg_get_function_result' write them.
-spec of_halley(name()) -> {Arguments :: iodata(), Types :: iodata(), Result :: iodata(),
                                Language :: iodata(), Body :: iodata()}.
of_halley(publish) ->
    {"subject text, data jsonb, id text DEFAULT NULL::text", "text, jsonb, text", "pg_lsn", "sql",
     message("'subject', subject")};
of_halley(publish_to) ->
    {"users text[], data jsonb, id text DEFAULT NULL::text", "text[], jsonb, text", "pg_lsn", "sql",
     message("'to', users")};
of_halley(outbox_wakes) ->
    {"", "", "trigger", "plpgsql",
     " BEGIN PERFORM pg_notify('halley_outbox', ''); RETURN NULL; END "}.

message(Whom) ->
    [" SELECT pg_logical_emit_message(true, 'halley', jsonb_build_object(", Whom,
     ", 'data', data, 'id', id)::text) "].

%% What mends each of these that isn't there, or is another.
-spec look(epgsql:connection(), [name()]) -> [finding()].
look(C, Functions) -> lists:append([looked(C, Function) || Function <- Functions]).

looked(C, Function) ->
    {Arguments, Types, Result, _, Body} = of_halley(Function),
    case epgsql:equery(C, "SELECT p.prosrc, pg_get_function_arguments(p.oid) = $3 "
                          "AND pg_get_function_result(p.oid) = $4 FROM pg_proc p "
                          "JOIN pg_namespace n ON n.oid = p.pronamespace "
                          "WHERE n.nspname = 'halley' AND p.proname = $1 "
                          "AND oidvectortypes(p.proargtypes) = $2",
                       [atom_to_binary(Function) | [iolist_to_binary(Text)
                                                    || Text <- [Types, Arguments, Result]]]) of
        {ok, _, []} ->
            [halley_postgres_finding:finding(["there is no function halley.",
                                              atom_to_list(Function)], made(Function))];
        {ok, _, [{Source, IsSame}]} ->
            case iolist_to_binary(Body) of
                Source when IsSame -> [];
                _ -> [other(Function, IsSame)]
            end;
        {error, Error} -> exit({query_failed, Error})
    end.

%% CREATE OR REPLACE changes no names of arguments, and no type of the result.
other(Function, IsSame) ->
    {_, Types, _, _, _} = of_halley(Function),
    Name = ["halley.", atom_to_list(Function)],
    halley_postgres_finding:finding(
        ["the function ", Name, " isn't the one that setup makes: it is an older Halley's, or was "
         "changed"],
        [[["DROP FUNCTION ", Name, "(", Types, "); "] || not IsSame], made(Function)]).

made(Function) ->
    {Arguments, _, Result, Language, Body} = of_halley(Function),
    ["CREATE SCHEMA IF NOT EXISTS halley; CREATE OR REPLACE FUNCTION halley.",
     atom_to_list(Function), "(", Arguments, ") RETURNS ", Result, " LANGUAGE ", Language, " AS $$",
     Body, "$$"].
