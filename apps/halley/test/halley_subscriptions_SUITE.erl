%% Subscriptions of sessions: live, missed, of a link that was late, of groups, and that nothing of
%% them is left (docs/internals/subscriptions.md). The case plays the process of each link.
-module(halley_subscriptions_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, given/2, ids/1]).
-import(halley_test_brain, [publish/2, follow_all/2, number/1, link_with/1, message/1, delivered/1,
                            spawn_actor/1, join/1, wait/1]).


suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [live, once_beside_follows, of_a_group, held, missed, missed_beside_follows,
     a_link_that_was_behind, trace, links_end, a_slot_with_another_link, the_process_dies, bounds,
     visitors_leave_nothing, rows_point_to_no_binaries, many_of_one_subject].

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

slot({_, Slot, _}) -> Slot.

live(Link, Conn, User, Subjects) ->
    [] = halley_subscriptions:open(slot(Link), [{Conn, User, live, Subjects}]),
    ok.

subscribe(Link, Conn, Subject) ->
    {Result, _} = halley_subscriptions:add(slot(Link), {Conn, nobody, live}, Subject),
    Result.

%% Ids of all that a session missed.
missed(User, Session, Cursor) ->
    {ok, Replay} = halley_replay:new(User, Session, Cursor),
    ids(given(Replay, #{events_max => 100, bytes_max => 131072})).

rows() ->
    {ets:info(halley_subscriptions, size), ets:info(halley_subscriptions_table, size)}.

%% --- live ----------------------------------------------------------------------------------------

live(_) ->
    [Here, There] = [link_with([]), link_with([])],
    ok = live(Here, 1, nobody, [<<"room">>, <<"live">>]),
    ok = live(Here, 2, nobody, [<<"room">>]),
    ok = live(There, 1, nobody, [<<"live">>]),
    {ok, #{sessions := 2}} = halley:publish(<<"room">>, 1),
    ?assertEqual([1, 2], lists:sort(delivered(Here))),
    {ok, #{sessions := 2}} = halley:publish(<<"live">>, 2),
    ?assertEqual({[1], [1]}, {delivered(Here), delivered(There)}),
    added = subscribe(There, 1, <<"room">>),
    already = subscribe(There, 1, <<"room">>),
    removed = halley_subscriptions:remove(slot(Here), 1, <<"room">>),
    absent = halley_subscriptions:remove(slot(Here), 1, <<"room">>),
    {ok, #{sessions := 2}} = halley:publish(<<"room">>, 3),
    ?assertEqual({[2], [1]}, {delivered(Here), delivered(There)}),
    ok = halley_subscriptions:close(slot(Here), [1, 2]),
    {ok, #{sessions := 1}} = halley:publish(<<"room">>, 4),
    {ok, #{sessions := 0}} = halley:publish(<<"nobody's">>, 5),
    ?assertEqual([1], delivered(There)).

once_beside_follows(_) ->
    Ann = number(<<"ann">>),
    ok = follow_all(<<"ann">>, [<<"room">>]),
    Link = link_with([{Ann, 1}, {Ann, 2}, {Ann, 3}]),
    ok = live(Link, 2, Ann, [<<"room">>, <<"ann">>]),
    ok = live(Link, 4, nobody, [<<"room">>]),
    {ok, #{sessions := 4}} = halley:publish(<<"room">>, 1),
    ?assertEqual([1, 2, 3, 4], lists:sort(delivered(Link))),
    {ok, #{sessions := 3}} = halley:publish(<<"ann">>, 2).

%% Members of a group get its events as such, also those that have subscribed.
of_a_group(_) ->
    ok = halley_test_brain:limits(#{group_followers_min => 2, group_followers_low => 1}),
    [Ann, Eve, Star] = [number(User) || User <- [<<"ann">>, <<"eve">>, <<"star">>]],
    [ok = follow_all(User, [<<"star">>]) || User <- [<<"ann">>, <<"bob">>]],
    Link = link_with([{Ann, 1}, {Eve, 2}]),
    [ok = halley_groups:changed(User) || User <- [Ann, Eve]],
    wait(fun() ->
        {ok, _} = halley:publish(<<"star">>, 0),
        halley_groups:list() =:= [{Star, filled}]
    end),
    ok = live(Link, 1, Ann, [<<"star">>]),
    ok = live(Link, 2, Eve, [<<"star">>]),
    ok = live(Link, 3, nobody, [<<"star">>]),
    Id = publish(<<"star">>, 1),
    ?assertEqual({group, Star, [2, 3]}, to_group(Link, Id)),
    ok = halley:unfollow(<<"ann">>, <<"star">>),
    Later = publish(<<"star">>, 2),
    ?assertEqual({group, Star, [1, 2, 3]}, to_group(Link, Later)).

to_group(Link, Id) ->
    {Delivery, To} = message(Link),
    case {maps:get(id, halley_test_brain:event(Delivery)), To} of
        {Id, {group, Group, Conns}} -> {group, Group, lists:sort([C || <<C:64>> <= Conns])};
        {Id, Conns} -> {none, Conns};
        _ -> to_group(Link, Id)
    end.

%% A held session isn't found before it enters; what it subscribes to meanwhile is replayed.
held(_) ->
    {_, Slot, _} = Link = link_with([]),
    Cursor = cursor(),
    [] = halley_subscriptions:open(Slot, [{1, nobody, held, [<<"room">>]}]),
    Room = publish(<<"room">>, 1),
    {added, _} = halley_subscriptions:add(Slot, {1, nobody, held}, <<"live">>),
    {ok, #{id := Live, sessions := 0}} = halley:publish(<<"live">>, 2),
    ?assertEqual([Room, Live], missed(nobody, {Slot, 1}, Cursor)),
    ok = halley_subscriptions:enter(Slot, [1]),
    [begin
         {ok, #{sessions := 1}} = halley:publish(Subject, 3),
         ?assertEqual([1], delivered(Link))
     end || Subject <- [<<"room">>, <<"live">>]],
    [] = halley_subscriptions:open(Slot, [{2, nobody, held, [<<"room">>]}]),
    ok = halley_subscriptions:close(Slot, [2]),
    ok = halley_subscriptions:enter(Slot, [2]),
    {ok, #{sessions := 1}} = halley:publish(<<"room">>, 4).

%% --- missed --------------------------------------------------------------------------------------

missed(_) ->
    _ = publish(<<"room">>, before),
    Cursor = cursor(),
    {_, Slot, _} = link_with([]),
    [] = halley_subscriptions:open(Slot, [{1, nobody, held, [<<"room">>, <<"live">>]}]),
    [A, B, C] = [publish(S, 1) || S <- [<<"room">>, <<"live">>, <<"room">>]],
    _ = publish(<<"other">>, 1),
    ?assertEqual([A, B, C], missed(nobody, {Slot, 1}, Cursor)),
    ?assertEqual([], missed(nobody, {Slot, 2}, Cursor)),
    ?assertEqual({undefined, undefined},
                 {halley_ids:lookup(<<"room">>), halley_ids:lookup(<<"live">>)}).

%% Both ways of a gathering. A follow counts from when it was made, a subscription that is said
%% again from the cursor; what both bring comes once.
missed_beside_follows(_) ->
    ok = follow_all(<<"ann">>, [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 3000)]),
    {_, Slot, _} = link_with([]),
    [] = halley_subscriptions:open(Slot, [{1, number(<<"ann">>), held, [<<"room">>, <<"s1">>]}]),
    Few = cursor(),
    Ids = [publish(S, 1) || S <- [<<"room">>, <<"s1">>, <<"s2">>, <<"ann">>]],
    ?assertEqual(Ids, missed(<<"ann">>, {Slot, 1}, Few)),
    ok = follow_all(<<"ann">>, [<<"room">>, <<"late">>]),
    _ = publish(<<"other">>, 1),
    Late = publish(<<"late">>, 2),
    ?assertEqual(Ids ++ [Late], missed(<<"ann">>, {Slot, 1}, Few)),
    ok = halley:unfollow(<<"ann">>, <<"room">>),
    After = publish(<<"room">>, 3),
    ?assertEqual(Ids ++ [Late, After], missed(<<"ann">>, {Slot, 1}, Few)),
    Many = cursor(),
    More = [publish(S, N) || N <- lists:seq(1, 1200), S <- [<<"room">>, <<"s1">>]],
    ?assertEqual(More, missed(<<"ann">>, {Slot, 1}, Many)).

%% Who followed only later doesn't get it as a follower, and gets it as a subscriber.
a_link_that_was_behind(_) ->
    [Ann, Bob] = [number(User) || User <- [<<"ann">>, <<"bob">>]],
    {_, Slot, _} = Link = link_with([{Ann, 1}, {Bob, 2}]),
    {_, Other, _} = link_with([]),
    ok = live(Link, 1, Ann, [<<"room">>]),
    ok = live(Link, 3, nobody, [<<"room">>]),
    [] = halley_subscriptions:open(Slot, [{4, nobody, held, [<<"room">>]}]),
    [] = halley_subscriptions:open(Other, [{5, nobody, live, [<<"room">>]}]),
    From = halley_history:heads(),
    Id = publish(<<"room">>, 1),
    [ok = follow_all(User, [<<"room">>]) || User <- [<<"ann">>, <<"bob">>]],
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    {[{Delivery, Words}], _, done, [], _, _} =
        halley_catchup:next(#{Slot => []}, From, UpTo, #{events_max => 100, bytes_max => 1 bsl 20},
                            halley_catchup_former:new(), halley_history_reader:new()),
    ?assertMatch(#{id := Id}, halley_test_brain:event(Delivery)),
    ?assertEqual([1, 3], lists:sort(halley_test_brain:conns(Words))).

%% Of a user that doesn't follow, the subscribed sessions alone are asked.
trace(_) ->
    Ann = number(<<"ann">>),
    {_, Slot, _} = Link = link_with([{Ann, 1}, {Ann, 2}]),
    ok = live(Link, 2, Ann, [<<"room">>]),
    [Room, Other] = [publish(Subject, 1) || Subject <- [<<"room">>, <<"other">>]],
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    {ok, #{followed := true, sessions := [#{session := Session, passed := true}]}} =
        halley_trace:trace(Room, <<"ann">>),
    ?assertEqual({link, Slot, 2}, Session),
    ?assertMatch({ok, #{followed := false}}, halley_trace:trace(Other, <<"ann">>)),
    ok = follow_all(<<"ann">>, [<<"room">>]),
    Followed = publish(<<"room">>, 2),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertMatch({ok, #{followed := true, sessions := [_, _]}},
                 halley_trace:trace(Followed, <<"ann">>)).

%% --- what ends -----------------------------------------------------------------------------------

links_end(_) ->
    Slot = slot(link_with([])),
    Opening = [{Conn, nobody, live, [<<"room">>, integer_to_binary(Conn)]}
               || Conn <- lists:seq(1, 2000)],
    [] = join(spawn_actor(fun() -> halley_subscriptions:open(Slot, Opening) end)),
    wait(fun() -> rows() =:= {0, 0} end),
    {ok, #{sessions := 0}} = halley:publish(<<"room">>, 1).

%% What the link before it had said is gone before the first word of the next one counts.
a_slot_with_another_link(_) ->
    Slot = slot(link_with([])),
    Opening = fun(Subject) -> [{Conn, nobody, live, [Subject]} || Conn <- lists:seq(1, 2000)] end,
    {First, _} = spawn_actor(fun() ->
        [] = halley_subscriptions:open(Slot, Opening(<<"old">>)),
        receive stop -> ok end
    end),
    wait(fun() -> rows() =/= {0, 0} end),
    [] = halley_subscriptions:open(Slot, [{1, nobody, live, [<<"new">>]}]),
    ?assertEqual({1, 1}, rows()),
    First ! stop,
    timer:sleep(50),
    ?assertEqual({1, 1}, rows()).

%% The next one knows nothing, and the links that had told of something begin anew.
the_process_dies(Config) ->
    Quiet = halley_test_brain:quiet(Config),
    Actor = fun(Tells) ->
        Case = self(),
        Writer = spawn(fun() -> receive stop -> ok end end),
        {Link, Monitor} = spawn_monitor(fun() ->
            {ok, Slot, _} = halley_test_brain:worker(Writer, #{link => self()}),
            [[] = halley_subscriptions:open(Slot, [{1, nobody, live, [<<"room">>]}]) || Tells],
            Case ! {self(), ready},
            receive stop -> ok end
        end),
        receive {Link, ready} -> {Link, Monitor} end
    end,
    {Told, Monitor} = Actor(true),
    {Silent, _} = Actor(false),
    halley_test_brain:kill_and_wait(halley_subscriptions),
    receive {'DOWN', Monitor, process, Told, killed} -> ok end,
    wait(fun() -> rows() =:= {0, 0} end),
    ok = halley_test_brain:loud(Quiet),
    ?assert(is_process_alive(Silent)),
    {ok, #{sessions := 0}} = halley:publish(<<"room">>, 1).

bounds(_) ->
    ok = halley_test_brain:limits(#{subscriptions_per_session_max => 2, subscriptions_max => 4}),
    Link = link_with([]),
    [] = halley_subscriptions:open(slot(Link), [{1, nobody, live, [<<"a">>, <<"b">>]},
                                                {2, nobody, live, [<<"a">>]}]),
    too_many_of_session = subscribe(Link, 1, <<"c">>),
    [3] = halley_subscriptions:open(slot(Link), [{3, nobody, live, [<<"a">>, <<"b">>]}]),
    added = subscribe(Link, 2, <<"b">>),
    too_many = subscribe(Link, 4, <<"a">>),
    ?assertMatch({2, _}, rows()),
    ok = halley_subscriptions:close(slot(Link), [1]),
    added = subscribe(Link, 4, <<"a">>).

%% "10,000 visitors who come and go change neither the ids nor the follows, on disk or in memory."
visitors_leave_nothing(Config) ->
    Link = link_with([]),
    ok = live(Link, 0, nobody, [<<"warm">>]),
    ok = halley_subscriptions:close(slot(Link), [0]),
    State = fun() ->
        {halley_ids:count(), halley_follows:count(), halley_follows:changes(), rows(),
         [{Table, ets:info(Table, memory)}
          || Table <- [halley_subscriptions, halley_subscriptions_table, halley_followers,
                       halley_following, halley_ids_pages]],
         files(proplists:get_value(dir, Config))}
    end,
    Before = State(),
    [begin
         Conns = lists:seq(From, From + 99),
         [] = halley_subscriptions:open(slot(Link),
             [{Conn, nobody, live, [<<"room">>, <<"page/", (integer_to_binary(Conn))/binary>>]}
              || Conn <- Conns]),
         ok = halley_subscriptions:close(slot(Link), Conns)
     end || From <- lists:seq(1, 9901, 100)],
    ?assertEqual(Before, State()).

files(Dir) ->
    [{File, filelib:file_size(File)} || File <- filelib:wildcard(filename:join(Dir, "**")),
                                        not filelib:is_dir(File),
                                        string:find(File, "/history/") =:= nomatch,
                                        string:find(File, "position") =:= nomatch].

%% What is short stands in the row itself: outside it would take three times as much.
rows_point_to_no_binaries(_) ->
    Link = link_with([]),
    [ok = live(Link, Conn, nobody, [<<"room/1">>, <<"room/2">>]) || Conn <- lists:seq(0, 7)],
    Rows = ets:tab2list(halley_subscriptions) ++ ets:tab2list(halley_subscriptions_table),
    ?assertEqual(8 + 2, length(Rows)),
    Binaries = [element(tuple_size(Row), Row) || Row <- Rows],
    ?assertEqual([erts_debug:flat_size(binary:copy(Binary)) || Binary <- Binaries],
                 [erts_debug:flat_size(Binary) || Binary <- Binaries]),
    ok = halley_subscriptions:close(slot(Link), lists:seq(0, 7)).

%% Pages split, and each session is found, whoever left.
many_of_one_subject(_) ->
    [Here, There] = [link_with([]), link_with([])],
    Conns = [Conn || {_, Conn} <- lists:sort([{erlang:phash2(N), N} || N <- lists:seq(1, 3000)])],
    [] = halley_subscriptions:open(slot(Here), [{C, nobody, live, [<<"x">>]} || C <- Conns]),
    [] = halley_subscriptions:open(slot(There), [{C, nobody, live, [<<"x">>]} || C <- [7, 8]]),
    {ok, #{sessions := 3002}} = halley:publish(<<"x">>, 1),
    ?assertEqual(lists:seq(1, 3000), lists:sort(delivered(Here))),
    ok = halley_subscriptions:close(slot(Here), [C || C <- Conns, C rem 7 =/= 0]),
    ?assertEqual([C || C <- lists:seq(1, 3000), C rem 7 =:= 0],
                 conns(halley_subscriptions_table:words(<<"x">>, #{slot(Here) => []}))),
    ?assertEqual([7, 8], conns(halley_subscriptions_table:words(<<"x">>, #{slot(There) => []}))).

conns(Words) -> [Word band ((1 bsl 48) - 1) || Word <- Words].
