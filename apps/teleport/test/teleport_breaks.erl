%% Many breaks: two nodes talk both ways through proxies that cut each connection after a random
%% number of bytes, in either direction, in the middle of whatever is going by. Senders number their
%% messages, some of which are calls, and keep the reported losses; they monitor their receivers.
%% Receivers keep their messages. The verdict: nothing out of order, nothing twice, each message
%% that didn't come was reported, each call was answered or reported, and each monitor ended once.
%%
%% All that is random comes from the seed, but not what the schedulers make of it.
-module(teleport_breaks).

-export([run/2, run_each/1, verdict/2]).
-export([send/4, receiver/0, received/1]).

-type numbers() :: [pos_integer()].
%% `untold': lost, or never answered, and the sender wasn't told. `unended': monitors without a
%% 'DOWN', or with a second one.
-type verdict() :: #{sent := non_neg_integer(), received := non_neg_integer(),
                     told := non_neg_integer(), out_of_order := numbers(), twice := numbers(),
                     untold := numbers(), calls => non_neg_integer(),
                     monitors => non_neg_integer(), unended => non_neg_integer()}.

-define(SENDERS, 8).
%% A cut comes after 64 bytes to 4 MiB; sizes are spread evenly over powers of two.
-define(CUT_BITS_MIN, 6).
-define(CUT_BITS, 16).
-define(SETTLE_MS, 500).
%% For a machine that has much else to do.
-define(SETTLE_MS_MAX, 60000).
-define(BREAKS_MS_MAX, 600000).
%% Every so many messages is a call, every so many a monitor is made.
-define(CALL, 16).
-define(MONITOR, 50).
-define(MONITORS_MAX, 4).
-define(CALL_MS, 120000).

%% Until there were so many breaks.
-spec run(Breaks :: pos_integer(), Seed :: integer()) -> verdict() | #{breaks := pos_integer()}.
run(Breaks, Seed) ->
    with_proxy(Seed, fun(Proxy, [First, Second]) ->
        Ways = [{First, Second}, {Second, First}],
        one_run(Proxy, random, Breaks, Seed, ?SETTLE_MS, Ways)
    end).

%% One run for each: the connection of this number is cut after so many bytes, and no other one. One
%% node sends and dials.
-spec run_each([{Connection :: pos_integer(), Bytes :: pos_integer()}]) -> [verdict()].
run_each(Cuts) ->
    with_proxy(1, fun(Proxy, [First, {_, Node} = Second]) ->
        [begin
             ok = teleport_test_nodes:call(First, teleport, disconnect, [Node]),
             one_run(Proxy, Cut, 1, Bytes, 100, [{First, Second}])
         end || {_, Bytes} = Cut <- Cuts]
    end).

