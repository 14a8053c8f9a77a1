%% Processes that are killed while they wait for a peer leave no trace: two real nodes.
-module(teleport_killed_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([senders_that_wait/1, callers/1, callers_at_the_bound/1]).
%% Run on other nodes.
-export([do_pid/1, do_send_on/3, do_call/3, do_kill/1]).

-import(teleport_test_nodes, [on/3, call/4, wait/1]).

-define(COUNT, 10).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [senders_that_wait, callers, callers_at_the_bound].

with(Test) ->
    %% The link outlasts a peer that stands still while a lane is dialed.
    Nodes = teleport_test_nodes:pair(?MODULE, #{queue_bytes_max => 1 bsl 20,
                                                connect_ms_max => 120000}),
    try Test(Nodes) after teleport_test_nodes:stop(Nodes) end.

first(What, Nodes) -> teleport_test_nodes:first(?MODULE, What, Nodes).

%% --- on the nodes ------------------------------------------------------------------------------

%% One that never answers, and a link.
do_pid(Node) ->
    ok = teleport:connect(Node),
    on(Node, collector, []).

do_send_on(To, Count, _) -> keep([spawn(fun() -> send_on(To) end) || _ <- lists:seq(1, Count)]).

send_on(To) ->
    ok = teleport:send(To, binary:copy(<<1>>, 1000)),
    send_on(To).

do_call(To, Count, _) ->
    keep([spawn(fun() -> teleport:call(To, {never, self()}, infinity) end)
          || _ <- lists:seq(1, Count)]).

keep(Pids) -> persistent_term:put(?MODULE, Pids).

do_kill(_) ->
    Ended = [begin true = exit(Pid, kill), erlang:monitor(process, Pid) end
             || Pid <- persistent_term:get(?MODULE)],
    _ = [receive {'DOWN', Ref, process, _, _} -> ok end || Ref <- Ended],
    ok.

waiting(First, {_, Node}) ->
    #{state := up, waiting := Waiting} = call(First, teleport, status, [Node]),
    Waiting.

%% The rows of the calls that are open there.
open_calls(Node) ->
    Tables = [Table || Table <- call(Node, ets, all, []),
                       call(Node, ets, info, [Table, name]) =:= teleport_calls],
    lists:append([call(Node, ets, tab2list, [Table]) || Table <- Tables]).

watched_by(Node, Pid) ->
    {monitored_by, By} = call(Node, erlang, process_info, [Pid, monitored_by]),
    length(By).

%% Who is to receive stands still, and as many senders as there are wait for room.
stopped_and_full(To, [First, Second] = Nodes) ->
    Stopped = teleport_test_nodes:freeze(Second),
    ok = first({send_on, To, ?COUNT}, Nodes),
    ok = wait(fun() -> waiting(First, Second) =:= ?COUNT end),
    Stopped.

%% --- cases -------------------------------------------------------------------------------------

%% A sender that was killed is no longer counted as one that waits.
senders_that_wait(_) ->
    with(fun([First, Second] = Nodes) ->
        To = first(pid, Nodes),
        Stopped = stopped_and_full(To, Nodes),
        ok = first(kill, Nodes),
        ok = wait(fun() -> waiting(First, Second) =:= 0 end),
        teleport_test_nodes:thaw(Stopped)
    end).

%% The peer forgets their calls, and who was called is no longer watched.
callers(_) ->
    with(fun([_, Second] = Nodes) ->
        To = first(pid, Nodes),
        ok = first({call, To, ?COUNT}, Nodes),
        ok = wait(fun() -> watched_by(Second, To) =:= ?COUNT end),
        ?assertEqual(2 * ?COUNT, length(open_calls(Second))),
        ok = first(kill, Nodes),
        ok = wait(fun() -> open_calls(Second) =:= [] andalso watched_by(Second, To) =:= 0 end)
    end).

%% Some have posted their request and some wait for room when they are killed.
callers_at_the_bound(_) ->
    with(fun([First, Second] = Nodes) ->
        To = first(pid, Nodes),
        Stopped = stopped_and_full(To, Nodes),
        ok = first(kill, Nodes),
        ok = first({call, To, ?COUNT}, Nodes),
        timer:sleep(200),
        ok = first(kill, Nodes),
        ok = wait(fun() -> waiting(First, Second) =:= 0 end),
        teleport_test_nodes:thaw(Stopped),
        %% What was posted has come when this has.
        {_, Node} = Second,
        Last = first(pid, Nodes),
        ok = call(First, teleport, send, [Last, last]),
        ok = wait(fun() ->
            call(First, teleport_test_nodes, on, [Node, count, [Last]]) =:= 1
                andalso open_calls(Second) =:= []
        end)
    end).
