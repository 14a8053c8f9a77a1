%% libhashkit's hashes: what memcached_generate_hash_value() of Debian's libmemcached11 1.1.4-1
%% (amd64) gives.
-module(ketama_hash_tests).

-include_lib("eunit/include/eunit.hrl").

vectors_test() ->
    [?assertEqual({Hash, Key, Value}, {Hash, Key, ketama_hash:key(Hash, Key)})
     || {Key, Values} <- vectors(), {Hash, Value} <- Values].

vectors() ->
    [{<<>>, [{default, 0}, {md5, 3649838548}, {crc, 0}, {fnv1_64, 2216829733},
             {fnv1a_64, 2216829733}, {fnv1_32, 2166136261}, {fnv1a_32, 2166136261}]},
     {<<"test">>, [{default, 1064684737}, {md5, 3446378249}, {crc, 22655}, {fnv1_64, 2680995689},
                   {fnv1a_64, 427567909}, {fnv1_32, 3157003241}, {fnv1a_32, 2949673445}]},
     {<<"127.0.0.1-0">>, [{default, 942932303}, {md5, 3187647615}, {crc, 8090},
                          {fnv1_64, 2413377583}, {fnv1a_64, 1831400987}, {fnv1_32, 1906445583},
                          {fnv1a_32, 21587835}]},
     %% Bytes from 128 on are negative there.
     {<<16#C3, 16#BC, 16#FF, 16#80>>,
      [{default, 3647019796}, {md5, 2398853396}, {crc, 30564}, {fnv1_64, 3046226021},
       {fnv1a_64, 595676637}, {fnv1_32, 1873553349}, {fnv1a_32, 577692861}]},
     {<<"a", 0, "b">>, [{default, 1528948502}, {md5, 1611609456}, {crc, 5608},
                        {fnv1_64, 1806690060}, {fnv1a_64, 69625522}, {fnv1_32, 1704748236},
                        {fnv1a_32, 284404690}]},
     {binary:copy(<<"x">>, 250), [{default, 51816958}, {md5, 1263649145}, {crc, 2408},
                                  {fnv1_64, 3586808541}, {fnv1a_64, 369318829},
                                  {fnv1_32, 3808180605}, {fnv1a_32, 2640193613}]}].
