%% Two real nodes that talk by teleport, and what goes wrong: cases are named after that.
-module(teleport_faults_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([few_connections/1, too_large/1, peer_killed/1, application_restarted/1,
         no_such_node/1, crossing_dials/1, busy/1, waiting_senders/1, stalled_peer/1,
         silent_peer/1, silent_peer_leaves_nothing/1, replies_above_bound/1, other_secret/1,
         strangers/1, tls/1, static_peer/1, receivers/1]).
%% Run on other nodes.
-export([do_few_connections/1, do_too_large/1, do_large_reply/1, do_pids_of/1, do_await_down/2,
         do_no_such_node/1, do_connect_at/2, do_fill/2, do_send_huge/2, do_unwritten/1,
         do_block/3, do_stop_blocked/2, do_queues/1, do_one/2, do_send/3, do_send_all/3,
         do_answer_later/2, do_timeout/2, do_call_many/3, do_receivers/1]).

%% Messages of a sender that waits: more than the bound and all buffers hold, so that none comes to
%% its end while the peer stands still.
-define(EACH_MAX, 10000).

-import(teleport_test_nodes, [on/3, spawn_do/4, got/3, flush/0, large/0, call/4]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [few_connections, too_large, peer_killed, application_restarted, no_such_node,
     crossing_dials, busy, waiting_senders, stalled_peer, silent_peer,
     silent_peer_leaves_nothing, replies_above_bound, other_secret, strangers, tls, static_peer,
     receivers].

first(What, Nodes) -> teleport_test_nodes:first(?MODULE, What, Nodes).

with(Options, Test) ->
    Nodes = teleport_test_nodes:pair(?MODULE, Options),
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

%% --- on the first node -------------------------------------------------------------------------

do_few_connections(Node) ->
    ok = teleport:connect(Node),
    ?assertMatch(#{state := up, connections := 1}, teleport:status(Node)),
    Collector = on(Node, collector, []),
    ok = teleport:send(Collector, one),
    ?assertEqual([one], got(Node, Collector, 1)),
    ?assertMatch(#{connections := 2}, teleport:status(Node)),
    Senders = [spawn_monitor(fun() -> ok = teleport:send(Collector, [large(), small]) end)
               || _ <- lists:seq(1, 100)],
    _ = [receive {'DOWN', M, process, _, normal} -> ok end || {_, M} <- Senders],
    101 = length(got(Node, Collector, 101)),
    %% Two lanes: one for control, two for small ones at most, and two for large ones.
    ?assertMatch(#{connections := Count} when Count =< 5, teleport:status(Node)).

do_too_large(Node) ->
    Collector = on(Node, collector, []),
    Body = binary:copy(<<1>>, 1 bsl 20),
    ?assertEqual({error, too_large}, teleport:send(Collector, [Body])),
    ?assertMatch({'EXIT', {too_large, _}}, catch teleport:call(Collector, [Body], 30000)),
    ok = teleport:send(Collector, fine),
    ?assertEqual([fine], got(Node, Collector, 1)),
    %% A reply that is too large.
    Server = spawn_do(Node, ?MODULE, large_reply, Node),
    ?assertMatch({'EXIT', {too_large, _}}, catch teleport:call(Server, now, 30000)).

do_large_reply(_) ->
    receive {'$gen_call', From, now} -> gen_server:reply(From, binary:copy(<<1>>, 1 bsl 20)) end.

do_pids_of(Node) ->
    {on(Node, echo, []), on(Node, collector, [])}.

do_await_down(Echo, Node) ->
    Ref = teleport:monitor(Echo),
    Peer = teleport:monitor_peer(Node),
    Me = self(),
    _ = spawn(fun() -> Me ! {call, catch teleport:call(Echo, never, infinity)} end),
    _ = spawn(fun() -> timer:sleep(100), Me ! killed end),
    persistent_term:put(ready, true),
    receive {'DOWN', Ref, process, Echo, noconnection} -> ok end,
    receive {teleport_down, Peer, Node, _} -> ok end,
    receive {call, {'EXIT', {{nodedown, Node}, _}}} -> ok end,
    ?assertEqual({error, nodedown}, teleport:send(Echo, hello)).

do_no_such_node(_) ->
    ?assertEqual({error, nodedown}, teleport:send({name, 'no@127.0.0.1'}, hello)),
    ?assertEqual({error, nodedown}, teleport:connect('no@127.0.0.1')),
    Ref = teleport:monitor({name, 'no@127.0.0.1'}),
    receive {'DOWN', Ref, process, {name, 'no@127.0.0.1'}, noconnection} -> ok end.

do_connect_at(Ms, Node) ->
    timer:sleep(max(0, Ms - erlang:system_time(millisecond))),
    ok = teleport:connect(Node),
    Echo = on(Node, echo, []),
    hello = teleport:call(Echo, hello),
    ok.

do_fill(Collector, Node) ->
    Results = fill_up(Collector, 0),
    #{queue_bytes := Queue, queue_bytes_max := Max} = teleport:status(Node),
    {Results, Queue, Max, erlang:memory(total)}.

do_send_huge(Collector, _) -> teleport:send(Collector, binary:copy(<<1>>, 16 bsl 20)).

%% Ports that have something to write.
do_unwritten(_) ->
    [Port || Port <- erlang:ports(), {queue_size, Bytes} <- [erlang:port_info(Port, queue_size)],
             Bytes > 0].

do_block(Collector, Count, _) ->
    %% Each sends without end, and waits.
    Senders = [spawn(fun() -> send_on(Collector, 1) end) || _ <- lists:seq(1, Count)],
    persistent_term:put(senders, Senders).

do_stop_blocked(Collector, Node) ->
    Senders = persistent_term:get(senders),
    Refs = [{Pid, erlang:monitor(process, Pid)} || Pid <- Senders],
    _ = [Pid ! stop || Pid <- Senders],
    Sent = [receive {'DOWN', Ref, process, Pid, {sent, N}} -> {Pid, N} end || {Pid, Ref} <- Refs],
    Got = got(Node, Collector, lists:sum([N || {_, N} <- Sent]) + 1),
    _ = [?assertEqual(lists:seq(1, N), [I || {P, I, _} <- Got, P =:= Pid]) || {Pid, N} <- Sent],
    ok.

do_queues(Node) ->
    Status = teleport:status(Node),
    Mailboxes = [element(2, process_info(P, message_queue_len))
                 || P <- persistent_term:get(senders)],
    {Status, Mailboxes, erlang:memory(total)}.

do_one(Dest, _) ->
    case teleport:send(Dest, one) of
        ok -> ok;
        {error, nodedown} -> nodedown
    end.

do_send(Dest, Count, _) ->
    _ = [ok = teleport:send(Dest, N) || N <- lists:seq(1, Count)],
    ok.

do_send_all(Dest, Messages, _) ->
    _ = [ok = teleport:send(Dest, Message) || Message <- Messages],
    ok.

do_answer_later(Calls, _) ->
    Froms = [receive {'$gen_call', From, Request} -> {From, Request} end
             || _ <- lists:seq(1, Calls)],
    persistent_term:put(ready, true),
    receive go -> ok end,
    _ = [gen_server:reply(From, Request) || {From, Request} <- Froms],
    receive never -> ok end.

do_receivers(Node) ->
    Named = on(Node, collector, []),
    Other = on(Node, echo, []),
    true = erpc:call(Node, erlang, register, [open_name, Named]),
    ok = teleport:send({init, Node}, {stop, stop}),
    ok = teleport:send(Other, {'$gen_call', {self(), make_ref()}, 1}),
    ?assertMatch({'EXIT', {{refused, no_receiver}, _}}, catch teleport:call(Other, 1)),
    ?assertMatch({'EXIT', {{refused, no_receiver}, _}},
                 catch teleport:call({rex, Node}, {call, erlang, halt, [], self()})),
    Ref = teleport:monitor(Other),
    receive {'DOWN', Ref, process, Other, {refused, no_receiver}} -> ok end,
    ok = teleport:send({open_name, Node}, [large(), fine]),
    ok = teleport:send(Named, large()),
    ok = teleport:send({open_name, Node}, fine),
    ?assertEqual([[large(), fine], fine], got(Node, Named, 2)),
    ?assertEqual(6, maps:get(refused, erpc:call(Node, teleport, status, [node()]))),
    [] = flush(),
    ok.

%% Nothing is kept of it.
do_timeout(Collector, Node) ->
    Link = teleport_peers:whereis_name(Node),
    Before = sys:get_state(Link),
    ?assertEqual({error, busy}, teleport:send(Collector, <<0:8000>>, #{timeout => 50})),
    ?assertEqual(Before, sys:get_state(Link)),
    ?assertMatch(#{waiting := 0}, teleport:status(Node)),
    %% Each that was told is counted.
    #{busy := Busy} = teleport:status(Node),
    ?assertEqual({error, busy}, teleport:send(Collector, <<0:8000>>, #{full => busy})),
    {'EXIT', {timeout, _}} = (catch teleport:call(Collector, <<0:8000>>, 50)),
    ?assertMatch(#{busy := Now} when Now =:= Busy + 2, teleport:status(Node)),
    [] = flush(),
    ok.

do_call_many(Server, Count, Node) ->
    Body = binary:copy(<<1>>, 60000),
    Calls = [spawn_monitor(fun() -> exit(catch teleport:call(Server, Body, 60000)) end)
             || _ <- lists:seq(1, Count)],
    [receive {'DOWN', M, process, _, {'EXIT', {{nodedown, Node}, _}}} -> ok;
             {'DOWN', M, process, _, Body} -> ok end || {_, M} <- Calls],
    ok.

%% Until it stays busy: the writer still fills the kernel's buffers when it is so at first.
fill_up(Collector, Before) ->
    case fill(Collector, Before) of
        {Before, Problem} when Before > 0 -> {Before, Problem};
        {Sent, busy} -> timer:sleep(200), fill_up(Collector, Sent);
        Other -> Other
    end.

%% Without waiting, until it's busy.
fill(Collector, Sent) ->
    case teleport:send(Collector, {Sent, binary:copy(<<1>>, 1000)}, #{full => busy}) of
        ok -> fill(Collector, Sent + 1);
        {error, Problem} -> {Sent, Problem}
    end.

send_on(Collector, N) ->
    case teleport:send(Collector, {self(), N, binary:copy(<<1>>, 1000)}) of
        ok when N < ?EACH_MAX ->
            receive stop -> exit({sent, N}) after 0 -> send_on(Collector, N + 1) end;
        ok ->
            receive stop -> exit({sent, N}) end;
        {error, Problem} -> exit({Problem, N})
    end.

%% --- cases -------------------------------------------------------------------------------------

few_connections(_) -> with(#{lanes => 2}, fun(Nodes) -> first(few_connections, Nodes) end).
too_large(_) -> with(#{message_bytes_max => 1 bsl 20}, fun(Nodes) -> first(too_large, Nodes) end).
no_such_node(_) -> with(#{}, fun(Nodes) -> first(no_such_node, Nodes) end).

%% What waits on the first node for the second, which then goes.
peer_gone(Go) ->
    with(#{}, fun([First, Second] = Nodes) ->
        {Echo, _} = first(pids_of, Nodes),
        Waiting = spawn_monitor(fun() -> first({await_down, Echo}, Nodes) end),
        ok = teleport_test_nodes:wait(fun() ->
            call(First, persistent_term, get, [ready, false])
        end),
        timer:sleep(50),
        Go(Second),
        {Pid, Ref} = Waiting,
        receive {'DOWN', Ref, process, Pid, Why} -> ?assertEqual(normal, Why) end
    end).

peer_killed(_) ->
    peer_gone(fun(Second) -> os:cmd("kill -KILL " ++ call(Second, os, getpid, [])) end).

%% The other node stays, and comes back as another instance.
application_restarted(_) ->
    with(#{}, fun([_, Second] = Nodes) ->
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        ok = call(Second, application, stop, [teleport]),
        ok = teleport_test_nodes:wait(fun() -> first({one, Collector}, Nodes) =:= nodedown end),
        ok = call(Second, teleport, start, []),
        ok = teleport_test_nodes:wait(fun() -> first({one, Collector}, Nodes) =:= ok end)
    end).

%% Both dial at the same millisecond; one link comes of it, on both sides the same.
crossing_dials(_) ->
    with(#{}, fun([{_, A} = First, {_, B} = Second]) ->
        _ = [begin
                 AtMs = erlang:system_time(millisecond) + 30,
                 Me = self(),
                 _ = [spawn_link(fun() ->
                          ok = call(From, ?MODULE, do_connect_at, [AtMs, To]),
                          Me ! {connected, From}
                      end) || {From, To} <- [{First, B}, {Second, A}]],
                 _ = [receive {connected, From} -> ok end || From <- [First, Second]],
                 ?assertEqual([B], call(First, teleport, peers, [])),
                 ?assertEqual([A], call(Second, teleport, peers, [])),
                 ok = call(First, teleport, disconnect, [B]),
                 ok = teleport_test_nodes:wait(fun() ->
                     call(Second, teleport, peers, []) =:= []
                 end)
             end || _ <- lists:seq(1, 20)]
    end).

%% Only the processes that are named can be reached; what is for others is refused and told.
receivers(_) ->
    with(#{receivers => [open_name], discovery => false}, fun([First, Second] = Nodes) ->
        {_, Node} = Second,
        ?assertEqual({error, nodedown}, call(First, teleport, connect, [Node])),
        #{port := Port} = call(Second, gen_server, call, [teleport_listener, where]),
        ok = call(First, application, stop, [teleport]),
        Peers = #{Node => {{127, 0, 0, 1}, Port}},
        ok = call(First, application, set_env, [teleport, peers, Peers]),
        ok = call(First, teleport, start, []),
        ok = first(receivers, Nodes)
    end).

%% Nobody waits: at the bound it's busy, and memory is that of the bound.
busy(_) ->
    Bound = 4 bsl 20,
    with(#{queue_bytes_max => Bound}, fun([First, Second] = Nodes) ->
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        Before = call(First, erlang, memory, [total]),
        Stopped = teleport_test_nodes:freeze(Second),
        {{Sent, busy}, Queue, Bound, After} = first({fill, Collector}, Nodes),
        ok = first({timeout, Collector}, Nodes),
        teleport_test_nodes:thaw(Stopped),
        ?assert(Queue < 1.1 * Bound),
        ?assert(After - Before < 3 * Bound),
        {_, Node} = Second,
        Got = call(First, teleport_test_nodes, got, [Node, Collector, Sent + 1]),
        ?assertEqual(lists:seq(0, Sent - 1), [N || {N, _} <- Got])
    end).

%% Senders wait while the peer stands still, with nothing in their mailboxes, and go on after it.
waiting_senders(_) ->
    Bound = 1 bsl 20,
    with(#{queue_bytes_max => Bound}, fun([First, Second] = Nodes) ->
        {_, Node} = Second,
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        Stopped = teleport_test_nodes:freeze(Second),
        _ = first({block, Collector, 20}, Nodes),
        ok = teleport_test_nodes:wait(fun() -> is_all_waiting(First, Node, 20) end),
        {#{queue_bytes := Queue}, Mailboxes, _} = first(queues, Nodes),
        ?assert(Queue < 1.1 * Bound),
        ?assertEqual([0], lists:usort(Mailboxes)),
        teleport_test_nodes:thaw(Stopped),
        ok = teleport_test_nodes:wait(fun() ->
            maps:get(sent, call(First, teleport, status, [Node])) > 10000
        end),
        ok = first({stop_blocked, Collector}, Nodes)
    end).

%% And nothing goes by any more: one that is woken has that message in its mailbox for a moment.
is_all_waiting(First, Node, Count) ->
    Look = fun() -> maps:with([waiting, sent], call(First, teleport, status, [Node])) end,
    #{waiting := Waiting} = Before = Look(),
    timer:sleep(300),
    Waiting =:= Count andalso Look() =:= Before.

%% Still shorter than the silence that ends a link: all that was sent comes.
stalled_peer(_) ->
    with(#{ping_ms => 50, silent_ms_max => 30000}, fun([First, {_, Node} = Second] = Nodes) ->
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        Stopped = teleport_test_nodes:freeze(Second),
        ok = first({send, Collector, 100}, Nodes),
        timer:sleep(1000),
        teleport_test_nodes:thaw(Stopped),
        Got = call(First, teleport_test_nodes, got, [Node, Collector, 101]),
        ?assertEqual(lists:seq(1, 100), tl(Got)),
        ok = teleport_test_nodes:wait(fun() ->
            is_integer(maps:get(round_trip_us, call(First, teleport, status, [Node])))
        end)
    end).

silent_peer(_) ->
    with(#{ping_ms => 50, silent_ms_max => 3000}, fun([First, {_, Node} = Second] = Nodes) ->
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        Stopped = teleport_test_nodes:freeze(Second),
        ok = first({send, Collector, 100}, Nodes),
        ok = teleport_test_nodes:wait(fun() -> call(First, teleport, peers, []) =:= [] end),
        teleport_test_nodes:thaw(Stopped),
        ok = teleport_test_nodes:wait(fun() -> first({one, Collector}, Nodes) =:= ok end),
        %% Of the old link's messages some came or none, before those of the new one.
        ok = teleport_test_nodes:wait(fun() ->
            Got = call(First, teleport_test_nodes, on, [Node, collected, [Collector]]),
            Numbers = [N || N <- Got, is_integer(N)],
            ?assertEqual(lists:seq(1, length(Numbers)), Numbers),
            Got =/= [] andalso lists:last(Got) =:= one
                andalso (Numbers =/= [] orelse Got =:= [one] orelse Got =:= [one, one])
        end)
    end).

%% The bytes that a link had for a peer that stands still go with the link.
silent_peer_leaves_nothing(_) ->
    %% Long enough to fill the queue before.
    Options = #{ping_ms => 50, silent_ms_max => 8000, queue_bytes_max => 4 bsl 20},
    with(Options, fun([First, Second] = Nodes) ->
        {_, Collector} = first(pids_of, Nodes),
        ok = first({one, Collector}, Nodes),
        Before = call(First, erlang, memory, [binary]),
        Stopped = teleport_test_nodes:freeze(Second),
        {{_, busy}, _, _, _} = first({fill, Collector}, Nodes),
        ok = first({send_huge, Collector}, Nodes),
        ?assert(call(First, erlang, memory, [binary]) - Before > 16 bsl 20),
        ok = teleport_test_nodes:wait(fun() -> call(First, teleport, peers, []) =:= [] end),
        ok = teleport_test_nodes:wait(fun() -> first(unwritten, Nodes) =:= [] end),
        teleport_test_nodes:thaw(Stopped)
    end).

%% Replies to a peer that doesn't read end its link at twice the bound.
replies_above_bound(_) ->
    with(#{queue_bytes_max => 1 bsl 20}, fun([First, {_, Node} = Second] = Nodes) ->
        Server = call(Second, teleport_test_nodes, spawn_do,
                      [Node, ?MODULE, {answer_later, 1200}, Node]),
        Calls = spawn_monitor(fun() -> first({call_many, Server, 1200}, Nodes) end),
        ok = teleport_test_nodes:wait(fun() ->
            call(Second, persistent_term, get, [ready, false])
        end),
        Stopped = teleport_test_nodes:freeze(First),
        {_, FirstNode} = First,
        go = call(Second, erlang, send, [Server, go]),
        ok = teleport_test_nodes:wait(fun() ->
            not lists:member(FirstNode, call(Second, teleport, peers, []))
        end),
        teleport_test_nodes:thaw(Stopped),
        {Pid, Ref} = Calls,
        receive {'DOWN', Ref, process, Pid, Why} -> ?assertEqual(normal, Why) end
    end).

other_secret(_) ->
    with(#{secret => <<"one">>}, fun([First, {_, Node} = Second]) ->
        ok = call(Second, application, stop, [teleport]),
        ok = call(Second, application, set_env, [teleport, secret, <<"another">>]),
        ok = call(Second, teleport, start, []),
        ?assertEqual({error, nodedown}, call(First, teleport, connect, [Node])),
        ?assertEqual([], call(Second, teleport, peers, []))
    end).

%% Who doesn't know the protocol, or the secret, is let go, and nothing of it is read as a term.
strangers(_) ->
    with(#{connect_ms_max => 500}, fun([First, {_, Node} = Second]) ->
        #{port := Port} = call(First, gen_server, call, [{teleport_listener, Node}, where]),
        Hello = fun(To) ->
            teleport_handshake:hello(#{kind => control, lane => 0, nonce => <<0:256>>,
                                       link => <<0:128>>, epoch => 1, instance => <<0:128>>,
                                       from => <<"a@h">>, to => atom_to_binary(To)})
        end,
        Frames = [<<"GET / HTTP/1.1\r\n\r\n">>, <<0, 0, 0, 3, 1, 2, 3>>, <<255, 255, 255, 255>>,
                  <<0, 0, 0, 9, 131, 108, 0, 0, 0, 1, 97, 1, 106>>, framed(Hello('other@h')),
                  framed(Hello(Node)), [framed(Hello(Node)), framed(<<1, 0:392>>)], <<>>],
        _ = [begin
                 {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
                 ok = gen_tcp:send(Socket, Frame),
                 ?assertEqual(closed, drain(Socket)),
                 gen_tcp:close(Socket)
             end || Frame <- Frames],
        ?assertEqual([], call(Second, teleport, peers, [])),
        ok = teleport_test_nodes:wait(fun() -> call(First, teleport, connect, [Node]) =:= ok end)
    end).

framed(Bytes) -> <<(byte_size(Bytes)):32, Bytes/binary>>.

drain(Socket) ->
    case gen_tcp:recv(Socket, 0, 30000) of
        {ok, _} -> drain(Socket);
        {error, Reason} when Reason =:= closed; Reason =:= econnreset -> closed;
        {error, Reason} -> Reason
    end.

tls(_) ->
    Sign = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    #{server_config := Server, client_config := Client} = public_key:pkix_test_data(
        #{server_chain => #{root => Sign, intermediates => [], peer => Sign},
          client_chain => #{root => Sign, intermediates => [], peer => Sign}}),
    Tls = #{listen => [{verify, verify_peer}, {fail_if_no_peer_cert, true} | Server],
            connect => [{verify, verify_peer}, {server_name_indication, disable} | Client]},
    with(#{tls => Tls}, fun([_, {_, Node}] = Nodes) ->
        [First, _] = Nodes,
        {_, Collector} = first(pids_of, Nodes),
        Sent = [case N rem 20 of 0 -> {N, large()}; _ -> N end || N <- lists:seq(1, 300)],
        ok = first({send_all, Collector, Sent}, Nodes),
        ?assertEqual(Sent, call(First, teleport_test_nodes, got, [Node, Collector, 300])),
        %% Who speaks plainly isn't heard.
        #{port := Port} = call(First, gen_server, call, [{teleport_listener, Node}, where]),
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        ok = gen_tcp:send(Socket, framed(<<"TELEPORT">>)),
        ?assertEqual(closed, drain(Socket))
    end).

%% Its address is in the environment; the distribution isn't asked.
static_peer(_) ->
    with(#{}, fun([{_, Dialer} = First, {_, Node} = Second]) ->
        #{port := Port} = call(Second, gen_server, call, [teleport_listener, where]),
        ok = call(First, application, stop, [teleport]),
        %% Who accepts must have heard of the name.
        {error, nodedown} = call(Second, teleport, connect, [Dialer]),
        %% Whatever asks for it, there is no distribution between them from here on. The other side
        %% hears of that a moment later.
        true = call(First, erlang, set_cookie, [Node, another_cookie]),
        _ = call(Second, erlang, disconnect_node, [Dialer]),
        ok = teleport_test_nodes:wait(fun() -> call(First, erlang, nodes, []) =:= [] end),
        Peers = #{Node => {{127, 0, 0, 1}, Port}},
        ok = call(First, application, set_env, [teleport, peers, Peers]),
        ok = call(First, teleport, start, []),
        ok = call(First, teleport, connect, [Node]),
        ?assertEqual([], call(First, erlang, nodes, [])),
        ?assertEqual([Node], call(First, teleport, peers, []))
    end).
