%% The source of a follow, a table or the API, and its end: the table of docs/internals/postgres.md,
%% "Whose a follow is".
%%
%% All follows are those of user 1. A subject's name has the step that came first, and the case what
%% happens to its row.
-module(halley_postgres_source_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    sql/2, set_up/2, start_stream/2, stop_stream/0, streaming/0,
    eventually/2, following/1, gauge/1, dropped_slot/1]).

-compile([export_all, nowarn_export_all]).

%% Rows that go, by what asked for the pair; such whose rows stay; and one that the API unfollowed
%% while its row stays.
-define(GO, [<<"row">>, <<"api, row">>, <<"row, api">>]).
-define(STAY, [<<"row stays">>, <<"api, row stays">>, <<"row stays, api">>]).
-define(UNFOLLOWED, <<"row stays, unfollowed">>).
%% Those of the API alone: never in the table, or again after their row had gone.
-define(API, [<<"api">>, <<"row, gone, api">>]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [rows_deleted, rows_deleted_while_away, rows_deleted_while_the_brain_is_away, table_truncated,
     table_truncated_while_away, slot_lost, slot_lost_and_brain_restarted,
     table_out_of_the_publication, state_lost, nothing_happened, table_not_configured_any_more,
     files_lost].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) ->
    Config1 = halley_postgres_test:init_per_testcase(Config),
    C = ?config(c, Config1),
    ok = sql(C, "create table named (a text, b text, primary key (a, b)); "
                "create table other (a text, b text, primary key (a, b))"),
    set_up(Config1, #{follows => "named(a, b); other(a, b)"}),
    asked([<<"api, row">>, <<"api, row stays">>, <<"api">>]),
    start(Config1),
    rows(C, ["row, gone, api" | [binary_to_list(Each) || Each <- ?GO ++ ?STAY ++ [?UNFOLLOWED]]]),
    are(?GO ++ ?STAY ++ [?UNFOLLOWED, <<"api">>, <<"row, gone, api">>]),
    asked([<<"row, api">>, <<"row stays, api">>]),
    ok = halley:unfollow(<<"1">>, ?UNFOLLOWED),
    gone(C, "b = 'row, gone, api'"),
    are(?GO ++ ?STAY ++ [<<"api">>]),
    asked([<<"row, gone, api">>]),
    %% The end of that transaction may come a moment behind its effect.
    await_applied(Config1),
    Config1.

await_applied(Config) ->
    C = ?config(c, Config),
    [{Lsn}] = halley_postgres_test:rows(C, "select pg_current_wal_insert_lsn()"),
    ok = sql(C, "insert into named values ('2', 'x'); delete from named where a = '2'"),
    Applied = filename:join([?config(dir, Config), "postgres", "applied"]),
    eventually(true, fun() ->
        {ok, <<_:8/binary, Size:16, _:32, Body:Size/binary, _/binary>>} = file:read_file(Applied),
        maps:get(<<"lsn">>, jiffy:decode(Body, [return_maps])) > epgsql_replication:lsn(Lsn)
    end).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

start(Config) ->
    start_stream(Config, #{follows => "named(a, b)"}),
    streaming().

asked(Subjects) -> {ok, _} = halley:follow([{<<"1">>, Subject} || Subject <- Subjects]).

rows(C, Subjects) ->
    [ok = sql(C, ["insert into named values ('1', '", Subject, "')"]) || Subject <- Subjects].

gone(C, Which) -> ok = sql(C, ["delete from named where ", Which]).

gone(C) -> gone(C, "b not like '%stays%'").

are(Subjects) -> eventually(lists:sort(Subjects), fun() -> following(<<"1">>) end).

%% The stream ends, and a brain begins with what the folder had then, as after a kill.
brain_again(Config) ->
    stop_stream(),
    To = string:trim(os:cmd("mktemp -d")),
    "" = os:cmd("cp -a " ++ ?config(dir, Config) ++ "/. " ++ To),
    ok = halley_test_brain:stop(Config),
    {ok, Keeper, [New]} = halley_test_keeper:start(To, [fun halley_sup:start_link/0]),
    lists:foldl(fun({Key, Value}, Acc) -> lists:keystore(Key, 1, Acc, {Key, Value}) end, Config,
                [{dir, To}, {keeper, Keeper}, {brain, New}]).

%% The case ends what it started.
over(Config) ->
    stop_stream(),
    ok = halley_test_brain:stop(Config).

copies() -> gauge("halley_postgres_copies_total").

%% --- the changes themselves ----------------------------------------------------------------------

rows_deleted(Config) ->
    gone(?config(c, Config)),
    are(?STAY ++ ?API),
    ?assertEqual(1, copies()).

rows_deleted_while_away(Config) ->
    stop_stream(),
    gone(?config(c, Config)),
    start(Config),
    are(?STAY ++ ?API),
    ?assertEqual(1, copies()).

table_truncated(Config) ->
    ok = sql(?config(c, Config), "truncate named"),
    are(?API).

table_truncated_while_away(Config) ->
    stop_stream(),
    ok = sql(?config(c, Config), "truncate named"),
    start(Config),
    are(?API).

rows_deleted_while_the_brain_is_away(Config) ->
    Again = brain_again(Config),
    gone(?config(c, Config)),
    start(Again),
    are(?STAY ++ ?API),
    ?assertEqual(0, copies()),
    over(Again).

%% What the API unfollowed stays so: the row says nothing again.
nothing_happened(Config) ->
    Again = brain_again(Config),
    start(Again),
    are(?GO ++ ?STAY ++ ?API),
    over(Again).

%% --- copies anew ---------------------------------------------------------------------------------

%% Each follows again what the API unfollowed, as the row is there.
slot_lost(Config) ->
    stop_stream(),
    dropped_slot(?config(c, Config)),
    gone(?config(c, Config)),
    start(Config),
    are(?STAY ++ ?API ++ [?UNFOLLOWED]),
    ?assertEqual(1, gauge("halley_postgres_losses_total")).

slot_lost_and_brain_restarted(Config) ->
    Again = brain_again(Config),
    dropped_slot(?config(c, Config)),
    gone(?config(c, Config)),
    start(Again),
    are(?STAY ++ ?API ++ [?UNFOLLOWED]),
    over(Again).

table_out_of_the_publication(Config) ->
    C = ?config(c, Config),
    stop_stream(),
    ok = sql(C, "alter publication halley drop table named"),
    gone(C),
    ok = sql(C, "alter publication halley add table named"),
    start(Config),
    are(?STAY ++ ?API ++ [?UNFOLLOWED]),
    ?assertEqual(2, copies()).

state_lost(Config) ->
    stop_stream(),
    ok = file:delete(filename:join([?config(dir, Config), "postgres", "state"])),
    gone(?config(c, Config)),
    start(Config),
    are(?STAY ++ ?API ++ [?UNFOLLOWED]),
    ?assertEqual(2, copies()).

table_not_configured_any_more(Config) ->
    stop_stream(),
    start_stream(Config, #{follows => "other(a, b)"}),
    streaming(),
    are(?API).

%% Without the files nobody knows which were the table's: what is in no row any more stays.
files_lost(Config) ->
    stop_stream(),
    ok = file:del_dir_r(filename:join(?config(dir, Config), "postgres")),
    gone(?config(c, Config)),
    start(Config),
    are(?GO ++ ?STAY ++ ?API ++ [?UNFOLLOWED]).
