%% Numbers that nothing refers to are given back, and no other is; and no id ever has the number of
%% another.
-module(halley_ids_sweep_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_store_proper.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([visitors_leave_nothing/1, throw_away_follows_leave_nothing/1, held_stays/1,
         late_follow_keeps/1, left_within_a_follow/1,
         late_session_keeps/1, late_number_is_refused/1, id_comes_back/1,
         full_disk_frees_nothing_durable/1, owner_of_ids_dies/1, owner_of_follows_dies/1,
         left_again_waits_again/1, random_lives/1]).

-import(halley_store_helper, [id/1, agree/0]).

-define(PAST, #{id_quarantine_ms => 0}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [visitors_leave_nothing, throw_away_follows_leave_nothing, held_stays, late_follow_keeps,
     left_within_a_follow, late_session_keeps,
     late_number_is_refused, id_comes_back, full_disk_frees_nothing_durable,
     owner_of_ids_dies, owner_of_follows_dies, left_again_waits_again, random_lives].

%% The tables of the directory and of what else is asked, which belong to a process that stays.
init_per_suite(Config) ->
    Self = self(),
    Owner = spawn(fun() ->
        ets:whereis(halley_metrics_edge) =:= undefined andalso halley_metrics:new(),
        ok = halley_directory:new(),
        ok = halley_closings:new(),
        ok = halley_openings:new(),
        ok = halley_groups:new(),
        {ok, Directory} = halley_directory:start_link(fun(_) -> ok end),
        Self ! {self(), ready},
        receive stop -> gen_server:stop(Directory) end
    end),
    receive {Owner, ready} -> [{owner, Owner} | Config] end.

end_per_suite(Config) ->
    Owner = proplists:get_value(owner, Config),
    Monitor = monitor(process, Owner),
    ok = gen_server:stop(halley_directory),
    Owner ! stop,
    receive {'DOWN', Monitor, process, Owner, _} -> ok end.

init_per_testcase(Case, Config) ->
    ok = halley_limits:set(?PAST),
    %% Another case's link had it.
    ok = halley_directory:mark(1, given),
    halley_store_helper:begin_case(Case, Config).

end_per_testcase(_, Config) ->
    halley_store_helper:end_case(),
    ok = halley_directory_leaving:each(fun halley_directory_leaving:stay/1),
    Config.

%% Those that leave now are freed in the round behind it.
sweep() ->
    ok = halley_ids_sweep:round(),
    ok = halley_ids_sweep:round().

open(Number) -> halley_sessions:open(Number, {link, 1, Number}, configured).
close(Number) -> halley_directory:close(Number, {link, 1, Number}).

visitors_leave_nothing(_) ->
    {ok, [Stays]} = halley_ids:intern([<<"stays">>]),
    ok = open(Stays),
    lists:foreach(fun(Round) ->
        {ok, Numbers} = halley_ids:intern([id(1000 * Round + N) || N <- lists:seq(1, 100)]),
        [ok = open(N) || N <- Numbers],
        sweep(),
        ?assertEqual(101, halley_ids:count()),
        [ok = close(N) || N <- Numbers],
        sweep(),
        ?assertEqual(1, halley_ids:count()),
        ?assert(halley_ids_pages:last() =< 101)
    end, lists:seq(1, 50)),
    ?assertEqual(Stays, halley_ids:lookup(<<"stays">>)),
    ok = close(Stays).

%% On disk as well: after a restart there are the ids of the follows that stand. A number that was
%% written is given again once two checkpoints have been made since.
throw_away_follows_leave_nothing(Config) ->
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"bob">>}]),
    lists:foreach(fun(Round) ->
        Pairs = [{<<"ann">>, id(1000 * Round + N)} || N <- lists:seq(1, 100)],
        {ok, _} = halley_follows:follow(Pairs),
        sweep(),
        ?assertEqual(102, halley_ids:count()),
        {ok, _} = halley_follows:unfollow(Pairs),
        sweep(),
        ?assertEqual(2, halley_ids:count()),
        ok = halley_follows_owner:checkpoint()
    end, lists:seq(1, 20)),
    ?assert(halley_ids_pages:last() =< 302),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual(2, halley_ids:count()),
    ?assertEqual([{<<"ann">>, <<"bob">>}], agree()),
    ?assert(halley_ids_pages:last() =< 302).

%% What a user missed is sent to it before its session is open.
held_stays(_) ->
    {ok, [Number]} = halley_ids:intern([<<"held">>]),
    ok = halley_directory_leaving:hold(Number, 1),
    ok = halley_directory_leaving:hold(Number, 1),
    sweep(),
    ?assertEqual(Number, halley_ids:lookup(<<"held">>)),
    ok = halley_directory_leaving:release(Number, 1),
    sweep(),
    ?assertEqual(Number, halley_ids:lookup(<<"held">>)),
    ok = halley_directory_leaving:release(Number, 1),
    sweep(),
    ?assertEqual(undefined, halley_ids:lookup(<<"held">>)),
    %% The same when its link goes, and when it is held by the time that it would be freed.
    {ok, [Again]} = halley_ids:intern([<<"held">>]),
    ok = halley_ids_sweep:round(),
    ok = halley_directory_leaving:hold(Again, 1),
    sweep(),
    ?assertEqual({ok, [Again]}, halley_ids:intern([<<"held">>])),
    ok = halley_directory:purge(1, fun(_) -> ok end),
    sweep(),
    ?assertEqual(undefined, halley_ids:lookup(<<"held">>)).

