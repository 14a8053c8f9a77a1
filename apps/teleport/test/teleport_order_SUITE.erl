%% The order of replies and 'DOWN's where a lane's writer gets from many at once: they stay behind
%% what the server sent before. Two real nodes with one lane.
-module(teleport_order_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("teleport.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([replies/1, downs/1, writer/1]).
%% Run on other nodes.
-export([do_replies/1, do_downs/1, do_server/1, do_ending/2, do_flood/2, do_writer/1]).

-import(teleport_test_nodes, [spawn_do/4]).

-define(FLOODING, 64).
-define(MS, 4000).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [replies, downs, writer].

%% More schedulers than cores, so that some stand still while they hold a lock.
init_per_suite(Config) ->
    Nodes = teleport_test_nodes:pair(?MODULE, #{lanes => 1, queue_bytes_max => 1 bsl 20,
                                                emulator => ["+S", "16:16"]}),
    [{nodes, Nodes} | Config].

end_per_suite(Config) -> teleport_test_nodes:stop(?config(nodes, Config)).

%% --- on the nodes ------------------------------------------------------------------------------

do_replies(Node) ->
    flooded(Node, fun() -> asked(spawn_do(Node, ?MODULE, server, self())) end).

asked(Server) ->
    N = make_ref(),
    N = teleport:call(Server, N, 60000),
    receive {before, N} -> in_order
    after 0 -> receive {before, N} -> overtaken after 60000 -> lost end
    end.

do_downs(Node) ->
    flooded(Node, fun() ->
        Pid = spawn_do(Node, ?MODULE, {ending, self()}, Node),
        Ref = teleport:monitor(Pid),
        ok = teleport:send(Pid, go),
        receive {'DOWN', Ref, process, Pid, _} -> ok end,
        receive {sent, Pid} -> in_order
        after 0 -> receive {sent, Pid} -> overtaken after 60000 -> lost end
        end
    end).

%% Again and again for some seconds, while others there send here without a pause.
flooded(Node, Do) ->
    Sink = spawn_link(fun Drop() -> receive _ -> Drop() end end),
    Flood = [spawn_do(Node, ?MODULE, {flood, Sink}, Node) || _ <- lists:seq(1, ?FLOODING)],
    UntilMs = erlang:monotonic_time(millisecond) + ?MS,
    Askers = [spawn_monitor(fun() -> exit({results, again(UntilMs, Do, #{})}) end)
              || _ <- lists:seq(1, 16)],
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

do_server(To) ->
    receive
        {'$gen_call', From, N} ->
            ok = teleport:send(To, {before, N}),
            gen_server:reply(From, N)
    end.

do_ending(To, _) ->
    receive go -> ok end,
    ok = teleport:send(To, {sent, self()}).

do_flood(Sink, Node) ->
    ok = teleport:send(Sink, small),
    do_flood(Sink, Node).

%% The same at a writer alone, without the bound at which senders wait: servers post to it and then
%% have another process post, as teleport_watch does.
do_writer(_) ->
    process_flag(trap_exit, true),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {packet, 4}]),
    {ok, Port} = inet:port(Listen),
    {ok, Ours} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, 4}]),
    {ok, Theirs} = gen_tcp:accept(Listen),
    Writer = teleport_writer:start_link(
        #{node => node(), number => 1, queue => atomics:new(?QUEUE, []), low_bytes => 1,
          stats => atomics:new(?STATS, []), large => self()}),
    Writer ! {socket, {tcp, Ours}},
    Test = self(),
    Watch = spawn_link(fun() -> watch(Writer) end),
    Senders = [spawn_link(fun() -> post_often(Writer, Watch, Who, 1) end)
               || Who <- lists:duplicate(?FLOODING, none) ++ lists:seq(1, 16)],
    Reader = spawn_link(fun() -> Test ! {counts, read(Theirs, #{}, #{})} end),
    ok = gen_tcp:controlling_process(Ours, Writer),
    timer:sleep(?MS),
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- Senders ++ [Watch]],
    ok = post(Writer, done),
    Counts = receive {counts, Found} -> Found after 60000 -> silent end,
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Writer, Reader]],
    Counts.

post(Writer, Message) ->
    teleport_writer:post(Writer, self(), {small, [name | Message]}, 100, none).

watch(Writer) ->
    receive
        {Who, N} ->
            Payload = {small, [name | {reply, Who, N}]},
            ok = teleport_writer:post_behind(Writer, self(), Payload, 100),
            watch(Writer)
    end.

post_often(Writer, Watch, none, N) ->
    ok = post(Writer, flood),
    N rem 500 =:= 0 andalso timer:sleep(1),
    post_often(Writer, Watch, none, N + 1);
post_often(Writer, Watch, Who, N) ->
    ok = post(Writer, {before, Who, N}),
    Watch ! {Who, N},
    N rem 5 =:= 0 andalso timer:sleep(1),
    post_often(Writer, Watch, Who, N + 1).

read(Socket, Last, Counts) ->
    {ok, Frame} = gen_tcp:recv(Socket, 0),
    {ok, Elements} = teleport_codec:decode(Frame, node()),
    case lists:foldl(fun read_one/2, {Last, Counts}, Elements) of
        {done, Now} -> Now;
        {LastNow, Now} -> read(Socket, LastNow, Now)
    end.

read_one([name | {before, Who, N}], {Last, Counts}) -> {Last#{Who => N}, Counts};
read_one([name | {reply, Who, N}], {Last, Counts}) ->
    What = case Last of
        #{Who := Before} when Before >= N -> in_order;
        _ -> overtaken
    end,
    {Last, maps:update_with(What, fun(Count) -> Count + 1 end, 1, Counts)};
read_one([name | done], {_, Counts}) -> {done, Counts};
read_one([name | flood], Acc) -> Acc.

%% --- cases -------------------------------------------------------------------------------------

replies(Config) -> in_order(replies, Config).
downs(Config) -> in_order(downs, Config).
writer(Config) -> in_order(writer, Config).

in_order(What, Config) ->
    Counts = teleport_test_nodes:first(?MODULE, What, ?config(nodes, Config)),
    ct:pal("~p: ~p", [What, Counts]),
    ?assertEqual([in_order], maps:keys(Counts)).
