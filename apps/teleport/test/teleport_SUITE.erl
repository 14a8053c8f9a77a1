%% Two real nodes that talk by teleport: its calls and its promises. teleport_faults_SUITE has its
%% faults.
-module(teleport_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([messages/1, calls/1, calls_that_fail/1, replies_keep_order/1, monitors/1,
         down_comes_last/1, watcher_ends/1, local_destinations/1, large_and_small_keep_order/1,
         many_senders_keep_order/1, turns_of_huge_messages/1, refused/1, refused_among_others/1,
         status/1, peer_monitors/1, lost_is_told/1, nothing_is_lost_without_a_break/1,
         the_end_is_told/1]).
%% Run on other nodes.
-export([do_messages/1, do_calls/1, do_calls_that_fail/1, do_replies_keep_order/1,
         do_send_then_reply/2, do_monitors/1, do_down_comes_last/1, do_send_and_end/2,
         do_watcher_ends/1, do_local_destinations/1, do_large_and_small_keep_order/1,
         do_many_senders_keep_order/1, do_turns_of_huge_messages/1, do_refused/1,
         do_refused_among_others/1, do_unknown_atoms/1, do_status/1, do_peer_monitors/1,
         do_lost_is_told/1, do_nothing_is_lost_without_a_break/1, do_the_end_is_told/1]).

-import(teleport_test_nodes, [on/3, spawn_do/4, got/3, flush/0, large/0]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [messages, calls, calls_that_fail, replies_keep_order, monitors, down_comes_last,
     watcher_ends, local_destinations, large_and_small_keep_order, many_senders_keep_order,
     turns_of_huge_messages, refused, refused_among_others, status, peer_monitors, lost_is_told,
     nothing_is_lost_without_a_break, the_end_is_told].

init_per_suite(Config) -> [{nodes, teleport_test_nodes:pair(?MODULE, #{})} | Config].

end_per_suite(Config) -> teleport_test_nodes:stop(?config(nodes, Config)).

first(What, Config) -> teleport_test_nodes:first(?MODULE, What, ?config(nodes, Config)).

%% --- on the first node -------------------------------------------------------------------------

do_messages(Node) ->
    Collector = on(Node, collector, []),
    true = erpc:call(Node, erlang, register, [a_name, Collector]),
    Term = {self(), make_ref(), 1.5, [a | b], #{key => "text"}, <<1:3>>, 1 bsl 100},
    ok = teleport:send(Collector, Term),
    ok = teleport:send({a_name, Node}, by_name),
    ok = teleport:cast({a_name, Node}, request),
    ok = teleport:send({nobody_has_it, Node}, dropped),
    ?assertEqual([Term, by_name, {'$gen_cast', request}], got(Node, Collector, 3)),
    true = erpc:call(Node, erlang, unregister, [a_name]),
    true = exit(Collector, kill),
    ok = teleport:send(Collector, dropped),
    ok.

do_calls(Node) ->
    Echo = on(Node, echo, []),
    ?assertEqual({self(), hello}, teleport:call(Echo, {self(), hello})),
    ?assertEqual({ok, hello}, teleport:gs_call(Echo, hello, 5000)),
    Large = binary:copy(<<7>>, 3000000),
    ?assertEqual({Large, [Large]}, teleport:call(Echo, {Large, [Large]})),
    %% The link's process is a gen_server with a name.
    ?assertMatch({status, _, _, _}, sys:get_status(teleport:name_for_node(Node))),
    [] = flush().

do_calls_that_fail(Node) ->
    Echo = on(Node, echo, []),
    Call = fun(To, Request, Ms) ->
        {'EXIT', {Reason, {teleport, call, [To, Request, Ms]}}} =
            (catch teleport:call(To, Request, Ms)),
        Reason
    end,
    ?assertEqual(timeout, Call(Echo, never, 20)),
    ?assertEqual(leaving, teleport:call(Echo, {exit, normal})),
    ?assertEqual(noproc, Call(Echo, hello, 30000)),
    ?assertEqual(noproc, Call({nobody_has_it, Node}, hello, 30000)),
    ?assertEqual(bang, Call(on(Node, echo, []), {die, bang}, 30000)),
    ?assertEqual({refused, a_fun}, Call(on(Node, echo, []), fun() -> ok end, 30000)),
    ?assertEqual({nodedown, 'no@127.0.0.1'}, Call({name, 'no@127.0.0.1'}, hello, 30000)),
    [] = flush().

do_replies_keep_order(Node) ->
    %% A server that sends before it replies.
    Me = self(),
    Server = spawn_do(Node, ?MODULE, {send_then_reply, Me}, 200),
    Sent = [begin
                N = teleport:call(Server, N),
                receive {before, N} -> N after 0 -> error({overtaken, N}) end
            end || N <- lists:seq(1, 200)],
    ?assertEqual(lists:seq(1, 200), Sent).

do_send_then_reply(_, 0) ->
    ok;
do_send_then_reply(To, Left) ->
    receive
        {'$gen_call', From, N} ->
            ok = teleport:send(To, {before, N}),
            gen_server:reply(From, N),
            do_send_then_reply(To, Left - 1)
    end.

do_monitors(Node) ->
    [A, B, C] = [on(Node, echo, []) || _ <- "abc"],
    true = erpc:call(Node, erlang, register, [watched_name, B]),
    MA = teleport:monitor(A),
    MB = teleport:monitor({watched_name, Node}),
    MC = teleport:monitor(C),
    MD = teleport:monitor({nobody_has_it, Node}),
    ok = teleport:demonitor(MC),
    _ = [catch teleport:call(P, {die, bang}) || P <- [C, B, A]],
    ?assertEqual(lists:sort([{'DOWN', MA, process, A, bang},
                             {'DOWN', MB, process, {watched_name, Node}, bang},
                             {'DOWN', MD, process, {nobody_has_it, Node}, noproc}]),
                 lists:sort([receive {'DOWN', M, _, _, _} = Down -> Down end
                             || M <- [MA, MB, MD]])),
    [] = flush().

do_down_comes_last(Node) ->
    Me = self(),
    _ = [begin
             Pid = spawn_do(Node, ?MODULE, {send_and_end, Me}, 300),
             Ref = teleport:monitor(Pid),
             ok = teleport:send(Pid, go),
             receive {'DOWN', Ref, process, Pid, ended} -> ok end,
             ?assertEqual(lists:seq(1, 301),
                          [receive {sent, Pid, N} -> N after 0 -> none end
                           || N <- lists:seq(1, 301)])
         end || _ <- lists:seq(1, 20)],
    ok.

do_send_and_end(To, Count) ->
    receive go -> ok end,
    _ = [ok = teleport:send(To, {sent, self(), N}) || N <- lists:seq(1, Count)],
    ok = teleport:send(To, {sent, self(), Count + 1}),
    exit(ended).

do_watcher_ends(Node) ->
    Echo = on(Node, echo, []),
    {Watcher, Ref} = spawn_monitor(fun() -> _ = teleport:monitor(Echo), exit(normal) end),
    receive {'DOWN', Ref, process, Watcher, _} -> ok end,
    ok = teleport_test_nodes:wait(fun() -> monitored(Node, Echo) =:= [] end),
    ?assertEqual([], ets:tab2list(teleport_monitors)).

do_local_destinations(_) ->
    Echo = teleport_test_nodes:echo(),
    ?assertEqual(hello, teleport:call(Echo, hello)),
    true = register(local_echo, Echo),
    ?assertEqual(hello, teleport:call(local_echo, hello)),
    ?assertEqual(hello, teleport:call({local_echo, node()}, hello)),
    ok = teleport:send({nobody_has_it, node()}, dropped),
    Ref = teleport:monitor(Echo),
    true = exit(Echo, kill),
    receive {'DOWN', Ref, process, Echo, killed} -> ok end.

do_large_and_small_keep_order(Node) ->
    Collector = on(Node, collector, []),
    Large = [binary:copy(<<N>>, 65000 + 40000 * N) || N <- lists:seq(1, 5)],
    Sent = [case rand:uniform(4) of
                1 -> {N, lists:nth(rand:uniform(5), Large)};
                _ -> {N, small}
            end || N <- lists:seq(1, 600)],
    %% Yielding lets the schedulers take the sender from each other.
    _ = [begin ok = teleport:send(Collector, Message), erlang:yield() end || Message <- Sent],
    ?assertEqual(Sent, got(Node, Collector, length(Sent))).

do_many_senders_keep_order(Node) ->
    Collector = on(Node, collector, []),
    Senders = [spawn_monitor(fun() ->
        [begin
             Body = case N rem 50 of 0 -> binary:copy(<<1>>, 100000); _ -> N end,
             ok = teleport:send(Collector, {self(), N, Body}),
             N rem 7 =:= 0 andalso erlang:yield()
         end || N <- lists:seq(1, 500)]
    end) || _ <- lists:seq(1, 20)],
    _ = [receive {'DOWN', M, process, _, normal} -> ok end || {_, M} <- Senders],
    Got = got(Node, Collector, 20 * 500),
    _ = [?assertEqual(lists:seq(1, 500), [N || {P, N, _} <- Got, P =:= Pid])
         || {Pid, _} <- Senders],
    ok.

do_turns_of_huge_messages(Node) ->
    %% Two senders of one lane, whose messages take several fragments.
    Me = self(),
    Bodies = [crypto:strong_rand_bytes(40 bsl 20), crypto:strong_rand_bytes(35 bsl 20)],
    Senders = same_lane(length(Bodies), []),
    Echo = on(Node, echo, []),
    _ = [Pid ! {go, fun() -> Me ! {self(), teleport:call(Echo, [Body], 60000)} end}
         || {Pid, Body} <- lists:zip(Senders, Bodies)],
    ?assert(lists:all(fun({Pid, Body}) -> receive {Pid, Reply} -> Reply =:= [Body] end end,
                      lists:zip(Senders, Bodies))).

do_refused(Node) ->
    Collector = on(Node, collector, []),
    #{refused := Before} = erpc:call(Node, teleport, status, [node()]),
    Unknown = list_to_atom("unknown_" ++ integer_to_list(erlang:unique_integer([positive]))),
    _ = [ok = teleport:send(Collector, Bad)
         || Bad <- [Unknown, {1, [Unknown]}, fun() -> ok end, [{fun lists:sort/1}],
                    {binary:copy(<<1>>, 100000), Unknown}]],
    ok = teleport:send(Collector, fine),
    ?assertEqual([fine], got(Node, Collector, 1)),
    ok = teleport_test_nodes:wait(fun() ->
        maps:get(refused, erpc:call(Node, teleport, status, [node()])) =:= Before + 5
    end),
    ?assertError({exception, badarg, _},
                 erpc:call(Node, erlang, binary_to_existing_atom, [atom_to_binary(Unknown)])).

do_refused_among_others(Node) ->
    %% Calls whose replies, and monitors whose reasons, are not taken.
    Me = self(),
    Server = spawn_do(Node, ?MODULE, unknown_atoms, Me),
    Ref = teleport:monitor(Server),
    ?assertMatch({'EXIT', {{refused, unknown_atom}, _}}, catch teleport:call(Server, reply)),
    ?assertMatch({'EXIT', {{refused, unknown_atom}, _}}, catch teleport:call(Server, die)),
    receive {'DOWN', Ref, process, Server, {refused, unknown_atom}} -> ok end,
    ok.

do_unknown_atoms(Me) ->
    Unknown = list_to_atom("other_" ++ integer_to_list(erlang:unique_integer([positive]))),
    receive
        {'$gen_call', From, reply} -> gen_server:reply(From, Unknown), do_unknown_atoms(Me);
        {'$gen_call', _, die} -> exit(Unknown)
    end.

do_status(Node) ->
    ok = teleport:connect(Node),
    #{sent := Sent, received := Received} = teleport:status(Node),
    Echo = on(Node, echo, []),
    _ = [teleport:call(Echo, N) || N <- lists:seq(1, 10)],
    ok = teleport_test_nodes:wait(fun() ->
        #{sent := SentNow, received := ReceivedNow, queue_bytes := Queue} = teleport:status(Node),
        {SentNow, ReceivedNow, Queue} =:= {Sent + 10, Received + 10, 0}
    end),
    ?assertMatch(#{state := up, waiting := 0, queue_bytes_max := 67108864},
                 teleport:status(Node)),
    ?assertEqual([Node], teleport:peers()),
    ?assertMatch(#{state := down, sent := 0}, teleport:status('no@127.0.0.1')).

do_peer_monitors(Node) ->
    ok = teleport:connect(Node),
    Ref = teleport:monitor_peer(Node),
    Other = teleport:monitor_peer(Node),
    ok = teleport:demonitor_peer(Other),
    ok = teleport:disconnect(Node),
    receive {teleport_down, Ref, Node, disconnected} -> ok end,
    Third = teleport:monitor_peer(Node),
    receive {teleport_down, Third, Node, not_connected} -> ok after 0 -> error(silent) end,
    [] = flush(),
    ?assertEqual([], teleport:peers()).

do_lost_is_told(Node) ->
    Collector = on(Node, collector, []),
    ok = teleport:connect(Node),
    Names = [begin
                 Body = case N rem 10 of 0 -> large(); _ -> small end,
                 ok = teleport:send(Collector, {N, Body}, #{lost => {name, N}}),
                 N
             end || N <- lists:seq(1, 2000)],
    ok = teleport:disconnect(Node),
    %% The next link takes no notice of it: when its message is there, nothing of the old one comes.
    ok = teleport:send(Collector, again),
    ok = teleport_test_nodes:wait(fun() ->
        lists:member(again, on(Node, collected, [Collector]))
    end),
    {Came, [again]} = lists:splitwith(fun(Message) -> Message =/= again end,
                                      on(Node, collected, [Collector])),
    Got = [N || {N, _} <- Came],
    %% All that didn't come is told, in order; what came is in order and without a hole.
    Lost = told(Node, Names -- Got, []),
    ?assertEqual(lists:sort(Lost), Lost),
    ?assertEqual(lists:seq(1, length(Got)), Got).

told(_, [], Lost) -> Lost;
told(Node, Left, Lost) ->
    receive {teleport_lost, Node, Told} ->
        Names = [N || {name, N} <- Told],
        told(Node, Left -- Names, Lost ++ Names)
    after 30000 -> error({not_told, Left})
    end.

%% Once the peer has said how far it is, which takes as long as the machine lets it.
do_nothing_is_lost_without_a_break(Node) -> nothing_is_lost(Node, 200).

nothing_is_lost(Node, WaitMs) ->
    Collector = on(Node, collector, []),
    _ = [ok = teleport:send(Collector, N, #{lost => N}) || N <- lists:seq(1, 1000)],
    ?assertEqual(lists:seq(1, 1000), got(Node, Collector, 1000)),
    timer:sleep(WaitMs),
    ok = teleport:disconnect(Node),
    receive
        {teleport_lost, _, _} when WaitMs < 10000 -> nothing_is_lost(Node, 2 * WaitMs);
        {teleport_lost, _, _} = Lost -> error(Lost)
    after 1000 -> ok
    end.

%% The application stops on this node: whoever waits for something hears of it.
do_the_end_is_told(Node) ->
    Echo = on(Node, echo, []),
    Ref = teleport:monitor(Echo),
    Peer = teleport:monitor_peer(Node),
    Me = self(),
    _ = spawn_link(fun() -> Me ! {call, catch teleport:call(Echo, never, infinity)} end),
    ok = teleport_test_nodes:wait(fun() -> length(monitored(Node, Echo)) >= 2 end),
    ok = application:stop(teleport),
    receive {'DOWN', Ref, process, Echo, noconnection} -> ok after 30000 -> error(silent) end,
    receive {teleport_down, Peer, Node, stopped} -> ok after 30000 -> error(silent) end,
    receive {call, {'EXIT', {{nodedown, Node}, _}}} -> ok after 30000 -> error(silent) end,
    ok = teleport:start().

monitored(Node, Pid) ->
    {monitored_by, By} = erpc:call(Node, erlang, process_info, [Pid, monitored_by]),
    By.

same_lane(0, Pids) -> Pids;
same_lane(Count, Pids) ->
    Pid = spawn(fun() -> receive {go, Do} -> Do() end end),
    case erlang:phash2(Pid, 4) of
        0 -> same_lane(Count - 1, [Pid | Pids]);
        _ -> exit(Pid, kill), same_lane(Count, Pids)
    end.

%% --- two nodes ---------------------------------------------------------------------------------

messages(Config) -> first(messages, Config).
calls(Config) -> first(calls, Config).
calls_that_fail(Config) -> first(calls_that_fail, Config).
replies_keep_order(Config) -> first(replies_keep_order, Config).
monitors(Config) -> first(monitors, Config).
down_comes_last(Config) -> first(down_comes_last, Config).
watcher_ends(Config) -> first(watcher_ends, Config).
local_destinations(Config) -> first(local_destinations, Config).
large_and_small_keep_order(Config) -> first(large_and_small_keep_order, Config).
many_senders_keep_order(Config) -> first(many_senders_keep_order, Config).
turns_of_huge_messages(Config) -> first(turns_of_huge_messages, Config).
refused(Config) -> first(refused, Config).
refused_among_others(Config) -> first(refused_among_others, Config).
status(Config) -> first(status, Config).
peer_monitors(Config) -> first(peer_monitors, Config).
lost_is_told(Config) -> first(lost_is_told, Config).
nothing_is_lost_without_a_break(Config) -> first(nothing_is_lost_without_a_break, Config).
the_end_is_told(Config) -> first(the_end_is_told, Config).
