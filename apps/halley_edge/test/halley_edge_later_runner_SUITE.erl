%% A runner that isn't the first one: a link was up before, so what is in its way doesn't end the
%% brain. It waits until that is fixed. Its edge is that of halley_edge_runner_SUITE.
-module(halley_edge_later_runner_SUITE).

-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, field/3]).
-import(halley_edge_runner_SUITE, [start_runner/0, start_edge/2, start_edge/3, edge_pids/1,
                                   os_alive/1, linked_again/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [waits_for_a_silent_edge_to_go, waits_for_its_program, waits_for_a_program_that_can_be_run,
     waits_for_its_directory, waits_for_a_directory_that_is_its_own, adopts_without_a_program,
     adopts_again_whom_it_took_for_dead, stops_an_edge_that_it_has_no_link_to,
     a_killed_first_edge_ends_nothing, an_edge_that_stands_still_is_dialled_again,
     an_edge_with_a_link_for_each_worker_is_replaced].

init_per_testcase(Case, Config) ->
    Ready = halley_edge_runner_SUITE:init_per_testcase(Case, Config),
    ok = application:set_env(halley_edge, has_linked, true),
    Ready.

end_per_testcase(Case, Config) ->
    halley_edge_runner_SUITE:end_per_testcase(Case, Config).

%% Something that is silent, such as an edge that dies slowly.
waits_for_a_silent_edge_to_go(Config) ->
    ok = halley_limits:set(#{handshake_ms_max => 100}),
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Stranger = fake_edge:start(binary_to_list(halley_edge_dial:path(Dir)), none),
    {ok, _} = start_runner(),
    ?assertEqual([], edge_pids(Config)),
    fake_edge:stop(Stranger),
    ok = halley_limits:set(#{handshake_ms_max => 5000}),
    until(fun() -> edge_pids(Config) =/= [] end).

waits_for_its_program(Config) ->
    Program = application:get_env(halley_edge, program, none),
    application:set_env(halley_edge, program, "/nowhere/halley-edge"),
    {ok, _} = start_runner(),
    ?assertEqual([], edge_pids(Config)),
    application:set_env(halley_edge, program, Program),
    until(fun() -> edge_pids(Config) =/= [] end).

%% As one is that is being replaced.
waits_for_a_program_that_can_be_run(Config) ->
    {ok, Program} = application:get_env(halley_edge, program),
    ok = file:change_mode(Program, 8#600),
    ?assertEqual(unknown, halley_edge_process:build(Program)),
    {ok, Runner} = start_runner(),
    ?assertEqual([], edge_pids(Config)),
    ok = file:change_mode(Program, 8#700),
    until(fun() -> edge_pids(Config) =/= [] end),
    ?assertEqual(Runner, whereis(halley_edge_runner)).

waits_for_its_directory(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = file:write_file(Dir, <<>>),
    {ok, _} = start_runner(),
    ?assertEqual([], edge_pids(Config)),
    ok = file:delete(Dir),
    until(fun() -> edge_pids(Config) =/= [] end).

%% Whoever can write to it could have put a socket there. Only root can give a directory away.
waits_for_a_directory_that_is_its_own(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = file:make_dir(Dir),
    {ok, #file_info{uid = Own}} = file:read_file_info(Dir),
    ok = file:change_mode(Dir, 8#777),
    Given = file:change_owner(Dir, 65534),
    {ok, _} = start_runner(),
    ?assertEqual([], edge_pids(Config)),
    ok = file:change_mode(Dir, 8#700),
    Given =:= ok andalso timer:sleep(1500),
    ?assert(Given =/= ok orelse edge_pids(Config) =:= []),
    _ = file:change_owner(Dir, Own),
    until(fun() -> edge_pids(Config) =/= [] end).

%% What its program's fate is matters only when an edge is to be started.
adopts_without_a_program(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    {ok, Program} = application:get_env(halley_edge, program),
    application:set_env(halley_edge, program, "/nowhere/halley-edge"),
    {ok, Runner} = start_runner(),
    {ok, _} = Link = halley_edge_dialer:link(),
    ?assertEqual([Pid], edge_pids(Config)),
    %% It dies, and another one is started once there is a program.
    halley_edge_runner_SUITE:signal("KILL", Pid),
    until(fun() -> edge_pids(Config) =:= [] andalso has_no_edge() end),
    application:set_env(halley_edge, program, Program),
    linked_again(Link),
    ?assertMatch([_], edge_pids(Config)),
    ?assertEqual(Runner, whereis(halley_edge_runner)).

%% The edge holds the ports that another one would need.
adopts_again_whom_it_took_for_dead(Config) ->
    Pid = start_edge(Config, "127.0.0.1:8"),
    {ok, Program} = application:get_env(halley_edge, program),
    Wrapper = filename:join(proplists:get_value(dir, Config), "port-in-use"),
    ok = file:write_file(Wrapper, ["#!/bin/sh\n"
                                   "[ \"$1\" = --version ] && exec ", Program, " \"$@\"\n"
                                   "echo 'halley-edge: public.listen: port in use'; exit 1\n"]),
    ok = file:change_mode(Wrapper, 8#700),
    application:set_env(halley_edge, program, Wrapper),
    {ok, Runner} = start_runner(),
    Link = halley_edge_dialer:link(),
    ok = meck:new(halley_edge_process, [passthrough, no_link]),
    ok = meck:expect(halley_edge_process, is_alive, ['_'],
                     meck:seq([meck:val(false), meck:passthrough()])),
    linked_again(Link),
    until(fun() -> not has_no_edge() end),
    ?assertEqual([Pid], edge_pids(Config)),
    ?assertEqual(Runner, whereis(halley_edge_runner)).

%% It has found no program and no edge, and then there is one, seconds before it looks again. It
%% starts none itself meanwhile, however long the other one takes.
stops_an_edge_that_it_has_no_link_to(Config) ->
    {ok, Program} = application:get_env(halley_edge, program),
    application:set_env(halley_edge, program, "/nowhere/halley-edge"),
    {ok, _} = start_runner(),
    ?assert(has_no_edge()),
    Pid = start_edge(Program, Config, "127.0.0.1:8"),
    ok = halley_edge_runner:stop_edge(0),
    ?assertNot(os_alive(Pid)).

%% Not even before the first handshake: a brain that ends then takes no other with it.
a_killed_first_edge_ends_nothing(Config) ->
    application:set_env(halley_edge, has_linked, false),
    {ok, Program} = application:get_env(halley_edge, program),
    Wrapper = filename:join(proplists:get_value(dir, Config), "killed-once"),
    Mark = Wrapper ++ "-mark",
    ok = file:write_file(Wrapper, ["#!/bin/sh\n"
                                   "if [ \"$1\" != --version ] && [ ! -e ", Mark, " ]; then\n"
                                   "    touch ", Mark, "; kill -9 $$\n"
                                   "fi\n"
                                   "exec ", Program, " \"$@\"\n"]),
    ok = file:change_mode(Wrapper, 8#700),
    application:set_env(halley_edge, program, Wrapper),
    {ok, Runner} = start_runner(),
    until(fun() -> edge_pids(Config) =/= [] end),
    ?assert(filelib:is_file(Mark)),
    ?assertEqual(Runner, whereis(halley_edge_runner)).

%% A brain that is started meanwhile finds its edge all the same, and can stop it.
an_edge_that_stands_still_is_dialled_again(Config) ->
    Hello = (fake_edge:hello())#{workers := 2},
    stands_still(Config, fun halley_edge_dial:path/1, Hello, 2).

%% protocol/link.md 1.4: one of an earlier build. It can be asked to stop, and not be linked to.
an_edge_with_a_link_for_each_worker_is_replaced(Config) ->
    Hello = (fake_edge:hello())#{workers := 2, public_listen := <<"127.0.0.1:8">>,
                                 api_listen := <<"127.0.0.1:9">>},
    stands_still(Config, fun halley_edge_dial:path_of_worker/1, fake_edge:of_worker(Hello), 0).

%% At first.
stands_still(Config, Path, Hello, Linkable) ->
    ok = halley_limits:set(#{handshake_ms_max => 1000}),
    Dir = socket_dir(Config),
    Edge = fake_edge:start(binary_to_list(Path(Dir)), none),
    GoesOn = spawn_link(fun() ->
        timer:sleep(1500),
        ok = fake_edge:say(Edge, Hello)
    end),
    ?assertMatch({replace, Linkable, {ok, _}}, halley_edge_adoption:look(looked(Dir), unknown)),
    ?assertNot(is_process_alive(GoesOn)),
    ?assertMatch({ok, {ok, _}}, halley_edge_adoption:shutdown(Dir, 7)),
    ?assertEqual({shutdown, 7}, halley_edge_helper:next(Edge, shutdown)).

socket_dir(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_path(Dir),
    Dir.

looked(Dir) ->
    #{socket_dir => Dir, public => "127.0.0.1:8", api => "127.0.0.1:9", workers => 2,
      sandbox => on, tls_files => [], connections_max => undefined}.

has_no_edge() ->
    State = sys:get_state(halley_edge_runner, infinity),
    none =:= element(field(halley_edge_runner, state, edge), State).
