%% A user's sessions are closed, or the user is deleted: that takes the sessions with it that are
%% held (protocol/link.md 10.2), and those that enter the directory just then.
-module(halley_edge_close_user_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, next/2, alive/1, link_process/0, replays/0]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [held_sessions_are_closed, a_deleted_user_keeps_no_held_session, one_that_enters_just_then,
     only_of_its_worker_on_a_trunk].

init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%% http-api.md: "Closes the user's connections and answers how many there were". Another user's
%% sessions stay.
held_sessions_are_closed(Config) ->
    Edge = edge(Config),
    [held(Edge, Conn, User) || {Conn, User} <- [{1, <<"anna">>}, {2, <<"bert">>}, {3, <<"anna">>}]],
    fake_edge:send(Edge, {open, [{4, 1, <<"anna">>, <<>>}]}),
    until(fun() -> sessions(<<"anna">>) =:= [4] end),
    ?assertEqual({ok, 3}, halley:close_sessions(<<"anna">>)),
    ?assertEqual([1, 3, 4], lists:usort(closed(Edge, 3))),
    Number = halley_ids:lookup(<<"anna">>),
    fake_edge:send(Edge, {close, [{Conn, Number, 4} || Conn <- [1, 3, 4]]}),
    [fake_edge:send(Edge, {replayed, Conn}) || Conn <- [1, 2, 3]],
    until(fun() -> sessions(<<"bert">>) =:= [2] end),
    ?assertEqual([], sessions(<<"anna">>)),
    ?assertNot(halley_directory_leaving:is_held(Number)),
    ?assertEqual({ok, 0}, halley:close_sessions(<<"anna">>)),
    ?assertEqual([], closed_by_now(Edge)).

%% http-api.md: "a user who logs in as `bob` afterwards is a new one".
a_deleted_user_keeps_no_held_session(Config) ->
    Edge = edge(Config),
    held(Edge, 1, <<"bob">>),
    ?assertMatch({ok, #{sessions := 1}}, halley:forget(<<"bob">>)),
    ?assertEqual([1], closed(Edge, 1)).

%% The link's process has yet to read that the session is to enter: neither the directory has it
%% when that is looked at, nor the link among those that are held when it is told.
one_that_enters_just_then(Config) ->
    Edge = edge(Config),
    held(Edge, 1, <<"anna">>),
    {Link, Replays} = {link_process(), replays()},
    true = erlang:suspend_process(Replays),
    fake_edge:send(Edge, {replayed, 1}),
    ok = alive(Edge),
    true = erlang:suspend_process(Link),
    true = erlang:resume_process(Replays),
    until(fun() ->
        {messages, Messages} = process_info(Link, messages),
        lists:any(fun({enter, _, Conns}) -> Conns =:= [1]; (_) -> false end, Messages)
    end),
    Closing = halley:close_sessions(<<"anna">>),
    true = erlang:resume_process(Link),
    ?assertEqual({ok, 1}, Closing),
    ?assertEqual([1], closed(Edge, 1)),
    until(fun() -> sessions(<<"anna">>) =:= [1] end).

%% Workers of a trunk have connections of the same id, and one link's process.
only_of_its_worker_on_a_trunk(Config) ->
    Edge = fake_trunk:start(proplists:get_value(dir, Config), 2),
    ok = halley_edge_dialer:connect(proplists:get_value(dir, Config), self()),
    Trunk = fake_trunk:until(fun(T) ->
        fake_trunk:follows(0, T) andalso fake_trunk:follows(1, T)
    end, fake_trunk:new(Edge, 2)),
    Cursor = cursor(),
    [begin
         {ok, _} = halley:publish(User, 1),
         fake_edge:send({trunk, Edge, W}, {open, [{7, 1, User, Cursor}]})
     end || {W, User} <- [{0, <<"bert">>}, {1, <<"anna">>}]],
    until(fun() -> lists:all(fun is_held/1, [<<"bert">>, <<"anna">>]) end),
    ?assertEqual({ok, 1}, halley:close_sessions(<<"anna">>)),
    Slot = fake_trunk:slot(1, Trunk),
    {to_slot, Slot, {close_sessions, _, [7]}} =
        fake_edge:expect(Edge, fun({to_slot, _, {close_sessions, _, _}}) -> true;
                                  (_) -> false
                               end).

%% --- helpers -------------------------------------------------------------------------------------

%% A worker's edge that is linked and has nothing to sync.
edge(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = halley_edge_helper:linked(Dir, fake_edge:hello()),
    fake_edge:send(Edge, {sync_begin, 0, <<>>}),
    fake_edge:send(Edge, sync_end),
    Edge.

%% A session that is held: the first of what it missed is on its way, and it doesn't say that it
%% has it.
held(Edge, Conn, User) ->
    Cursor = cursor(),
    {ok, _} = halley:publish(User, Conn),
    fake_edge:send(Edge, {open, [{Conn, 1, User, Cursor}]}),
    _ = fake_edge:expect(Edge, fun({replay, C, _, _, _, _}) -> C =:= Conn; (_) -> false end),
    ?assertNot(lists:member(Conn, sessions(User))).

%% One that has seen everything published so far.
cursor() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).

is_held(User) -> halley_directory_leaving:is_held(halley_ids:lookup(User)).

%% Connections that are closed by the brain, until there are so many.
closed(_, Count) when Count =< 0 -> [];
closed(Edge, Count) ->
    {close_sessions, <<_, _/binary>>, Conns} = next(Edge, close_sessions),
    Conns ++ closed(Edge, Count - length(Conns)).

closed_by_now(Edge) ->
    ok = alive(Edge),
    receive {Edge, {close_sessions, _, Conns}} -> Conns ++ closed_by_now(Edge) after 0 -> [] end.

%% Those that the directory has.
sessions(User) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> lists:sort([Conn || {link, _, Conn} <- halley_directory:sessions(Number)])
    end.
