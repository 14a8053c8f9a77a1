%% The code on the nodes of bench/teleport/run. A way is `dist' (the distribution's `!') or
%% `teleport'.
-module(teleport_bench_node).

-export([rate/4, beside/3, ring_servers/2, ring_prepare/1, ring_go/1]).
-export([load_start/2, load_stop/0, footprint/1, ask_soon/1, answered/1, order/2]).
-export([sink/2, echo/1, ring_server/2, keeper/1]).

send(dist, To, Message) -> To ! Message, ok;
send(teleport, To, Message) -> ok = teleport:send(To, Message).

%% --- small messages ----------------------------------------------------------------------------

%% Messages a second, from the first sent to the last received.
rate(Way, Node, Senders, Each) ->
    Self = self(),
    Message = {message, 12345, binary:copy(<<7>>, 80)},
    Sinks = [spawn(Node, ?MODULE, sink, [Self, Each]) || _ <- lists:seq(1, Senders)],
    ok = teleport:connect(Node),
    StartedUs = erlang:monotonic_time(microsecond),
    _ = [spawn_link(fun() -> many(Way, Sink, Message, Each) end) || Sink <- Sinks],
    _ = [receive {done, Sink} -> ok end || Sink <- Sinks],
    Senders * Each * 1000000 div (erlang:monotonic_time(microsecond) - StartedUs).

many(_, _, _, 0) -> ok;
many(Way, To, Message, N) -> ok = send(Way, To, Message), many(Way, To, Message, N - 1).

sink(To, 0) -> To ! {done, self()};
sink(To, N) -> receive {message, _, _} -> sink(To, N - 1) end.

%% --- beside a bulk transfer --------------------------------------------------------------------

%% Two processes that send 10 MiB, always with one more on its way than was answered, and one that
%% asks each millisecond. Gives p50 and p99 in microseconds, and the bulk's MiB a second.
beside(Way, Node, Ms) ->
    Self = self(),
    Bulk = crypto:strong_rand_bytes(10 bsl 20),
    Carriers = [spawn_link(fun() -> carry(Way, spawn(Node, ?MODULE, echo, [Way]), Bulk, Self) end)
                || _ <- [1, 2]],
    timer:sleep(500),
    _ = [Carrier ! reset || Carrier <- Carriers],
    StartedUs = erlang:monotonic_time(microsecond),
    Echo = spawn(Node, ?MODULE, echo, [Way]),
    Body = binary:copy(<<7>>, 1024),
    Times = lists:sort(ask(Way, Echo, Body, StartedUs, Ms, [])),
    _ = [Carrier ! stop || Carrier <- Carriers],
    Carried = lists:sum([receive {carried, Carrier, N} -> N end || Carrier <- Carriers]),
    Count = length(Times),
    {lists:nth(Count div 2, Times), lists:nth(Count * 99 div 100, Times),
     Carried * 10 * 1000000 div (erlang:monotonic_time(microsecond) - StartedUs)}.

%% Each is sent when it's due, whether those before were answered or not, and its time counts from
%% there.
ask(Way, Echo, Body, FirstUs, Count, []) ->
    ask(Way, Echo, Body, FirstUs, Count, 0, []).

ask(_, Echo, _, _, Count, Count, Times) ->
    last_answers(Echo, Count - length(Times), Times);
ask(Way, Echo, Body, FirstUs, Count, Asked, Times) ->
    DueUs = FirstUs + 1000 * Asked,
    WaitMs = max(0, (DueUs - erlang:monotonic_time(microsecond)) div 1000),
    receive
        {answer, Echo, SentUs, _} ->
            ask(Way, Echo, Body, FirstUs, Count, Asked, [took(SentUs) | Times])
    after WaitMs ->
        ok = send(Way, Echo, {ask, self(), DueUs, Body}),
        ask(Way, Echo, Body, FirstUs, Count, Asked + 1, Times)
    end.

last_answers(Echo, Left, Times) when Left > 0 ->
    receive {answer, Echo, SentUs, _} -> last_answers(Echo, Left - 1, [took(SentUs) | Times]) end;
last_answers(_, _, Times) ->
    Times.

took(SentUs) -> erlang:monotonic_time(microsecond) - SentUs.

carry(Way, Echo, Bulk, Owner) ->
    ok = send(Way, Echo, {bulk, self(), Bulk}),
    carry(Way, Echo, Bulk, Owner, 0).

carry(Way, Echo, Bulk, Owner, Count) ->
    ok = send(Way, Echo, {bulk, self(), Bulk}),
    receive {carried, Echo} -> ok end,
    receive
        reset -> carry(Way, Echo, Bulk, Owner, 0);
        stop -> receive {carried, Echo} -> Owner ! {carried, self(), Count + 1} end
    after 0 -> carry(Way, Echo, Bulk, Owner, Count + 1)
    end.

echo(Way) ->
    receive
        {ask, From, At, Body} -> ok = send(Way, From, {answer, self(), At, Body}), echo(Way);
        {bulk, From, _} -> ok = send(Way, From, {carried, self()}), echo(Way)
    end.

%% --- the ring ----------------------------------------------------------------------------------

ring_servers(Count, Nodes) ->
    %% Nodes in turn, from this one's next.
    {Before, [_ | After]} = lists:splitwith(fun(Node) -> Node =/= node() end, Nodes),
    Next = hd(After ++ Before),
    _ = [register(ring_name(I), spawn(?MODULE, ring_server, [Next, ring_name(I)]))
         || I <- lists:seq(1, Count)],
    persistent_term:put(?MODULE, {[ring_name(I) || I <- lists:seq(1, Count)], length(Nodes) - 1}),
    ok.

ring_name(I) -> element(I, {ring_1, ring_2, ring_3, ring_4, ring_5, ring_6, ring_7, ring_8}).

ring_server(Next, Name) -> ring_server(Next, Name, <<>>, none).

ring_server(Next, Name, Payload, Owner) ->
    receive
        {prepare, From, Bytes} ->
            From ! {prepared, Name},
            ring_server(Next, Name, crypto:strong_rand_bytes(Bytes), none);
        {go, From, Way, Hops} ->
            ok = send(Way, {Name, Next}, {relay, Way, {Name, node()}, Hops - 1, Payload}),
            ring_server(Next, Name, Payload, From);
        {relay, Way, Origin, 0, _} ->
            ok = send(Way, Origin, home),
            ring_server(Next, Name, Payload, Owner);
        {relay, Way, Origin, Hops, Relayed} ->
            ok = send(Way, {Name, Next}, {relay, Way, Origin, Hops - 1, Relayed}),
            ring_server(Next, Name, Payload, Owner);
        home ->
            Owner ! {home, Name},
            ring_server(Next, Name, Payload, Owner)
    end.

ring_prepare(Bytes) ->
    {Names, _} = persistent_term:get(?MODULE),
    _ = [Name ! {prepare, self(), Bytes} || Name <- Names],
    _ = [receive {prepared, Name} -> ok end || Name <- Names],
    _ = [erlang:garbage_collect(P) || P <- processes()],
    ok.

ring_go(Way) ->
    {Names, Hops} = persistent_term:get(?MODULE),
    _ = [Name ! {go, self(), Way, Hops} || Name <- Names],
    _ = [receive {home, Name} -> ok end || Name <- Names],
    ok.

%% --- a peer that stands still ------------------------------------------------------------------

%% Each sends numbered messages without end, one of 200 of them large.
load_start(Node, Count) ->
    Keeper = erpc:call(Node, fun() -> spawn(?MODULE, keeper, [#{}]) end),
    Senders = [spawn(fun() -> load(Keeper, 1) end) || _ <- lists:seq(1, Count)],
    persistent_term:put(load, {Keeper, Senders}).

load(Keeper, N) ->
    receive {stop, From} -> From ! {stopped, self(), N - 1}
    after 0 ->
        Body = case N rem 200 of 0 -> binary:copy(<<7>>, 1 bsl 20); _ -> <<7:8192>> end,
        ok = teleport:send(Keeper, {self(), N, Body}),
        load(Keeper, N + 1)
    end.

load_stop() ->
    {_, Senders} = persistent_term:get(load),
    _ = [Sender ! {stop, self()} || Sender <- Senders],
    [receive {stopped, Sender, N} -> {Sender, N} end || Sender <- Senders].

%% Of each sender the last number, or that the order was broken.
keeper(Last) ->
    receive
        {ask, From, Sent} ->
            From ! {kept, self(), [{Pid, maps:get(Pid, Last, 0)} || {Pid, _} <- Sent]},
            keeper(Last);
        {Pid, N, _} ->
            case maps:get(Pid, Last, 0) of
                Before when Before =:= N - 1 -> keeper(Last#{Pid => N});
                _ -> keeper(Last#{Pid => broken})
            end
    end.

order(_, Sent) ->
    {Keeper, _} = persistent_term:get(load),
    order(Keeper, Sent, 200).

order(Keeper, Sent, Left) ->
    Keeper ! {ask, self(), Sent},
    Kept = receive {kept, Keeper, Found} -> Found end,
    case {lists:keymember(broken, 2, Kept), Kept} of
        {true, _} -> "the order was broken";
        {false, Sent} -> "all came, in order";
        {false, _} when Left =:= 0 -> "not all came";
        {false, _} -> timer:sleep(50), order(Keeper, Sent, Left - 1)
    end.

footprint(Node) ->
    #{queue_bytes := Queue, waiting := Waiting} = teleport:status(Node),
    {Keeper, Senders} = persistent_term:get(load),
    true = is_pid(Keeper),
    Link = link_to(Node),
    Mailboxes = [Length || Pid <- [Link | Senders],
                           {message_queue_len, Length} <- [process_info(Pid, message_queue_len)]],
    #{memory => erlang:memory(total), queue => Queue, waiting => Waiting,
      mailbox => lists:max([0 | Mailboxes])}.

link_to(Node) ->
    {via, Module, Name} = teleport:name_for_node(Node),
    Module:whereis_name(Name).

%% A call that waits for the peer.
ask_soon(Node) ->
    Echo = {teleport_listener, Node},
    spawn(fun() ->
        _ = teleport:call(Echo, where, 60000),
        AtUs = os:system_time(microsecond),
        receive {answered, From} -> From ! {answered, self(), AtUs} end
    end).

answered(Asked) ->
    Asked ! {answered, self()},
    receive {answered, Asked, AtUs} -> AtUs end.
