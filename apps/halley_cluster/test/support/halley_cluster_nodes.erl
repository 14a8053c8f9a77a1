%% Brains of one cluster, each a real node with a folder of its own, on the loopback interface.
%% Functions of test modules run there by `call/4'.
-module(halley_cluster_nodes).

-export([start/2, start/3, start_single/0, stop/1, kill/1, call/4, name/1]).
%% Run on the nodes.
-export([brain/1, again/0, os_pid/0]).

-define(SECRET, "a secret of sixteen bytes and more").
-define(READY_MS, 30000).

-type running() :: {Peer :: pid(), node()}.

%% They find each other by the log's table of brains.
-spec start(pos_integer(), halley_cluster_postgres:settings()) -> [running()].
start(Count, Engine) -> start(Count, Engine, []).

%% `Env': of the application `halley'.
-spec start(pos_integer(), halley_cluster_postgres:settings(), [{atom(), term()}]) -> [running()].
start(Count, Engine, Env) ->
    Nodes = [new_node() || _ <- lists:seq(1, Count)],
    [ok = call(Node, ?MODULE, brain, [#{dir => dir(Node), engine => Engine, port => free_port(),
                                         env => Env}])
     || Node <- Nodes],
    Nodes.

%% One brain without a cluster.
-spec start_single() -> [running()].
start_single() ->
    Node = new_node(),
    ok = call(Node, ?MODULE, brain, [#{dir => dir(Node)}]),
    [Node].

new_node() ->
    Paths = [Path || Path <- code:get_path(), string:find(Path, "_build") =/= nomatch],
    {ok, Peer, Node} = peer:start(#{
        name => peer:random_name("cl"), host => "127.0.0.1", longnames => true,
        connection => standard_io, wait_boot => 60000,
        args => ["-kernel", "logger_level", "error", "-connect_all", "false",
                 "-kernel", "prevent_overlapping_partitions", "false", "-pa" | Paths]}),
    Running = {Peer, Node},
    persistent_term:put({?MODULE, Peer}, {call(Running, ?MODULE, os_pid, []),
                                          string:trim(os:cmd("mktemp -d"))}),
    Running.

%% Its data are there.
dir({Peer, _}) -> element(2, persistent_term:get({?MODULE, Peer})).

free_port() ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    ok = gen_tcp:close(Listener),
    Port.

brain(#{dir := Dir, engine := Postgres, port := Port, env := Env}) ->
    Engine = {halley_cluster_postgres, Postgres},
    _ = [application:load(App) || App <- [teleport, halley, halley_cluster]],
    _ = [application:set_env(teleport, Key, Value)
         || {Key, Value} <- [{ip, {127, 0, 0, 1}}, {port, Port}, {address, "127.0.0.1"},
                             {secret, ?SECRET}, {discovery, false}, {silent_ms_max, 2000},
                             {ping_ms, 500}]],
    ok = teleport:start(),
    {ok, _} = application:ensure_all_started(jiffy),
    {ok, _} = application:ensure_all_started(ssl),
    ok = application:set_env(halley, data_dir, Dir),
    {ok, #{store := Store, head := Head} = Place} = halley_cluster_joining:place(Engine),
    ok = application:set_env(halley, new_store, {Store, Head}),
    _ = [ok = application:set_env(halley, Key, Value) || {Key, Value} <- Env],
    ok = application:set_env(halley, order, halley_cluster_brain:names()),
    ok = halley_limits:set(#{}),
    Name = atom_to_binary(erlang:node()),
    Address = iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]),
    Settings = #{name => Name, address => Address, engine => Engine, joining => Place},
    ok = persistent_term:put({?MODULE, settings}, Settings),
    ok = started(fun() ->
        {ok, _} = halley_sup:start_link(),
        {ok, _} = halley_cluster_sup:start_link(Settings)
    end),
    ready(?READY_MS);
brain(#{dir := Dir}) ->
    {ok, _} = application:ensure_all_started(jiffy),
    ok = application:set_env(halley, data_dir, Dir),
    ok = halley_limits:set(#{}),
    started(fun() -> {ok, _} = halley_sup:start_link() end).

%% The cluster's processes alone, with the data that are there.
again() ->
    _ = process_flag(trap_exit, true),
    halley_cluster_sup:start_link(persistent_term:get({?MODULE, settings})).

%% By a process that lives on.
started(Start) ->
    Starter = self(),
    {_, Monitor} = spawn_monitor(fun() ->
        _ = Start(),
        _ = process_flag(trap_exit, true),
        Starter ! ready,
        receive never -> ok end
    end),
    receive
        ready -> ok;
        {'DOWN', Monitor, _, _, Reason} -> {error, Reason}
    after ?READY_MS -> timeout
    end.

ready(Ms) when Ms > 0 ->
    case halley_cluster_brain:info() of
        #{readiness := ready} -> ok;
        _ -> receive after 20 -> ready(Ms - 20) end
    end;
ready(_) ->
    {error, halley_cluster_brain:info()}.

-spec stop([running()]) -> ok.
stop(Nodes) ->
    lists:foreach(fun ended/1, Nodes).

ended({Peer, _} = Node) ->
    _ = (catch peer:stop(Peer)),
    _ = file:del_dir_r(dir(Node)),
    ok.

%% As a machine that loses its power.
-spec kill(running()) -> ok.
kill({Peer, _} = Node) ->
    _ = os:cmd("kill -KILL " ++ element(1, persistent_term:get({?MODULE, Peer}))),
    ended(Node).

name({_, Node}) -> atom_to_binary(Node).

os_pid() -> os:getpid().

call({Peer, _}, Module, Function, Args) -> peer:call(Peer, Module, Function, Args, 60000).
