%% The history as shards and replays use it: order, chains, claims, groups, retention, failures.
-module(halley_history_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(DAY_MS, 86400000).
%% More is written first and then synced.
-define(THROUGH_BYTES_MAX, 65536).

history_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 180, {Title, fun() -> ?H:silently(fun() -> ?H:with(Env, Fun) end) end}}
      || {Title, Env, Fun} <- cases()]}.

cases() ->
    [{"written heads follow the heads", [], fun heads/0},
     {"a process is notified when a vector is written", [], fun notified/0},
     {"those that wait in vain leave nothing behind", [], fun waited_in_vain/0},
     {"a process is notified though a shard died", [], fun notified_of_a_shard_that_died/0},
     {"chains against a model", [], fun chains/0},
     {"a long chain is read from its old end, in stretches", [], fun stretches/0},
     {"a block is kept when it is asked for again", [], fun cached_when_asked_again/0},
     {"shards don't meet in a bucket", [], fun shards_apart/0},
     {"a chosen id is claimed once and then known", [], fun claims/0},
     {"what a shard that died had claimed and drawn", [], fun shard_started/0},
     {"a thousand publishers share a few syncs", [], fun group_commit/0},
     {"an append without entries waits for what was written before", [], fun empty_append/0},
     {"retention by age", [{history_retention_ms, 1000}], fun retention_by_age/0},
     {"retention of damage", [{history_retention_ms, 1000}], fun retention_of_damage/0},
     {"a step of the wall clock changes nothing", [{history_retention_ms, 60000}],
      fun clock_step/0},
     {"retention by bytes", [{history_bytes, 1048576}], fun retention_by_bytes/0},
     {"the queue is bounded", [{limit, history_queue_bytes_max, 100000}], fun overloaded/0},
     {"the index takes 64 bytes an event at most, and none of its data", [],
      fun index_memory/0},
     {"a full disk", [], fun disk_full/0},
     {"a disk that has room for what is small", [], fun room_for_a_little/0},
     {"a write through to the disk that fails", [], fun() -> sync_fails(1) end},
     {"a failing fdatasync", [], fun() -> sync_fails(?THROUGH_BYTES_MAX) end},
     {"a read waits for a descriptor", [], fun no_descriptor/0},
     {"records longer than a block, and the cache's bound",
      [{limit, history_cache_bytes_max, 262144}], fun long_records/0}].

heads() ->
    [{ok, _} = ?H:publish(integer_to_binary(N), <<"1">>) || N <- lists:seq(1, 20)],
    ok = ?H:wait_written(),
    ?assertEqual(halley_history:heads(), halley_history:written()),
    ?assertEqual(lists:duplicate(8, 20), tuple_to_list(halley_history:heads())),
    Seq = halley_history:draw(3),
    ?assertEqual(Seq, element(3, halley_history:heads())),
    ?assertEqual(timeout, halley_history:await(halley_history:heads(), 20)).

%% The log says so once, to each that waits, when the last of the parts is written.
notified() ->
    ?assertEqual(written, halley_history:notify(halley_history:heads())),
    Seqs = [{Shard, halley_history:draw(Shard)} || Shard <- [3, 5]],
    Heads = halley_history:heads(),
    {later, First} = halley_history:notify(Heads),
    {later, Second} = halley_history:notify(Heads),
    [begin
         receive {history_written, _} -> error(too_early) after 20 -> ok end,
         ok = halley_history_log:mark(Shard, Seq)
     end || {Shard, Seq} <- Seqs],
    [receive {history_written, Ref} -> ok after 5000 -> error(not_notified) end
     || Ref <- [First, Second]],
    ?assertEqual(Heads, halley_history:written()),
    receive {history_written, _} -> error(twice) after 20 -> ok end.

