%% Memory that processes give back when they have become quiet.
-module(halley_edge_idle_gc_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1, link_process/0]).

-define(SESSIONS, 20000).
-define(AT_ONCE, 5000).
-define(HEARTBEAT_MS, 50).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [a_quiet_process_collects_once, a_busy_process_is_left_alone, a_process_that_is_gone,
     a_link_rests_after_a_login].

init_per_testcase(a_link_rests_after_a_login, Config) ->
    Brain = halley_edge_test_brain:start(#{heartbeat_ms => ?HEARTBEAT_MS}),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config];
init_per_testcase(_, Config) ->
    Config.

end_per_testcase(a_link_rests_after_a_login, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config));
end_per_testcase(_, _) ->
    ok.

a_quiet_process_collects_once(_) ->
    Worker = spawn_link(fun work/0),
    ok = ask(Worker, {busy, 500000}),
    Full = memory(Worker),
    Busy = halley_edge_idle_gc:sample([Worker], halley_edge_idle_gc:new()),
    Asked = halley_edge_idle_gc:sample([Worker], Busy),
    receive {garbage_collect, _, true} -> ok after ?WAIT_MS -> error(not_collected) end,
    ?assert(memory(Worker) * 10 < Full),
    Resting = halley_edge_idle_gc:sample([Worker], Asked),
    ok = ask(Worker, {busy, 10}),
    Still = halley_edge_idle_gc:sample([Worker], Resting),
    nothing_collected(),
    ok = ask(Worker, {busy, 500000}),
    _ = halley_edge_idle_gc:sample([Worker], halley_edge_idle_gc:sample([Worker], Still)),
    receive {garbage_collect, _, true} -> ok after ?WAIT_MS -> error(not_collected_again) end.

a_busy_process_is_left_alone(_) ->
    Worker = spawn_link(fun work/0),
    lists:foldl(fun(_, Samples) ->
        ok = ask(Worker, {busy, 500000}),
        halley_edge_idle_gc:sample([Worker], Samples)
    end, halley_edge_idle_gc:new(), lists:seq(1, 5)),
    nothing_collected().

a_process_that_is_gone(_) ->
    {Worker, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Worker, _} -> ok end,
    None = halley_edge_idle_gc:new(),
    ?assertEqual(None, halley_edge_idle_gc:sample([Worker], None)).

%% All that the link does from here on is heartbeats.
a_link_rests_after_a_login(Config) ->
    Edge = halley_edge_link_SUITE:synced(Config),
    Link = link_process(),
    [fake_edge:send(Edge, {open, [{Conn, 1, <<"u", (integer_to_binary(Conn))/binary>>, <<>>}
                                  || Conn <- lists:seq(First, First + ?AT_ONCE - 1)]})
     || First <- lists:seq(1, ?SESSIONS, ?AT_ONCE)],
    until(fun() -> maps:get(sessions, halley_directory:online()) =:= ?SESSIONS end),
    until(fun() -> memory(Link) < 100000 end).

%%% Parts

work() ->
    receive {From, {busy, N}} -> _ = lists:reverse(lists:seq(1, N)), From ! {self(), done} end,
    work().

ask(Worker, What) ->
    Worker ! {self(), What},
    receive {Worker, done} -> ok after ?WAIT_MS -> error(hangs) end.

memory(Pid) ->
    {memory, Bytes} = process_info(Pid, memory),
    Bytes.

nothing_collected() ->
    receive {garbage_collect, _, _} -> error(collected) after 50 -> ok end.
