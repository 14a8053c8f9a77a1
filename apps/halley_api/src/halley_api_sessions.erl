%% Live sessions as the API shows them: what the brain knows of each, joined with what its worker
%% says of the connection (INSPECT, protocol/link.md 10.8).
%%
%% The link is not known here: the environment names the function that asks the workers (`halley',
%% `inspect'), as {Module, Function}, called with all connections and a time in milliseconds,
%%
%%   inspect([{halley_links:slot(), Conn}], TimeoutMs) ->
%%       #{{halley_links:slot(), Conn} => #{state := 0..4, transport := 0..5, ...}}
%%
%% and answered within that time with as many as are known by then. A connection that is missing
%% there has the state `unknown': its worker hangs, or its link has just ended.
-module(halley_api_sessions).

-export([seen/1, json/1]).
-export_type([seen/0]).

-include("halley_api_limits.hrl").

%% `process': an Erlang process of the brain's node, which has no outbox. Numbers of bytes, of
%% events and of milliseconds are there when the worker has answered.
-type seen() :: #{state := opening | held | live | closing | gone | unknown,
                  transport := sse | ndjson | websocket | test | poll | process | unknown,
                  worker => non_neg_integer(), edge => pos_integer(),
                  outbox_bytes => non_neg_integer(), outbox_events => non_neg_integer(),
                  outbox_ms => non_neg_integer(), held => non_neg_integer(),
                  dropped => non_neg_integer(), conflated => non_neg_integer()}.

%% In the order of the sessions. It takes ?INSPECT_MS_MAX at most, however many they are.
-spec seen([halley_directory:session()]) -> [seen()].
seen(Sessions) ->
    Inspected = inspect([{Slot, Conn} || {link, Slot, Conn} <- Sessions]),
    [see(Session, Inspected) || Session <- Sessions].

inspect([]) ->
    #{};
inspect(Connections) ->
    case application:get_env(halley, inspect) of
        {ok, {Module, Function}} -> Module:Function(Connections, ?INSPECT_MS_MAX);
        undefined -> #{}
    end.

see({link, Slot, Conn}, Inspected) ->
    maps:merge(worker(halley_links:info(Slot)), connection(maps:find({Slot, Conn}, Inspected)));
see(_, _) ->
    #{state => live, transport => process}.

worker(#{worker := Worker, pid := Pid}) -> #{worker => Worker, edge => Pid};
worker(_) -> #{}.

connection({ok, #{state := 0}}) ->
    #{state => gone, transport => unknown};
connection({ok, #{state := State, transport := Transport, outbox_bytes := Bytes,
                  outbox_pieces := Pieces, outbox_ms := Ms, held := Held, dropped := Dropped,
                  conflated := Conflated}}) ->
    #{state => state(State), transport => transport(Transport), outbox_bytes => Bytes,
      outbox_events => Pieces, outbox_ms => Ms, held => Held, dropped => Dropped,
      conflated => Conflated};
connection(error) ->
    #{state => unknown, transport => unknown}.

%% protocol/link.md 2.8 and 2.6.
state(1) -> opening;
state(2) -> held;
state(3) -> live;
state(4) -> closing.

transport(1) -> sse;
transport(2) -> ndjson;
transport(3) -> websocket;
transport(4) -> test;
transport(5) -> poll;
transport(_) -> unknown.

-spec json(seen()) -> jiffy:json_value().
json(Seen) ->
    {[{atom_to_binary(Key), map_get(Key, Seen)}
      || Key <- [worker, edge, transport, state, passed, outbox_bytes, outbox_events, outbox_ms,
                 held, dropped, conflated], is_map_key(Key, Seen)]}.
