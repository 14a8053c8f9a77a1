%% Nodes to test with: a brain that back ends attach to, and a back end. Both are real nodes, which
%% a case may stop, kill and start again.
-module(halley_backends_nodes).

-export([start_brain/2, start_brain/3, start_back_end/2, stop/1, kill/1, freeze/1, thaw/1, call/4,
         free_port/0, wait/1]).
%% Run on the nodes.
-export([brain/4, back_end/3, os_pid/0, hold/1, fill/1, feeds/3,
         reader/2, got/1, take/1, logged_in/1]).

-define(SECRET, "a secret of sixteen bytes and more").

%% Its name is that of the store in Dir.
start_brain(Dir, Port) -> start_brain(Dir, Port, #{}).

start_brain(Dir, Port, Limits) ->
    Brain = node("brain", Port),
    File = filename:join(Dir, "secret"),
    ok = file:write_file(File, ?SECRET ++ "\n"),
    ok = call(Brain, ?MODULE, brain, [filename:join(Dir, "data"), Port, File, Limits]),
    Brain.

start_back_end(Port, Options) ->
    BackEnd = node("backend", Port),
    ok = call(BackEnd, ?MODULE, back_end, [brain_name(Port), Port, Options]),
    BackEnd.

%% The port makes names that no other run has.
node(Name, Port) ->
    Paths = [Path || Path <- code:get_path(), string:find(Path, "_build") =/= nomatch],
    {ok, Peer, Node} = peer:start(#{
        name => Name ++ integer_to_list(Port), host => "127.0.0.1", longnames => true,
        connection => standard_io, wait_boot => 60000,
        args => ["-kernel", "logger_level", "none", "-connect_all", "false",
                 "-pa" | Paths]}),
    Running = {Peer, Node},
    persistent_term:put({?MODULE, Peer}, call(Running, ?MODULE, os_pid, [])),
    Running.

brain_name(Port) -> list_to_atom("brain" ++ integer_to_list(Port) ++ "@127.0.0.1").

