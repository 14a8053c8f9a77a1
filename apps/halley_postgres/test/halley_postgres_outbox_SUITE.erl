%% Rows of halley.outbox without a stream, for a role that may not replicate; and those that are
%% there before a stream begins.
-module(halley_postgres_outbox_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    connect/1, server/1, sql/2, settings/2, set_up/2, start_stream/2, stop_stream/0, begin_with/2,
    streaming/0, worker/0, eventually/2, gauge/1, login/1, next/0, nothing_more/0, rows/2,
    dropped_slot/1, restarted/1, waits_for_a_standby/2]).

-compile([export_all, nowarn_export_all]).

-define(OUTBOX, #{publish => outbox, follows => "", user => "poor"}).
%% Beyond this a row was found by looking, and not by its NOTIFY.
-define(WOKEN_MS, 700).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [rows_are_published_and_deleted, what_is_missing_is_said, rejected_rows, order,
     row_that_somebody_has_locked, rows_that_come_again, killed_before_the_commit,
     rejected_row_that_comes_again, one_at_a_time, without_the_trigger, postgres_crash,
     rows_from_before_the_stream, row_that_comes_before_it_is_seen,
     rows_from_before_it_was_published, same_row_whatever_the_time_zone].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) ->
    Config1 = halley_postgres_test:init_per_testcase(Config),
    login(<<"7">>),
    Config1.

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

insert(C, Data) -> insert(C, "7", Data).

insert(C, Subject, Data) ->
    sql(C, ["insert into halley.outbox (subject, data) values ('", Subject, "', '", Data, "')"]).

data() -> maps:get(data, next()).

left(C) -> rows(C, "select id from halley.outbox").

empty(C) -> eventually([], fun() -> left(C) end).

