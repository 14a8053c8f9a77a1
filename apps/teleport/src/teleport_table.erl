%% The data that senders and links read without calling a process: routes, counts, the readers of
%% each link, the processes that wait for the end of a link, and which start of teleport_peers this
%% is. teleport_keeper owns the tables; teleport_peers alone writes the routes and the waiting
%% processes.
-module(teleport_table).

-export([new/0, begin_anew/0, instance/0, route/1, put_route/2, drop_route/1, nodes/0, stats/1,
         busy/1, dial_failed/2, status/1, reader/2, reader_gone/2, take_readers/1]).

-include("teleport.hrl").

-define(ROUTES, teleport_routes).
-define(READERS, teleport_readers).
-define(STATS_OF, teleport_stats).

%% In the calling process, which owns them.
-spec new() -> ok.
new() ->
    ?ROUTES = ets:new(?ROUTES, [named_table, public, {read_concurrency, true}]),
    ?STATS_OF = ets:new(?STATS_OF, [named_table, public]),
    ?READERS = ets:new(?READERS, [named_table, public, bag]),
    ok.

%% Without links, as another instance, whose count of them begins again. Gives the readers that
%% those before may have left.
-spec begin_anew() -> [Reader :: pid()].
begin_anew() ->
    ok = persistent_term:put({?MODULE, instance}, crypto:strong_rand_bytes(16)),
    true = ets:delete_all_objects(?ROUTES),
    Readers = [Reader || {_, Reader} <- ets:tab2list(?READERS)],
    true = ets:delete_all_objects(?READERS),
    _ = [atomics:put(Stats, ?CONNECTIONS, 0) || {_, Stats} <- ets:tab2list(?STATS_OF)],
    Readers.

%% This start of teleport_peers: sixteen bytes that no other has.
-spec instance() -> binary().
instance() -> persistent_term:get({?MODULE, instance}).

-spec route(node()) -> {ok, #route{}} | none | not_running.
route(Node) ->
    try ets:lookup(?ROUTES, Node) of
        [{_, Route}] -> {ok, Route};
        [] -> none
    catch
        error:badarg -> not_running
    end.

-spec put_route(node(), #route{}) -> ok.
put_route(Node, Route) ->
    true = ets:insert(?ROUTES, {Node, Route}),
    ok.

-spec drop_route(node()) -> ok.
drop_route(Node) ->
    true = ets:delete(?ROUTES, Node),
    ok.

-spec nodes() -> [node()].
nodes() ->
    try ets:match(?ROUTES, {'$1', '_'}) of
        Found -> lists:sort([Node || [Node] <- Found])
    catch
        error:badarg -> []
    end.

%% The counts of a node, which outlast its links.
-spec stats(node()) -> atomics:atomics_ref().
stats(Node) ->
    case ets:lookup(?STATS_OF, Node) of
        [{_, Stats}] -> Stats;
        [] ->
            Stats = atomics:new(?STATS, []),
            true = ets:insert(?STATS_OF, {Node, Stats}),
            Stats
    end.

%% A sender was told so.
-spec busy(node()) -> ok.
busy(Node) ->
    try atomics:add(ets:lookup_element(?STATS_OF, Node, 2), ?BUSY, 1)
    catch error:badarg -> ok
    end.

%% A dial to the node, or a further connection of its link, was refused or led to nobody.
-spec dial_failed(node(), refused | failed) -> ok.
dial_failed(Node, refused) -> atomics:add(stats(Node), ?DIALS_REFUSED, 1);
dial_failed(Node, failed) -> atomics:add(stats(Node), ?DIALS_FAILED, 1).

%% Without the application a link is down, too.
-spec status(node()) -> teleport:status().
status(Node) ->
    Get = try ets:lookup_element(?STATS_OF, Node, 2) of
        Stats -> fun(Index) -> atomics:get(Stats, Index) end
    catch
        error:badarg -> fun(_) -> 0 end
    end,
    Counts = #{sent => Get(?SENT), received => Get(?RECEIVED), refused => Get(?REFUSED),
               busy => Get(?BUSY), dials_refused => Get(?DIALS_REFUSED),
               dials_failed => Get(?DIALS_FAILED)},
    case route(Node) of
        {ok, #route{queue = Queue, queue_bytes_max = Max}} ->
            RoundTrip = case Get(?ROUND_TRIP_US) of 0 -> undefined; Us -> Us end,
            Counts#{state => up, connections => Get(?CONNECTIONS), round_trip_us => RoundTrip,
                    queue_bytes => max(0, atomics:get(Queue, ?QUEUE_SMALL)
                                          + atomics:get(Queue, ?QUEUE_LARGE)),
                    queue_bytes_max => 2 * Max, waiting => atomics:get(Queue, ?QUEUE_WAITING)};
        _ ->
            Counts#{state => down, connections => 0, round_trip_us => undefined, queue_bytes => 0,
                    queue_bytes_max => teleport_options:queue_bytes_max(), waiting => 0}
    end.

%% A link's reader, before it begins.
-spec reader(Link :: pid(), Reader :: pid()) -> ok.
reader(Link, Reader) ->
    true = ets:insert(?READERS, {Link, Reader}),
    ok.

-spec reader_gone(Link :: pid(), Reader :: pid()) -> ok.
reader_gone(Link, Reader) ->
    true = ets:delete_object(?READERS, {Link, Reader}),
    ok.

-spec take_readers(Link :: pid()) -> [pid()].
take_readers(Link) -> [Reader || {_, Reader} <- ets:take(?READERS, Link)].
