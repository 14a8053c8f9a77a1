%% docs/internals/shares.md: of what all share users leave the servers their part. A case for each
%% row that needs no HTTP; test/system/shares.test.mjs has the others.
-module(halley_shares_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, shard/1, link_with/1, spawn_actor/1, join/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [a_shards_queue, the_historys_queue, the_links_queues, ids].

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

by_user(Subject) -> {Subject, 1, #{by => <<"mallory">>}}.

by_server(Subject) -> {Subject, 1, #{}}.

publish(Item) ->
    [Result] = halley:publish_many([Item]),
    Result.

%% Users publish in any way: in a call, in a batch, in posts.
a_shards_queue(_) ->
    ok = limits(#{shard_queue_events_max => 20, servers_share_percent => 10}),
    Shard = shard(halley_shards:of_subject(<<"ann">>)),
    ok = sys:suspend(Shard, infinity),
    Batch = spawn_actor(fun() -> halley:publish_many([by_user(<<"ann">>) || _ <- lists:seq(1, 8)])
                        end),
    wait(fun() -> halley_shard:queued() =:= 8 end),
    Calls = [spawn_actor(fun() -> publish(by_user(<<"ann">>)) end) || _ <- lists:seq(1, 10)],
    wait(fun() -> halley_shard:queued() =:= 18 end),
    Refused = {error, overloaded},
    ?assertEqual(Refused, publish(by_user(<<"ann">>))),
    ?assertEqual([Refused, Refused],
                 halley:publish_many([by_user(<<"ann">>), by_user(<<"ann">>)])),
    ?assertEqual(Refused, halley_posts:post(by_user(<<"ann">>), mine, halley_posts:new())),
    Servers = [spawn_actor(fun() -> publish(by_server(<<"ann">>)) end) || _ <- [1, 2]],
    wait(fun() -> halley_shard:queued() =:= 20 end),
    ?assertEqual(Refused, publish(by_server(<<"ann">>))),
    ok = sys:resume(Shard, infinity),
    ?assertEqual([], [Result || Result <- join(Batch), element(1, Result) =/= ok]),
    [{ok, _} = join(Actor) || Actor <- Calls ++ Servers],
    {ok, _} = publish(by_user(<<"ann">>)).

the_historys_queue(_) ->
    ok = limits(#{history_queue_bytes_max => 100000, servers_share_percent => 10}),
    ok = sys:suspend(halley_history_log, infinity),
    %% It says `memory', so nobody waits for the log.
    Fill = fun Fill(Opts) ->
        case halley:publish(<<"ann">>, binary:copy(<<"x">>, 1000), Opts#{ack => memory}) of
            {ok, _} -> Fill(Opts);
            {error, overloaded} -> halley_history_atomics:get(queue_bytes)
        end
    end,
    OfUsers = Fill(#{by => <<"mallory">>}),
    ?assert(OfUsers > 90000 andalso OfUsers =< 92000, OfUsers),
    ?assertEqual(false, halley_history:refusing()),
    OfServers = Fill(#{}),
    ?assert(OfServers > 100000 andalso OfServers =< 102000, OfServers),
    ok = sys:resume(halley_history_log, infinity),
    wait(fun() -> halley_history_atomics:get(queue_bytes) =:= 0 end),
    {ok, _} = publish(by_user(<<"ann">>)).

the_links_queues(_) ->
    {_, _, Queue} = link_with([{halley_test_brain:number(<<"ann">>), 1}]),
    Max = halley_limits:get(link_queue_refuse_bytes),
    ok = limits(#{servers_share_percent => 10}),
    ok = counters:put(Queue, 1, Max * 92 div 100),
    %% The first one finds out.
    {ok, #{sessions := 1}} = publish(by_server(<<"ann">>)),
    [begin
         ?assertEqual({error, overloaded}, publish(by_user(<<"ann">>))),
         {ok, #{sessions := 1}} = publish(by_server(<<"ann">>))
     end || _ <- lists:seq(1, 3)],
    ok = counters:put(Queue, 1, Max),
    ?assertEqual({error, overloaded}, publish(by_server(<<"ann">>))),
    ok = counters:put(Queue, 1, 0),
    {ok, #{sessions := 1}} = publish(by_user(<<"ann">>)).

%% What users follow for themselves ends before what servers make them follow, and that before what
%% is for users that connect.
ids(_) ->
    ok = limits(#{ids_max => 100, ids_for_sessions_percent => 10, servers_share_percent => 20}),
    Own = {follow, fun(New) -> New end},
    Ids = fun(Prefix, N) -> [<<Prefix/binary, (integer_to_binary(I))/binary>>
                             || I <- lists:seq(1, N)] end,
    Refused = {error, too_many_ids},
    {ok, _} = halley_ids:intern(Ids(<<"u">>, 70), Own),
    ?assertEqual(Refused, halley_ids:intern([<<"u71">>], Own)),
    ?assertMatch({ok, [_]}, halley_ids:intern([<<"u1">>], Own)),
    {ok, _} = halley_ids:intern(Ids(<<"s">>, 20), follow),
    ?assertEqual(Refused, halley_ids:intern([<<"s21">>], follow)),
    {ok, _} = halley_ids:intern(Ids(<<"c">>, 10), session),
    ?assertEqual(Refused, halley_ids:intern([<<"c11">>], session)).