rows_are_published_and_deleted(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    ?assertEqual([], rows(C, "select slot_name from pg_replication_slots")),
    ?assertEqual([{<<"f">>}], rows(C, "select rolreplication from pg_roles "
                                      "where rolname = 'poor'")),
    ok = sql(C, "begin; insert into halley.outbox (subject, data) values ('7', '{\"a\": 1.10}'); "
                "insert into halley.outbox (subject, data, event_id) values ('7', '2', 'two'); "
                "commit; begin; insert into halley.outbox (subject, data) values ('7', '3'); "
                "rollback"),
    ?assertMatch(#{id := <<"outbox-", _/binary>>, data := #{<<"a">> := 1.1}}, next()),
    ?assertMatch(#{id := <<"two">>, data := 2}, next()),
    empty(C),
    Times = [element(1, timer:tc(fun() -> ok = insert(C, integer_to_list(N)), N = data() end))
             || N <- lists:seq(10, 12)],
    ?assert(lists:min(Times) < ?WOKEN_MS * 1000),
    nothing_more(),
    ?assertEqual(5, gauge("halley_postgres_events_total")).

what_is_missing_is_said(Config) ->
    C = ?config(c, Config),
    Check = fun() ->
        [iolist_to_binary(What)
         || #{what := What} <- halley_postgres_command:check(C, settings(Config, ?OUTBOX))]
    end,
    ?assertEqual([<<"there is no table halley.outbox">>, <<"there is no table halley.rejected">>,
                  <<"the role poor may not take and delete rows of halley.outbox, or write "
                    "halley.rejected">>,
                  <<"there is no function halley.outbox_wakes">>,
                  <<"halley.outbox has no trigger that wakes Halley up">>,
                  <<"the role poor may not keep halley.rejected within its bounds">>], Check()),
    set_up(Config, ?OUTBOX),
    ?assertEqual([], Check()),
    ok = sql(C, "revoke update on halley.outbox from poor; drop trigger outbox_wakes "
                "on halley.outbox"),
    ?assertMatch([<<"the role poor may not", _/binary>>, <<"halley.outbox has no", _/binary>>],
                 Check()).

rejected_rows(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    Long = lists:duplicate(70000, $x),
    ok = insert(C, "", "1"),
    ok = insert(C, ["\"", Long, "\""]),
    ok = insert(C, lists:duplicate(1000, $s), "1"),
    ok = insert(C, [lists:duplicate(300, $[), "1", lists:duplicate(300, $])]),
    ok = insert(C, "\"good\""),
    ?assertEqual(<<"good">>, data()),
    empty(C),
    ?assertMatch([{<<"outbox 1-", _/binary>>, _},
                  {<<"outbox 2-", _/binary>>, <<"its data is too large">>},
                  {<<"outbox 3-", _/binary>>, _},
                  {<<"outbox 4-", _/binary>>, <<"its data is no JSON", _/binary>>}],
                 rows(C, "select source, reason from halley.rejected")),
    ?assertEqual([{<<"t">>}], rows(C, "select bool_and(octet_length(content) < 20000 "
                                      "and lsn > '0/0') from halley.rejected")),
    %% Where they can't be kept they are gone, and hold up nothing.
    ok = sql(C, "drop table halley.rejected"),
    ok = insert(C, "", "1"),
    ok = insert(C, "2"),
    ?assertEqual(2, data()),
    empty(C).

%% As the module's header says it.
order(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?OUTBOX),
    Other = connect(Config),
    ok = sql(C, "begin"),
    ok = insert(C, "\"begun first\""),
    ok = insert(Other, "\"committed first\""),
    start_stream(Config, ?OUTBOX),
    ?assertEqual(<<"committed first">>, data()),
    ok = sql(C, "commit"),
    ?assertEqual(<<"begun first">>, data()),
    stop_stream(),
    [ok = insert(lists:nth(N rem 2 + 1, [C, Other]), integer_to_list(N)) || N <- lists:seq(1, 500)],
    start_stream(Config, ?OUTBOX),
    ?assertEqual(lists:seq(1, 500), [data() || _ <- lists:seq(1, 500)]),
    nothing_more(),
    ok = epgsql:close(Other).

row_that_somebody_has_locked(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?OUTBOX),
    ok = insert(C, "1"),
    ok = insert(C, "2"),
    ok = sql(C, "begin; select from halley.outbox where data = '1' for update"),
    start_stream(Config, ?OUTBOX),
    ?assertEqual(2, data()),
    nothing_more(),
    ok = sql(C, "commit"),
    ?assertEqual(1, data()),
    empty(C).

rows_that_come_again(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    [begin
         [ok = insert(C, integer_to_list(Round * 100 + N)) || N <- lists:seq(1, 20)],
         exit(worker(), kill)
     end || Round <- lists:seq(1, 5)],
    ?assertEqual([Round * 100 + N || Round <- lists:seq(1, 5), N <- lists:seq(1, 20)],
                 [data() || _ <- lists:seq(1, 100)]),
    empty(C),
    nothing_more().

%% It is in the history, and its row is still there: to delete it takes long.
killed_before_the_commit(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    slow_deletes(C),
    ok = insert(C, "1"),
    ?assertEqual(1, data()),
    killed(C),
    ?assertMatch([_], left(C)),
    empty(C),
    nothing_more().

slow_deletes(C) ->
    sql(C, "create function slow() returns trigger language plpgsql as $$ begin "
           "perform pg_sleep(2); return old; end $$; create trigger slow "
           "before delete on halley.outbox for each row execute function slow()").

killed(C) ->
    exit(worker(), kill),
    ok = sql(C, "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'halley'; drop trigger slow on halley.outbox").

%% It has a number that another rejected row had.
rejected_row_that_comes_again(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    Kept = fun() -> rows(C, "select content from halley.rejected") end,
    ok = insert(C, "", "1"),
    eventually([{<<"1">>}], Kept),
    empty(C),
    ok = sql(C, "truncate halley.outbox restart identity"),
    slow_deletes(C),
    ok = insert(C, "", "2"),
    eventually([{<<"1">>}, {<<"2">>}], Kept),
    killed(C),
    empty(C),
    ?assertEqual([{<<"1">>}, {<<"2">>}], Kept()).

one_at_a_time(Config) ->
    C = ?config(c, Config),
    set_up(Config, ?OUTBOX),
    [{true}] = begin
        {ok, _, Rows} = epgsql:equery(C, "select pg_try_advisory_lock((1214344300::int8 << 32) "
                                         "| 'halley.outbox'::regclass::oid::int8)"),
        Rows
    end,
    start_stream(Config, ?OUTBOX),
    ok = insert(C, "1"),
    nothing_more(),
    ok = sql(C, "select pg_advisory_unlock_all()"),
    ?assertEqual(1, data()).

without_the_trigger(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    ok = sql(C, "drop trigger outbox_wakes on halley.outbox"),
    ok = insert(C, "1"),
    ?assertEqual(1, data()).

postgres_crash(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?OUTBOX),
    ok = insert(C, "1"),
    ?assertEqual(1, data()),
    Server = server(Config),
    ok = epgsql_test_server:crash(Server),
    restarted(Server),
    ok = insert(connect(Config), "2"),
    ?assertEqual(2, data()),
    nothing_more().

%% Nothing of them is in the stream: neither at the first start nor behind a lost slot.
rows_from_before_the_stream(Config) ->
    C = ?config(c, Config),
    set_up(Config, #{}),
    [ok = insert(C, integer_to_list(N)) || N <- lists:seq(1, 450)],
    ok = sql(C, "insert into follows values (7, 8)"),
    ok = insert(C, "8", "\"for a follower\""),
    start_stream(Config, #{}),
    ?assertEqual(lists:seq(1, 450), [data() || _ <- lists:seq(1, 450)]),
    ?assertEqual(<<"for a follower">>, data()),
    streaming(),
    ok = insert(C, "451"),
    ?assertEqual(451, data()),
    empty(C),
    stop_stream(),
    dropped_slot(C),
    ok = insert(C, "452"),
    start_stream(Config, #{}),
    ?assertEqual(452, data()),
    empty(C),
    nothing_more().

%% A delete that sees nothing deletes nothing.
row_that_comes_before_it_is_seen(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    waits_for_a_standby(C, "nobody"),
    Actor = halley_test_brain:spawn_actor(fun() -> insert(connect(Config), "1") end),
    ?assertEqual(1, data()),
    timer:sleep(500),
    ?assertEqual([], left(C)),
    waits_for_a_standby(C, ""),
    ok = halley_test_brain:join(Actor),
    empty(C),
    ok = insert(C, "2"),
    ?assertEqual(2, data()),
    empty(C).

rows_from_before_it_was_published(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{publish => off}),
    set_up(Config, #{}),
    ok = insert(C, "1"),
    nothing_more(),
    stop_stream(),
    start_stream(Config, #{}),
    ?assertEqual(1, data()),
    ok = insert(C, "2"),
    ?assertEqual(2, data()),
    empty(C),
    nothing_more().

%% The same row by the stream twice, then by a query: with the same id of its event.
same_row_whatever_the_time_zone(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    set_up(Config, ?OUTBOX),
    Row = "insert into halley.outbox (id, subject, data, created_at) overriding system value "
          "values (1000, '7', '1', '2026-01-02 03:04:05+00')",
    ok = sql(C, Row),
    ?assertMatch(#{data := 1}, next()),
    empty(C),
    ok = sql(C, "alter role current_user set timezone = 'Asia/Tokyo'; "
                "alter role current_user set datestyle = 'German'"),
    try
        exit(worker(), kill),
        ok = sql(C, Row),
        empty(C),
        stop_stream(),
        ok = sql(C, Row),
        start_stream(Config, maps:remove(user, ?OUTBOX)),
        empty(C),
        nothing_more()
    after
        sql(C, "alter role current_user reset timezone; alter role current_user reset datestyle")
    end.
