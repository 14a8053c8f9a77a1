%% One edge takes the place of another (protocol/link.md 9.3), with the edges of
%% halley_edge_runner_SUITE. That no client is refused meanwhile is shown by real edges:
%% test/system/replace.test.mjs.
-module(halley_edge_handover_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).
-import(halley_edge_runner_SUITE, [start_runner/0, start_edge/2, edge_pids/1, os_alive/1, kill/1,
                                   failure/0]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [both_serve_until_the_old_one_has_drained, names_that_were_removed_are_found,
     stop_cuts_the_drain_of_a_replaced_edge_short, an_edge_that_does_not_drain_is_killed,
     an_edge_that_cannot_start_replaces_none, an_edge_with_a_link_for_each_worker_drains_alone].

init_per_testcase(Case, Config) ->
    halley_edge_runner_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) ->
    halley_edge_runner_SUITE:end_per_testcase(Case, Config).

%% protocol/link.md 9.3: "over `drain.time`", "links to both", and the new one stands before the old
%% one is asked to go. The fake removes its names when it ends, as edges before this clause do.
both_serve_until_the_old_one_has_drained(Config) ->
    ok = application:set_env(halley, drain_ms, 3000),
    Pid = start_edge(Config, "127.0.0.2:8"),
    Began = erlang:monotonic_time(millisecond),
    {ok, Runner} = start_runner(),
    [Second] = edge_pids(Config) -- [Pid],
    ?assert(os_alive(Pid)),
    ?assertEqual(2, links()),
    ?assertMatch({ok, _}, halley_edge_dialer:link()),
    until(fun() -> not os_alive(Pid) end),
    ?assert(erlang:monotonic_time(millisecond) - Began >= 3000),
    until(fun() -> links() =:= 1 end),
    %% Its socket has its name, for the next brain.
    until(fun() -> length(sockets(Config)) =:= 1 andalso second_names(Config) =:= [] end),
    kill(Runner),
    {ok, _} = start_runner(),
    ?assertEqual([Second], edge_pids(Config)).

%% A brain that is killed before the old edge has ended finds the new one by its second name.
names_that_were_removed_are_found(Config) ->
    ok = application:set_env(halley, drain_ms, ?WAIT_MS),
    Pid = start_edge(Config, "127.0.0.2:8"),
    {ok, Runner} = start_runner(),
    [Second] = edge_pids(Config) -- [Pid],
    kill(Runner),
    ok = halley_edge_dialer:disconnect(),
    [ok = file:delete(Socket) || Socket <- sockets(Config)],
    ?assertMatch([_], second_names(Config)),
    {ok, _} = start_runner(),
    ?assertMatch({ok, _}, halley_edge_dialer:link()),
    ?assertEqual([Second], edge_pids(Config) -- [Pid]).

%% The brain stops while an edge that was replaced still drains: both are gone then.
stop_cuts_the_drain_of_a_replaced_edge_short(Config) ->
    ok = application:set_env(halley, drain_ms, ?WAIT_MS),
    Pid = start_edge(Config, "127.0.0.2:8"),
    {ok, _} = start_runner(),
    ?assertMatch([_, _], edge_pids(Config)),
    ?assert(os_alive(Pid)),
    ok = halley_edge_runner:stop_edge(0),
    ?assertEqual([], edge_pids(Config)).

%% A drain of 4 s is one that the fake ignores.
an_edge_that_does_not_drain_is_killed(Config) ->
    ok = application:set_env(halley, drain_ms, 4000),
    Pid = start_edge(Config, "127.0.0.2:8"),
    {ok, _} = start_runner(),
    until(fun() -> not os_alive(Pid) end),
    until(fun() -> links() =:= 1 end).

%% 9.3: "An edge that can't start replaces none": the next brain finds the old one.
an_edge_that_cannot_start_replaces_none(Config) ->
    Pid = start_edge(Config, "127.0.0.2:8"),
    application:set_env(halley_edge, public_listen, "127.0.0.1:1"),
    ?assertEqual("public.listen: port in use", failure()),
    ?assert(os_alive(Pid)),
    %% As with a brain that ends: its link does, too.
    [ok = halley_edge_link:stop(Link)
     || {_, Link, _, _} <- supervisor:which_children(halley_edge_link_sup)],
    application:set_env(halley_edge, public_listen, "127.0.0.2:8"),
    {ok, _} = start_runner(),
    ?assertEqual([Pid], edge_pids(Config)).

%% protocol/link.md 1.4: the brain doesn't link to one of an earlier build, which is drained by a
%% signal while the new one serves. The names of its sockets are gone with it.
an_edge_with_a_link_for_each_worker_drains_alone(Config) ->
    Pid = start_edge(Config, "127.0.0.1:3"),
    {ok, _} = start_runner(),
    ?assertMatch([_], edge_pids(Config) -- [Pid]),
    ?assertEqual(1, links()),
    until(fun() -> not os_alive(Pid) end),
    until(fun() -> [filename:basename(Path) || Path <- sockets(Config)] =:= ["trunk.sock"] end),
    ?assertMatch({ok, _}, halley_edge_dialer:link()).

links() -> length(supervisor:which_children(halley_edge_link_sup)).

sockets(Config) ->
    filelib:wildcard(filename:join([proplists:get_value(dir, Config), "edge", "*.sock"])).

second_names(Config) ->
    filelib:wildcard(filename:join([proplists:get_value(dir, Config), "edge", "*.kept"])).
