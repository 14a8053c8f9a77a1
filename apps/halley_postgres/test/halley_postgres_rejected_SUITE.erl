%% `halley.rejected' is bounded, and neither its bounds nor a lock on it ever stop the stream.
-module(halley_postgres_rejected_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    connect/1, sql/2, settings/2, begin_with/2, eventually/2, gauge/1, login/1, next/0, emit/2,
    rows/2]).

-define(OUTBOX, #{publish => outbox, follows => "", user => "poor"}).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [oldest_go, all_at_once, old_ones_go, more_than_one_statement_deletes, of_the_outbox_alone,
     without_the_right, without_the_table, locked_table, locked_row].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) ->
    ok = halley_limits:set(#{}),
    halley_postgres_test:end_per_testcase(Config).

bad(C, N) -> emit(C, ["bad ", integer_to_list(N)]).

kept(C) ->
    lists:sort([binary_to_integer(N) || {<<"bad ", N/binary>>}
                                            <- rows(C, "select content from halley.rejected")]).

deleted() -> gauge("halley_postgres_rejected_deleted_total").

look() -> whereis(halley_postgres_rejected) ! look.

good(C, N) ->
    emit(C, ["{\"subject\":\"7\",\"data\":", integer_to_list(N), "}"]),
    ?assertMatch(#{data := N}, next()).

%% One after the other, so that they are no batch.
oldest_go(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 20}),
    begin_with(Config, #{}),
    login(<<"7">>),
    [begin ok = bad(C, N), good(C, N) end || N <- lists:seq(1, 100)],
    eventually(true, fun() ->
        Kept = kept(C),
        length(Kept) =< 20 + 2 andalso Kept =:= lists:seq(deleted() + 1, 100)
    end),
    ?assertEqual(100, gauge("halley_postgres_rejected_total")).

all_at_once(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 20}),
    begin_with(Config, #{}),
    ok = sql(C, "select pg_logical_emit_message(true, 'halley', 'bad ' || n) "
                "from generate_series(1, 3000) n"),
    eventually(lists:seq(2981, 3000), fun() -> kept(C) end),
    eventually(2980, fun deleted/0).

old_ones_go(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_ms_max => 60000}),
    begin_with(Config, #{}),
    ok = sql(C, "insert into halley.rejected select 's' || n, '0/0', 'why', 'bad ' || n, "
                "now() - n * interval '20 s' from generate_series(1, 10) n"),
    look(),
    eventually([1, 2], fun() -> kept(C) end),
    ?assertEqual(8, deleted()).

%% From before there was a bound.
more_than_one_statement_deletes(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 3}),
    begin_with(Config, #{}),
    ok = sql(C, "insert into halley.rejected select 's' || n, '0/0', 'why', 'bad ' || n, "
                "now() - n * interval '1 s' from generate_series(1, 25000) n"),
    look(),
    eventually([1, 2, 3], fun() -> kept(C) end),
    ?assertEqual(24997, deleted()).

of_the_outbox_alone(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 2}),
    begin_with(Config, ?OUTBOX),
    ok = sql(C, "insert into halley.outbox (subject, data) select '', '1' "
                "from generate_series(1, 50)"),
    eventually([{<<"2">>}], fun() -> rows(C, "select count(*) from halley.rejected") end),
    ?assertEqual(48, deleted()).

%% As an older Halley's setup left it.
without_the_right(Config) ->
    C = ?config(c, Config),
    lists:foreach(fun(More) ->
        Poor = More#{user => "poor"},
        ok = sql(C, "alter role poor replication"),
        halley_postgres_test:set_up(Config, Poor),
        ok = sql(C, "revoke delete on halley.rejected from poor"),
        [#{what := What, sql := Sql}] = halley_postgres_command:check(C, settings(Config, Poor)),
        ?assertEqual(<<"the role poor may not keep halley.rejected within its bounds">>,
                     iolist_to_binary(What)),
        ok = halley_limits:set(#{postgres_rejected_max => 1}),
        halley_postgres_test:start_stream(Config, Poor),
        halley_postgres_test:streaming(),
        ok = sql(C, "insert into halley.outbox (subject, data) values ('', '1'), ('', '2'), "
                    "('', '3')"),
        eventually([{<<"3">>}], fun() -> rows(C, "select count(*) from halley.rejected") end),
        ok = sql(C, Sql),
        look(),
        eventually([{<<"1">>}], fun() -> rows(C, "select count(*) from halley.rejected") end),
        ?assertEqual(0, gauge("halley_postgres_failures_total")),
        halley_postgres_test:stop_stream(),
        ok = sql(C, "truncate halley.rejected")
    end, [#{follows => ""}, ?OUTBOX]).

without_the_table(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    ok = sql(C, "drop table halley.rejected"),
    look(),
    ok = bad(C, 1),
    good(C, 2),
    ?assertEqual({0, 0}, {gauge("halley_postgres_failures_total"), deleted()}).

%% Somebody empties it, and goes to lunch before the commit.
locked_table(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 2}),
    begin_with(Config, #{}),
    login(<<"7">>),
    Other = connect(Config),
    ok = sql(Other, "begin; truncate halley.rejected"),
    look(),
    [begin ok = bad(C, N), good(C, N) end || N <- [1, 2]],
    ?assertEqual(0, gauge("halley_postgres_failures_total")),
    ok = sql(Other, "commit"),
    ok = epgsql:close(Other),
    %% Which of the first two waited until here depends on the moment.
    ok = bad(C, 3),
    eventually(true, fun() -> lists:member(3, kept(C)) end),
    ?assertEqual(3, gauge("halley_postgres_rejected_total")).

%% What can't be deleted now is deleted later.
locked_row(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{postgres_rejected_max => 1}),
    begin_with(Config, #{}),
    login(<<"7">>),
    ok = bad(C, 1),
    eventually([1], fun() -> kept(C) end),
    Other = connect(Config),
    ok = sql(Other, "begin; select * from halley.rejected for update"),
    [begin ok = bad(C, N), good(C, N) end || N <- [2, 3]],
    eventually([1, 2, 3], fun() -> kept(C) end),
    ok = epgsql:close(Other),
    ok = bad(C, 4),
    eventually([4], fun() -> kept(C) end).
