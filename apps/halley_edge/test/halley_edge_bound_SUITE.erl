%% A user has no more sessions than `sessions_per_user_max', over all links; `sessions.over_limit'
%% decides which one ends.
-module(halley_edge_bound_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, next/2, settled/1, link_process/0]).

-define(MAX, 3).
%% Sessions that may be on their way out (halley_sessions).
-define(CLOSING, 64).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [newest_wins, newest_wins_though_closing_takes_time, refuse, a_closed_one_makes_room,
     over_two_links, an_edge_that_closes_nothing, a_poll_pushes_nobody_out,
     a_poll_that_returns_pushes_nobody_out, one_poll_after_the_other,
     those_that_return_are_counted, once_they_entered_they_count_once, too_many_return,
     too_many_return_that_missed_nothing, processes_are_sessions, given_back_meanwhile,
     a_single_session_costs_no_row].

init_per_testcase(Case, Config) ->
    _ = application:set_env(halley, sessions_over_limit, rule(Case)),
    Brain = halley_edge_test_brain:start(#{sessions_per_user_max => ?MAX}),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = application:unset_env(halley, sessions_over_limit),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

rule(refuse) -> refuse;
rule(a_closed_one_makes_room) -> refuse;
rule(too_many_return) -> refuse;
rule(too_many_return_that_missed_nothing) -> refuse;
rule(once_they_entered_they_count_once) -> refuse;
rule(_) -> newest_wins.

%% link.md 6.6: the oldest is closed with a reason that has a name, the others stay.
newest_wins(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3]),
    opened(Edge, [1, 2, 3]),
    open(Edge, [4]),
    {close_sessions, Reason, [1]} = next(Edge, close_sessions),
    ?assertMatch(<<"too_many_sessions: ", _/binary>>, Reason),
    %% It fits the reason of a WebSocket's close (RFC 6455 5.5: 125 bytes with the code).
    ?assert(byte_size(Reason) =< 123),
    opened(Edge, [4]),
    close(Edge, [1]),
    until(fun() -> conns() =:= [2, 3, 4] end),
    ?assertEqual(1, counted("replaced")).

%% While the first to go is still there, the second one goes as well, not the first one twice.
newest_wins_though_closing_takes_time(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, lists:seq(1, 10)),
    opened(Edge, lists:seq(1, 10)),
    Asked = asked(Edge),
    ?assertEqual(lists:seq(1, 10 - ?MAX), lists:usort(Asked)),
    close(Edge, lists:usort(Asked)),
    until(fun() -> conns() =:= [8, 9, 10] end).

refuse(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3, 4]),
    ?assertMatch({refused, 4, 429, RetryAfter, <<"too_many_sessions">>, _} when RetryAfter > 0,
                 next(Edge, refused)),
    ?assertEqual([1, 2, 3], conns()),
    ?assertEqual([], asked(Edge)),
    ?assertEqual(1, counted("refused")).

a_closed_one_makes_room(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3]),
    opened(Edge, [1, 2, 3]),
    close(Edge, [2]),
    open(Edge, [4]),
    opened(Edge, [4]),
    ?assertEqual([1, 3, 4], conns()).

%% Opens that race on several links leave no more than the bound once the closed ones are gone.
over_two_links(Config) ->
    Edges = edges(Config, 2),
    [[open(Edge, [N]) || N <- lists:seq(1, 15)] || Edge <- Edges],
    [opened(Edge, lists:seq(1, 15)) || Edge <- Edges],
    [close(Edge, lists:usort(Asked)) || {Edge, Asked} <- lists:zip(Edges, asked(Edges))],
    until(fun() -> length(sessions()) =:= ?MAX end),
    %% The bound holds from then on: the next one replaces one.
    open(hd(Edges), [100]),
    until(fun() -> length(sessions()) =:= ?MAX + 1 end),
    ?assertEqual(1, length(lists:append(asked(Edges)))).

an_edge_that_closes_nothing(Config) ->
    [Edge] = edges(Config, 1),
    All = lists:seq(1, 200),
    open(Edge, All),
    Refused = [begin
                   {refused, Conn, 429, _, <<"too_many_sessions">>, _} = next(Edge, refused),
                   Conn
               end || _ <- lists:seq(?MAX + ?CLOSING + 1, 200)],
    ?assertEqual(lists:seq(?MAX + ?CLOSING + 1, 200), Refused),
    ?assertEqual(?MAX + ?CLOSING, length(sessions())).

