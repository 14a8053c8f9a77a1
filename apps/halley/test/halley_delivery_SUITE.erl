%% The central claim of docs/internals/delivery.md, against the real shards, history, links and
%% directory: random publishes, sessions that come and go with their cursors, follows that change,
%% links that stall until they are behind, links that are lost and come back, shards that are
%% killed. `halley_model_link' plays the links.
%%
%% In the end every user has each event that was acknowledged and that it followed from before the
%% publish to after the answer, from its first session on, and each that was for it alone; none
%% twice; those about one subject, or for the same users, in order; and there was no gap.
-module(halley_delivery_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, spawn_actor/1, join/1, shard/1, kill_and_wait/1]).

-define(LINKS, 3).
-define(USERS, [<<"u", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 12)]).
-define(SUBJECTS, [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 8)]).
-define(PUBLISHERS, 3).
%% With them some hundreds are due to somebody, and reach members of groups.
-define(PUBLISHED_MIN, 400).
-define(BY_GROUPS_MIN, 100).
%% For the steps of a case: it has more to do afterwards.
-define(STEPS_MS_MAX, 100000).

%% Of the user: its link, its cursor, and since when it has been there.
-record(client, {link = none :: none | 1..?LINKS, cursor = none, since = none}).
-record(world, {log, links, clients, clock, follows = #{},
                gone = #{}}).       % {User, Subject} => when the answer to the unfollow was there

suite() -> [{timetrap, {minutes, 3}}].

all() -> [nothing_lost_calm, nothing_lost, nothing_lost_when_follows_change,
          nothing_lost_when_shards_die, nothing_lost_in_groups,
          nothing_lost_when_groups_come_and_go].

init_per_testcase(_, Config) ->
    halley_test_brain:start(halley_test_brain:quiet(Config)).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config),
    halley_test_brain:loud(Config).

nothing_lost_calm(_) ->
    run([open, close], 150).

nothing_lost(_) ->
    run([open, open, close, stall, lose], 300).

nothing_lost_when_follows_change(_) ->
    run([open, open, close, stall, lose, follow, follow, unfollow, unfollow], 300).

nothing_lost_when_shards_die(_) ->
    run([open, open, close, stall, lose, follow, unfollow, kill], 150).

%% Every subject is a group from its second follower on.
nothing_lost_in_groups(_) ->
    run([open, open, close, stall, lose, follow, unfollow, kill], 300,
        #{group_followers_min => 2, group_followers_low => 1}, ?BY_GROUPS_MIN).

%% About as many followers as the limits: groups begin and end all the time, and are filled slowly.
nothing_lost_when_groups_come_and_go(_) ->
    run([open, close, stall, lose, follow, follow, unfollow, unfollow, regroup], 400,
        #{group_followers_min => 6, group_followers_low => 5, group_fill_per_s_max => 20000,
          link_queue_bytes_max => 1 bsl 20}, ?BY_GROUPS_MIN).

run(Steps, Times) ->
    run(Steps, Times, #{}, 0).

run(Steps, Times, Limits, ByGroups) ->
    Seed = erlang:phash2({erlang:unique_integer(), os:getpid(), os:timestamp()}),
    ct:pal("seed ~b", [Seed]),
    _ = rand:seed(exsss, Seed),
    ok = limits(maps:merge(#{link_queue_bytes_max => 2000, link_queue_refuse_bytes => 1 bsl 40},
                           Limits)),
    Log = halley_model_link:new_log(),
    Links = maps:from_list([{N, halley_model_link:start(Log)} || N <- lists:seq(1, ?LINKS)]),
    Clients = maps:from_list([{User, #client{}} || User <- ?USERS]),
    World = lists:foldl(fun(User, W) -> step(open, User, W) end,
                        followed(#world{log = Log, links = Links, clients = Clients,
                                        clock = atomics:new(1, [])}), ?USERS),
    Publishers = [spawn_actor(fun() -> publish_until_stopped(World, N, []) end)
                  || N <- lists:seq(1, ?PUBLISHERS)],
    Moved = steps(Steps, Times, ByGroups, Publishers, now_ms() + ?STEPS_MS_MAX, World),
    _ = [Pid ! stop || {Pid, _} <- Publishers],
    Published = lists:append([join(Publisher) || Publisher <- Publishers]),
    Ended = lists:foldl(fun back/2, Moved, ?USERS),
    _ = [settle(Link) || Link <- maps:values(Ended#world.links)],
    Due = [judge(User, Published, Ended) || User <- ?USERS],
    lists:foreach(fun counted/1, ?SUBJECTS ++ ?USERS),
    ct:pal("~b published, ~b were due, behind ~p", [length(Published), lists:sum(Due), behind()]),
    ?assert(lists:sum(Due) > ?PUBLISHED_MIN div 4),
    _ = [halley_model_link:lose(Link) || Link <- maps:values(Ended#world.links)].

%% So many, and on until enough has been published meanwhile to be judged: a slow disk takes longer.
steps(Steps, Left, ByGroups, Publishers, Deadline, World) when Left > 0 ->
    Next = step(pick(Steps), pick(?USERS), World),
    lists:foreach(fun still_publishes/1, Publishers),
    steps(Steps, Left - 1, ByGroups, Publishers, Deadline, Next);
steps(Steps, _, ByGroups, Publishers, Deadline, World) ->
    Done = {metric("\nhalley_events_published_total"), metric("halley_group_deliveries_total")},
    case Done of
        {Published, Grouped} when Published >= ?PUBLISHED_MIN, Grouped >= ByGroups ->
            World;
        _ ->
            now_ms() < Deadline orelse error({too_little_was_published, Done}),
            steps(Steps, 1, ByGroups, Publishers, Deadline, World)
    end.

still_publishes({Publisher, Monitor}) ->
    receive {'DOWN', Monitor, process, Publisher, Reason} -> error({publisher_ended, Reason})
    after 0 -> ok
    end.

now_ms() -> erlang:monotonic_time(millisecond).

behind() -> metric("halley_links_behind_total").

metric(Name) ->
    {match, [N]} = re:run(halley_metrics:render(), Name ++ " ([0-9]+)",
                          [{capture, all_but_first, list}]),
    list_to_integer(N).

pick(List) -> lists:nth(rand:uniform(length(List)), List).

now(#world{clock = Clock}) -> atomics:add_get(Clock, 1, 1).

settle(Link) -> settle(Link, ?WAIT_MS div 10).

settle(_, 0) -> error(never_settles);
settle(Link, N) ->
    halley_model_link:settled(Link)
        orelse begin
                   timer:sleep(10),
                   settle(Link, N - 1)
               end.

%% --- what happens --------------------------------------------------------------------------------

followed(World) ->
    lists:foldl(fun({User, Subject}, W) -> follow(User, Subject, W) end, World,
                [{User, Subject} || User <- ?USERS, Subject <- ?SUBJECTS, rand:uniform(2) =:= 1]).

%% Times when a follow was certain: from behind its answer to before the next unfollow.
follow(User, Subject, #world{follows = Follows, gone = Gone} = World) ->
    ok = halley:follow(User, Subject),
    case Follows of
        #{{User, Subject} := [{_, open} | _]} -> World;
        #{} ->
            Times = [{now(World), open} | maps:get({User, Subject}, Follows, [])],
            World#world{follows = Follows#{{User, Subject} => Times},
                        gone = maps:remove({User, Subject}, Gone)}
    end.

unfollow(User, Subject, #world{follows = Follows} = World) ->
    Ended = case Follows of
        #{{User, Subject} := [{From, open} | Times]} ->
            World#world{follows = Follows#{{User, Subject} := [{From, now(World)} | Times]}};
        #{} ->
            World
    end,
    ok = halley:unfollow(User, Subject),
    case Ended of
        World -> World;
        #world{gone = Gone} -> Ended#world{gone = Gone#{{User, Subject} => now(World)}}
    end.

step(open, User, #world{clients = Clients, links = Links} = World) ->
    case Clients of
        #{User := #client{link = none, cursor = Cursor, since = Since} = Client} ->
            N = rand:uniform(?LINKS),
            ok = halley_model_link:open(map_get(N, Links), User, Cursor),
            First = case Since of none -> now(World); _ -> Since end,
            World#world{clients = Clients#{User := Client#client{link = N, since = First}}};
        #{} ->
            timer:sleep(rand:uniform(10)),
            World
    end;
step(close, User, #world{clients = Clients, links = Links} = World) ->
    case Clients of
        #{User := #client{link = N} = Client} when N =/= none ->
            Cursor = halley_model_link:close(map_get(N, Links), User),
            World#world{clients = Clients#{User := Client#client{link = none, cursor = Cursor}}};
        #{} ->
            World
    end;
step(stall, _, #world{links = Links} = World) ->
    ok = halley_model_link:stall(map_get(rand:uniform(?LINKS), Links), rand:uniform(60)),
    World;
step(lose, _, #world{links = Links} = World) ->
    N = rand:uniform(?LINKS),
    Saved = halley_model_link:lose(map_get(N, Links)),
    timer:sleep(rand:uniform(20)),
    World#world{links = Links#{N := halley_model_link:start(Saved)}};
step(follow, User, World) ->
    follow(User, pick(?SUBJECTS), World);
step(unfollow, User, World) ->
    unfollow(User, pick(?SUBJECTS), World);
step(regroup, User, World) ->
    %% The owner of the groups dies, or begins those of a shard again.
    %% So seldom that no supervisor gives up.
    case rand:uniform(20) of
        1 -> ok = kill_and_wait(halley_groups);
        2 -> gen_server:cast(halley_groups,
                             {shard_started, rand:uniform(halley_shards:count())});
        _ -> ok
    end,
    step(open, User, World);
step(kill, _, World) ->
    %% So often that no supervisor gives up.
    case rand:uniform(8) of
        1 -> ok = kill_and_wait(shard(rand:uniform(halley_shards:count())));
        _ -> timer:sleep(10)
    end,
    World.

back(User, #world{clients = Clients} = World) ->
    case Clients of
        #{User := #client{link = none}} -> step(open, User, World);
        #{} -> World
    end.

%% {Id, Subject, Began, Ended} of what was acknowledged.
publish_until_stopped(World, Seed, Published) ->
    receive stop -> Published
    after 0 ->
        Subject = whom(),
        Began = now(World),
        case halley:publish(Subject, Seed, #{ack => pick([memory, disk])}) of
            {ok, #{id := Id}} ->
                Ended = now(World),
                publish_until_stopped(World, Seed, [{Id, Subject, Began, Ended} | Published]);
            {error, Later} when Later =:= unavailable; Later =:= overloaded ->
                timer:sleep(1),
                publish_until_stopped(World, Seed, Published)
        end
    end.

%% One in three is private, for the same few sets of users again and again.
whom() ->
    case rand:uniform(3) of
        1 -> {to, lists:sublist(?USERS, rand:uniform(length(?USERS)), rand:uniform(8))};
        _ -> pick(?SUBJECTS ++ ?USERS)
    end.

%% --- what must be so -----------------------------------------------------------------------------

judge(User, Published, #world{log = Log} = World) ->
    Received = halley_model_link:received(User, Log),
    ?assertEqual([], [Gap || #{reason := _} = Gap <- Received]),
    Ids = [Id || #{id := Id} <- Received],
    ?assertEqual({User, []}, {User, Ids -- lists:usort(Ids)}),
    Due = [Id || {Id, Subject, Began, Ended} <- Published,
                 is_due(User, Subject, Began, Ended, World)],
    ?assertEqual({User, []}, {User, Due -- Ids}),
    Foreign = [Id || {Id, Subject, Began, _} <- Published,
                     is_foreign(User, Subject, Began, World)],
    ?assertEqual({User, []}, {User, Foreign -- (Foreign -- Ids)}),
    Private = maps:from_list([{Id, Users} || {Id, {to, Users}, _, _} <- Published]),
    ?assertEqual([], [Id || #{id := Id, subject := _} <- Received, is_map_key(Id, Private)]),
    lists:foldl(fun(#{seq := Seq} = Event, Last) ->
                    Whom = whom(Event, Private),
                    ?assert(Seq > maps:get(Whom, Last, 0)),
                    Last#{Whom => Seq}
                end, #{}, Received),
    length(Due).

%% Of one that wasn't answered nobody knows for whom it was.
whom(#{subject := Subject}, _) -> Subject;
whom(#{id := Id}, Private) -> maps:get(Id, Private, Id).

%% It isn't for the user. Or the user doesn't follow, and if it did, it had its answer that this is
%% over before the publish.
is_foreign(User, {to, Users}, _, _) ->
    not lists:member(User, Users);
is_foreign(User, Subject, Began, #world{follows = Follows, gone = Gone}) ->
    case Gone of
        _ when User =:= Subject -> false;
        #{{User, Subject} := Answered} -> Answered < Began;
        #{} -> not is_map_key({User, Subject}, Follows)
    end.

%% Groups know how many sessions they reach.
counted(Subject) ->
    {ok, #{sessions := Sessions}} = halley:publish(Subject, last),
    Expected = [Session || User <- lists:usort([Subject | halley:followers(Subject)]),
                           Session <- halley_sessions:of_user(User)],
    ?assertEqual({Subject, length(Expected)}, {Subject, Sessions}).

is_due(User, {to, Users}, Began, _, #world{clients = Clients}) ->
    #{User := #client{since = Since}} = Clients,
    Began > Since andalso lists:member(User, Users);
is_due(User, Subject, Began, Ended, #world{clients = Clients, follows = Follows}) ->
    #{User := #client{since = Since}} = Clients,
    Began > Since andalso
        (User =:= Subject orelse
         lists:any(fun({From, To}) -> From < Began andalso Ended < To end,
                   maps:get({User, Subject}, Follows, []))).
