%% Sessions of one link that are replayed at the same time take turns, and none of them is long.
-module(halley_edge_turns_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

-define(FOLLOWS, 40000).
-define(POLL, 5).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [little_beside_much, many_sessions_of_one_user, more_than_keep_their_state].

init_per_testcase(Case, Config) ->
    Brain = halley_edge_test_brain:start(limits(Case)),
    Dir = string:trim(os:cmd("mktemp -d")),
    {ok, _} = halley:follow([{<<"much">>, subject(N)} || N <- lists:seq(1, ?FOLLOWS)]),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    _ = [meck:unload(halley_replay) || is_pid(whereis(halley_replay_meck))],
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

limits(more_than_keep_their_state) -> #{replays_max => 2};
limits(_) -> #{}.

subject(N) -> <<"s", (integer_to_binary(N))/binary>>.

%% One that follows much, while much was published, comes first, and thirty that missed an event
%% each come with it. They are served after a few of its turns, of which it needs many.
little_beside_much(Config) ->
    #{edge := Edge} = worker(Config),
    Cursor = cursor_now(),
    ok = publish_of_strangers(),
    Little = [<<"little", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 30)],
    [{ok, _} = halley:publish(User, 1) || User <- [subject(?FOLLOWS) | Little]],
    ok = halley_history:await(halley_history:heads(), 60000),
    ok = meck:new(halley_replay, [passthrough, no_link]),
    fake_edge:send(Edge, {open, [{Conn, ?POLL, User, Cursor}
                                 || {Conn, User} <- lists:enumerate([<<"much">> | Little])]}),
    until(fun() -> lists:sort(given()) =:= lists:sort([<<"much">> | Little]) end),
    ?assertEqual(<<"much">>, lists:last(given())),
    Turns = [User || {User, _} <- calls()],
    {Before, _} = lists:split(length(Turns) - behind_the_last(Little, Turns), Turns),
    Much = length([User || <<"much">> = User <- Before]),
    ct:pal("~b of ~b turns", [Much, length(Turns) - length(Little)]),
    ?assert(length(Turns) - length(Little) >= 20),
    ?assert(Much =< 1 + length(Little) div 4).

%% Forty polls of one that follows much, and ten others that come behind them: what is gathered for
%% the first is good for all, and the others wait for one user's turns, not for forty sessions'.
many_sessions_of_one_user(Config) ->
    #{edge := Edge} = worker(Config),
    Cursor = cursor_now(),
    ok = publish_of_strangers(),
    Little = [<<"little", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 10)],
    Polls = lists:duplicate(40, <<"much">>),
    [{ok, _} = halley:publish(User, 1) || User <- [subject(?FOLLOWS) | Little]],
    ok = halley_history:await(halley_history:heads(), 60000),
    ok = meck:new(halley_replay, [passthrough, no_link]),
    fake_edge:send(Edge, {open, [{Conn, ?POLL, User, Cursor}
                                 || {Conn, User} <- lists:enumerate(Polls ++ Little)]}),
    until(fun() -> length(given()) =:= 50 end),
    Turns = [User || {User, _} <- calls()],
    Yields = length([User || {User, yield} <- calls()]),
    ct:pal("~b turns, ~b of them without an event", [length(Turns), Yields]),
    %% One gathering of some 35 slices.
    ?assert(Yields >= 20),
    ?assert(Yields =< 80),
    {Before, _} = lists:split(length(Turns) - behind_the_last(Little, Turns), Turns),
    ?assert(length(Before) =< 3 * length(Little)).

%% So many that the follows are the shorter way to what was missed.
publish_of_strangers() ->
    Stranger = {<<"stranger">>, 1, #{ack => memory}},
    lists:foreach(fun(_) ->
        _ = halley:publish_many(lists:duplicate(500, Stranger)),
        ok = halley_history:await(halley_history:heads(), 60000)
    end, lists:seq(1, 24)).

%% Users in the order of their turns, each with what came of it.
calls() ->
    [{element(1, element(2, Replay)), element(2, Result)}
     || {_, {halley_replay, next, [Replay | _]}, Result} <- meck:history(halley_replay)].

given() -> [User || {User, What} <- calls(), What =/= yield].

behind_the_last(Users, Turns) ->
    length(lists:takewhile(fun(User) -> not lists:member(User, Users) end, lists:reverse(Turns))).

%% A session that has yielded is given the place of one that waits for its client, so all get on;
%% and who waited isn't forgotten.
more_than_keep_their_state(Config) ->
    Conns = lists:seq(1, 8),
    Worker = worker(Config),
    Cursor = cursor_now(),
    [{ok, _} = halley:publish(subject(N), N) || N <- lists:seq(1, 600)],
    Opened = lists:foldl(fun(Conn, W) -> fake_worker:open(Conn, <<"much">>, Cursor, W) end,
                         Worker, Conns),
    Stalled = lists:foldl(fun fake_worker:stall/2, Opened, [1, 2]),
    Done = lists:foldl(fun live/2, Stalled, lists:nthtail(2, Conns)),
    [?assertEqual({Conn, 600}, {Conn, length(fake_worker:seen(Conn, Done))})
     || Conn <- lists:nthtail(2, Conns)],
    [begin
         ?assertEqual(1, fake_worker:replays(Conn, Done)),
         fake_edge:send(maps:get(edge, Done), {replayed, Conn})
     end || Conn <- [1, 2]],
    fake_worker:until(fun(W) -> fake_worker:replays(1, W) >= 2 andalso
                                fake_worker:replays(2, W) >= 2
                      end, Done).

%%% Helpers

worker(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir)),
    ok = halley_edge_dialer:connect(Dir, self()),
    fake_worker:until(fun(W) -> fake_worker:cursor(W) =/= <<>> end, fake_worker:new(Edge)).

live(Conn, Worker) ->
    fake_worker:until(fun(W) -> fake_worker:state(Conn, W) =:= live end, Worker).

cursor_now() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).
