%% What a user missed, and what a link missed, out of a real history.
-module(halley_replay_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [number/1, link_with/1]).

-define(LIMITS, #{events_max => 256, bytes_max => 131072}).
-define(WAIT_MS, 5000).

all() ->
    [missed_events_in_order, nothing_missed, own_events_and_strangers, each_event_has_its_cursor,
     batches_are_bounded, more_than_a_pass, unfollowed_meanwhile, followed_meanwhile,
     unfollowed_and_followed_again, published_while_it_runs, nothing_above_what_was_asked_for,
     malformed, other_store, future, too_old, too_old_in_the_middle, damaged_record, damaged_range,
     chain_with_strangers,
     link_missed_events, link_missed_nothing, link_batches_are_bounded,
     link_gets_what_was_unfollowed_since, link_event_with_many_connections,
     link_too_old, link_damaged, hole_in_the_seqs_is_crossed].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    _ = [meck:unload(halley_history) || is_pid(whereis(halley_history_meck))],
    halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

publish(Subject, N) ->
    {ok, #{id := Id}} = halley:publish(Subject, N),
    Id.

publish_all(Items) ->
    [Id || {ok, #{id := Id}} <- halley:publish_many([{S, N, #{}} || {S, N} <- Items])].

%% A cursor of now.
cursor() ->
    ok = await(fun halley_history:heads/0),
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).

await(Vector) ->
    halley_history:await(Vector(), ?WAIT_MS).

new(User, Cursor) ->
    {ok, Replay} = halley_replay:new(User, Cursor),
    Replay.

%% All that is missed up to now: events, and gaps where they stand.
replay(User, Cursor) ->
    all(new(User, Cursor), ?LIMITS).

all(Replay, Limits) ->
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    all(Replay, UpTo, Limits, halley_history_reader:new()).

all(Replay, UpTo, #{events_max := Max} = Limits, Reader) ->
    {Events, What, Next, NextReader} = halley_replay:next(Replay, UpTo, Limits, Reader),
    ?assert(length(Events) =< Max),
    case What of
        done ->
            ok = halley_history_reader:close(NextReader),
            ?assert(halley_vector:is_reached(UpTo, halley_replay:vector(Next))),
            Events;
        more ->
            ?assertNotEqual([], Events),
            Events ++ all(Next, UpTo, Limits, NextReader);
        {gap, Gap} ->
            Events ++ [Gap | all(Next, UpTo, Limits, NextReader)]
    end.

ids(Events) -> [Id || #{id := Id} <- Events].

seqs(Events) -> [Seq || #{seq := Seq} <- Events].

subjects(N) -> [<<"s", (integer_to_binary(I))/binary>> || I <- lists:seq(1, N)].

follow_all(User, Subjects) ->
    {ok, _} = halley:follow([{User, Subject} || Subject <- Subjects]),
    ok.

%% --- one user ------------------------------------------------------------------------------------

missed_events_in_order(_) ->
    Subjects = subjects(20),
    ok = follow_all(<<"ann">>, Subjects),
    publish(<<"s1">>, before),
    Cursor = cursor(),
    Ids = publish_all([{Subject, N} || N <- lists:seq(1, 10), Subject <- Subjects]),
    Events = replay(<<"ann">>, Cursor),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Events))),
    ?assertEqual(lists:sort(seqs(Events)), seqs(Events)),
    [?assertEqual(lists:seq(1, 10), [halley_event:data(E) || #{subject := S} = E <- Events,
                                                             S =:= Subject])
     || Subject <- Subjects].

nothing_missed(_) ->
    ok = follow_all(<<"ann">>, subjects(3)),
    publish(<<"s1">>, 1),
    Cursor = cursor(),
    publish(<<"stranger">>, 1),
    ?assertEqual([], replay(<<"ann">>, Cursor)),
    ?assertEqual([], replay(<<"never heard of">>, Cursor)).

own_events_and_strangers(_) ->
    Cursor = cursor(),
    Id = publish(<<"ann">>, 1),
    publish(<<"bob">>, 1),
    ?assertEqual([Id], ids(replay(<<"ann">>, Cursor))).

%% http.md 10.2: who leaves in the middle comes back with the cursor of the last event.
each_event_has_its_cursor(_) ->
    Subjects = subjects(8),
    ok = follow_all(<<"ann">>, Subjects),
    Start = cursor(),
    publish_all([{Subject, N} || N <- lists:seq(1, 5), Subject <- Subjects]),
    Events = replay(<<"ann">>, Start),
    40 = length(Events),
    [begin
         {Seen, Missed} = lists:split(N, Events),
         #{cursor := Cursor} = lists:last(Seen),
         ?assertEqual(ids(Missed), ids(replay(<<"ann">>, Cursor)))
     end || N <- lists:seq(1, 40)].

batches_are_bounded(_) ->
    ok = follow_all(<<"ann">>, subjects(4)),
    Cursor = cursor(),
    Ids = publish_all([{Subject, binary:copy(<<"x">>, 1000)}
                       || _ <- lists:seq(1, 25), Subject <- subjects(4)]),
    [?assertEqual(lists:sort(Ids), lists:sort(ids(all(new(<<"ann">>, Cursor), Limits))))
     || Limits <- [#{events_max => 1, bytes_max => 100000}, #{events_max => 7, bytes_max => 100000},
                   #{events_max => 100, bytes_max => 1}]],
    {Few, more, _, _} = halley_replay:next(new(<<"ann">>, Cursor), halley_history:written(),
                                           #{events_max => 100, bytes_max => 5000},
                                           halley_history_reader:new()),
    ?assert(length(Few) =< 5).

more_than_a_pass(_) ->
    ok = follow_all(<<"ann">>, subjects(10)),
    Cursor = cursor(),
    Ids = publish_all([{Subject, N} || N <- lists:seq(1, 900), Subject <- subjects(10)]),
    Events = replay(<<"ann">>, Cursor),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Events))),
    [?assertEqual(lists:seq(1, 900), [halley_event:data(E) || #{subject := S} = E <- Events,
                                                              S =:= Subject])
     || Subject <- subjects(10)].

unfollowed_meanwhile(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>, <<"cid">>]),
    Cursor = cursor(),
    Ids = publish_all([{<<"bob">>, 1}, {<<"bob">>, 2}]),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 3),
    Id = publish(<<"cid">>, 1),
    ?assertEqual(Ids ++ [Id], ids(replay(<<"ann">>, Cursor))),
    ?assertEqual([], replay(<<"ann">>, cursor())).

