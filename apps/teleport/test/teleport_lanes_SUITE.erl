%% Connections that aren't used are closed, and nothing of what is promised changes: two real nodes
%% on which a connection rests after a second or less.
-module(teleport_lanes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([unused_ones_close/1, used_ones_stay/1, monitors_stay/1, bursts_keep_order/1, tls/1]).
%% Run on other nodes.
-export([do_all_lanes/1, do_one/2, do_monitor/2, do_await_down/3, do_bursts/3, do_steady/3]).

-import(teleport_test_nodes, [on/3, got/3, large/0, call/4, wait/1]).

-define(BURSTS, 60).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [unused_ones_close, used_ones_stay, monitors_stay, bursts_keep_order, tls].

with(Options, Test) ->
    Nodes = teleport_test_nodes:pair(?MODULE, Options),
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

first(What, Nodes) -> teleport_test_nodes:first(?MODULE, What, Nodes).

connections(Node, {_, Other}) ->
    maps:get(connections, call(Node, teleport, status, [Other])).

%% --- on the nodes ------------------------------------------------------------------------------

%% Senders enough that each lane has some, of small messages and of large ones.
do_all_lanes(Node) ->
    Collector = on(Node, collector, []),
    Senders = [spawn_monitor(fun() ->
        _ = [ok = teleport:send(Collector, Body) || Body <- [small, large(), small]]
    end) || _ <- lists:seq(1, 100)],
    _ = [receive {'DOWN', M, process, _, normal} -> ok end || {_, M} <- Senders],
    300 = length(got(Node, Collector, 300)),
    Collector.

do_one(Collector, _) -> teleport:send(Collector, one).

%% A process that monitors, and says what it gets.
do_monitor(Pid, _) ->
    Test = self(),
    Watcher = spawn(fun() ->
        Ref = teleport:monitor(Pid),
        Test ! monitored,
        Why = receive {'DOWN', Ref, process, Pid, Reason} -> Reason end,
        receive {tell, From} -> From ! {reason, Why} end
    end),
    receive monitored -> Watcher end.

do_await_down(Watcher, Pid, _) ->
    true = is_pid(Pid),
    Watcher ! {tell, self()},
    receive {reason, Reason} -> Reason after 30000 -> error(silent) end.

%% Numbered messages with pauses in which connections rest or begin to; answers how many, and what
%% was told as lost.
do_bursts(Collector, Who, _) ->
    _ = rand:seed(exsss, {Who, 2, 3}),
    Count = bursts(Collector, Who, ?BURSTS, 1),
    {Count - 1, receive {teleport_lost, _, _} = Lost -> Lost after 0 -> none end}.

bursts(_, _, 0, N) -> N;
bursts(Collector, Who, Left, N) ->
    Count = rand:uniform(5),
    _ = [ok = teleport:send(Collector, {Who, I, body()}, #{lost => I})
         || I <- lists:seq(N, N + Count - 1)],
    timer:sleep(rand:uniform(50) - 1),
    bursts(Collector, Who, Left - 1, N + Count).

body() -> case rand:uniform(5) of 1 -> large(); _ -> small end.

do_steady(Collector, Count, _) ->
    _ = [begin ok = teleport:send(Collector, N), timer:sleep(5) end || N <- lists:seq(1, Count)],
    ok.

%% --- cases -------------------------------------------------------------------------------------

%% Down to the one for control, whoever opened them; and they are opened again when needed.
unused_ones_close(_) -> unused_ones_close_with(#{}).

unused_ones_close_with(Options) ->
    with(Options#{idle_ms => 1000}, fun([First, Second] = Nodes) ->
        Rounds = [begin
             There = first(all_lanes, Nodes),
             Here = first(all_lanes, [Second, First]),
             Most = connections(First, Second),
             _ = [ok = wait(fun() -> connections(A, B) =:= 1 end)
                  || {A, B} <- [{First, Second}, {Second, First}]],
             ok = first({one, There}, Nodes),
             ok = first({one, Here}, [Second, First]),
             Most
         end || _ <- [1, 2, 3]],
        ?assert(lists:max(Rounds) > 1),
        %% No reader is left of those that rest.
        ok = wait(fun() ->
            [] =:= call(First, ets, tab2list, [teleport_readers])
                orelse connections(First, Second) > 1
        end)
    end).

tls(_) ->
    Sign = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    #{server_config := Server, client_config := Client} = public_key:pkix_test_data(
        #{server_chain => #{root => Sign, intermediates => [], peer => Sign},
          client_chain => #{root => Sign, intermediates => [], peer => Sign}}),
    unused_ones_close_with(#{tls => #{
        listen => [{verify, verify_peer}, {fail_if_no_peer_cert, true} | Server],
        connect => [{verify, verify_peer}, {server_name_indication, disable} | Client]}}).

%% In one direction alone, the other way round as well: by who dialed and by who was dialed.
used_ones_stay(_) ->
    with(#{idle_ms => 200}, fun([First, {_, Node} = Second]) ->
        ok = call(First, teleport, connect, [Node]),
        _ = [begin
                 {_, Name} = To,
                 Collector = call(From, teleport_test_nodes, on, [Name, collector, []]),
                 Ref = call(From, teleport, monitor_peer, [Name]),
                 true = is_reference(Ref),
                 ok = first({steady, Collector, 300}, [From, To]),
                 ?assertEqual(lists:seq(1, 300),
                              call(From, teleport_test_nodes, got, [Name, Collector, 300]))
             end || {From, To} <- [{First, Second}, {Second, First}]]
    end).

%% A process that was watched over a connection that rests is watched still.
monitors_stay(_) ->
    with(#{idle_ms => 50}, fun([First, {_, Node} = Second] = Nodes) ->
        Echo = call(First, teleport_test_nodes, on, [Node, echo, []]),
        Watcher = first({monitor, Echo}, Nodes),
        IsWatched = fun() ->
            call(Second, erlang, process_info, [Echo, monitored_by]) =/= {monitored_by, []}
        end,
        ok = wait(IsWatched),
        ok = wait(fun() -> connections(First, Second) =:= 1 end),
        ?assert(IsWatched()),
        true = call(Second, erlang, exit, [Echo, bang]),
        ?assertEqual(bang, first({await_down, Watcher, Echo}, Nodes))
    end).

%% Both ways, while connections come and go: in order, all of it, and the link never ends.
bursts_keep_order(_) ->
    with(#{idle_ms => 10}, fun([{_, A} = First, {_, B} = Second]) ->
        ok = call(First, teleport, connect, [B]),
        Link = call(First, teleport_peers, whereis_name, [B]),
        Me = self(),
        Runs = [begin
                    {_, Name} = To,
                    Collector = call(From, teleport_test_nodes, on, [Name, collector, []]),
                    _ = [spawn_link(fun() ->
                             Me ! {Name, Who, first({bursts, Collector, Who}, [From, To])}
                         end) || Who <- lists:seq(1, 8)],
                    {From, Name, Collector}
                end || {From, To} <- [{First, Second}, {Second, First}]],
        Seen = sample(First, Second, 150, []),
        _ = [begin
                 Counts = [receive {Name, Who, {Count, none}} -> {Who, Count} end
                           || Who <- lists:seq(1, 8)],
                 Total = lists:sum([Count || {_, Count} <- Counts]),
                 Got = call(From, teleport_test_nodes, got, [Name, Collector, Total]),
                 _ = [?assertEqual(lists:seq(1, Count), [N || {W, N, _} <- Got, W =:= Who])
                      || {Who, Count} <- Counts]
             end || {From, Name, Collector} <- Runs],
        ?assertEqual(Link, call(First, teleport_peers, whereis_name, [B])),
        ?assertEqual([A], call(Second, teleport, peers, [])),
        %% They came and went meanwhile.
        ?assert(length(lists:usort(Seen)) > 2)
    end).

sample(_, _, 0, Seen) -> Seen;
sample(First, Second, Left, Seen) ->
    timer:sleep(10),
    sample(First, Second, Left - 1, [connections(First, Second) | Seen]).
