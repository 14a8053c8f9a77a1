%% Live sessions as the API shows them: what the brain knows of each, joined with what its worker
%% says of the connection (INSPECT, protocol/link.md 10.8).
%%
%% The link is not known here: the environment names the function that asks a worker (`halley',
%% `inspect'), as {Module, Function}, called with slot, connection and a time in milliseconds. It
%% gives {ok, Map} with the fields of INSPECTED, `timeout', or `gone' when the link is.
%%
%% Workers are called in parallel, each about one connection after the other, and all of them
%% together until a deadline: a worker that hangs costs the answers about its own connections only.
-module(halley_api_sessions).

-export([seen/1, json/1]).
-export_type([seen/0]).

-include("halley_api_limits.hrl").

%% `process': an Erlang process of the brain's node, which has no outbox; `remote': one of another
%% node, for which one of this node hands on. Numbers of bytes, of events and of milliseconds are
%% there when the worker has answered. A trace adds `passed' and `began'.
-type seen() :: #{state := opening | held | live | closing | gone | unknown,
                  transport := sse | ndjson | websocket | test | poll | process | remote
                               | unknown,
                  worker => non_neg_integer(), edge => pos_integer(),
                  outbox_bytes => non_neg_integer(), outbox_events => non_neg_integer(),
                  outbox_ms => non_neg_integer(), held => non_neg_integer(),
                  dropped => non_neg_integer(), conflated => non_neg_integer(),
                  passed => boolean(), began => halley_began:began()}.

%% In the order of the sessions. It takes ?INSPECT_MS_MAX at most, however many they are.
-spec seen([halley_directory:session()]) -> [seen()].
seen(Sessions) ->
    Inspected = inspect([{Slot, Conn} || {link, Slot, Conn} <- Sessions]),
    [see(Session, Inspected) || Session <- Sessions].

inspect([]) ->
    #{};
inspect(Connections) ->
    Deadline = now_ms() + ?INSPECT_MS_MAX,
    BySlot = maps:to_list(maps:groups_from_list(fun({Slot, _}) -> Slot end, Connections)),
    Askers = [spawn_monitor(fun() -> exit({seen, ask(OfSlot, Deadline)}) end)
              || {_, OfSlot} <- BySlot],
    lists:foldl(fun(Asker, Seen) -> maps:merge(Seen, seen_by(Asker)) end, #{}, Askers).

%% It ends soon after the deadline by itself.
seen_by({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {seen, Seen}} -> Seen;
        {'DOWN', Monitor, process, Pid, _} -> #{}
    end.

ask([{Slot, Conn} = Connection | Rest], Deadline) ->
    case Deadline - now_ms() of
        LeftMs when LeftMs > 0 ->
            case halley_inspection:inspect(Slot, Conn, LeftMs) of
                {ok, Inspected} -> (ask(Rest, Deadline))#{Connection => Inspected};
                gone -> (ask(Rest, Deadline))#{Connection => gone};
                timeout -> #{}
            end;
        _ ->
            #{}
    end;
ask([], _) ->
    #{}.

see({link, Slot, Conn}, Inspected) ->
    maps:merge(worker(halley_links:info(Slot)), connection(maps:find({Slot, Conn}, Inspected)));
see(Pid, _) ->
    #{state => live, transport => case halley_sessions:is_handed_on(Pid) of
                                      true -> remote;
                                      false -> process
                                  end}.

worker(#{worker := Worker, pid := Pid}) -> #{worker => Worker, edge => Pid};
worker(_) -> #{}.

%% A worker's `unknown' is a connection that it no longer has.
connection({ok, #{state := State} = Inspected}) when State =/= unknown ->
    #{transport := Transport, outbox_bytes := Bytes, outbox_pieces := Pieces, outbox_ms := Ms,
      held := Held, dropped := Dropped, conflated := Conflated} = Inspected,
    #{state => State, transport => Transport, outbox_bytes => Bytes, outbox_events => Pieces,
      outbox_ms => Ms, held => Held, dropped => Dropped, conflated => Conflated};
connection({ok, _}) ->
    #{state => gone, transport => unknown};
connection(error) ->
    #{state => unknown, transport => unknown}.

now_ms() ->
    erlang:monotonic_time(millisecond).

-spec json(seen()) -> jiffy:json_value().
json(Seen) ->
    {[{atom_to_binary(Key), map_get(Key, Seen)}
      || Key <- [worker, edge, transport, state, passed, began, outbox_bytes, outbox_events,
                 outbox_ms, held, dropped, conflated], is_map_key(Key, Seen)]}.
