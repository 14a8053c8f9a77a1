%% With `store.backend = postgres': a change by the API is in the table, and in effect, when it is
%% answered; and the answers when it isn't.
-module(halley_postgres_writes_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    connect/1, server/1, sql/2, settings/2, set_up/2, start_stream/2, stop_stream/0, begin_with/2,
    streaming/0, worker/0, eventually/2, following/1, follows/1, gauge/1, rows/2, restarted/1,
    waits_for_a_standby/2]).

-compile([export_all, nowarn_export_all]).

-define(WRITES, #{store_backend => postgres}).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [follow_and_unfollow, many_pairs, ids_that_the_type_has_not, rules_of_the_table,
     bounds_come_before_the_row, pair_of_another_table, follows_from_before, user_that_is_forgotten,
     everything_at_once, no_stream, postgres_that_is_away, connection_lost_at_the_commit,
     connection_lost_before_the_commit, change_that_comes_late, too_many_wait,
     table_that_cannot_be_written, row_security, renamed_column, without_it_nothing_is_written,
     pool_on_the_metrics].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

table(C) -> rows(C, "select follower_id, followed_id from follows").

follow(Pairs) -> halley:follow(Pairs).

unfollow(Pairs) -> halley:unfollow(Pairs).

%% --- what it does --------------------------------------------------------------------------------

%% No `eventually': the answer says that it is so.
follow_and_unfollow(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    ?assertEqual({ok, #{added => 2, already => 0, errors => []}},
                 follow([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}])),
    ?assertEqual([<<"2">>, <<"3">>], following(<<"1">>)),
    ?assertEqual([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}], table(C)),
    ?assertEqual({ok, #{added => 1, already => 2, errors => []}},
                 follow([{<<"1">>, <<"2">>}, {<<"1">>, <<"1">>}, {<<"4">>, <<"2">>}])),
    ?assertEqual(ok, halley:unfollow(<<"1">>, <<"2">>)),
    ?assertEqual([<<"3">>], following(<<"1">>)),
    ?assertEqual({ok, #{removed => 1, absent => 1, errors => [{0, self}]}},
                 unfollow([{<<"4">>, <<"4">>}, {<<"4">>, <<"2">>}, {<<"9">>, <<"2">>}])),
    ?assertEqual([{<<"1">>, <<"3">>}], table(C)),
    ?assertMatch({ok, #{added := 0, errors := [{0, {bad_id, user, _}}]}},
                 follow([{<<>>, <<"1">>}])),
    ?assertMatch({ok, #{removed := 0, errors := [{0, {bad_id, subject, _}}]}},
                 unfollow([{<<"1">>, <<"a\n">>}])),
    ?assertEqual({ok, #{added => 0, already => 0, errors => []}}, follow([])),
    ?assertMatch({ok, #{added := 1}}, halley_follows:follow_own(<<"5">>, [{<<"5">>, <<"6">>}])),
    ?assertEqual(6, gauge("halley_postgres_writes_total")),
    %% What the application does with the same row is seen as ever.
    ok = sql(C, "delete from follows"),
    follows(#{<<"1">> => [], <<"5">> => []}).

many_pairs(Config) ->
    begin_with(Config, ?WRITES),
    Pairs = [{<<"1">>, integer_to_binary(N)} || N <- lists:seq(2, 2501)],
    ?assertEqual({ok, #{added => 2500, already => 500, errors => []}},
                 follow(Pairs ++ lists:sublist(Pairs, 500))),
    ?assertEqual(2500, halley_follows:count()),
    ?assertEqual({ok, #{removed => 2500, absent => 0, errors => []}}, unfollow(Pairs)),
    ?assertEqual(0, halley_follows:count()).

%% `007' would be the row of 7, and come back as that.
ids_that_the_type_has_not(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    Type = <<"bigint">>,
    ?assertEqual({ok, #{added => 1, already => 0,
                        errors => [{N, {not_of_table, Type}} || N <- [0, 1, 3]]}},
                 follow([{<<"007">>, <<"1">>}, {<<"ann">>, <<"1">>}, {<<"7">>, <<"1">>},
                         {<<"7">>, <<"99999999999999999999">>}])),
    ?assertEqual([{<<"7">>, <<"1">>}], table(C)),
    ?assertEqual({ok, #{removed => 0, absent => 2, errors => []}},
                 unfollow([{<<"007">>, <<"1">>}, {<<"ann">>, <<"1">>}])),
    stop_stream(),
    ok = sql(C, "create type mood as enum ('glad', 'sad'); "
                "create table moods (a varchar(4), b mood, primary key (a, b))"),
    ok = application:set_env(halley_postgres, settings, none),
    set_up(Config, ?WRITES#{follows => "moods(a, b)"}),
    start_stream(Config, ?WRITES#{follows => "moods(a, b)"}),
    streaming(),
    %% Types that only the server knows; a cast to varchar(4) would cut.
    ?assertMatch({ok, #{added := 2, errors := [{1, {not_of_table, _}}, {2, {not_of_table, _}}]}},
                 follow([{<<"ann">>, <<"glad">>}, {<<"ann">>, <<"mad">>}, {<<"annie">>, <<"sad">>},
                         {<<"bob">>, <<"sad">>}])),
    ?assertEqual([<<"glad">>], following(<<"ann">>)),
    ?assertEqual({ok, #{removed => 1, absent => 1, errors => []}},
                 unfollow([{<<"ann">>, <<"mad">>}, {<<"ann">>, <<"glad">>}])).

%% One that is looked at with the row, one at the commit, and a trigger.
rules_of_the_table(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table users (id int8 primary key); insert into users values (1), (2), (3); "
                "alter table follows add foreign key (follower_id) references users "
                "deferrable initially deferred, add check (followed_id <> 13); "
                "create function no() returns trigger language plpgsql as $$ begin "
                "if new.followed_id = 14 then raise exception 'not 14'; end if; "
                "if new.followed_id = 15 then return null; end if; return new; end $$; "
                "create trigger no before insert on follows for each row execute function no()"),
    begin_with(Config, ?WRITES),
    ?assertEqual({ok, #{added => 2, already => 0,
                        errors => [{N, refused_by_table} || N <- [1, 2, 3, 4]]}},
                 follow([{<<"1">>, <<"2">>}, {<<"9">>, <<"2">>}, {<<"1">>, <<"13">>},
                         {<<"1">>, <<"14">>}, {<<"1">>, <<"15">>}, {<<"2">>, <<"3">>}])),
    ?assertEqual([{<<"1">>, <<"2">>}, {<<"2">>, <<"3">>}], table(C)),
    ?assertEqual([<<"2">>], following(<<"1">>)),
    ?assertEqual([], following(<<"9">>)).

bounds_come_before_the_row(Config) ->
    C = ?config(c, Config),
    ok = halley_test_brain:limits(#{follows_per_user_max => 2, new_ids_per_user_max => 3}),
    begin_with(Config, ?WRITES),
    ?assertMatch({ok, #{added := 2, errors := [{2, too_many_follows}]}},
                 follow([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}, {<<"1">>, <<"4">>}])),
    ?assertMatch({ok, #{added := 0, already := 1, errors := [{0, too_many_follows}]}},
                 follow([{<<"1">>, <<"5">>}, {<<"1">>, <<"2">>}])),
    ?assertMatch({ok, #{added := 1, errors := [{1, {too_many_new_ids, _}}]}},
                 halley_follows:follow_own(<<"8">>, [{<<"8">>, <<"20">>}, {<<"9">>, <<"21">>}])),
    ?assertEqual([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}, {<<"8">>, <<"20">>}], table(C)).

pair_of_another_table(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table likes (who text, what text, primary key (who, what)); "
                "insert into likes values ('1', '2'), ('1', 'x')"),
    begin_with(Config, ?WRITES#{follows => "follows(follower_id, followed_id); likes(who, what)"}),
    ?assertMatch({ok, #{added := 2}}, follow([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}])),
    ?assertEqual({ok, #{removed => 1, absent => 0,
                        errors => [{0, followed_elsewhere}, {2, followed_elsewhere}]}},
                 unfollow([{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}, {<<"1">>, <<"x">>}])),
    ?assertEqual([<<"2">>, <<"x">>], following(<<"1">>)),
    ?assertEqual([], table(C)),
    ?assertEqual({error, followed_elsewhere}, halley:forget(<<"2">>)),
    ok = sql(C, "delete from likes"),
    follows(#{<<"1">> => []}).

%% They stand in no table; and of some the table couldn't have the ids.
follows_from_before(Config) ->
    C = ?config(c, Config),
    Before = [{<<"1">>, <<"2">>}, {<<"1">>, <<"room">>}, {<<"ann">>, <<"1">>}],
    {ok, _} = follow(Before),
    begin_with(Config, ?WRITES),
    ?assertEqual([<<"2">>, <<"room">>], following(<<"1">>)),
    ?assertEqual({ok, #{removed => 2, absent => 1, errors => []}},
                 unfollow([{<<"1">>, <<"2">>}, {<<"1">>, <<"room">>}, {<<"1">>, <<"7">>}])),
    ?assertEqual([], following(<<"1">>)),
    ?assertEqual([<<"1">>], following(<<"ann">>)),
    {ok, #{added := 1}} = follow([{<<"1">>, <<"2">>}]),
    ?assertEqual([{<<"1">>, <<"2">>}], table(C)).

user_that_is_forgotten(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    {ok, _} = follow([{<<"1">>, <<"2">>}, {<<"2">>, <<"3">>}, {<<"4">>, <<"2">>},
                      {<<"4">>, <<"1">>}]),
    ?assertEqual({ok, #{sessions => 0, following => 1, followers => 2}}, halley:forget(<<"2">>)),
    ?assertEqual([{<<"4">>, <<"1">>}], table(C)),
    ?assertEqual(1, halley_follows:count()).

%% The API and the application change the same pairs; then the follows are the table.
everything_at_once(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    Api = [halley_test_brain:spawn_actor(fun() ->
        [begin
             Pair = {integer_to_binary(rand:uniform(5)), integer_to_binary(100 + rand:uniform(5))},
             {ok, #{errors := []}} = case rand:uniform(2) of
                 1 -> follow([Pair]);
                 2 -> unfollow([Pair])
             end
         end || _ <- lists:seq(1, 60)]
    end) || _ <- lists:seq(1, 8)],
    Application = halley_test_brain:spawn_actor(fun() ->
        Own = connect(Config),
        [begin
             {A, B} = {rand:uniform(5), 100 + rand:uniform(5)},
             ok = sql(Own, case rand:uniform(2) of
                 1 -> io_lib:format("insert into follows values (~b, ~b) on conflict do nothing",
                                    [A, B]);
                 2 -> io_lib:format("delete from follows where (follower_id, followed_id) = "
                                    "(~b, ~b)", [A, B])
             end)
         end || _ <- lists:seq(1, 200)]
    end),
    _ = [halley_test_brain:join(Actor) || Actor <- [Application | Api]],
    {ok, _} = follow([{<<"50">>, <<"51">>}]),
    Expected = table(C),
    ?assertEqual(Expected, lists:sort([{User, Subject} || N <- lists:seq(1, 50),
                                                          User <- [integer_to_binary(N)],
                                                          Subject <- following(User)])),
    ?assertEqual(length(Expected), halley_follows:count()).

%% --- what it answers when it doesn't -------------------------------------------------------------

no_stream(Config) ->
    ok = application:set_env(halley, store_backend, postgres),
    ok = halley_follows_backend:new(),
    ?assertEqual({error, postgres_away}, follow([{<<"1">>, <<"2">>}])),
    begin_with(Config, ?WRITES),
    ?assertMatch({ok, #{added := 1}}, follow([{<<"1">>, <<"2">>}])),
    stop_stream(),
    ?assertEqual({error, postgres_away}, unfollow([{<<"1">>, <<"2">>}])),
    ?assertEqual({error, postgres_away}, halley:forget(<<"1">>)),
    ?assertEqual([<<"2">>], following(<<"1">>)),
    ok = application:unset_env(halley, store_backend),
    ok = halley_follows_backend:new().

postgres_that_is_away(Config) ->
    begin_with(Config, ?WRITES),
    {ok, _} = follow([{<<"1">>, <<"2">>}]),
    Server = server(Config),
    ok = epgsql_test_server:crash(Server),
    eventually({error, postgres_away}, fun() -> follow([{<<"1">>, <<"3">>}]) end),
    restarted(Server),
    eventually({ok, #{added => 1, already => 0, errors => []}},
               fun() -> follow([{<<"1">>, <<"4">>}]) end),
    ?assert(lists:member(<<"4">>, following(<<"1">>))).

%% The server has it on disk, and ends the connection before it has said so. The stream says it.
connection_lost_at_the_commit(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    waits_for_a_standby(C, "nobody"),
    Actor = halley_test_brain:spawn_actor(fun() -> follow([{<<"1">>, <<"2">>}]) end),
    eventually([{<<"1">>}], fun() ->
        rows(C, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'")
    end),
    {ok, _, _} = epgsql:squery(C, "select pg_terminate_backend(pid) from pg_stat_activity "
                                  "where wait_event = 'SyncRep'"),
    ?assertEqual({ok, #{added => 1, already => 0, errors => []}}, halley_test_brain:join(Actor)),
    ?assertEqual([<<"2">>], following(<<"1">>)),
    waits_for_a_standby(C, "").

connection_lost_before_the_commit(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    ok = halley_test_brain:limits(#{postgres_write_ms_max => 2000}),
    Locker = connect(Config),
    ok = sql(Locker, "begin; lock table follows in share mode"),
    Actor = halley_test_brain:spawn_actor(fun() -> follow([{<<"1">>, <<"2">>}]) end),
    Waiting = "from pg_stat_activity where wait_event_type = 'Lock'",
    eventually([{<<"1">>}], fun() -> rows(C, ["select count(*) ", Waiting]) end),
    {ok, _, _} = epgsql:squery(C, ["select pg_terminate_backend(pid) ", Waiting]),
    ?assertEqual({error, postgres_unknown}, halley_test_brain:join(Actor)),
    ok = sql(Locker, "rollback"),
    ok = epgsql:close(Locker),
    ?assertEqual([], table(C)),
    ?assertMatch({ok, #{added := 1}}, follow([{<<"1">>, <<"2">>}])),
    ?assertEqual(1, gauge("halley_postgres_writes_failed_total{reason=\"unknown\"}")).

change_that_comes_late(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    ok = halley_test_brain:limits(#{postgres_write_ms_max => 500}),
    Worker = worker(),
    true = erlang:suspend_process(Worker),
    ?assertEqual({error, postgres_late}, follow([{<<"1">>, <<"2">>}])),
    ?assertEqual([{<<"1">>, <<"2">>}], table(C)),
    true = erlang:resume_process(Worker),
    follows(#{<<"1">> => [<<"2">>]}),
    ?assertMatch({ok, #{added := 0, already := 1}}, follow([{<<"1">>, <<"2">>}])).

too_many_wait(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    ok = halley_test_brain:limits(#{postgres_writes_max => 1}),
    ?assertEqual({error, overloaded}, follow([{<<"1">>, <<"2">>}])),
    ?assertEqual([], table(C)).

%% It is followed all the same; `check' says what mends it, and then it is written.
table_that_cannot_be_written(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "create table plain (a int not null, b int not null, n serial, "
                "kind text not null); alter table plain replica identity full; "
                "insert into plain (a, b, kind) values (1, 2, 'x')"),
    More = ?WRITES#{follows => "plain(a, b)", user => "poor"},
    Said = [iolist_to_binary(What)
            || #{what := What} <- halley_postgres_command:check(C, settings(Config, More))],
    [?assertNotEqual({Words, []}, {Words, [W || W <- Said, binary:match(W, Words) =/= nomatch]})
     || Words <- [<<"may not write">>, <<"no unique index on a and b">>, <<"column kind">>,
                  <<"sequence plain_n_seq">>]],
    {_, {left, _}} = halley_postgres_command:setup(C, settings(Config, More), 4),
    start_stream(Config, More),
    streaming(),
    follows(#{<<"1">> => [<<"2">>]}),
    ?assertEqual({error, postgres_away}, follow([{<<"1">>, <<"3">>}])),
    stop_stream(),
    %% `setup' refuses nobody a second row of a pair.
    ok = sql(C, "insert into plain (a, b, kind) values (1, 2, 'x'); "
                "delete from plain where n = 2; "
                "alter table plain alter kind set default 'y'; "
                "create unique index on plain (a, b)"),
    begin_with(Config, More),
    ?assertMatch({ok, #{added := 1}}, follow([{<<"1">>, <<"3">>}])).

%% Which policies let Halley's role see all rows, and which write any as well.
row_security(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES#{user => "poor"}),
    ok = sql(C, "alter table follows enable row level security; create role others; "
                "create role its_group; grant its_group to poor"),
    Said = fun() ->
        [iolist_to_binary(What) || #{what := What, how := hand} <- halley_postgres_command:check(
            C, settings(Config, ?WRITES#{user => "poor"}))]
    end,
    try
        [begin
             ok = sql(C, [["create policy p", integer_to_list(N), " on follows ", Policy, "; "]
                          || {N, Policy} <- lists:enumerate(Policies)]),
             Which = [case What of
                          <<"row security may hide", _/binary>> -> hides;
                          <<"row security may refuse", _/binary>> -> refuses
                      end || What <- Said()],
             ?assertEqual({Policies, Expected}, {Policies, Which}),
             ok = sql(C, [["drop policy p", integer_to_list(N), " on follows; "]
                          || {N, _} <- lists:enumerate(Policies)])
         end || {Expected, Policies} <- [
            {[hides], ["for select to others using (true)"]},
            {[hides], ["for insert with check (true)"]},
            {[hides], ["using (follower_id > 0)"]},
            {[hides], ["using (false)"]},
            {[hides], ["using (true)", "as restrictive for select using (follower_id > 0)"]},
            {[refuses], ["for select to poor using (true)"]},
            {[refuses], ["using (true) with check (follower_id > 0)"]},
            {[refuses], ["using (true)", "as restrictive for delete using (follower_id > 0)"]},
            {[], ["to its_group using (true)", "to others using (follower_id > 0)"]},
            {[], ["to poor using (true) with check (true)"]},
            {[], ["using (true)", "as restrictive to others using (false)"]},
            {[], ["for select using (true)", "for insert with check (true)",
                  "for delete using (true)"]}]],
        ?assertMatch([_], Said()),
        ok = sql(C, "alter role poor bypassrls"),
        ?assertEqual([], Said())
    after
        sql(C, "alter role poor nobypassrls; revoke its_group from poor; drop table follows; "
               "drop role its_group; drop role others")
    end.

renamed_column(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    {ok, _} = follow([{<<"1">>, <<"2">>}]),
    ok = sql(C, "alter table follows rename followed_id to subject_id"),
    ?assertEqual({error, postgres_away}, follow([{<<"1">>, <<"3">>}])),
    ok = sql(C, "insert into follows values (5, 6)"),
    eventually(1, fun() -> gauge("halley_postgres_tables_stopped") end),
    ?assertEqual({error, postgres_away}, unfollow([{<<"1">>, <<"2">>}])),
    ?assertEqual([<<"2">>], following(<<"1">>)),
    ok = sql(C, "alter table follows rename subject_id to followed_id"),
    worker() ! look,
    follows(#{<<"5">> => [<<"6">>]}),
    eventually({ok, #{added => 1, already => 0, errors => []}},
               fun() -> follow([{<<"1">>, <<"4">>}]) end).

without_it_nothing_is_written(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ?assertEqual({ok, #{added => 1, already => 0, errors => []}}, follow([{<<"1">>, <<"x">>}])),
    ?assertEqual([], table(C)),
    ?assertEqual(undefined, whereis(halley_postgres_writers)).

%% For each change a connection is taken, and is idle behind it. No more than eight are opened.
pool_on_the_metrics(Config) ->
    C = ?config(c, Config),
    begin_with(Config, ?WRITES),
    Pool = fun(Name) -> gauge("halley_postgres_pool_" ++ Name) end,
    ?assertEqual([0, 0, 0], [Pool(Name) || Name <- ["connections{state=\"idle\"}", "taken_total",
                                                    "opened_total"]]),
    {ok, #{added := 1}} = follow([{<<"1">>, <<"2">>}]),
    {ok, #{removed := 1}} = unfollow([{<<"1">>, <<"2">>}]),
    ?assertEqual([1, 0, 0, 0, 2, 0, 0, 1, 0],
                 [Pool(Name) || Name <- ["connections{state=\"idle\"}",
                                         "connections{state=\"in_use\"}",
                                         "connections{state=\"opening\"}", "waiting",
                                         "taken_total", "refused_total", "timed_out_total",
                                         "opened_total", "failed_total"]]),
    ok = sql(C, "alter table follows add check (pg_sleep(0.2) is not null)"),
    Callers = [spawn_monitor(fun() -> {ok, _} = follow([{<<"1">>, integer_to_binary(N)}]) end)
               || N <- lists:seq(2, 17)],
    eventually(8, fun() -> Pool("connections{state=\"in_use\"}") end),
    [receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(normal, Reason) end
     || {_, Monitor} <- Callers],
    ?assert(Pool("waited_total") >= 8),
    ?assertEqual({18, 8, 0}, {Pool("taken_total"), Pool("opened_total"), Pool("waiting")}),
    stop_stream(),
    ?assertEqual(nomatch, string:find(halley_metrics:render(), "halley_postgres_pool_")).