%% Each node finds the other behind a proxy.
with_proxy(Seed, Do) ->
    [First, Second] = Nodes =
        teleport_test_nodes:pair(?MODULE, #{secret => <<"breaks">>, connect_ms_max => 2000}),
    try
        Ports = [maps:get(port, teleport_test_nodes:call(Node, gen_server, call,
                                                         [teleport_listener, where]))
                 || Node <- Nodes],
        {Proxy, Throughs} = proxy(Ports, Seed),
        _ = [anew(Node, Port, Other, Through)
             || {{Node, Port}, {{_, Other}, Through}}
                    <- lists:zip(lists:zip(Nodes, Ports),
                                 lists:zip([Second, First], lists:reverse(Throughs)))],
        Result = Do(Proxy, Nodes),
        Proxy ! stop,
        Result
    after
        teleport_test_nodes:stop(Nodes)
    end.

anew(Node, Port, Other, Through) ->
    %% Who accepts must have heard of the name.
    Other = teleport_test_nodes:call(Node, erlang, list_to_atom, [atom_to_list(Other)]),
    ok = teleport_test_nodes:call(Node, application, stop, [teleport]),
    _ = [ok = teleport_test_nodes:call(Node, application, set_env, [teleport, Key, Value])
         || {Key, Value} <- [{port, Port}, {peers, #{Other => {{127, 0, 0, 1}, Through}}}]],
    ok = teleport_test_nodes:call(Node, teleport, start, []).

one_run(Proxy, Plan, Breaks, Seed, SettleMs, Ways) ->
    Proxy ! {plan, Plan},
    Running = [begin
        Receiver = teleport_test_nodes:call(To, erlang, spawn, [?MODULE, receiver, []]),
        Senders = [teleport_test_nodes:call(From, erlang, spawn,
                                            [?MODULE, send, [Receiver, Who, Seed, #{}]])
                   || Who <- lists:seq(Way * ?SENDERS + 1, (Way + 1) * ?SENDERS)],
        {From, Senders, To, Receiver}
    end || {Way, {From, To}} <- lists:enumerate(Ways)],
    Cuts = await(Proxy, Breaks),
    Verdict = settled(Running, SettleMs, ?SETTLE_MS_MAX),
    %% Monitors that no break has ended end with who they are of.
    _ = [true = teleport_test_nodes:call(To, erlang, exit, [Receiver, kill])
         || {_, _, To, Receiver} <- Running],
    Ended = ended(Running, ?SETTLE_MS_MAX),
    _ = [true = teleport_test_nodes:call(From, erlang, exit, [Pid, kill])
         || {From, Senders, _, _} <- Running, Pid <- Senders],
    maps:merge(Verdict#{breaks => Cuts}, Ended).

sent(Running) ->
    [collect(From, Sender) || {From, Senders, _, _} <- Running, Sender <- Senders].

judged(Running) ->
    Sent = [{Who, Numbers, Told} || #{who := Who, sent := Numbers, told := Told} <- sent(Running)],
    verdict(Sent, lists:append([collect(To, Receiver) || {_, _, To, Receiver} <- Running])).

ended(Running, LeftMs) ->
    Sent = sent(Running),
    Sum = fun(Key) -> lists:sum([maps:get(Key, Each) || Each <- Sent]) end,
    case Sum(open) of
        Open when Open > 0, LeftMs > 0 ->
            timer:sleep(?SETTLE_MS),
            ended(Running, LeftMs - ?SETTLE_MS);
        Open ->
            #{calls => Sum(calls), monitors => Sum(monitors), unended => Open + Sum(twice)}
    end.

%% Once each message has come or was told; what hasn't by the last look never will. Then once more,
%% for what comes late.
settled(Running, Ms, LeftMs) ->
    case judged(Running) of
        #{untold := [_ | _]} when LeftMs > 0 ->
            timer:sleep(Ms),
            settled(Running, Ms, LeftMs - Ms);
        #{} ->
            timer:sleep(Ms),
            judged(Running)
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

-record(sender, {to :: pid(), who :: pos_integer(), n = 1 :: pos_integer(), sent = [] :: numbers(),
                 told = [] :: numbers(), calls = 0 :: non_neg_integer(),
                 monitors = 0 :: non_neg_integer(), open = #{} :: #{reference() => []},
                 twice = 0 :: non_neg_integer()}).

%% Sends until it's asked what it sent.
-spec send(pid(), pos_integer(), integer(), map()) -> no_return().
send(Receiver, Who, Seed, _) ->
    _ = rand:seed(exsss, {Seed, Who, 1}),
    send_on(#sender{to = Receiver, who = Who}).

send_on(#sender{n = N} = State) ->
    receive
        {received, From} -> self() ! {received, From}, tell(State);
        Message -> send_on(heard(Message, State))
    after 0 ->
        N rem 8 =:= 0 andalso timer:sleep(1),
        send_on(watch(next(State)))
    end.

next(#sender{to = To, who = Who, n = N, sent = Sent, told = Told, calls = Calls} = State)
  when N rem ?CALL =:= 0 ->
    Now = State#sender{n = N + 1, sent = [N | Sent], calls = Calls + 1},
    try teleport:call(To, {Who, N, call}, ?CALL_MS) of
        {answer, N} -> Now
    catch
        exit:{{nodedown, _}, _} -> Now#sender{told = [N | Told]};
        %% As one that was lost and isn't told, whether it came or not: no receiver has this one.
        exit:{timeout, _} -> Now#sender{sent = [1 bsl 60 + N, N | Sent]}
    end;
next(#sender{to = To, who = Who, n = N, sent = Sent} = State) ->
    case teleport:send(To, {Who, N, body()}, #{lost => N}) of
        ok ->
            State#sender{n = N + 1, sent = [N | Sent]};
        {error, nodedown} ->
            timer:sleep(1),
            State#sender{n = N + 1}
    end.

watch(#sender{to = To, n = N, monitors = Monitors, open = Open} = State)
  when N rem ?MONITOR =:= 0, map_size(Open) < ?MONITORS_MAX ->
    State#sender{monitors = Monitors + 1, open = Open#{teleport:monitor(To) => []}};
watch(State) ->
    State.

heard({teleport_lost, _, Lost}, #sender{told = Told} = State) ->
    State#sender{told = Lost ++ Told};
heard({'DOWN', Ref, process, To, _}, #sender{to = To, open = Open, twice = Twice} = State) ->
    case maps:take(Ref, Open) of
        {[], Rest} -> State#sender{open = Rest};
        error -> State#sender{twice = Twice + 1}
    end.

body() ->
    case rand:uniform(100) of
        1 -> binary:copy(<<1>>, 60000 + rand:uniform(200000));
        _ -> rand:uniform(1 bsl 20)
    end.

%% It sends no more.
tell(#sender{who = Who, sent = Sent, told = Told, calls = Calls, monitors = Monitors, open = Open,
             twice = Twice} = State) ->
    receive
        {received, From} ->
            From ! {received, self(),
                    #{who => Who, sent => Sent, told => Told, calls => Calls,
                      monitors => Monitors, open => map_size(Open), twice => Twice}},
            tell(State);
        Message ->
            tell(heard(Message, State))
    end.

-spec receiver() -> no_return().
receiver() -> receiver([]).

receiver(Got) ->
    receive
        {received, From} -> From ! {received, self(), lists:reverse(Got)}, receiver(Got);
        {'$gen_call', From, {Who, N, call}} ->
            gen_server:reply(From, {answer, N}),
            receiver([{Who, N} | Got]);
        {Who, N, _} -> receiver([{Who, N} | Got])
    end.

-spec received(pid()) -> term().
received(Pid) ->
    Pid ! {received, self()},
    receive {received, Pid, What} -> What end.

%% --- the proxy ---------------------------------------------------------------------------------

%% A port for each of these, behind which connections are cut.
proxy(Tos, Seed) ->
    Owner = self(),
    Proxy = spawn_link(fun() ->
        Listening = [begin
            {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}},
                                              {nodelay, true}, {backlog, 128}]),
            {ok, Port} = inet:port(Listen),
            {Listen, Port, To}
        end || To <- Tos],
        Owner ! {ports, self(), [Port || {_, Port, _} <- Listening]},
        _ = rand:seed(exsss, Seed),
        Self = self(),
        _ = [spawn_link(fun() -> accept(Listen, To, Self) end) || {Listen, _, To} <- Listening],
        count(random, 0, none)
    end),
    receive {ports, Proxy, Ports} -> {Proxy, Ports} end.

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
