%% The ways to make the points of a ring, each to the bit as its original makes them.
%%
%%   mode                     a point's name            points for each name
%%   libketama                name-k                    4, by MD5
%%   libmemcached             host-k if the port is     4, by MD5
%%                            11211, else host:port-k
%%   libmemcached_unweighted  as libmemcached           1, by the hash of keys; 100 names a server
%%   spy                      /host:port-k              4, by MD5
%%
%% k counts from 0, and each name is a hash; `hashes/4' says how many a server has.
%%
%% Sources: RJ/ketama 18cf9a7, libketama/ketama.c; awesomized/libmemcached 1.1.4,
%% src/libmemcached/hosts.cc. `spy' is libmemcached's CONSISTENT_KETAMA_SPY with weights.
%%
%% Pure. It is not the ring (`ketama_ring').
-module(ketama_mode).

-export([options/1, check/2, hashes/4, points/4]).
-export_type([mode/0, options/0, server/0, weight/0, reason/0]).

-type mode() :: libketama | libmemcached | libmemcached_unweighted | spy.
%% `hash' is that of keys, and in `libmemcached_unweighted' of points too. It can't be chosen for
%% `libketama'; else it is `md5', and in `libmemcached_unweighted' `default', libmemcached's own.
-type options() :: #{mode => mode(), hash => ketama_hash:hash()}.
-type server() :: binary().
-type weight() :: non_neg_integer().
-type reason() :: {bad_option, term()} | {bad_server, term()} | no_servers
                | {too_many_servers, pos_integer()} | weights_too_large.

%% What libketama's `strtol' can read, and libmemcached's u32.
-define(LIBKETAMA_WEIGHT_MAX, (1 bsl 63 - 1)).
-define(LIBMEMCACHED_WEIGHT_MAX, (1 bsl 32 - 1)).
%% Both sum weights up in 64 bits.
-define(TOTAL_MAX, (1 bsl 64 - 1)).
%% Up to here a `float' counts servers.
-define(SERVERS_MAX, (1 bsl 24)).
-define(SERVER_BYTES_MAX, 1024).
-define(HASHES_PER_SERVER, 40).
-define(HASHES_UNWEIGHTED, 100).
-define(PORT_DEFAULT, 11211).

%% Fills in what isn't given.
-spec options(options()) -> {ok, mode(), ketama_hash:hash()} | {error, {bad_option, term()}}.
options(#{hash := c_string}) ->
    {error, {bad_option, hash}};
options(#{} = Options) ->
    case maps:keys(maps:without([mode, hash], Options)) of
        [] -> mode(maps:get(mode, Options, libketama), Options);
        [Unknown | _] -> {error, {bad_option, Unknown}}
    end;
options(_) ->
    {error, {bad_option, options}}.

mode(libketama, #{hash := _}) -> {error, {bad_option, hash}};
mode(libketama, _) -> {ok, libketama, c_string};
mode(libmemcached_unweighted, Options) -> hash(libmemcached_unweighted, default, Options);
mode(Mode, Options) when Mode =:= libmemcached; Mode =:= spy -> hash(Mode, md5, Options);
mode(_, _) -> {error, {bad_option, mode}}.

hash(Mode, Default, Options) ->
    Hash = maps:get(hash, Options, Default),
    case ketama_hash:is_hash(Hash) of
        true -> {ok, Mode, Hash};
        false -> {error, {bad_option, hash}}
    end.

%% Whether a ring can be made of these; gives the weights that count: libmemcached takes 0 for 1,
%% and without weights each is 1.
-spec check(mode(), [{server(), weight()}]) ->
    {ok, [{server(), pos_integer()}], Total :: pos_integer()} | {error, reason()}.
check(Mode, Servers) -> check(Mode, Servers, 0, 0, []).

check(_, [], 0, _, _) ->
    {error, no_servers};
check(_, [], _, Total, Checked) when Total =< ?TOTAL_MAX ->
    {ok, lists:reverse(Checked), Total};
check(_, [], _, _, _) ->
    {error, weights_too_large};
check(_, _, Count, _, _) when Count >= ?SERVERS_MAX ->
    {error, {too_many_servers, ?SERVERS_MAX}};
check(Mode, [{Name, Weight} = Server | Rest], Count, Total, Checked) ->
    case is_name(Mode, Name) andalso counting(Mode, Weight) of
        false -> {error, {bad_server, Server}};
        Counts -> check(Mode, Rest, Count + 1, Total + Counts, [{Name, Counts} | Checked])
    end;
check(_, [Other | _], _, _, _) ->
    {error, {bad_server, Other}};
check(_, Other, _, _, _) ->
    {error, {bad_server, Other}}.

is_name(Mode, Name) when is_binary(Name), Name =/= <<>>, byte_size(Name) =< ?SERVER_BYTES_MAX ->
    binary:match(Name, <<0>>) =:= nomatch
        andalso (Mode =:= libketama orelse ketama_address:parse(Name) =/= error);
is_name(_, _) ->
    false.

counting(libketama, Weight)
        when is_integer(Weight), Weight > 0, Weight =< ?LIBKETAMA_WEIGHT_MAX ->
    Weight;
counting(libmemcached_unweighted, Weight)
        when is_integer(Weight), Weight >= 0, Weight =< ?LIBMEMCACHED_WEIGHT_MAX ->
    1;
counting(Mode, Weight)
        when Mode =/= libketama, is_integer(Weight), Weight >= 0,
             Weight =< ?LIBMEMCACHED_WEIGHT_MAX ->
    max(1, Weight);
counting(_, _) ->
    false.

%% How many hashes a server of this weight has among `Count' servers whose weights are `Total'. A
%% light one may have none.
-spec hashes(mode(), weight(), Total :: pos_integer(), Count :: pos_integer()) ->
    non_neg_integer().
hashes(libmemcached_unweighted, _, _, _) ->
    ?HASHES_UNWEIGHTED;
hashes(Mode, Weight, Total, Count) ->
    Share = ketama_float32:nearest(ketama_float32:of_integer(Weight)
                                   / ketama_float32:of_integer(Total)),
    hashes(Mode, Share, Count).

%% 40.0 is a double in C, so the products are too; floorf() takes a float.
hashes(libketama, Share, Count) ->
    floor(ketama_float32:nearest(Share * float(?HASHES_PER_SERVER) * float(Count)));
%% 160 is an int in C, and all else a float. Dividing by 4 is exact.
hashes(_, Share, Count) ->
    Points = ketama_float32:nearest(Share * float(4 * ?HASHES_PER_SERVER)),
    Hashes = ketama_float32:nearest(Points / 4.0 * float(Count)),
    floor(ketama_float32:nearest(Hashes + ketama_float32:nearest(0.0000000001))).

%% The points of a server that has so many hashes.
-spec points(mode(), ketama_hash:hash(), server(), Hashes :: non_neg_integer()) ->
    [ketama_hash:u32()].
points(Mode, Hash, Server, Hashes) ->
    Prefix = prefix(Mode, Server),
    lists:append([points(Mode, Hash, <<Prefix/binary, (integer_to_binary(K))/binary>>)
                  || K <- lists:seq(0, Hashes - 1)]).

points(libmemcached_unweighted, Hash, Name) -> [ketama_hash:key(Hash, Name)];
points(_, _, Name) -> ketama_hash:md5_points(Name).

prefix(libketama, Server) ->
    <<Server/binary, $->>;
prefix(Mode, Server) ->
    {ok, Host, Port} = ketama_address:parse(Server),
    prefix(Mode, Host, integer_to_binary(Port), Port).

prefix(spy, Host, Digits, _) -> <<$/, Host/binary, $:, Digits/binary, $->>;
prefix(_, Host, _, ?PORT_DEFAULT) -> <<Host/binary, $->>;
prefix(_, Host, Digits, _) -> <<Host/binary, $:, Digits/binary, $->>.
