%% Sessions that begin with the newest events about what they are subscribed to, then live
%% (protocol/http.md 25).
-module(halley_newest_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_history_helper, [replayed/4]).
-import(halley_missed_helper, [written/0, given/2, ids/1]).
-import(halley_test_brain, [publish/2, follow_all/2, link_with/1, damage/1, drop_up_to/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [the_newest_of_each, what_comes_later_follows, of_follows_nothing,
     of_follows_from_its_beginning, joint_events_once, in_slices,
     who_leaves_goes_on, who_leaves_for_long, wishes_that_are_none,
     forgotten, damaged, what_retention_left,
     strangers_in_the_bucket, an_answer_to_subscribe,
     kept_values_first, kept_meanwhile, kept_by_router,
     too_old_for_its_subject, no_more_than_are_shown].

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

session(Subjects) ->
    {_, Slot, _} = link_with([]),
    [] = halley_subscriptions:open(Slot, [{1, nobody, held, Subjects}]),
    {Slot, 1}.

begun(User, Session, Count) ->
    _ = written(),
    {ok, Replay} = halley_replay:new(User, Session, wish(Count, <<>>)),
    Replay.


newest(Subjects, Count) -> ids(given(begun(nobody, session(Subjects), Count))).

given(Replay) -> given(Replay, #{events_max => 100, bytes_max => 131072}).

last(N, List) -> lists:nthtail(max(0, length(List) - N), List).

%% As if the configuration had these rules.
shown(Rules) ->
    ok = application:set_env(halley, history_retention_of, Rules),
    halley_history_shown:new().

wish(Count, Behind) -> halley_replay_wish:token(halley_replay_wish:new(Count, Behind)).

%% --- cases ---------------------------------------------------------------------------------------

the_newest_of_each(_) ->
    Published = [{S, publish(S, N)} || N <- lists:seq(1, 30), S <- [<<"a">>, <<"b">>, <<"c">>],
                                       N rem 3 =:= 0 orelse S =/= <<"c">>],
    Of = fun(S, N) -> last(N, [Id || {Subject, Id} <- Published, Subject =:= S]) end,
    [begin
         Wanted = Of(<<"a">>, N) ++ Of(<<"c">>, N),
         ?assertEqual([Id || {_, Id} <- Published, lists:member(Id, Wanted)],
                      newest([<<"c">>, <<"a">>, <<"nothing">>], N))
     end || N <- [1, 2, 9, 10, 11, 100]],
    ?assertEqual([], newest([<<"nothing">>], 20)),
    ?assertEqual([], newest([], 20)).

%% As any session that was away: what its user follows and what it is subscribed to, from then on.
what_comes_later_follows(_) ->
    ok = follow_all(<<"bob">>, [<<"f">>]),
    A = publish(<<"a">>, 1),
    publish(<<"f">>, 2),
    Replay = begun(<<"bob">>, session([<<"a">>]), 20),
    B = publish(<<"a">>, 3),
    C = publish(<<"f">>, 4),
    publish(<<"x">>, 5),
    ?assertEqual([A, B, C], ids(given(Replay))).

%% http.md 19.1: "A follow gives no right to past events".
of_follows_nothing(_) ->
    ok = follow_all(<<"bob">>, [<<"f">>]),
    publish(<<"f">>, 1),
    publish(<<"bob">>, 2),
    ?assertEqual([], ids(given(begun(<<"bob">>, session([<<"a">>]), 20)))).

%% The session had its welcome, then waited for its turn, or for another brain.
of_follows_from_its_beginning(_) ->
    ok = follow_all(<<"bob">>, [<<"f">>]),
    publish(<<"f">>, 1),
    A = publish(<<"a">>, 2),
    {began, Began} = halley_replay_wish:begins(wish(1, <<>>)),
    Session = session([<<"a">>]),
    [F, Private, B] = [publish(About, 3) || About <- [<<"f">>, {to, [<<"bob">>]}, <<"a">>]],
    _ = written(),
    {ok, Replay} = halley_replay:new(<<"bob">>, Session, Began),
    ?assertEqual([A, F, Private, B], ids(given(Replay))),
    ?assertEqual({same, Began}, halley_replay_wish:begins(Began)),
    %% One of another store, or none, says nothing of this one: who brings it is told so.
    Other = halley_cursor:encode(halley_history:store() bxor 1, 1, written()),
    [?assertMatch({gap, #{reason := Reason}, _},
                  halley_replay:new(<<"bob">>, Session, wish(1, Behind)))
     || {Behind, Reason} <- [{Other, other_store}, {<<"nonsense">>, malformed}]],
    ?assert(is_binary(B)).

joint_events_once(_) ->
    A = publish(<<"a">>, 1),
    AB = publish({subjects, [<<"a">>, <<"b">>]}, 2),
    B = publish(<<"b">>, 3),
    BA = publish({subjects, [<<"x">>, <<"b">>, <<"a">>]}, 4),
    ?assertEqual([A, AB, B, BA], newest([<<"a">>, <<"b">>], 3)),
    ?assertEqual([BA], newest([<<"a">>, <<"b">>], 1)),
    ?assertEqual([AB, BA], newest([<<"a">>], 2)).

in_slices(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    Ids = [Id || {ok, #{id := Id}} <- halley:publish_many([{S, N, #{}} || N <- lists:seq(1, 60),
                                                                        S <- Subjects])],
    Wanted = last(20 * 50, Ids),
    Replay = begun(nobody, session(Subjects), 50),
    {[], yield, Later, _} =
        replayed(Replay, halley_history:heads(), #{events_max => 100, bytes_max => 131072},
                 halley_history_reader:new()),
    %% A session whose state is let go begins anew, where it began.
    {ok, Wish, Behind} = halley_replay_wish:read(halley_replay:cursor(Later)),
    ?assertEqual({50, 0}, {halley_replay_wish:count(Wish), halley_replay_wish:given(Wish)}),
    ?assertMatch({ok, _}, halley_cursor:decode(Behind)),
    ?assertEqual(lists:sort(Wanted), lists:sort(ids(given(Later)))).

%% http.md 25.2: with the cursor of one of them a session gets the others, and of what its user
%% follows what was published since it began; whichever of them is the newest by then.
who_leaves_goes_on(_) ->
    Subjects = [<<"a">>, <<"b">>],
    ok = follow_all(<<"bob">>, [<<"f">>]),
    Ids = [begin
               publish(<<"f">>, N),
               publish(lists:nth(1 + N rem 2, Subjects), N)
           end || N <- lists:seq(1, 30)],
    publish(<<"f">>, 31),
    Session = session(Subjects),
    {began, Began} = halley_replay_wish:begins(wish(5, <<>>)),
    _ = written(),
    {ok, First} = halley_replay:new(<<"bob">>, Session, Began),
    All = given(First, #{events_max => 1, bytes_max => 10}),
    ?assertEqual(last(10, Ids), ids(All)),
    Later = [publish(S, 32) || S <- [<<"f">>, <<"a">>, {to, [<<"bob">>]}, <<"f">>, <<"b">>]],
    _ = written(),
    [begin
         {ok, Replay} = halley_replay:new(<<"bob">>, Session, Cursor),
         ?assertEqual(last(10 - N, Ids) ++ Later, ids(given(Replay)))
     end || {N, {_, Cursor}} <- lists:enumerate(0, [{welcome, Began} | All])],
    %% Who has had them all comes back with a plain cursor: a subject more counts from it.
    {_, Plain} = lists:last(All),
    ?assertMatch({ok, _}, halley_cursor:decode(Plain)),
    {ok, WithMore} = halley_replay:new(<<"bob">>, session([<<"a">>, <<"f">>]), Plain),
    ?assertEqual([Id || {N, Id} <- lists:enumerate(Later), N < 5], ids(given(WithMore))).

%% Away for longer than the retention: a gap says so, and nothing older than that comes.
who_leaves_for_long(_) ->
    ok = follow_all(<<"bob">>, [<<"f">>]),
    _ = [publish(<<"a">>, N) || N <- lists:seq(1, 5)],
    Kept = keep(<<"a">>, 6),
    Session = session([<<"a">>]),
    {began, Began} = halley_replay_wish:begins(wish(5, <<>>)),
    _ = written(),
    {ok, First} = halley_replay:new(<<"bob">>, Session, Began),
    [{_, Cursor} | _] = given(First, #{events_max => 1, bytes_max => 10}),
    Gone = publish(<<"f">>, 7),
    F = publish(<<"f">>, 8),
    _ = written(),
    {ok, Seq} = halley_history:find(Gone),
    ok = drop_up_to(#{seq => Seq}),
    [begin
         {gap, #{reason := too_old, cursor := Behind}, Replay} =
             halley_replay:new(<<"bob">>, Session, From),
         ?assertEqual(KeptFirst ++ [F], ids(given(Replay))),
         {ok, Again} = halley_replay:new(<<"bob">>, Session, Behind),
         ?assertEqual(KeptFirst ++ [F], ids(given(Again)))
     end || {From, KeptFirst} <- [{Began, [Kept]}, {Cursor, []}]].

wishes_that_are_none(_) ->
    publish(<<"a">>, 1),
    Session = session([<<"a">>]),
    [?assertMatch({gap, #{reason := malformed}, _}, halley_replay:new(nobody, Session, Wish))
     || Wish <- [<<"last-">>, <<"last-0">>, <<"last--1">>, <<"last-x">>, <<"last-5_3">>,
                 <<"last-5_x-AQAA">>, <<"last-5_-AQAA">>, <<"last-5-">>, <<"last-+5">>,
                 <<"last-5_1_2-AQAA">>, <<"last-1234567890123456">>]],
    Max = halley_limits:get(last_events_max),
    Ids = [publish(<<"a">>, N) || N <- lists:seq(1, Max)],
    ?assertEqual(Ids, ids(given(begun(nobody, Session, Max + 1000)))).

forgotten(_) ->
    publish(<<"ann">>, 1),
    publish({subjects, [<<"room">>, <<"ann">>]}, 2),
    Room = publish(<<"room">>, 3),
    {ok, _} = halley:forget(<<"ann">>),
    New = publish(<<"ann">>, 4),
    ?assertEqual([Room, New], newest([<<"ann">>, <<"room">>], 20)).

damaged(_) ->
    A = publish(<<"a">>, 1),
    B = publish(<<"a">>, 2),
    C = publish(<<"a">>, 3),
    {ok, Seq} = halley_history:find(B),
    ok = damage(Seq),
    ?assertEqual([A, damaged, C], newest([<<"a">>], 3)),
    ?assertEqual([damaged, C], newest([<<"a">>], 2)).

what_retention_left(_) ->
    A = publish(<<"a">>, 1),
    B = publish(<<"a">>, 2),
    {ok, Seq} = halley_history:find(A),
    ok = drop_up_to(#{seq => Seq}),
    ?assertEqual([B], newest([<<"a">>], 20)).

%% The index knows a hash of the subject: the record says whether it is one.
strangers_in_the_bucket(_) ->
    {Subject, Other} = same_bucket(),
    Mine = publish(Subject, 1),
    _ = [publish(Other, N) || N <- lists:seq(1, 30)],
    Newest = publish(Subject, 2),
    ?assertEqual([Mine, Newest], newest([Subject], 2)).

same_bucket() -> same_bucket(1, #{}).

same_bucket(N, Met) ->
    Subject = integer_to_binary(N),
    Shard = halley_shards:of_subject(Subject),
    {Bucket, _} = halley_history_buckets:subject(Shard, Subject),
    case Met of
        #{Bucket := Other} -> {Subject, Other};
        #{} -> same_bucket(N + 1, Met#{Bucket => Subject})
    end.

%% A vector from the moment in which a session is subscribed: what is above it finds the session,
%% and what isn't is in the past by then.
an_answer_to_subscribe(_) ->
    {_, Slot, _} = Link = link_with([]),
    A = publish(<<"a">>, 1),
    {added, Heads} = halley_subscriptions:add(Slot, {1, nobody, live}, <<"a">>),
    B = publish(<<"a">>, 2),
    ?assertEqual([1], halley_test_brain:delivered(Link)),
    Before = halley_cursor:encode(halley_history:store(), erlang:system_time(second), Heads),
    {ok, #{events := [{_, Json}]}} = halley_past:page(<<"a">>, Before, none, 20),
    ?assertMatch(#{<<"id">> := A}, jiffy:decode(Json, [return_maps])),
    {ok, #{events := [_, _]}} = halley_past:page(<<"a">>, none, none, 20),
    {already, _} = halley_subscriptions:add(Slot, {1, nobody, live}, <<"a">>),
    ?assert(is_binary(B)).

%% http.md 26: what isn't among the newest comes before them, once.
kept_values_first(_) ->
    keep(<<"a">>, 0),
    A = keep(<<"a">>, 1),
    B = keep(<<"b">>, 2),
    As = [publish(<<"a">>, N) || N <- lists:seq(1, 5)],
    ?assertEqual([A, B | last(2, As)], newest([<<"a">>, <<"b">>], 2)),
    ?assertEqual([A, B], lists:sublist(newest([<<"b">>, <<"a">>], 20), 2, 2)),
    {ok, Seq} = halley_history:find(lists:last(As)),
    ok = drop_up_to(#{seq => Seq}),
    ?assertEqual([A, B], newest([<<"b">>, <<"a">>], 20)),
    C = publish(<<"b">>, 3),
    All = given(begun(nobody, session([<<"a">>, <<"b">>]), 5), #{events_max => 1, bytes_max => 9}),
    ?assertEqual([A, B, C], ids(All)),
    {_, Cursor} = hd(All),
    %% Who leaves in the midst of the kept values, which have no order, gets all of them again.
    {ok, Replay} = halley_replay:new(nobody, session([<<"a">>, <<"b">>]), Cursor),
    ?assertEqual([A, B, C], ids(given(Replay))),
    {ok, _} = halley:publish(<<"a">>, null, #{keep => true}),
    {ok, #{events := [_], kept := none}} = halley_past:page(<<"a">>, none, none, 20),
    {ok, #{events := [_], kept := <<"{", _/binary>>, cursor := Now}} =
        halley_past:page(<<"b">>, none, none, 20),
    {ok, #{kept := none}} = halley_past:page(<<"b">>, Now, none, 20),
    {ok, _} = halley:forget(<<"b">>),
    ?assertEqual([], newest([<<"b">>], 20)).

keep(Subject, Data) ->
    {ok, #{id := Id}} = halley:publish(Subject, Data, #{keep => true}),
    Id.

%% A value that is published while the session begins comes in its place.
kept_meanwhile(_) ->
    As = [keep(<<"a">>, N) || N <- lists:seq(1, 3)],
    Replay = begun(nobody, session([<<"a">>]), 5),
    Later = keep(<<"a">>, 4),
    ?assertEqual(As ++ [Later], ids(given(Replay))).

kept_by_router(_) ->
    A = {ok, #{id => <<"x">>, sessions => 0}},
    ?assertEqual(A, halley:publish(<<"a">>, 1, #{id => <<"x">>, keep => true})),
    ?assertEqual(A, halley:publish(<<"b">>, 2, #{id => <<"x">>, keep => true})),
    ?assertEqual(none, halley_history:kept(<<"b">>)),
    [{error, {bad_option, keep}} = halley:publish(Whom, 1, #{keep => Keep})
     || {Whom, Keep} <- [{{to, [<<"u">>]}, true}, {{subjects, [<<"a">>, <<"b">>]}, true},
                         {<<"a">>, 1}]],
    {ok, _} = halley:publish(<<"a">>, 3, #{keep => false}),
    {ok, #{json := Json}} = halley_history:kept(<<"a">>),
    ?assertMatch(#{<<"data">> := 1}, jiffy:decode(Json, [return_maps])),
    ok = halley_test_brain:limits(#{kept_bytes_max => 2000}),
    Long = binary:copy(<<"x">>, 1500),
    ?assertEqual({error, too_many_kept}, halley:publish(<<"b">>, Long, #{keep => true})),
    {ok, _} = halley:publish(<<"a">>, Long, #{keep => true}),
    {ok, _} = halley:publish(<<"a">>, null, #{keep => true}),
    {ok, _} = halley:publish(<<"b">>, Long, #{keep => true}).

%% Left out, with one gap for who comes with a cursor, and none for who asks for the newest.
too_old_for_its_subject(_) ->
    ok = follow_all(<<"bob">>, [<<"a">>, <<"b">>, <<"c">>]),
    _ = written(),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    Ids = [{S, publish(S, N)} || N <- lists:seq(1, 3), S <- [<<"a">>, <<"b">>, <<"c">>]],
    AB = publish({subjects, [<<"a">>, <<"c">>]}, 4),
    %% The last one has as long to be read before it is too old itself.
    timer:sleep(3100),
    New = publish(<<"a">>, 5),
    ok = shown([{{id, <<"a">>}, {age, 3000}}, {{prefix, <<"b">>}, {age, 2900}}]),
    _ = written(),
    {ok, Replay} = halley_replay:new(<<"bob">>, Cursor),
    Cs = [Id || {<<"c">>, Id} <- Ids],
    ?assertEqual([too_old | Cs ++ [AB, New]], ids(given(Replay))),
    ?assertEqual(Cs ++ [AB, New], newest([<<"a">>, <<"b">>, <<"c">>], 20)),
    ok = shown([]).

%% Who comes with a cursor has all that it missed.
no_more_than_are_shown(_) ->
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    Ids = [{S, publish(S, N)} || N <- lists:seq(1, 6), S <- [<<"a">>, <<"b">>, <<"c">>]],
    Of = fun(S, N) -> last(N, [Id || {Subject, Id} <- Ids, Subject =:= S]) end,
    ok = shown([{{id, <<"a">>}, {count, 2}}, {{prefix, <<"b">>}, {count, 4}}]),
    [begin
         Wanted = Of(<<"a">>, min(N, 2)) ++ Of(<<"b">>, min(N, 4)) ++ Of(<<"c">>, N),
         ?assertEqual([Id || {_, Id} <- Ids, lists:member(Id, Wanted)],
                      newest([<<"a">>, <<"b">>, <<"c">>], N))
     end || N <- [1, 2, 3, 4, 5, 20]],
    {ok, Replay} = halley_replay:new(nobody, session([<<"a">>]), Cursor),
    ?assertEqual(Of(<<"a">>, 6), ids(given(Replay))),
    ok = shown([]).
