%% Events that a link missed, out of a real history.
-module(halley_catchup_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [number/1, link_with/1, publish/2, publish_all/1, follow_all/2,
                            drop_up_to/1, damage/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [missed_events, missed_nothing, batches_are_bounded, unfollowed_since,
     unfollowed_and_followed_again, followed_since, followed_and_unfollowed_since,
     followed_and_unfollowed_often, unfollowed_between_batches,
     number_given_to_another, mass_unfollow,
     event_with_many_connections, too_old, damaged, damaged_unfollow, damaged_range,
     hole_in_the_seqs_is_crossed].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

caught_up(Slot, From) -> caught_up(Slot, From, #{events_max => 512, bytes_max => 1000000}).

caught_up(Slot, From, Limits) ->
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    caught_up(Slot, From, UpTo, Limits, halley_catchup_former:new(), halley_history_reader:new()).

%% Gaps and {Event, [Conn]}.
caught_up(Slot, From, UpTo, Limits, Former, Reader) ->
    {Events, Next, What, Gaps, Read, NextReader} =
        halley_catchup:next(#{Slot => []}, From, UpTo, Limits, Former, Reader),
    Given = Gaps ++ [{halley_test_brain:event(Delivery),
                      lists:sort(halley_test_brain:conns(Words))}
                     || {Delivery, Words} <- Events],
    case What of
        done ->
            ?assert(halley_vector:is_reached(UpTo, Next)),
            Given;
        more ->
            ?assertNotEqual(From, Next),
            Given ++ caught_up(Slot, Next, UpTo, Limits, Read, NextReader)
    end.

missed_events(_) ->
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
    %% Each event moves its own shard's part, and what comes from there is the rest.
    lists:foldl(fun({#{shard := Shard, seq := Seq}, _}, {Vector, [_ | Rest]}) ->
                    Moved = setelement(Shard, Vector, Seq),
                    ?assertEqual(Rest, caught_up(Slot, Moved)),
                    {Moved, Rest}
                end, {From, Given}, Given).

missed_nothing(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    publish(<<"ann">>, 1),
    ?assertEqual([], caught_up(Slot, halley_history:heads())).

batches_are_bounded(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    Ids = publish_all([{Subject, binary:copy(<<"x">>, 500)}
                       || _ <- lists:seq(1, 50), Subject <- [<<"ann">>, <<"bob">>]]),
    Mine = [Id || {Id, N} <- lists:zip(Ids, lists:seq(1, 100)), N rem 2 =:= 1],
    [?assertEqual(Mine, [Id || {#{id := Id}, [1]} <- caught_up(Slot, From, Limits)])
     || Limits <- [#{events_max => 1, bytes_max => 100000}, #{events_max => 7, bytes_max => 100},
                   #{events_max => 1000, bytes_max => 5000}]].

unfollowed_since(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish(<<"bob">>, 1),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 2),
    ?assertEqual([1], [halley_event:data(E) || {E, [1]} <- caught_up(Slot, From)]).

unfollowed_and_followed_again(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish(<<"bob">>, 1),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 2),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 3),
    [?assertEqual([1, 2], [halley_event:data(E)
                           || {E, [1]} <- caught_up(Slot, From, #{events_max => Max,
                                                                  bytes_max => 100000})])
     || Max <- [1, 100]].

%% A follow counts from when it was made, here as well.
followed_since(_) ->
    ok = follow_all(<<"cid">>, [<<"bob">>]),
    ok = follow_all(<<"dan">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}, {number(<<"ann">>), 2},
                              {number(<<"cid">>), 3}, {number(<<"dan">>), 4},
                              {number(<<"bob">>), 5}]),
    From = halley_history:heads(),
    publish(<<"bob">>, 1),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    ok = halley:unfollow(<<"dan">>, <<"bob">>),
    publish(<<"bob">>, 2),
    ok = halley:follow(<<"dan">>, <<"bob">>),
    publish(<<"bob">>, 3),
    [?assertEqual([{1, [3, 4, 5]}, {2, [1, 2, 3, 5]}, {3, [1, 2, 3, 4, 5]}],
                  [{halley_event:data(E), Conns}
                   || {E, Conns} <- caught_up(Slot, From, #{events_max => Max,
                                                            bytes_max => 100000})])
     || Max <- [1, 2, 100]].

%% Until it was taken back, and each time anew.
followed_and_unfollowed_since(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish(<<"bob">>, 1),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 2),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 3),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    publish(<<"bob">>, 4),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    [?assertEqual([2, 4], [halley_event:data(E)
                           || {E, [1]} <- caught_up(Slot, From, #{events_max => Max,
                                                                  bytes_max => 100000})])
     || Max <- [1, 2, 100]].

%% So often that the oldest stretches become one: too much may come, and nothing is missed.
followed_and_unfollowed_often(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    [begin
         publish(<<"bob">>, N),
         ok = halley:follow(<<"ann">>, <<"bob">>),
         publish(<<"bob">>, N + 100),
         ok = halley:unfollow(<<"ann">>, <<"bob">>)
     end || N <- lists:seq(1, 10)],
    publish(<<"bob">>, 200),
    Given = [halley_event:data(E) || {E, [1]} <- caught_up(Slot, From)],
    ?assertEqual([], lists:seq(101, 110) -- Given),
    ?assertEqual([], [1, 8, 9, 10, 200] -- ([1, 8, 9, 10, 200] -- Given)).

%% What was read of the changes is kept from batch to batch; those that come in between count.
unfollowed_between_batches(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    ok = follow_all(<<"cid">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}, {number(<<"cid">>), 2}]),
    From = halley_history:heads(),
    publish_all([{<<"bob">>, N} || N <- lists:seq(1, 3)]),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    Limits = #{events_max => 1, bytes_max => 100000},
    {[First], Next, more, [], Former, Reader} =
        halley_catchup:next(#{Slot => []}, From, UpTo, Limits, halley_catchup_former:new(),
                            halley_history_reader:new()),
    ok = halley:unfollow(<<"cid">>, <<"bob">>),
    Conns = [lists:sort(halley_test_brain:conns(element(2, First)))
             | [Conns || {_, Conns} <- caught_up(Slot, Next, UpTo, Limits, Former, Reader)]],
    ?assertEqual([[1, 2], [1, 2], [1, 2]], Conns).

%% A slow link takes its time: who unfollowed may have left, and its number be a stranger's.
number_given_to_another(_) ->
    ok = halley_test_brain:limits(#{id_quarantine_ms => 0}),
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    ok = follow_all(<<"cid">>, [<<"bob">>]),
    Cid = number(<<"cid">>),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish_all([{<<"bob">>, N} || N <- lists:seq(1, 3)]),
    ok = halley:unfollow(<<"cid">>, <<"bob">>),
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    Limits = #{events_max => 1, bytes_max => 100000},
    {[_], Next, more, [], Former, Reader} =
        halley_catchup:next(#{Slot => []}, From, UpTo, Limits, halley_catchup_former:new(),
                            halley_history_reader:new()),
    [ok = halley_ids_sweep:round() || _ <- [1, 2]],
    %% It was written, so it waits for two checkpoints.
    [ok = halley_follows_owner:checkpoint() || _ <- [1, 2]],
    wait(fun() -> halley_ids:waiting() =:= 0 end),
    ?assertEqual(Cid, number(<<"stranger">>)),
    ok = halley_directory:open(Cid, {link, Slot, 2}, infinity),
    ?assertEqual([[1], [1]],
                 [Conns || {_, Conns} <- caught_up(Slot, Next, UpTo, Limits, Former, Reader)]).

%% Each record of an unfollow is read once for a catch-up, however many events there are.
mass_unfollow(_) ->
    Users = [<<"u", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 1000)],
    {ok, _} = halley:follow([{User, <<"bob">>} || User <- Users]),
    {_, Slot, _} = link_with([{number(hd(Users)), 1}]),
    From = halley_history:heads(),
    Events = 2000,
    publish_all([{<<"bob">>, N} || N <- lists:seq(1, Events)]),
    {ok, _} = halley:unfollow([{User, <<"bob">>} || User <- Users]),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ok = meck:new(halley_history_reader, [passthrough, no_link, no_history]),
    Reads = counters:new(1, []),
    ok = meck:expect(halley_history_reader, read, fun(Seq, Reader) ->
                                                      counters:add(Reads, 1, 1),
                                                      meck:passthrough([Seq, Reader])
                                                  end),
    Given = try caught_up(Slot, From) after meck:unload(halley_history_reader) end,
    ?assertEqual(lists:seq(1, Events), [halley_event:data(E) || {E, [1]} <- Given]),
    %% The catch-up goes over all records of the log, events and unfollows, and reads the subject's
    %% unfollows once more.
    ?assert(counters:get(Reads, 1) =< Events + 2 * length(Users)).

%% link.md 7.3
event_with_many_connections(_) ->
    Number = number(<<"ann">>),
    {_, Slot, _} = link_with([{Number, Conn} || Conn <- lists:seq(1, 8193)]),
    From = halley_history:heads(),
    publish(<<"ann">>, 1),
    [{_, Conns}] = caught_up(Slot, From),
    ?assertEqual(lists:seq(1, 8193), lists:sort(Conns)).

too_old(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 10)]),
    {Fifth, _} = lists:nth(5, caught_up(Slot, From)),
    ok = drop_up_to(Fifth),
    [#{reason := too_old, to := 7000} | Given] = caught_up(Slot, From),
    ?assertEqual(lists:seq(6, 10), [halley_event:data(E) || {E, [1]} <- Given]).

damaged(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    Ids = publish_all([{<<"ann">>, N} || N <- lists:seq(1, 9)]),
    {ok, Seq} = halley_history:find(lists:nth(5, Ids)),
    ok = damage(Seq),
    Given = caught_up(Slot, From, #{events_max => 3, bytes_max => 100000}),
    ?assertMatch([#{reason := damaged}], [Gap || #{reason := _} = Gap <- Given]),
    ?assertEqual(lists:seq(1, 9) -- [5], [halley_event:data(E) || {E, _} <- Given]),
    ?assertMatch([#{from := 0, reason := damaged} | _], caught_up(Slot, From)).

%% Nobody knows who has unfollowed, and since when.
damaged_unfollow(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    publish_all([{<<"bob">>, N} || N <- lists:seq(1, 3)]),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    [Unfollow] = halley_history:changes_of(<<"bob">>, 0),
    ok = damage(Unfollow),
    ?assertMatch([#{from := 0, reason := damaged}],
                 [Gap || #{to := _} = Gap <- caught_up(Slot, From)]).

%% It may have held unfollows: the gap begins with what the link lacks, and is told once.
damaged_range(_) ->
    From = halley_history:heads(),
    publish_all([{<<"ann">>, N} || N <- lists:seq(1, 3)]),
    UpTo = halley_history:heads(),
    Last = halley_vector:largest(UpTo),
    ok = halley_history_index:set_damaged([{Last, Last, 5000, 6000}]),
    {[Gap], Told} = halley_catchup:damage(From, UpTo, 0, 4),
    ?assertMatch(#{from := 2000, to := 6000, reason := damaged}, Gap),
    ?assertEqual({[], Told}, halley_catchup:damage(From, UpTo, Told, 4)),
    ?assertEqual({[], 0}, halley_catchup:damage(UpTo, UpTo, 0, 4)),
    ?assertMatch({[#{from := 5000}], _}, halley_catchup:damage(From, UpTo, 0, 9)).

%% A brain begins above what its predecessor had reserved.
hole_in_the_seqs_is_crossed(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = {0, 0, 0, 0, 0, 0, 0, 0},
    publish(<<"ann">>, 1),
    %% Nobody waits for the log from here on.
    wait(fun() -> [1] =:= lists:usort(tuple_to_list(halley_history:written())) end),
    Before = reductions(),
    ?assertMatch([{_, [1]}], caught_up(Slot, From)),
    %% Far fewer than there are seqs in it.
    ?assert(reductions() - Before < 1000000).

reductions() ->
    {reductions, N} = process_info(self(), reductions),
    N.
