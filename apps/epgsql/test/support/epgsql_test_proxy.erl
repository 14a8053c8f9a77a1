%% A way to a server that can be slow, silent or cut.
-module(epgsql_test_proxy).

-export([start/1, start/2, port/1, delay/2, cut/1]).

%% `Port' of the server. It is linked to the caller.
start(Port) -> start(Port, 0).

start(Port, DelayMs) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}},
                                      {backlog, 64}]),
    Settings = ets:new(?MODULE, [public]),
    true = ets:insert(Settings, {delay, DelayMs}),
    Pid = spawn_link(fun() -> receive go -> accept(Listen, Port, Settings) end end),
    ok = gen_tcp:controlling_process(Listen, Pid),
    Pid ! go,
    {Listen, Settings}.

port({Listen, _}) ->
    {ok, Port} = inet:port(Listen),
    Port.

%% Bytes that come from now on wait so long on their way; `infinity': for ever.
delay({_, Settings}, Delay) ->
    true = ets:insert(Settings, {delay, Delay}),
    ok.

%% All connections end.
cut({_, Settings}) ->
    [ok = gen_tcp:shutdown(Socket, read_write) || [Socket] <- ets:match(Settings, {{socket, '$1'}}),
                                                  erlang:port_info(Socket) =/= undefined],
    ok.

accept(Listen, Port, Settings) ->
    {ok, Client} = gen_tcp:accept(Listen),
    {ok, Server} = gen_tcp:connect("127.0.0.1", Port, [binary, {active, false}, {nodelay, true}]),
    ok = inet:setopts(Client, [{nodelay, true}]),
    true = ets:insert(Settings, [{{socket, Client}}, {{socket, Server}}]),
    _ = [spawn_link(fun() -> pump(From, To, Settings) end)
         || {From, To} <- [{Client, Server}, {Server, Client}]],
    accept(Listen, Port, Settings).

pump(From, To, Settings) ->
    Writer = spawn_link(fun() -> write(To, Settings) end),
    read(From, Writer, Settings).

read(From, Writer, Settings) ->
    case gen_tcp:recv(From, 0) of
        {ok, Bytes} ->
            Writer ! {erlang:monotonic_time(millisecond), Bytes},
            read(From, Writer, Settings);
        {error, _} -> Writer ! closed
    end.

write(To, Settings) ->
    receive
        {Since, Bytes} ->
            ok = wait(Since, Settings),
            _ = gen_tcp:send(To, Bytes),
            write(To, Settings);
        closed -> gen_tcp:shutdown(To, write)
    end.

wait(Since, Settings) ->
    case ets:lookup_element(Settings, delay, 2) of
        infinity -> timer:sleep(10), wait(Since, Settings);
        Delay -> timer:sleep(max(0, Since + Delay - erlang:monotonic_time(millisecond)))
    end.