%% Two polls that close each other would come back and do it again, as fast as they can.
a_poll_pushes_nobody_out(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3]),
    opened(Edge, [1, 2, 3]),
    poll(Edge, 4, <<>>),
    opened(Edge, [4]),
    poll(Edge, 5, <<>>),
    ?assertMatch({refused, 5, 429, _, <<"too_many_sessions">>, _}, next(Edge, refused)),
    poll(Edge, 6, cursor_now()),
    ?assertMatch({refused, 6, 429, _, <<"too_many_sessions">>, _}, next(Edge, refused)),
    ?assertEqual([], asked(Edge)),
    %% But a stream takes its place, as that of any other.
    close(Edge, [1, 2]),
    open(Edge, [7, 8]),
    opened(Edge, [7, 8]),
    ?assertEqual([3], asked(Edge)).

%% Nor when it has its place only after its replay (link.md 10.2), under either rule.
a_poll_that_returns_pushes_nobody_out(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3]),
    opened(Edge, [1, 2, 3]),
    [begin
         ok = application:set_env(halley, sessions_over_limit, Rule),
         poll(Edge, Conn, cursor_now()),
         {replay, Conn, 8, _, _, _} = next(Edge, replay),
         ?assertEqual([1, 2, 3, Conn], conns()),
         ?assertEqual([], asked(Edge)),
         close(Edge, [Conn]),
         until(fun() -> conns() =:= [1, 2, 3] end)
     end || {Rule, Conn} <- [{newest_wins, 4}, {refuse, 5}]].

%% A poll that ends on one edge while the next one begins on another is not refused for it.
one_poll_after_the_other(Config) ->
    [One, Other] = edges(Config, 2),
    open(One, [1, 2]),
    opened(One, [1, 2]),
    poll(One, 3, <<>>),
    opened(One, [3]),
    poll(Other, 1, <<>>),
    opened(Other, [1]),
    ?assertEqual([], asked(One)).

%% link.md 10.2: they are held first. A user has as many of these as of others, then they enter.
those_that_return_are_counted(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2, 3]),
    opened(Edge, [1, 2, 3]),
    {ok, _} = halley:publish(<<"other">>, 1),
    return(Edge, [11, 12, 13, 14]),
    ?assertMatch({refused, 14, 429, _, <<"too_many_sessions">>, _}, next(Edge, refused)),
    [{replay, _, 8, _, _, _} = next(Edge, replay) || _ <- [11, 12, 13]],
    ?assertEqual([1, 2, 3], lists:usort(asked(Edge))),
    close(Edge, [1, 2, 3]),
    until(fun() -> conns() =:= [11, 12, 13] end),
    %% Held no longer, so they don't count twice.
    return(Edge, [15]),
    {replay, 15, 8, _, _, _} = next(Edge, replay),
    ?assertEqual([11], asked(Edge)).

%% One that is in the directory, while its replay still goes on, is not one that waits for it.
once_they_entered_they_count_once(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1]),
    opened(Edge, [1]),
    Link = link_process(),
    Replays = halley_edge_helper:replays(),
    erlang:suspend_process(Replays),
    return(Edge, [11]),
    opened(Edge, [11]),
    ok = sys:suspend(Link, infinity),
    erlang:resume_process(Replays),
    until(fun() -> asks_to_enter(Link, Replays) end),
    erlang:suspend_process(Replays),
    ok = sys:resume(Link, infinity),
    until(fun() -> conns() =:= [1, 11] end),
    return(Edge, [12]),
    opened(Edge, [12]),
    return(Edge, [13]),
    ?assertMatch({refused, 13, 429, _, <<"too_many_sessions">>, _}, next(Edge, refused)),
    erlang:resume_process(Replays),
    [{replay, _, 8, _, _, _} = next(Edge, replay) || _ <- [11, 12]],
    until(fun() -> conns() =:= [1, 11, 12] end).

asks_to_enter(Link, Replays) ->
    {messages, Messages} = process_info(Link, messages),
    lists:member({enter, Replays, [11]}, Messages).

too_many_return(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2]),
    opened(Edge, [1, 2]),
    return(Edge, [11, 12]),
    ?assertMatch({refused, 12, 429, _, <<"too_many_sessions">>, _}, next(Edge, refused)),
    {replay, 11, 8, _, _, _} = next(Edge, replay),
    ?assertEqual([1, 2, 11], conns()).

%% The same for those that need no replay.
too_many_return_that_missed_nothing(Config) ->
    [Edge] = edges(Config, 1),
    open(Edge, [1, 2]),
    opened(Edge, [1, 2]),
    return(Edge, [11, 12], cursor_now()),
    receive {Edge, {replay, 11, 8, _, _, _}} -> ok after 60000 -> error(no_last) end,
    receive {Edge, {refused, 12, 429, _, <<"too_many_sessions">>, _}} -> ok
    after 60000 -> error(not_refused)
    end,
    ?assertEqual([1, 2, 11], conns()).

