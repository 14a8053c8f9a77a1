%% What `./halley postgres setup' puts into the database, in the schema `halley': the functions that
%% publish, the outbox, and what was rejected.
%%
%% Everybody may call the functions who may use the schema: they call pg_logical_emit_message, which
%% everybody may.
-module(halley_postgres_objects).

-export([functions/0, outbox/0, wakes/0, rejected/0]).

-spec functions() -> iodata().
functions() ->
    "CREATE SCHEMA IF NOT EXISTS halley; "
    "CREATE OR REPLACE FUNCTION halley.publish(subject text, data jsonb, id text DEFAULT NULL) "
    "RETURNS pg_lsn LANGUAGE sql AS $$ SELECT pg_logical_emit_message(true, 'halley', "
    "jsonb_build_object('subject', subject, 'data', data, 'id', id)::text) $$; "
    "CREATE OR REPLACE FUNCTION halley.publish_to(users text[], data jsonb, id text DEFAULT NULL) "
    "RETURNS pg_lsn LANGUAGE sql AS $$ SELECT pg_logical_emit_message(true, 'halley', "
    "jsonb_build_object('to', users, 'data', data, 'id', id)::text) $$".

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
    "CREATE OR REPLACE FUNCTION halley.outbox_wakes() RETURNS trigger LANGUAGE plpgsql AS $$ "
    "BEGIN PERFORM pg_notify('halley_outbox', ''); RETURN NULL; END $$; "
    "CREATE TRIGGER outbox_wakes AFTER INSERT ON halley.outbox FOR EACH STATEMENT "
    "EXECUTE FUNCTION halley.outbox_wakes()".

%% `source': the message's place, with its server and timeline, or the outbox's row, with when it
%% was made. What comes again has the same, and nothing else has.
-spec rejected() -> iodata().
rejected() ->
    "CREATE SCHEMA IF NOT EXISTS halley; CREATE TABLE IF NOT EXISTS halley.rejected ("
    "source text PRIMARY KEY, lsn pg_lsn NOT NULL, reason text NOT NULL, content text NOT NULL, "
    "rejected_at timestamptz NOT NULL DEFAULT now())".
