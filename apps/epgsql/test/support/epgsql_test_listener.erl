%% Servers that aren't what they should be.
-module(epgsql_test_listener).

-export([start/1, black_hole/0]).

%% Does what the fun does with each connection. It is linked to the caller, as all its connections
%% are. Its port is at 127.0.0.1.
start(Fun) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Pid = spawn_link(fun() -> receive go -> accept(Listen, Fun) end end),
    ok = gen_tcp:controlling_process(Listen, Pid),
    Pid ! go,
    Port.

accept(Listen, Fun) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn_link(fun() -> receive go -> Fun(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Fun).

%% Whoever connects hears nothing, as of a host that is switched off: its queue is full.
black_hole() ->
    {ok, Listen} = gen_tcp:listen(0, [{backlog, 0}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    fill(Port),
    Port.

fill(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [], 200) of
        {ok, _} -> fill(Port);
        {error, timeout} -> ok
    end.
