%% A node that is refused, and goes on sending: how often it dials, what both logs have, what is
%% counted, and that it connects once it's let in.
-module(teleport_refused_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([another_node_at_the_address/1, another_secret/1, next_connection_meets_another_node/1,
         nobody_at_the_address/1]).
%% Run on other nodes.
-export([do_send_for/3, begin_to_keep_lines/0, lines/0, log/2]).

-import(teleport_test_nodes, [call/4, wait/1]).

%% For so long the first node sends, a message each millisecond. A dial each 20 ms would be 150.
-define(SEND_MS, 3000).
-define(DIALS_MAX, 12).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [another_node_at_the_address, another_secret, next_connection_meets_another_node,
          nobody_at_the_address].

with(Options, Test) ->
    [{_, Name}, Second] = Nodes = teleport_test_nodes:pair(?MODULE, Options),
    %% An atom there: it has heard of the first.
    Name = call(Second, erlang, binary_to_atom, [atom_to_binary(Name)]),
    _ = [ok = call(Node, ?MODULE, begin_to_keep_lines, []) || Node <- Nodes],
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

%% --- on the nodes ------------------------------------------------------------------------------

do_send_for(Name, Ms, Node) ->
    send_until(erlang:monotonic_time(millisecond) + Ms, {Name, Node}, #{}).

send_until(UntilMs, Dest, Results) ->
    case erlang:monotonic_time(millisecond) < UntilMs of
        true ->
            Result = teleport:send(Dest, hello, #{timeout => 1000}),
            timer:sleep(1),
            send_until(UntilMs, Dest, maps:update_with(Result, fun(N) -> N + 1 end, 1, Results));
        false -> Results
    end.

begin_to_keep_lines() ->
    Keeper = spawn(fun() -> keep([]) end),
    true = register(?MODULE, Keeper),
    ok = logger:set_primary_config(level, notice),
    logger:add_handler(?MODULE, ?MODULE, #{}).

keep(Lines) ->
    receive
        {lines, From} -> From ! {lines, lists:reverse(Lines)}, keep(Lines);
        Line -> keep([Line | Lines])
    end.

log(#{msg := {Format, Args}}, _) when is_list(Format) ->
    ?MODULE ! unicode:characters_to_binary(io_lib:format(Format, Args));
log(_, _) -> ok.

lines() ->
    ?MODULE ! {lines, self()},
    receive {lines, Lines} -> [Line || <<"teleport: ", Line/binary>> <- Lines] end.

%% --- cases -------------------------------------------------------------------------------------

%% The first node's entry for a name has the address of the second, which has another name.
another_node_at_the_address(_) ->
    with(#{}, fun([First, Second]) ->
        Wrong = 'wrong@127.0.0.1',
        ok = anew(First, peers, #{Wrong => {{127, 0, 0, 1}, port(Second)}}),
        sent(First, Wrong),
        #{dials_refused := Dials, dials_failed := 0} = call(First, teleport, status, [Wrong]),
        ?assert(Dials =< ?DIALS_MAX),
        ?assertMatch([<<"no link to wrong@127.0.0.1: another node listens at ", _/binary>>],
                     call(First, ?MODULE, lines, [])),
        ?assertMatch([<<"a connection from 127.0.0.1 was refused: it is for another ", _/binary>>],
                     call(Second, ?MODULE, lines, [])),
        ?assert(call(Second, teleport, connections_refused, []) >= Dials)
    end).

%% After the secret is the same, it connects within its longest rest; at once after `disconnect'.
another_secret(_) ->
    with(#{secret => "of the second"}, fun([First, {_, Node} = Second]) ->
        ok = anew(First, secret, "of the first"),
        sent(First, Node),
        #{dials_refused := Dials} = call(First, teleport, status, [Node]),
        ?assert(Dials =< ?DIALS_MAX),
        ?assertMatch([<<"no link to ", _/binary>>], call(First, ?MODULE, lines, [])),
        ?assert(call(Second, teleport, connections_refused, []) >= Dials),
        ok = put_secret(First, "of the second"),
        {Us, ok} = timer:tc(fun() ->
            wait(fun() -> call(First, teleport, connect, [Node]) =:= ok end)
        end),
        ?assert(Us =< 6000000),
        ok = call(First, teleport, disconnect, [Node]),
        ok = put_secret(First, "of the first"),
        sent(First, Node),
        ok = put_secret(First, "of the second"),
        ok = call(First, teleport, disconnect, [Node]),
        ?assertEqual(ok, call(First, teleport, connect, [Node]))
    end).

%% A balancer between them: a link's first connection reaches the node, the next one another node.
%% Each message makes a link, which ends.
next_connection_meets_another_node(_) ->
    [Third] = teleport_test_nodes:start(1),
    try
        with(#{discovery => false}, fun([First, {_, Node} = Second]) ->
            Port = balancer([port(Second), port(Third)]),
            ok = anew(First, peers, #{Node => {{127, 0, 0, 1}, Port}}),
            sent(First, Node),
            #{dials_refused := Dials} = call(First, teleport, status, [Node]),
            ?assert(Dials =< ?DIALS_MAX),
            %% One for each reason: on a busy machine the first connection may meet the other node.
            [begin
                 Lines = call(Each, ?MODULE, lines, []),
                 ?assertEqual(lists:usort(Lines), lists:sort(Lines)),
                 ?assertNotEqual([], [Line || <<"the link to ", Line/binary>> <- Lines])
             end || Each <- [First, Second]]
        end)
    after
        teleport_test_nodes:stop([Third])
    end.

%% Who isn't there may be there at once: the rest stays short. With one that grows, as many dials
%% would take a minute and a half.
nobody_at_the_address(_) ->
    with(#{discovery => false}, fun([First, {_, Node} = Second]) ->
        Port = port(Second),
        ok = call(Second, application, stop, [teleport]),
        ok = anew(First, peers, #{Node => {{127, 0, 0, 1}, Port}}),
        ok = wait(fun() ->
            {error, nodedown} = call(First, teleport, connect, [Node]),
            #{dials_failed := Dials} = call(First, teleport, status, [Node]),
            Dials >= 3 * ?DIALS_MAX
        end),
        ?assertMatch(#{dials_refused := 0}, call(First, teleport, status, [Node])),
        ?assertMatch([<<"no link to ", _/binary>>], call(First, ?MODULE, lines, [])),
        ok = call(Second, application, set_env, [teleport, port, Port]),
        ok = call(Second, teleport, start, []),
        timer:sleep(100),
        ?assertEqual(ok, call(First, teleport, connect, [Node]))
    end).

%% For as long as is needed for some dials, and then ?SEND_MS.
sent(First, Node) ->
    ok = wait(fun() ->
        _ = call(First, teleport, send, [{a_name, Node}, hello]),
        #{dials_refused := Dials} = call(First, teleport, status, [Node]),
        Dials >= 3
    end),
    Results = call(First, teleport_test_nodes, do, [?MODULE, {send_for, a_name, ?SEND_MS}, Node]),
    ct:pal("~p ~p", [Results, call(First, teleport, status, [Node])]).

%% The application, with another value.
anew(Node, Key, Value) ->
    ok = call(Node, application, stop, [teleport]),
    ok = call(Node, application, set_env, [teleport, Key, Value]),
    call(Node, teleport, start, []).

%% As if it had been mended, with nothing else changed.
put_secret(Node, Secret) ->
    Options = call(Node, teleport_options, get, []),
    call(Node, teleport_options, put, [Options#{secret := list_to_binary(Secret)}]).

port(Node) ->
    #{port := Port} = call(Node, gen_server, call, [teleport_listener, where]),
    Port.

%% Its connections go to these ports in turn. It ends with the case.
balancer(Ports) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Balancer = spawn_link(fun() -> receive go -> balance(Listen, Ports) end end),
    ok = gen_tcp:controlling_process(Listen, Balancer),
    Balancer ! go,
    Port.

balance(Listen, [Port | Ports]) ->
    {ok, Client} = gen_tcp:accept(Listen),
    Pair = spawn(fun() ->
        receive go -> ok end,
        {ok, Server} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
        ok = inet:setopts(Client, [{active, true}]),
        pass(Client, Server)
    end),
    ok = gen_tcp:controlling_process(Client, Pair),
    Pair ! go,
    balance(Listen, Ports ++ [Port]).

pass(Client, Server) ->
    receive
        {tcp, Client, Bytes} -> _ = gen_tcp:send(Server, Bytes), pass(Client, Server);
        {tcp, Server, Bytes} -> _ = gen_tcp:send(Client, Bytes), pass(Client, Server);
        {tcp_closed, _} -> gen_tcp:close(Client), gen_tcp:close(Server)
    end.
