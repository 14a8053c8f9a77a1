%% Servers that aren't what they should be.
-module(epgsql_test_listener).

-export([start/1, start/2, black_hole/0, black_hole/1]).

%% Does what the fun does with each connection. It is linked to the caller, as all its connections
%% are. Its port is at 127.0.0.1.
start(Fun) -> start(Fun, {{127, 0, 0, 1}, 0}).

start(Fun, {Address, At}) ->
    {ok, Listen} = gen_tcp:listen(At, [binary, {active, false}, {ip, Address}]),
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
black_hole() -> black_hole({{127, 0, 0, 1}, 0}).

black_hole({Address, At}) ->
    {ok, Listen} = gen_tcp:listen(At, [{backlog, 0}, {ip, Address}]),
    {ok, Port} = inet:port(Listen),
    fill(Address, Port),
    Port.

fill(Address, Port) ->
    case gen_tcp:connect(Address, Port, [], 200) of
        {ok, _} -> fill(Address, Port);
        {error, timeout} -> ok
    end.
