%% How a trunk begins (protocol/link.md 13.1, 13.2), where the edge has none, and what ends it:
%% hellos and frames that break a clause.
-module(halley_edge_trunk_hello_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [next/2, alive/1]).
-import(halley_edge_trunk_SUITE, [trunk/2, ready/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [workers_where_nobody_listens, workers_and_then_a_trunk, hello_of_a_worker_on_a_trunk,
     hello_of_a_trunk_at_a_worker, a_trunk_of_a_version_before, a_worker_without_a_slot,
     a_frame_by_itself, a_worker_that_was_not_there, too_many_workers].

init_per_testcase(Case, Config) -> halley_edge_trunk_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_edge_trunk_SUITE:end_per_testcase(Case, Config).

%% A socket that an earlier edge left.
workers_where_nobody_listens(Config) ->
    Dir = proplists:get_value(dir, Config),
    Gone = fake_trunk:start(Dir, 1),
    fake_edge:stop(Gone),
    Edge = fake_edge:start(halley_edge_dial:path(Dir, 0)),
    ok = halley_edge_dialer:connect(Dir, 1, self()),
    receive {link_up, 0, #{worker := 0}} -> ok after ?WAIT_MS -> error(not_up) end,
    alive(Edge).

workers_and_then_a_trunk(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir, 0)),
    ok = halley_edge_dialer:connect(Dir, 1, self()),
    receive {link_up, 0, #{worker := 0}} -> ok after ?WAIT_MS -> error(not_up) end,
    Trunk = fake_trunk:start(Dir, 1),
    fake_edge:cut(Edge),
    receive {link_up, 0, #{worker := 65535}} -> ok after ?WAIT_MS -> error(no_trunk) end,
    alive(Trunk).

%%% What breaks a clause

hello_of_a_worker_on_a_trunk(Config) ->
    Edge = raw(Config, trunk, (fake_trunk:hello(1))#{worker := 0}),
    ?assertMatch({goodbye, 1, <<"13.2", _/binary>>}, next(Edge, goodbye)).

hello_of_a_trunk_at_a_worker(Config) ->
    Edge = raw(Config, 0, fake_trunk:hello(1)),
    ?assertMatch({goodbye, 1, <<"13.2", _/binary>>}, next(Edge, goodbye)).

a_trunk_of_a_version_before(Config) ->
    Edge = raw(Config, trunk, (fake_trunk:hello(1))#{version := 5}),
    ?assertMatch({goodbye, 1, <<"13.1", _/binary>>}, next(Edge, goodbye)).

a_worker_without_a_slot(Config) ->
    #{edge := Edge} = fake_trunk:gone(1, ready(trunk(Config, 2))),
    ok = fake_edge:send(Edge, {from_worker, 1, {open, [{1, 1, <<"anna">>, <<>>}]}}),
    ?assertMatch({goodbye, 1, <<"13.4", _/binary>>}, next(Edge, goodbye)).

a_frame_by_itself(Config) ->
    #{edge := Edge} = ready(trunk(Config, 1)),
    ok = fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}]}),
    ?assertMatch({goodbye, 1, <<"13.2", _/binary>>}, next(Edge, goodbye)).

a_worker_that_was_not_there(Config) ->
    #{edge := Edge} = ready(trunk(Config, 1)),
    ok = fake_edge:send(Edge, {worker_gone, 7}),
    ?assertMatch({goodbye, 1, <<"13.7", _/binary>>}, next(Edge, goodbye)).

%% HELLO_EDGE says how many there are.
too_many_workers(Config) ->
    #{edge := Edge} = ready(trunk(Config, 2)),
    ok = fake_edge:send(Edge, {from_worker, 2, {sync_begin, 0, <<>>}}),
    ?assertMatch({goodbye, 1, <<"13.4", _/binary>>}, next(Edge, goodbye)).

%%% Helpers

raw(Config, Where, Hello) ->
    Dir = proplists:get_value(dir, Config),
    Path = case Where of
        trunk -> halley_edge_dial:trunk_path(Dir);
        W -> halley_edge_dial:path(Dir, W)
    end,
    Edge = fake_edge:start(Path, Hello),
    ok = halley_edge_dialer:connect(Dir, 1, self()),
    Edge.
