%% Two real nodes that talk by teleport: after a call, a monitor or a link has ended, neither keeps
%% anything of it, however often.
-module(teleport_kept_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([monitors_that_ended/1, calls_without_an_answer/1, peers_crash/1]).
%% Run on other nodes.
-export([do_monitors_that_ended/1, do_calls_without_an_answer/1,
         do_peers_crash/1]).
-export([calls_of/1]).

-import(teleport_test_nodes, [on/3, wait/1, flush/0]).

-define(MANY, 1000).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [monitors_that_ended, calls_without_an_answer, peers_crash].

init_per_suite(Config) -> [{nodes, teleport_test_nodes:pair(?MODULE, #{})} | Config].

end_per_suite(Config) -> teleport_test_nodes:stop(?config(nodes, Config)).

first(What, Config) -> teleport_test_nodes:first(?MODULE, What, ?config(nodes, Config)).

%% --- on the first node -------------------------------------------------------------------------

%% The link watches a watcher for each of its monitors, as long as there is one. It asks the peer
%% to forget none that ended there.
do_monitors_that_ended(Node) ->
    ok = teleport:connect(Node),
    Link = teleport_peers:whereis_name(Node),
    Test = self(),
    {Watcher, Ends} = spawn_monitor(fun() -> watch_many(Node, Test) end),
    receive {all_ended, Watcher} -> ok end,
    ok = wait(fun() -> not lists:member({process, Watcher}, monitors(Link)) end),
    #{sent := Sent} = teleport:status(Node),
    Watcher ! stop,
    receive {'DOWN', Ends, process, Watcher, normal} -> ok end,
    Echo = on(Node, echo, []),
    ?assertEqual(hello, teleport:call(Echo, hello)),
    ok = wait(fun() -> maps:get(sent, teleport:status(Node)) > Sent end),
    ?assertMatch(#{sent := Now} when Now =:= Sent + 1, teleport:status(Node)),
    ?assertEqual([], ets:tab2list(teleport_monitors)),
    [] = flush().

watch_many(Node, Test) ->
    Refs = [teleport:monitor({nobody_has_it, Node}) || _ <- lists:seq(1, ?MANY)],
    _ = [receive {'DOWN', Ref, process, _, noproc} -> ok end || Ref <- Refs],
    Test ! {all_ended, self()},
    receive stop -> ok end.

%% A server that never answers is watched for nobody once its callers have given up. What it says
%% later is dropped, and the next call is answered.
do_calls_without_an_answer(Node) ->
    Echo = on(Node, echo, []),
    Bodies = [small, binary:copy(<<1>>, 100000)],
    Callers = [spawn_monitor(fun() ->
        {'EXIT', {timeout, _}} = (catch teleport:call(Echo, {never, Body}, 50))
    end) || _ <- lists:seq(1, 100), Body <- Bodies],
    _ = [receive {'DOWN', MRef, process, _, normal} -> ok end || {_, MRef} <- Callers],
    ok = wait(fun() -> erpc:call(Node, ?MODULE, calls_of, [Echo]) =:= 0 end),
    ?assertEqual(hello, teleport:call(Echo, hello)).

%% How many calls of it are watched for peers.
calls_of(Server) ->
    {monitored_by, By} = process_info(Server, monitored_by),
    length(By).

%% Who knows the links crashes: all who wait for something are told, once, and what comes next makes
%% a link anew, without the counts being lost.
do_peers_crash(Node) ->
    Echo = on(Node, echo, []),
    Test = self(),
    ok = teleport:send(Echo, ignored),
    Down = teleport:monitor(Echo),
    Peer = teleport:monitor_peer(Node),
    Call = spawn_link(fun() -> Test ! {self(), catch teleport:call(Echo, never, infinity)} end),
    ok = wait(fun() -> erpc:call(Node, ?MODULE, calls_of, [Echo]) =:= 2 end),
    Link = teleport_peers:whereis_name(Node),
    #{sent := Sent} = teleport:status(Node),
    true = exit(whereis(teleport_peers), kill),
    ?assertEqual(noconnection, receive {'DOWN', Down, process, Echo, Why} -> Why
                               after 10000 -> silent
                               end),
    ?assertEqual(restarted, receive {teleport_down, Peer, Node, Why2} -> Why2
                            after 10000 -> silent
                            end),
    ?assertMatch({'EXIT', {{nodedown, Node}, _}}, receive {Call, Result} -> Result
                                                  after 10000 -> silent
                                                  end),
    ?assertNot(is_process_alive(Link)),
    ok = wait(fun() -> teleport:connect(Node) =:= ok end),
    ?assertEqual(hello, teleport:call(Echo, hello)),
    ok = wait(fun() -> maps:get(sent, teleport:status(Node)) > Sent end),
    ?assertEqual([teleport_peers:whereis_name(Node)],
                 lists:usort([Of || {Of, _} <- ets:tab2list(teleport_readers)])),
    [] = flush().

monitors(Pid) ->
    {monitors, Monitors} = process_info(Pid, monitors),
    Monitors.

%% --- two nodes ---------------------------------------------------------------------------------

monitors_that_ended(Config) -> first(monitors_that_ended, Config).
calls_without_an_answer(Config) -> first(calls_without_an_answer, Config).
peers_crash(Config) -> first(peers_crash, Config).
