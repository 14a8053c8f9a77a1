%% A runner that isn't the first one: an edge has been met, so what is in its way doesn't end the
%% brain. It waits until that has been mended. Its edge is that of halley_edge_runner_SUITE.
-module(halley_edge_later_runner_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).
-import(halley_edge_runner_SUITE, [start_runner/0, edge_pids/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [waits_for_a_silent_edge_to_go, waits_for_its_program, waits_for_a_program_that_can_be_run,
     waits_for_its_directory].

init_per_testcase(Case, Config) ->
    Ready = halley_edge_runner_SUITE:init_per_testcase(Case, Config),
    ok = application:set_env(halley_edge, has_met, true),
    Ready.

end_per_testcase(Case, Config) ->
    halley_edge_runner_SUITE:end_per_testcase(Case, Config).

%% Something that is silent, such as an edge that dies slowly.
waits_for_a_silent_edge_to_go(Config) ->
    ok = halley_limits:set(#{handshake_ms_max => 100}),
    Dir = filename:join(proplists:get_value(dir, Config), "edge"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Stranger = fake_edge:start(binary_to_list(halley_edge_dial:path(Dir, 0)), none),
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
