%% Before a link is there, and its connections: who waits, for how long, and what strangers can do
%% about it.
-module(teleport_connect_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([silent_listener/1]).
%% Run on other nodes.
-export([do_silent_listener/1]).

-import(teleport_test_nodes, [call/4, flush/0]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [silent_listener].

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