followed_meanwhile(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Cursor = cursor(),
    Ids = publish_all([{<<"bob">>, 1}, {<<"bob">>, 2}]),
    Limits = #{events_max => 1, bytes_max => 100000},
    {First, more, Replay, _} = halley_replay:next(new(<<"ann">>, Cursor), halley_history:written(),
                                                  Limits, halley_history_reader:new()),
    ok = halley:follow(<<"ann">>, <<"cid">>),
    Id = publish(<<"cid">>, 1),
    ?assertEqual(Ids ++ [Id], ids(First ++ all(Replay, Limits))).

unfollowed_and_followed_again(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Cursor = cursor(),
    First = publish(<<"bob">>, 1),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    Second = publish(<<"bob">>, 2),
    ?assertEqual([First, Second], ids(replay(<<"ann">>, Cursor))).

published_while_it_runs(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Cursor = cursor(),
    Limits = #{events_max => 3, bytes_max => 100000},
    Replay0 = new(<<"ann">>, Cursor),
    Step = fun(N, {Replay, Ids, Got}) ->
               New = publish_all([{<<"bob">>, N} || _ <- lists:seq(1, 5)]),
               {Events, _, Next, Reader} =
                   halley_replay:next(Replay, halley_history:written(), Limits,
                                      halley_history_reader:new()),
               ok = halley_history_reader:close(Reader),
               {Next, Ids ++ New, Got ++ Events}
           end,
    {Replay, Ids, Got} = lists:foldl(Step, {Replay0, [], []}, lists:seq(1, 20)),
    ?assertEqual(Ids, ids(Got ++ all(Replay, Limits))).

%% What is above comes live (link.md 10.5).
nothing_above_what_was_asked_for(_) ->
    ok = follow_all(<<"ann">>, subjects(8)),
    Cursor = cursor(),
    Ids = publish_all([{Subject, 1} || Subject <- subjects(8)]),
    ok = await(fun halley_history:heads/0),
    UpTo = halley_history:heads(),
    publish_all([{Subject, 2} || Subject <- subjects(8)]),
    ok = await(fun halley_history:heads/0),
    {Events, done, Replay, _} = halley_replay:next(new(<<"ann">>, Cursor), UpTo, ?LIMITS,
                                                   halley_history_reader:new()),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Events))),
    ?assertEqual(8, length(all(Replay, ?LIMITS))).

