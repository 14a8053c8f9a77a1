%% Monitors that processes of this node have of processes elsewhere, and of links, in ETS. The
%% process that takes a row sends its 'DOWN' or `teleport_down' or drops it, so that there is one at
%% most: the reader, the end of the link, or `demonitor'. The link gets the changes that it wouldn't
%% hear of otherwise.
-module(teleport_monitors).

-export([new/0, put/4, down/3, drop/1, link_ended/1, put_peer/3, drop_peer/1, peer_ended/2]).
-export([all_ended/1]).

-define(PEERS, teleport_peer_monitors).

%% In the calling process, which owns the table.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ?PEERS = ets:new(?PEERS, [named_table, public]),
    ok.

-spec put(reference(), Watcher :: pid(), Object :: term(), Link :: pid()) -> ok.
put(Ref, Watcher, Object, Link) ->
    true = ets:insert(?MODULE, {Ref, Watcher, Object, Link}),
    ok.

-spec down(reference(), Watcher :: pid(), Reason :: term()) -> ok.
down(Ref, Watcher, Reason) ->
    case ets:lookup(?MODULE, Ref) of
        [{_, Watcher, _, _}] -> take(Ref, Reason);
        _ -> ok
    end.

take(Ref, Reason) ->
    case ets:take(?MODULE, Ref) of
        [{_, Watcher, Object, Link}] ->
            Watcher ! {'DOWN', Ref, process, Object, Reason},
            Link ! {monitor_ended, Ref},
            ok;
        [] -> ok
    end.

%% Gives the link that the monitor was on. There is none without the application.
-spec drop(reference()) -> {ok, pid()} | none.
drop(Ref) ->
    try ets:take(?MODULE, Ref) of
        [{_, _, _, Link}] -> {ok, Link};
        [] -> none
    catch
        error:badarg -> none
    end.

-spec link_ended(pid()) -> ok.
link_ended(Link) ->
    _ = [take(Ref, noconnection)
         || [Ref] <- ets:match(?MODULE, {'$1', '_', '_', Link})],
    ok.

%% --- of links: teleport_peers alone --------------------------------------------------------------

-spec put_peer(reference(), node(), Watcher :: pid()) -> ok.
put_peer(Ref, Node, Watcher) ->
    true = ets:insert(?PEERS, {Ref, Node, Watcher}),
    ok.

%% Whether it was one.
-spec drop_peer(reference()) -> boolean().
drop_peer(Ref) -> ets:take(?PEERS, Ref) =/= [].

%% Gives those that were told.
-spec peer_ended(node(), Reason :: term()) -> [reference()].
peer_ended(Node, Reason) ->
    [begin
         Watcher ! {teleport_down, Ref, Node, Reason},
         true = drop_peer(Ref),
         Ref
     end || {Ref, _, Watcher} <- ets:match_object(?PEERS, {'_', Node, '_'})].

%% All links are gone, and who knew them.
-spec all_ended(Reason :: term()) -> ok.
all_ended(Reason) ->
    _ = [take(Ref, noconnection) || {Ref, _, _, _} <- ets:tab2list(?MODULE)],
    Nodes = lists:usort([Node || {_, Node, _} <- ets:tab2list(?PEERS)]),
    _ = [peer_ended(Node, Reason) || Node <- Nodes],
    ok.
