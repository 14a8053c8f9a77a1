%% The originals' answers, from their own tests and from runs of them.
-module(ketama_vectors_tests).

-include_lib("eunit/include/eunit.hrl").

-import(ketama_test_rings, [article/0, eight/0, equal/1, hashes/1, here/1]).

-define(KEYS_MD5, "5672b131391f5aa2b280936aec1eea74").

%% RJ/ketama 18cf9a7, python_ketama/tests.py.
python_test() ->
    ?assertEqual(3446378249, ketama:hash("test")),
    Ring = ketama:new(article(), #{mode => libketama}),
    ?assertEqual(<<"127.0.0.1:11211">>, ketama:owner(<<"test">>, Ring)),
    ?assertEqual({3454255383, <<"127.0.0.1:11211">>}, point(ketama:hash("test"), Ring)),
    ?assertEqual(320, length(ketama:points(Ring))),
    ?assertEqual(#{<<"127.0.0.1:11211">> => 48.0, <<"127.0.0.1:11212">> => 32.0}, hashes(Ring)).

%% libketama's ketama.servers.
hashes_of_eight_test() ->
    Ring = ketama:new(eight(), #{}),
    ?assertEqual(1264, length(ketama:points(Ring))),
    ?assertEqual([44.0, 22.0, 14.0, 26.0, 74.0, 59.0, 70.0, 7.0],
                 [map_get(Name, hashes(Ring)) || {Name, _} <- eight()]).

%% libketama/test.sh: the MD5 of what ketama_test prints of a million keys. Found are the points as
%% well as the owners.
million_keys_test_() ->
    {timeout, 120, fun() ->
        Ring = ketama:new(eight(), #{mode => libketama}),
        Points = maps:from_list(ketama:points(Ring)),
        Table = list_to_tuple(ketama:points(Ring)),
        Digest = lists:foldl(fun(From, Before) ->
            erlang:md5_update(Before, [line(integer_to_binary(I), Ring, Points, Table)
                                       || I <- lists:seq(From, From + 999)])
        end, erlang:md5_update(erlang:md5_init(), "\n"), lists:seq(0, 999999, 1000)),
        ?assertEqual(?KEYS_MD5, hex(erlang:md5_final(Digest)))
    end}.

line(Key, Ring, Points, Table) ->
    Hash = ketama:hash(Key),
    {Point, Server} = at(Hash, Table, 1, tuple_size(Table) + 1),
    ?assertEqual(Server, map_get(Point, Points)),
    [integer_to_binary(Hash), $\s, integer_to_binary(Point), $\s, ketama:owner(Key, Ring), $\n].

%% The same search once more, in another way.
at(_, Table, At, At) when At > tuple_size(Table) -> element(1, Table);
at(_, Table, At, At) -> element(At, Table);
at(Hash, Table, From, To) ->
    Middle = (From + To) div 2,
    case element(Middle, Table) of
        {Point, _} when Point < Hash -> at(Hash, Table, Middle + 1, To);
        _ -> at(Hash, Table, From, Middle)
    end.

point(Hash, Ring) ->
    hd([Found || {Point, _} = Found <- ketama:points(Ring), Point >= Hash]).

hex(Digest) -> lists:flatten([io_lib:format("~2.16.0b", [Byte]) || <<Byte>> <= Digest]).

%% libmemcached's test/fixtures/ketama.hpp.
libmemcached_test_() ->
    {ok, Text} = file:read_file(here("test/vectors/libmemcached.txt")),
    Cases = [binary:split(Line, <<" ">>, [global])
             || Line <- binary:split(Text, <<"\n">>, [global, trim]), binary:first(Line) =/= $#],
    Weighted = ketama:new(eight(), #{mode => libmemcached}),
    Spy = ketama:new(eight(), #{mode => spy}),
    [?_assertEqual(99, length(Cases)) |
     [{Key, fun() ->
          ?assertEqual(binary_to_integer(Hash), ketama:hash(Key)),
          ?assertEqual({binary_to_integer(Point), <<Host/binary, ":11211">>},
                       point(binary_to_integer(Hash), Weighted)),
          ?assertEqual(<<Host/binary, ":11211">>, ketama:owner(Key, Weighted)),
          ?assertEqual(<<SpyHost/binary, ":11211">>, ketama:owner(Key, Spy))
      end} || [Hash, Point, Host, SpyHost, Key] <- Cases]].

%% Beyond the last point is the first: the same fixtures' key for it.
past_the_end_test() ->
    [begin
         Ring = ketama:new(eight(), #{mode => Mode}),
         [{_, First} | _] = Points = ketama:points(Ring),
         {Last, _} = lists:last(Points),
         ?assert(ketama:hash("VDEAAAAA") > Last),
         ?assertEqual(First, ketama:owner(<<"VDEAAAAA">>, Ring))
     end || Mode <- [libketama, libmemcached, spy]].

%% Where libketama's and libmemcached's roundings differ: with equal weights first at 25 servers,
%% and at 10 with these.
roundings_test() ->
    One = fun(Mode, Servers) ->
        [{Name, _} | _] = Servers,
        map_get(Name, hashes(ketama:new(Servers, #{mode => Mode})))
    end,
    [?assertEqual(One(libketama, equal(N)), One(libmemcached, equal(N))) || N <- lists:seq(1, 24)],
    ?assertEqual(40.0, One(libketama, equal(25))),
    ?assertEqual(39.0, One(libmemcached, equal(25))),
    ?assertEqual(39.0, One(spy, equal(25))),
    %% As ketama_print_continuum() has it: 9,516 points.
    ?assertEqual(39.0, One(libketama, equal(61))),
    Ten = [{<<"10.0.0.1:11211">>, 300} | [{Name, 800} || {Name, _} <- tl(equal(10))]],
    ?assertEqual(7500, lists:sum([Weight || {_, Weight} <- Ten])),
    ?assertEqual(16.0, One(libketama, Ten)),
    ?assertEqual(15.0, One(libmemcached, Ten)).
