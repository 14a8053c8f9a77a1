%% `./halley postgres check' and `setup': settings of a server whose lack would only show later, and
%% objects of the schema `halley' that are there and wrong.
-module(halley_postgres_check_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    server/1, sql/2, settings/2, set_up/2, begin_with/2, stop_stream/0, gauge/1, login/1, next/0]).

-define(PLAIN, #{}).
-define(OUTBOX, #{publish => outbox, follows => "", user => "poor"}).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [replication_slots_used_up, slots_that_do, slot_of_something_else, wal_senders_used_up,
     functions_of_setup, function_of_the_trigger, schema_that_may_not_be_used].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

%% What is missing, with the SQL that mends it and how.
said(Config, More) ->
    [{iolist_to_binary(What), iolist_to_binary(Sql), How}
     || #{what := What, sql := Sql, how := How}
            <- halley_postgres_command:check(?config(c, Config), settings(Config, More))].

slots(C, Numbers) ->
    [ok = sql(C, io_lib:format("select pg_create_physical_replication_slot('other_~b')", [N]))
     || N <- Numbers].

%% The server of the suite has 8 of each.
replication_slots_used_up(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?PLAIN),
    slots(C, lists:seq(1, 8)),
    ?assertEqual([{<<"max_replication_slots is 8, of which 8 are taken, and Halley needs 2 more; "
                     "nobody streams from other_1, other_2, other_3, other_4, other_5, other_6, "
                     "other_7, other_8">>,
                   <<"ALTER SYSTEM SET max_replication_slots = 10">>, restart}],
                 said(Config, ?PLAIN)),
    %% Without tables there is no copy.
    ?assertMatch([{<<"max_replication_slots is 8, of which 8 are taken, and Halley needs 1 ",
                     _/binary>>, _, restart}], said(Config, #{follows => ""})),
    %% Nor is there a slot without a stream.
    ?assertEqual([], [What || {What, _, restart} <- said(Config, ?OUTBOX)]),
    ok = sql(C, "select pg_drop_replication_slot('other_1')"),
    ?assertMatch([{<<"max_replication_slots is 8, of which 7 are taken, and Halley needs 2 ",
                     _/binary>>, <<"ALTER SYSTEM SET max_replication_slots = 9">>, restart}],
                 said(Config, ?PLAIN)),
    ?assertEqual([], said(Config, #{follows => ""})),
    ok = sql(C, "select pg_drop_replication_slot('other_2')"),
    ?assertEqual([], said(Config, ?PLAIN)).

%% A slot that is there needs no other; what is left may be too little for a copy anew.
slots_that_do(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?PLAIN),
    slots(C, lists:seq(1, 6)),
    ?assertEqual([], said(Config, ?PLAIN)),
    slots(C, [7]),
    ?assertMatch([{<<"max_replication_slots is 8, of which 8 are taken, and Halley needs 1 more",
                     _/binary>>, <<"ALTER SYSTEM SET max_replication_slots = 9">>, restart}],
                 said(Config, ?PLAIN)),
    ?assertEqual([], said(Config, #{follows => ""})).

slot_of_something_else(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?PLAIN),
    ok = sql(C, "select pg_create_physical_replication_slot('halley')"),
    ?assertEqual([{<<"the slot halley isn't one of pgoutput: set postgres.slot">>, <<>>, hand}],
                 said(Config, ?PLAIN)),
    ok = sql(C, "select pg_drop_replication_slot('halley')"),
    ok = sql(C, "create database elsewhere"),
    {ok, There} = epgsql:connect(epgsql_test_server:options(server(Config),
                                                            #{database => "elsewhere"})),
    ok = sql(There, "select pg_create_logical_replication_slot('halley', 'pgoutput')"),
    ?assertEqual([{<<"the slot halley is for another database: set postgres.slot">>, <<>>, hand}],
                 said(Config, ?PLAIN)),
    ok = sql(There, "select pg_drop_replication_slot('halley')"),
    ok = epgsql:close(There),
    ok = sql(C, "drop database elsewhere with (force)").

wal_senders_used_up(Config) ->
    set_up(Config, ?PLAIN),
    Options = epgsql_test_server:options(server(Config), #{replication => "database"}),
    Senders = [begin {ok, R} = epgsql:connect(Options), R end || _ <- lists:seq(1, 8)],
    ?assertEqual([{<<"max_wal_senders is 8, of which 8 are taken, and Halley needs 1 more">>,
                   <<"ALTER SYSTEM SET max_wal_senders = 9">>, restart}], said(Config, ?PLAIN)),
    [ok = epgsql:close(R) || R <- Senders],
    halley_postgres_test:eventually([], fun() -> said(Config, ?PLAIN) end),
    %% The stream has the last one.
    begin_with(Config, ?PLAIN),
    More = [begin {ok, R} = epgsql:connect(Options), R end || _ <- lists:seq(1, 7)],
    ?assertEqual([], said(Config, ?PLAIN)),
    [ok = epgsql:close(R) || R <- More],
    stop_stream().

%% Each is made right by what is said, and by nothing else than that.
functions_of_setup(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?PLAIN),
    ?assertEqual([], said(Config, ?PLAIN)),
    lists:foreach(fun({Broken, Name, Is}) ->
        ok = sql(C, Broken),
        [{What, Sql, run}] = said(Config, ?PLAIN),
        ?assertEqual({Broken, case Is of
            missing -> <<"there is no function halley.", Name/binary>>;
            other -> <<"the function halley.", Name/binary, " isn't the one that setup makes: it "
                       "is an older Halley's, or was changed">>
        end}, {Broken, What}),
        ok = sql(C, Sql),
        ?assertEqual({Broken, []}, {Broken, said(Config, ?PLAIN)})
    end, [{"drop function halley.publish", <<"publish">>, missing},
          {"drop function halley.publish_to", <<"publish_to">>, missing},
          {"create or replace function halley.publish(subject text, data jsonb, id text default "
           "null) returns pg_lsn language sql as 'select null::pg_lsn'", <<"publish">>, other},
          {"create or replace function halley.publish_to(users text[], data jsonb, id text default "
           "null) returns pg_lsn language sql as 'select null::pg_lsn'", <<"publish_to">>, other},
          {"drop function halley.publish; create function halley.publish(s text, d jsonb, i text) "
           "returns void language sql as 'select'", <<"publish">>, other}]),
    begin_with(Config, ?PLAIN),
    login(<<"7">>),
    ok = sql(C, "select halley.publish('7', '1'); select halley.publish_to(array['7'], '2')"),
    ?assertMatch([#{data := 1}, #{data := 2, private := true}], [next(), next()]).

function_of_the_trigger(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?OUTBOX),
    lists:foreach(fun({Broken, Expected}) ->
        ok = sql(C, Broken),
        [{What, Sql, run}] = said(Config, ?OUTBOX),
        ?assertEqual({Broken, Expected}, {Broken, What}),
        ok = sql(C, Sql),
        ?assertEqual({Broken, []}, {Broken, said(Config, ?OUTBOX)})
    end, [{"create or replace function halley.outbox_wakes() returns trigger language plpgsql as "
           "'begin return null; end'",
           <<"the function halley.outbox_wakes isn't the one that setup makes: it is an older "
             "Halley's, or was changed">>},
          {"alter table halley.outbox disable trigger outbox_wakes",
           <<"halley.outbox has no trigger that wakes Halley up">>},
          {"drop trigger outbox_wakes on halley.outbox",
           <<"halley.outbox has no trigger that wakes Halley up">>}]).

%% The role of `check' is Halley's own, which may not look into the schema before it is let.
schema_that_may_not_be_used(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "alter role poor replication"),
    [begin
         Settings = settings(Config, More#{user => "poor"}),
         {[_ | _], ok} = halley_postgres_command:setup(C, Settings, 4),
         ok = sql(C, "revoke usage on schema halley from poor"),
         {ok, Poor} = epgsql:connect(epgsql_test_server:options(server(Config),
                                                                #{username => "poor"})),
         ?assertMatch([#{what := ["the role ", <<"poor">>, " may not" ++ _]}],
                      halley_postgres_command:check(Poor, Settings)),
         ok = epgsql:close(Poor)
     end || More <- [#{follows => ""}, ?OUTBOX]].
