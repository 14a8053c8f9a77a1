%% Events on their way into the brain while others follow: the order when the history, a shard or
%% the stream's process fails, and which events wait for which.
-module(halley_postgres_flight_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    connect/1, sql/2, begin_with/2, streaming/0, worker/0, eventually/2, gauge/1, login/1, next/0,
    nothing_more/0]).

-define(SUBJECTS, 5).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [nobody_waits_for_the_disk, position_waits_for_the_disk, bounded, bounded_behind_an_event,
     event_before_an_unfollow, history_that_fails_now_and_then, shards_that_die, stream_that_dies].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) ->
    Config1 = halley_postgres_test:init_per_testcase(Config),
    begin_with(Config1, #{}),
    Config1.

end_per_testcase(_, Config) ->
    ok = halley_limits:set(#{}),
    halley_postgres_test:end_per_testcase(Config).

%% While the history writes nothing.
held(Body) ->
    ok = sys:suspend(halley_history_log, infinity),
    try Body() after ok = sys:resume(halley_history_log, infinity) end.

publish(C, Subject, Numbers) ->
    [ok = sql(C, ["select halley.publish('", Subject, "', '", integer_to_list(N), "')"])
     || N <- Numbers],
    ok.

data() -> maps:get(data, next()).

%% In their order, of the history.
past(Subject) ->
    case halley_past:page(Subject, none, none, 1000, 10000000) of
        {ok, #{events := Events, gaps := []}} ->
            [maps:get(<<"data">>, jiffy:decode(Json, [return_maps]))
             || {_, Json} <- lists:reverse(Events)];
        Other -> Other
    end.

%% Each in a transaction of its own; those of a subject by one client.
written(Config, From, To) ->
    Writers = [halley_test_brain:spawn_actor(fun() ->
        C = connect(Config),
        publish(C, subject(S), lists:seq(From, To)),
        epgsql:close(C)
    end) || S <- lists:seq(1, ?SUBJECTS)],
    fun() -> [halley_test_brain:join(Writer) || Writer <- Writers], ok end.

subject(S) -> <<"s", (integer_to_binary(S))/binary>>.

all_once_in_their_order(Count) ->
    [eventually(lists:seq(1, Count), fun() -> past(subject(S)) end)
     || S <- lists:seq(1, ?SUBJECTS)].

%% --- nobody waits ------------------------------------------------------------------------------

nobody_waits_for_the_disk(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{publish_ms_max => 600000}),
    login(<<"7">>),
    held(fun() ->
        [begin
             ok = publish(C, <<"7">>, [N]),
             ?assertEqual(N, data())
         end || N <- lists:seq(1, 10)]
    end),
    nothing_more().

position_waits_for_the_disk(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{publish_ms_max => 600000}),
    login(<<"7">>),
    ok = publish(C, <<"7">>, [1]),
    ?assertEqual(1, data()),
    Confirmed = fun() ->
        {ok, _, [{Lsn}]} = epgsql:squery(C, "select confirmed_flush_lsn from pg_replication_slots"),
        epgsql_replication:lsn(Lsn)
    end,
    Written = fun() ->
        {ok, _, [{Lsn}]} = epgsql:squery(C, "select pg_current_wal_lsn()"),
        epgsql_replication:lsn(Lsn)
    end,
    After = held(fun() ->
        ok = publish(C, <<"7">>, [2]),
        %% What others wrote before may be confirmed, the end of this event's transaction may not.
        End = Written(),
        ?assertEqual(2, data()),
        timer:sleep(1000),
        ?assert(Confirmed() < End),
        Written()
    end),
    eventually(true, fun() -> Confirmed() >= After end).

bounded(Config) ->
    C = ?config(c, Config),
    ok = halley_limits:set(#{publish_ms_max => 600000}),
    Published = fun() -> gauge("halley_events_published_total") end,
    Before = Published(),
    held(fun() ->
        ok = sql(C, "select halley.publish('s' || n % 5, to_jsonb(n)) "
                    "from generate_series(1, 6000) n"),
        eventually(Before + 4000, Published),
        timer:sleep(300),
        ?assertEqual(Before + 4000, Published())
    end),
    eventually(Before + 6000, Published).

%% What is no event, and positions of nothing, while one event waits for the disk.
bounded_behind_an_event(_) ->
    ok = halley_limits:set(#{publish_ms_max => 600000}),
    Bad = fun(Bytes) ->
        #{lsn => 1, source => <<"bad">>, content => binary:copy(<<"x">>, Bytes),
          item => {error, <<"it is bad">>}}
    end,
    Posters = held(fun() ->
        [begin
             {Poster, Monitor, Posted} = poster(Events, Marks, Times),
             eventually({current_function, {halley_postgres_flight, waited, 2}},
                        fun() -> process_info(Poster, current_function) end),
             ?assert(counters:get(Posted, 1) < Times),
             {Poster, Monitor, Posted, Times}
         end || {Events, Marks, Times} <- [{lists:duplicate(100, Bad(60000)), [], 1000},
                                           {lists:duplicate(100, Bad(1000)), [], 1000},
                                           {lists:duplicate(100, Bad(500000)), [], 1000},
                                           {[], [{position, 1}], 30000},
                                           {[], lists:duplicate(1000, {position, 1}), 1000}]]
    end),
    [receive
         {'DOWN', Monitor, process, Poster, Reason} ->
             ?assertEqual({normal, Times}, {Reason, counters:get(Posted, 1)})
     after 60000 -> error(still_waits)
     end || {Poster, Monitor, Posted, Times} <- Posters].

%% Behind a good event. What is kept of a bad one is bounded, too.
poster(Events, Marks, Times) ->
    Posted = counters:new(1, []),
    Env = #{wait => fun() -> ok end},
    Good = #{lsn => 1, source => <<"good">>, content => <<"1">>,
             item => {ok, {<<"s">>, {json, <<"1">>}, #{}}}},
    {Poster, Monitor} = spawn_monitor(fun() ->
        First = halley_postgres_flight:post([Good], [], Env, halley_postgres_flight:new()),
        lists:foldl(fun(_, Flight) ->
            Next = halley_postgres_flight:post(Events, Marks, Env, Flight),
            ok = counters:add(Posted, 1, 1),
            {Groups, Left} = halley_postgres_flight:landed(Next),
            [] = [Bytes || {_, Refused} <- Groups, {#{content := Content}, _} <- Refused,
                           Bytes <- [byte_size(Content)], Bytes > 65536],
            Left
        end, First, lists:seq(1, Times))
    end),
    {Poster, Monitor, Posted}.

%% --- what waits --------------------------------------------------------------------------------

%% It is for those who followed when it was committed.
event_before_an_unfollow(Config) ->
    C = ?config(c, Config),
    login(<<"7">>),
    [begin
         ok = sql(C, ["begin; insert into follows values (7, 8); select halley.publish('8', '",
                      integer_to_list(N), "'); delete from follows; "
                      "select halley.publish('8', '\"nobody follows\"'); commit"]),
         ?assertEqual(N, data())
     end || N <- lists:seq(1, 30)],
    nothing_more().

%% --- failures ----------------------------------------------------------------------------------

%% What failed comes again before what is behind it.
history_that_fails_now_and_then(Config) ->
    ok = meck:new(halley_history_segment, [passthrough, no_link]),
    try
        [begin
             fails_once(write),
             fails_once(write_through),
             Written = written(Config, From, From + 49),
             eventually(true, fun() -> halley_history:refusing() =/= false end),
             eventually(false, fun() -> halley_history:refusing() end),
             Written()
         end || From <- [1, 51, 101]],
        all_once_in_their_order(150)
    after
        meck:unload(halley_history_segment)
    end.

%% Part of one write is refused, as a disk does that has a little room.
fails_once(Function) ->
    Tries = counters:new(1, []),
    ok = meck:expect(halley_history_segment, Function, fun(File, Position, Bytes) ->
        ok = counters:add(Tries, 1, 1),
        case counters:get(Tries, 1) of
            1 -> {error, enospc};
            _ -> meck:passthrough([File, Position, Bytes])
        end
    end).

shards_that_die(Config) ->
    Written = written(Config, 1, 200),
    [begin
         timer:sleep(100),
         exit(whereis(halley_shard:name(Shard)), kill)
     end || Shard <- [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]],
    Written(),
    all_once_in_their_order(200).

stream_that_dies(Config) ->
    Written = written(Config, 1, 200),
    [begin
         timer:sleep(50),
         exit(worker(), kill)
     end || _ <- lists:seq(1, 5)],
    Written(),
    streaming(),
    all_once_in_their_order(200).
