%% Events that a user missed, out of a real history.
-module(halley_replay_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_history_helper, [replayed/4]).
-import(halley_test_brain, [publish/2, publish_all/1, follow_all/2, drop_up_to/1, damage/1]).

-define(LIMITS, #{events_max => 256, bytes_max => 131072}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [missed_events_in_order, nothing_missed, own_events_and_strangers, each_event_has_its_cursor,
     batches_are_bounded, more_than_a_pass, unfollowed_meanwhile, followed_meanwhile,
     unfollowed_and_followed_again, published_while_it_runs, nothing_above_what_was_asked_for,
     shards_at_different_places, malformed, other_store, future, too_old, too_old_in_the_middle,
     damaged_record, damaged_unfollow, damaged_range, chain_with_strangers].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    _ = [meck:unload(halley_history) || is_pid(whereis(halley_history_meck))],
    halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

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
    {Events, What, Next, NextReader} = replayed(Replay, UpTo, Limits, Reader),
    ?assert(length(Events) =< Max),
    case What of
        done ->
            ok = halley_history_reader:close(NextReader),
            ?assert(halley_vector:is_reached(UpTo, halley_replay:vector(Next))),
            Events;
        more ->
            ?assertNotEqual([], Events),
            Events ++ all(Next, UpTo, Limits, NextReader);
        yield ->
            ?assertEqual([], Events),
            all(Next, UpTo, Limits, NextReader);
        {gap, Gap} ->
            Events ++ [Gap | all(Next, UpTo, Limits, NextReader)]
    end.

ids(Events) -> [Id || #{id := Id} <- Events].

seqs(Events) -> [Seq || #{seq := Seq} <- Events].

subjects(N) -> [<<"s", (integer_to_binary(I))/binary>> || I <- lists:seq(1, N)].

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
    {Few, more, _, _} = replayed(new(<<"ann">>, Cursor), halley_history:written(),
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
    {First, more, Replay, _} = replayed(new(<<"ann">>, Cursor), halley_history:written(),
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
                   replayed(Replay, halley_history:written(), Limits,
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
    {Events, done, Replay, _} = replayed(new(<<"ann">>, Cursor), UpTo, ?LIMITS,
                                                   halley_history_reader:new()),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Events))),
    ?assertEqual(8, length(all(Replay, ?LIMITS))).

%% One shard's log may be ahead of another's.
shards_at_different_places(_) ->
    ok = follow_all(<<"ann">>, subjects(8)),
    Cursor = cursor(),
    {ok, #{vector := Before}} = halley_cursor:decode(Cursor),
    Ids = publish_all([{Subject, N} || N <- lists:seq(1, 3), Subject <- subjects(8)]),
    ok = await(fun halley_history:heads/0),
    [begin
         UpTo = setelement(Shard, halley_history:heads(), element(Shard, Before)),
         {Events, done, Replay, _} = replayed(new(<<"ann">>, Cursor), UpTo, ?LIMITS,
                                                        halley_history_reader:new()),
         Late = all(Replay, ?LIMITS),
         ?assertEqual([], [E || #{shard := S} = E <- Events, S =:= Shard]),
         ?assertEqual([], [E || #{shard := S} = E <- Late, S =/= Shard]),
         ?assertEqual(lists:sort(Ids), lists:sort(ids(Events ++ Late)))
     end || Shard <- lists:seq(1, halley_shards:count())].

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
    %% What is gone is not younger than the cursor by much, whatever the clocks say.
    ?assertMatch(#{reason := too_old, from := 7000, to := 7000, cursor := _}, Gap),
    {ok, #{vector := Vector}} = halley_cursor:decode(Start),
    Sooner = halley_cursor:encode(halley_history:store(), 5, Vector),
    {gap, SoonerGap, _} = halley_replay:new(<<"ann">>, Sooner),
    ?assertMatch(#{from := 3000, to := 7000}, SoonerGap),
    Events = all(Replay, ?LIMITS),
    ?assertEqual(ids(Later), ids(Events)),
    {ok, AfterGap} = halley_replay:new(<<"ann">>, map_get(cursor, Gap)),
    ?assertEqual(ids(Later), ids(all(AfterGap, ?LIMITS))).

too_old_in_the_middle(_) ->
    Start = cursor(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 10)]),
    [First, _, _, _, Fifth | Later] = replay(<<"ann">>, Start),
    {[Got], more, Replay, _} =
        replayed(new(<<"ann">>, Start), halley_history:written(),
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

%% What it was about is unknown, so the gap begins with what the cursor lacks, and stands before the
%% first event: who leaves behind that one has been told.
damaged_unfollow(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Vector = halley_history:heads(),
    Start = halley_cursor:encode(halley_history:store(), 1000, Vector),
    publish_all([{<<"ann">>, 1}, {<<"bob">>, 2}]),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish_all([{<<"ann">>, 3}]),
    ok = halley_history:await(halley_history:heads(), 5000),
    ?assertEqual([1, 2, 3], lists:sort([halley_event:data(E) || E <- replay(<<"ann">>, Start)])),
    [Unfollow] = halley_history:changes_of(<<"bob">>, 0),
    ok = damage(Unfollow),
    [Gap | Events] = replay(<<"ann">>, Start),
    ?assertMatch(#{from := 998000, reason := damaged, cursor := Start}, Gap),
    ?assertEqual([1, 3], [halley_event:data(E) || E <- Events]).

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
    ?assertEqual([Gap], [G || #{reason := damaged} = G <- [hd(Found)]]),
    ?assertEqual(Seqs, seqs(Found)),
    ?assertEqual(Start, map_get(cursor, Gap)),
    ?assertEqual([], replay(<<"ann">>, cursor())).

%% A chain is chosen by a hash: the record decides.
chain_with_strangers(_) ->
    Start = cursor(),
    publish_all([{Subject, N} || N <- lists:seq(1, 5), Subject <- [<<"ann">>, <<"bob">>]]),
    Strangers = seqs(replay(<<"bob">>, Start)),
    ok = meck:new(halley_history, [passthrough, no_link]),
    ok = meck:expect(halley_history, stretch,
                     fun(Shard, Subject, After, UpTo) ->
                         {Seqs, To, Looks} = meck:passthrough([Shard, Subject, After, UpTo]),
                         {Seqs ++ Strangers, To, Looks}
                     end),
    ?assertEqual(lists:seq(1, 5), [halley_event:data(E) || E <- replay(<<"ann">>, Start)]).