%% While the log stands still nothing is left behind by those that waited in vain, and there is a
%% bound for those that were killed.
waited_in_vain() ->
    Seq = halley_history:draw(3),
    Heads = halley_history:heads(),
    {message_queue_len, Before} = process_info(whereis(halley_history_log), message_queue_len),
    ?assertEqual([timeout],
                 lists:usort([halley_history:await(Heads, 0) || _ <- lists:seq(1, 100)])),
    ?assertEqual(0, ets:info(halley_history_waiting, size)),
    ?assertEqual({message_queue_len, Before},
                 process_info(whereis(halley_history_log), message_queue_len)),
    Waiting = [spawn(fun() -> halley_history:await(Heads, 60000) end) || _ <- lists:seq(1, 10000)],
    ?H:until(fun() -> ets:info(halley_history_waiting, size) =:= 10000 end),
    {Us, timeout} = timer:tc(fun() -> halley_history:await(Heads, 60000) end),
    ?assert(Us < 30000000),
    Session = spawn_monitor(fun() -> exit(halley_history:await_as_session(Heads, 60000)) end),
    ?H:until(fun() -> ets:info(halley_history_waiting, size) =:= 10001 end),
    {Killed, Others} = lists:split(100, Waiting),
    [exit(Pid, kill) || Pid <- Killed],
    ?H:until(fun() -> not lists:any(fun is_process_alive/1, Killed) end),
    Late = spawn_monitor(fun() -> exit(halley_history:await(Heads, 60000)) end),
    ?H:until(fun() -> ets:info(halley_history_waiting, size) =:= 9902 end),
    %% One that goes on waiting isn't refused.
    {later, Ref} = halley_history:notify(Heads),
    ok = halley_history_log:mark(3, Seq),
    receive {history_written, Ref} -> ok after 60000 -> error(not_notified) end,
    [receive {'DOWN', Monitor, process, Pid, Result} -> ?assertEqual(ok, Result) end
     || {Pid, Monitor} <- [Session, Late]],
    ?H:until(fun() -> not lists:any(fun is_process_alive/1, Others) end),
    ?assertEqual(0, ets:info(halley_history_waiting, size)).

%% What a shard that died had drawn is waited for no more.
notified_of_a_shard_that_died() ->
    _ = halley_history:draw(3),
    {later, Ref} = halley_history:notify(halley_history:heads()),
    ok = halley_history:shard_started(3),
    receive {history_written, Ref} -> ok after 5000 -> error(not_notified) end.

%% A few subjects with many events, many with few; strangers may be among the candidates, but
%% nothing that is asked for is missing, and the order is that of the seqs.
chains() ->
    rand:seed(exsss, 7),
    Subjects = [integer_to_binary(trunc(100 * math:pow(rand:uniform(), 4)))
                || _ <- lists:seq(1, 3000)],
    Pairs = lists:zip(?H:publish_all(Subjects), Subjects),
    [begin
         After = rand:uniform(3000),
         UpTo = After + rand:uniform(1000),
         Chain = ?H:chain(Subject, After, UpTo),
         ?assertEqual(lists:reverse(lists:usort(Chain)), Chain),
         ?assertEqual([], [Seq || {Seq, S} <- Pairs, S =:= Subject, Seq > After, Seq =< UpTo]
                          -- Chain),
         ?assertEqual([], [Seq || Seq <- Chain, Seq =< After orelse Seq > UpTo])
     end || Subject <- lists:usort(Subjects)],
    ?assertEqual([{Seq, ok} || {Seq, _} <- Pairs], ?H:readable([Seq || {Seq, _} <- Pairs])),
    {SomeSeq, _} = lists:nth(1500, Pairs),
    ?assertEqual({ok, SomeSeq}, halley_history:find(<<"e", (integer_to_binary(SomeSeq))/binary>>)),
    ?assertEqual(none, halley_history:find(<<"nobody">>)).

%% Wherever one enters a chain, a stretch costs what it gives, not what is newer.
stretches() ->
    Seqs = ?H:publish_all([case N rem 10 of 0 -> <<"quiet">>; _ -> <<"busy">> end
                           || N <- lists:seq(1, 20000)]),
    Quiet = [Seq || {Seq, N} <- lists:enumerate(Seqs), N rem 10 =:= 0],
    Busy = Seqs -- Quiet,
    Last = lists:last(Seqs),
    ?assertEqual(Busy, lists:reverse(?H:chain(<<"busy">>, 0, Last))),
    [begin
         {Found, To, Looks} = halley_history:stretch(halley_shards:of_subject(<<"busy">>),
                                                     <<"busy">>, After, Last),
         ?assertEqual([Seq || Seq <- Busy, Seq > After, Seq =< To], Found),
         ?assert(To =:= Last orelse To > After),
         ?assertEqual(length(Found), Looks)
     end || After <- lists:seq(0, 20000, 500)],
    Lengths = lengths(<<"busy">>, 0, Last),
    ?assert(lists:max(Lengths) < 16 * 256),
    ?assert(length(Lengths) >= 18000 div (4 * 256)),
    %% What retention takes is in no stretch, and its milestones go.
    Floor = lists:nth(10000, Seqs),
    ok = halley_history_atomics:put(floor, Floor),
    ok = halley_history_index:drop_below(Floor),
    ?assertEqual([Seq || Seq <- Busy, Seq > Floor],
                 lists:reverse(?H:chain(<<"busy">>, 0, Last))),
    ?assertEqual([], [Seq || {{_, Seq}} <- ets:tab2list(halley_history_milestones),
                             Seq =< Floor]),
    ?H:restart(),
    ?assert(ets:info(halley_history_milestones, size) > 0).

