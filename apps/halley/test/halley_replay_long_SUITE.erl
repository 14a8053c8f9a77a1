%% Replays of much: a user that missed millions of events, or follows very many subjects. Their
%% price is counted in reductions, which a busy machine doesn't change.
-module(halley_replay_long_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_history_helper, [replayed/4]).
-import(halley_test_brain, [publish/2, publish_all/1, follow_all/2, drop_up_to/1]).

-define(LIMITS, #{events_max => 256, bytes_max => 131072}).
-define(MILLIONS, 2400000).
-define(BYTES_MAX, 16777216).
%% A scheduler gives a process 4,000 reductions at a time; these are some milliseconds.
-define(CALL_REDUCTIONS_MAX, 400000).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [millions_missed, follows_much_missed_little, follows_much_missed_much,
     busy_stranger_in_the_bucket, retention_while_it_gathers, unfollowed_while_it_gathers,
     unfollowed_much].

init_per_testcase(_, Config) ->
    ok = application:set_env(halley, history_bytes, 4294967296),
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    _ = [meck:unload(halley_history) || is_pid(whereis(halley_history_meck))],
    ok = application:unset_env(halley, history_bytes),
    halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

cursor() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).

up_to() ->
    Heads = halley_history:heads(),
    ok = halley_history:await(Heads, ?WAIT_MS),
    Heads.