%% http.md 13.6: the number of its id was given back after it was looked up. Nobody is told that
%% there are too many sessions, and it is worth another try at once.
given_back_meanwhile(Config) ->
    [Edge] = edges(Config, 1),
    ok = meck:new(halley_sessions, [passthrough, no_link]),
    ok = meck:expect(halley_sessions, open, fun(_, {link, _, 2}, _) -> gone;
                                               (Number, Session, Rule) ->
                                                   meck:passthrough([Number, Session, Rule])
                                            end),
    try
        open(Edge, [1, 2, 3]),
        {refused, 2, 503, RetryAfter, <<"unavailable">>, Why} = next(Edge, refused),
        ?assert(RetryAfter > 0),
        ?assertMatch({match, _}, re:run(Why, "try again")),
        ?assertEqual([1, 3], conns())
    after
        meck:unload(halley_sessions)
    end,
    ?assertEqual(1, halley_edge_helper:counted("halley_sessions_gone_total")).

processes_are_sessions(Config) ->
    [Edge] = edges(Config, 1),
    ok = halley:login(<<"anna">>),
    open(Edge, [1, 2, 3]),
    receive {halley_closed, <<"anna">>} -> ok after 60000 -> error(not_closed) end,
    until(fun() -> conns() =:= [1, 2, 3] end),
    application:set_env(halley, sessions_over_limit, refuse),
    ?assertEqual({error, too_many_sessions}, halley:login(<<"anna">>)).

%% The directory grows by nothing for users with one session, nor for those who had two.
a_single_session_costs_no_row(Config) ->
    [Edge] = edges(Config, 1),
    fake_edge:send(Edge, {open, [{N, 1, <<"u", (integer_to_binary(N))/binary>>, <<>>}
                                 || N <- lists:seq(1, 2000)]}),
    until(fun() -> maps:get(sessions, halley_directory:online()) =:= 2000 end),
    ?assertEqual(0, ets:info(halley_directory_rows, size)),
    open(Edge, [5001, 5002]),
    until(fun() -> conns() =:= [5001, 5002] end),
    close(Edge, [5002]),
    until(fun() -> conns() =:= [5001] end),
    %% They go behind that.
    until(fun() -> ets:info(halley_directory_rows, size) =:= 0 end).

%%%

%% The first has the dialer's link.
edges(Config, Count) ->
    Dir = proplists:get_value(dir, Config),
    First = halley_edge_helper:linked(Dir, fake_edge:hello()),
    Edges = [First | [Edge || _ <- lists:seq(2, Count),
                              {Edge, _} <- [halley_edge_helper:linked_beside(Dir,
                                                                             fake_edge:hello())]]],
    [fake_edge:send(Edge, Frame) || Edge <- Edges, Frame <- [{sync_begin, 0, <<>>}, sync_end]],
    Edges.

open(Edge, Conns) ->
    fake_edge:send(Edge, {open, [{Conn, 1, <<"anna">>, <<>>} || Conn <- Conns]}).

%% They lack an event, though not one of theirs, so each gets a replay.
return(Edge, Conns) ->
    Cursor = cursor_now(),
    {ok, _} = halley:publish(<<"nobody's">>, 1),
    return(Edge, Conns, Cursor).

return(Edge, Conns, Cursor) ->
    fake_edge:send(Edge, {open, [{Conn, 1, <<"anna">>, Cursor} || Conn <- Conns]}).

poll(Edge, Conn, Cursor) ->
    fake_edge:send(Edge, {open, [{Conn, 5, <<"anna">>, Cursor}]}).

close(Edge, Conns) ->
    Number = halley_ids:lookup(<<"anna">>),
    fake_edge:send(Edge, {close, [{Conn, Number, 4} || Conn <- Conns]}).

%% Waits until these have their OPENED.
opened(_, []) ->
    ok;
opened(Edge, Conns) ->
    {opened, _, Opened} = next(Edge, opened),
    opened(Edge, Conns -- [Conn || {Conn, _} <- Opened]).

%% Those that the brain has asked to close since the last time, once it has said all that it has to
%% say of what these edges sent.
asked(Edge) when is_pid(Edge) ->
    [Asked] = asked([Edge]),
    Asked;
asked(Edges) ->
    ok = settled(Edges),
    [told(Edge) || Edge <- Edges].

told(Edge) ->
    receive {Edge, {close_sessions, _, Conns}} -> Conns ++ told(Edge) after 0 -> [] end.

sessions() -> halley_sessions:of_user(<<"anna">>).
conns() -> lists:sort([Conn || {link, _, Conn} <- sessions()]).

cursor_now() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                         halley_history:heads()).

counted(Done) ->
    halley_edge_helper:counted("halley_sessions_over_limit_total{done=\"" ++ Done ++ "\"}").
