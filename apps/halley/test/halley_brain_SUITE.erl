%% The brain without an edge: links are played by processes that register as their writers.
-module(halley_brain_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [number/1, shard/1, link_with/1, message/1, delivered/1, event/0,
                            no_event/0, limits/1, spawn_actor/1, join/1, await_publish/1,
                            kill_and_wait/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [follower_gets_event, subject_gets_its_own_events_once, follow_is_effective_at_once,
     order_of_a_batch_is_kept, order_is_the_same_for_all, ids_are_unique,
     bad_item_spoils_no_other, bad_id_is_refused, bad_data_is_refused, data_too_large_is_refused,
     session_process_dies, session_process_is_dead_already, process_logs_out,
     user_with_many_sessions,
     sessions_are_closed, link_gets_one_message_for_an_event, link_with_many_connections,
     slot_is_not_reused_at_once, too_many_links,
     overloaded_links_refuse_publish, link_falls_behind,
     overloaded_shard_refuses_publish,
     shard_killed, shard_hangs, directory_owner_killed, directory_owner_killed_under_load,
     links_owner_killed, store_gives_up, every_gauge_is_shown].

init_per_suite(Config) ->
    halley_test_brain:quiet(Config).

end_per_suite(Config) ->
    halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

%% --- publishing --------------------------------------------------------------------------------

follower_gets_event(_) ->
    ok = halley:follow(<<"ann">>, <<"bob">>),
    ok = halley:login(<<"ann">>),
    Before = erlang:system_time(millisecond),
    {ok, #{id := Id, sessions := 1}} = halley:publish(<<"bob">>, #{text => <<"hi">>}),
    #{id := Id, subject := <<"bob">>, at := At, data := #{<<"text">> := <<"hi">>}} = event(),
    ?assert(Before =< At andalso At =< erlang:system_time(millisecond)),
    {ok, #{sessions := 0}} = halley:publish(<<"nobody">>, 1).

%% A user is a subject too, and following oneself changes nothing.
subject_gets_its_own_events_once(_) ->
    ok = halley:login(<<"ann">>),
    ok = halley:follow(<<"ann">>, <<"ann">>),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1),
    #{data := 1} = event(),
    no_event().

follow_is_effective_at_once(_) ->
    ok = halley:login(<<"ann">>),
    [begin
         ok = halley:follow(<<"ann">>, <<"bob">>),
         {ok, #{sessions := 1}} = halley:publish(<<"bob">>, N),
         ok = halley:unfollow(<<"ann">>, <<"bob">>),
         {ok, #{sessions := 0}} = halley:publish(<<"bob">>, N),
         #{data := N} = event()
     end || N <- lists:seq(1, 20)],
    ?assertEqual([], halley:followers(<<"bob">>)).

order_of_a_batch_is_kept(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    {ok, _} = halley:follow([{<<"ann">>, Subject} || Subject <- Subjects]),
    ok = halley:login(<<"ann">>),
    Items = [{Subject, N, #{}} || N <- lists:seq(1, 60), Subject <- Subjects],
    Results = halley:publish_many(Items),
    Events = [event() || _ <- Items],
    ?assertEqual([Id || {ok, #{id := Id}} <- Results],
                 [id_of(Subject, N, Events) || {Subject, N, _} <- Items]),
    [?assertEqual(lists:seq(1, 60), [N || #{subject := S, data := N} <- Events, S =:= Subject])
     || Subject <- Subjects].

id_of(Subject, Data, Events) ->
    [Id] = [Id || #{id := Id, subject := S, data := D} <- Events, S =:= Subject, D =:= Data],
    Id.

order_is_the_same_for_all(_) ->
    Follow = fun(User) -> ok = halley:login(User), [event() || _ <- lists:seq(1, 200)] end,
    Followers = [spawn_actor(fun() -> Follow(User) end)
                 || User <- [<<"ann">>, <<"bea">>]],
    {ok, _} = halley:follow([{User, <<"bob">>} || User <- [<<"ann">>, <<"bea">>]]),
    wait(fun() -> maps:get(sessions, halley_directory:online()) =:= 2 end),
    Publish = fun(P) -> [{ok, _} = halley:publish(<<"bob">>, [P, N]) || N <- lists:seq(1, 50)] end,
    Publishers = [spawn_actor(fun() -> Publish(P) end) || P <- lists:seq(1, 4)],
    _ = [join(Publisher) || Publisher <- Publishers],
    [Events, Events] = [join(Follower) || Follower <- Followers],
    ?assertEqual(200, length(Events)).

ids_are_unique(_) ->
    Publish = fun() -> [begin
                            {ok, #{id := Id}} = halley:publish(integer_to_binary(N), N),
                            Id
                        end || N <- lists:seq(1, 100)]
              end,
    Before = Publish(),
    [ok = kill_and_wait(shard(N)) || N <- lists:seq(1, 8)],
    Ids = Before ++ Publish(),
    ?assertEqual(200, length(lists:usort(Ids))),
    Store = integer_to_list(halley_history:store(), 36),
    [?assertMatch({match, _}, re:run(Id, ["^", Store, "-[0-9A-Z]+$"])) || Id <- Ids].

bad_item_spoils_no_other(_) ->
    ?assertMatch([{ok, #{id := <<"mine">>}}, {error, {bad_id, <<>>}}, {ok, _},
                  {error, {bad_data, _}}, {error, {bad_id, <<255>>}}],
                 halley:publish_many([{<<"a">>, 1, #{id => <<"mine">>}}, {<<>>, 1, #{}},
                                      {<<"b">>, 1, #{}},
                                      {<<"c">>, self(), #{}}, {<<"d">>, 1, #{id => <<255>>}}])),
    ?assertEqual([], halley:publish_many([])).

bad_id_is_refused(_) ->
    Bad = [<<>>, binary:copy(<<"x">>, 256), <<16#FF>>, <<"a\nb">>, not_binary, 17],
    [?assertEqual({error, {bad_id, Id}}, halley:publish(Id, 1)) || Id <- Bad],
    [?assertMatch({error, {bad_id, _}}, halley:login(Id)) || Id <- Bad],
    ?assertMatch({error, _}, halley:follow(<<"ann">>, <<>>)).

bad_data_is_refused(_) ->
    ?assertMatch({error, {bad_data, _}}, halley:publish(<<"a">>, fun() -> ok end)).

data_too_large_is_refused(_) ->
    Max = halley_limits:get(event_data_bytes_max),
    {ok, _} = halley:publish(<<"a">>, binary:copy(<<"x">>, Max - 2)),
    ?assertEqual({error, data_too_large}, halley:publish(<<"a">>, binary:copy(<<"x">>, Max - 1))).

%% --- sessions ----------------------------------------------------------------------------------

session_process_dies(_) ->
    {Pid, Monitor} = spawn_actor(fun() -> ok = halley:login(<<"ann">>), receive stop -> ok end end),
    wait(fun() -> halley:presence(<<"ann">>) =:= #{user => <<"ann">>, sessions => 1} end),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end,
    wait(fun() -> halley:presence(<<"ann">>) =:= #{user => <<"ann">>, sessions => 0} end).

session_process_is_dead_already(_) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end,
    ok = halley:login(<<"ann">>, Pid),
    wait(fun() -> halley:presence(<<"ann">>) =:= #{user => <<"ann">>, sessions => 0} end).

process_logs_out(_) ->
    [ok = halley:login(User) || User <- [<<"ann">>, <<"ann">>, <<"bea">>]],
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1),
    ok = halley:logout(self()),
    ok = halley:logout(self()),
    {ok, #{sessions := 0}} = halley:publish(<<"bea">>, 1),
    #{data := 1} = event(),
    no_event().

user_with_many_sessions(_) ->
    Number = number(<<"ann">>),
    Links = [link_with([]) || _ <- lists:seq(1, 3)],
    [_ = halley_directory:open(Number, {link, Slot, Conn}, infinity)
     || {_, Slot, _} <- Links, Conn <- [1, 2]],
    ok = halley:login(<<"ann">>),
    {ok, #{sessions := 7}} = halley:publish(<<"ann">>, 1),
    [?assertEqual([1, 2], lists:sort(delivered(Link))) || Link <- Links],
    #{data := 1} = event().

sessions_are_closed(_) ->
    Number = number(<<"ann">>),
    {Writer, Slot, _} = link_with([{Number, 5}]),
    ok = halley:login(<<"ann">>),
    {ok, 2} = halley:close_sessions(<<"ann">>),
    receive {halley_closed, <<"ann">>} -> ok after ?WAIT_MS -> error(not_told) end,
    receive {Writer, {close_sessions, Reason, [5]}} -> ?assert(is_binary(Reason))
    after ?WAIT_MS -> error(link_not_told)
    end,
    ok = halley_directory:close(Number, {link, Slot, 5}),
    {ok, 0} = halley:close_sessions(<<"ann">>),
    {ok, 0} = halley:close_sessions(<<"never heard of">>).

%% --- links -------------------------------------------------------------------------------------

link_gets_one_message_for_an_event(_) ->
    Users = [integer_to_binary(N) || N <- lists:seq(1, 100)],
    {ok, _} = halley:follow([{User, <<"bob">>} || User <- Users]),
    {_, _, Queue} = Link = link_with([{number(User), binary_to_integer(User)} || User <- Users]),
    {ok, #{sessions := 100}} = halley:publish(<<"bob">>, 1),
    {{_, _, Wire} = Delivery, Conns} = message(Link),
    ?assertEqual(lists:seq(1, 100), lists:sort([Conn || <<Conn:64>> <= Conns])),
    ?assertEqual(halley_links_queue:cost(Delivery, Conns), counters:get(Queue, 1)),
    ?assert(byte_size(Conns) + byte_size(Wire) < counters:get(Queue, 1)),
    no_event().

%% link.md 7.3
link_with_many_connections(_) ->
    Number = number(<<"ann">>),
    Link = link_with([{Number, Conn} || Conn <- lists:seq(1, 8193)]),
    {ok, #{sessions := 8193}} = halley:publish(<<"ann">>, 1),
    {{_, _, Wire} = Delivery, Conns} = message(Link),
    ?assertEqual(lists:seq(1, 8193), lists:sort([Conn || <<Conn:64>> <= Conns])),
    %% Two frames.
    ?assert(halley_links_queue:cost(Delivery, Conns) > 8 * 8193 + 2 * byte_size(Wire)).

slot_is_not_reused_at_once(_) ->
    Slots = [begin
                 {Writer, Slot, _} = link_with([]),
                 exit(Writer, kill),
                 wait(fun() -> halley_links:info(Slot) =:= undefined end),
                 Slot
             end || _ <- lists:seq(1, 50)],
    ?assertEqual(50, length(lists:usort(Slots))).

too_many_links(_) ->
    {Writer, Slot, _} = link_with([]),
    _ = [{ok, _, _} = halley_links:register_trunk(self())
         || _ <- lists:seq(3, halley_limits:get(links_max))],
    ?assertEqual({error, too_many_links}, halley_links:register_trunk(self())),
    exit(Writer, kill),
    wait(fun() -> halley_links:info(Slot) =:= undefined end),
    wait(fun() -> element(1, halley_links:register_trunk(self())) =:= ok end).

%% link.md 4.7: one slow link refuses nobody anything, all of them do.
overloaded_links_refuse_publish(_) ->
    {_, _, Queue} = link_with([{number(<<"ann">>), 1}]),
    {_, _, Other} = link_with([]),
    ok = counters:add(Queue, 1, halley_limits:get(link_queue_refuse_bytes)),
    [{ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1) || _ <- lists:seq(1, 3)],
    ok = counters:add(Other, 1, halley_limits:get(link_queue_refuse_bytes)),
    [{error, overloaded} = halley:publish(<<"ann">>, 1) || _ <- lists:seq(1, 3)],
    [{error, overloaded}, {error, overloaded}] =
        halley:publish_many([{<<"ann">>, 1, #{}}, {<<"bob">>, 1, #{}}]),
    ok = counters:put(Other, 1, 0),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1).

%% link.md 4.7
link_falls_behind(_) ->
    {Writer, Slot, Queue} = Link = link_with([{number(<<"ann">>), 1}]),
    Max = halley_limits:get(link_queue_bytes_max),
    ok = counters:put(Queue, 1, Max),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1),
    Way = halley_links:way(Slot),
    ?assert(halley_links_backpressure:is_behind(Way)),
    receive {Writer, behind} -> ok after ?WAIT_MS -> error(not_told) end,
    ok = counters:put(Queue, 1, 0),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 2),
    ok = halley_links_queue:mark(1, 17),
    %% The shards' own marks may have been on their way when it fell behind.
    receive
        {Writer, {deliver, _, _}} -> error(event_to_a_link_that_is_behind);
        {Writer, {mark, 1, 17}} -> error(mark_to_a_link_that_is_behind)
    after 50 -> ok
    end,
    ?assertEqual(0, counters:get(Queue, 1)),
    ok = halley_links_backpressure:resume(Way),
    ?assertNot(halley_links_backpressure:is_behind(Way)),
    ok = halley_links_queue:mark(1, 18),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 3),
    receive {Writer, {mark, 1, 18}} -> ok after ?WAIT_MS -> error(not_marked) end,
    ?assertEqual([1], delivered(Link)).

overloaded_shard_refuses_publish(_) ->
    ok = limits(#{shard_queue_events_max => 10}),
    Shard = shard(halley_shards:of_subject(<<"ann">>)),
    ok = sys:suspend(Shard, infinity),
    Publishers = [spawn_actor(fun() -> halley:publish(<<"ann">>, N) end) || N <- lists:seq(1, 30)],
    wait(fun() -> 20 =:= length([refused || {P, _} <- Publishers, not is_process_alive(P)]) end),
    ok = sys:resume(Shard, infinity),
    Results = [join(Publisher) || Publisher <- Publishers],
    ?assertEqual(20, length([refused || {error, overloaded} <- Results])),
    ?assertEqual(10, length([accepted || {ok, _} <- Results])),
    ?assertEqual(0, halley_shard:queued()).

%% --- what dies ---------------------------------------------------------------------------------

shard_killed(_) ->
    Shard = shard(halley_shards:of_subject(<<"ann">>)),
    ok = sys:suspend(Shard, infinity),
    Publisher = spawn_actor(fun() -> halley:publish(<<"ann">>, 1) end),
    await_publish(Shard),
    ?assertEqual(1, halley_shard:queued()),
    exit(whereis(Shard), kill),
    {error, unavailable} = join(Publisher),
    wait(fun() -> element(1, halley:publish(<<"ann">>, 1)) =:= ok end),
    ?assertEqual(0, halley_shard:queued()).

shard_hangs(_) ->
    ok = limits(#{publish_ms_max => 50}),
    Shard = shard(halley_shards:of_subject(<<"ann">>)),
    ok = sys:suspend(Shard, infinity),
    {error, unavailable} = halley:publish(<<"ann">>, 1),
    ok = sys:resume(Shard, infinity),
    ok = limits(#{}),
    {ok, _} = halley:publish(<<"ann">>, 1),
    receive Late -> error({late, Late}) after 100 -> ok end.

directory_owner_killed(_) ->
    Number = number(<<"ann">>),
    {_, Slot, _} = link_with([{Number, 1}]),
    {Pid, _} = spawn_actor(fun() -> ok = halley:login(<<"ann">>), receive stop -> ok end end),
    wait(fun() -> length(halley_directory:sessions(Number)) =:= 2 end),
    ok = kill_and_wait(halley_directory),
    ?assertEqual(lists:sort([{link, Slot, 1}, Pid]), lists:sort(halley_directory:sessions(Number))),
    exit(Pid, kill),
    wait(fun() -> halley_directory:sessions(Number) =:= [{link, Slot, 1}] end).

%% A caller whose request was interrupted dies, as a link does; its sessions are purged. The
%% others' stay.
directory_owner_killed_under_load(_) ->
    Users = lists:seq(1, 5),
    Actors = [{Slot, spawn_actor(fun() -> toggle(Slot, Users, 3000) end)}
              || Slot <- lists:seq(1, 4)],
    ok = kill_and_wait(halley_directory),
    timer:sleep(20),
    ok = kill_and_wait(halley_directory),
    Results = [{Slot, catch join(Actor)} || {Slot, Actor} <- Actors],
    [ok = halley_directory:purge(Slot, fun(_) -> ok end)
     || {Slot, Result} <- Results, Result =/= done],
    Alive = [Slot || {Slot, done} <- Results],
    [?assertEqual([{link, Slot, 1} || Slot <- Alive], lists:sort(halley_directory:sessions(User)))
     || User <- Users],
    [ok = halley_directory:purge(Slot, fun(_) -> ok end) || Slot <- Alive],
    [?assertEqual([], halley_directory:sessions(User)) || User <- Users],
    ?assertEqual([], ets:tab2list(halley_directory_rows)).

toggle(Slot, Users, 0) ->
    [_ = halley_directory:open(User, {link, Slot, 1}, infinity) || User <- Users],
    done;
toggle(Slot, Users, N) ->
    User = lists:nth(rand:uniform(length(Users)), Users),
    _ = halley_directory:open(User, {link, Slot, 1}, infinity),
    ok = halley_directory:close(User, {link, Slot, 1}),
    toggle(Slot, Users, N - 1).

links_owner_killed(_) ->
    {Writer, Slot, _} = Link = link_with([{number(<<"ann">>), 9}]),
    ok = kill_and_wait(halley_links),
    {ok, #{sessions := 1}} = halley:publish(<<"ann">>, 1),
    ?assertEqual([9], delivered(Link)),
    {_, Other, _} = link_with([]),
    ?assertNotEqual(Slot, Other),
    exit(Writer, kill),
    wait(fun() -> halley:presence(<<"ann">>) =:= #{user => <<"ann">>, sessions => 0} end).

%% Numbers of users that only logged in die with the store: the brain ends and is started anew as
%% a whole.
store_gives_up(Config) ->
    Brain = proplists:get_value(brain, Config),
    Monitor = monitor(process, Brain),
    exit(whereis(halley_store_sup), kill),
    receive {'DOWN', Monitor, process, Brain, shutdown} -> ok
    after ?WAIT_MS -> error(brain_lives_on)
    end.

%% --- metrics -----------------------------------------------------------------------------------

%% Each is registered by its owner, none of which `halley_metrics' calls by name. Those of
%% `halley_postgres', `halley_hooks' and `halley_backends' are only shown where these run.
every_gauge_is_shown(_) ->
    Text = iolist_to_binary(halley_metrics:render()),
    ?assertEqual([], [Name || {Name, Metric, gauge, _} <- halley_metrics:table(),
                              string:find(Text, ["# TYPE ", Metric, " gauge\n"]) =:= nomatch,
                              string:find(Metric, "halley_postgres_") =:= nomatch,
                              string:find(Metric, "halley_hooks_") =:= nomatch,
                              string:find(Metric, "halley_remote_") =:= nomatch,
                              string:find(Metric, "halley_connect_") =:= nomatch]).
