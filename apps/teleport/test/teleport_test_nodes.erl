%% Nodes to test with: real ones on the loopback interface, which run teleport. Functions of test
%% modules run there by `call/4'.
-module(teleport_test_nodes).

-export([start/1, start/2, pair/2, stop/1, call/4, first/3, do/3, spawn_do/4]).
-export([freeze/1, thaw/1, wait/1]).
-export([echo/0, collector/0, collected/1, count/1, on/3, got/3, flush/0, large/0]).
-export([watch_peer/1, peer_ended/1, run_echo/0, run_collector/1, os_pid/0, start_app/1]).

-type running() :: {Peer :: pid(), node()}.

-spec start(pos_integer()) -> [running()].
start(Count) -> start(Count, #{}).

%% With these options in the environment, and `emulator' for its command line; all have one secret.
-spec start(pos_integer(), map()) -> [running()].
start(Count, Given) ->
    Emulator = maps:get(emulator, Given, []),
    Options = maps:remove(emulator, Given),
    Paths = lists:append([["-pa", filename:dirname(code:which(Module))]
                          || Module <- [teleport, ?MODULE]]),
    Started = [begin
         {ok, Peer, Node} = peer:start(#{
             name => peer:random_name("tp"), host => "127.0.0.1", longnames => true,
             connection => standard_io, wait_boot => 60000,
             args => ["-setcookie", "teleport", "-kernel", "logger_level", "error",
                      "-connect_all", "false" | Emulator ++ Paths]}),
         {Peer, Node}
     end || _ <- lists:seq(1, Count)],
    _ = [persistent_term:put({?MODULE, Peer}, call(Running, ?MODULE, os_pid, []))
         || {Peer, _} = Running <- Started],
    _ = [ok = call(Running, ?MODULE, start_app, [Options]) || Running <- Started],
    Started.

%% Two, on which this module's atoms are known, with several lanes on small machines, too.
-spec pair(module(), map()) -> [running()].
pair(Module, Options) ->
    Nodes = start(2, maps:merge(#{lanes => 4}, Options)),
    Path = filename:dirname(code:which(Module)),
    _ = [begin
             true = call(Node, code, add_patha, [Path]),
             {module, Module} = call(Node, code, ensure_loaded, [Module])
         end || Node <- Nodes],
    Nodes.

start_app(Options) ->
    ok = application:load(teleport),
    _ = [application:set_env(teleport, Key, Value)
         || {Key, Value} <- maps:to_list(maps:merge(#{ip => {127, 0, 0, 1}}, Options))],
    teleport:start().

-spec stop([running()]) -> ok.
stop(Nodes) ->
    %% One that a failed case left frozen would stay.
    _ = [thaw(persistent_term:get({?MODULE, Peer})) || {Peer, _} <- Nodes],
    _ = [catch peer:stop(Peer) || {Peer, _} <- Nodes],
    ok.

call({Peer, _}, Module, Function, Args) -> peer:call(Peer, Module, Function, Args, 120000).

%% Runs `do_<What>' of a suite on the first of two nodes: with the arguments that stand behind its
%% name, and the other's name at their end.
-spec first(module(), atom() | tuple(), [running()]) -> term().
first(Suite, What, [First, {_, Second}]) -> call(First, ?MODULE, do, [Suite, What, Second]).

do(Suite, What, Node) when is_atom(What) -> do(Suite, {What}, Node);
do(Suite, What, Node) ->
    [Name | Args] = tuple_to_list(What),
    apply(Suite, list_to_existing_atom("do_" ++ atom_to_list(Name)), Args ++ [Node]).

%% In a process of its own, on that node.
spawn_do(Node, Suite, What, Last) ->
    erpc:call(Node, erlang, spawn, [?MODULE, do, [Suite, What, Last]]).

%% SIGSTOP and SIGCONT for the whole emulator; answers its process id.
freeze({Peer, _}) ->
    Pid = persistent_term:get({?MODULE, Peer}),
    _ = os:cmd("kill -STOP " ++ Pid),
    Pid.

thaw(Pid) -> os:cmd("kill -CONT " ++ Pid).

os_pid() -> os:getpid().

%% A gen_server-like process that answers calls with what it was asked.
echo() -> spawn(?MODULE, run_echo, []).

run_echo() ->
    receive
        {'$gen_call', From, {exit, Reason}} -> gen_server:reply(From, leaving), exit(Reason);
        {'$gen_call', _, {die, Reason}} -> exit(Reason);
        {'$gen_call', _, never} -> run_echo();
        {'$gen_call', _, {never, _}} -> run_echo();
        {'$gen_call', From, Request} -> gen_server:reply(From, Request), run_echo()
    end.

%% Keeps what it gets, in order.
collector() -> spawn(?MODULE, run_collector, [[]]).

run_collector(Got) ->
    receive
        {count, From} -> From ! {count, self(), length(Got)}, run_collector(Got);
        {collected, From} -> From ! {collected, self(), lists:reverse(Got)}, run_collector(Got);
        Message -> run_collector([Message | Got])
    end.

collected(Collector) ->
    Collector ! {collected, self()},
    receive {collected, Collector, Got} -> Got end.

%% Gives who keeps the reason for which the link to that node ends.
watch_peer(Node) ->
    Caller = self(),
    Watcher = spawn(fun() ->
        Ref = teleport:monitor_peer(Node),
        Caller ! {watching, self()},
        Reason = receive {teleport_down, Ref, Node, Why} -> Why end,
        receive {peer_ended, From} -> From ! {peer_ended, self(), Reason} end
    end),
    receive {watching, Watcher} -> Watcher end.

peer_ended(Watcher) ->
    Watcher ! {peer_ended, self()},
    receive {peer_ended, Watcher, Reason} -> Reason after 30000 -> silent end.

%% --- from one node to another ------------------------------------------------------------------

on(Node, Function, Args) -> erpc:call(Node, ?MODULE, Function, Args).

%% What a collector has once it has so many.
got(Node, Collector, Count) ->
    ok = wait(fun() -> on(Node, count, [Collector]) >= Count end),
    on(Node, collected, [Collector]).

flush() -> receive Message -> [Message | flush()] after 0 -> [] end.

large() -> binary:copy(<<1>>, 100000).

count(Collector) ->
    Collector ! {count, self()},
    receive {count, Collector, Count} -> Count end.

%% Until it holds; at most half a minute, for a machine that has much else to do.
-spec wait(fun(() -> boolean())) -> ok.
wait(Holds) -> wait(Holds, erlang:monotonic_time(millisecond) + 30000).

wait(Holds, UntilMs) ->
    case {Holds(), erlang:monotonic_time(millisecond) < UntilMs} of
        {true, _} -> ok;
        {false, true} -> timer:sleep(10), wait(Holds, UntilMs);
        {false, false} -> error(waited_too_long)
    end.
