%% A hello and frames that break a clause end a trunk (protocol/link.md 13).
-module(halley_edge_trunk_hello_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [next/2]).
-import(halley_edge_trunk_SUITE, [trunk/2, ready/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [hello_of_a_worker, a_worker_without_a_slot, a_frame_by_itself, a_worker_that_was_not_there,
     too_many_workers].

init_per_testcase(Case, Config) -> halley_edge_trunk_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_edge_trunk_SUITE:end_per_testcase(Case, Config).

%%% What breaks a clause

hello_of_a_worker(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir), fake_edge:of_worker(fake_edge:hello())),
    ok = halley_edge_dialer:connect(Dir, self()),
    ?assertMatch({goodbye, 1, <<"13.2", _/binary>>}, next(Edge, goodbye)).

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
