%% The promises of a ring, for any servers, mode and keys.
-module(prop_ketama).

-include("ketama_proper.hrl").

-export([prop_leaving/0, prop_rebuilt/0, prop_weights/0, prop_owners/0, prop_c_string/0,
         prop_file/0]).

-define(MODES, [libketama, libmemcached, libmemcached_unweighted, spy]).
-define(KEYS, 300).

options() ->
    oneof([#{mode => Mode} || Mode <- ?MODES]
          ++ [#{mode => Mode, hash => Hash} || Mode <- ?MODES -- [libketama],
                                               Hash <- [md5, default, crc, fnv1a_32]]).

weight() -> frequency([{3, range(1, 10)}, {3, range(1, 1000)}, {1, range(1, 1 bsl 32 - 1)}]).

name() ->
    ?LET({Host, Port}, {range(1, 1 bsl 24), oneof([11211, range(1, 65535)])},
         iolist_to_binary(io_lib:format("h~b:~b", [Host, Port]))).

servers(Min, Max) -> servers(Min, Max, weight()).

%% A name that is drawn twice is one server.
servers(Min, Max, Weight) ->
    ?SUCHTHAT(Servers,
              ?LET(Count, range(Min, Max),
                   ?LET({Names, Weights}, {vector(Count, name()), vector(Count, Weight)},
                        lists:ukeysort(1, lists:zip(Names, Weights)))),
              length(Servers) >= Min).

keys(Seed) -> [<<Seed:32, I:32>> || I <- lists:seq(1, ?KEYS)].

%% When servers leave by without/2, a key moves if and only if its owner went.
prop_leaving() ->
    ?FORALL({Servers, Options, Seed, Picks},
            {servers(3, 60), options(), range(0, 1 bsl 32 - 1), list(range(1, 60))},
            begin
                Ring = ketama:new(Servers, Options),
                Gone = lists:usort([element(1, lists:nth(Pick rem length(Servers) + 1, Servers))
                                    || Pick <- Picks]),
                try ketama:without(Gone, Ring) of
                    Left -> lists:all(fun(Key) -> stays(Key, Ring, Left, Gone) end, keys(Seed))
                catch
                    error:no_servers ->
                        lists:usort([Name || {_, Name} <- ketama:points(Ring)]) -- Gone =:= []
                end
            end).

stays(Key, Ring, Left, Gone) ->
    Before = ketama:owner(Key, Ring),
    case {lists:member(Before, Gone), ketama:owner(Key, Left)} of
        {true, After} -> not lists:member(After, Gone);
        {false, After} -> After =:= Before
    end.

%% When the ring is made anew without one, weights round otherwise: a key whose owner is still there
%% moves only if that owner lost points or the new one got some. Where nobody's number changed, as
%% without weights, only the keys of the server that went move.
prop_rebuilt() ->
    ?FORALL({Servers, Options, Seed, N},
            {oneof([servers(2, 40), servers(2, 40, 1)]), options(), range(0, 1 bsl 32 - 1),
             range(1, 40)},
            begin
                Gone = element(1, lists:nth(N rem length(Servers) + 1, Servers)),
                Old = ketama:new(Servers, Options),
                New = ketama:new(lists:keydelete(Gone, 1, Servers), Options),
                {Before, After} = {ketama_test_rings:hashes(Old), ketama_test_rings:hashes(New)},
                Count = fun(Name, Hashes) -> maps:get(Name, Hashes, 0) end,
                lists:all(fun(Key) ->
                    {From, To} = {ketama:owner(Key, Old), ketama:owner(Key, New)},
                    From =:= To orelse From =:= Gone
                        orelse Count(From, After) < Count(From, Before)
                        orelse Count(To, After) > Count(To, Before)
                end, keys(Seed))
            end).

%% libketama/test.sh: what the servers have differs by less than 10 % from what they should have,
%% summed up. Of few servers that isn't so; the originals place no more points. Without weights
%% they place 100 a server in place of 160, and chance has more of a say: 8 % on average.
prop_weights() ->
    ?FORALL({{Servers, Options}, Most},
            oneof([{{servers(80, 200, range(1, 1000)), #{mode => Mode}}, 0.1}
                   || Mode <- ?MODES -- [libmemcached_unweighted]]
                  ++ [{{servers(80, 200, 1),
                        #{mode => libmemcached_unweighted, hash => Hash}}, 0.12}
                      || Hash <- [md5, default]]),
            ketama_test_rings:deviation(Servers, Options) < Most).

%% N different servers, the owner first, as long as there are N.
prop_owners() ->
    ?FORALL({Servers, Options, Key, N}, {servers(1, 40), options(), binary(), range(1, 50)},
            begin
                Ring = ketama:new(Servers, Options),
                Owners = ketama:owners(Key, N, Ring),
                length(lists:usort(Owners)) =:= min(N, length(Servers))
                    andalso length(Owners) =:= min(N, length(Servers))
                    andalso hd(Owners) =:= ketama:owner(Key, Ring)
                    andalso Owners -- [Name || {Name, _} <- Servers] =:= []
            end).

%% libketama hashes what is before the first NUL, wherever that is.
prop_c_string() ->
    Byte = frequency([{1, 0}, {8, range(0, 255)}, {4, oneof([1, 127, 128, 129, 255])}]),
    ?FORALL(Bytes, resize(60, list(Byte)),
            begin
                <<Hash:32/little, _/binary>> =
                    crypto:hash(md5, lists:takewhile(fun(B) -> B =/= 0 end, Bytes)),
                ketama:hash(Bytes) =:= Hash
            end).

%% Reading takes any bytes; what it takes makes a ring or is refused by it with a reason.
prop_file() ->
    Piece = oneof([<<"10.0.0.1:11211">>, <<" ">>, <<"\t">>, <<"\n">>, <<"600">>, <<"7">>, <<"#">>,
                   <<"\r">>, <<0>>, <<"-">>, binary(), binary:copy(<<"x">>, 100)]),
    ?FORALL(Pieces, resize(60, list(Piece)),
            case ketama_servers_file:parse(iolist_to_binary(Pieces)) of
                {ok, Servers} ->
                    case ketama_ring:new(Servers, #{}) of
                        {ok, Ring} -> length(ketama:servers(Ring)) =< length(Servers);
                        {error, weights_too_large} -> true
                    end;
                {error, Reason} ->
                    is_list(ketama_servers_file:explain(Reason))
            end).
