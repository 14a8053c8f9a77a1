%% The brain's side of a trunk (protocol/link.md 13), against the real history and an edge that does
%% what the page says: whatever happens, each session gets each event once, in its subject's order.
-module(halley_edge_trunk_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

-define(END, 1).
-define(SUBJECTS, [<<"a">>, <<"b">>, <<"c">>]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [every_worker_has_a_place, one_frame_for_all, welcome_has_the_trunks_cursor,
     a_sync_with_sessions_follows_later, one_catchup_for_many, the_trunk_is_cut,
     a_worker_goes_and_comes_back, the_trunk_is_behind, behind_while_a_worker_syncs,
     returning_sessions, a_gap_for_one_worker, at_random,
     groups_on_a_trunk, a_group_while_a_worker_syncs, close_sessions_by_words,
     inspect_by_slot, requests_of_all_workers, requests_of_a_worker_that_goes,
     the_trunk_ends].

init_per_testcase(Case, Config) ->
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

limits(Case) when Case =:= the_trunk_is_behind; Case =:= behind_while_a_worker_syncs;
                  Case =:= at_random ->
    #{link_queue_bytes_max => 300000, replay_queue_bytes_max => 50000};
limits(Case) when Case =:= groups_on_a_trunk; Case =:= a_group_while_a_worker_syncs ->
    #{group_followers_min => 10, group_followers_low => 5};
limits(_) ->
    #{}.

%%% 13.4 Places

every_worker_has_a_place(Config) ->
    Trunk = ready(trunk(Config, 3)),
    ?assertEqual(3, length(lists:usort([fake_trunk:slot(W, Trunk) || W <- [0, 1, 2]]))),
    ?assertEqual([0, 1, 2], lists:sort([W || #{info := #{worker := W}} <- halley_links:list()])),
    ?assertMatch({ok, _}, halley_edge_dialer:link()).

%%% 13.5 Events

one_frame_for_all(Config) ->
    Conns = crowd(3, 4),
    Trunk = opened(Conns, ready(trunk(Config, 3))),
    {ok, #{sessions := 12}} = halley:publish(<<"a">>, 1),
    Seen = fake_trunk:until(all_saw(Conns, 1), Trunk),
    ?assertMatch(#{trunk_deliver := 1}, fake_trunk:counts(Seen)),
    [{ok, _} = halley:publish(S, N) || N <- lists:seq(1, 50), S <- [<<"b">>, <<"c">>]],
    ordered_and_once(Conns, 101, fake_trunk:until(all_saw(Conns, 101), Seen)).

%% 6.2, 13.6: what was published before a session came isn't above its first cursor.
welcome_has_the_trunks_cursor(Config) ->
    Ready = ready(trunk(Config, 2)),
    [{ok, _} = halley:publish(S, 1) || S <- ?SUBJECTS],
    Heads = halley_history:heads(),
    Trunk = opened([{1, 7}], Ready),
    {ok, #{vector := Vector}} = halley_cursor:decode(
        fake_worker:cursor(7, fake_trunk:worker(1, Trunk))),
    ?assert(halley_vector:is_reached(Heads, Vector)).

%%% 10.6, 13.6 Syncs

a_sync_with_sessions_follows_later(Config) ->
    Conns = crowd(2, 3),
    Opened = opened(Conns, ready(trunk(Config, 2))),
    {ok, _} = halley:publish(<<"a">>, 1),
    Cut = fake_trunk:cut(fake_trunk:until(all_saw(Conns, 1), Opened)),
    {ok, _} = halley:publish(<<"a">>, 2),
    Back = ready(fake_trunk:until(all_saw(Conns, 2), Cut)),
    {ok, _} = halley:publish(<<"a">>, 3),
    ordered_and_once(Conns, 3, fake_trunk:until(all_saw(Conns, 3), Back)).

%% All workers stand where the trunk stood.
one_catchup_for_many(Config) ->
    Conns = crowd(16, 1),
    Opened = fake_trunk:run(500, opened(Conns, ready(trunk(Config, 16)))),
    Before = counted("halley_catchups_total"),
    Back = ready(fake_trunk:until(fun(T) -> not follows_any(16, T) end, fake_trunk:cut(Opened))),
    Catchups = counted("halley_catchups_total") - Before,
    ct:log("~b catch-ups for 16 workers", [Catchups]),
    ?assert(Catchups >= 1 andalso Catchups < 16),
    {ok, _} = halley:publish(<<"a">>, 1),
    ordered_and_once(Conns, 1, fake_trunk:until(all_saw(Conns, 1), Back)).

the_trunk_is_cut(Config) ->
    Conns = crowd(4, 5),
    Opened = opened(Conns, ready(trunk(Config, 4))),
    Publisher = publisher(1, 400),
    Cut = lists:foldl(fun(_, T) -> fake_trunk:cut(fake_trunk:run(150, T)) end, Opened, [1, 2, 3]),
    join(Publisher),
    Done = ready(fake_trunk:until(all_saw(Conns, 1200), Cut)),
    ordered_and_once(Conns, 1200, fake_trunk:run(50, Done)).

%% 13.7: "So the trunk stays".
a_worker_goes_and_comes_back(Config) ->
    Conns = crowd(3, 3),
    Opened = opened(Conns, ready(trunk(Config, 3))),
    Slots = [fake_trunk:slot(W, Opened) || W <- [0, 1, 2]],
    Publisher = publisher(1, 400),
    Back = lists:foldl(fun(_, T) ->
        Away = fake_trunk:run(100, fake_trunk:gone(1, fake_trunk:run(50, T))),
        ?assert(fake_trunk:follows(0, Away) andalso fake_trunk:follows(2, Away)),
        fake_trunk:back(1, Away)
    end, Opened, [1, 2, 3]),
    join(Publisher),
    Done = ready(fake_trunk:until(all_saw(Conns, 1200), Back)),
    ordered_and_once(Conns, 1200, fake_trunk:run(50, Done)),
    Now = [fake_trunk:slot(W, Done) || W <- [0, 1, 2]],
    ?assertMatch([same, other, same], [case N of S -> same; _ -> other end
                                       || {N, S} <- lists:zip(Now, Slots)]),
    until(fun() -> halley_directory:shut_slots() =:= [] end).

%% 4.7: those who follow fall behind together, and have one catch-up.
the_trunk_is_behind(Config) ->
    Conns = crowd(3, 2),
    Opened = opened(Conns, ready(trunk(Config, 3))),
    Before = counted("halley_catchups_total"),
    Behind = counted("halley_links_behind_total"),
    Starving = fake_trunk:run(50, fake_trunk:starve(Opened)),
    publish(1, 500),
    %% A catch-up that waits for credit in its last round takes what is live again.
    ?assert(counted("halley_links_behind_total") > Behind),
    Publisher = spawn_monitor(fun() -> publish(501, 700) end),
    Fed = fake_trunk:until(all_saw(Conns, 2100), fake_trunk:feed(Starving)),
    join(Publisher),
    Later = fake_trunk:until(fun(_) -> not halley_links_backpressure:is_behind(way()) end,
                             fake_trunk:run(200, Fed)),
    ?assert(counted("halley_catchups_total") > Before),
    ordered_and_once(Conns, 2100, ready(Later)),
    until(fun() -> queued() =:= 0 end).

%% The mark is for all: it goes when nobody relies on what is left out.
behind_while_a_worker_syncs(Config) ->
    Conns = crowd(3, 2),
    Opened = opened(Conns, ready(trunk(Config, 3))),
    Away = fake_trunk:gone(0, Opened),
    Behind = counted("halley_links_behind_total"),
    publish(1, 200),
    Starving = fake_trunk:run(20, fake_trunk:back(0, fake_trunk:starve(fake_trunk:run(20, Away)))),
    publish(201, 600),
    ?assert(counted("halley_links_behind_total") > Behind),
    Publisher = spawn_monitor(fun() -> publish(601, 700) end),
    Gone = fake_trunk:gone(2, fake_trunk:run(10, fake_trunk:feed(Starving))),
    Fed = fake_trunk:until(all_saw(Conns, 2100), fake_trunk:back(2, fake_trunk:run(10, Gone))),
    join(Publisher),
    ordered_and_once(Conns, 2100, ready(fake_trunk:run(200, Fed))),
    until(fun() -> queued() =:= 0 end).

%% 10.2 to 10.5, on a worker that follows and on one that is apart.
returning_sessions(Config) ->
    Conns = crowd(2, 2),
    Opened = opened(Conns, ready(trunk(Config, 2))),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    [{ok, _} = halley:publish(S, N) || N <- lists:seq(1, 100), S <- ?SUBJECTS],
    Publisher = publisher(101, 300),
    Held = lists:foldl(fun({W, Conn}, T) -> open(W, Conn, user(0, 1), Cursor, T) end, Opened,
                       [{W, Conn} || W <- [0, 1], Conn <- lists:seq(101, 115)]),
    Away = fake_trunk:gone(1, fake_trunk:run(30, Held)),
    Back = fake_trunk:back(1, fake_trunk:run(30, Away)),
    join(Publisher),
    All = Conns ++ [{W, Conn} || W <- [0, 1], Conn <- lists:seq(101, 115)],
    Done = ready(fake_trunk:until(all_saw(All, 900), Back)),
    ordered_and_once(All, 900, fake_trunk:run(50, Done)).

%% 10.4: its sessions hear of it, those of the others don't.
a_gap_for_one_worker(Config) ->
    Conns = [{0, 1}, {1, 2}],
    Opened = opened(Conns, ready(trunk(Config, 2))),
    Foreign = halley_cursor:encode(halley_history:store() bxor 1, 1700000000,
                                   halley_history:heads()),
    Gone = fake_trunk:gone(1, Opened),
    Back = fake_trunk:back(1, fake_trunk:change(1, fun(W) -> fake_worker:at(Foreign, W) end, Gone)),
    Told = ready(fake_trunk:until(fun(T) -> gaps({1, 2}, T) =/= [] end, Back)),
    ?assertMatch([{<<"other_store">>, 1700000000000, _}], gaps({1, 2}, Told)),
    ?assertEqual([], gaps({0, 1}, Told)).

%% Workers that go and come back, cuts and a trunk that is behind, in any order.
at_random(Config) ->
    Seed = rand:uniform(1 bsl 30),
    ct:log("seed ~b", [Seed]),
    Conns = crowd(4, 2),
    Opened = opened(Conns, ready(trunk(Config, 4))),
    Publisher = publisher(1, 1000, binary:copy(<<"x">>, 3000)),
    {Last, _} = lists:foldl(fun(_, {T, Random}) ->
        {N, Next} = rand:uniform_s(100, Random),
        {Ms, After} = rand:uniform_s(40, Next),
        {fake_trunk:run(Ms, happens(N, T)), After}
    end, {Opened, rand:seed_s(exsss, Seed)}, lists:seq(1, 150)),
    Calm = lists:foldl(fun back_if_away/2, fake_trunk:feed(Last), [0, 1, 2, 3]),
    join(Publisher),
    Done = ready(fake_trunk:until(all_saw(Conns, 3000), Calm)),
    ordered_and_once(Conns, 3000, fake_trunk:run(100, Done)),
    until(fun() -> queued() =:= 0 end),
    ?assertNot(halley_links_backpressure:is_behind(way())),
    ct:log("~b times behind, ~b catch-ups", [counted("halley_links_behind_total"),
                                             counted("halley_catchups_total")]).

happens(N, Trunk) when N =< 30 -> away(N rem 4, Trunk);
happens(N, Trunk) when N =< 60 -> back_if_away(N rem 4, Trunk);
happens(N, Trunk) when N =< 75 -> fake_trunk:starve(Trunk);
happens(N, Trunk) when N =< 95 -> fake_trunk:feed(Trunk);
happens(_, Trunk) -> fake_trunk:cut(fake_trunk:feed(Trunk)).

%% A worker without a place can't lose it.
away(W, Trunk = #{slots := Slots, away := Away}) ->
    HasPlace = lists:member(W, maps:values(Slots)),
    case is_map_key(W, Away) orelse not HasPlace of
        true -> Trunk;
        false -> fake_trunk:gone(W, Trunk)
    end.

%% One that is away when a brain comes syncs when it is back.
back_if_away(W, Trunk = #{away := Away}) when is_map_key(W, Away) -> fake_trunk:back(W, Trunk);
back_if_away(_, Trunk) -> Trunk.

%%% 11 Groups

groups_on_a_trunk(Config) ->
    Conns = crowd(3, 5),
    Joined = grouped(opened(Conns, ready(trunk(Config, 3)))),
    Before = maps:get(trunk_deliver, fake_trunk:counts(Joined)),
    {ok, #{sessions := 15}} = halley:publish(<<"a">>, 2),
    Seen = fake_trunk:until(all_saw(Conns, 2), Joined),
    ?assertMatch(#{trunk_group_deliver := 1, trunk_deliver := Before}, fake_trunk:counts(Seen)),
    [ok = halley:unfollow(user(W, N), <<"a">>) || W <- [0, 1, 2], N <- lists:seq(1, 4)],
    {ok, #{sessions := 3}} = halley:publish(<<"a">>, 3),
    Last = [{W, 5} || W <- [0, 1, 2]],
    Left = fake_trunk:run(50, fake_trunk:until(all_saw(Last, 3), Seen)),
    ?assertEqual([[1, 2, 3], [1, 2, 3], [1, 2, 3]], [numbers(Conn, Left) || Conn <- Last]),
    ?assertEqual([1, 2], numbers({0, 1}, Left)).

a_group_while_a_worker_syncs(Config) ->
    Conns = crowd(3, 5),
    Joined = grouped(opened(Conns, ready(trunk(Config, 3)))),
    Publisher = publisher(2, 300),
    Back = lists:foldl(fun(W, T) ->
        fake_trunk:run(60, fake_trunk:back(W, fake_trunk:run(30, fake_trunk:gone(W, T))))
    end, Joined, [0, 1, 2, 0]),
    join(Publisher),
    Done = ready(fake_trunk:until(all_saw(Conns, 300 + 2 * 299), Back)),
    Seen = fake_trunk:run(50, Done),
    [?assertEqual(lists:seq(1, 300), [N || {<<"a">>, N} <- lists:map(fun data/1, seen(C, Seen))])
     || C <- Conns],
    [?assertEqual(900 - 2, length(seen(C, Seen))) || C <- Conns].

%% An event about a subject that so many follow makes it a group.
grouped(Trunk) ->
    {ok, #{sessions := 15}} = halley:publish(<<"a">>, 1),
    Group = halley_ids:lookup(<<"a">>),
    fake_trunk:until(fun(T) -> has_members(3, 5, Group, T) end, Trunk).

%%% 6.6, 10.8

close_sessions_by_words(Config) ->
    Trunk = #{edge := Edge} = opened([{1, 7}, {1, 8}, {0, 9}], ready(trunk(Config, 2))),
    Slot = fake_trunk:slot(1, Trunk),
    ok = halley_links_queue:close_sessions(Slot, [7, 8], <<"because">>),
    {to_slot, Slot, {close_sessions, <<"because">>, [7, 8]}} =
        fake_edge:expect(Edge, fun({to_slot, _, {close_sessions, _, _}}) -> true;
                                  (_) -> false
                               end).

inspect_by_slot(Config) ->
    Trunk = #{edge := Edge} = opened([{1, 7}], ready(trunk(Config, 2))),
    Slot = fake_trunk:slot(1, Trunk),
    Asking = spawn_monitor(fun() -> exit(halley_edge_link:inspect(Slot, 7, 60000)) end),
    {to_slot, Slot, {inspect, Token, 7}} =
        fake_edge:expect(Edge, fun({to_slot, _, {inspect, _, _}}) -> true; (_) -> false end),
    Seen = #{state => 3, transport => 1, outbox_bytes => 10, outbox_pieces => 2, outbox_ms => 5,
             held => 0, dropped => 0, conflated => 1},
    ok = fake_edge:send(Edge, {from_worker, 1, {inspected, Token, 7, Seen}}),
    ?assertEqual({ok, Seen#{state := live, transport := sse}}, join(Asking)).

%%% 8 Requests

%% Workers have connections of the same id.
requests_of_all_workers(Config) ->
    Trunk = #{edge := Edge} = ready(trunk(Config, 3)),
    [request(Edge, W, 5, <<"/echo">>, integer_to_binary(W)) || W <- [0, 1, 2]],
    [begin
         Slot = fake_trunk:slot(W, Trunk),
         Body = <<"POST ", (integer_to_binary(W))/binary, " ">>,
         ?assertMatch({response, 5, 200, ?END, _, _, Body}, answer(Edge, Slot))
     end || W <- [2, 0, 1]],
    [request(Edge, W, 5, <<"/publish/s">>, integer_to_binary(W)) || W <- [0, 1, 2]],
    [?assertMatch({response, 5, 200, ?END, _, _, _}, answer(Edge, fake_trunk:slot(W, Trunk)))
     || W <- [0, 1, 2]],
    ok = fake_edge:send(Edge, {from_worker, 1, {request, 6, api, 0, <<"POST">>, <<"/count">>, [],
                                                <<"abc">>}}),
    ok = fake_edge:send(Edge, {from_worker, 1, {request_body, 6, ?END, <<"de">>}}),
    ?assertMatch({response, 6, 200, ?END, _, _, <<"5">>}, answer(Edge, fake_trunk:slot(1, Trunk))).

requests_of_a_worker_that_goes(Config) ->
    Trunk = #{edge := Edge} = ready(trunk(Config, 2)),
    request(Edge, 0, 5, <<"/hang">>, <<>>),
    until(fun() -> whereis(hanging_handler) =/= undefined end),
    Handler = monitor(process, hanging_handler),
    request(Edge, 1, 5, <<"/echo">>, <<"x">>),
    _ = answer(Edge, fake_trunk:slot(1, Trunk)),
    _ = fake_trunk:gone(0, Trunk),
    receive {'DOWN', Handler, process, _, killed} -> ok after ?WAIT_MS -> error(goes_on) end,
    request(Edge, 1, 5, <<"/echo">>, <<"y">>),
    _ = answer(Edge, fake_trunk:slot(1, Trunk)).

%%% 1.2, 13.1 Which is dialled

the_trunk_ends(Config) ->
    Conns = crowd(2, 2),
    Trunk = #{edge := Edge} = opened(Conns, ready(trunk(Config, 2))),
    {ok, Link} = halley_edge_dialer:link(),
    Monitor = monitor(process, Link),
    fake_edge:stop(Edge),
    receive {'DOWN', Monitor, process, _, _} -> ok after ?WAIT_MS -> error(goes_on) end,
    until(fun() -> halley_links:list() =:= [] andalso halley_directory:shut_slots() =:= [] end),
    ?assertEqual(#{users => 0, sessions => 0}, halley_directory:online()),
    Again = fake_trunk:start(proplists:get_value(dir, Config), 2),
    Moved = lists:foldl(fun(W, T) ->
        fake_trunk:change(W, fun(Worker) -> Worker#{edge := {trunk, Again, W}} end, T)
    end, Trunk#{edge := Again, slots := #{}, follows := #{}, begun := #{}}, [0, 1]),
    Back = ready(fake_trunk:until(fun(T) -> not follows_any(2, T) end, Moved)),
    {ok, #{sessions := 4}} = halley:publish(<<"a">>, 1),
    ordered_and_once(Conns, 1, fake_trunk:until(all_saw(Conns, 1), Back)).

%%% Helpers

trunk(Config, Workers) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_trunk:start(Dir, Workers),
    ok = halley_edge_dialer:connect(Dir, self()),
    receive {link_up, #{worker := 65535}} -> ok after ?WAIT_MS -> error(not_up) end,
    fake_trunk:new(Edge, Workers).

%% Everybody follows the trunk, and every session is open.
ready(Trunk) ->
    fake_trunk:until(fun(T) ->
        lists:all(fun({W, Worker}) ->
            fake_trunk:follows(W, T) andalso fake_worker:connected(Worker)
        end, fake_trunk:all(T))
    end, Trunk).

follows_any(Workers, Trunk) ->
    lists:any(fun(W) -> fake_trunk:follows(W, Trunk) end, lists:seq(0, Workers - 1)).

%% So many users on each worker, who follow all subjects.
crowd(Workers, Each) ->
    Conns = [{W, N} || W <- lists:seq(0, Workers - 1), N <- lists:seq(1, Each)],
    {ok, #{errors := []}} = halley:follow([{user(W, N), S} || {W, N} <- Conns, S <- ?SUBJECTS]),
    Conns.

user(W, N) -> <<"user", (integer_to_binary(W))/binary, "-", (integer_to_binary(N))/binary>>.

opened(Conns, Trunk) ->
    ready(lists:foldl(fun({W, Conn}, T) -> open(W, Conn, user(W, Conn), <<>>, T) end, Trunk,
                      Conns)).

open(W, Conn, User, Cursor, Trunk) ->
    fake_trunk:change(W, fun(Worker) -> fake_worker:open(Conn, User, Cursor, Worker) end, Trunk).

all_saw(Conns, N) ->
    fun(Trunk) -> lists:all(fun(Conn) -> length(seen(Conn, Trunk)) >= N end, Conns) end.

seen({W, Conn}, Trunk) -> fake_worker:seen(Conn, fake_trunk:worker(W, Trunk)).

gaps({W, Conn}, Trunk) -> fake_worker:gaps(Conn, fake_trunk:worker(W, Trunk)).

has_members(Workers, Each, Group, Trunk) ->
    lists:all(fun(W) -> length(fake_trunk:members(W, Group, Trunk)) =:= Each end,
              lists:seq(0, Workers - 1)).

publish(From, To) ->
    Text = binary:copy(<<"x">>, 2000),
    [{ok, _} = halley:publish(S, #{n => N, text => Text}, #{ack => memory})
     || N <- lists:seq(From, To), S <- ?SUBJECTS].

publisher(From, To) -> publisher(From, To, <<>>).

publisher(From, To, Text) ->
    spawn_monitor(fun() ->
        [{ok, _} = halley:publish(S, #{n => N, text => Text})
         || N <- lists:seq(From, To), S <- ?SUBJECTS]
    end).

join({Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, Reason} -> Reason after 120000 -> error(hangs) end.

request(Edge, W, Conn, Target, Body) ->
    ok = fake_edge:send(Edge, {from_worker, W, {request, Conn, api, ?END, <<"POST">>, Target, [],
                                                Body}}).

answer(Edge, Slot) ->
    receive {Edge, {to_slot, Slot, Answer}} when element(1, Answer) =:= response -> Answer
    after ?WAIT_MS -> error(no_answer)
    end.

data(#{json := Json}) ->
    #{<<"subject">> := Subject, <<"data">> := Data} = jiffy:decode(Json, [return_maps]),
    {Subject, case Data of #{<<"n">> := N} -> N; N -> N end}.

numbers(Conn, Trunk) -> [N || {_, N} <- lists:map(fun data/1, seen(Conn, Trunk))].

%% Every event exactly once, those about a subject in their order.
ordered_and_once(Conns, Total, Trunk) ->
    lists:foreach(fun(Conn) ->
        Seen = lists:map(fun data/1, seen(Conn, Trunk)),
        BySubject = maps:groups_from_list(fun({S, _}) -> S end, fun({_, N}) -> N end, Seen),
        [?assertEqual({Conn, S, lists:seq(1, length(Ns))}, {Conn, S, Ns})
         || {S, Ns} <- maps:to_list(BySubject)],
        ?assertEqual({Conn, Total}, {Conn, length(Seen)})
    end, Conns).

counted(Metric) -> halley_edge_helper:counted(Metric).

way() ->
    [#{slot := Slot} | _] = halley_links:list(),
    halley_links:way(Slot).

queued() -> lists:max([0 | [B || #{queue_bytes := B} <- halley_links:list()]]).
