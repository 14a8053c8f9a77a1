%% Settings of a database or a role for its sessions (ALTER DATABASE ... SET, ALTER ROLE ... SET)
%% don't concern Halley: the copy, the stream, writes of the API and events of transactions work as
%% ever, and ids are the same texts.
-module(halley_postgres_settings_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    server/1, sql/2, settings/2, set_up/2, start_stream/2, streaming/0, stop_stream/0, login/1,
    next/0, follows/1, gauge/1, rows/2, dropped_slot/1, eventually/2]).

%% Of which the copy takes longer than a statement may by the table below.
-define(ROWS, 30000).
-define(MORE, #{user => "strict", store_backend => postgres,
                follows => "public.follows(follower_id, followed_id); public.spans(a, b); "
                           "public.moments(a, b)"}).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [of_the_role, of_the_database, of_the_server_and_all_at_once, outbox_alone, ids_are_texts].

init_per_suite(Config) ->
    Config1 = halley_postgres_test:init_per_suite(Config),
    C = halley_postgres_test:connect(Config1),
    ok = sql(C, "create role strict login replication"),
    ok = epgsql:close(C),
    Config1.

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    ok = sql(?config(c, Config),
             "create table spans (a interval, b float8, primary key (a, b)); "
             "create table moments (a timestamptz, b bytea, primary key (a, b)); "
             %% What is found first where a path has it before pg_catalog.
             "create schema evil; grant usage on schema evil to public; "
             "create function evil.format(text, anyelement) returns text language sql as "
             "$$select 'evil'$$; create function evil.current_setting(text) returns text "
             "language sql as $$select 'evil'$$; "
             "create function evil.has_table_privilege(name, oid, text) returns boolean "
             "language sql as $$select false$$; "
             "alter table follows enable row level security; "
             "create policy halley on follows to strict using (true)"),
    [{name, "strict"} | Config].

end_per_testcase(_, Config) ->
    C = halley_postgres_test:connect(Config),
    ok = sql(C, "alter role strict reset all; alter database postgres reset all; "
                "drop schema evil cascade; drop owned by strict"),
    ok = epgsql:close(C),
    halley_postgres_test:end_per_testcase(Config).

%% Each was set by somebody to protect other sessions, or to see values in another way.
table() ->
    [{"statement_timeout", "'20ms'"}, {"lock_timeout", "'1ms'"},
     {"idle_session_timeout", "'100ms'"}, {"idle_in_transaction_session_timeout", "'20ms'"},
     {"wal_sender_timeout", "'100ms'"}, {"default_transaction_read_only", "on"},
     {"default_transaction_isolation", "serializable"}, {"default_transaction_deferrable", "on"},
     {"search_path", "evil, pg_catalog"}, {"search_path", "''"}, {"search_path", "nowhere"},
     {"standard_conforming_strings", "off"}, {"bytea_output", "escape"},
     {"DateStyle", "'German, DMY'"}, {"IntervalStyle", "iso_8601"}, {"extra_float_digits", "-10"},
     {"TimeZone", "'Asia/Tokyo'"}, {"client_encoding", "LATIN1"}, {"row_security", "off"},
     {"quote_all_identifiers", "on"}, {"client_min_messages", "debug5"},
     {"xmloption", "document"}, {"synchronous_commit", "remote_apply"}, {"array_nulls", "off"},
     {"transform_null_equals", "on"}, {"plan_cache_mode", "force_generic_plan"},
     {"work_mem", "'64kB'"}, {"client_connection_check_interval", "'10ms'"},
     %% From version 17 on.
     {"transaction_timeout", "'20ms'"}, {"event_triggers", "off"},
     {"restrict_nonsystem_relation_kind", "'view, foreign-table'"}].

%% What this server knows of them: some came with a version.
table(C) ->
    Known = [string:lowercase(Name) || {Name} <- rows(C, "select name from pg_settings")],
    [Each || {Name, _} = Each <- table(),
             lists:member(list_to_binary(string:lowercase(Name)), Known)].

of_the_role(Config) ->
    C = ?config(c, Config),
    [begin
         ok = sql(C, ["alter role strict set ", Name, " = ", Value]),
         all_works({Name, Value}, Config),
         ok = sql(C, "alter role strict reset all")
     end || {Name, Value} <- table(C)].

of_the_database(Config) ->
    C = ?config(c, Config),
    [begin
         ok = sql(C, ["alter database postgres set ", Name, " = ", Value]),
         all_works({Name, Value}, Config),
         ok = sql(C, "alter database postgres reset all")
     end || {Name, Value} <- table(C),
            lists:member(Name, ["statement_timeout", "idle_in_transaction_session_timeout",
                                "default_transaction_isolation", "row_security"])].

of_the_server_and_all_at_once(Config) ->
    C = ?config(c, Config),
    [ok = sql(C, ["alter role strict set ", Name, " = ", Value]) || {Name, Value} <- table(C)],
    ok = sql(C, "set idle_in_transaction_session_timeout = 0; "
                "set default_transaction_isolation = 'read committed'"),
    ok = sql(C, "alter system set idle_in_transaction_session_timeout = '20ms'"),
    ok = sql(C, "alter system set default_transaction_isolation = 'repeatable read'"),
    ok = sql(C, "select pg_reload_conf()"),
    all_works(all, Config),
    ok = sql(C, "alter system reset all"),
    ok = sql(C, "select pg_reload_conf()").

