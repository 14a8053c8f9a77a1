%% The calls: messages to processes of other nodes over teleport's own connections.
%%
%% A destination is a pid, `{Name, Node}', or a local name. The first message to a node connects to
%% it, and the sender waits for that; one node has one link to another, whoever began it.
%%
%% Promised, until a link ends: messages of one process to the processes of one node arrive in the
%% order of sending, and at most once. Nothing is sent again. When a link ends, messages on their
%% way are lost, and their senders learn of it: by `monitor_peer/1' (the link ended), by the option
%% `lost' (this message may be lost), by an exit of `call', by the 'DOWN' of a monitor.
%%
%% The queue for a peer is bounded (`queue_bytes_max'). At the bound a sender waits, or gets
%% `{error, busy}' if it passed `full => busy'. A destination that is no longer there is no error,
%% as with `!'.
%%
%% It is not a way for funs, nor for pids, ports and references of third nodes. A message with one
%% is refused where it arrives, and counted there (`refused'); a call with one exits.
-module(teleport).

-export([start/0, send/2, send/3, cast/2, cast/3, call/2, call/3, gs_call/3]).
-export([monitor/1, demonitor/1, monitor_peer/1, demonitor_peer/1]).
-export([connect/1, disconnect/1, add_peer/2, peers/0, status/1, connections_refused/0]).
-export([name_for_node/1]).
-export_type([dest/0, options/0, status/0, problem/0]).

-type dest() :: pid() | {Name :: atom(), node()} | Local :: atom().
%% `full': what to do at the bound; waits if not given. `timeout': how long to wait at the bound, in
%% milliseconds; then `{error, busy}'. Both count while a link is being made, too. `lost': a term
%% that names this message. If the link ends before the peer said that it has the message, the
%% sender gets `{teleport_lost, Node, [Lost]}', with the names of such messages in the order of
%% sending; more than one if there are many. What is named may have arrived all the same.
-type options() :: #{full => wait | busy, timeout => timeout(), lost => term()}.
%% `nodedown': there is no link and none can be made now. `busy': the bound is reached.
%% `too_large': the message is above the peer's `message_bytes_max'.
-type problem() :: nodedown | busy | too_large.
%% `connections': sockets that are open. `round_trip_us': of the last ping, `undefined' before it.
%% `sent', `received': messages. `refused': messages that came and were not taken. `busy': how often
%% a sender was told that. `waiting': senders that wait at the bound. `queue_bytes': what was sent
%% and waits here. `dials_refused': dials that the node refused, or another one at its address, for
%% what is set up wrong; `dials_failed': others that led to no connection.
-type status() :: #{state := up | down, connections := non_neg_integer(),
                    queue_bytes := non_neg_integer(), queue_bytes_max := pos_integer(),
                    round_trip_us := undefined | non_neg_integer(), sent := non_neg_integer(),
                    received := non_neg_integer(), refused := non_neg_integer(),
                    busy := non_neg_integer(), waiting := non_neg_integer(),
                    dials_refused := non_neg_integer(), dials_failed := non_neg_integer()}.

-define(CALL_MS, 5000).

%% Starts the application and what it needs.
-spec start() -> ok | {error, term()}.
start() ->
    case application:ensure_all_started(teleport) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

