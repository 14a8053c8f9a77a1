%% For users who were there when a brain was killed, a worker's sync makes requests
%% (protocol/link.md 6.1). hooks.md: "Users who were there when Halley was killed stay"; "A
%% refusal closes the sessions".
-module(halley_hooks_connect_sync_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("support/halley_hooks_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_hooks_connect_helper, [start/1, does/2, user/1]).
-import(halley_edge_helper, [next/2, alive/1, counted/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [refused_by_the_endpoint, refused_by_the_cache, refused_while_held,
     asked_when_all_of_a_frame_are_open, killed_while_it_asks, killed_before_it_hears].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(limits()),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir}, {endpoint, halley_hooks_endpoint:start()} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_hooks_connect_helper:stop(),
    halley_hooks_endpoint:stop(?config(endpoint, Config)),
    ok = halley_edge_test_brain:stop(?config(brain, Config)),
    ok = file:del_dir_r(?config(dir, Config)).

limits() -> #{connect_in_flight_max => 1}.

%% -----------------------------------------------------------------------------------------------

refused_by_the_endpoint(Config) ->
    start(Config),
    does(fun eve_may_not/2, Config),
    Edge = syncing(Config),
    open(Edge, [{1, <<"eve">>}, {2, <<"ann">>}, {3, <<"eve">>}, {4, <<>>}]),
    ?assertEqual([1, 3], closed(Edge, 2)),
    ok = asked_about_all(),
    ?assertEqual([], closed_by_now(Edge)).

%% Each worker's sync, and each frame of it, finds the judgement there already.
refused_by_the_cache(Config) ->
    start(Config),
    does(fun eve_may_not/2, Config),
    asked = halley_hooked:ask(<<"eve">>, known),
    receive {connect_judged, known, {refuse, 403, _, _, _}} -> ok
    after ?WAIT_MS -> error(not_judged)
    end,
    Edge = syncing(Config),
    open(Edge, [{1, <<"eve">>}]),
    ?assertEqual([1], closed(Edge, 1)),
    open(Edge, [{2, <<"ann">>}, {3, <<"eve">>}]),
    %% The first one's CLOSE hasn't come.
    ?assertEqual([1, 3], lists:sort(closed(Edge, 2))).

%% A session that comes with its cursor, as its replay wasn't over.
refused_while_held(Config) ->
    start(Config),
    does(fun eve_may_not/2, Config),
    Edge = syncing(Config),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    {ok, _} = halley:publish(<<"eve">>, 1),
    fake_edge:send(Edge, {open, [{1, 1, <<"eve">>, Cursor}]}),
    ?assertEqual([1], closed(Edge, 1)).

%% Whoever judges may answer at once.
asked_when_all_of_a_frame_are_open(Config) ->
    Case = self(),
    ok = halley_hooked:judge(fun(User, {_, {later, User}}) ->
        Case ! {asked, User, [length(halley_sessions:of_user(U)) || U <- [<<"ann">>, <<"eve">>]]},
        asked
    end),
    Edge = syncing(Config),
    open(Edge, [{1, <<"ann">>}, {2, <<"eve">>}, {3, <<"eve">>}]),
    [receive {asked, User, Sessions} -> ?assertEqual([1, 2], Sessions)
     after ?WAIT_MS -> error(not_asked)
     end || User <- [<<"ann">>, <<"eve">>]].

%% One request hangs, and others wait for it: all are asked about by the next process.
killed_while_it_asks(Config) ->
    start(Config),
    does(fun(_, _) -> hang end, Config),
    Edge = syncing(Config),
    open(Edge, [{1, <<"ann">>}, {2, <<"bob">>}, {3, <<"eve">>}]),
    halley_test_brain:wait(fun() -> counted("halley_connect_waiting") =:= 3 end),
    does(fun eve_may_not/2, Config),
    halley_test_brain:kill_and_wait(halley_hooks_connect),
    ?assertEqual([3], closed(Edge, 1)),
    ok = asked_about_all(),
    ?assertEqual([], closed_by_now(Edge)).

%% Nobody is there to be told that sessions came.
killed_before_it_hears(Config) ->
    start(Config),
    does(fun eve_may_not/2, Config),
    ok = supervisor:terminate_child(halley_hooks_sup, halley_hooks_connect),
    Edge = syncing(Config),
    open(Edge, [{1, <<"ann">>}, {2, <<"eve">>}]),
    ok = alive(Edge),
    {ok, _} = supervisor:restart_child(halley_hooks_sup, halley_hooks_connect),
    ?assertEqual([2], closed(Edge, 1)),
    ok = asked_about_all().

%% --- helpers -------------------------------------------------------------------------------------

eve_may_not(_, Body) ->
    case user(Body) of <<"eve">> -> 403; _ -> 204 end.

%% A worker's edge in the middle of its sync.
syncing(Config) ->
    Edge = halley_edge_helper:linked(?config(dir, Config), fake_edge:hello()),
    fake_edge:send(Edge, {sync_begin, 0, <<>>}),
    Edge.

open(Edge, Sessions) ->
    fake_edge:send(Edge, {open, [{Conn, 1, User, <<>>} || {Conn, User} <- Sessions]}).

%% Connections that are closed by the brain, until there are so many.
closed(_, Count) when Count =< 0 -> [];
closed(Edge, Count) ->
    {close_sessions, <<"connect_refused: ", _/binary>>, Conns} = next(Edge, close_sessions),
    Conns ++ closed(Edge, Count - length(Conns)).

closed_by_now(Edge) ->
    ok = alive(Edge),
    receive {Edge, {close_sessions, _, Conns}} -> Conns ++ closed_by_now(Edge) after 0 -> [] end.

%% Nobody is left to be asked about, and nobody is remembered for that.
asked_about_all() ->
    halley_test_brain:wait(fun() -> ets:info(halley_hooks_connect_later, size) =:= 0 end).
