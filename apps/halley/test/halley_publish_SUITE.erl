%% A publisher's answers, the same id twice, and the shards' marks.
-module(halley_publish_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, number/1, shard/1, link_with/1, event/0, no_event/0,
                            spawn_actor/1, join/1, kill_and_wait/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [on_disk_when_answered, memory_is_in_the_history_soon, bad_ack,
     same_id_again, same_id_about_another_subject, same_id_at_the_same_time, same_id_in_a_batch,
     same_id_after_a_shard_died, id_that_stays_busy, batch_over_all_shards, long_batch,
     history_that_cannot_be_written, history_that_is_too_slow, write_fails,
     shards_mark_their_places, idle_shards_are_quiet, marks_when_asked,
     marks_of_the_shards_that_were_asked,
     mark_is_for_the_link_that_asks,
     mark_is_behind_the_events, shard_that_starts_anew_leaves_links_to_the_history,
     unfollow_of_quiet_subject_is_not_recorded,
     publishers_that_die_leave_nothing_counted].

init_per_testcase(_, Config) ->
    halley_test_brain:start(halley_test_brain:quiet(Config)).

end_per_testcase(_, Config) ->
    _ = [meck:unload(halley_history) || is_pid(whereis(halley_history_meck))],
    halley_test_brain:stop(Config),
    halley_test_brain:loud(Config).

counted(Metric) ->
    Text = iolist_to_binary(halley_metrics:render()),
    {match, [Value]} = re:run(Text, ["\n\\Q", Metric, "\\E ([0-9]+)"],
                              [{capture, all_but_first, list}]),
    list_to_integer(Value).

%% --- durability ----------------------------------------------------------------------------------

on_disk_when_answered(_) ->
    [begin
         {ok, #{id := Id}} = halley:publish(<<"ann">>, N, Opts),
         {ok, Seq} = halley_history:find(Id),
         ?assert(element(halley_shards:of_subject(<<"ann">>), halley_history:written()) >= Seq)
     end || N <- lists:seq(1, 20), Opts <- [#{}, #{ack => disk}]].

memory_is_in_the_history_soon(_) ->
    {ok, #{id := Id}} = halley:publish(<<"ann">>, 1, #{ack => memory}),
    wait(fun() -> halley_history:find(Id) =/= none end).

bad_ack(_) ->
    ?assertEqual({error, {bad_option, ack}}, halley:publish(<<"ann">>, 1, #{ack => later})).

%% --- the same id ---------------------------------------------------------------------------------

same_id_again(_) ->
    ok = halley:login(<<"ann">>),
    First = {ok, #{id => <<"x">>, sessions => 1}},
    ?assertEqual(First, halley:publish(<<"ann">>, 1, #{id => <<"x">>})),
    ok = halley:login(<<"ann">>, whereis(halley_links)),
    [?assertEqual(First, halley:publish(<<"ann">>, 2, #{id => <<"x">>, ack => Ack}))
     || Ack <- [disk, memory]],
    #{id := <<"x">>, data := 1} = event(),
    no_event(),
    ?assertEqual(2, counted("halley_events_repeated_total")),
    ?assertEqual(1, counted("halley_events_published_total")),
    ?assertEqual(1, counted("halley_deliveries_total")).

same_id_about_another_subject(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    {ok, _} = halley:follow([{<<"ann">>, Subject} || Subject <- Subjects]),
    ok = halley:login(<<"ann">>),
    [?assertEqual({ok, #{id => <<"x">>, sessions => 1}},
                  halley:publish(Subject, 1, #{id => <<"x">>})) || Subject <- Subjects],
    #{subject := <<"s1">>} = event(),
    no_event().

same_id_at_the_same_time(_) ->
    ok = halley:login(<<"ann">>),
    [begin
         Id = <<"x", (integer_to_binary(N))/binary>>,
         Subjects = [<<"ann">>, <<"bob">>, <<"cid">>, <<"dan">>],
         Publishers = [spawn_actor(fun() -> halley:publish(S, N, #{id => Id, ack => Ack}) end)
                       || S <- Subjects, Ack <- [memory, disk, disk]],
         [{ok, #{id := Id, sessions := Sessions}} = Answer | Rest] = [join(P) || P <- Publishers],
         ?assertEqual([], [Other || Other <- Rest, Other =/= Answer]),
         [#{id := Id, data := N} = event() || _ <- lists:seq(1, Sessions)],
         no_event()
     end || N <- lists:seq(1, 10)].

same_id_in_a_batch(_) ->
    ok = halley:login(<<"ann">>),
    Item = {<<"ann">>, 1, #{id => <<"x">>}},
    ?assertMatch([{ok, #{id := <<"x">>, sessions := 1}}, {ok, #{sessions := 1}},
                  {ok, #{id := <<"x">>, sessions := 1}}, {error, _},
                  {ok, #{id := <<"x">>, sessions := 1}}],
                 halley:publish_many([Item, {<<"ann">>, 2, #{}}, Item, {<<>>, 1, #{}},
                                      Item])),
    [1, 2] = lists:sort([map_get(data, event()), map_get(data, event())]),
    no_event().

same_id_after_a_shard_died(_) ->
    First = halley:publish(<<"ann">>, 1, #{id => <<"x">>}),
    [ok = kill_and_wait(shard(N)) || N <- lists:seq(1, halley_shards:count())],
    ?assertEqual(First, halley:publish(<<"ann">>, 1, #{id => <<"x">>})).

id_that_stays_busy(_) ->
    ok = limits(#{publish_ms_max => 50}),
    Other = halley_shards:of_subject(<<"ann">>) rem halley_shards:count() + 1,
    fresh = halley_history:claim(Other, <<"x">>),
    ?assertEqual({error, unavailable}, halley:publish(<<"ann">>, 1, #{id => <<"x">>})),
    ok = limits(#{}),
    %% The claim ends with its shard.
    ok = kill_and_wait(shard(Other)),
    wait(fun() -> element(1, halley:publish(<<"ann">>, 1, #{id => <<"x">>})) =:= ok end).

%% --- batches -------------------------------------------------------------------------------------

batch_over_all_shards(_) ->
    Items = [{integer_to_binary(N), N, #{id => <<"id", (integer_to_binary(N))/binary>>}}
             || N <- lists:seq(1, 500)],
    ?assertEqual([{ok, #{id => Id, sessions => 0}} || {_, _, #{id := Id}} <- Items],
                 halley:publish_many(Items)).

long_batch(_) ->
    ok = limits(#{publish_batch_max => 10}),
    ok = halley:login(<<"ann">>),
    Results = halley:publish_many([{<<"ann">>, N, #{}} || N <- lists:seq(1, 105)]),
    ?assertEqual([Id || {ok, #{id := Id}} <- Results],
                 [map_get(id, event()) || _ <- lists:seq(1, 105)]).

%% --- refusing ------------------------------------------------------------------------------------

history_that_cannot_be_written(_) ->
    ok = halley:login(<<"ann">>),
    [begin
         ok = halley_history_atomics:put_refusing(Refusing),
         ?assertEqual({error, Error}, halley:publish(<<"ann">>, 1)),
         ?assertEqual([{error, Error}, {error, Error}],
                      halley:publish_many([{<<"ann">>, 1, #{}}, {<<>>, 1, #{}}]))
     end || {Refusing, Error} <- [{disk_full, disk_full}, {failed, history_failed}]],
    ok = halley_history_atomics:put_refusing(false),
    no_event(),
    ?assertEqual(6, counted("halley_events_refused_total{reason=\"history\"}")),
    ?assertMatch({ok, _}, halley:publish(<<"ann">>, 1)).

history_that_is_too_slow(_) ->
    Bytes = halley_limits:get(history_queue_bytes_max) + 1,
    ok = halley_history_atomics:add(queue_bytes, Bytes),
    ?assertEqual({error, overloaded}, halley:publish(<<"ann">>, 1)),
    ?assertEqual(1, counted("halley_events_refused_total{reason=\"overloaded\"}")),
    ok = halley_history_atomics:add(queue_bytes, -Bytes),
    ?assertMatch({ok, _}, halley:publish(<<"ann">>, 1)).

%% The event was sent, and its publisher learns that it isn't durable.
write_fails(_) ->
    ok = halley:login(<<"ann">>),
    ok = meck:new(halley_history, [passthrough, no_link]),
    ok = meck:expect(halley_history, append,
                     fun(_, _, [{From, _}]) -> gen_server:reply(From, {error, disk_full}) end),
    ?assertEqual({error, disk_full}, halley:publish(<<"ann">>, 1)),
    #{data := 1} = event().

%% --- marks ---------------------------------------------------------------------------------------

%% One of each shard.
marks({Writer, _, _}) ->
    [receive {Writer, {mark, Shard, Seq}} -> {Shard, Seq} after ?WAIT_MS -> error(no_mark) end
     || _ <- lists:seq(1, halley_shards:count())].

no_mark({Writer, _, _}) ->
    receive {Writer, {mark, Shard, Seq}} -> error({unexpected, Shard, Seq}) after 600 -> ok end.

%% docs/internals/delivery.md, "The link's cursor"
shards_mark_their_places(_) ->
    Link = link_with([]),
    {ok, #{id := Id}} = halley:publish(<<"ann">>, 1),
    {ok, Seq} = halley_history:find(Id),
    ?assertEqual([{N, Seq} || N <- lists:seq(1, halley_shards:count())], lists:sort(marks(Link))),
    wait(fun() -> [Seq] =:= lists:usort(tuple_to_list(halley_history:written())) end),
    ?assertEqual(halley_history:written(), halley_history:heads()).

idle_shards_are_quiet(_) ->
    Link = link_with([]),
    {ok, _} = halley:publish(<<"ann">>, 1),
    _ = marks(Link),
    no_mark(Link).

marks_when_asked(_) ->
    Earlier = link_with([]),
    {ok, _} = halley:publish(<<"ann">>, 1),
    _ = marks(Earlier),
    {_, Slot, _} = Link = link_with([]),
    [ok = sys:suspend(shard(N), infinity) || N <- lists:seq(1, halley_shards:count())],
    [ok = mark_all(Slot) || _ <- lists:seq(1, 100)],
    [ok = sys:resume(shard(N), infinity) || N <- lists:seq(1, halley_shards:count())],
    ?assertEqual([{N, 1} || N <- lists:seq(1, halley_shards:count())], lists:sort(marks(Link))),
    no_mark(Link),
    ok = mark_all(Slot),
    _ = marks(Link),
    no_mark(Link).

mark_all(Slot) ->
    halley_shard:mark(halley_links:way(Slot), lists:seq(1, halley_shards:count())).

%% Those that a link doesn't lag behind have no work by it.
marks_of_the_shards_that_were_asked(_) ->
    {_, Slot, _} = Link = link_with([]),
    {ok, _} = halley:publish(<<"ann">>, 1),
    _ = marks(Link),
    ok = halley_shard:mark(halley_links:way(Slot), [3, 7]),
    {Writer, _, _} = Link,
    ?assertEqual([3, 7], lists:sort([receive {Writer, {mark, Shard, _}} -> Shard end
                                     || _ <- [first, second]])),
    no_mark(Link).

%% A login on one link costs the others nothing.
mark_is_for_the_link_that_asks(_) ->
    {_, Slot, _} = Link = link_with([]),
    Other = link_with([]),
    {ok, _} = halley:publish(<<"ann">>, 1),
    [_ = marks(L) || L <- [Link, Other]],
    ok = mark_all(Slot),
    _ = marks(Link),
    no_mark(Other).

%% A mark says that nothing up to it comes any more.
mark_is_behind_the_events(_) ->
    {Writer, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    Publisher = spawn_actor(fun() -> [{ok, _} = halley:publish(<<"ann">>, N, #{ack => memory})
                                      || N <- lists:seq(1, 500)] end),
    Marker = spawn_actor(fun() -> [begin mark_all(Slot), timer:sleep(1) end
                                   || _ <- lists:seq(1, 50)] end),
    _ = join(Publisher),
    _ = join(Marker),
    ok = ascending(Writer, halley_shards:of_subject(<<"ann">>), 0, 500).

%% So many events, and then none.
ascending(Writer, Shard, Last, Left) ->
    receive
        {Writer, {deliver, {Shard, Seq, _}, _}} when Seq > Last, Left > 0 ->
            ascending(Writer, Shard, Seq, Left - 1);
        {Writer, {mark, Shard, Seq}} when Seq >= Last ->
            ascending(Writer, Shard, Seq, Left);
        {Writer, {mark, Other, _}} when Other =/= Shard ->
            ascending(Writer, Shard, Last, Left);
        {Writer, Message} ->
            error({out_of_order, Last, Left, Message})
    after case Left of 0 -> 100; _ -> ?WAIT_MS end ->
        ?assertEqual(0, Left)
    end.

%% Its first mark could overtake the last events of the one that died.
shard_that_starts_anew_leaves_links_to_the_history(_) ->
    {Writer, Slot, _} = Link = link_with([]),
    ok = kill_and_wait(shard(3)),
    %% It answers, so it leaves no link behind any more.
    _ = sys:get_state(shard(3), infinity),
    receive {Writer, behind} -> ok after ?WAIT_MS -> error(not_told) end,
    Way = halley_links:way(Slot),
    ?assert(halley_links_backpressure:is_behind(Way)),
    Other = link_with([]),
    {ok, _} = halley:publish(<<"ann">>, 1),
    _ = marks(Other),
    no_mark(Link),
    ok = halley_links_backpressure:resume(Way),
    ok = mark_all(Slot),
    _ = marks(Link),
    no_mark(Link).

unfollow_of_quiet_subject_is_not_recorded(_) ->
    {ok, _} = halley:follow([{<<"ann">>, S} || S <- [<<"quiet">>, <<"loud">>]]),
    {ok, _} = halley:publish(<<"loud">>, 1),
    %% An unfollow that waits for the log too long is recorded, whatever was published.
    wait(fun() -> [1] =:= lists:usort(tuple_to_list(halley_history:written())) end),
    {ok, #{removed := 2}} = halley:unfollow([{U, S} || U <- [<<"ann">>, <<"bob">>],
                                                       S <- [<<"quiet">>, <<"loud">>]]),
    [Seq] = halley_history:changes(<<"ann">>, 0),
    ?assertEqual([Seq], halley_history:changes_of(<<"loud">>, 0)),
    ?assertEqual([], halley_history:changes_of(<<"quiet">>, 0)),
    ?assertEqual([], halley_history:changes(<<"bob">>, 0)).

%% They die between counting their events and sending them; nor does a count stay that was too low.
publishers_that_die_leave_nothing_counted(_) ->
    Shard = halley_shards:of_subject(<<"ann">>),
    ok = meck:new(halley_limits, [passthrough, no_link]),
    ok = meck:expect(halley_limits, part, fun
        (_, shard_queue_events_max) -> exit(killed);
        (Whose, Name) -> meck:passthrough([Whose, Name])
    end),
    Drafts = [{Shard, {memory, servers}, [x, y, z]}],
    {_, Monitor} = spawn_monitor(fun() -> halley_shard:publish_all(Drafts) end),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    ok = meck:unload(halley_limits),
    ?assertEqual(3, halley_shard:queued()),
    wait(fun() -> halley_shard:queued() =:= 0 end),
    ok = atomics:sub(persistent_term:get({halley_shard, queued}), Shard, 7),
    wait(fun() -> atomics:get(persistent_term:get({halley_shard, queued}), Shard) =:= 0 end),
    {ok, _} = halley:publish(<<"ann">>, 1).
