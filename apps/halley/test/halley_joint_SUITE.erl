%% Joint events, about several subjects: once for whom several of them reach, live and missed, and
%% in the past of each (docs/internals/joint.md).
-module(halley_joint_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, missed/2, missed/3, ids/1, caught_up/3]).
-import(halley_test_brain, [publish/2, follow_all/2, number/1, link_with/1, message/1, event/0,
                            no_event/0, damage/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [once_for_whom_several_reach, one_subject_is_a_plain_event, of_a_process, of_a_group,
     followers_of_each, missed_once, missed_once_by_events, missed_by_who_unfollowed,
     a_follow_counts_from_when_it_was_made, each_event_has_its_cursor, across_windows,
     a_link_that_was_behind, parts_of_a_link_that_was_behind, order_with_its_subjects,
     the_past_of_each, pages_of_the_past, forgotten, damaged_record, same_id, bounds, trace].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

about(Subjects, Data) -> publish({subjects, Subjects}, Data).

names(N) -> [<<"s", (integer_to_binary(I))/binary>> || I <- lists:seq(1, N)].

%% The ids of a page, all of it in pages of so many.
past(Subject, Limit) -> past(Subject, none, Limit).

past(Subject, Before, Limit) ->
    {ok, #{events := Events, gaps := [], next := Next}} =
        halley_past:page(Subject, Before, none, Limit),
    Ids = [maps:get(<<"id">>, jiffy:decode(Json, [return_maps])) || {_, Json} <- Events],
    case Next of
        none -> Ids;
        _ -> Ids ++ past(Subject, Next, Limit)
    end.

%% --- live ----------------------------------------------------------------------------------------

once_for_whom_several_reach(_) ->
    ok = follow_all(<<"both">>, [<<"ann">>, <<"room">>]),
    ok = follow_all(<<"one">>, [<<"room">>]),
    Users = [<<"both">>, <<"one">>, <<"ann">>, <<"stranger">>],
    Link = link_with([{number(User), N} || {N, User} <- lists:enumerate(Users)]),
    {ok, #{id := Id, sessions := 3}} =
        halley:publish({subjects, [<<"room">>, <<"ann">>, <<"room">>, <<"unknown">>]}, #{n => 1}),
    {Delivery, Conns} = message(Link),
    ?assertEqual([1, 2, 3], lists:sort([Conn || <<Conn:64>> <= Conns])),
    #{id := Id, json := Json} = halley_test_brain:event(Delivery),
    ?assertMatch(#{<<"id">> := Id, <<"subjects">> := [<<"room">>, <<"ann">>, <<"unknown">>],
                   <<"data">> := #{<<"n">> := 1}}, jiffy:decode(Json, [return_maps])).

one_subject_is_a_plain_event(_) ->
    ok = halley:login(<<"ann">>),
    about([<<"ann">>, <<"ann">>], 1),
    ?assertMatch(#{subject := <<"ann">>, data := 1}, event()).

of_a_process(_) ->
    ok = halley:login(<<"bob">>),
    ok = follow_all(<<"bob">>, [<<"a">>, <<"b">>]),
    Id = about([<<"a">>, <<"b">>, <<"bob">>], #{a => [1]}),
    ?assertMatch(#{id := Id, subjects := [<<"a">>, <<"b">>, <<"bob">>], at := _,
                   data := #{<<"a">> := [1]}}, event()),
    no_event().

%% The members of a group are found among the followers, and who is of two groups has it once.
of_a_group(_) ->
    ok = halley_test_brain:limits(#{group_followers_min => 2, group_followers_low => 1}),
    Stars = [<<"star">>, <<"sun">>],
    [ok = follow_all(User, Stars) || User <- [<<"ann">>, <<"bob">>]],
    Ann = number(<<"ann">>),
    Link = link_with([{Ann, 1}]),
    ok = halley_groups:changed(Ann),
    halley_test_brain:wait(fun() ->
        [{ok, _} = halley:publish(Star, 0) || Star <- Stars],
        length([filled || {_, filled} <- halley_groups:list()]) =:= 2
    end),
    {ok, #{id := Id, sessions := 1}} = halley:publish({subjects, Stars}, joint),
    ?assertEqual(<<1:64>>, conns_of(Link, Id)).

conns_of(Link, Id) ->
    {Delivery, Conns} = message(Link),
    case halley_test_brain:event(Delivery) of
        #{id := Id} -> Conns;
        #{} -> conns_of(Link, Id)
    end.

followers_of_each(_) ->
    [ok = follow_all(<<"u", S/binary>>, [S]) || S <- names(16)],
    Link = link_with([{number(<<"u", S/binary>>), N} || {N, S} <- lists:enumerate(names(16))]),
    {ok, #{sessions := 16}} = halley:publish({subjects, names(16)}, 1),
    {_, Conns} = message(Link),
    ?assertEqual(lists:seq(1, 16), lists:sort([Conn || <<Conn:64>> <= Conns])).

%% --- missed --------------------------------------------------------------------------------------

missed_once(_) ->
    about([<<"a">>, <<"b">>], before),
    Cursor = cursor(),
    ok = follow_all(<<"both">>, [<<"a">>, <<"b">>]),
    ok = follow_all(<<"one">>, [<<"b">>]),
    Start = cursor(),
    A = about([<<"a">>, <<"b">>], 1),
    B = publish(<<"b">>, 2),
    C = about([<<"c">>, <<"b">>, <<"a">>], 3),
    D = about([<<"c">>, <<"a">>], 4),
    ?assertEqual([A, B, C, D], ids(missed(<<"both">>, Start))),
    ?assertEqual([A, B, C, D], ids(missed(<<"both">>, Cursor))),
    ?assertEqual([A, B, C], ids(missed(<<"one">>, Start))),
    ?assertEqual([A, C, D], ids(missed(<<"a">>, Start))),
    ?assertEqual([], ids(missed(<<"stranger">>, Start))).

%% The way over the events finds the same as that over the follows.
missed_once_by_events(_) ->
    ok = follow_all(<<"bob">>, names(3000)),
    Cursor = cursor(),
    Ids = [about([<<"s1">>, <<"s2">>], 1), publish(<<"s7">>, 2), about([<<"x">>, <<"s9">>], 3),
           about([<<"bob">>, <<"s5">>], 4)],
    about([<<"x">>, <<"y">>], 5),
    ?assertEqual(Ids, ids(missed(<<"bob">>, Cursor))).

missed_by_who_unfollowed(_) ->
    ok = follow_all(<<"bob">>, [<<"a">>, <<"b">>]),
    Cursor = cursor(),
    A = about([<<"x">>, <<"a">>], 1),
    ok = halley:unfollow(<<"bob">>, <<"a">>),
    about([<<"x">>, <<"a">>], 2),
    B = about([<<"a">>, <<"b">>], 3),
    ?assertEqual([A, B], ids(missed(<<"bob">>, Cursor))).

a_follow_counts_from_when_it_was_made(_) ->
    ok = follow_all(<<"bob">>, [<<"b">>]),
    Cursor = cursor(),
    about([<<"x">>, <<"a">>], 1),
    A = about([<<"a">>, <<"b">>], 2),
    ok = halley:follow(<<"bob">>, <<"a">>),
    B = about([<<"x">>, <<"a">>], 3),
    ?assertEqual([A, B], ids(missed(<<"bob">>, Cursor))),
    {_, Slot, _} = link_with([{number(<<"bob">>), 1}]),
    {ok, #{vector := From}} = halley_cursor:decode(Cursor),
    ?assertEqual([{A, [1]}, {B, [1]}], caught_up(Slot, From, 512)).

%% http.md 10.2: who leaves in the middle comes back with the cursor of the last event, and has none
%% twice.
each_event_has_its_cursor(_) ->
    ok = follow_all(<<"bob">>, names(8)),
    Start = cursor(),
    Ids = [case N rem 3 of
               0 -> publish(<<"s3">>, N);
               _ -> about(lists:sublist(names(8), 1 + N rem 5, 2 + N rem 3), N)
           end || N <- lists:seq(1, 60)],
    All = missed(<<"bob">>, Start, #{events_max => 1, bytes_max => 10}),
    ?assertEqual(Ids, ids(All)),
    [?assertEqual(lists:nthtail(N, Ids), ids(missed(<<"bob">>, Cursor)))
     || {N, {_, Cursor}} <- lists:enumerate(All)].

%% A pass of a replay ends between the seqs of an event.
across_windows(_) ->
    ok = follow_all(<<"bob">>, names(16)),
    Start = cursor(),
    Ids = [Id || {ok, #{id := Id}} <- halley:publish_many([{{subjects, names(16)}, N, #{}}
                                                           || N <- lists:seq(1, 700)])],
    ?assertEqual(Ids, ids(missed(<<"bob">>, Start))).

a_link_that_was_behind(_) ->
    ok = follow_all(<<"both">>, [<<"a">>, <<"b">>]),
    ok = follow_all(<<"one">>, [<<"b">>]),
    {_, Slot, _} = link_with([{number(<<"both">>), 1}, {number(<<"one">>), 2},
                              {number(<<"a">>), 3}]),
    From = halley_history:heads(),
    A = about([<<"a">>, <<"b">>], 1),
    B = about([<<"x">>, <<"a">>], 2),
    about([<<"x">>, <<"y">>], 3),
    ok = halley:unfollow(<<"one">>, <<"b">>),
    C = about([<<"a">>, <<"b">>], 4),
    ?assertEqual([{A, [1, 2, 3]}, {B, [1, 3]}, {C, [1, 3]}], caught_up(Slot, From, 512)).

parts_of_a_link_that_was_behind(_) ->
    [ok = follow_all(User, names(16)) || User <- [<<"u1">>, <<"u2">>]],
    {_, Slot, _} = link_with([{number(<<"u1">>), 1}, {number(<<"u2">>), 2}]),
    From = halley_history:heads(),
    Ids = [about(names(16), N) || N <- lists:seq(1, 5)],
    [?assertEqual([{Id, [1, 2]} || Id <- Ids], caught_up(Slot, From, EventsMax))
     || EventsMax <- [1, 3, 15, 16, 17, 31, 33, 512]].

%% In the order of the answers, whichever shards the events are of.
order_with_its_subjects(_) ->
    ok = follow_all(<<"bob">>, names(8)),
    ok = halley:login(<<"bob">>),
    Start = cursor(),
    Ids = [case N rem 2 of
               0 -> publish(lists:nth(1 + N rem 8, names(8)), N);
               1 -> about([lists:nth(1 + (N * I) rem 8, names(8)) || I <- [1, 3, 5]], N)
           end || N <- lists:seq(1, 400)],
    ?assertEqual(Ids, [maps:get(id, event()) || _ <- Ids]),
    ?assertEqual(Ids, ids(missed(<<"bob">>, Start))).

%% --- the past ------------------------------------------------------------------------------------

the_past_of_each(_) ->
    A = publish(<<"a">>, 1),
    AB = about([<<"a">>, <<"b">>], 2),
    B = publish(<<"b">>, 3),
    CB = about([<<"c">>, <<"b">>], 4),
    ?assertEqual([AB, A], past(<<"a">>, 20)),
    ?assertEqual([CB, B, AB], past(<<"b">>, 20)),
    ?assertEqual([CB], past(<<"c">>, 20)),
    ?assertEqual([], past(<<"d">>, 20)).

%% Where a page ends, a stream from there has the rest, and none twice.
pages_of_the_past(_) ->
    ok = follow_all(<<"bob">>, names(4)),
    Ids = [case N rem 2 of
               0 -> publish(<<"s1">>, N);
               1 -> about([lists:nth(1 + N rem 4, names(4)), <<"s1">>, <<"s3">>], N)
           end || N <- lists:seq(1, 90)],
    Newest = lists:reverse(Ids),
    [?assertEqual(Newest, past(<<"s1">>, Limit)) || Limit <- [1, 2, 7, 89, 90, 91]],
    {ok, #{events := Events, next := Next}} = halley_past:page(<<"s1">>, none, none, 30),
    ?assertEqual(lists:sublist(Newest, 31, 60), past(<<"s1">>, Next, 1000)),
    ?assertEqual(lists:nthtail(60, Ids), ids(missed(<<"bob">>, Next))),
    {Oldest, _} = lists:last(Events),
    ?assertEqual(lists:nthtail(61, Ids), ids(missed(<<"bob">>, Oldest))),
    {ok, #{events := Behind}} = halley_past:page(<<"s1">>, none, Oldest, 1000),
    ?assertEqual(29, length(Behind)).

%% Its text names all of its subjects.
forgotten(_) ->
    ok = follow_all(<<"bob">>, [<<"room">>]),
    Cursor = cursor(),
    about([<<"ann">>, <<"room">>], 1),
    {ok, _} = halley:forget(<<"ann">>),
    After = about([<<"ann">>, <<"room">>], 2),
    ?assertEqual([After], past(<<"room">>, 20)),
    ?assertEqual([After], past(<<"ann">>, 20)),
    ?assertEqual([After], ids(missed(<<"bob">>, Cursor))),
    {_, Slot, _} = link_with([{number(<<"bob">>), 1}]),
    {ok, #{vector := From}} = halley_cursor:decode(Cursor),
    ?assertEqual([{After, [1]}], caught_up(Slot, From, 512)).

damaged_record(_) ->
    ok = follow_all(<<"bob">>, [<<"b">>]),
    Cursor = cursor(),
    {ok, #{id := Id}} = halley:publish({subjects, [<<"a">>, <<"b">>]}, 1),
    After = publish(<<"b">>, 2),
    {ok, Seq} = halley_history:find(Id),
    ok = damage(Seq),
    ?assertMatch([damaged, {After, _}], missed(<<"bob">>, Cursor)),
    ?assertEqual([], missed(<<"stranger">>, Cursor)),
    ?assertMatch({ok, #{events := [_], gaps := [#{reason := damaged}]}},
                 halley_past:page(<<"b">>, none, none, 20)).

%% --- publishing ----------------------------------------------------------------------------------

same_id(_) ->
    ok = halley:login(<<"a">>),
    First = {ok, #{id => <<"x">>, sessions => 1}},
    [?assertEqual(First, halley:publish(Whom, 1, #{id => <<"x">>}))
     || Whom <- [{subjects, [<<"b">>, <<"a">>]}, {subjects, [<<"b">>, <<"a">>]}, <<"c">>,
                 {subjects, [<<"c">>, <<"d">>]}]],
    _ = event(),
    no_event().

bounds(_) ->
    Max = halley_limits:get(event_subjects_max),
    [?assertEqual({error, bad_subjects}, halley:publish({subjects, Bad}, 1))
     || Bad <- [[], names(Max + 1), <<"bob">>, [<<"bob">> | <<"eve">>]]],
    ?assertEqual({error, {bad_id, <<>>}}, halley:publish({subjects, [<<"bob">>, <<>>]}, 1)),
    ?assertMatch({error, {bad_data, _}}, halley:publish({subjects, names(2)}, self())),
    Longest = [<<(binary:copy(<<"\"">>, 253))/binary, (integer_to_binary(N))/binary>>
               || N <- lists:seq(10, 9 + Max)],
    Id = <<(binary:copy(<<"\"">>, 255))/binary>>,
    Data = {json, binary:copy(<<"1">>, halley_limits:get(event_data_bytes_max))},
    Link = link_with([{number(hd(Longest)), 1}]),
    {ok, #{sessions := 1}} = halley:publish({subjects, Longest}, Data, #{id => Id}),
    {Delivery, _} = message(Link),
    #{json := Json} = halley_test_brain:event(Delivery),
    ?assertMatch(#{<<"subjects">> := Longest}, jiffy:decode(Json, [return_maps])).

trace(_) ->
    ok = follow_all(<<"ann">>, [<<"b">>]),
    Id = about([<<"a">>, <<"b">>], 1),
    ok = halley:unfollow(<<"ann">>, <<"b">>),
    {ok, #{event := Event, followed := true, unfollowed_at := At}} =
        halley_trace:trace(Id, <<"ann">>),
    ?assert(is_integer(At)),
    ?assertMatch(#{id := Id, subjects := [<<"a">>, <<"b">>], sessions := 0}, Event),
    ?assertMatch({ok, #{followed := false}}, halley_trace:trace(Id, <<"stranger">>)).