%% All by which Halley takes and gives something, and nothing of it has to be begun anew.
all_works(What, Config) ->
    ct:pal("~p", [What]),
    C = ?config(c, Config),
    ok = sql(C, ["truncate follows, spans, moments; insert into follows "
                 "select n, 1000000 from generate_series(1, ", integer_to_list(?ROWS), ") n"]),
    set_up(Config, ?MORE),
    {ok, Poor} = halley_postgres_connection:open(
        (map_get(server, settings(Config, ?MORE)))(), queries),
    ?assertEqual({What, []},
                 {What, halley_postgres_command:check(Poor, settings(Config, ?MORE))}),
    ok = epgsql:close(Poor),
    Failures = gauge("halley_postgres_failures_total"),
    start_stream(Config, ?MORE),
    streaming(),
    follows(#{<<"1">> => [<<"1000000">>], integer_to_binary(?ROWS) => [<<"1000000">>]}),
    login(<<"7">>),
    [begin
         ok = sql(C, io_lib:format("insert into follows values (7, ~b)", [N])),
         Numbers = [integer_to_binary(Each) || Each <- lists:seq(1, N)],
         follows(#{<<"7">> => [<<"1000000">> | Numbers]}),
         %% Somebody has the table meanwhile.
         ok = sql(C, "begin; lock table follows in exclusive mode"),
         Writer = spawn_link(fun() ->
             exit({wrote, halley:follow([{<<"9">>, integer_to_binary(N)}])})
         end),
         timer:sleep(150),
         ok = sql(C, "commit"),
         receive {'EXIT', Writer, Wrote} ->
             ?assertMatch({What, {wrote, {ok, #{added := 1}}}}, {What, Wrote})
         end,
         follows(#{<<"9">> => [<<"1000000">> | Numbers]}),
         ok = sql(C, io_lib:format("select halley.publish('~b', '~b'); insert into halley.outbox "
                                   "(subject, data) values ('~b', '-~b')", [N, N, N, N])),
         ?assertMatch([#{data := N}, #{data := M}] when M =:= -N, [next(), next()]),
         ok = sql(C, "select pg_logical_emit_message(true, 'halley', 'no event')"),
         eventually([{integer_to_binary(N)}],
                    fun() -> rows(C, "select count(*) from halley.rejected") end),
         eventually([], fun() -> rows(C, "select 1 from halley.outbox") end),
         %% A session that nobody uses for a while.
         timer:sleep(200)
     end || N <- [1, 2]],
    ?assertEqual({What, Failures}, {What, gauge("halley_postgres_failures_total")}),
    ok = sql(C, "truncate follows"),
    follows(#{<<"7">> => [], <<"9">> => []}),
    ok = halley:logout(self()),
    stop_stream(),
    dropped_slot(C),
    ok = sql(C, "truncate halley.rejected").

outbox_alone(Config) ->
    C = ?config(c, Config),
    Outbox = #{user => "strict", publish => outbox, follows => ""},
    [ok = sql(C, ["alter role strict set ", Name, " = ", Value]) || {Name, Value} <- table(C)],
    set_up(Config, Outbox),
    Failures = gauge("halley_postgres_failures_total"),
    start_stream(Config, Outbox),
    streaming(),
    {ok, _} = halley:follow([{<<"7">>, <<"x">>}]),
    login(<<"7">>),
    [begin
         ok = sql(C, ["insert into halley.outbox (subject, data) values ('x', '",
                      integer_to_list(N), "')"]),
         ?assertMatch(#{data := N}, next()),
         eventually([], fun() -> rows(C, "select 1 from halley.outbox") end),
         timer:sleep(200)
     end || N <- [1, 2, 3]],
    ?assertEqual(Failures, gauge("halley_postgres_failures_total")).

%% By the copy, by the stream, and by the question whether a pair is still there.
ids_are_texts(Config) ->
    C = ?config(c, Config),
    [ok = sql(C, ["alter role strict set ", Name, " = ", Value])
     || {Name, Value} <- table(C), Name =/= "search_path"],
    Values = "values ('1 day 02:00:00', 0.1::float8 + 0.2::float8)",
    ok = sql(C, ["insert into spans ", Values]),
    ok = sql(C, "insert into moments values ('2026-01-02 03:04:05+00', '\\x01ff')"),
    set_up(Config, ?MORE),
    start_stream(Config, ?MORE),
    streaming(),
    Span = #{<<"1 day 02:00:00">> => [<<"0.30000000000000004">>]},
    Moment = #{<<"2026-01-02 03:04:05+00">> => [<<"\\x01ff">>]},
    follows(Span),
    follows(Moment),
    ok = sql(C, "delete from spans; delete from moments"),
    follows(maps:map(fun(_, _) -> [] end, maps:merge(Span, Moment))),
    ok = sql(C, ["insert into spans ", Values]),
    ok = sql(C, "insert into moments values ('2026-01-02 03:04:05+00', '\\x01ff')"),
    follows(maps:merge(Span, Moment)).
