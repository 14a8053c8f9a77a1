%% Replication against a real PostgreSQL: slots and their snapshots, logical streams as maps, how
%% far a slot is, and physical streams.
-module(epgsql_replication_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(WAIT_MS, 60000).
-define(PUBLICATION, "\"publication_names\" 'p', \"messages\" 'true'").

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [snapshot_ends_where_the_stream_begins, changes, messages, large_transactions_in_parts,
     flushed_position_is_the_slots, keepalives_reach_the_receiver, paused_receiver, physical,
     temporary_slot, slot_that_is_not_there, timelines_of_a_standby_that_took_over].

init_per_suite(Config) ->
    [{server, epgsql_test_server:start(["logical_decoding_work_mem = 64kB"])} | Config].

end_per_suite(Config) -> epgsql_test_server:stop(?config(server, Config)).

%% A slot has its case's name, so that no case meets that of another.
init_per_testcase(Case, Config) ->
    process_flag(trap_exit, true),
    C = connect(Config, #{call_timeout => ?WAIT_MS}),
    {ok, _, _} = query(C, "create table t (id int primary key, name text)"),
    {ok, _, _} = query(C, "create publication p for table t"),
    [{connection, C}, {slot, "s_" ++ atom_to_list(Case)} | Config].

%% A connection that a failed case has left may take its slot while the slots are looked at: so it
%% is asked again until there is none.
end_per_testcase(_, Config) ->
    C = ?config(connection, Config),
    wait_until(fun() ->
        _ = query(C, "select pg_terminate_backend(active_pid) from pg_replication_slots "
                     "where active_pid is not null"),
        _ = query(C, "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                     "where active_pid is null"),
        {ok, _, Slots} = query(C, "select slot_name from pg_replication_slots"),
        Slots =:= []
    end),
    {ok, _, _} = query(C, "drop publication p"),
    {ok, _, _} = query(C, "drop table t"),
    epgsql:close(C).

connect(Config, More) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(?config(server, Config), More)),
    C.

query(C, Sql) ->
    case epgsql:squery(C, Sql) of
        {error, _} -> error;
        Result -> Result
    end.

wait_until(Fun) -> wait_until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

wait_until(Fun, Until) ->
    case Fun() of
        true -> ok;
        false ->
            true = erlang:monotonic_time(millisecond) < Until,
            timer:sleep(20),
            wait_until(Fun, Until)
    end.

slot(Config) -> slot(Config, #{}, #{}).

slot(Config, Connect, Options) ->
    R = connect(Config, Connect#{replication => "database"}),
    {ok, Slot} = epgsql_replication:create_slot(R, ?config(slot, Config), Options),
    {R, Slot}.

stream(R, Config, Options) -> stream(R, Config, Options, []).

stream(R, Config, Options, More) ->
    ok = epgsql:start_replication(R, ?config(slot, Config), self(), none, "0/0", Options, More).

version(N) -> ["\"proto_version\" '", integer_to_list(N), "', ", ?PUBLICATION].

data(R) ->
    receive
        {epgsql, R, {x_log_data, _, _, Data}} -> Data
    after ?WAIT_MS -> error(nothing_came)
    end.

%% Up to the one that ends it, without what all of them have.
messages(R, Last) -> messages(R, Last, epgsql_pgoutput:new()).

messages(R, Last, State) ->
    case epgsql_pgoutput:decode(data(R), State) of
        {#{type := Last} = Message, _} -> [Message];
        {Message, State1} -> [Message | messages(R, Last, State1)]
    end.

snapshot_ends_where_the_stream_begins(Config) ->
    C = ?config(connection, Config),
    query(C, "insert into t values (1, 'before')"),
    {R, #{snapshot := Snapshot, plugin := <<"pgoutput">>}} =
        slot(Config, #{}, #{snapshot => export}),
    query(C, "insert into t values (2, 'after')"),
    Copier = connect(Config, #{}),
    query(Copier, "begin isolation level repeatable read"),
    query(Copier, ["set transaction snapshot '", Snapshot, "'"]),
    ?assertEqual({ok, 1, [<<"1\tbefore\n">>]},
                 epgsql:copy_to_stdout(Copier, "copy t to stdout",
                                       fun(Rows, Acc) -> Acc ++ Rows end, [])),
    query(Copier, "commit"),
    stream(R, Config, version(1)),
    ?assertMatch([#{type := 'begin', final_lsn := Lsn}, #{type := relation},
                  #{type := insert, new := [<<"2">>, <<"after">>]}, #{type := commit, lsn := Lsn}],
                 messages(R, commit)).

changes(Config) ->
    C = ?config(connection, Config),
    {R, _} = slot(Config),
    query(C, "begin; insert into t values (1, 'a'); update t set name = 'b';"
             "update t set id = 2; delete from t; truncate t; commit"),
    stream(R, Config, version(1)),
    [#{type := 'begin', xid := Xid}, #{type := relation, oid := Oid} = Relation | All] =
        messages(R, commit),
    %% It says again what the table is after its lock.
    Changes = [Each || #{type := Type} = Each <- All, Type =/= relation],
    ?assert(Xid > 0),
    ?assertMatch(#{schema := <<"public">>, name := <<"t">>, identity := default,
                   columns := [#{name := <<"id">>, type := 23, is_key := true},
                               #{name := <<"name">>, type := 25, is_key := false}]}, Relation),
    ?assertMatch([#{type := insert, relation := Oid, new := [<<"1">>, <<"a">>]},
                  #{type := update, old := none, new := [<<"1">>, <<"b">>]},
                  #{type := update, old := {key, [<<"1">>, null]}, new := [<<"2">>, <<"b">>]},
                  #{type := delete, old := {key, [<<"2">>, null]}},
                  #{type := truncate, relations := [Oid]}, #{type := commit}], Changes).

messages(Config) ->
    C = ?config(connection, Config),
    {R, _} = slot(Config),
    stream(R, Config, version(1)),
    query(C, "begin; select pg_logical_emit_message(true, 'h', 'never'); rollback"),
    query(C, "select pg_logical_emit_message(false, 'h', 'at once')"),
    query(C, "select pg_logical_emit_message(true, 'h', 'with it')"),
    ?assertMatch([#{type := message, is_transactional := false, content := <<"at once">>},
                  #{type := 'begin'},
                  #{type := message, is_transactional := true, prefix := <<"h">>,
                    content := <<"with it">>}, #{type := commit}], messages(R, commit)).

large_transactions_in_parts(Config) ->
    C = ?config(connection, Config),
    {R, _} = slot(Config),
    stream(R, Config, ["\"streaming\" 'on', ", version(2)]),
    Fill = "insert into t select n, repeat('x', 100) from generate_series(1, 5000) n",
    query(C, ["begin; ", Fill, "; rollback"]),
    query(C, ["begin; ", Fill, "; commit"]),
    [#{type := stream_start, xid := Aborted, is_first := true} | _] = First =
        messages(R, stream_abort),
    ?assertMatch(#{xid := Aborted}, lists:last(First)),
    [#{type := stream_start, xid := Xid} | _] = Parts = messages(R, stream_commit),
    ?assertEqual(5000, length([N || #{type := insert, xid := X, new := [N, _]} <- Parts,
                                    X =:= Xid])),
    ?assert(length([S || #{type := stream_stop} = S <- Parts]) > 1).

flushed_position_is_the_slots(Config) ->
    C = ?config(connection, Config),
    {R, #{position := Position}} = slot(Config),
    stream(R, Config, version(1)),
    query(C, "insert into t values (1, 'a')"),
    #{type := commit, end_lsn := End} = lists:last(messages(R, commit)),
    ?assert(End > Position),
    ok = epgsql:standby_status_update(R, End, End),
    wait_until(fun() ->
        {ok, _, [{Flushed}]} = query(C, "select confirmed_flush_lsn from pg_replication_slots"),
        epgsql_replication:lsn(Flushed) >= End
    end).

%% A change of a table that nobody publishes moves the position as well.
keepalives_reach_the_receiver(Config) ->
    C = ?config(connection, Config),
    {R, #{position := Position}} = slot(Config),
    stream(R, Config, version(1), #{keepalives => true}),
    query(C, "create table other (n int)"),
    query(C, "drop table other"),
    receive
        {epgsql, R, {keepalive, End, _}} when End > Position -> ok
    after ?WAIT_MS -> error(no_keepalive)
    end.

paused_receiver(Config) ->
    C = ?config(connection, Config),
    {R, _} = slot(Config, #{socket_active => 2}, #{}),
    query(C, "insert into t select n, repeat('x', 1000) from generate_series(1, 20000) n"),
    stream(R, Config, version(1)),
    receive {epgsql, R, socket_passive} -> ok after ?WAIT_MS -> error(not_paused) end,
    timer:sleep(200),
    {message_queue_len, Waiting} = process_info(self(), message_queue_len),
    ?assert(Waiting < 20000),
    ok = epgsql:activate(R),
    ?assertEqual(20003, length(activated(R, epgsql_pgoutput:new()))).

activated(R, State) ->
    receive
        {epgsql, R, socket_passive} ->
            ok = epgsql:activate(R),
            activated(R, State);
        {epgsql, R, {x_log_data, _, _, Data}} ->
            case epgsql_pgoutput:decode(Data, State) of
                {#{type := commit} = Message, _} -> [Message];
                {Message, State1} -> [Message | activated(R, State1)]
            end
    after ?WAIT_MS -> error(nothing_came)
    end.

physical(Config) ->
    Slot = ?config(slot, Config),
    R = connect(Config, #{replication => "true"}),
    {ok, #{timeline := Timeline, position := Position, system := System}} =
        epgsql_replication:identify_system(R),
    ?assert(binary_to_integer(System) > 0),
    {ok, _} = epgsql_replication:create_slot(R, Slot, #{kind => physical, reserves_wal => true}),
    Text = epgsql_replication:lsn_text(Position),
    ok = epgsql:start_replication(R, Slot, self(), none, binary_to_list(Text), [],
                                  #{kind => physical, timeline => Timeline}),
    query(?config(connection, Config), "insert into t values (1, 'told in the WAL')"),
    wait_until(fun() -> string:find(data(R), "told in the WAL") =/= nomatch end).

temporary_slot(Config) ->
    C = ?config(connection, Config),
    {R, #{name := Name}} = slot(Config, #{}, #{is_temporary => true}),
    ?assertEqual(?config(slot, Config), binary_to_list(Name)),
    epgsql:close(R),
    wait_until(fun() ->
        {ok, _, Slots} = query(C, "select slot_name from pg_replication_slots"),
        Slots =:= []
    end).

slot_that_is_not_there(Config) ->
    {R, _} = slot(Config),
    Slot = ?config(slot, Config),
    ?assertEqual(ok, epgsql_replication:drop_slot(R, Slot, #{waits => true})),
    ?assertMatch({error, _}, epgsql_replication:drop_slot(R, Slot)),
    ?assertMatch({error, _}, epgsql:start_replication(R, Slot, self(), none, "0/0",
                                                      iolist_to_binary(version(1)))).

timelines_of_a_standby_that_took_over(Config) ->
    R = connect(Config, #{replication => "database"}),
    ?assertEqual({ok, []}, epgsql_replication:timeline_history(R, 1)),
    Standby = epgsql_test_server:standby(?config(server, Config)),
    try
        {ok, C} = epgsql:connect(epgsql_test_server:options(Standby)),
        {ok, _, [{<<"t">>}]} = epgsql:squery(C, "select pg_promote()"),
        {ok, _, [{Text}]} = epgsql:squery(C, "select pg_current_wal_lsn()"),
        {ok, There} = epgsql:connect(epgsql_test_server:options(Standby,
                                                                #{replication => "database"})),
        {ok, #{timeline := 2}} = epgsql_replication:identify_system(There),
        {ok, [{1, End}]} = epgsql_replication:timeline_history(There, 2),
        ?assert(End > 0 andalso End =< epgsql_replication:lsn(Text)),
        ?assertMatch({error, _}, epgsql_replication:timeline_history(There, 3))
    after
        epgsql_test_server:stop(Standby)
    end.
