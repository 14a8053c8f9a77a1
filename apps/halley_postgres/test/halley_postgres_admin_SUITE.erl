%% Changes of a PostgreSQL while Halley follows it: publications, slots, tables, passwords and
%% certificates that change, another server in its place, a full disk.
-module(halley_postgres_admin_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    follows_two/2, connect/1, server/1, sql/2, settings/2, set_up/2, start_stream/1, start_stream/2,
    stop_stream/0, begin_with/2, streaming/0, worker/0, eventually/2, follows/1, gauge/1, login/1,
    next/0, nothing_more/0, emit/2, rows/2, dropped_slot/1, restarted/1]).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [publication_dropped, table_out_of_the_publication, table_out_of_it_while_away,
     table_made_anew, table_in_place_of_another, unpublished_table_in_place_of_another,
     type_of_a_column_changed, column_out_of_the_publication, rows_that_are_not_seen,
     slot_dropped_while_streaming, wal_level_put_back, password_changed,
     certificate_that_has_run_out, standby_that_was_behind, disk_of_the_server_full,
     million_rows_in_a_transaction, data_of_the_largest_size].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

ended_connections(C) ->
    ok = sql(C, "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'halley'").

%% --- the publication and its tables --------------------------------------------------------------

publication_dropped(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "drop publication halley; insert into follows values (1, 3)"),
    eventually(0, fun() -> gauge("halley_postgres_streaming") end),
    ok = sql(C, "delete from follows where followed_id = 2"),
    set_up(Config, #{}),
    follows(#{<<"1">> => [<<"3">>, <<"api">>]}),
    eventually(1, fun() -> gauge("halley_postgres_losses_total") end),
    streaming(),
    login(<<"7">>),
    ok = sql(C, "insert into follows values (7, 8); select halley.publish('8', '1')"),
    ?assertMatch(#{data := 1}, next()).

%% What changed meanwhile doesn't come.
table_out_of_the_publication(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "alter publication halley drop table follows"),
    ok = sql(C, "delete from follows; insert into follows values (1, 3)"),
    ok = sql(C, "alter publication halley add table follows"),
    ok = sql(C, "insert into follows values (1, 4)"),
    follows(#{<<"1">> => [<<"3">>, <<"4">>, <<"api">>]}),
    ?assertEqual(2, gauge("halley_postgres_copies_total")).

table_out_of_it_while_away(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    stop_stream(),
    ok = sql(C, "alter publication halley drop table follows"),
    ok = sql(C, "delete from follows; insert into follows values (1, 3)"),
    ok = sql(C, "alter publication halley add table follows"),
    start_stream(Config),
    follows(#{<<"1">> => [<<"3">>, <<"api">>]}),
    ?assertEqual(2, gauge("halley_postgres_copies_total")),
    ?assertEqual(0, gauge("halley_postgres_losses_total")).

%% --- tables --------------------------------------------------------------------------------------

-define(COLUMNS, " (follower_id int8, followed_id int8, note text, "
                 "primary key (follower_id, followed_id)); ").

%% A dropped table sends no deletes.
table_made_anew(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "drop table follows; create table follows" ?COLUMNS
                "alter publication halley add table follows; insert into follows values (1, 9)"),
    follows(#{<<"1">> => [<<"9">>, <<"api">>]}).

table_in_place_of_another(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "create table fresh" ?COLUMNS "insert into fresh values (1, 7); "
                "begin; alter table follows rename to old; alter table fresh rename to follows; "
                "alter publication halley add table follows; commit; "
                "insert into follows values (1, 8); delete from old"),
    follows(#{<<"1">> => [<<"7">>, <<"8">>, <<"api">>]}).

%% Nothing comes of it: it is found when the tables are looked at.
unpublished_table_in_place_of_another(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "create table fresh" ?COLUMNS "insert into fresh values (1, 7); "
                "begin; alter table follows rename to old; alter table fresh rename to follows; "
                "commit"),
    worker() ! look,
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    follows(#{<<"1">> => [<<"2">>, <<"api">>]}),
    set_up(Config, #{}),
    worker() ! look,
    follows(#{<<"1">> => [<<"7">>, <<"api">>]}),
    ?assertEqual(0, gauge("halley_postgres_tables_stopped")).

%% Of a pair that other rows may have it is asked by the type that the column has.
type_of_a_column_changed(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table more (a int8, b int8, primary key (a, b))"),
    follows_two(Config, #{follows => "follows(follower_id, followed_id); more(a, b)"}),
    ok = sql(C, "alter table follows alter column followed_id type text; "
                "insert into follows values (1, 'ann'); "
                "delete from follows where followed_id = '2'"),
    follows(#{<<"1">> => [<<"ann">>, <<"api">>]}),
    ok = sql(C, "insert into more values (1, 5); delete from follows"),
    follows(#{<<"1">> => [<<"5">>, <<"api">>]}).

%% It isn't copied again and again while its changes come without the column.
column_out_of_the_publication(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    ok = sql(C, "alter publication halley drop table follows; "
                "alter publication halley add table follows (follower_id, note)"),
    ok = sql(C, "insert into follows values (1, 3)"),
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    worker() ! look,
    [What] = said(C, Config, #{}),
    ?assertMatch({match, _}, re:run(What, "leaves out followed_id of \"public\".\"follows\"")),
    ?assertEqual(1, gauge("halley_postgres_copies_total")),
    set_up(Config, #{}),
    worker() ! look,
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"api">>]}).

said(C, Config, More) ->
    [iolist_to_binary(What)
     || #{what := What} <- halley_postgres_command:check(C, settings(Config, More))].

%% What a copy would leave out, and what never comes.
rows_that_are_not_seen(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table secret (a int, b int, c int generated always as (a) stored, "
                "primary key (a, b)); alter table secret enable row level security; "
                "insert into secret values (1, 2); "
                "grant usage on schema public to poor; grant select on secret to poor; "
                "alter role poor replication"),
    set_up(Config, #{publish => off,
                     follows => "secret(a, b); follows(follower_id, followed_id)"}),
    ok = sql(C, "create table heir () inherits (follows)"),
    Poor = #{user => "poor", publish => off, follows => "secret(a, b)"},
    ?assertMatch([<<"row security may hide rows of \"public\".\"secret\" from the role poor: ",
                    _/binary>>], said(C, Config, Poor)),
    ?assertMatch([<<"\"public\".\"secret\": PostgreSQL doesn't send generated columns, as c">>],
                 said(C, Config, #{publish => off, follows => "secret(a, c)"})),
    ?assertMatch([<<"other tables inherit from \"public\".\"follows\"", _/binary>>],
                 said(C, Config, #{publish => off})),
    start_stream(Config, Poor),
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    %% That is for whoever the table belongs to.
    ?assertMatch({[], {left, [_]}},
                 halley_postgres_command:setup(C, settings(Config, Poor), 4)),
    ok = sql(C, "create policy halley on secret for select to poor using (true)"),
    worker() ! look,
    follows(#{<<"1">> => [<<"2">>]}).

%% --- the server ----------------------------------------------------------------------------------

slot_dropped_while_streaming(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    eventually(ok, fun() ->
        try
            sql(C, "select pg_terminate_backend(active_pid) from pg_replication_slots "
                   "where active_pid is not null"),
            sql(C, "select pg_drop_replication_slot('halley')")
        catch error:_ -> active
        end
    end),
    ok = sql(C, "delete from follows; insert into follows values (1, 3)"),
    follows(#{<<"1">> => [<<"3">>, <<"api">>]}),
    ?assertEqual(1, gauge("halley_postgres_losses_total")).

%% PostgreSQL itself doesn't start so while it has a slot.
wal_level_put_back(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    stop_stream(),
    dropped_slot(C),
    ok = sql(C, "alter system set wal_level = replica"),
    again(Config),
    start_stream(Config),
    C2 = connect(Config),
    ok = sql(C2, "delete from follows; insert into follows values (1, 3)"),
    [#{what := What} | _] = halley_postgres_command:check(C2, settings(Config, #{})),
    ?assertEqual(<<"wal_level is replica, and must be logical">>, iolist_to_binary(What)),
    eventually(true, fun() -> gauge("halley_postgres_failures_total") > 0 end),
    ?assertEqual([<<"2">>, <<"api">>], halley_postgres_test:following(<<"1">>)),
    ok = sql(C2, "alter system reset wal_level"),
    again(Config),
    follows(#{<<"1">> => [<<"3">>, <<"api">>]}).

again(Config) ->
    Server = server(Config),
    ok = epgsql_test_server:crash(Server),
    restarted(Server).

%% Halley reads the file for each connection.
password_changed(Config) ->
    C = ?config(c, Config),
    File = filename:join(?config(dir, Config), "password"),
    ok = file:write_file(File, "secret\n"),
    ok = sql(C, "alter role scram superuser"),
    try
        follows_two(Config, #{user => "scram", password_file => File}),
        ok = sql(C, "alter role scram password 'other'"),
        ok = sql(C, "insert into follows values (1, 3)"),
        follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"api">>]}),
        ended_connections(C),
        eventually(true, fun() -> gauge("halley_postgres_failures_total") > 1 end),
        ok = sql(C, "insert into follows values (1, 4)"),
        ok = file:write_file(File, "other"),
        follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"4">>, <<"api">>]}),
        ?assertEqual(1, gauge("halley_postgres_copies_total")),
        stop_stream()
    after
        ok = sql(C, "alter role scram nosuperuser password 'secret'")
    end.

certificate_that_has_run_out(Config) ->
    C = ?config(c, Config),
    Server = server(Config),
    Authority = filename:join(epgsql_test_server:temporary(Server), "ca.crt"),
    follows_two(Config, #{host => "localhost", tls => on, tls_ca => Authority}),
    ok = epgsql_test_server:server_certificate(Server, expired),
    try
        ended_connections(C),
        eventually(true, fun() -> gauge("halley_postgres_failures_total") > 1 end),
        ok = sql(C, "insert into follows values (1, 3)")
    after
        ok = epgsql_test_server:server_certificate(Server, good)
    end,
    follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"api">>]}).

%% What it gives numbers to had them once before: these are other rows and other events.
standby_that_was_behind(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    Standby = epgsql_test_server:standby(server(Config)),
    try
        login(<<"7">>),
        Row = "insert into halley.outbox (subject, data) values ('7', '\"~s\"')",
        ok = sql(C, io_lib:format(Row, ["there"])),
        ok = sql(C, "insert into follows values (1, 3)"),
        ?assertMatch(#{data := <<"there">>}, next()),
        follows(#{<<"1">> => [<<"2">>, <<"3">>, <<"api">>]}),
        stop_stream(),
        #{port := Port} = Options = epgsql_test_server:options(Standby),
        {ok, Here} = epgsql:connect(Options),
        {ok, _, [{<<"t">>}]} = epgsql:squery(Here, "select pg_promote()"),
        ok = sql(Here, io_lib:format(Row, ["here"])),
        start_stream(Config, #{port => Port}),
        ?assertMatch(#{data := <<"here">>}, next()),
        follows(#{<<"1">> => [<<"2">>, <<"api">>]}),
        emit(Here, <<"{\"subject\":\"7\",\"data\":3}">>),
        ?assertMatch(#{id := <<"pg-", _/binary>>, data := 3}, next()),
        ?assertEqual(1, gauge("halley_postgres_losses_total")),
        nothing_more(),
        stop_stream()
    after
        epgsql_test_server:stop(Standby)
    end.

%% It ends, or refuses what is written; what it has committed is not lost.
disk_of_the_server_full(Config) ->
    Full = epgsql_test_server:start(
        ["max_wal_size = '32MB'", "min_wal_size = '32MB'", "restart_after_crash = off"],
        fun(Folder) -> halley_disk_helper:mount(Folder, "200m"), ok end),
    Folder = epgsql_test_server:temporary(Full),
    #{port := Port} = Options = epgsql_test_server:options(Full),
    try
        {ok, C} = epgsql:connect(Options),
        ok = sql(C, "create table follows" ?COLUMNS),
        {_, ok} = halley_postgres_command:setup(C, settings(Config, #{port => Port}), 4),
        start_stream(Config, #{port => Port}),
        streaming(),
        login(<<"7">>),
        ok = sql(C, "insert into follows values (7, 8)"),
        ok = halley_disk_helper:fill(Folder),
        Written = until_refused(Options, 1),
        ?assertEqual(lists:seq(1, Written),
                     [maps:get(data, next()) || _ <- lists:seq(1, Written)]),
        ?assertEqual([<<"8">>], halley_postgres_test:following(<<"7">>)),
        ok = halley_disk_helper:free(Folder),
        ok = epgsql_test_server:crash(Full),
        Again = epgsql_test_server:restart(Full),
        put(server, Again),
        {ok, C2} = epgsql:connect(Options),
        ok = sql(C2, "insert into follows values (7, 9); select halley.publish('9', '\"after\"')"),
        %% The one that was refused may have been committed, as a server that crashes doesn't say.
        case next() of
            #{data := <<"after">>} -> ok;
            #{data := N} when is_integer(N) -> ?assertMatch(#{data := <<"after">>}, next())
        end,
        nothing_more(),
        stop_stream()
    after
        epgsql_test_server:stop(case get(server) of undefined -> Full; Now -> Now end),
        halley_disk_helper:unmount(Folder),
        file:del_dir(Folder)
    end.

%% Each takes some hundred KB of WAL. The number of those that are committed.
until_refused(Options, N) ->
    case epgsql:connect(Options) of
        {ok, C} ->
            Answer = epgsql:squery(C, io_lib:format(
                "begin; create table filler_~b as select repeat(md5(n::text), 50) "
                "from generate_series(1, 3000) n; select halley.publish('8', '~b'); commit",
                [N, N])),
            case lists:last(lists:flatten([Answer])) of
                {ok, [], []} ->
                    _ = epgsql:close(C),
                    until_refused(Options, N + 1);
                _ -> N - 1
            end;
        {error, _} -> N - 1
    end.

%% --- sizes ---------------------------------------------------------------------------------------

%% The server sends it whole; it is taken in parts.
million_rows_in_a_transaction(Config) ->
    C = ?config(c, Config),
    follows_two(Config, #{}),
    Worker = worker(),
    Writer = halley_test_brain:spawn_actor(fun() ->
        Own = connect(Config),
        ok = sql(epgsql:with_timeout(Own, infinity),
                 "insert into follows select n, -n % 1000 from generate_series(10, 1000009) n")
    end),
    Most = most(1000002, Worker, 0, in_time()),
    halley_test_brain:join(Writer),
    ok = sql(epgsql:with_timeout(C, infinity), "delete from follows where follower_id > 1"),
    Deleted = most(2, Worker, 0, in_time()),
    ct:pal("the stream's process took ~b KB, ~b KB to delete", [Most div 1024, Deleted div 1024]),
    ?assert(Most < 64000000),
    ?assert(Deleted < 64000000),
    ?assertEqual(Worker, worker()).

%% Far beyond what it takes: other suites run beside it.
in_time() -> erlang:monotonic_time(millisecond) + 300000.

most(Follows, Worker, Most, UntilMs) ->
    {memory, Bytes} = process_info(Worker, memory),
    case halley_follows:count() of
        Follows -> max(Most, Bytes);
        Count ->
            erlang:monotonic_time(millisecond) < UntilMs orelse error({Count, instead_of, Follows}),
            timer:sleep(20),
            most(Follows, Worker, max(Most, Bytes), UntilMs)
    end.

data_of_the_largest_size(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    login(<<"7">>),
    Max = halley_limits:get(event_data_bytes_max),
    Data = fun(Bytes) -> <<$", (binary:copy(<<"x">>, Bytes - 2))/binary, $">> end,
    Row = "insert into halley.outbox (subject, data) values ('7', $1::jsonb)",
    [begin
         emit(C, <<"{\"subject\":\"7\",\"data\":", (Data(Max + More))/binary, "}">>),
         {ok, 1} = epgsql:equery(C, Row, [Data(Max + More)])
     end || More <- [1, 0]],
    %% With spaces around it.
    [begin
         Text = <<"{\"subject\":\"7\",\"data\":1">>,
         Spaces = binary:copy(<<" ">>, 1048576 - byte_size(Text) - 1 + More),
         emit(C, <<Text/binary, Spaces/binary, "}">>)
     end || More <- [1, 0]],
    ?assertEqual([Max - 2, Max - 2, 1],
                 [size_of(maps:get(data, next())) || _ <- [1, 2, 3]]),
    nothing_more(),
    eventually([{<<"it is too large">>}, {<<"its data is too large">>},
                {<<"its data is too large">>}],
               fun() -> rows(C, "select reason from halley.rejected") end).

size_of(Data) when is_binary(Data) -> byte_size(Data);
size_of(Data) -> Data.