brain(Dir, Port, File, Limits) ->
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    ok = application:set_env(halley, data_dir, Dir),
    ok = halley_limits:set(maps:without([transport], Limits)),
    _ = [application:load(App) || App <- [teleport, halley_backends]],
    _ = [application:set_env(teleport, Key, Value)
         || {Key, Value} <- maps:to_list(maps:get(transport, Limits, #{}))],
    {ok, _} = application:ensure_all_started(jiffy),
    Settings = #{ip => {127, 0, 0, 1}, port => Port, secret_file => File,
                 backends => [list_to_atom("backend" ++ integer_to_list(Port) ++ "@127.0.0.1")]},
    Starter = self(),
    {_, Monitor} = spawn_monitor(fun() ->
        {ok, _} = halley_sup:start_link(),
        {ok, _} = halley_backends_sup:start_link(Settings),
        _ = process_flag(trap_exit, true),
        Starter ! ready,
        receive never -> ok end
    end),
    receive
        ready -> ok;
        {'DOWN', Monitor, _, _, Reason} -> {error, Reason}
    after 30000 -> timeout
    end.

back_end(Brain, Port, Options) ->
    _ = application:load(teleport),
    _ = [application:set_env(teleport, Key, Value)
         || {Key, Value} <- maps:to_list(maps:get(transport, Options, #{}))],
    Through = maps:get(through, Options, Port),
    halley_remote:start(maps:merge(#{node => Brain, host => {127, 0, 0, 1}, port => Through,
                                     secret => <<?SECRET>>},
                                   maps:without([transport, through], Options))).

stop({Peer, _} = Node) ->
    _ = thaw(Node),
    _ = (catch peer:stop(Peer)),
    ok.

%% As a machine that loses its power.
kill({Peer, _}) ->
    _ = os:cmd("kill -KILL " ++ persistent_term:get({?MODULE, Peer})),
    _ = (catch peer:stop(Peer)),
    ok.

freeze({Peer, _}) -> os:cmd("kill -STOP " ++ persistent_term:get({?MODULE, Peer})).
thaw({Peer, _}) -> os:cmd("kill -CONT " ++ persistent_term:get({?MODULE, Peer})).

call({Peer, _}, Module, Function, Args) -> peer:call(Peer, Module, Function, Args, 60000).

os_pid() -> os:getpid().

%% Nothing happens in that process as long as this one is there.
hold(Name) ->
    true = erlang:suspend_process(whereis(Name)),
    receive never -> ok end.

%% Sends to that node until there has been no room for a while.
fill(Node) -> fill(Node, 10).

fill(_, 0) ->
    ok;
fill(Node, Left) ->
    case teleport:send({nobody, Node}, <<0:8000>>, #{full => busy}) of
        ok -> fill(Node, 10);
        {error, busy} -> timer:sleep(20), fill(Node, Left - 1)
    end.

%% So many sessions ask the feed at once, with the same cursor. Gives what each got, and the most
%% places that were large at a time, as far as was seen.
feeds(User, Cursor, Count) ->
    Asker = self(),
    Sessions = [spawn(fun() -> feed(User, Cursor, Asker) end) || _ <- lists:seq(1, Count)],
    _ = [receive {added, Session} -> ok end || Session <- Sessions],
    ok = sys:suspend(halley_backends_feed),
    _ = [Session ! ask || Session <- Sessions],
    timer:sleep(100),
    ok = sys:resume(halley_backends_feed),
    all_fed(Sessions, 0, []).

feed(User, Cursor, Asker) ->
    _ = halley_backends_feed:add(User, Cursor),
    Asker ! {added, self()},
    receive ask -> Asker ! {fed, self(), fed([])} end.

fed(Before) ->
    ok = halley_backends_feed:want(halley_history:heads()),
    receive
        {fed, Items, _, done} -> Before ++ Items;
        {fed, Items, _, more} -> fed(Before ++ Items)
    end.

all_fed([], Most, Got) ->
    {Got, Most};
all_fed(Sessions, Most, Got) ->
    {Turns, _} = sys:get_state(halley_backends_feed),
    Large = halley_turns:kept(Turns),
    receive
        {fed, Session, Items} -> all_fed(Sessions -- [Session], max(Most, Large), [Items | Got])
    after 0 -> all_fed(Sessions, max(Most, Large), Got)
    end.

%% Below the ports that the kernel gives to connections: one of those may be taken at any moment.
free_port() ->
    Port = 10000 + rand:uniform(20000),
    case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}]) of
        {ok, Socket} -> ok = gen_tcp:close(Socket), Port;
        {error, eaddrinuse} -> free_port()
    end.

wait(Holds) -> wait(Holds, erlang:monotonic_time(millisecond) + 30000).

wait(Holds, UntilMs) ->
    case {Holds(), erlang:monotonic_time(millisecond) < UntilMs} of
        {true, _} -> ok;
        {false, true} -> timer:sleep(20), wait(Holds, UntilMs);
        {false, false} -> error(waited_too_long)
    end.

%% --- a process of a back end -------------------------------------------------------------------

%% It logs in and keeps what it gets, once it is told to take it, in order.
reader(User, Options) ->
    Starter = self(),
    Pid = spawn(fun() ->
        case halley_remote:login(User, maps:without([takes], Options)) of
            {ok, Session} ->
                Starter ! {self(), ok},
                read(Session, maps:get(takes, Options, true), []);
            {error, _} = Error ->
                Starter ! {self(), Error}
        end
    end),
    receive {Pid, ok} -> {ok, Pid}; {Pid, Error} -> Error end.

read(Session, false, Got) ->
    receive
        take -> read(Session, true, Got);
        {logged_in, From} -> From ! {self(), Session}, read(Session, false, Got)
    end;
read(Session, true, Got) ->
    receive
        {got, From} -> From ! {self(), lists:reverse(Got)}, read(Session, true, Got);
        {logged_in, From} -> From ! {self(), Session}, read(Session, true, Got);
        Message -> read(Session, true, [Message | Got])
    end.

got(Pid) ->
    Pid ! {got, self()},
    receive {Pid, Got} -> Got end.

logged_in(Pid) ->
    Pid ! {logged_in, self()},
    receive {Pid, Session} -> Session end.

take(Pid) ->
    Pid ! take,
    ok.
