%% Follows are exact and durable, whatever happens to the processes that keep them.
-module(halley_follows_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_store_proper.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([answers_count_exactly/1, errors_keep_their_place/1, self_follow_is_implicit/1,
         lists_in_pages/1, users_in_pages/1,
         fold_sees_what_is_listed/1, long_list_is_cut_in_slices/1,
         concurrent_follow_unfollow_exact/1, reader_during_split/1, queue_full/1,
         unfollow_needs_its_record/1, follow_needs_its_record/1,
         kill_owner_during_commit/1, killed_in_a_split/1, kill_owner_during_checkpoint/1,
         restart_keeps_follows/1, journal_is_cut/1, brain_killed_after_reply/1, random_lives/1]).

%% What the VM runs that brain_killed_after_reply kills.
-export([follow_forever/1]).

-import(halley_store_helper, [id/1, agree/0]).

%% With more in ten seconds, halley_store_sup gives up.
-define(KILLS_MAX, 5).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [answers_count_exactly, errors_keep_their_place, self_follow_is_implicit,
     lists_in_pages, users_in_pages,
     fold_sees_what_is_listed, long_list_is_cut_in_slices, concurrent_follow_unfollow_exact,
     reader_during_split, queue_full, unfollow_needs_its_record,
     follow_needs_its_record,
     kill_owner_during_commit, killed_in_a_split,
     kill_owner_during_checkpoint, restart_keeps_follows, journal_is_cut,
     brain_killed_after_reply, random_lives].

init_per_testcase(Case, Config) ->
    halley_store_helper:begin_case(Case, Config).

end_per_testcase(_, Config) ->
    halley_store_helper:end_case(),
    Config.

answers_count_exactly(_) ->
    Pair = {<<"a">>, <<"b">>},
    ?assertEqual({ok, #{added => 1, already => 1, errors => []}},
                 halley_follows:follow([Pair, Pair])),
    ?assertEqual({ok, #{added => 0, already => 1, errors => []}}, halley_follows:follow([Pair])),
    ?assertEqual({ok, #{removed => 1, absent => 2, errors => []}},
                 halley_follows:unfollow([Pair, Pair, {<<"a">>, <<"never seen">>}])),
    ?assertEqual({ok, #{removed => 0, absent => 1, errors => []}}, halley_follows:unfollow([Pair])),
    ?assertEqual({ok, #{added => 0, already => 0, errors => []}}, halley_follows:follow([])),
    ?assertEqual(undefined, halley_ids:lookup(<<"never seen">>)).

errors_keep_their_place(_) ->
    Long = binary:copy(<<"x">>, 256),
    ?assertEqual({ok, #{added => 1, already => 0,
                        errors => [{0, {bad_id, user, empty}}, {2, {bad_id, subject, too_long}},
                                   {3, {bad_id, user, not_utf8}}]}},
                 halley_follows:follow([{<<>>, <<"b">>}, {<<"a">>, <<"b">>}, {<<"a">>, Long},
                                        {<<255>>, <<255>>}])),
    ?assertEqual([{<<"a">>, <<"b">>}], agree()).

self_follow_is_implicit(_) ->
    Self = {<<"a">>, <<"a">>},
    ?assertEqual({ok, #{added => 0, already => 1, errors => []}}, halley_follows:follow([Self])),
    ?assertEqual({ok, #{removed => 0, absent => 0, errors => [{0, self}]}},
                 halley_follows:unfollow([Self])),
    ?assertEqual({[], done}, halley_follows:followers(<<"a">>, start, 10)).

lists_in_pages(_) ->
    Users = [id(N) || N <- lists:seq(1, 3000)],
    {ok, _} = halley_follows:follow([{User, <<"star">>} || User <- Users]),
    Page = fun(After) -> halley_follows:followers(<<"star">>, After, 700) end,
    ?assertEqual(Users, pages(Page, Page(start))),
    ?assertEqual(3000, halley_follows:count_followers(<<"star">>)),
    ?assertEqual({[<<"star">>], done}, halley_follows:following(<<"7">>, start, 1)),
    ?assertEqual(1, halley_follows:count_following(<<"7">>)),
    ?assertEqual({[], done}, halley_follows:followers(<<"nobody">>, start, 1)),
    ?assertEqual({error, {unknown_id, <<"nobody">>}},
                 halley_follows:followers(<<"star">>, <<"nobody">>, 1)).

pages(_, {Ids, done}) -> Ids;
pages(Page, {Ids, Next}) ->
    ?assertEqual(700, length(Ids)),
    Ids ++ pages(Page, Page(Next)).

%% Those who are followed alone aren't users here, nor those who have ended their follows.
users_in_pages(_) ->
    ?assertEqual({[], done}, halley_follows_users:page(start, 700)),
    Users = [<<"user-", (id(N))/binary>> || N <- lists:seq(1, 2100)],
    {ok, _} = halley_follows:follow([{<<"user-1">>, id(N)} || N <- lists:seq(1, 3000)]),
    {ok, _} = halley_follows:follow([{User, <<"star">>} || User <- Users]),
    Page = fun(After) -> halley_follows_users:page(After, 700) end,
    {Two, Next} = halley_follows_users:page(start, 2),
    ?assertEqual([<<"user-1">>, <<"user-2">>], Two),
    ?assertMatch({[<<"user-3">> | _], _}, Page(Next)),
    ?assertEqual(Users, pages(Page, Page(start))),
    {ok, _} = halley_follows:unfollow([{<<"user-2">>, <<"star">>}]),
    ?assertMatch({[<<"user-1">>, <<"user-3">>], _}, halley_follows_users:page(start, 2)),
    %% The last user of a page has left, and is back with another number: the others come next.
    Left = halley_ids:lookup(<<"user-2">>),
    ok = halley_ids_index:remove([{<<"user-2">>, Left}]),
    ok = halley_ids_pages:clear([Left]),
    {ok, #{added := 1}} = halley_follows:follow([{<<"user-2">>, <<"star">>}]),
    ?assertMatch({[<<"user-3">> | _], _}, Page(Next)),
    %% A page ends at its bound, also where it has found no user.
    {ok, _} = halley_follows:unfollow([{User, <<"star">>} || User <- Users]),
    {ok, _} = halley_follows:follow([{<<"the last">>, <<"star">>}]),
    {[<<"user-1">>], Bound} = halley_follows_users:page(start, 700, 1000),
    {[], Further} = halley_follows_users:page(Bound, 700, 1000),
    ?assertNotEqual(Bound, Further),
    ?assertEqual({[<<"the last">>], done}, halley_follows_users:page(Further, 700)),
    ?assertEqual({error, {unknown_id, <<"nobody">>}}, halley_follows_users:page(<<"nobody">>, 1)).

fold_sees_what_is_listed(_) ->
    {ok, _} = halley_follows:follow([{id(N), id(N rem 3)} || N <- lists:seq(1, 5000)]),
    Number = halley_ids:lookup(<<"1">>),
    Numbers = lists:reverse(halley_follows_graph:fold_followers(fun(N, Acc) -> [N | Acc] end, [],
                                                          Number)),
    ?assertEqual([id(N) || N <- lists:seq(4, 5000, 3)], [halley_ids:name(N) || N <- Numbers]),
    ?assertEqual(Numbers, [N || Slice <- halley_follows_graph:followers_packed(Number),
                                <<N:32>> <= Slice]).

long_list_is_cut_in_slices(_) ->
    Pairs = [{id(N), id(N rem 100)} || N <- lists:seq(1, 250000)],
    {ok, Answer} = halley_follows:follow(Pairs ++ [{<<>>, <<"b">>}]),
    ?assertEqual(#{added => 249901, already => 99, errors => [{250000, {bad_id, user, empty}}]},
                 Answer),
    ?assertEqual(249901, length(agree())).

%% Whatever the order, the sum of what was added less what was removed is what is there.
concurrent_follow_unfollow_exact(_) ->
    Sums = parallel(16, fun(_) -> lists:sum([random_change() || _ <- lists:seq(1, 150)]) end),
    ?assertEqual(lists:sum(Sums), length(agree())).

random_change() ->
    Pairs = [{id(rand:uniform(5)), <<"s", (id(rand:uniform(5)))/binary>>}
             || _ <- lists:seq(1, rand:uniform(3))],
    case rand:uniform(2) of
        1 ->
            {ok, #{added := Added}} = halley_follows:follow(Pairs),
            Added;
        2 ->
            {ok, #{removed := Removed}} = halley_follows:unfollow(Pairs),
            -Removed
    end.

%% The even users follow throughout, the odd ones come and go, and pages split and vanish.
reader_during_split(_) ->
    Ids = [id(N) || N <- lists:seq(1, 8000)],
    {ok, Numbers} = halley_ids:intern([<<"star">> | Ids]),
    [Star | Users] = Numbers,
    Even = [N || N <- Users, N rem 2 =:= 0],
    {ok, _} = halley_follows:follow([{halley_ids:name(N), <<"star">>} || N <- Even]),
    Odd = [{halley_ids:name(N), <<"star">>} || N <- Users, N rem 2 =:= 1],
    Self = self(),
    Reads = atomics:new(1, []),
    Reader = spawn_link(fun() -> Self ! {self(), read(Star, Even, Reads)} end),
    Before = ets:info(halley_followers, size),
    Sizes = [begin
                 await_read(Reads),
                 {ok, #{added := 4000}} = halley_follows:follow(Odd),
                 Size = ets:info(halley_followers, size),
                 await_read(Reads),
                 {ok, #{removed := 4000}} = halley_follows:unfollow(Odd),
                 Size
             end || _ <- lists:seq(1, 20)],
    Reader ! stop,
    ?assert(lists:max(Sizes) > Before),
    receive {Reader, done} -> ok end.

%% The next one is on its way then, and pages change under it.
await_read(Reads) ->
    Before = atomics:get(Reads, 1),
    halley_store_helper:await(fun() -> atomics:get(Reads, 1) > Before end).

read(Star, Even, Reads) ->
    Members = [N || Slice <- halley_follows_graph:followers_packed(Star), <<N:32>> <= Slice],
    ?assertEqual(lists:usort(Members), Members),
    ?assertEqual([], ordsets:subtract(Even, Members)),
    ok = atomics:add(Reads, 1, 1),
    receive stop -> done
    after 0 -> read(Star, Even, Reads)
    end.

queue_full(_) ->
    halley_limits:set(#{follows_queue_max => 10}),
    ok = sys:suspend(halley_follows_owner, infinity),
    Self = self(),
    Follow = fun(First) ->
                     halley_follows:follow([{id(N), <<"s">>} || N <- lists:seq(First, First + 4)])
             end,
    Waiting = [spawn_link(fun() -> Self ! {self(), Follow(N)} end) || N <- [10, 20]],
    halley_store_helper:await(fun() -> owner_has_waiting(2) end),
    ?assertEqual({error, overloaded}, Follow(30)),
    ok = sys:resume(halley_follows_owner, infinity),
    [receive {Pid, Answer} -> ?assertMatch({ok, #{added := 5}}, Answer) end || Pid <- Waiting],
    ?assertMatch({ok, #{added := 5}}, Follow(30)),
    ?assertEqual(15, length(agree())).

%% Without its record in the history, who comes back would miss in silence what was published
%% before the unfollow.
unfollow_needs_its_record(_) ->
    ets:whereis(halley_metrics_edge) =:= undefined andalso halley_metrics:new(),
    Pair = {<<"a">>, <<"b">>},
    {ok, _} = halley_follows:follow([Pair]),
    ok = meck:expect(halley_history, has_events, 1, true),
    ok = meck:expect(halley_history, unfollowed, 1, {error, disk_full}),
    ?assertEqual({error, disk_full}, halley_follows:unfollow([Pair])),
    ?assertEqual([Pair], agree()),
    ok = meck:expect(halley_history, unfollowed, 1, ok),
    ?assertMatch({ok, #{removed := 1}}, halley_follows:unfollow([Pair])),
    ?assertEqual([], agree()).

%% Without it, who comes back with an older cursor would get what was published before the follow.
follow_needs_its_record(_) ->
    ets:whereis(halley_metrics_edge) =:= undefined andalso halley_metrics:new(),
    ok = meck:expect(halley_history, has_events, 1, true),
    ok = meck:expect(halley_history, followed, fun([{<<"a">>, <<"b">>}], 0) ->
        {error, history_failed}
    end),
    ?assertEqual({error, {store_failed, history_failed}},
                 halley_follows:follow([{<<"a">>, <<"b">>}])),
    ?assertEqual([], agree()).

owner_has_waiting(N) ->
    {messages, Messages} = process_info(whereis(halley_follows_owner), messages),
    length([Call || {'$gen_call', _, _} = Call <- Messages]) =:= N.

%% Every follow that was answered stands; one that wasn't may stand or not, in both directions.
kill_owner_during_commit(_) ->
    IsOver = atomics:new(1, []),
    {Killer, Monitor} = spawn_opt(fun() ->
        lists:foreach(fun(_) -> kill_owner_after(16) end, lists:seq(1, 3)),
        ok = atomics:put(IsOver, 1, 1)
    end, [link, monitor]),
    Asked = lists:append(parallel(8, fun(P) -> follow_until(IsOver, P, 1) end)),
    receive {'DOWN', Monitor, process, Killer, Reason} -> ?assertEqual(normal, Reason) end,
    halley_store_helper:await_owner(),
    {Answered, Failed} = lists:partition(fun({Answer, _}) -> Answer =:= answered end, Asked),
    %% Who was counted last may have had no answer yet when the owner was killed.
    ?assert(length(Answered) >= 3 * 15),
    ?assertNotEqual([], Failed),
    ?assertEqual([], [Pair || {answered, Pair} <- Answered] -- agree()).

%% At any time of a commit, once it has answered so many more.
kill_owner_after(N) ->
    Before = halley_follows:count(),
    halley_store_helper:await(fun() -> halley_follows:count() >= Before + N end),
    timer:sleep(rand:uniform(20)),
    ok = halley_store_helper:kill(halley_follows_owner).

follow_until(IsOver, P, N) ->
    Pair = {<<(id(P))/binary, "-", (id(N))/binary>>, <<"s">>},
    Asked = case halley_follows:follow([Pair]) of
        {ok, _} ->
            {answered, Pair};
        {error, {store_failed, _}} ->
            halley_store_helper:await_owner(),
            {failed, Pair}
    end,
    case atomics:get(IsOver, 1) of
        0 -> [Asked | follow_until(IsOver, P, N + 1)];
        1 -> [Asked]
    end.

%% The owner died when the right half of a page had been written, and the left one not yet.
killed_in_a_split(_) ->
    Pairs = [{<<"u">>, id(N)} || N <- lists:seq(1, 1500)],
    {ok, _} = halley_follows:follow(Pairs),
    [{Fence, Left}, {_, Right} | _] = ets:tab2list(halley_following),
    {Whole, _, <<>>} = halley_pages:change(add, Left, halley_pages:pairs(Right), infinity),
    true = ets:insert(halley_following, {Fence, Whole}),
    ok = halley_store_helper:kill(halley_follows_owner),
    {_, Last} = Gone = lists:last(Pairs),
    ?assertMatch({ok, #{removed := 1}}, halley_follows:unfollow([Gone])),
    {Following, done} = halley_follows:following(<<"u">>, start, 2000),
    ?assertNot(lists:member(Last, Following)),
    ?assertEqual(lists:sort(Pairs -- [Gone]), lists:sort(agree())).

kill_owner_during_checkpoint(Config) ->
    Pairs = random_pairs(60000),
    {ok, _} = halley_follows:follow(Pairs),
    ok = halley_follows_owner:checkpoint(),
    Gone = lists:sublist(Pairs, 20000),
    {ok, _} = halley_follows:unfollow(Gone),
    More = random_pairs(20000),
    {ok, _} = halley_follows:follow(More),
    spawn(fun halley_follows_owner:checkpoint/0),
    timer:sleep(30),
    ok = halley_store_helper:kill(halley_follows_owner),
    Expected = ordsets:union(ordsets:subtract(lists:usort(Pairs), lists:usort(Gone)),
                             lists:usort(More)),
    ?assertEqual(Expected, lists:sort(agree())),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual(Expected, lists:sort(agree())).

restart_keeps_follows(Config) ->
    Pairs = random_pairs(20000),
    {ok, _} = halley_follows:follow(Pairs),
    Number = halley_ids:lookup(<<"1">>),
    Sup = halley_store_helper:reopen(proplists:get_value(sup, Config),
                                     proplists:get_value(dir, Config)),
    ?assertEqual(lists:usort(Pairs), lists:sort(agree())),
    ?assertEqual(Number, halley_ids:lookup(<<"1">>)),
    ok = halley_follows_owner:checkpoint(),
    halley_store_helper:reopen(Sup, proplists:get_value(dir, Config)),
    ?assertEqual(lists:usort(Pairs), lists:sort(agree())).

%% Two checkpoints stay, and the journal since the older one.
journal_is_cut(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "follows"),
    Files = fun() -> {ok, Names} = file:list_dir(Dir), lists:sort(Names) end,
    Name = fun(Kind, N) -> lists:flatten(io_lib:format("~s-~16.16.0b", [Kind, N])) end,
    ?assertEqual([Name(journal, 1)], Files()),
    Pairs = [random_pairs(1000) || _ <- lists:seq(1, 4)],
    lists:foreach(fun(P) ->
        {ok, _} = halley_follows:follow(P),
        ok = halley_follows_owner:checkpoint()
    end, Pairs),
    ?assertEqual([Name(Kind, N) || Kind <- [checkpoint, journal], N <- [4, 5]], Files()),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual(lists:usort(lists:append(Pairs)), lists:sort(agree())).

%% A VM of its own follows, tells what was answered, and is killed with SIGKILL in the middle.
brain_killed_after_reply(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(proplists:get_value(sup, Config)),
    Port = open_port({spawn_executable, os:find_executable("erl")},
                     [{args, ["-noinput" | lists:append([["-pa", P] || P <- code:get_path()])]
                           ++ ["-eval", "halley_follows_SUITE:follow_forever(\"" ++ Dir ++ "\")."]},
                      {line, 100}, exit_status]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    Answered = answered(Port, 300),
    "" = os:cmd("kill -9 " ++ integer_to_list(Pid)),
    receive {Port, {exit_status, 137}} -> ok end,
    halley_store_helper:open(Dir),
    ?assertEqual([], lists:seq(1, Answered) -- [binary_to_integer(U) || {U, <<"s">>} <- agree()]).

follow_forever(Dir) ->
    halley_store_helper:open(Dir),
    follow_forever_from(1).

follow_forever_from(N) ->
    {ok, #{added := 1}} = halley_follows:follow([{id(N), <<"s">>}]),
    io:format("~b~n", [N]),
    follow_forever_from(N + 1).

answered(Port, Until) ->
    receive
        {Port, {data, {eol, Line}}} ->
            case list_to_integer(Line) of
                N when N >= Until -> N;
                _ -> answered(Port, Until)
            end
    end.

%% Random changes, checkpoints, deaths and restarts against a set of pairs.
random_lives(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(proplists:get_value(sup, Config)),
    true = proper:quickcheck(prop_lives(Dir), [{numtests, 15}]),
    halley_store_helper:open(Dir).

prop_lives(Dir) ->
    ?FORALL(Life, ?LET(Steps, resize(15, list(step())), survivable(Steps, ?KILLS_MAX)),
            begin
                Home = filename:join(Dir, integer_to_list(erlang:unique_integer([positive]))),
                halley_store_helper:open(Home),
                Set = lists:foldl(fun(Step, Set) -> live(Step, Set, Home) end, [], Life),
                Result = lists:sort(agree()) =:= Set,
                halley_store_helper:close(whereis(halley_store_sup)),
                Result
            end).

survivable([Kill | Steps], 0) when Kill =:= kill_owner; Kill =:= kill_ids ->
    survivable(Steps, 0);
survivable([Kill | Steps], Left) when Kill =:= kill_owner; Kill =:= kill_ids ->
    [Kill | survivable(Steps, Left - 1)];
survivable([Step | Steps], Left) ->
    [Step | survivable(Steps, Left)];
survivable([], _) ->
    [].

step() ->
    frequency([{6, {follow, pairs()}}, {4, {unfollow, pairs()}}, {2, checkpoint},
               {1, kill_owner}, {1, kill_ids}, {1, reopen}]).

%% Many followers for few subjects, so that pages split.
pairs() ->
    resize(300, list(?LET({U, S}, {range(1, 900), range(1, 4)},
                          {id(U), <<"s", (id(S))/binary>>}))).

live({follow, Pairs}, Set, _) ->
    {ok, #{added := Added}} = halley_follows:follow(Pairs),
    New = ordsets:union(Set, lists:usort(Pairs)),
    Added = length(New) - length(Set),
    New;
live({unfollow, Pairs}, Set, _) ->
    {ok, #{removed := Removed}} = halley_follows:unfollow(Pairs),
    New = ordsets:subtract(Set, lists:usort(Pairs)),
    Removed = length(Set) - length(New),
    New;
live(checkpoint, Set, _) ->
    ok = halley_follows_owner:checkpoint(),
    Set;
live(kill_owner, Set, _) ->
    ok = halley_store_helper:kill(halley_follows_owner),
    Set;
live(kill_ids, Set, _) ->
    ok = halley_store_helper:kill(halley_ids),
    Set;
live(reopen, Set, Home) ->
    halley_store_helper:reopen(whereis(halley_store_sup), Home),
    Set.

random_pairs(N) ->
    [{id(rand:uniform(5000)), <<"s", (id(rand:uniform(5000)))/binary>>}
     || _ <- lists:seq(1, N)].

parallel(N, Fun) ->
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), Fun(P)} end) || P <- lists:seq(1, N)],
    [receive {Pid, Result} -> Result end || Pid <- Pids].