%% Somebody looked the ids up, they left, and then the follow comes.
late_follow_keeps(_) ->
    {ok, [Ann, Bob]} = halley_ids:intern([<<"ann">>, <<"bob">>]),
    Epoch = halley_follows_owner:epoch(),
    ok = halley_ids_sweep:round(),
    ?assertEqual(undefined, halley_ids:lookup(<<"bob">>)),
    ?assertEqual({ok, 1, []},
                 halley_follows_request:change(add, [halley_pages:key(Ann, Bob)], Epoch,
                                               to_record)),
    ?assertEqual({Ann, Bob}, {halley_ids:lookup(<<"ann">>), halley_ids:lookup(<<"bob">>)}),
    sweep(),
    ?assertEqual([{<<"ann">>, <<"bob">>}], agree()).

%% New ids leave before the follow that named them has reached the owner.
left_within_a_follow(_) ->
    ok = meck:new(halley_ids, [passthrough, no_link]),
    ok = meck:expect(halley_ids, intern, fun(Ids) ->
                                             Numbers = meck:passthrough([Ids]),
                                             ok = halley_ids_sweep:round(),
                                             Numbers
                                         end),
    try
        ?assertEqual({ok, #{added => 1, already => 0, errors => []}},
                     halley_follows:follow([{<<"ann">>, <<"bob">>}]))
    after
        meck:unload(halley_ids)
    end,
    sweep(),
    ?assertEqual([{<<"ann">>, <<"bob">>}], agree()).

late_session_keeps(_) ->
    {ok, [Ann]} = halley_ids:intern([<<"ann">>]),
    ok = halley_ids_sweep:round(),
    ?assertEqual(undefined, halley_ids:lookup(<<"ann">>)),
    ok = open(Ann),
    ?assertEqual(Ann, halley_ids:lookup(<<"ann">>)),
    sweep(),
    ?assertEqual([{link, 1, Ann}], halley_directory:sessions(Ann)),
    ok = close(Ann).

%% Later than anybody may be: it is told so, and looks the id up again.
late_number_is_refused(_) ->
    {ok, [Ann, Bob]} = halley_ids:intern([<<"ann">>, <<"bob">>]),
    Epoch = halley_follows_owner:epoch(),
    sweep(),
    ?assertEqual({error, stale},
                 halley_follows_request:change(add, [halley_pages:key(Ann, Bob)], Epoch,
                                               to_record)),
    {ok, #{added := 1}} = halley_follows:follow([{<<"cid">>, <<"dan">>}]),
    ?assertEqual([{<<"cid">>, <<"dan">>}], agree()).

%% An id that comes back while it leaves has the number that it had, and never two.
id_comes_back(_) ->
    {ok, [Ann]} = halley_ids:intern([<<"ann">>]),
    ok = halley_ids_sweep:round(),
    ?assertEqual(1, halley_ids:leaving()),
    ?assertEqual({ok, [Ann]}, halley_ids:intern([<<"ann">>])),
    ?assertEqual(0, halley_ids:leaving()),
    ok = open(Ann),
    sweep(),
    ?assertEqual(Ann, halley_ids:lookup(<<"ann">>)),
    ok = close(Ann).

full_disk_frees_nothing_durable(Config) ->
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"bob">>}]),
    {ok, _} = halley_follows:unfollow([{<<"ann">>, <<"bob">>}]),
    {ok, [Visitor]} = halley_ids:intern([<<"visitor">>]),
    ok = halley_store:set_refusing(disk_full),
    sweep(),
    ?assertEqual(<<>>, halley_ids_pages:id(Visitor)),
    ?assertEqual(2, halley_ids:leaving()),
    ok = halley_store:set_refusing(false),
    sweep(),
    ?assertEqual(0, halley_ids:leaving()),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual(0, halley_ids:count()).

%% Nothing leaves any more, and sessions open.
owner_of_ids_dies(_) ->
    {ok, [Ann]} = halley_ids:intern([<<"ann">>]),
    ok = halley_ids_sweep:round(),
    ok = halley_store_helper:kill(halley_ids),
    ?assertEqual(Ann, halley_ids:lookup(<<"ann">>)),
    ok = open(Ann),
    ok = close(Ann),
    sweep(),
    ?assertEqual(0, halley_ids:count()).

