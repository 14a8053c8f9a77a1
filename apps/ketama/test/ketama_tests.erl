%% The library's calls: their results, and the arguments that they refuse.
-module(ketama_tests).

-include_lib("eunit/include/eunit.hrl").

-import(ketama_test_rings, [article/0, eight/0, equal/1]).

-define(MODES, [libketama, libmemcached, libmemcached_unweighted, spy]).

owner_is_that_of_the_points_test() ->
    [begin
         Ring = ketama:new(eight(), #{mode => Mode, hash => md5}),
         Points = ketama:points(Ring),
         [?assertEqual(by_hand(ketama_hash:key(md5, Key), Points), ketama:owner(Key, Ring))
          || Key <- ketama_test_rings:keys(2000)]
     end || Mode <- ?MODES -- [libketama]].

by_hand(Hash, [{_, First} | _] = Points) ->
    case lists:dropwhile(fun({Point, _}) -> Point < Hash end, Points) of
        [] -> First;
        [{_, Server} | _] -> Server
    end.

%% libketama/test.sh's 10 %, of the originals' own lists. Of any few servers it isn't promised.
weights_are_met_test() ->
    [?assertMatch({_, _, Deviation} when Deviation < 0.1,
                  {Mode, Servers, ketama_test_rings:deviation(Servers, #{mode => Mode})})
     || Servers <- [article(), eight()], Mode <- ?MODES -- [libmemcached_unweighted]].

%% A hash that is a point belongs to it; one more doesn't.
exactly_at_a_point_test() ->
    Points = [{10, 0}, {20, 1}, {20, 2}, {16#FFFFFFFF, 0}],
    Table = ketama_table:new([ketama_table:pack(P, S) || {P, S} <- lists:reverse(Points)],
                             {0, 1, 2}),
    ?assertEqual(Points, ketama_table:to_list(Table)),
    [?assertEqual({Hash, Position}, {Hash, ketama_table:find(Hash, Table)})
     || {Hash, Position} <- [{0, 0}, {10, 0}, {11, 1}, {20, 1}, {21, 3}, {16#FFFFFFFE, 3},
                             {16#FFFFFFFF, 3}]],
    Low = ketama_table:new([ketama_table:pack(7, 0)], {0}),
    [?assertEqual(0, ketama_table:find(Hash, Low)) || Hash <- [0, 7, 8, 16#FFFFFFFF]].

%% hosts.cc: continuum_item_cmp() compares the indexes of equal points. Of 15 bits many are.
equal_points_test() ->
    Servers = equal(100),
    Ring = ketama:new(Servers, #{mode => libmemcached_unweighted, hash => crc}),
    Index = maps:from_list([{Name, I} || {I, {Name, _}} <- lists:zip(lists:seq(1, 100), Servers)]),
    Points = [{Point, map_get(Name, Index)} || {Point, Name} <- ketama:points(Ring)],
    ?assertEqual(lists:sort(Points), Points),
    ?assert(length(lists:ukeysort(1, Points)) < length(Points) - 100).

%% All in one part of the ring, as a hash of 15 bits puts them.
crowded_points_test() ->
    Points = lists:usort([{I * 7 rem 1000, 0} || I <- lists:seq(1, 500)]),
    Table = ketama_table:new([ketama_table:pack(P, S) || {P, S} <- Points], {0}),
    [?assertEqual({Hash, length([P || {P, _} <- Points, P < Hash]) rem length(Points)},
                  {Hash, ketama_table:find(Hash, Table)})
     || Hash <- lists:seq(0, 1001)].

iodata_is_a_key_test() ->
    Ring = ketama:new(eight(), #{}),
    [?assertEqual(ketama:owner(<<"user:123">>, Ring), ketama:owner(Key, Ring))
     || Key <- ["user:123", ["user", <<":">>, "123"]]],
    ?assertError(badarg, ketama:owner(user, Ring)),
    ?assertMatch(<<"10.0.1.", _/binary>>, ketama:owner(<<>>, Ring)).

%% A C string ends at its first NUL, a key of libmemcached doesn't.
nul_in_a_key_test() ->
    Before = [<<>>, <<"a">>, <<"abcdef">>, <<"abcdefg">>, <<"abcdefgh">>, <<1, 128, 255>>,
              binary:copy(<<"k">>, 100)],
    [?assertEqual(ketama:hash(Key), ketama:hash(<<Key/binary, 0, Rest/binary>>))
     || Key <- Before, Rest <- [<<>>, <<"x">>, <<"0123456789">>]],
    Ring = ketama:new(eight(), #{mode => libmemcached}),
    Owners = lists:usort([ketama:owner(<<"a", 0, Key/binary>>, Ring)
                          || Key <- ketama_test_rings:keys(100)]),
    ?assert(length(Owners) > 4).

owners_test() ->
    [begin
         Ring = ketama:new(eight(), #{mode => Mode}),
         [begin
              Owners = ketama:owners(Key, 8, Ring),
              ?assertEqual([Name || {Name, _} <- eight()], lists:sort(Owners)),
              ?assertEqual(ketama:owner(Key, Ring), hd(Owners)),
              ?assertEqual(Owners, ketama:owners(Key, 100, Ring)),
              ?assertEqual(lists:sublist(Owners, 3), ketama:owners(Key, 3, Ring))
          end || Key <- ketama_test_rings:keys(200)]
     end || Mode <- ?MODES],
    %% Beyond the last point (ketama_vectors_tests) it goes on from the first.
    Ring = ketama:new(eight(), #{}),
    Names = [Name || {_, Name} <- ketama:points(Ring)],
    ?assertEqual([hd(Names), hd(Names -- [Name || Name <- Names, Name =:= hd(Names)])],
                 ketama:owners(<<"VDEAAAAA">>, 2, Ring)),
    ?assertError(function_clause, ketama:owners(<<"k">>, 0, Ring)).

%% One that is too light for a point owns nothing, and is still the last resort.
too_light_for_a_point_test() ->
    Ring = ketama:new([{<<"light">>, 1}, {<<"heavy">>, 100000}, {<<"feather">>, 1}], #{}),
    ?assertEqual([<<"heavy">>], lists:usort([Name || {_, Name} <- ketama:points(Ring)])),
    ?assertEqual([<<"heavy">>, <<"light">>, <<"feather">>], ketama:owners(<<"k">>, 3, Ring)),
    ?assertEqual([<<"heavy">>, <<"light">>], ketama:owners(<<"k">>, 2, Ring)),
    ?assertError(no_servers, ketama:without([<<"heavy">>], Ring)).

twice_is_one_server_test() ->
    Ring = ketama:new([{<<"a">>, 1}, {<<"b">>, 1}, {<<"a">>, 2}], #{}),
    ?assertEqual([{<<"a">>, 3}, {<<"b">>, 1}], ketama:servers(Ring)),
    ?assertEqual(2, length(ketama:owners(<<"k">>, 3, Ring))),
    %% 30, 30 and 60 of 40 * 3 hashes, as libketama has them.
    ?assertEqual([{<<"a">>, 90 * 4}, {<<"b">>, 30 * 4}],
                 [{Name, length([P || {P, Of} <- ketama:points(Ring), Of =:= Name])}
                  || Name <- [<<"a">>, <<"b">>]]).

without_test() ->
    Ring = ketama:new(eight(), #{}),
    Gone = [<<"10.0.1.5:11211">>, <<"10.0.1.8:11211">>, <<"unknown">>],
    Left = ketama:without(Gone, Ring),
    ?assertEqual([Point || {_, Name} = Point <- ketama:points(Ring), not lists:member(Name, Gone)],
                 ketama:points(Left)),
    ?assertEqual([Server || {Name, _} = Server <- eight(), not lists:member(Name, Gone)],
                 ketama:servers(Left)),
    ?assertEqual(Ring, ketama:without([], Ring)),
    ?assertError(no_servers, ketama:without([Name || {Name, _} <- eight()], Ring)).

%% libmemcached's rules for a server's name (src/libmemcached/hosts.cc), in pylibmc's forms.
names_of_points_test() ->
    First = fun(Server, Mode) ->
        Ring = ketama:new([{Server, 1}], #{mode => Mode}),
        lists:sort([Point || {Point, _} <- ketama:points(Ring)])
    end,
    Named = fun(Prefix) ->
        lists:sort(lists:append([ketama_hash:md5_points(<<Prefix/binary,
                                                          (integer_to_binary(K))/binary>>)
                                 || K <- lists:seq(0, 39)]))
    end,
    [?assertEqual({Server, Mode, Named(Prefix)}, {Server, Mode, First(Server, Mode)})
     || {Server, Mode, Prefix} <- [
            {<<"h:11211">>, libketama, <<"h:11211-">>},
            {<<"h:11211">>, libmemcached, <<"h-">>},
            {<<"h">>, libmemcached, <<"h-">>},
            {<<"h:0">>, libmemcached, <<"h-">>},
            {<<"h:11212">>, libmemcached, <<"h:11212-">>},
            {<<"[::1]:11211">>, libmemcached, <<"::1-">>},
            {<<"[::1]">>, libmemcached, <<"::1-">>},
            {<<"[::1]:80">>, libmemcached, <<"::1:80-">>},
            {<<"/run/m.sock">>, libmemcached, <<"/run/m.sock:0-">>},
            {<<"h:11211">>, spy, <<"/h:11211-">>},
            {<<"h">>, spy, <<"/h:11211-">>},
            {<<"h:80">>, spy, <<"/h:80-">>}]].

bad_servers_test() ->
    Bad = fun(Servers, Mode) ->
        try ketama:new(Servers, #{mode => Mode}) of Ring -> Ring catch error:Reason -> Reason end
    end,
    ?assertEqual(no_servers, Bad([], libketama)),
    [?assertEqual({bad_server, Server}, Bad([{<<"ok">>, 1}, Server], Mode))
     || {Server, Mode} <- [
            {{<<>>, 1}, libketama}, {{"a", 1}, libketama}, {{a, 1}, libketama},
            {{<<"a", 0>>, 1}, libketama}, {{binary:copy(<<"a">>, 1025), 1}, libketama},
            {{<<"a">>, 0}, libketama}, {{<<"a">>, -1}, libketama}, {{<<"a">>, 1.0}, libketama},
            {{<<"a">>, 1 bsl 63}, libketama}, {<<"a">>, libketama}, {{<<"a">>, 1, 1}, libketama},
            {{<<"a">>, 1 bsl 32}, libmemcached}, {{<<"a">>, -1}, libmemcached_unweighted},
            {{<<"a">>, -1}, spy}, {{<<"a:b">>, 1}, libmemcached}, {{<<"a:65536">>, 1}, spy},
            {{<<"a:1:2">>, 1}, spy}, {{<<":1">>, 1}, libmemcached}, {{<<"[::1">>, 1}, spy},
            {{<<"[]:1">>, 1}, spy}, {{<<"[::1]1">>, 1}, spy}, {{<<"a:000001">>, 1}, spy},
            {{<<"a:-1">>, 1}, libmemcached_unweighted}]],
    ?assertEqual({bad_server, oops}, Bad([{<<"a">>, 1} | oops], libketama)),
    ?assertEqual(weights_too_large, Bad([{<<"a">>, 1 bsl 63 - 1}, {<<"b">>, 1 bsl 63 - 1},
                                         {<<"c">>, 2}], libketama)).

%% libmemcached's weights are u32, and 0 is taken for 1 (instance.cc).
weights_of_libmemcached_test() ->
    Max = 1 bsl 32 - 1,
    ?assertEqual([{<<"a">>, 1}, {<<"b">>, Max}],
                 ketama:servers(ketama:new([{<<"a">>, 0}, {<<"b">>, Max}], #{mode => spy}))),
    ?assertEqual(ketama:new([{<<"a">>, 1}, {<<"b">>, 1}], #{mode => libmemcached_unweighted}),
                 ketama:new([{<<"a">>, 0}, {<<"b">>, Max}], #{mode => libmemcached_unweighted})).

bad_options_test() ->
    [?assertError({bad_option, Name}, ketama:new(article(), Options))
     || {Name, Options} <- [{mode, #{mode => ketama}}, {hash, #{hash => md5}},
                            {hash, #{mode => spy, hash => c_string}},
                            {hash, #{mode => libmemcached, hash => murmur}},
                            {moed, #{moed => spy}}, {options, [spy]}]].

%% libketama keeps its ring in 512 KiB and overruns them at 117 servers.
many_servers_test_() ->
    {timeout, 60, fun() ->
        Ring = ketama:new(equal(5000), #{}),
        ?assertEqual(5000 * 160, length(ketama:points(Ring))),
        Owners = [ketama:owner(Key, Ring) || Key <- ketama_test_rings:keys(50000)],
        ?assert(length(lists:usort(Owners)) > 4900),
        ?assertEqual(5000, length(lists:usort(ketama:owners(<<"k">>, 5000, Ring))))
    end}.

%% A ring that is sent to a process, or read from a persistent term, is not copied but for its head
%% and the names.
shared_between_processes_test() ->
    Ring = ketama:new(equal(100), #{}),
    ?assertEqual(16000, length(ketama:points(Ring))),
    ?assert(erts_debug:flat_size(Ring) < 100 * 10).
