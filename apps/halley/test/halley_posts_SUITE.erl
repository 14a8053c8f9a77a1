%% Events that are posted, and the turns of the shards they come to (docs/internals/publish.md).
-module(halley_posts_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").
-import(halley_test_brain, [event/0, kill_and_wait/1, limits/1, link_with/1, number/1, shard/1,
                            wait/1]).
-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [on_disk_when_answered, one_answer_for_all_of_a_group, order_is_kept,
     a_turn_is_one_message_to_a_link, a_turn_is_bounded, one_that_cannot_be_written_fails_alone,
     group_fails_together, memory_is_answered_by_the_shard,
     memory_is_tried_beside_what_is_refused, id_that_is_known_or_busy, refused,
     queue_is_bounded, shard_that_dies, shard_that_is_not_there, late_ones_are_unavailable,
     forgotten_ones_count, link_that_overflows_in_a_turn].

init_per_testcase(_, Config) ->
    halley_test_brain:start(halley_test_brain:quiet(Config)).

end_per_testcase(_, Config) ->
    _ = [meck:unload(M) || M <- [halley_history_disk], is_pid(whereis(meck_name(M)))],
    halley_test_brain:stop(Config),
    halley_test_brain:loud(Config).

meck_name(Module) ->
    list_to_atom(atom_to_list(Module) ++ "_meck").

%%% Helpers

%% What is kept with a post is the event's number.
post(Items) ->
    halley_posts:send(lists:foldl(fun({Mine, Item}, Posts) ->
        {ok, _, Posted} = halley_posts:post(Item, Mine, Posts),
        Posted
    end, halley_posts:new(), lists:enumerate(Items))).

items(Subject, N) -> items(Subject, N, #{}).

items(Subject, N, Opts) -> [{Subject, {json, integer_to_binary(I)}, Opts} || I <- lists:seq(1, N)].

%% All results by their events' numbers, and in how many messages they came.
results(Posts) -> results(Posts, [], 0).

results(Posts, Results, Messages) ->
    case halley_posts:count(Posts) of
        0 ->
            {lists:sort(Results), Messages};
        _ ->
            {More, Left} = receive
                {posted, Answers} -> halley_posts:answered(Answers, Posts);
                {'DOWN', Monitor, process, _, _} -> halley_posts:down(Monitor, Posts);
                {timeout, Timer, posts} -> halley_posts:late(Timer, Posts)
            after ?WAIT_MS -> error({no_answers, halley_posts:count(Posts)})
            end,
            results(Left, More ++ Results, Messages + 1)
    end.

held(Name, Fun) ->
    ok = sys:suspend(Name, infinity),
    try Fun() after sys:resume(Name, infinity) end.

shard_of(Subject) -> shard(halley_shards:of_subject(Subject)).

unavailable(N) -> [{I, {error, unavailable}} || I <- lists:seq(1, N)].

%%% Answers

on_disk_when_answered(_) ->
    ok = halley:login(<<"ann">>),
    Subjects = [<<"ann">> | [integer_to_binary(N) || N <- lists:seq(1, 40)]],
    {Results, _} = results(post([{Subject, {json, <<"1">>}, #{}} || Subject <- Subjects])),
    ?assertEqual(lists:seq(1, 41), [N || {N, {ok, _}} <- Results]),
    [{1, {ok, #{sessions := 1}}} | Others] = Results,
    ?assertEqual([0], lists:usort([Sessions || {_, {ok, #{sessions := Sessions}}} <- Others])),
    [begin
         {ok, Seq} = halley_history:find(Id),
         Shard = halley_shards:of_subject(lists:nth(N, Subjects)),
         ?assert(element(Shard, halley_history:written()) >= Seq)
     end || {N, {ok, #{id := Id}}} <- Results].

one_answer_for_all_of_a_group(_) ->
    Items = [Item || N <- lists:seq(1, 16), Item <- items(integer_to_binary(N), 1)],
    Posts = held(halley_history_log, fun() ->
        Posted = post(Items),
        wait(fun() -> element(2, process_info(whereis(halley_history_log), message_queue_len)) > 7
             end),
        Posted
    end),
    {Results, Messages} = results(Posts),
    ?assertEqual({16, 1}, {length(Results), Messages}).

order_is_kept(_) ->
    ok = halley:login(<<"ann">>),
    {Results, _} = results(post(items(<<"ann">>, 300))),
    Ids = [Id || {_, {ok, #{id := Id}}} <- Results],
    ?assertEqual(300, length(Ids)),
    ?assertEqual([{Id, N} || {N, Id} <- lists:enumerate(Ids)],
                 [begin #{id := Id, data := N} = event(), {Id, N} end || _ <- Ids]).

%%% Turns

%% Calls and posts alike, in the order in which they came.
a_turn_is_one_message_to_a_link(_) ->
    Case = self(),
    Writer = spawn_link(fun() -> forward(Case) end),
    {ok, Slot, _} = halley_test_brain:worker(Writer, #{}),
    _ = halley_directory:open(number(<<"ann">>), {link, Slot, 7}, infinity),
    {Posts, Caller} = held(shard_of(<<"ann">>), fun() ->
        Posted = post(items(<<"ann">>, 3)),
        wait(fun() -> halley_shard:queued() =:= 3 end),
        Called = halley_test_brain:spawn_actor(fun() -> halley:publish(<<"ann">>, 4) end),
        halley_test_brain:await_publish(shard_of(<<"ann">>)),
        {Posted, Called}
    end),
    To = <<Slot:16, 7:48>>,
    Seqs = receive {Writer, {deliver, Deliveries}} ->
               [Seq || {{_, Seq, _}, Words} <- Deliveries, Words =:= To]
           after ?WAIT_MS -> error(nothing_delivered)
           end,
    ?assertEqual({4, lists:sort(Seqs)}, {length(Seqs), Seqs}),
    ?assertMatch({ok, _}, halley_test_brain:join(Caller)),
    ?assertMatch({[{1, {ok, _}}, {2, {ok, _}}, {3, {ok, _}}], _}, results(Posts)),
    ?assertEqual(0, halley_shard:queued()).

a_turn_is_bounded(_) ->
    Link = link_with([{number(<<"ann">>), 7}]),
    {Results, _} = results(post(items(<<"ann">>, 1000))),
    ?assertEqual(1000, length([N || {N, {ok, _}} <- Results])),
    ?assertEqual([[7]], lists:usort([halley_test_brain:delivered(Link)
                                     || _ <- lists:seq(1, 1000)])).

forward(Case) ->
    receive
        {mark, _, _} -> ok;
        Message -> Case ! {self(), Message}
    end,
    forward(Case).

%% The events of a turn that don't fit come from the history.
link_that_overflows_in_a_turn(_) ->
    {Writer, Slot, Queue} = link_with([{number(<<"ann">>), 7}]),
    Posts = held(shard_of(<<"ann">>), fun() ->
        %% Room for one event, not for two.
        ok = counters:put(Queue, 1, halley_limits:get(link_queue_bytes_max) - 150),
        Posted = post(items(<<"ann">>, 3)),
        wait(fun() -> halley_shard:queued() =:= 3 end),
        Posted
    end),
    ?assertMatch({[{1, {ok, #{sessions := 1}}}, {2, {ok, #{sessions := 1}}}, {3, {ok, _}}], _},
                 results(Posts)),
    ?assert(halley_links_backpressure:is_behind(halley_links:way(Slot))),
    receive {Writer, {deliver, _, _}} -> ok after ?WAIT_MS -> error(nothing_delivered) end,
    receive {Writer, behind} -> ok after ?WAIT_MS -> error(not_told) end,
    receive {Writer, {deliver, _, _}} -> error(event_to_a_link_that_is_behind) after 50 -> ok end.

%%% Failures

%% Refused before it is posted; those beside it don't notice.
one_that_cannot_be_written_fails_alone(_) ->
    ?assertMatch({error, {bad_id, _}}, halley_posts:post({<<>>, {json, <<"1">>}, #{}}, mine,
                                                         halley_posts:new())),
    ?assertMatch({[{1, {ok, _}}], _}, results(post(items(<<"ann">>, 1)))).

group_fails_together(_) ->
    ok = sys:suspend(halley_history_log, infinity),
    ok = meck:new(halley_history_disk, [passthrough, no_link]),
    ok = meck:expect(halley_history_disk, sync, fun(Disk) -> {error, enospc, Disk} end),
    ok = sys:resume(halley_history_log, infinity),
    {Results, _} = results(post([Item || N <- lists:seq(1, 16),
                                         Item <- items(integer_to_binary(N), 1)])),
    ?assertEqual([{error, disk_full}], lists:usort([Result || {_, Result} <- Results])).

memory_is_answered_by_the_shard(_) ->
    held(halley_history_log, fun() ->
        Posts = post(items(<<"ann">>, 3, #{ack => memory})),
        ?assertMatch({[{1, {ok, _}}, {2, {ok, _}}, {3, {ok, _}}], 1}, results(Posts))
    end).

%% The log is told which events of a turn nobody waits for.
memory_is_tried_beside_what_is_refused(_) ->
    ok = limits(#{history_commit_bytes_max => 1}),
    ok = sys:suspend(halley_history_log, infinity),
    ok = meck:new(halley_history_disk, [passthrough, no_link]),
    ok = meck:expect(halley_history_disk, probe, fun(Disk) -> {error, enospc, Disk} end),
    Failed = atomics:new(1, []),
    ok = meck:expect(halley_history_disk, write, fun(Packed, IsWaiting, Disk) ->
        case Packed =/= [] andalso atomics:exchange(Failed, 1, 1) of
            0 -> {error, enospc, Disk};
            _ -> meck:passthrough([Packed, IsWaiting, Disk])
        end
    end),
    Seq = halley_history:drawn(),
    Case = self(),
    _ = spawn_link(fun() -> Case ! {first, results(post(items(<<"ann">>, 1)))} end),
    wait(fun() -> halley_history:drawn() =:= Seq + 1 end),
    Turn = held(shard_of(<<"ann">>), fun() ->
        Acks = [memory, disk, memory, disk],
        post([{<<"ann">>, {json, <<"1">>}, #{ack => Ack}} || Ack <- Acks])
    end),
    wait(fun() -> halley_history:drawn() =:= Seq + 5 end),
    ok = sys:resume(halley_history_log, infinity),
    receive {first, First} -> ?assertEqual({[{1, {error, disk_full}}], 1}, First)
    after ?WAIT_MS -> error(no_answers)
    end,
    ?assertMatch({[{1, {ok, _}}, {2, {error, disk_full}}, {3, {ok, _}}, {4, {error, disk_full}}],
                  _}, results(Turn)),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertEqual([], halley_history:damaged()),
    ?assertEqual({[Seq + 2, Seq + 4], Seq + 5}, halley_history:seqs(Seq, Seq + 5, 100)).

id_that_is_known_or_busy(_) ->
    First = {ok, #{id => <<"x">>, sessions => 0}},
    held(halley_history_log, fun() ->
        Posts = post(items(<<"ann">>, 2, #{id => <<"x">>})),
        receive {posted, Answers} ->
            ?assertMatch({[{2, busy}], _}, halley_posts:answered(Answers, Posts))
        end
    end),
    receive {posted, [{_, Answer}]} -> ?assertEqual(First, Answer) end,
    Again = post(items(<<"ann">>, 2, #{id => <<"x">>})),
    ?assertEqual({[{1, First}, {2, First}], 1}, results(Again)).

refused(_) ->
    ok = halley_history_atomics:put_refusing(disk_full),
    [Item] = items(<<"ann">>, 1),
    ?assertEqual({error, disk_full}, halley_posts:post(Item, mine, halley_posts:new())),
    ok = halley_history_atomics:put_refusing(false),
    ?assertEqual(0, halley_shard:queued()).

queue_is_bounded(_) ->
    ok = limits(#{shard_queue_events_max => 10}),
    held(shard_of(<<"ann">>), fun() ->
        Posts = post(items(<<"ann">>, 10)),
        [Item] = items(<<"ann">>, 1),
        ?assertEqual({error, overloaded}, halley_posts:post(Item, mine, Posts)),
        ?assertEqual(10, halley_shard:queued())
    end).

shard_that_dies(_) ->
    Posts = held_and_killed(shard_of(<<"ann">>), items(<<"ann">>, 3)),
    {Results, _} = results(Posts),
    ?assertEqual(unavailable(3), Results),
    ?assertMatch({[{1, {ok, _}}], _}, results(post(items(<<"ann">>, 1)))).

held_and_killed(Shard, Items) ->
    ok = sys:suspend(Shard, infinity),
    Posts = post(Items),
    ok = kill_and_wait(Shard),
    Posts.

%% It is starting again.
shard_that_is_not_there(_) ->
    Pid = whereis(shard_of(<<"ann">>)),
    true = unregister(shard_of(<<"ann">>)),
    {Results, _} = results(post(items(<<"ann">>, 2))),
    true = register(shard_of(<<"ann">>), Pid),
    ?assertEqual(unavailable(2), Results).

late_ones_are_unavailable(_) ->
    ok = limits(#{publish_ms_max => 50}),
    held(shard_of(<<"ann">>), fun() ->
        ?assertMatch({[{1, {error, unavailable}}, {2, {error, unavailable}}], _},
                     results(post(items(<<"ann">>, 2))))
    end).

%% Until they are answered, so that nobody has more on the way than may be.
forgotten_ones_count(_) ->
    {Posts, Gone} = held(shard_of(<<"ann">>), fun() ->
        {ok, Tag, One} = halley_posts:post(hd(items(<<"ann">>, 1)), mine, halley_posts:new()),
        Sent = halley_posts:send(One),
        {halley_posts:forget(Tag, Sent), Tag}
    end),
    ?assertEqual(1, halley_posts:count(Posts)),
    ?assertEqual({[], 1}, results(halley_posts:forget(Gone, Posts))).
