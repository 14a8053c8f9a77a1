%% Before a link is there, and its connections: which calls wait, for how long, and what strangers
%% can do.
-module(teleport_connect_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([silent_listener/1, half_open/1, one_stranger/1, half_open_while_a_lane_opens/1]).
%% Run on other nodes.
-export([do_silent_listener/1, do_link/1, do_collector/1, do_send/2, do_got/2]).

-import(teleport_test_nodes, [call/4, wait/1, flush/0, on/3, got/3]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [silent_listener, half_open, one_stranger, half_open_while_a_lane_opens].

with(Options, Test) ->
    Nodes = teleport_test_nodes:pair(?MODULE, Options),
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

first(What, Nodes) -> teleport_test_nodes:first(?MODULE, What, Nodes).

%% The first node goes by this port to the second.
through(Port, [First, {_, Node}]) ->
    ok = call(First, application, stop, [teleport]),
    ok = call(First, application, set_env, [teleport, peers, #{Node => {{127, 0, 0, 1}, Port}}]),
    ok = call(First, teleport, start, []).

listen() ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    {Listen, Port}.

%% --- on the first node -------------------------------------------------------------------------

do_silent_listener(Node) ->
    Calls = [{{exit, timeout}, fun() -> teleport_route:call(Node, name, hello, 100) end},
             {{exit, timeout}, fun() -> teleport_route:call(Node, name, hello, 0) end},
             {{error, busy}, fun() -> teleport:send({name, Node}, 1, #{full => busy}) end},
             {{error, busy}, fun() -> teleport:send({name, Node}, 1, #{timeout => 50}) end},
             {{error, nodedown}, fun() -> teleport:send({name, Node}, 1) end}],
    [begin
         {Us, Result} = timer:tc(Do),
         ?assertEqual(Expected, Result),
         [] = flush(),
         Us div 1000
     end || {Expected, Do} <- Calls].

%% With a link, but no lane yet.
do_link(Node) ->
    ok = teleport:connect(Node),
    teleport_peers:whereis_name(Node).

do_collector(Node) -> on(Node, collector, []).

do_send(Collector, _) -> teleport:send(Collector, hello, #{lost => hello}).

do_got(Collector, Node) -> got(Node, Collector, 1).

%% --- cases -------------------------------------------------------------------------------------

%% Somebody takes the connection and says nothing. Who gave a time waits no longer, who gave none
%% waits as long as connecting may take.
silent_listener(_) ->
    with(#{connect_ms_max => 5000}, fun(Nodes) ->
        {Listen, Port} = listen(),
        ok = through(Port, Nodes),
        [Call, Zero, Busy, Timeout, Waits] = first(silent_listener, Nodes),
        ok = gen_tcp:close(Listen),
        ?assert(Call >= 100),
        ?assert(Timeout >= 50),
        ?assert(Call + Zero + Busy + Timeout < 3000),
        ?assert(Waits > 1000)
    end).

%% Connections that don't shake hands: above the bound they are closed at once, below it in time,
%% whether they say nothing or a byte now and then. Then others come in.
half_open(_) ->
    with(#{connect_ms_max => 5000}, fun([First, {_, Node} = Second]) ->
        Port = port(Second),
        Ports = call(Second, erlang, system_info, [port_count]),
        Sockets = full(Port),
        %% Of each address, and in all.
        _ = [?assertEqual(closed, drain(stranger(Host, Port))) || Host <- [1, 2, 3]],
        ?assertEqual({error, timeout}, gen_tcp:recv(hd(Sockets), 0, 0)),
        _ = [begin
                 _ = [gen_tcp:send(Socket, <<0>>) || Socket <- Sockets],
                 timer:sleep(500)
             end || _ <- lists:seq(1, 8)],
        _ = [?assertEqual(closed, drain(Socket)) || Socket <- Sockets],
        ok = wait(fun() -> call(Second, erlang, system_info, [port_count]) =< Ports end),
        ok = wait(fun() -> call(First, teleport, connect, [Node]) =:= ok end)
    end).

%% One address alone can't take all the places.
one_stranger(_) ->
    with(#{connect_ms_max => 5000}, fun([First, {_, Node} = Second]) ->
        Port = port(Second),
        Sockets = [stranger(2, Port) || _ <- lists:seq(1, 64)],
        ?assertEqual(ok, call(First, teleport, connect, [Node])),
        _ = [gen_tcp:close(Socket) || Socket <- Sockets]
    end).

%% All places are taken while a link's lane needs one: the link stays, and the message comes.
half_open_while_a_lane_opens(_) ->
    with(#{connect_ms_max => 5000}, fun([First, Second] = Nodes) ->
        {_, Node} = Second,
        Link = first(link, Nodes),
        Collector = first(collector, Nodes),
        Sockets = full(port(Second)),
        ok = first({send, Collector}, Nodes),
        timer:sleep(1000),
        ?assertEqual(0, call(Second, teleport_test_nodes, count, [Collector])),
        _ = [gen_tcp:close(Socket) || Socket <- Sockets],
        ?assertEqual([hello], first({got, Collector}, Nodes)),
        ?assertEqual(Link, call(First, teleport_peers, whereis_name, [Node]))
    end).

port(Node) ->
    #{port := Port} = call(Node, gen_server, call, [teleport_listener, where]),
    Port.

%% As many as may shake hands, of two addresses.
full(Port) ->
    Sockets = [stranger(Host, Port) || Host <- [1, 2], _ <- lists:seq(1, 32)],
    timer:sleep(200),
    Sockets.

stranger(Host, Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false},
                                                          {ip, {127, 0, 0, Host}}]),
    Socket.

drain(Socket) ->
    case gen_tcp:recv(Socket, 0, 30000) of
        {ok, _} -> drain(Socket);
        {error, Reason} when Reason =:= closed; Reason =:= econnreset -> closed;
        {error, Reason} -> Reason
    end.
