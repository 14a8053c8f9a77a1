%% No user follows more than `follows_per_user_max' subjects, whoever asks and however many at once.
-module(halley_follows_bound_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_store_proper.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([refusals_keep_their_place/1, one_calls_refused_names_get_no_number/1,
         numbered_meanwhile/1, concurrent_follows_exact/1, what_is_followed_ends_no_group/1,
         removed_and_back_in_one_group/1, over_many_pages/1, lowered_bound_takes_nothing/1,
         refused_stay_refused/1, own_new_ids_are_bounded/1,
         servers_new_ids_are_not/1, random_changes/0, random_changes/1]).

-import(halley_store_helper, [id/1, agree/0]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [refusals_keep_their_place, one_calls_refused_names_get_no_number, numbered_meanwhile,
     concurrent_follows_exact, what_is_followed_ends_no_group, removed_and_back_in_one_group,
     over_many_pages, lowered_bound_takes_nothing, refused_stay_refused, own_new_ids_are_bounded,
     servers_new_ids_are_not, random_changes].

init_per_testcase(Case, Config) ->
    halley_store_helper:begin_case(Case, Config).

end_per_testcase(_, Config) ->
    halley_store_helper:end_case(),
    Config.

bound(Max) ->
    halley_limits:set(#{follows_per_user_max => Max}),
    ets:whereis(halley_metrics_edge) =:= undefined andalso halley_metrics:new(),
    ok.

follow(User, Subjects) ->
    {ok, Answer} = halley_follows:follow([{User, id(S)} || S <- Subjects]),
    Answer.

refusals_keep_their_place(_) ->
    bound(3),
    ?assertEqual(#{added => 2, already => 0, errors => []}, follow(<<"a">>, [1, 2])),
    %% What is followed already is no new follow, a user's others spoil nobody else's.
    ?assertEqual({ok, #{added => 2, already => 2,
                        errors => [{2, {bad_id, subject, empty}}, {4, too_many_follows},
                                   {5, too_many_follows}]}},
                 halley_follows:follow([{<<"a">>, id(1)}, {<<"a">>, id(3)}, {<<"a">>, <<>>},
                                        {<<"b">>, id(1)}, {<<"a">>, id(4)}, {<<"a">>, id(4)},
                                        {<<"a">>, <<"a">>}])),
    ?assertEqual(#{added => 0, already => 0, errors => [{0, too_many_follows}]},
                 follow(<<"a">>, [5])),
    {ok, #{removed := 1}} = halley_follows:unfollow([{<<"a">>, id(2)}]),
    ?assertEqual(#{added => 1, already => 0, errors => []}, follow(<<"a">>, [5])),
    ?assertEqual(4, length(agree())).

%% Or who is at the bound could fill the table of ids with what nobody follows, call by call.
one_calls_refused_names_get_no_number(_) ->
    bound(3),
    Many = lists:seq(100, 120),
    ?assertMatch(#{added := 3, errors := [{3, too_many_follows} | _]}, follow(<<"a">>, Many)),
    ?assertEqual(4, halley_ids:count()),
    ?assertMatch(#{added := 0, errors := [_, _]}, follow(<<"a">>, [200, 201])),
    ?assertEqual(4, halley_ids:count()),
    %% A room is left, and a known id takes it.
    {ok, _} = halley_follows:unfollow([{<<"a">>, id(100)}]),
    ?assertEqual(#{added => 1, already => 3,
                   errors => [{I, too_many_follows} || I <- [0, 2, 5]]},
                 follow(<<"a">>, [200, 101, 201, 100, 102, 200, 100])),
    ?assertEqual(4, halley_ids:count()),
    %% Others in the same list have theirs, and one named twice takes one place.
    {ok, _} = halley_follows:unfollow([{<<"a">>, id(100)}]),
    ?assertEqual({ok, #{added => 3, already => 1, errors => [{3, too_many_follows}]}},
                 halley_follows:follow([{<<"a">>, id(300)}, {<<"b">>, id(301)},
                                        {<<"a">>, id(300)}, {<<"a">>, id(302)},
                                        {<<"b">>, <<"a">>}])),
    ?assertEqual(7, halley_ids:count()),
    ?assertEqual(5, length(agree())).

%% Following and unfollowing what nobody used before takes no more ids than a user may name, however
%% many ask at once for it; what is known already isn't counted.
own_new_ids_are_bounded(_) ->
    bound(1000),
    halley_limits:set(#{new_ids_per_user_max => 100, new_ids_per_user_ms => 3600000}),
    ok = halley_user_rate:new(),
    Known = [id(N) || N <- lists:seq(1, 20)],
    {ok, _} = halley_ids:intern([<<"u">>, <<"v">> | Known]),
    Round = fun(P) ->
        Pairs = [{<<"u">>, <<"s", (id(1000 * P + N))/binary>>} || N <- lists:seq(1, 40)],
        {ok, #{added := Added, errors := Errors}} = halley_follows:follow_own(<<"u">>, Pairs),
        {ok, #{removed := Added}} = halley_follows:unfollow(Pairs),
        ?assertEqual(40, Added + length(Errors)),
        [?assertMatch({too_many_new_ids, Ms} when Ms > 0, Reason) || {_, Reason} <- Errors],
        Added
    end,
    ?assertEqual(100, lists:sum(parallel(8, Round))),
    ?assertEqual(122, halley_ids:count()),
    ?assertEqual({ok, #{added => 21, already => 0, errors => []}},
                 halley_follows:follow_own(<<"u">>, [{<<"u">>, Id} || Id <- [<<"v">> | Known]])),
    %% Places of the refused are those in the list.
    ?assertMatch({ok, #{added := 0, already := 1,
                        errors := [{0, {too_many_new_ids, _}}, {2, {bad_id, subject, empty}},
                                   {3, {too_many_new_ids, _}}]}},
                 halley_follows:follow_own(<<"u">>, [{<<"u">>, <<"x">>}, {<<"u">>, <<"v">>},
                                                     {<<"u">>, <<>>}, {<<"u">>, <<"x">>}])),
    ?assertMatch({ok, #{added := 1}}, halley_follows:follow_own(<<"v">>, [{<<"v">>, <<"x">>}])),
    ?assertEqual(22, length(agree())).

servers_new_ids_are_not(_) ->
    bound(1000),
    halley_limits:set(#{new_ids_per_user_max => 1}),
    ?assertEqual(#{added => 300, already => 0, errors => []}, follow(<<"u">>, lists:seq(1, 300))).

%% The second look-up finds what another process has interned since the first: the owner refuses
%% that one, and the first was refused before.
numbered_meanwhile(_) ->
    bound(1),
    follow(<<"a">>, [1]),
    {ok, _} = halley_ids:intern([<<"x">>]),
    meck:new(halley_ids, [passthrough, no_link]),
    meck:expect(halley_ids, lookup, fun(Id) ->
        case Id =:= <<"x">> andalso put(was_looked_up, true) of
            undefined -> undefined;
            _ -> meck:passthrough([Id])
        end
    end),
    Answer = try halley_follows:follow([{<<"a">>, <<"x">>}, {<<"a">>, <<"x">>}])
             after meck:unload(halley_ids)
             end,
    ?assertEqual({ok, #{added => 0, already => 0,
                        errors => [{0, too_many_follows}, {1, too_many_follows}]}}, Answer).

%% Single follows and small lists by many at once share groups; not one too many gets in, and not
%% one is refused that had room.
concurrent_follows_exact(_) ->
    bound(50),
    Answers = parallel(24, fun(P) ->
        [follow(<<"u">>, lists:seq(100 * P + N, 100 * P + N + N rem 3)) || N <- lists:seq(1, 10)]
            ++ [follow(id(P), [P + 1])]
    end),
    Added = lists:sum([N || #{added := N} <- lists:append(Answers)]),
    ?assertEqual(50, halley_follows:count_following(<<"u">>)),
    ?assertEqual(50 + 24, Added),
    ?assertEqual(50 + 24, length(agree())).

%% Who is at the bound and asks for what it has doesn't take from others that their changes share
%% one write to the disk.
what_is_followed_ends_no_group(_) ->
    bound(100),
    follow(<<"u">>, lists:seq(1, 100)),
    Before = sequence(),
    Answers = in_this_order([fun() -> follow(User, [1]) end
                             || N <- lists:seq(1, 10), User <- [id(N + 1), <<"u">>]]),
    ?assertEqual(10, lists:sum([N || #{added := N, errors := []} <- Answers])),
    ?assertEqual(10, lists:sum([N || #{already := N, errors := []} <- Answers])),
    After = sequence(),
    ?assertEqual(Before + 1, After),
    ?assertEqual(110, length(agree())).

%% Of the last group in the journal.
sequence() ->
    {ok, #{sequence := Sequence}, ok} =
        halley_store_journal:read(halley_store:directory(), 1, infinity, fun(_, ok) -> ok end, ok),
    Sequence.

removed_and_back_in_one_group(_) ->
    bound(100),
    follow(<<"u">>, lists:seq(1, 100)),
    [{ok, #{removed := 1}}, #{added := 1}] =
        in_this_order([fun() -> halley_follows:unfollow([{<<"u">>, id(1)}]) end,
                       fun() -> follow(<<"u">>, [1]) end]),
    ?assertMatch(#{added := 0, errors := [_]}, follow(<<"u">>, [101])),
    ?assertEqual(100, length(agree())).

%% A user's follows over several pages, and users who share one with others.
over_many_pages(_) ->
    bound(5000),
    Answer = follow(<<"u">>, lists:seq(1, 4990)),
    ?assertMatch(#{added := 4990, errors := []}, Answer),
    {ok, _} = halley_follows:follow([{id(N), id(N + 1)} || N <- lists:seq(10000, 12000)]),
    #{added := 10, errors := Errors} = follow(<<"u">>, lists:seq(5001, 5030)),
    ?assertEqual(20, length(Errors)),
    ?assertMatch(#{added := 5000, errors := [_, _, _]}, follow(<<"v">>, lists:seq(1, 5003))),
    ?assertEqual(5000, halley_follows:count_following(<<"u">>)),
    ?assertEqual(5000 + 2001 + 5000, length(agree())).

lowered_bound_takes_nothing(_) ->
    bound(10),
    follow(<<"u">>, lists:seq(1, 10)),
    bound(4),
    ?assertEqual(10, halley_follows:count_following(<<"u">>)),
    ?assertEqual(#{added => 0, already => 1, errors => [{1, too_many_follows}]},
                 follow(<<"u">>, [10, 11])).

%% The journal has nothing that was refused.
refused_stay_refused(Config) ->
    bound(5),
    parallel(8, fun(P) -> follow(<<"u">>, [10 * P, 10 * P + 1]) end),
    Before = agree(),
    ok = halley_store_helper:kill(halley_follows_owner),
    ?assertEqual(Before, agree()),
    halley_store_helper:reopen(whereis(halley_store_sup), proplists:get_value(dir, Config)),
    ?assertEqual(lists:sort(Before), lists:sort(agree())),
    ?assertEqual(5, halley_follows:count_following(<<"u">>)).

%% It is the longest by far.
random_changes() -> [{timetrap, {minutes, 5}}].

%% Against a model: with a bound below and one above what a page holds of one user.
random_changes(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(whereis(halley_store_sup)),
    true = proper:quickcheck(prop_bound(Dir), [{numtests, 40}]),
    halley_store_helper:open(Dir).

prop_bound(Dir) ->
    ?FORALL({Max, Steps}, {oneof([7, 1100]), resize(12, list(step()))},
            begin
                Home = filename:join(Dir, integer_to_list(erlang:unique_integer([positive]))),
                halley_store_helper:open(Home),
                bound(Max),
                Set = lists:foldl(fun(Step, Set) -> live(Step, Set, Max) end, [], Steps),
                Result = lists:sort(agree()) =:= Set,
                halley_store_helper:close(whereis(halley_store_sup)),
                Result
            end).

step() ->
    {frequency([{3, follow}, {1, unfollow}]),
     resize(40, list(?LET({U, From, N}, {range(1, 4), range(1, 1500), oneof([1, 2, 300])},
                          [{id(U), <<"s", (id(S))/binary>>} || S <- lists:seq(From, From + N)])))}.

live({follow, Lists}, Set, Max) ->
    Pairs = lists:append(Lists),
    {ok, #{added := Added, already := Already, errors := Errors}} = halley_follows:follow(Pairs),
    New = ordsets:from_list(agree()),
    ?assertEqual(length(Pairs), Added + Already + length(Errors)),
    ?assertEqual(length(New) - length(Set), Added),
    ?assertEqual([], ordsets:subtract(Set, New)),
    Refused = ordsets:from_list([lists:nth(I + 1, Pairs) || {I, too_many_follows} <- Errors]),
    ?assertEqual(ordsets:union(Set, ordsets:from_list(Pairs)), ordsets:union(New, Refused)),
    ?assert(ordsets:is_disjoint(New, Refused)),
    %% Refused only where there is no room, and nobody has too many.
    [?assertEqual(Max, length([S || {U, S} <- New, U =:= User])) || {User, _} <- Refused],
    [?assert(length([S || {U, S} <- New, U =:= id(User)]) =< Max) || User <- lists:seq(1, 4)],
    New;
live({unfollow, Lists}, Set, _) ->
    Pairs = lists:append(Lists),
    {ok, _} = halley_follows:unfollow(Pairs),
    ordsets:subtract(Set, ordsets:from_list(Pairs)).

%% Calls that wait at the owner together.
in_this_order(Calls) ->
    Self = self(),
    Owner = whereis(halley_follows_owner),
    ok = sys:suspend(Owner, infinity),
    Pids = [begin
                Pid = spawn_link(fun() -> Self ! {self(), Call()} end),
                ok = await_queue(Owner, N),
                Pid
            end || {N, Call} <- lists:enumerate(Calls)],
    ok = sys:resume(Owner, infinity),
    [receive {Pid, Result} -> Result end || Pid <- Pids].

await_queue(Owner, N) ->
    {messages, Messages} = process_info(Owner, messages),
    case length([Call || {'$gen_call', _, _} = Call <- Messages]) of
        N -> ok;
        _ -> timer:sleep(1), await_queue(Owner, N)
    end.

parallel(N, Fun) ->
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), Fun(P)} end) || P <- lists:seq(1, N)],
    [receive {Pid, Result} -> Result end || Pid <- Pids].