%% --- gaps ----------------------------------------------------------------------------------------

%% link.md 10.4
malformed(_) ->
    [begin
         {gap, Gap, Replay} = halley_replay:new(<<"ann">>, Token),
         ?assertMatch(#{from := 0, to := To, reason := malformed, cursor := _} when To > 0, Gap),
         Id = publish(<<"ann">>, 1),
         ?assertEqual([Id], ids(all(Replay, ?LIMITS)))
     end || Token <- [<<"-">>, <<>>, <<"AAAA">>, binary:copy(<<"A">>, 255)]].

other_store(_) ->
    Vector = halley_history:heads(),
    Other = halley_history:store() bxor 1,
    {gap, Gap, Replay} = halley_replay:new(<<"ann">>, halley_cursor:encode(Other, 1000, Vector)),
    ?assertMatch(#{from := 1000000, reason := other_store}, Gap),
    ?assertEqual([], all(Replay, ?LIMITS)).

future(_) ->
    Vector = setelement(3, halley_history:heads(), 16#FFFFFFFFFF),
    Token = halley_cursor:encode(halley_history:store(), 1000, Vector),
    ?assertMatch({gap, #{reason := malformed}, _}, halley_replay:new(<<"ann">>, Token)).

too_old(_) ->
    Start = cursor(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 10)]),
    [_, _, _, _, Fifth | Later] = replay(<<"ann">>, Start),
    ok = drop_up_to(Fifth),
    {gap, Gap, Replay} = halley_replay:new(<<"ann">>, Start),
    ?assertMatch(#{reason := too_old, to := 7000, cursor := _}, Gap),
    Events = all(Replay, ?LIMITS),
    ?assertEqual(ids(Later), ids(Events)),
    {ok, AfterGap} = halley_replay:new(<<"ann">>, map_get(cursor, Gap)),
    ?assertEqual(ids(Later), ids(all(AfterGap, ?LIMITS))).

drop_up_to(#{seq := Seq}) ->
    ok = halley_history_words:put(floor_at, 7000),
    halley_history_words:put(floor, Seq).

too_old_in_the_middle(_) ->
    Start = cursor(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 10)]),
    [First, _, _, _, Fifth | Later] = replay(<<"ann">>, Start),
    {[Got], more, Replay, _} =
        halley_replay:next(new(<<"ann">>, Start), halley_history:written(),
                           #{events_max => 1, bytes_max => 1000}, halley_history_reader:new()),
    ?assertEqual(ids([First]), ids([Got])),
    ok = drop_up_to(Fifth),
    [#{reason := too_old} | Events] = all(Replay, ?LIMITS),
    ?assertEqual(ids(Later), ids(Events)).

damaged_record(_) ->
    Start = cursor(),
    Ids = publish_all([{<<"ann">>, N} || N <- lists:seq(1, 9)]),
    {ok, Seq} = halley_history:find(lists:nth(5, Ids)),
    ok = damage(Seq),
    Found = replay(<<"ann">>, Start),
    {Before, [#{reason := damaged, cursor := Cursor} | After]} = lists:split(4, Found),
    ?assertEqual(lists:delete(lists:nth(5, Ids), Ids), ids(Before ++ After)),
    ?assertEqual(ids(After), ids(replay(<<"ann">>, Cursor))).

%% Flips a bit of the record on disk. It must not have been read before.
damage(Seq) ->
    {ok, #{segment := Segment, offset := Offset}} = halley_history_index:lookup(Seq),
    {ok, File} = file:open(halley_history_segment:path(halley_history_log:directory(), Segment),
                           [read, write, raw, binary]),
    {ok, <<Byte>>} = file:pread(File, Offset + 20, 1),
    ok = file:pwrite(File, Offset + 20, <<(Byte bxor 1)>>),
    ok = file:close(File),
    true = ets:delete_all_objects(halley_history_cache),
    true = ets:insert(halley_history_cache, {next, 0}),
    ok.

damaged_range(_) ->
    Start = cursor(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 9)]),
    Seqs = seqs(replay(<<"ann">>, Start)),
    From = lists:nth(3, Seqs),
    To = lists:nth(5, Seqs),
    ok = halley_history_index:set_damaged([{From, To, 5000, 6000}]),
    Found = replay(<<"ann">>, Start),
    [Gap] = [Gap || #{reason := damaged} = Gap <- Found],
    ?assertMatch(#{from := 5000, to := 6000}, Gap),
    ?assertEqual(Seqs, seqs(Found)),
    ?assertMatch({_, [Gap, #{seq := To} | _]}, lists:split(4, Found)),
    ?assertEqual([], replay(<<"ann">>, cursor())).

%% A chain is chosen by a hash: the record decides.
chain_with_strangers(_) ->
    Start = cursor(),
    publish_all([{Subject, N} || N <- lists:seq(1, 5), Subject <- [<<"ann">>, <<"bob">>]]),
    Strangers = seqs(replay(<<"bob">>, Start)),
    ok = meck:new(halley_history, [passthrough, no_link]),
    ok = meck:expect(halley_history, chain,
                     fun(Subject, After, UpTo) ->
                         meck:passthrough([Subject, After, UpTo]) ++ Strangers
                     end),
    ?assertEqual(lists:seq(1, 5), [halley_event:data(E) || E <- replay(<<"ann">>, Start)]).

%% --- one link ------------------------------------------------------------------------------------

caught_up(Slot, From) -> caught_up(Slot, From, #{events_max => 512, bytes_max => 1000000}).

caught_up(Slot, From, Limits) ->
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    caught_up(Slot, From, UpTo, Limits, halley_history_reader:new()).

%% Gaps and {Event, [Conn]}.
caught_up(Slot, From, UpTo, Limits, Reader) ->
    {Events, Next, What, Gaps, NextReader} =
        halley_catchup:next(Slot, From, UpTo, Limits, Reader),
    Given = Gaps ++ [{Event, lists:sort([Conn || <<Conn:64>> <= Conns])}
                     || {Event, Conns} <- Events],
    case What of
        done ->
            ?assert(halley_vector:is_reached(UpTo, Next)),
            Given;
        more ->
            ?assertNotEqual(From, Next),
            Given ++ caught_up(Slot, Next, UpTo, Limits, NextReader)
    end.

link_missed_events(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    ok = follow_all(<<"cid">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}, {number(<<"ann">>), 2},
                              {number(<<"bob">>), 3}]),
    {_, Other, _} = link_with([{number(<<"cid">>), 4}]),
    ok = halley:login(<<"ann">>),
    From = halley_history:heads(),
    publish_all([{<<"bob">>, 1}, {<<"ann">>, 2}, {<<"stranger">>, 3}, {<<"bob">>, 4}]),
    Given = caught_up(Slot, From),
    ?assertEqual([{1, [1, 2, 3]}, {2, [1, 2]}, {4, [1, 2, 3]}],
                 lists:sort([{halley_event:data(E), Conns} || {E, Conns} <- Given])),
    ?assertEqual([1, 4], [halley_event:data(E) || {#{subject := <<"bob">>} = E, _} <- Given]),
    ?assertEqual([{1, [4]}, {4, [4]}],
                 [{halley_event:data(E), Conns} || {E, Conns} <- caught_up(Other, From)]),
    %% Each event's cursor is where the link is behind it.
    [begin
         {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
         ?assertEqual(lists:nthtail(N, Given), caught_up(Slot, Vector))
     end || {N, {#{cursor := Cursor}, _}} <- lists:zip(lists:seq(1, length(Given)), Given)].

link_missed_nothing(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    publish(<<"ann">>, 1),
    ?assertEqual([], caught_up(Slot, halley_history:heads())).

link_batches_are_bounded(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    Ids = publish_all([{Subject, binary:copy(<<"x">>, 500)}
                       || _ <- lists:seq(1, 50), Subject <- [<<"ann">>, <<"bob">>]]),
    Mine = [Id || {Id, N} <- lists:zip(Ids, lists:seq(1, 100)), N rem 2 =:= 1],
    [?assertEqual(Mine, [Id || {#{id := Id}, [1]} <- caught_up(Slot, From, Limits)])
     || Limits <- [#{events_max => 1, bytes_max => 100000}, #{events_max => 7, bytes_max => 100},
                   #{events_max => 1000, bytes_max => 5000}]].

link_gets_what_was_unfollowed_since(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish(<<"bob">>, 1),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 2),
    ?assertEqual([1], [halley_event:data(E) || {E, [1]} <- caught_up(Slot, From)]).

%% link.md 7.3
link_event_with_many_connections(_) ->
    Number = number(<<"ann">>),
    {_, Slot, _} = link_with([{Number, Conn} || Conn <- lists:seq(1, 8193)]),
    From = halley_history:heads(),
    publish(<<"ann">>, 1),
    [{Event, First}, {Event, Second}] = caught_up(Slot, From),
    ?assertEqual(lists:seq(1, 8193), lists:sort(First ++ Second)),
    ?assertEqual([1, 8192], lists:sort([length(First), length(Second)])).

link_too_old(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 10)]),
    {Fifth, _} = lists:nth(5, caught_up(Slot, From)),
    ok = drop_up_to(Fifth),
    [#{reason := too_old, to := 7000} | Given] = caught_up(Slot, From),
    ?assertEqual(lists:seq(6, 10), [halley_event:data(E) || {E, [1]} <- Given]).

link_damaged(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    Ids = publish_all([{<<"ann">>, N} || N <- lists:seq(1, 9)]),
    {ok, Seq} = halley_history:find(lists:nth(5, Ids)),
    ok = damage(Seq),
    Given = caught_up(Slot, From, #{events_max => 3, bytes_max => 100000}),
    ?assertMatch([#{reason := damaged}], [Gap || #{reason := _} = Gap <- Given]),
    ?assertEqual(lists:seq(1, 9) -- [5], [halley_event:data(E) || {E, _} <- Given]),
    ok = halley_history_index:set_damaged([{Seq, Seq, 1, 2}]),
    ?assertMatch([#{reason := damaged}, #{from := 1, to := 2, reason := damaged}],
                 lists:sort([Gap || #{reason := _} = Gap <- caught_up(Slot, From)])).

%% A brain begins above what its predecessor had reserved.
hole_in_the_seqs_is_crossed(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = {0, 0, 0, 0, 0, 0, 0, 0},
    publish(<<"ann">>, 1),
    {Us, Given} = timer:tc(fun() -> caught_up(Slot, From) end),
    ?assertMatch([{_, [1]}], Given),
    ?assert(Us < 1000000).
