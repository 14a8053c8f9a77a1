%% The sender's way to a peer, in the sender's process: it finds the route in ETS, counts what it
%% sends into the route's queue, and hands it to the writer of its lane.
%%
%% A sender above the bound waits at the link, in the order of requests, or gets `busy'. Counted
%% bytes may pass the bound by one message, which may be larger than the bound itself.
%%
%% A process has one lane to a node, by its pid: that is what keeps its messages in order, whatever
%% names it uses for who it sends to.
-module(teleport_route).

-export([send/4, call/4, monitor/3, demonitor/1]).

-include("teleport.hrl").

-spec send(node(), pid() | atom(), term(), teleport:options()) -> ok | {error, teleport:problem()}.
send(Node, To, Message, Options) when map_size(Options) =:= 0 ->
    send(Node, [To | Message], infinity, infinity, none);
send(Node, To, Message, Options) ->
    Wait = case Options of
        #{full := busy} -> 0;
        #{timeout := Ms} -> Ms;
        #{} -> infinity
    end,
    Lost = case Options of
        #{lost := Name} -> {self(), Name};
        #{} -> none
    end,
    send(Node, [To | Message], Wait, until(Wait), Lost).

send(Node, Element, Wait, UntilMs, Lost) ->
    case teleport_peers:route(Node, Wait) of
        {ok, Route} -> post(Route, Element, left(UntilMs), Lost);
        {error, Problem} -> refused(Problem, Node)
    end.

refused(Problem, Node) ->
    _ = [teleport_table:busy(Node) || Problem =:= busy],
    {error, Problem}.

-spec call(node(), pid() | atom(), term(), timeout()) -> {ok, term()} | {exit, term()}.
call(Node, To, Request, Timeout) ->
    UntilMs = until(Timeout),
    case teleport_peers:route(Node, Timeout) of
        {ok, #route{link = Link, watch = Watch} = Route} ->
            %% Late replies are dropped with the alias.
            Alias = erlang:monitor(process, Link, [{alias, reply_demonitor}]),
            ok = teleport_watch:calling(Watch, Alias),
            Result = case post(Route, {call, Alias, To, Request}, left(UntilMs), none) of
                ok ->
                    await(Alias, Route, left(UntilMs));
                {error, Problem} ->
                    true = erlang:demonitor(Alias, [flush]),
                    failed(Problem, Node)
            end,
            ok = teleport_watch:called(Watch, Alias),
            Result;
        {error, Problem} ->
            _ = refused(Problem, Node),
            failed(Problem, Node)
    end.

failed(busy, _) -> {exit, timeout};
failed(nodedown, Node) -> {exit, {nodedown, Node}};
failed(too_large, _) -> {exit, too_large}.

await(Alias, #route{node = Node} = Route, Ms) ->
    receive
        {Alias, Result} -> Result;
        {'DOWN', Alias, process, _, _} -> {exit, {nodedown, Node}}
    after Ms ->
        true = erlang:demonitor(Alias, [flush]),
        %% It may have come before the alias was gone.
        receive
            {Alias, Result} -> Result
        after 0 ->
            ok = teleport_post:withdraw(Route, self(), {cancel, Alias}),
            {exit, timeout}
        end
    end.

until(infinity) -> infinity;
until(Ms) -> erlang:monotonic_time(millisecond) + Ms.

left(infinity) -> infinity;
left(UntilMs) -> max(0, UntilMs - erlang:monotonic_time(millisecond)).

-spec monitor(node(), pid() | atom(), Object :: term()) -> reference().
monitor(Node, To, Object) ->
    Ref = make_ref(),
    case teleport_peers:route(Node, infinity) of
        {ok, #route{link = Link} = Route} ->
            ok = teleport_monitors:put(Ref, self(), Object, Link),
            ok = teleport_link:watched(Link, Ref, self()),
            case post(Route, {monitor, Ref, self(), To}, infinity, none) of
                ok ->
                    %% A link that ended before the row was there didn't see it.
                    _ = [teleport_monitors:down(Ref, self(), noconnection)
                         || not is_process_alive(Link)],
                    Ref;
                {error, _} ->
                    ok = teleport_monitors:down(Ref, self(), noconnection),
                    Ref
            end;
        {error, _} ->
            self() ! {'DOWN', Ref, process, Object, noconnection},
            Ref
    end.

-spec demonitor(reference()) -> ok.
demonitor(Ref) ->
    case teleport_monitors:drop(Ref) of
        {ok, Link} -> teleport_link:unwatched(Link, Ref);
        none -> ok
    end,
    receive {'DOWN', Ref, process, _, _} -> ok after 0 -> ok end.

%% --- posting -----------------------------------------------------------------------------------

post(#route{queue = Queue, queue_bytes_max = Max} = Route, Element, Wait, Lost) ->
    case teleport_post:cost(Route, Element) of
        {error, _} = Error ->
            Error;
        {Way, Cost} ->
            case atomics:add_get(Queue, ?QUEUE_OF(Way), Cost) of
                Bytes when Bytes - Cost < Max ->
                    teleport_post:hand_over(Way, Route, self(), Element, Cost, Lost);
                _ ->
                    ok = teleport_post:take_back(Route, Way, Cost),
                    full(Way, Route, Element, Wait, Lost)
            end
    end.

full(_, #route{node = Node}, _, 0, _) ->
    refused(busy, Node);
full(Way, #route{link = Link, node = Node} = Route, Element, Wait, Lost) ->
    UntilMs = until(Wait),
    Alias = erlang:monitor(process, Link, [{alias, reply_demonitor}]),
    ok = teleport_link:wait_for_room(Link, Way, Alias),
    Result = receive
        {Alias, room} -> room;
        {'DOWN', Alias, process, _, _} -> {error, nodedown}
    after left(UntilMs) ->
        true = erlang:demonitor(Alias, [flush]),
        receive {Alias, room} -> ok after 0 -> teleport_link:waits_no_more(Link, Alias) end,
        refused(busy, Node)
    end,
    case Result of
        room -> post(Route, Element, left(UntilMs), Lost);
        {error, _} -> Result
    end.
