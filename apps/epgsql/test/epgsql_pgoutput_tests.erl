%% The messages of `pgoutput' as bytes: PostgreSQL's documentation, "Logical Replication Message
%% Formats". `epgsql_replication_SUITE' has those of a real server.
-module(epgsql_pgoutput_tests).

-include_lib("eunit/include/eunit.hrl").

decode(Bytes) ->
    {Message, _} = epgsql_pgoutput:decode(Bytes, epgsql_pgoutput:new()),
    Message.

transaction_test() ->
    ?assertEqual(#{type => 'begin', final_lsn => 7, time => -1, xid => 3},
                 decode(<<$B, 7:64, -1:64, 3:32>>)),
    ?assertEqual(#{type => commit, lsn => 7, end_lsn => 8, time => 9},
                 decode(<<$C, 0, 7:64, 8:64, 9:64>>)),
    ?assertEqual(#{type => origin, lsn => 7, name => <<"o">>}, decode(<<$O, 7:64, "o", 0>>)).

relation() ->
    <<$R, 5:32, "public", 0, "follows", 0, $d, 2:16, 1, "a", 0, 23:32, -1:32,
      0, "b", 0, 25:32, 4:32>>.

relation_test() ->
    Relation = decode(relation()),
    ?assertEqual(
        #{type => relation, oid => 5, schema => <<"public">>, name => <<"follows">>,
          identity => default,
          columns => [#{name => <<"a">>, type => 23, modifier => -1, is_key => true},
                      #{name => <<"b">>, type => 25, modifier => 4, is_key => false}]},
        Relation),
    ?assertEqual(#{<<"a">> => <<"1">>, <<"b">> => null},
                 epgsql_pgoutput:row(Relation, [<<"1">>, null])),
    ?assertError({malformed, pgoutput}, epgsql_pgoutput:row(Relation, [null])).

rows_test() ->
    ?assertEqual(#{type => insert, relation => 5,
                   new => [<<"1">>, null, unchanged, {binary, <<0>>}]},
                 decode(<<$I, 5:32, $N, 4:16, $t, 1:32, "1", $n, $u, $b, 1:32, 0>>)),
    ?assertEqual(#{type => update, relation => 5, old => none, new => []},
                 decode(<<$U, 5:32, $N, 0:16>>)),
    ?assertEqual(#{type => update, relation => 5, old => {key, [null]}, new => [<<>>]},
                 decode(<<$U, 5:32, $K, 1:16, $n, $N, 1:16, $t, 0:32>>)),
    ?assertEqual(#{type => delete, relation => 5, old => {full, [<<"x">>]}},
                 decode(<<$D, 5:32, $O, 1:16, $t, 1:32, "x">>)),
    ?assertEqual(#{type => truncate, relations => [5, 6], cascade => true,
                   restart_identity => false},
                 decode(<<$T, 2:32, 1, 5:32, 6:32>>)).

message_test() ->
    ?assertEqual(#{type => message, is_transactional => true, lsn => 9, prefix => <<"halley">>,
                   content => <<0, 1>>},
                 decode(<<$M, 1, 9:64, "halley", 0, 2:32, 0, 1>>)).

%% Only inside of a part of a transaction do changes name theirs.
streamed_test() ->
    Messages = [<<$S, 3:32, 1>>, <<$I, 4:32, 5:32, $N, 0:16>>, <<$E>>, <<$I, 5:32, $N, 0:16>>,
                <<$A, 3:32, 4:32>>, <<$c, 3:32, 0, 7:64, 8:64, 9:64>>],
    {Maps, _} = lists:mapfoldl(fun epgsql_pgoutput:decode/2, epgsql_pgoutput:new(), Messages),
    ?assertEqual([#{type => stream_start, xid => 3, is_first => true},
                  #{type => insert, relation => 5, new => [], xid => 4}, #{type => stream_stop},
                  #{type => insert, relation => 5, new => []},
                  #{type => stream_abort, xid => 3, subxid => 4},
                  #{type => stream_commit, xid => 3, lsn => 7, end_lsn => 8, time => 9}], Maps).
