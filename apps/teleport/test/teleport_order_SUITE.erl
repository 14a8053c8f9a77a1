%% The order of replies and 'DOWN's among what their server sends before and after, where a lane's
%% writer gets from many at once. Two real nodes, with one lane and with several; and a writer
%% alone, where no bound makes senders wait.
-module(teleport_order_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("teleport.hrl").

-export([suite/0, all/0]).
-export([replies/1, downs/1, several_lanes/1, waiting_server/1, by_hand/1, writer/1]).
%% Run on other nodes.
-export([do_replies/1, do_downs/1, do_server/2, do_ending/2, do_flood/2, do_by_hand/1,
         do_handy_server/1, do_writer/1]).

-import(teleport_test_nodes, [spawn_do/4]).

-define(FLOODING, 64).
-define(ASKING, 16).
-define(MS, 4000).
-define(BEHIND, 3000).
%% Every so many messages is a large one.
-define(LARGE, 20).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [replies, downs, several_lanes, waiting_server, by_hand, writer].

%% More schedulers than cores, so that some stand still while they hold a lock.
with(Options, Test) ->
    Nodes = teleport_test_nodes:pair(?MODULE, Options#{emulator => ["+S", "16:16"]}),
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

%% --- on the nodes ------------------------------------------------------------------------------

%% Each asker sees in which order it gets what its server sends.
do_replies(Node) ->
    flooded(Node, fun() ->
        Server = spawn_do(Node, ?MODULE, {server, self()}, 1),
        Test = self(),
        Tracer = spawn_link(fun() -> judge(before, 1, Test) end),
        1 = erlang:trace(self(), true, ['receive', {tracer, Tracer}]),
        fun() ->
            case teleport:call(Server, ask, 60000) of
                Reply when is_tuple(Reply) -> receive {'after', _, _} -> ok end
            end,
            receive {judged, Tracer, What} -> What after 0 -> in_order end
        end
    end).

%% What is next of what a server sends: again and again before, its reply, after.
judge(Next, N, Test) ->
    Came = receive
        {trace, _, 'receive', {before, I, _}} -> {before, I};
        {trace, _, 'receive', {_, {ok, {reply, I, _}}}} -> {reply, I};
        {trace, _, 'receive', {'after', I, _}} -> {'after', I};
        {trace, _, 'receive', _} -> other
    end,
    case Came of
        other -> judge(Next, N, Test);
        {Next, N} ->
            case Next of
                before -> judge(reply, N, Test);
                reply -> judge('after', N, Test);
                'after' -> judge(before, N + 1, Test)
            end;
        _ -> Test ! {judged, self(), {Came, in_place_of, {Next, N}}}
    end.

do_server(To, N) ->
    receive
        {'$gen_call', From, ask} ->
            ok = teleport:send(To, {before, N, body(3 * N)}),
            gen_server:reply(From, {reply, N, body(3 * N + 1)}),
            ok = teleport:send(To, {'after', N, body(3 * N + 2)}),
            do_server(To, N + 1)
    end.

body(N) when N rem ?LARGE =:= 0 -> teleport_test_nodes:large();
body(_) -> small.

do_downs(Node) ->
    flooded(Node, fun() ->
        fun() ->
            Pid = spawn_do(Node, ?MODULE, {ending, self()}, Node),
            Ref = teleport:monitor(Pid),
            ok = teleport:send(Pid, go),
            receive {'DOWN', Ref, process, Pid, _} -> ok end,
            receive {sent, Pid} -> in_order
            after 0 -> receive {sent, Pid} -> overtaken after 60000 -> lost end
            end
        end
    end).

do_ending(To, _) ->
    receive go -> ok end,
    ok = teleport:send(To, {sent, self()}).

%% Again and again for some seconds, while others there send here without a pause.
flooded(Node, Prepare) ->
    Sink = spawn_link(fun Drop() -> receive _ -> Drop() end end),
    Flood = [spawn_do(Node, ?MODULE, {flood, Sink}, Node) || _ <- lists:seq(1, ?FLOODING)],
    UntilMs = erlang:monotonic_time(millisecond) + ?MS,
    Askers = [spawn_monitor(fun() -> exit({results, again(UntilMs, Prepare(), #{})}) end)
              || _ <- lists:seq(1, ?ASKING)],
    Results = [receive {'DOWN', MRef, process, _, {results, Counts}} -> Counts end
               || {_, MRef} <- Askers],
    _ = [true = erpc:call(Node, erlang, exit, [Pid, kill]) || Pid <- Flood],
    lists:foldl(fun(Counts, Acc) -> maps:merge_with(fun(_, A, B) -> A + B end, Counts, Acc) end,
                #{}, Results).

again(UntilMs, Do, Counts) ->
    Now = maps:update_with(Do(), fun(N) -> N + 1 end, 1, Counts),
    case erlang:monotonic_time(millisecond) < UntilMs of
        true -> again(UntilMs, Do, Now);
        false -> Now
    end.

do_flood(Sink, Node) ->
    ok = teleport:send(Sink, small),
    do_flood(Sink, Node).

%% Servers that know how a `From' is made, and send more than one reply, and what no reply is.
do_by_hand(Node) ->
    Server = spawn_do(Node, ?MODULE, handy_server, Node),
    ok = teleport:connect(Node),
    Peer = teleport:monitor_peer(Node),
    Answers = [teleport:call(Server, N) || N <- lists:seq(1, 60)],
    ?assertEqual(lists:seq(1, 60), Answers),
    receive {teleport_down, Peer, _, Why} -> error(Why) after 0 -> ok end,
    #{in_order => length(Answers)}.

do_handy_server(Node) ->
    receive
        {'$gen_call', {Caller, Tag} = From, N} ->
            _ = [Caller ! Message
                 || Message <- [N, {N, N}, {done, [N]}, {seen, N}, {again, N}, {small, N, N, N, N},
                                {'EXIT', self(), N}]],
            _ = case N rem 2 of
                0 -> [gen_server:reply(From, Reply) || Reply <- [N, again]];
                1 -> [Caller ! {Tag, Reply} || Reply <- [N, again]]
            end,
            do_handy_server(Node)
    end.

%% --- a writer alone ----------------------------------------------------------------------------

%% Servers send, reply and send, then another process says that one has ended, as teleport_watch
%% does. What comes out at the other end of the connection is judged.
do_writer(_) ->
    process_flag(trap_exit, true),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {packet, 4}]),
    {ok, Port} = inet:port(Listen),
    {ok, Ours} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, 4}]),
    {ok, Theirs} = gen_tcp:accept(Listen),
    Calls = teleport_calls:new(),
    {Writer, Alias} = teleport_writer:start_link(
        #{node => node(), number => 1, queue => atomics:new(?QUEUE, []), low_bytes => 1,
          stats => atomics:new(?STATS, []), large => self(), calls => Calls,
          large_bytes => 1 bsl 16, message_bytes_max => 1 bsl 20}),
    Writer ! {socket, {tcp, Ours}},
    Watch = spawn_link(fun() -> watch(Writer) end),
    Senders = [spawn_link(fun() -> flood_writer(Writer, 1) end) || _ <- lists:seq(1, ?FLOODING)]
        ++ [spawn_link(fun() -> serve({Writer, Alias}, Calls, Watch, Who, 1) end)
            || Who <- lists:seq(1, ?ASKING)],
    Test = self(),
    Reader = spawn_link(fun() -> Test ! {counts, read(Theirs, #{}, #{})} end),
    timer:sleep(?MS),
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- Senders ++ [Watch]],
    %% A connection that ends behind all that was written ends the judging.
    ok = wait_idle(Writer),
    ok = gen_tcp:shutdown(Ours, write),
    Counts = receive {counts, Found} -> Found after 60000 -> silent end,
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Writer, Reader]],
    Counts.

wait_idle(Writer) ->
    teleport_test_nodes:wait(fun() ->
        [{message_queue_len, 0}, {status, waiting}]
            =:= process_info(Writer, [message_queue_len, status])
    end).

post(Writer, Message) ->
    teleport_writer:post(Writer, self(), {small, [name | Message]}, 100, none).

watch(Writer) ->
    receive {ended, MRef, What} -> ok = teleport_writer:ended(Writer, MRef, What) end,
    watch(Writer).

flood_writer(Writer, N) ->
    ok = post(Writer, flood),
    %% Not so many that servers get no turn.
    N rem 100 =:= 0 andalso is_behind(Writer) andalso timer:sleep(1),
    flood_writer(Writer, N + 1).

is_behind(Writer) ->
    {message_queue_len, Length} = process_info(Writer, message_queue_len),
    Length > ?BEHIND.

%% Steps of which each has the next number.
serve({Writer, Alias} = To, Calls, Watch, Who, N) ->
    [Replied, Ended] = [begin
        MRef = make_ref(),
        ok = teleport_calls:begun(Calls, MRef, make_ref(), self(), self()),
        MRef
    end || _ <- "ab"],
    ok = post(Writer, {Who, N}),
    gen_server:reply({Watch, [[alias | Alias] | Replied]}, {Who, N + 1}),
    ok = post(Writer, {Who, N + 2}),
    Watch ! {ended, Ended, {Who, N + 3}},
    %% A process that has ended sends no more: the next step waits until it was told.
    receive {demonitor, Ended} -> ok end,
    receive {demonitor, Replied} -> ok end,
    serve(To, Calls, Watch, Who, N + 4).

read(Socket, Last, Counts) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Frame} ->
            {ok, Elements} = teleport_codec:decode(Frame, node()),
            {LastNow, Now} = lists:foldl(fun read_one/2, {Last, Counts}, Elements),
            read(Socket, LastNow, Now);
        {error, closed} -> Counts
    end.

read_one([name | flood], Acc) -> Acc;
read_one(Element, {Last, Counts}) ->
    {Who, N} = case Element of
        [name | Sent] -> Sent;
        {reply, _, {ok, Reply}} -> Reply;
        {reply, _, {exit, Reason}} -> Reason
    end,
    What = case maps:get(Who, Last, 0) of
        Before when N =:= Before + 1 -> in_order;
        _ -> out_of_order
    end,
    {Last#{Who => N}, maps:update_with(What, fun(Count) -> Count + 1 end, 1, Counts)}.

%% --- cases -------------------------------------------------------------------------------------

replies(_) -> in_order(replies, #{lanes => 1, queue_bytes_max => 4 bsl 20}).
downs(_) -> in_order(downs, #{lanes => 1, queue_bytes_max => 4 bsl 20}).
several_lanes(_) -> in_order(replies, #{lanes => 4, queue_bytes_max => 64 bsl 20}).
%% The bound is below a large message: servers wait for room between what they send and reply.
waiting_server(_) -> in_order(replies, #{lanes => 1, queue_bytes_max => 100000}).
by_hand(_) -> in_order(by_hand, #{}).
writer(_) -> in_order(writer, #{}).

in_order(What, Options) ->
    with(Options, fun(Nodes) ->
        Counts = teleport_test_nodes:first(?MODULE, What, Nodes),
        ct:pal("~p: ~p", [What, Counts]),
        ?assertEqual([in_order], maps:keys(Counts)),
        ?assert(maps:get(in_order, Counts) > 50)
    end).