-spec send(dest(), Message :: term()) -> ok | {error, problem()}.
send(Dest, Message) -> send(Dest, Message, #{}).

%% `ok': the message is on its way.
-spec send(dest(), Message :: term(), options()) -> ok | {error, problem()}.
send(Dest, Message, Options) ->
    case place(Dest) of
        {Node, To} -> teleport_route:send(Node, To, Message, Options);
        Local -> to_local(Local, Message)
    end.

-spec cast(dest(), Request :: term()) -> ok | {error, problem()}.
cast(Dest, Request) -> send(Dest, {'$gen_cast', Request}).

%% To a gen_server, as `gen_server:cast/2'.
-spec cast(dest(), Request :: term(), options()) -> ok | {error, problem()}.
cast(Dest, Request, Options) -> send(Dest, {'$gen_cast', Request}, Options).

-spec call(dest(), Request :: term()) -> Reply :: term().
call(Dest, Request) -> call(Dest, Request, ?CALL_MS).

%% As `gen_server:call/3': gives the reply or exits with `{Reason, {teleport, call, _}}', where the
%% reason is `timeout', `noproc', the server's exit reason, `{nodedown, Node}' (no link, or it ended
%% before the reply came), `too_large', or `{refused, Why}' (the peer didn't take the request). The
%% reply comes over the link; one that comes too late is dropped. The `From' that the server sees is
%% of a process on its own node, which `gen_server:reply/2' takes as any other.
-spec call(dest(), Request :: term(), timeout()) -> Reply :: term().
call(Dest, Request, Timeout) ->
    Result = case place(Dest) of
        {Node, To} -> teleport_route:call(Node, To, Request, Timeout);
        Local -> {ok, gen_server:call(Local, Request, Timeout)}
    end,
    case Result of
        {ok, Reply} -> Reply;
        {exit, Reason} -> exit({Reason, {?MODULE, call, [Dest, Request, Timeout]}})
    end.

%% The original's call.
-spec gs_call(dest(), Request :: term(), timeout()) -> {ok, Reply :: term()}.
gs_call(Dest, Request, Timeout) -> {ok, call(Dest, Request, Timeout)}.

%% As `erlang:monitor(process, Dest)': one `{'DOWN', Ref, process, Dest, Reason}' comes, behind all
%% messages that the process sent by teleport before it ended. The reason is `noconnection' if the
%% link ended, or couldn't be made.
-spec monitor(pid() | {atom(), node()}) -> reference().
monitor(Dest) ->
    case place(Dest) of
        {Node, To} -> teleport_route:monitor(Node, To, Dest);
        Local -> erlang:monitor(process, Local)
    end.

%% No 'DOWN' of this monitor is in the mailbox afterwards, nor comes.
-spec demonitor(reference()) -> ok.
demonitor(Ref) ->
    _ = erlang:demonitor(Ref, [flush]),
    teleport_route:demonitor(Ref).

%% One `{teleport_down, Ref, Node, Reason}' comes when the link to the node ends, at once if there
%% is none. It connects to nobody. What was sent to that node before the message, and wasn't
%% answered, may be lost.
-spec monitor_peer(node()) -> reference().
monitor_peer(Node) -> teleport_peers:monitor_peer(Node).

%% No `teleport_down' of it is in the mailbox afterwards, nor comes.
-spec demonitor_peer(reference()) -> ok.
demonitor_peer(Ref) -> teleport_peers:demonitor_peer(Ref).

%% Connects if there is no link. For a while after a dial that failed it dials nobody, and says
%% `nodedown'; after refusals this rest grows up to 5 s (teleport_rest).
-spec connect(node()) -> ok | {error, nodedown}.
connect(Node) ->
    case teleport_peers:route(Node, infinity) of
        {ok, _} -> ok;
        {error, _} -> {error, nodedown}
    end.

%% Ends the link, if there is one: what is on its way is lost. It also ends a rest after refusals:
%% the next `connect/1' dials.
-spec disconnect(node()) -> ok.
disconnect(Node) -> teleport_peers:disconnect(Node).

%% From now on a node of this name may dial, and is dialled there, as if `peers' had it. A link that
%% is there stays.
-spec add_peer(node(), {inet:ip_address() | inet:hostname(), inet:port_number()}) -> ok.
add_peer(Node, Place) -> teleport_options:add_peer(Node, Place).

%% The nodes to which there is a link.
-spec peers() -> [node()].
peers() -> teleport_table:nodes().

-spec status(node()) -> status().
status(Node) -> teleport_table:status(Node).

%% Connections to this node that it refused, since the application first began on it.
-spec connections_refused() -> non_neg_integer().
connections_refused() -> teleport_listener:refused().

%% A name of the link's process for `sys' and other calls that take a via tuple.
-spec name_for_node(node()) -> {via, module(), node()}.
name_for_node(Node) -> {via, teleport_peers, Node}.

%% --- destinations ------------------------------------------------------------------------------

place(Pid) when is_pid(Pid) ->
    case node(Pid) of
        Node when Node =:= node() -> Pid;
        Node -> {Node, Pid}
    end;
place({Name, Node}) when is_atom(Name), Node =:= node() -> Name;
place({Name, Node}) when is_atom(Name), is_atom(Node) -> {Node, Name};
place(Name) when is_atom(Name) -> Name;
place(_) -> error(badarg).

to_local(Pid, Message) when is_pid(Pid) ->
    Pid ! Message,
    ok;
to_local(Name, Message) ->
    case whereis(Name) of
        undefined -> ok;
        To -> To ! Message, ok
    end.