%% Small events about one subject, straight to the log. Nobody else may publish about its shard.
fill(Subject, N) ->
    Shard = halley_shards:of_subject(Subject),
    Draft = halley_event:draft(<<"e">>, Subject, <<"1">>),
    Event = halley_event:event(Draft, <<>>, {Shard, 1}, erlang:system_time(millisecond)),
    fill(Shard, Event#{sessions := 0}, N),
    publish(Subject, last).

fill(_, _, 0) ->
    ok;
fill(Shard, Event, N) ->
    Batch = min(N, 1000),
    ok = halley_history:append(Shard, [Event#{seq := halley_history:draw(Shard)}
                                       || _ <- lists:seq(1, Batch)], [none]),
    halley_history_atomics:get(queue_bytes) > 16000000 andalso timer:sleep(1),
    fill(Shard, Event, N - Batch).

-record(got, {events = 0, last = 0, calls = 0, yields = 0, reductions = 0, longest = 0,
              peak = 0}).

%% All of a replay by a process of its own: that every seq is above the one before, and what it
%% costs.
replay(User, Cursor, UpTo) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        {ok, Replay} = halley_replay:new(User, Cursor),
        exit({got, batches(Replay, UpTo, halley_history_reader:new(), #got{})})
    end),
    receive {'DOWN', Monitor, process, Pid, {got, Got}} -> Got
    after ?WAIT_MS * 2 -> error(hangs)
    end.

batches(Replay, UpTo, Reader, #got{calls = Calls} = Before) ->
    Reductions = reductions(),
    {Got, What, Next, Later} = halley_replay:next(Replay, UpTo, ?LIMITS, fun take/3, Before,
                                                  Reader),
    Spent = reductions() - Reductions,
    Counted = Got#got{calls = Calls + 1, reductions = Got#got.reductions + Spent,
                      longest = max(Got#got.longest, Spent),
                      peak = max(Got#got.peak, memory(Calls))},
    case What of
        done ->
            ok = halley_history_reader:close(Later),
            Counted;
        more ->
            ?assert(Got#got.events > Before#got.events),
            batches(Next, UpTo, Later, Counted);
        yield ->
            ?assertEqual(Before#got.events, Got#got.events),
            batches(Next, UpTo, Later, Counted#got{yields = Counted#got.yields + 1})
    end.

take(Body, _, #got{events = Events, last = Last} = Got) ->
    {_, Seq, _, _, _, _, _} = halley_history_record:item(Body),
    ?assert(Seq > Last),
    Got#got{events = Events + 1, last = Seq}.

reductions() ->
    {reductions, N} = process_info(self(), reductions),
    N.

%% Heap, and the binaries that it refers to but those of the shared cache. Each tenth time: it takes
%% longer than a call.
memory(Calls) when Calls rem 10 =/= 0 ->
    0;
memory(_) ->
    {memory, Heap} = process_info(self(), memory),
    {binary, Binaries} = process_info(self(), binary),
    Own = lists:usort([{Id, Size} || {Id, Size, _} <- Binaries,
                                     Size =/= halley_history_cache:block_bytes()]),
    Heap + lists:sum([Size || {_, Size} <- Own]).

%% --- much missed ---------------------------------------------------------------------------------

%% Time in proportion to what was missed, memory for one pass.
millions_missed(_) ->
    ok = follow_all(<<"ann">>, [<<"busy">>]),
    Start = cursor(),
    Few = ?MILLIONS div 10,
    _ = fill(<<"busy">>, Few),
    Tenth = up_to(),
    Little = replay(<<"ann">>, Start, Tenth),
    ?assertEqual(Few + 1, Little#got.events),
    _ = fill(<<"busy">>, ?MILLIONS - Few),
    Much = replay(<<"ann">>, Start, up_to()),
    ct:pal("~p~n~p", [Little, Much]),
    ?assertEqual(?MILLIONS + 2, Much#got.events),
    ?assert(Much#got.reductions < 12 * Little#got.reductions),
    ?assert(Much#got.longest < ?CALL_REDUCTIONS_MAX),
    ?assert(Much#got.peak < ?BYTES_MAX).

%% "turns must be fair": no call is long, though each follow is looked at, as much was published.
follows_much_missed_little(_) ->
    Subjects = subjects(50000),
    ok = follow_all(<<"ann">>, Subjects),
    Start = cursor(),
    _ = fill(<<"stranger">>, 20000),
    Ids = publish_all([{lists:nth(N, Subjects), N} || N <- lists:seq(1, 50000, 5000)]),
    Got = replay(<<"ann">>, Start, up_to()),
    ct:pal("~p", [Got]),
    ?assertEqual(length(Ids), Got#got.events),
    ?assert(Got#got.yields >= 20),
    ?assert(Got#got.longest < ?CALL_REDUCTIONS_MAX),
    ?assert(Got#got.peak < ?BYTES_MAX).

follows_much_missed_much(_) ->
    Subjects = subjects(20000),
    ok = follow_all(<<"ann">>, Subjects),
    Start = cursor(),
    Shuffled = [S || {_, S} <- lists:sort([{erlang:phash2({N, S}), S}
                                           || S <- Subjects, N <- [1, 2, 3]])],
    Ids = publish_all([{S, 1} || S <- Shuffled]),
    Got = replay(<<"ann">>, Start, up_to()),
    ct:pal("~p", [Got]),
    ?assertEqual(length(Ids), Got#got.events),
    ?assert(Got#got.longest < 2 * ?CALL_REDUCTIONS_MAX),
    ?assert(Got#got.peak < ?BYTES_MAX).

subjects(N) ->
    [<<"s", (integer_to_binary(I))/binary>> || I <- lists:seq(1, N)].

%% A chain has strangers of the same bucket: who follows a quiet subject passes them in portions.
busy_stranger_in_the_bucket(_) ->
    ok = follow_all(<<"ann">>, [<<"quiet">>]),
    Start = cursor(),
    Id = publish(<<"quiet">>, 1),
    {ok, Seq} = halley_history:find(Id),
    _ = fill(<<"busy">>, 100000),
    UpTo = up_to(),
    ok = meck:new(halley_history, [passthrough, no_link]),
    ok = meck:expect(halley_history, stretch,
                     fun(_, <<"quiet">>, After, To) ->
                             {Seqs, At, Looks} =
                                 meck:passthrough([halley_shards:of_subject(<<"busy">>), <<"busy">>,
                                                   After, To]),
                             {[Seq || Seq > After, Seq =< At] ++ Seqs, At, Looks};
                        (Shard, Subject, After, To) ->
                             meck:passthrough([Shard, Subject, After, To])
                     end),
    Got = replay(<<"ann">>, Start, setelement(halley_shards:of_subject(<<"quiet">>), UpTo,
                                              element(halley_shards:of_subject(<<"busy">>), UpTo))),
    ?assertEqual(1, Got#got.events),
    ?assert(Got#got.yields >= 50).

%% --- changes while a pass is gathered ------------------------------------------------------------

%% Published besides what is followed: with so many the 20,000 follows are the shorter way, with so
%% few the events are. Either takes several slices.
-define(PUBLISHED, [8000, 2000]).

%% A replay that has yielded, and whoever follows.
gathering(User, Start, UpTo) ->
    {ok, Replay} = halley_replay:new(User, Start),
    {[], yield, Gathering, Reader} = replayed(Replay, UpTo, ?LIMITS, halley_history_reader:new()),
    {Gathering, Reader}.

rest({Replay, Reader}, UpTo) ->
    {Events, What, Next, Later} = replayed(Replay, UpTo, ?LIMITS, Reader),
    case What of
        done -> Events;
        {gap, Gap} -> Events ++ [Gap | rest({Next, Later}, UpTo)];
        _ -> Events ++ rest({Next, Later}, UpTo)
    end.

%% What is gone before its chain was read is told, not passed over.
retention_while_it_gathers(_) ->
    ok = follow_all(<<"ann">>, subjects(20000)),
    lists:foreach(fun retention_while_it_gathers_of/1, ?PUBLISHED).

%% Each shard has a head above what the round before took.
retention_while_it_gathers_of(Published) ->
    _ = publish_all([{S, 0} || S <- subjects(100)]),
    Start = cursor(),
    _ = fill(<<"stranger">>, Published),
    Ids = publish_all([{<<"s19999">>, N} || N <- lists:seq(1, 10)]),
    UpTo = up_to(),
    Gathering = gathering(<<"ann">>, Start, UpTo),
    {ok, Seq} = halley_history:find(lists:nth(4, Ids)),
    ok = drop_up_to(#{seq => Seq}),
    [Gap | Events] = rest(Gathering, UpTo),
    ?assertMatch(#{reason := too_old, to := 7000}, Gap),
    ?assertEqual(lists:nthtail(4, Ids), [Id || #{id := Id} <- Events]).

%% The subject's page, or the event, comes later, and is the user's no more.
unfollowed_while_it_gathers(_) ->
    ok = follow_all(<<"ann">>, subjects(20000)),
    lists:foreach(fun unfollowed_while_it_gathers_of/1, ?PUBLISHED).

unfollowed_while_it_gathers_of(Published) ->
    ok = follow_all(<<"ann">>, [<<"s19999">>]),
    Start = cursor(),
    _ = fill(<<"stranger">>, Published),
    Ids = publish_all([{<<"s19999">>, N} || N <- lists:seq(1, 10)]),
    UpTo = up_to(),
    Gathering = gathering(<<"ann">>, Start, UpTo),
    ok = halley:unfollow(<<"ann">>, <<"s19999">>),
    _ = publish(<<"s19999">>, 11),
    ?assertEqual(Ids, [Id || #{id := Id} <- rest(Gathering, UpTo)]).

%% More than a pass remembers, and than a slice reads.
unfollowed_much(_) ->
    Subjects = subjects(10000),
    ok = follow_all(<<"ann">>, Subjects),
    Start = cursor(),
    Ids = publish_all([{S, 1} || S <- Subjects]),
    {ok, _} = halley:unfollow([{<<"ann">>, S} || S <- Subjects]),
    _ = publish_all([{S, 2} || S <- lists:sublist(Subjects, 100)]),
    Got = replay(<<"ann">>, Start, up_to()),
    ?assertEqual(length(Ids), Got#got.events),
    ?assert(Got#got.longest < ?CALL_REDUCTIONS_MAX),
    ?assert(Got#got.peak < ?BYTES_MAX).
