%% The options, from the application's environment: each with its check and what it is if not given.
%% They are read once, at the start, and kept in a persistent term.
-module(teleport_options).

-export([read/0, check/1, put/1, get/0, add_peer/2, queue_bytes_max/0]).
-export_type([options/0]).

%% `ip', `port': where it listens; all addresses and any free port if not given. `address': by which
%% host others reach it; that of the node's name. `secret': what peers prove that they know; the
%% distribution's cookie. `lanes': connections for small messages, and as many for large ones, at
%% most; both are opened when first needed. `queue_bytes_max': what waits for a peer,
%% half of it in small messages and half in large ones.
%% `message_bytes_max': the largest message that is taken. `large_bytes': from which size on a
%% message goes over a connection for large ones. `ping_ms', `silent_ms_max': how often a peer is
%% asked if it's there, and when its silence ends the link. `connect_ms_max': for connecting and
%% shaking hands. `idle_ms': after so long, and twice that at most, a lane's connection that isn't
%% used is closed. `tls': `false', or the options of `ssl' for both sides. `peers': addresses of
%% nodes that are not asked for over the distribution; `discovery': whether others are. `receivers':
%% the names of the only processes that peers may send to, call and monitor, or `all'.
-type options() :: #{ip := inet:ip_address(), port := inet:port_number(),
                     address := string(), secret := binary(), lanes := 1..64,
                     queue_bytes_max := pos_integer(), message_bytes_max := pos_integer(),
                     large_bytes := pos_integer(), ping_ms := pos_integer(),
                     silent_ms_max := pos_integer(), connect_ms_max := pos_integer(),
                     idle_ms := pos_integer(),
                     tls := false | #{listen := list(), connect := list()},
                     peers := #{node() => {inet:ip_address() | inet:hostname(),
                                           inet:port_number()}},
                     discovery := boolean(), receivers := all | [atom()]}.

-define(LARGE_BYTES_MAX, 65536).
-define(MS_MAX, 3600000).

-spec read() -> {ok, options()} | {error, {bad_option, atom()}}.
read() ->
    Known = maps:keys(defaults()),
    check(maps:from_list([{Key, Value} || {Key, Value} <- application:get_all_env(teleport),
                                          lists:member(Key, Known)])).

%% Fills up what isn't given.
-spec check(map()) -> {ok, options()} | {error, {bad_option, atom()}}.
check(Given) ->
    Options = maps:merge(defaults(), Given),
    case [Key || {Key, Value} <- lists:sort(maps:to_list(Options)), not is_good(Key, Value)] of
        [] -> {ok, Options#{secret := iolist_to_binary(maps:get(secret, Options))}};
        [Bad | _] -> {error, {bad_option, Bad}}
    end.

defaults() ->
    #{ip => {0, 0, 0, 0}, port => 0, address => host(), secret => secret(), lanes => lanes(),
      queue_bytes_max => 64 bsl 20, message_bytes_max => 256 bsl 20,
      large_bytes => ?LARGE_BYTES_MAX, ping_ms => 5000, silent_ms_max => 60000,
      connect_ms_max => 5000, idle_ms => 30000, tls => false, peers => #{},
      discovery => true, receivers => all}.

host() ->
    case string:split(atom_to_list(node()), "@") of
        [_, Host] -> Host;
        _ -> "localhost"
    end.

%% More connections help where schedulers would wait for each other; where they are few, the bulk
%% of one lane and the small messages of another are in each other's way.
lanes() -> max(1, min(64, erlang:system_info(schedulers_online) div 4)).

secret() ->
    case is_alive() of
        true -> atom_to_binary(erlang:get_cookie());
        false -> <<>>
    end.

is_good(ip, Ip) -> inet:ntoa(Ip) =/= {error, einval};
is_good(port, Port) -> is_within(Port, 0, 65535);
is_good(address, [_ | _]) -> true;
is_good(secret, Secret) ->
    try iolist_size(Secret) > 0 catch error:badarg -> false end;
is_good(lanes, Lanes) -> is_within(Lanes, 1, 64);
is_good(queue_bytes_max, Bytes) -> is_within(Bytes, 1 bsl 16, 1 bsl 40);
is_good(message_bytes_max, Bytes) -> is_within(Bytes, 1 bsl 16, 1 bsl 31);
is_good(large_bytes, Bytes) -> is_within(Bytes, 1024, ?LARGE_BYTES_MAX);
is_good(Ms, Value) when Ms =:= ping_ms; Ms =:= silent_ms_max; Ms =:= connect_ms_max;
                        Ms =:= idle_ms ->
    is_within(Value, 10, ?MS_MAX);
is_good(tls, false) -> true;
is_good(tls, #{listen := Listen, connect := Connect}) -> is_list(Listen) andalso is_list(Connect);
is_good(peers, Peers) when is_map(Peers) ->
    lists:all(fun({Node, {_, Port}}) -> is_atom(Node) andalso is_within(Port, 1, 65535);
                 (_) -> false
              end, maps:to_list(Peers));
is_good(discovery, Discovery) -> is_boolean(Discovery);
is_good(receivers, all) -> true;
is_good(receivers, Names) when is_list(Names) -> lists:all(fun is_atom/1, Names);
is_good(_, _) -> false.

is_within(N, Min, Max) -> is_integer(N) andalso N >= Min andalso N =< Max.

-spec put(options()) -> ok.
put(Options) -> persistent_term:put(?MODULE, Options).

%% By one process at a time.
-spec add_peer(node(), {inet:ip_address() | inet:hostname(), inet:port_number()}) -> ok.
add_peer(Node, Place) ->
    case ?MODULE:get() of
        #{peers := #{Node := Place}} -> ok;
        #{peers := Peers} = Options -> put(Options#{peers := Peers#{Node => Place}})
    end.

-spec get() -> options().
get() -> persistent_term:get(?MODULE).

%% Before the first start it's what isn't given.
-spec queue_bytes_max() -> pos_integer().
queue_bytes_max() ->
    #{queue_bytes_max := Bytes} = persistent_term:get(?MODULE, defaults()),
    Bytes.
