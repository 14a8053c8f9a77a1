%% Private events: for the users that they name, live and missed, and for no other user
%% (docs/internals/private.md).
-module(halley_private_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_history_helper, [replayed/4]).
-import(halley_missed_helper, [cursor/0, missed/2, missed/3, given/4, ids/1, caught_up/3]).
-import(halley_test_brain, [publish/2, follow_all/2, number/1, link_with/1, message/1, event/0,
                            no_event/0, damage/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [all_sessions_of_its_users, followers_get_nothing, of_a_process, of_a_group, missed,
     missed_beside_follows, missed_by_many, each_event_has_its_cursor, what_was_gathered_is_shared,
     a_link_that_was_behind, parts_of_a_link_that_was_behind, damaged_record, same_id, bounds,
     little_room, trace, order_with_batches].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

to(Users, Data) -> publish({to, Users}, Data).

users(N) -> [<<"u", (integer_to_binary(I))/binary>> || I <- lists:seq(1, N)].

%% --- live ----------------------------------------------------------------------------------------

all_sessions_of_its_users(_) ->
    [Bob, Eve, Ann] = [number(User) || User <- [<<"bob">>, <<"eve">>, <<"ann">>]],
    Link = link_with([{Bob, 1}, {Bob, 2}, {Eve, 3}, {Ann, 4}]),
    {ok, #{id := Id, sessions := 3}} =
        halley:publish({to, [<<"eve">>, <<"bob">>, <<"eve">>, <<"never heard of">>]}, #{n => 1}),
    {Delivery, Conns} = message(Link),
    ?assertEqual([1, 2, 3], lists:sort([Conn || <<Conn:64>> <= Conns])),
    ?assertMatch(#{id := Id, private := true, json := _}, halley_test_brain:event(Delivery)),
    #{json := Json} = halley_test_brain:event(Delivery),
    ?assertEqual([], [Name || Name <- [<<"bob">>, <<"eve">>, <<"never">>],
                              binary:match(Json, Name) =/= nomatch]).

followers_get_nothing(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Link = link_with([{number(<<"ann">>), 1}, {number(<<"bob">>), 2}]),
    {ok, #{sessions := 1}} = halley:publish({to, [<<"bob">>]}, 1),
    ?assertMatch({_, <<2:64>>}, message(Link)),
    {ok, #{sessions := 2}} = halley:publish(<<"bob">>, 2),
    {_, Both} = message(Link),
    ?assertEqual([1, 2], lists:sort([Conn || <<Conn:64>> <= Both])).

of_a_process(_) ->
    ok = halley:login(<<"bob">>),
    Id = to([<<"bob">>], #{a => [1]}),
    Event = event(),
    ?assertMatch(#{id := Id, private := true, data := #{<<"a">> := [1]}, at := _}, Event),
    ?assertNot(is_map_key(subject, Event)),
    to([<<"eve">>], 1),
    no_event().

%% Members of a group follow its subject; what is for its user alone isn't theirs.
of_a_group(_) ->
    ok = halley_test_brain:limits(#{group_followers_min => 2, group_followers_low => 1}),
    Ann = number(<<"ann">>),
    ok = follow_all(<<"ann">>, [<<"star">>]),
    ok = follow_all(<<"bob">>, [<<"star">>]),
    Link = link_with([{Ann, 1}]),
    ok = halley_groups:changed(Ann),
    halley_test_brain:wait(fun() ->
        {ok, _} = halley:publish(<<"star">>, 0),
        halley_groups:list() =:= [{number(<<"star">>), filled}]
    end),
    {ok, #{sessions := 0}} = halley:publish({to, [<<"star">>]}, private),
    Id = to([<<"ann">>], private),
    ?assertMatch([{Id, <<1:64>>}], privates(Link, Id)).

privates(Link, Last) ->
    case message_of(Link) of
        {#{id := Last, private := true}, Conns} -> [{Last, Conns}];
        {#{id := Id, private := true}, Conns} -> [{Id, Conns} | privates(Link, Last)];
        {#{}, _} -> privates(Link, Last)
    end.

message_of(Link) ->
    {Delivery, Conns} = message(Link),
    {halley_test_brain:event(Delivery), Conns}.

%% --- missed --------------------------------------------------------------------------------------

missed(_) ->
    to([<<"bob">>], before),
    Cursor = cursor(),
    ok = follow_all(<<"follower">>, [<<"bob">>]),
    One = to([<<"bob">>], 1),
    Both = to([<<"bob">>, <<"eve">>], 2),
    Two = to([<<"bob">>], 3),
    ?assertEqual([One, Both, Two], ids(missed(<<"bob">>, Cursor))),
    ?assertEqual([Both], ids(missed(<<"eve">>, Cursor))),
    ?assertEqual([], missed(<<"follower">>, Cursor)),
    ?assertEqual([], missed(<<"stranger">>, Cursor)),
    ?assertEqual(undefined, halley_ids:lookup(<<"eve">>)).

%% Both ways of a gathering, over the follows and over the events, find them.
missed_beside_follows(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 3000)],
    ok = follow_all(<<"bob">>, Subjects),
    Few = cursor(),
    Ids = [A, B, C] = [publish(<<"s1">>, 1), to([<<"bob">>], 2), publish(<<"s7">>, 3)],
    ?assertEqual(Ids, ids(missed(<<"bob">>, Few))),
    ok = halley:unfollow(<<"bob">>, <<"s1">>),
    ok = halley:follow(<<"bob">>, <<"s1">>),
    ?assertEqual([A, B, C], ids(missed(<<"bob">>, Few))),
    {ok, _} = halley:follow([{<<"eve">>, S} || S <- [<<"s1">>, <<"s7">>]]),
    Many = cursor(),
    Seen = lists:append([[publish(<<"s1">>, N), to([<<"eve">>, <<"bob">>], N)]
                         || N <- lists:seq(1, 100)]),
    ?assertEqual(Seen, ids(missed(<<"eve">>, Many))).

missed_by_many(_) ->
    Cursor = cursor(),
    Users = users(1000),
    Ids = [to(Users, N) || N <- lists:seq(1, 5)],
    [?assertEqual(Ids, ids(missed(User, Cursor)))
     || User <- [<<"u1">>, <<"u2">>, <<"u500">>, <<"u999">>, <<"u1000">>]],
    ?assertEqual([], missed(<<"u1001">>, Cursor)).

%% http.md 10.2: who leaves in the middle comes back with the cursor of the last event.
each_event_has_its_cursor(_) ->
    Start = cursor(),
    Lists = [[<<"bob">>], [<<"bob">>, <<"eve">>], users(30) ++ [<<"bob">>]],
    Ids = [to(Users, N) || N <- lists:seq(1, 20), Users <- Lists],
    All = missed(<<"bob">>, Start, #{events_max => 1, bytes_max => 10}),
    ?assertEqual(Ids, ids(All)),
    [?assertEqual(lists:nthtail(N, Ids), ids(missed(<<"bob">>, Cursor)))
     || {N, {_, Cursor}} <- lists:enumerate(All)].

%% Another session of the user begins with what the first has gathered.
what_was_gathered_is_shared(_) ->
    ok = follow_all(<<"bob">>, [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 9000)]),
    Start = cursor(),
    Ids = [to(Users, N) || N <- lists:seq(1, 400), Users <- [[<<"bob">>], [<<"a">>, <<"bob">>]]],
    [{_, Middle} | _] = lists:nthtail(99, missed(<<"bob">>, Start)),
    UpTo = halley_history:heads(),
    {ok, First} = halley_replay:new(<<"bob">>, Start),
    Gathered = gathered(First, UpTo, halley_history_reader:new()),
    {ok, New} = halley_replay:new(<<"bob">>, Middle),
    Offered = halley_replay:offer(Gathered, New),
    Rest = given(Offered, UpTo, #{events_max => 256, bytes_max => 131072},
               halley_history_reader:new()),
    ?assertEqual(lists:nthtail(100, Ids), ids(Rest)).

gathered(Replay, UpTo, Reader) ->
    {_, What, Next, Later} = replayed(Replay, UpTo, #{events_max => 1, bytes_max => 10}, Reader),
    case halley_replay:gathered(Next) of
        {none, Same} when What =/= done -> gathered(Same, UpTo, Later);
        {Gathered, _} when Gathered =/= none -> Gathered
    end.

a_link_that_was_behind(_) ->
    [Bob, Eve, Ann] = [number(User) || User <- [<<"bob">>, <<"eve">>, <<"ann">>]],
    {_, Slot, _} = link_with([{Bob, 1}, {Bob, 2}, {Eve, 3}, {Ann, 4}]),
    {_, Other, _} = link_with([{Eve, 5}]),
    From = halley_history:heads(),
    A = to([<<"bob">>], 1),
    B = to([<<"bob">>, <<"eve">>], 2),
    C = to([<<"eve">>], 3),
    to([<<"nobody">>], 4),
    ?assertEqual([{A, [1, 2]}, {B, [1, 2, 3]}, {C, [3]}], caught_up(Slot, From, 512)),
    ?assertEqual([{B, [5]}, {C, [5]}], caught_up(Other, From, 512)).

%% However a batch cuts it, each of its users has it once.
parts_of_a_link_that_was_behind(_) ->
    Users = users(20),
    {_, Slot, _} = link_with([{number(User), N} || {N, User} <- lists:enumerate(Users)]),
    From = halley_history:heads(),
    Ids = [to(Users, N) || N <- lists:seq(1, 3)],
    lists:foreach(fun(EventsMax) ->
        Given = caught_up(Slot, From, EventsMax),
        ?assertEqual(Ids, lists:usort(fun(A, B) -> index(A, Ids) =< index(B, Ids) end,
                                      [Id || {Id, _} <- Given])),
        [?assertEqual(lists:seq(1, 20), lists:sort(lists:append([Conns || {I, Conns} <- Given,
                                                                          I =:= Id])))
         || Id <- Ids]
    end, [1, 3, 7, 19, 20, 21, 59, 60, 512]).

index(Id, Ids) -> length(lists:takewhile(fun(I) -> I =/= Id end, Ids)).

damaged_record(_) ->
    Cursor = cursor(),
    {ok, #{id := Id}} = halley:publish({to, [<<"bob">>, <<"eve">>]}, 1),
    After = to([<<"bob">>], 2),
    {ok, Seq} = halley_history:find(Id),
    ok = damage(Seq),
    ?assertMatch([damaged, {After, _}], missed(<<"bob">>, Cursor)),
    ?assertMatch([damaged], missed(<<"eve">>, Cursor)),
    ?assertEqual([], missed(<<"stranger">>, Cursor)).

%% --- publishing ----------------------------------------------------------------------------------

same_id(_) ->
    Cursor = cursor(),
    ok = halley:login(<<"bob">>),
    First = {ok, #{id => <<"x">>, sessions => 1}},
    ?assertEqual(First, halley:publish({to, [<<"bob">>, <<"eve">>]}, 1, #{id => <<"x">>})),
    [?assertEqual(First, halley:publish(Whom, 2, #{id => <<"x">>}))
     || Whom <- [{to, [<<"bob">>, <<"eve">>]}, {to, [<<"eve">>]}, <<"bob">>]],
    _ = event(),
    no_event(),
    ?assertEqual([<<"x">>], ids(missed(<<"bob">>, Cursor))),
    ?assertEqual([<<"x">>], ids(missed(<<"eve">>, Cursor))).

bounds(_) ->
    Max = halley_limits:get(private_users_max),
    ?assertEqual(1000, Max),
    [?assertEqual({error, bad_to}, halley:publish({to, Bad}, 1))
     || Bad <- [[], users(Max + 1), <<"bob">>, [<<"bob">> | <<"eve">>]]],
    ?assertEqual({error, {bad_id, <<>>}}, halley:publish({to, [<<"bob">>, <<>>]}, 1)),
    ?assertMatch({error, {bad_data, _}}, halley:publish({to, [<<"bob">>]}, self())),
    Large = {json, binary:copy(<<"1">>, halley_limits:get(event_data_bytes_max) + 1)},
    ?assertEqual({error, data_too_large}, halley:publish({to, [<<"bob">>]}, Large)),
    Longest = [<<(binary:copy(<<"x">>, 251))/binary, (integer_to_binary(N))/binary>>
               || N <- lists:seq(1000, 999 + Max)],
    {json, Text} = Large,
    ?assertMatch({ok, _}, halley:publish({to, Longest}, {json, binary:part(Text, 1, 65536)})).

%% Seqs are reserved in portions: what would take more than there are waits for the next one.
little_room(_) ->
    Cursor = cursor(),
    ok = halley_history_atomics:put(reserved, halley_history_atomics:get(counter) + 1500),
    Ids = [to(users(1000), N) || N <- lists:seq(1, 3)],
    ?assertEqual(Ids, ids(missed(<<"u77">>, Cursor))).

trace(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    Id = to([<<"bob">>, <<"eve">>], 1),
    {ok, #{event := Event, followed := true, unfollowed_at := none}} =
        halley_trace:trace(Id, <<"eve">>),
    ?assertMatch(#{id := Id, users := 2, sessions := 0}, Event),
    [?assertMatch({ok, #{followed := false}}, halley_trace:trace(Id, User))
     || User <- [<<"ann">>, <<"stranger">>]].

%% A batch keeps the order of the events for the same users.
order_with_batches(_) ->
    Cursor = cursor(),
    Lists = [[<<"bob">>], [<<"bob">>, <<"eve">>], [<<"ann">>, <<"bob">>, <<"eve">>]],
    Items = [{{to, Users}, {json, integer_to_binary(N)}, #{}}
             || N <- lists:seq(1, 700), Users <- Lists],
    Ids = [Id || {ok, #{id := Id}} <- halley:publish_many(Items)],
    Numbered = lists:zip(Ids, [Users || {{to, Users}, _, _} <- Items]),
    Missed = ids(missed(<<"bob">>, Cursor)),
    ?assertEqual(2100, length(Missed)),
    ?assertEqual(lists:sort(Ids), lists:sort(Missed)),
    Of = maps:from_list(Numbered),
    [?assertEqual([Id || {Id, U} <- Numbered, U =:= Users],
                  [Id || Id <- Missed, map_get(Id, Of) =:= Users]) || Users <- Lists].
