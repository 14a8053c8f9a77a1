%% Many breaks: two nodes talk through a proxy that cuts each connection after a random number of
%% bytes, in either direction, in the middle of whatever is going by. Senders number their messages
%% and keep what they were told is lost; a receiver keeps what came. The verdict: nothing out of
%% order, nothing twice, and each message that didn't come was told.
%%
%% All that is random comes from the seed, but not what the schedulers make of it.
-module(teleport_breaks).

-export([run/2, run_each/1, verdict/2]).
-export([send/4, receiver/0, received/1]).

-type numbers() :: [pos_integer()].
-type verdict() :: #{sent := non_neg_integer(), received := non_neg_integer(),
                     told := non_neg_integer(), out_of_order := numbers(), twice := numbers(),
                     untold := numbers()}.

-define(SENDERS, 8).
%% A cut comes after 64 bytes to 4 MiB; sizes are spread evenly over powers of two.
-define(CUT_BITS_MIN, 6).
-define(CUT_BITS, 16).
-define(SETTLE_MS, 500).
%% For a machine that has much else to do.
-define(SETTLE_MS_MAX, 60000).
-define(BREAKS_MS_MAX, 600000).

%% Until there were so many breaks.
-spec run(Breaks :: pos_integer(), Seed :: integer()) -> verdict() | #{breaks := pos_integer()}.
run(Breaks, Seed) ->
    with_proxy(Seed, fun(Proxy, Nodes) ->
        one_run(Proxy, random, Breaks, Seed, ?SETTLE_MS, Nodes)
    end).

%% One run for each: the connection of this number is cut after so many bytes, and no other one.
-spec run_each([{Connection :: pos_integer(), Bytes :: pos_integer()}]) -> [verdict()].
run_each(Cuts) ->
    with_proxy(1, fun(Proxy, [First, {_, Node}] = Nodes) ->
        [begin
             ok = teleport_test_nodes:call(First, teleport, disconnect, [Node]),
             one_run(Proxy, Cut, 1, Bytes, 100, Nodes)
         end || {_, Bytes} = Cut <- Cuts]
    end).