lengths(_, UpTo, UpTo) -> [];
lengths(Subject, After, UpTo) ->
    {Seqs, To, _} = halley_history:stretch(halley_shards:of_subject(Subject), Subject, After,
                                              UpTo),
    [length(Seqs) | lengths(Subject, To, UpTo)].

cached_when_asked_again() ->
    Data = iolist_to_binary([$", binary:copy(<<"x">>, 2000), $"]),
    Seqs = [element(2, ?H:publish(<<"s">>, Data)) || _ <- lists:seq(1, 200)],
    Bytes = fun() ->
                ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)),
                halley_history_cache:bytes()
            end,
    ?assertEqual(0, Bytes()),
    ?assert(Bytes() >= 200 * 2000),
    ?assert(Bytes() =< 200 * 2200).

%% The shards' events reach the log in the opposite order of their seqs. A chain that two shards
%% shared would have an older seq before a newer one, and a walk would stop too early.
shards_apart() ->
    Subjects = [integer_to_binary(N) || N <- lists:seq(1, 8000)],
    Entries = [?H:entry(Subject, <<"1">>) || Subject <- Subjects],
    Parts = maps:groups_from_list(fun(#{subject := S}) -> halley_shards:of_subject(S) end, Entries),
    [ok = halley_history:append(Shard, Own, [none])
     || {Shard, Own} <- lists:reverse(lists:keysort(1, maps:to_list(Parts)))],
    ok = ?H:wait_written(),
    ?assertEqual([], [Seq || #{seq := Seq, subject := Subject} <- Entries,
                             not lists:member(Seq, ?H:chain(Subject, Seq - 1, 9000))]).

claims() ->
    Chosen = #{id => <<"order-1">>, chosen => true, sessions => 5},
    ?assertEqual(fresh, halley_history:claim(1, <<"order-1">>)),
    ?assertEqual(busy, halley_history:claim(2, <<"order-1">>)),
    {ok, Seq} = ?H:publish(<<"s">>, <<"1">>, Chosen),
    Known = {known, #{id => <<"order-1">>, sessions => 5}},
    ?assertEqual(Known, halley_history:claim(2, <<"order-1">>)),
    ?assertEqual(Known, halley_history:claim(1, <<"order-1">>)),
    ?assertEqual({ok, Seq}, halley_history:find(<<"order-1">>)),
    ?H:restart(),
    ?assertEqual(Known, halley_history:claim(2, <<"order-1">>)).

shard_started() ->
    fresh = halley_history:claim(4, <<"a">>),
    fresh = halley_history:claim(5, <<"b">>),
    Drawn = halley_history:draw(4),
    ok = halley_history:shard_started(4),
    ?assertEqual(Drawn, element(4, halley_history:written())),
    ?assertEqual(fresh, halley_history:claim(4, <<"a">>)),
    ?assertEqual(busy, halley_history:claim(4, <<"b">>)).

%% Each of a thousand processes publishes one event and waits for the disk. All have sent theirs
%% before the log goes on: how fast they come is not what is measured.
group_commit() ->
    Publish = fun(N) -> fun() -> {ok, _} = ?H:publish(integer_to_binary(N), <<"1">>) end end,
    ?H:mocked([halley_history_segment], fun() ->
        Publishers = ?H:held(fun() ->
            Spawned = [spawn_monitor(Publish(N)) || N <- lists:seq(1, 1000)],
            Log = whereis(halley_history_log),
            ?H:until(fun() -> element(2, process_info(Log, message_queue_len)) >= 1000 end),
            Spawned
        end),
        [receive {'DOWN', Ref, process, _, Reason} -> ?assertEqual(normal, Reason) end
         || {_, Ref} <- Publishers],
        ?assertEqual(1000, ?H:events()),
        Syncs = syncs(),
        ?assert(Syncs >= 1 andalso Syncs =< 10, Syncs)
    end).

empty_append() ->
    ?H:mocked([halley_history_segment], fun() ->
        Entry = ?H:entry(<<"s">>, <<"1">>),
        ok = halley_history:append(halley_shards:of_subject(<<"s">>), [Entry], [none]),
        Ref = make_ref(),
        ok = halley_history:append(1, [], [{{self(), Ref}, synced}]),
        receive {Ref, synced} -> ok end,
        Syncs = syncs(),
        ?assert(Syncs >= 1),
        ok = halley_history:append(1, [], [{{self(), Ref}, synced}]),
        receive {Ref, synced} -> ok end,
        ?assertEqual(Syncs, syncs())
    end).

syncs() ->
    meck:num_calls(halley_history_segment, sync, '_')
        + meck:num_calls(halley_history_segment, write_through, '_').

retention_by_age() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    ?H:until(fun() -> halley_history:floor() >= First end),
    ?assertEqual([{First, expired}], ?H:readable([First])),
    ?assertEqual([], ?H:chain(<<"s">>, 0, First)),
    ?assertEqual(none, halley_history:find(<<"e1">>)),
    ?H:until(fun() -> ?H:events() =:= 0 end),
    ?assertMatch(#{oldest_at := none, floor_at := At} when At > 0, halley_history:info()),
    %% The next one is not to expire while it is looked at.
    application:set_env(halley, history_retention_ms, 60000),
    {ok, Later} = ?H:publish(<<"s">>, <<"2">>),
    ?assertEqual([{Later, ok}], ?H:readable([Later])),
    ?assertEqual([Later], ?H:chain(<<"s">>, 0, Later)).

%% A gap up to the newest event that is gone would hide what was lost behind it.
retention_of_damage() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    LostMs = erlang:system_time(millisecond) + 50000,
    ok = halley_history_index:set_damaged([{First, First, 5000, LostMs}]),
    ?H:until(fun() -> halley_history:floor() >= First end),
    ?H:until(fun() -> halley_history_index:damaged() =:= [] end),
    ?assertMatch(#{floor_at := LostMs}, halley_history:info()).

%% The records' times are a day old and a day ahead; their segments are new, and stay across a
%% restart of the brain.
clock_step() ->
    NowMs = erlang:system_time(millisecond),
    Seqs = [element(2, ?H:publish(<<"s">>, <<"1">>, #{at => NowMs + Step}))
            || Step <- [-?DAY_MS, ?DAY_MS, -?DAY_MS]],
    timer:sleep(600),
    ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)),
    ?H:restart(),
    timer:sleep(600),
    ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)).

retention_by_bytes() ->
    Data = [$", binary:copy(<<"x">>, 10000), $"],
    Seqs = [element(2, ?H:publish(<<"s">>, iolist_to_binary(Data))) || _ <- lists:seq(1, 200)],
    ?H:until(fun() -> maps:get(bytes, halley_history:info()) =< 1048576 end),
    Floor = halley_history:floor(),
    ?assert(Floor > 0),
    {Gone, Kept} = lists:partition(fun(Seq) -> Seq =< Floor end, Seqs),
    ?assertEqual([{Seq, expired} || Seq <- Gone] ++ [{Seq, ok} || Seq <- Kept],
                 ?H:readable(Seqs)),
    ?assert(length(Kept) > 70, length(Kept)),
    ?assertEqual(length(Kept), ?H:events()),
    ?H:until(fun() -> lists:sum([filelib:file_size(Path) || Path <- ?H:segments()])
                          =:= maps:get(bytes, halley_history:info())
             end),
    ?H:restart(),
    ?assertEqual(Floor, halley_history:floor()),
    ?assertEqual([{Seq, ok} || Seq <- Kept], ?H:readable(Kept)).

overloaded() ->
    ?assertEqual(false, halley_history:refusing()),
    Fill = fun() -> ok = halley_history:append(1, [?H:entry(<<"s">>, <<"1">>)], [none]) end,
    ?H:held(fun() ->
        [Fill() || _ <- lists:seq(1, 400)],
        ?assertEqual(overloaded, halley_history:refusing())
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    ?H:until(fun() -> maps:get(queue_bytes, halley_history:info()) =:= 0 end).

%% "brain memory per event within retention: <= 64 bytes and none of its data"
index_memory() ->
    N = 200000,
    Data = iolist_to_binary([$", binary:copy(<<"x">>, 2000), $"]),
    Heads = halley_history_index:memory(),
    garbage_collect(),
    Before = erlang:memory(total),
    [begin
         Subject = integer_to_binary(I rem 5000),
         ok = halley_history:append(halley_shards:of_subject(Subject), [?H:entry(Subject, Data)],
                                    [none]),
         I rem 2000 =:= 0 andalso ?H:wait_written()
     end || I <- lists:seq(1, N)],
    ok = ?H:wait_written(),
    ?assertEqual(N, ?H:events()),
    ?assert(halley_history_index:memory() - Heads =< 64 * N),
    %% Binaries are freed when the last process that saw them is collected.
    ?H:until(fun() ->
                 [garbage_collect(Pid) || Pid <- processes()],
                 erlang:memory(total) - Before =< 64 * N
             end).

disk_full() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    Full = fun(File, Position, Bytes) ->
        Part = binary_part(iolist_to_binary(Bytes), 0, 7),
        ok = meck:passthrough([File, Position, Part]),
        {error, enospc}
    end,
    Lost = ?H:mocked([halley_history_segment], fun() ->
        meck:expect(halley_history_segment, write, Full),
        meck:expect(halley_history_segment, write_through, Full),
        Again = #{id => <<"again">>, chosen => true},
        {{error, disk_full}, Refused} = ?H:publish(<<"s">>, <<"2">>, Again),
        ?assertEqual(disk_full, halley_history:refusing()),
        ?assertEqual(fresh, halley_history:claim(1, <<"again">>)),
        ?assertEqual(Refused, element(halley_shards:of_subject(<<"s">>),
                                      halley_history:written())),
        ?assertEqual([], maps:get(damaged, halley_history:info())),
        Entry = #{seq := Unanswered} = ?H:entry(<<"s">>, <<"3">>),
        ok = halley_history:append(halley_shards:of_subject(<<"s">>), [Entry], [none]),
        ok = ?H:wait_written(),
        ?assertMatch([{Unanswered, Unanswered, _, _}], maps:get(damaged, halley_history:info())),
        Unanswered
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, Last} = ?H:publish(<<"s">>, <<"4">>),
    Chain = ?H:chain(<<"s">>, 0, Last),
    ?assertEqual([Last, First], Chain),
    ?H:restart(),
    ?assertMatch([{Lost, Lost, _, _}], maps:get(damaged, halley_history:info())),
    ?assertEqual(Chain, ?H:chain(<<"s">>, 0, Last)),
    ?assertEqual([{Last, ok}, {First, ok}], ?H:readable(Chain)).

%% An event isn't taken while one before it was refused.
room_for_a_little() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    ?H:mocked([halley_history_segment, halley_history_disk], fun() ->
        meck:expect(halley_history_disk, probe, fun(Disk) -> {error, enospc, Disk} end),
        Small = fun(Write) ->
            meck:expect(halley_history_segment, Write, fun(File, Position, Bytes) ->
                case iolist_size(Bytes) < 4000 of
                    true -> meck:passthrough([File, Position, Bytes]);
                    false -> {error, enospc}
                end
            end)
        end,
        [Small(Write) || Write <- [write, write_through]],
        Again = #{id => <<"again">>, chosen => true},
        {{error, disk_full}, _} = ?H:publish(<<"s">>, binary:copy(<<"2">>, 5000)),
        {{error, disk_full}, Refused} = ?H:publish(<<"s">>, <<"3">>, Again),
        ?assertEqual(Refused, element(halley_shards:of_subject(<<"s">>),
                                      halley_history:written())),
        ?assertEqual([], maps:get(damaged, halley_history:info())),
        ?assertEqual(fresh, halley_history:claim(1, <<"again">>)),
        ok = halley_history_pending_ids:ended(<<"again">>)
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, Last} = ?H:publish(<<"s">>, <<"4">>),
    ?assertEqual([Last, First], ?H:chain(<<"s">>, 0, Last)).

%% A file system of 4 MB that fills up, and is emptied again by retention.
%% Two tries find none: the record is read all the same, and isn't called damaged.
no_descriptor() ->
    {ok, Seq} = ?H:publish(<<"s">>, <<"1">>),
    ok = ?H:wait_written(),
    Tries = counters:new(1, []),
    ?H:mocked([halley_history_segment, halley_metrics], fun() ->
        ok = meck:expect(halley_history_segment, open, fun(Dir, Segment) ->
            ok = counters:add(Tries, 1, 1),
            case counters:get(Tries, 1) of
                1 -> {error, emfile};
                2 -> {error, enfile};
                _ -> meck:passthrough([Dir, Segment])
            end
        end),
        ?assertEqual([{Seq, ok}], ?H:readable([Seq])),
        ?assertEqual(2, meck:num_calls(halley_metrics, incr, [history_waits]))
    end).

full_file_system_test_() ->
    Options = [{history_retention_ms, 600000}],
    halley_disk_helper:tests("4m", [{"a full file system", fun(Dir) ->
        ?H:silently(fun() -> ?H:with_in(Dir, Options, fun full_file_system/0) end)
    end}]).

full_file_system() ->
    Data = iolist_to_binary([$", binary:copy(<<"x">>, 20000), $"]),
    Results = [?H:publish(<<"s">>, Data) || _ <- lists:seq(1, 250)],
    Stored = [Seq || {ok, Seq} <- Results],
    Refused = [Seq || {{error, disk_full}, Seq} <- Results],
    ?assert(length(Stored) > 150),
    ?assert(length(Refused) > 10),
    ?assertEqual(disk_full, halley_history:refusing()),
    ?assertEqual([{Seq, ok} || Seq <- Stored], ?H:readable(Stored)),
    ?assertEqual([{Seq, expired} || Seq <- Refused], ?H:readable(Refused)),
    %% What was looked at may go, and what comes next is to stay.
    application:set_env(halley, history_retention_ms, 100),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    application:set_env(halley, history_retention_ms, 600000),
    {ok, Later} = ?H:publish(<<"s">>, Data),
    ?assertEqual([{Later, ok}], ?H:readable([Later])),
    ?assertEqual([], maps:get(damaged, halley_history:info())).

%% Nothing is written and not synced when this begins, or a tick could sync it, and fail, first.
sync_fails(DataBytes) ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    Segments = length(?H:segments()),
    ?H:mocked([halley_history_segment, halley_history_disk], fun() ->
        %% The log tries each second whether it can write again: here not before it may.
        meck:expect(halley_history_disk, probe, fun(Disk) -> {error, eio, Disk} end),
        meck:expect(halley_history_segment, sync, fun(_) -> {error, eio} end),
        meck:expect(halley_history_segment, write_through, fun(_, _, _) -> {error, eio} end),
        Chosen = #{id => <<"x">>, chosen => true},
        Data = binary:copy(<<"2">>, DataBytes),
        {{error, history_failed}, _} = ?H:publish(<<"s">>, Data, Chosen),
        ?assertEqual(failed, halley_history:refusing()),
        %% Who was told of <<"x">> just before is not told that it is on disk.
        Ref = make_ref(),
        ok = halley_history:append(1, [], [{{self(), Ref}, synced}]),
        ?assertEqual({error, history_failed}, receive {Ref, Answer} -> Answer end),
        ?assertEqual(fresh, halley_history:claim(1, <<"x">>))
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, Last} = ?H:publish(<<"s">>, <<"3">>),
    ?assertEqual(Segments + 1, length(?H:segments())),
    ?assertEqual([{First, ok}, {Last, ok}], ?H:readable([First, Last])).

long_records() ->
    Data = fun(Bytes) -> iolist_to_binary([$", binary:copy(<<"y">>, Bytes), $"]) end,
    Sizes = [70000 + 1000 * N || N <- lists:seq(1, 20)] ++ [65536 * N - 60 || N <- [1, 2, 3]],
    Seqs = [element(2, ?H:publish(<<"s">>, Data(Size))) || Size <- Sizes],
    [?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)) || _ <- [1, 2]],
    ?assert(halley_history_cache:bytes() > 131072),
    ?assert(halley_history_cache:bytes() =< 262144).