%% It had begun to let a number leave, and hadn't told who numbers ids.
owner_of_follows_dies(_) ->
    {ok, [Ann, Bob]} = halley_ids:intern([<<"ann">>, <<"bob">>]),
    {ok, [Eve]} = halley_ids:intern([<<"eve">>]),
    ok = open(Eve),
    ok = halley_follows_owner:leave([Bob]),
    true = halley_directory_leaving:leave(Ann),
    ok = halley_store_helper:kill(halley_follows_owner),
    {_, Monitor} = spawn_monitor(fun() -> exit(open(Ann)) end),
    receive {'DOWN', Monitor, process, _, Opened} -> ?assertEqual(ok, Opened)
    after 10000 -> error(no_session)
    end,
    ?assert(halley_directory_leaving:is_leaving(Bob)),
    %% What is said of a number late, which stayed, is nothing.
    ok = halley_ids:leave([Eve]),
    ?assertEqual(Eve, halley_ids:lookup(<<"eve">>)),
    ok = close(Ann),
    ok = close(Eve),
    sweep(),
    ?assertEqual(0, halley_ids:count()).

%% A number that was kept and leaves again is in quarantine from then on.
left_again_waits_again(_) ->
    ok = halley_limits:set(#{id_quarantine_ms => 60000}),
    {ok, [Ann]} = halley_ids:intern([<<"ann">>]),
    ok = halley_ids_sweep:round(),
    {ok, [Ann]} = halley_ids:intern([<<"ann">>]),
    timer:sleep(3000),
    BeforeMs = erlang:monotonic_time(millisecond),
    ok = halley_ids_sweep:round(),
    %% More than since the second time, less than since the first.
    TookMs = erlang:monotonic_time(millisecond) - BeforeMs,
    ok = halley_limits:set(#{id_quarantine_ms => TookMs + 2500}),
    ?assertEqual([], halley_ids:due(10)),
    ok = halley_limits:set(?PAST),
    ?assertEqual([Ann], halley_ids:due(10)),
    sweep(),
    ?assertEqual(0, halley_ids:count()).

%% Users who come and go, follow and unfollow, with sweeps, checkpoints and restarts in between:
%% the follows are those of the model, and ids are what somebody refers to.
random_lives(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(proplists:get_value(sup, Config)),
    true = proper:quickcheck(prop_lives(Dir), [{numtests, 40}]),
    halley_store_helper:open(Dir).

prop_lives(Dir) ->
    ?FORALL(Life, resize(40, list(step())),
            begin
                Home = filename:join(Dir, integer_to_list(erlang:unique_integer([positive]))),
                halley_store_helper:open(Home),
                {Follows, Online} = lists:foldl(fun(Step, State) -> live(Step, State, Home) end,
                                                {[], #{}}, Life),
                sweep(),
                Found = lists:sort(agree()),
                Ids = lists:usort(lists:append([[U, S] || {U, S} <- Follows]) ++ maps:keys(Online)),
                Result = Found =:= Follows andalso halley_ids:count() =:= length(Ids)
                    andalso lists:all(fun is_named/1, Ids),
                maps:foreach(fun(_, Number) -> ok = close(Number) end, Online),
                halley_store_helper:close(whereis(halley_store_sup)),
                Result
            end).

is_named(Id) -> halley_ids:name(halley_ids:lookup(Id)) =:= Id.

step() ->
    frequency([{4, {follow, pairs()}}, {4, {unfollow, pairs()}}, {4, {come, user()}},
               {4, {go, user()}}, {3, sweep}, {1, checkpoint}, {1, reopen}, {1, kill_ids}]).

pairs() -> resize(8, list({user(), user()})).
user() -> ?LET(N, range(1, 12), id(N)).

live({follow, Pairs0}, {Follows, Online}, _) ->
    Pairs = [Pair || {U, S} = Pair <- Pairs0, U =/= S],
    {ok, _} = halley_follows:follow(Pairs),
    {ordsets:union(Follows, lists:usort(Pairs)), Online};
live({unfollow, Pairs}, {Follows, Online}, _) ->
    {ok, _} = halley_follows:unfollow([Pair || {U, S} = Pair <- Pairs, U =/= S]),
    {ordsets:subtract(Follows, lists:usort(Pairs)), Online};
live({come, User}, {Follows, Online}, _) when not is_map_key(User, Online) ->
    {ok, [Number]} = halley_ids:intern([User]),
    ok = open(Number),
    {Follows, Online#{User => Number}};
live({go, User}, {Follows, Online}, _) when is_map_key(User, Online) ->
    {Number, Others} = maps:take(User, Online),
    ok = close(Number),
    {Follows, Others};
live(sweep, State, _) ->
    ok = halley_ids_sweep:round(),
    State;
live(checkpoint, State, _) ->
    ok = halley_follows_owner:checkpoint(),
    State;
%% Sessions end with the brain.
live(reopen, {Follows, Online}, Home) ->
    maps:foreach(fun(_, Number) -> ok = close(Number) end, Online),
    halley_store_helper:close(whereis(halley_store_sup)),
    ok = halley_directory_leaving:each(fun halley_directory_leaving:stay/1),
    halley_store_helper:open(Home),
    {Follows, #{}};
live(kill_ids, State, _) ->
    case get(kills) of
        N when is_integer(N), N > 3 -> State;
        N -> put(kills, case N of undefined -> 1; _ -> N + 1 end),
             ok = halley_store_helper:kill(halley_ids),
             State
    end;
live(_, State, _) ->
    State.