with_proxy(Seed, Do) ->
    [{_, Dialer} = First, {_, Node} = Second] = Nodes =
        teleport_test_nodes:pair(?MODULE, #{secret => <<"breaks">>, connect_ms_max => 2000}),
    try
        #{port := Port} =
            teleport_test_nodes:call(Second, gen_server, call, [teleport_listener, where]),
        {Proxy, Through} = proxy(Port, Seed),
        ok = teleport_test_nodes:call(First, application, stop, [teleport]),
        Peers = #{Node => {{127, 0, 0, 1}, Through}},
        ok = teleport_test_nodes:call(First, application, set_env, [teleport, peers, Peers]),
        ok = teleport_test_nodes:call(First, teleport, start, []),
        %% Who accepts must have heard of the name.
        Dialer = teleport_test_nodes:call(Second, erlang, list_to_atom, [atom_to_list(Dialer)]),
        Result = Do(Proxy, Nodes),
        Proxy ! stop,
        Result
    after
        teleport_test_nodes:stop(Nodes)
    end.

one_run(Proxy, Plan, Breaks, Seed, SettleMs, [First, Second]) ->
    Proxy ! {plan, Plan},
    Receiver = teleport_test_nodes:call(Second, erlang, spawn, [?MODULE, receiver, []]),
    Senders = [teleport_test_nodes:call(First, erlang, spawn,
                                        [?MODULE, send, [Receiver, N, Seed, #{}]])
               || N <- lists:seq(1, ?SENDERS)],
    Cuts = await(Proxy, Breaks),
    Verdict = settled(First, Senders, Second, Receiver, SettleMs, ?SETTLE_MS_MAX),
    _ = [true = teleport_test_nodes:call(Node, erlang, exit, [Pid, kill])
         || {Node, Pids} <- [{First, Senders}, {Second, [Receiver]}], Pid <- Pids],
    Verdict#{breaks => Cuts}.

%% Once each message has come or was told; what hasn't by the last look never will. Then once more,
%% for what comes late.
settled(First, Senders, Second, Receiver, Ms, LeftMs) ->
    Sent = [collect(First, Sender) || Sender <- Senders],
    case verdict(Sent, collect(Second, Receiver)) of
        #{untold := [_ | _]} when LeftMs > 0 ->
            timer:sleep(Ms),
            settled(First, Senders, Second, Receiver, Ms, LeftMs - Ms);
        #{} ->
            timer:sleep(Ms),
            verdict(Sent, collect(Second, Receiver))
    end.

collect(Node, Pid) -> teleport_test_nodes:call(Node, ?MODULE, received, [Pid]).

%% Of each sender its number, what it sent, and what it was told of; and what came in this order.
-spec verdict([{pos_integer(), numbers(), numbers()}], [{pos_integer(), pos_integer()}]) ->
    verdict().
verdict(Sent, Got) ->
    By = lists:foldl(fun({Who, N}, Acc) ->
        maps:update_with(Who, fun(Ns) -> [N | Ns] end, [N], Acc)
    end, #{}, Got),
    Each = [begin
                Came = lists:reverse(maps:get(Who, By, [])),
                Set = ordsets:from_list(Came),
                Untold = ordsets:subtract(ordsets:subtract(ordsets:from_list(Numbers), Set),
                                          ordsets:from_list(Told)),
                {length(Numbers), length(Told), disorder(Came, 0), Came -- Set, Untold}
            end || {Who, Numbers, Told} <- Sent],
    #{sent => lists:sum([N || {N, _, _, _, _} <- Each]), received => length(Got),
      told => lists:sum([N || {_, N, _, _, _} <- Each]),
      out_of_order => lists:append([Ns || {_, _, Ns, _, _} <- Each]),
      twice => lists:append([Ns || {_, _, _, Ns, _} <- Each]),
      untold => lists:append([Ns || {_, _, _, _, Ns} <- Each])}.

disorder([N | Rest], Before) when N < Before -> [N | disorder(Rest, Before)];
disorder([N | Rest], _) -> disorder(Rest, N);
disorder([], _) -> [].

%% --- on the nodes ------------------------------------------------------------------------------

%% Sends until it's asked what it sent.
-spec send(pid(), pos_integer(), integer(), map()) -> no_return().
send(Receiver, Who, Seed, _) ->
    _ = rand:seed(exsss, {Seed, Who, 1}),
    send_on(Receiver, Who, 1, [], []).

send_on(Receiver, Who, N, Sent, Told) ->
    receive
        {teleport_lost, _, Lost} -> send_on(Receiver, Who, N, Sent, [Lost | Told]);
        {received, From} ->
            self() ! {received, From},
            told(Who, lists:reverse(Sent), Told)
    after 0 ->
        case teleport:send(Receiver, {Who, N, body()}, #{lost => N}) of
            ok ->
                N rem 8 =:= 0 andalso timer:sleep(1),
                send_on(Receiver, Who, N + 1, [N | Sent], Told);
            {error, nodedown} ->
                timer:sleep(1),
                send_on(Receiver, Who, N + 1, Sent, Told)
        end
    end.

body() ->
    case rand:uniform(100) of
        1 -> binary:copy(<<1>>, 60000 + rand:uniform(200000));
        _ -> rand:uniform(1 bsl 20)
    end.

%% It sends no more.
told(Who, Sent, Told) ->
    receive
        {teleport_lost, _, Lost} ->
            told(Who, Sent, [Lost | Told]);
        {received, From} ->
            From ! {received, self(), {Who, Sent, lists:append(Told)}},
            told(Who, Sent, Told)
    end.

-spec receiver() -> no_return().
receiver() -> receiver([]).

receiver(Got) ->
    receive
        {received, From} -> From ! {received, self(), lists:reverse(Got)}, receiver(Got);
        {Who, N, _} -> receiver([{Who, N} | Got])
    end.

-spec received(pid()) -> term().
received(Pid) ->
    Pid ! {received, self()},
    receive {received, Pid, What} -> What end.

%% --- the proxy ---------------------------------------------------------------------------------

proxy(To, Seed) ->
    Owner = self(),
    Proxy = spawn_link(fun() ->
        {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}},
                                          {nodelay, true}, {backlog, 128}]),
        {ok, Port} = inet:port(Listen),
        Owner ! {port, self(), Port},
        _ = rand:seed(exsss, Seed),
        Self = self(),
        _ = spawn_link(fun() -> accept(Listen, To, Self) end),
        count(random, 0, none)
    end),
    receive {port, Proxy, Port} -> {Proxy, Port} end.

count(Plan, Cuts, Waiting) ->
    receive
        {plan, New} -> count(New, 0, none);
        {await, From, Breaks} when Cuts >= Breaks -> From ! {cuts, Cuts}, count(none, Cuts, none);
        {await, From, Breaks} -> count(Plan, Cuts, {From, Breaks});
        {bytes, From} ->
            {Bytes, Next} = bytes(Plan),
            From ! {bytes, Bytes},
            count(Next, Cuts, Waiting);
        cut ->
            case Waiting of
                {From, Breaks} when Cuts + 1 >= Breaks ->
                    From ! {cuts, Cuts + 1},
                    %% Connections that begin now are not cut.
                    count(none, Cuts + 1, none);
                _ -> count(Plan, Cuts + 1, Waiting)
            end;
        stop -> ok
    end.

%% After how many a new connection is cut, and the plan from then on.
bytes(random) ->
    Bits = ?CUT_BITS_MIN + rand:uniform(?CUT_BITS),
    {(1 bsl (Bits - 1)) + rand:uniform(1 bsl (Bits - 1)), random};
bytes({1, Bytes}) -> {Bytes, none};
bytes({Number, Bytes}) -> {1 bsl 60, {Number - 1, Bytes}};
bytes(none) -> {1 bsl 60, none}.

await(Proxy, Breaks) ->
    Proxy ! {await, self(), Breaks},
    receive {cuts, Cuts} -> Cuts after ?BREAKS_MS_MAX -> error(no_breaks) end.

accept(Listen, To, Proxy) ->
    case gen_tcp:accept(Listen) of
        {ok, In} -> let_through(In, To, Proxy), accept(Listen, To, Proxy);
        {error, closed} -> ok
    end.

let_through(In, To, Proxy) ->
    Relay = spawn(fun() ->
        receive go -> ok end,
        Proxy ! {bytes, self()},
        Bytes = receive {bytes, N} -> N end,
        case gen_tcp:connect({127, 0, 0, 1}, To, [binary, {active, false}, {nodelay, true}]) of
            {ok, Out} ->
                _ = [inet:setopts(S, [{active, once}]) || S <- [In, Out]],
                relay(In, Out, Bytes, Proxy);
            {error, _} -> ok
        end
    end),
    _ = gen_tcp:controlling_process(In, Relay),
    Relay ! go.

relay(In, Out, Left, Proxy) ->
    receive
        {tcp, From, Data} ->
            To = case From of In -> Out; Out -> In end,
            _ = gen_tcp:send(To, binary:part(Data, 0, min(Left, byte_size(Data)))),
            _ = inet:setopts(From, [{active, once}]),
            case Left - byte_size(Data) of
                More when More > 0 ->
                    relay(In, Out, More, Proxy);
                _ ->
                    %% Half of the cuts lose what is on its way as well.
                    _ = [inet:setopts(S, [{linger, {true, 0}}])
                         || rand:uniform(2) =:= 1, S <- [In, Out]],
                    _ = [gen_tcp:close(S) || S <- [In, Out]],
                    Proxy ! cut
            end;
        {tcp_closed, _} -> ok;
        {tcp_error, _, _} -> ok
    end.
