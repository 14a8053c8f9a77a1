%% A brain with a real PostgreSQL: follows out of tables, events out of transactions, and the fate
%% of both when one of them ends, is cut off or has lost something.
-module(halley_postgres_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    connect/1, server/1, sql/2, settings/2, set_up/2, start_stream/1, start_stream/2,
    stop_stream/0, begin_with/2, streaming/0, worker/0, eventually/2, following/1, follows/1,
    gauge/1, login/1, next/0, nothing_more/0, emit/2, dropped_slot/1, restarted/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [table_is_copied_and_followed, copy_of_many_slices, changes_of_other_kinds,
     ids_beside_a_large_value,
     follows_of_the_api_stay, ids_that_are_none, pair_that_other_rows_have, filter,
     changes_while_halley_is_away, lost_slot, table_that_is_not_configured_any_more,
     renamed_column, postgres_crash, cut_connection, copy_that_was_killed,
     file_of_pairs_is_bounded, events_in_the_order_of_commits, events_that_come_again,
     rejected_events, outbox, events_survive_a_lost_table, what_is_missing_is_said].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

%% --- follows -----------------------------------------------------------------------------------

table_is_copied_and_followed(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows select n, n % 7 + 1000 from generate_series(1, 500) n"),
    begin_with(Config, #{}),
    eventually(500, fun halley_follows:count/0),
    follows(#{<<"1">> => [<<"1001">>], <<"14">> => [<<"1000">>]}),
    ok = sql(C, "insert into follows values (1, 2), (1, 3)"),
    follows(#{<<"1">> => [<<"1001">>, <<"2">>, <<"3">>]}),
    ok = sql(C, "delete from follows where follower_id = 1 and followed_id = 1001"),
    follows(#{<<"1">> => [<<"2">>, <<"3">>]}),
    ?assertEqual(1, gauge("halley_postgres_streaming")).

%% With rows that are none in between; that the file of pairs has all of them shows when they go.
copy_of_many_slices(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table names (a text, b text); alter table names replica identity full; "
                "insert into names select case when n % 10000 = 0 then '' else n::text end, "
                "'s' || n % 1000 from generate_series(1, 110000) n"),
    {ok, _} = halley:follow([{<<"1">>, <<"api">>}]),
    begin_with(Config, #{follows => "names(a, b)"}),
    ?assertEqual(110000 - 11 + 1, halley_follows:count()),
    ?assertEqual(11, gauge("halley_postgres_follows_refused_total")),
    follows(#{<<"1">> => [<<"api">>, <<"s1">>], <<"109999">> => [<<"s999">>]}),
    ok = sql(C, "truncate names"),
    eventually(1, fun halley_follows:count/0),
    follows(#{<<"1">> => [<<"api">>]}).

changes_of_other_kinds(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ok = sql(C, "insert into follows values (1, 2)"),
    follows(#{<<"1">> => [<<"2">>]}),
    ok = sql(C, "update follows set note = 'of no concern'"),
    ok = sql(C, "update follows set followed_id = 3"),
    follows(#{<<"1">> => [<<"3">>]}),
    ok = sql(C, "begin; delete from follows; insert into follows values (1, 3), (1, 4); commit"),
    follows(#{<<"1">> => [<<"3">>, <<"4">>]}),
    ok = sql(C, "begin; insert into follows values (5, 6); rollback"),
    ok = sql(C, "begin; truncate follows; insert into follows values (1, 9); commit"),
    follows(#{<<"1">> => [<<"9">>], <<"5">> => []}).

%% PostgreSQL keeps them out of line then, and an update that leaves them as they are doesn't send
%% them. The old row has them, with this replica identity.
ids_beside_a_large_value(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table large (a text, b text, note text, n int); "
                "alter table large replica identity full; "
                "alter table large set (toast_tuple_target = 128); "
                "alter table large alter a set storage external, alter b set storage external, "
                "alter note set storage external; "
                "insert into large values (repeat('a', 200), repeat('b', 200), repeat('x', 9000))"),
    [A, B, D] = [binary:copy(Letter, 200) || Letter <- [<<"a">>, <<"b">>, <<"d">>]],
    begin_with(Config, #{follows => "large(a, b)"}),
    follows(#{A => [B]}),
    ok = sql(C, "update large set n = 1; insert into large values ('1', '2')"),
    follows(#{<<"1">> => [<<"2">>]}),
    ?assertEqual([B], following(A)),
    ok = sql(C, "update large set b = repeat('d', 200) where a <> '1'"),
    follows(#{A => [D]}),
    ?assertEqual(0, gauge("halley_postgres_follows_refused_total")).

follows_of_the_api_stay(Config) ->
    C = ?config(c, Config),
    {ok, _} = halley:follow([{<<"1">>, <<"api">>}]),
    ok = sql(C, "insert into follows values (1, 2)"),
    begin_with(Config, #{}),
    follows(#{<<"1">> => [<<"2">>, <<"api">>]}),
    ok = sql(C, "truncate follows"),
    follows(#{<<"1">> => [<<"api">>]}).

ids_that_are_none(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table names (a text, b text, unique (a, b)); "
                "alter table names replica identity full; "
                "insert into names values (null, 'x'), ('', 'x'), (E'a\\tb', 'x'), "
                "(repeat('x', 300), 'x'), (E'back\\\\slash', 'x'), ('ann', 'ann')"),
    begin_with(Config, #{follows => "names(a, b)"}),
    follows(#{<<"back\\slash">> => [<<"x">>]}),
    ok = sql(C, "insert into names values (null, 'y'), ('bob', 'y')"),
    follows(#{<<"bob">> => [<<"y">>]}),
    ?assertEqual(2, halley_follows:count()).

%% Rows of the same table, and of another one.
pair_that_other_rows_have(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table likes (id int primary key, who text, what text); "
                "alter table likes replica identity full; "
                "insert into likes values (1, '1', '2'), (2, '1', '2'), (3, '1', 'x'); "
                "insert into follows values (1, 2), (1, 3)"),
    begin_with(Config, #{follows => "follows(follower_id, followed_id); likes(who, what)"}),
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"x">>]}),
    ok = sql(C, "delete from follows"),
    follows(#{<<"1">> => [<<"2">>, <<"x">>]}),
    ok = sql(C, "delete from likes where id = 1"),
    ok = sql(C, "delete from likes where id = 3"),
    follows(#{<<"1">> => [<<"2">>]}),
    ok = sql(C, "truncate likes"),
    follows(#{<<"1">> => []}).

filter(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table f (a int, b int, ok bool, primary key (a, b)); "
                "alter table f replica identity full; "
                "insert into f values (1, 2, true), (1, 3, false)"),
    begin_with(Config, #{follows => "f(a, b) where (ok and b > 0)"}),
    follows(#{<<"1">> => [<<"2">>]}),
    ok = sql(C, "update f set ok = not ok"),
    follows(#{<<"1">> => [<<"3">>]}),
    ok = sql(C, "insert into f values (1, -1, true), (1, 5, true)"),
    follows(#{<<"1">> => [<<"3">>, <<"5">>]}).

changes_while_halley_is_away(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ok = sql(C, "insert into follows values (1, 2), (1, 3)"),
    follows(#{<<"1">> => [<<"2">>, <<"3">>]}),
    stop_stream(),
    ok = sql(C, "delete from follows where followed_id = 2; insert into follows values (1, 4)"),
    start_stream(Config),
    follows(#{<<"1">> => [<<"3">>, <<"4">>]}),
    %% It went on; it didn't copy.
    ?assertEqual(1, gauge("halley_postgres_copies_total")).

lost_slot(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows select 1, n from generate_series(2, 2000) n"),
    begin_with(Config, #{}),
    {ok, _} = halley:follow([{<<"1">>, <<"api">>}]),
    eventually(2000, fun halley_follows:count/0),
    ok = sql(C, "insert into follows values (1, 3000)"),
    eventually(2001, fun halley_follows:count/0),
    stop_stream(),
    dropped_slot(C),
    ok = sql(C, "delete from follows where followed_id > 10; insert into follows values (5, 6)"),
    start_stream(Config),
    follows(#{<<"5">> => [<<"6">>], <<"1">> => [<<"api">> | [integer_to_binary(N)
                                                             || N <- lists:seq(2, 10)]]}),
    ok = sql(C, "insert into follows values (7, 8)"),
    follows(#{<<"7">> => [<<"8">>]}),
    ?assertEqual(1, gauge("halley_postgres_losses_total")).

table_that_is_not_configured_any_more(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table more (a int, b int, primary key (a, b)); "
                "insert into follows values (1, 2), (1, 3); "
                "insert into more values (1, 3), (1, 4)"),
    begin_with(Config, #{follows => "follows(follower_id, followed_id); more(a, b)"}),
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"4">>]}),
    stop_stream(),
    start_stream(Config, #{follows => "more(a, b)"}),
    follows(#{<<"1">> => [<<"3">>, <<"4">>]}),
    ok = sql(C, "insert into more values (1, 5)"),
    follows(#{<<"1">> => [<<"3">>, <<"4">>, <<"5">>]}).

%% It stops that table, and the other one goes on.
renamed_column(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table more (a int, b int, primary key (a, b)); "
                "insert into follows values (1, 2)"),
    More = #{follows => "follows(follower_id, followed_id); more(a, b)"},
    begin_with(Config, More),
    follows(#{<<"1">> => [<<"2">>]}),
    ok = sql(C, "alter table follows rename followed_id to subject_id; "
                "delete from follows; insert into follows values (1, 3); "
                "insert into more values (9, 9), (9, 8)"),
    follows(#{<<"9">> => [<<"8">>], <<"1">> => [<<"2">>]}),
    ?assertEqual(1, gauge("halley_postgres_tables_stopped")),
    ok = sql(C, "alter table follows rename subject_id to followed_id"),
    worker() ! look,
    follows(#{<<"1">> => [<<"3">>]}),
    ?assertEqual(0, gauge("halley_postgres_tables_stopped")).

postgres_crash(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ok = sql(C, "insert into follows values (1, 2)"),
    follows(#{<<"1">> => [<<"2">>]}),
    Server = server(Config),
    ok = epgsql_test_server:crash(Server),
    ?assertEqual([<<"2">>], following(<<"1">>)),
    restarted(Server),
    C2 = connect(Config),
    ok = sql(C2, "insert into follows values (1, 3)"),
    follows(#{<<"1">> => [<<"2">>, <<"3">>]}).

cut_connection(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ok = sql(C, "insert into follows values (1, 2)"),
    follows(#{<<"1">> => [<<"2">>]}),
    [begin
         ok = sql(C, "select pg_terminate_backend(pid) from pg_stat_activity "
                     "where application_name = 'halley'"),
         ok = sql(C, ["insert into follows values (1, ", integer_to_list(N), ")"])
     end || N <- [3, 4, 5]],
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"4">>, <<"5">>]}).

%% What a copy had brought before it was killed, and whose rows are gone since.
copy_that_was_killed(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows select n, 1000000 from generate_series(1, 300000) n"),
    set_up(Config, #{}),
    start_stream(Config),
    eventually(true, fun() -> halley_follows:count() > 0 end),
    exit(worker(), kill),
    ok = sql(C, "delete from follows where follower_id <= 299990"),
    eventually(10, fun halley_follows:count/0),
    follows(#{<<"1">> => [], <<"299991">> => [<<"1000000">>]}).

%% What it says doesn't change: what is gone is known after a lost slot.
file_of_pairs_is_bounded(Config) ->
    C = ?config(c, Config),
    ok = application:set_env(halley_postgres, compact_bytes, 2000),
    begin_with(Config, #{}),
    [ok = sql(C, io_lib:format("insert into follows select 1, n from generate_series(~b, ~b) n; "
                               "delete from follows where followed_id > 10",
                               [Round * 100, Round * 100 + 99])) || Round <- lists:seq(2, 40)],
    ok = sql(C, "insert into follows values (1, 7), (1, 8)"),
    follows(#{<<"1">> => [<<"7">>, <<"8">>]}),
    Wildcard = filename:join([?config(dir, Config), "postgres", "pairs-*"]),
    eventually(true, fun() ->
        case filelib:wildcard(Wildcard) of
            [File] -> filelib:file_size(File) < 10000;
            _ -> false
        end
    end),
    stop_stream(),
    ok = application:unset_env(halley_postgres, compact_bytes),
    dropped_slot(C),
    ok = sql(C, "delete from follows where followed_id = 7"),
    start_stream(Config),
    follows(#{<<"1">> => [<<"8">>]}).

%% --- events ------------------------------------------------------------------------------------

events_in_the_order_of_commits(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    ok = sql(C, "begin; select halley.publish('x', '1'); rollback"),
    %% The follow of the same transaction is in force for its event.
    ok = sql(C, "begin; insert into follows values (7, 8); "
                "select halley.publish('8', '{\"n\": 1.10}', 'first'); "
                "select halley.publish('9', '\"for nobody\"'); commit"),
    emit(C, <<"{\"subject\":\"8\",\n \"data\":{\"n\":2,\"z\":[1e2]}}">>),
    ?assertMatch(#{id := <<"first">>, subject := <<"8">>, data := #{<<"n">> := 1.1}}, next()),
    ?assertMatch(#{id := <<"pg-", _/binary>>, data := #{<<"n">> := 2}}, next()),
    ok = sql(C, "begin; delete from follows; select halley.publish('8', '4'); "
                "select halley.publish_to(array['7'], '3', 'private'); commit"),
    ?assertMatch(#{id := <<"private">>, private := true, data := 3}, next()),
    nothing_more().

%% After a kill the stream begins behind what was saved: ids tell what was published.
events_that_come_again(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    [begin
         [ok = sql(C, ["select halley.publish('7', '", integer_to_list(Round * 100 + N), "')"])
          || N <- lists:seq(1, 20)],
         exit(worker(), kill)
     end || Round <- lists:seq(1, 5)],
    ?assertEqual([Round * 100 + N || Round <- lists:seq(1, 5), N <- lists:seq(1, 20)],
                 [maps:get(data, next()) || _ <- lists:seq(1, 100)]),
    nothing_more().

rejected_events(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    Bad = [<<"no json">>, <<"[]">>, <<"{\"data\":1}">>, <<"{\"subject\":\"7\"}">>,
           <<"{\"subject\":7,\"data\":1}">>, <<"{\"subject\":\"\",\"data\":1}">>,
           <<"{\"subject\":\"7\",\"data\":1,\"idd\":\"x\"}">>,
           <<"{\"subject\":\"7\",\"data\":1,\"data\":2}">>,
           <<"{\"subject\":\"7\",\"data\":\"", (binary:copy(<<"x">>, 100000))/binary, "\"}">>,
           <<"{\"subject\":\"7\",\"data\":", (binary:copy(<<"[">>, 400))/binary, "1",
             (binary:copy(<<"]">>, 400))/binary, "}">>,
           <<"{\"to\":[],\"data\":1}">>],
    [emit(C, Each) || Each <- Bad],
    ok = sql(C, "select pg_logical_emit_message(true, 'halley', '\\xff00'::bytea)"),
    ok = sql(C, "select pg_logical_emit_message(true, 'other', 'not for Halley')"),
    emit(C, <<"{\"subject\":\"7\",\"data\":\"good\",\"id\":null}">>),
    ?assertMatch(#{data := <<"good">>}, next()),
    Rejected = fun() ->
        {ok, _, Rows} = epgsql:equery(C, "select reason, content from halley.rejected "
                                         "order by lsn"),
        Rows
    end,
    eventually(length(Bad) + 1, fun() -> length(Rejected()) end),
    Kept = Rejected(),
    ?assertEqual([<<"it is not JSON">>, <<"it is JSON, but not an object">>,
                  <<"it has no subject">>, <<"it has no data">>, <<"its subject is no text">>,
                  <<"an id is empty, too long, or has control characters">>,
                  <<"unknown member idd">>, <<"member data is there twice">>,
                  <<"its data is too large">>,
                  <<"its data has too many arrays and objects in one another">>,
                  <<"to isn't a list of users, or too long a one">>, <<"it is not JSON">>],
                 [Reason || {Reason, _} <- Kept]),
    ?assertEqual({<<"it is not JSON">>, <<"\\xFF00">>}, lists:last(Kept)),
    ?assertEqual(12, gauge("halley_postgres_rejected_total")).

outbox(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    ok = sql(C, "begin; insert into halley.outbox (subject, data) values ('7', '{\"a\": 1}'); "
                "insert into halley.outbox (subject, data, event_id) values ('7', '2', 'two'); "
                "insert into halley.outbox (subject, data) values ('', '3'); commit"),
    ?assertMatch(#{id := <<"outbox-", _/binary>>, data := #{<<"a">> := 1}}, next()),
    ?assertMatch(#{id := <<"two">>, data := 2}, next()),
    eventually({ok, [{<<"0">>}]}, fun() ->
        {ok, _, Rows} = epgsql:squery(C, "select count(*) from halley.outbox"),
        {ok, Rows}
    end),
    Kept = fun() ->
        lists:sort(halley_postgres_test:rows(C, "select source, content from halley.rejected"))
    end,
    ?assertMatch([{<<"outbox 3-", _/binary>>, <<"3">>}], Kept()),
    nothing_more(),
    %% A number that is given again is another row, whatever it has.
    ok = sql(C, "truncate halley.outbox restart identity; "
                "insert into halley.outbox (subject, data) values ('', '1'), ('', '4'), ('', '3')"),
    eventually(4, fun() -> length(Kept()) end),
    ?assertMatch([{<<"outbox 1-", _/binary>>, <<"1">>}, {<<"outbox 2-", _/binary>>, <<"4">>},
                  {<<"outbox 3-", _/binary>>, <<"3">>}, {<<"outbox 3-", _/binary>>, <<"3">>}],
                 Kept()).

%% A table that can't be followed holds up no events.
events_survive_a_lost_table(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    ok = sql(C, "insert into follows values (7, 1)"),
    follows(#{<<"7">> => [<<"1">>]}),
    ok = sql(C, "drop table follows; select halley.publish('1', '1')"),
    ?assertMatch(#{data := 1}, next()).

%% --- the command -------------------------------------------------------------------------------

what_is_missing_is_said(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table plain (a int, b int)"),
    Settings = settings(Config, #{follows => "plain(a, b); nothere(a, b); follows(x, followed_id)",
                                  user => "poor"}),
    Said = iolist_to_binary([[What, $\n]
                             || #{what := What} <- halley_postgres_command:check(C, Settings)]),
    [?assertNotEqual({Words, nomatch}, {Words, binary:match(Said, Words)})
     || Words <- [<<"poor may not replicate">>, <<"no publication halley">>,
                  <<"no table public.nothere">>, <<"has no column x">>, <<"may not read">>,
                  <<"replica identity">>, <<"no function halley.publish">>,
                  <<"no table halley.outbox">>, <<"no table halley.rejected">>]],
    Plain = settings(Config, #{follows => "plain(a, b)", user => "poor"}),
    {[_ | _], ok} = halley_postgres_command:setup(C, Plain, 4),
    ?assertEqual([], halley_postgres_command:check(C, Plain)),
    start_stream(Config, #{follows => "plain(a, b)", user => "poor"}),
    streaming(),
    ok = sql(C, "insert into plain values (1, 2); select halley.publish('2', 'true')"),
    follows(#{<<"1">> => [<<"2">>]}).
