%% The pure parts: messages, a copy's lines, the stream's steps, and the files.
-module(halley_postgres_tests).

-include_lib("eunit/include/eunit.hrl").

limits_test_() ->
    {setup, fun() -> halley_limits:set(#{}) end,
     [fun message/0, fun data_is_as_it_was_written/0, fun bad_messages/0, fun outbox_row/0]}.

message() ->
    ?assertEqual({ok, {<<"s">>, {json, <<"1">>}, #{id => <<"d">>}}},
                 halley_postgres_message:of_message(<<"{\"subject\":\"s\",\"data\":1}">>, <<"d">>)),
    ?assertEqual({ok, {{to, [<<"a">>]}, {json, <<"null">>}, #{id => <<"i">>}}},
                 halley_postgres_message:of_message(
                     <<"{\"id\":\"i\",\"to\":[\"a\"],\"data\":null}">>, <<"d">>)).

data_is_as_it_was_written() ->
    {ok, {_, {json, Data}, _}} = halley_postgres_message:of_message(
        <<" {\"d\\u0061ta\" :\n {\"n\": 1.10,\r\n\t\"m\":[1e2 ]} , \"subject\":\"s\"} ">>, <<"d">>),
    ?assertEqual(<<"{\"n\": 1.10,\"m\":[1e2 ]}">>, Data).

bad_messages() ->
    [?assertMatch({Text, {error, _}},
                  {Text, halley_postgres_message:of_message(Text, <<"d">>)})
     || Text <- [<<>>, <<"1">>, <<"{}">>, <<"{\"subject\":\"s\"}">>, <<"{\"data\":1}">>,
                 <<"{\"subject\":\"s\",\"data\":1} x">>, <<"{\"subject\":\"s\",\"data\":01}">>,
                 <<"{\"subject\":\"s\",\"to\":[\"a\"],\"data\":1}">>,
                 <<"{\"subject\":\"s\",\"data\":1,\"id\":7}">>, binary:copy(<<" ">>, 2000000)]],
    %% What is said of it, and kept, is no longer than is good to read.
    Long = binary:copy(<<"xö"/utf8>>, 300000),
    {error, Reason} = halley_postgres_message:of_message(<<"{\"", Long/binary, "\":1}">>, <<"d">>),
    ?assert(byte_size(Reason) < 200),
    [?assert(is_list(unicode:characters_to_list(Text)))
     || Text <- [Reason, halley_postgres_message:shown(Long)]].

outbox_row() ->
    Row = #{<<"id">> => <<"7">>, <<"subject">> => <<"s">>, <<"data">> => <<"{\"a\": 1}">>,
            <<"event_id">> => null},
    ?assertEqual({ok, {<<"s">>, {json, <<"{\"a\": 1}">>}, #{id => <<"p-7">>}}},
                 halley_postgres_message:of_row(Row, <<"p-">>)),
    ?assertMatch({ok, {_, _, #{id := <<"i">>}}},
                 halley_postgres_message:of_row(Row#{<<"event_id">> := <<"i">>}, <<"p-">>)),
    ?assertMatch({error, _}, halley_postgres_message:of_row(Row#{<<"data">> := null}, <<"p-">>)).

%% PostgreSQL's documentation, COPY, "Text Format".
copy_row_test() ->
    ?assertEqual({<<"1">>, <<"22">>}, halley_postgres_copy_row:pair(<<"1\t22\n">>)),
    ?assertEqual({null, <<>>}, halley_postgres_copy_row:pair(<<"\\N\t\n">>)),
    ?assertEqual({<<"a\tb\\c">>, <<"\n">>},
                 halley_postgres_copy_row:pair(<<"a\\tb\\\\c\t\\n\n">>)).

folder(Fun) ->
    Folder = string:trim(os:cmd("mktemp -d")),
    try Fun(Folder)
    after file:del_dir_r(Folder)
    end.

pair(N) -> {integer_to_binary(N), <<"s">>}.

owned(Files, Except) -> owned(Files, Except, 1000).

owned(Files, Except, PartBytes) ->
    {Damaged, Pairs} = halley_postgres_owned:fold([{File, #{}} || File <- Files], Except,
                                                  fun erlang:'++'/2, [], PartBytes),
    {Damaged, lists:sort(Pairs)}.

pairs_test() ->
    folder(fun(Folder) ->
        [A, B] = [filename:join(Folder, "pairs-" ++ N) || N <- ["1", "2"]],
        A1 = halley_postgres_pairs:append([{add, pair(N)} || N <- [1, 2, 3]],
                                          halley_postgres_pairs:create(A, <<"t">>)),
        A2 = halley_postgres_pairs:append([clear, {add, pair(4)}, {add, pair(5)},
                                           {remove, pair(5)}, {add, pair(6)}], A1),
        ok = halley_postgres_pairs:sync(A2),
        ?assertEqual({0, [pair(4), pair(6)]}, owned([A], [])),
        B1 = halley_postgres_pairs:append([{add, pair(6)}],
                                          halley_postgres_pairs:create(B, <<"t">>)),
        ?assertEqual({0, [pair(4)]}, owned([A], [B])),
        ?assertEqual({0, [pair(4)]}, owned([A], [B], 5)),
        ?assertEqual(#{<<"t">> => [A, B]}, halley_postgres_pairs:tables(Folder)),
        ok = halley_postgres_pairs:close(B1),
        ok = halley_postgres_pairs:close(A2),
        %% What wasn't known to be on disk comes again.
        {ok, A3} = halley_postgres_pairs:open(A, halley_postgres_pairs:bytes(A1)),
        ?assertEqual({0, [pair(1), pair(2), pair(3)]}, owned([A], [])),
        ok = halley_postgres_pairs:close(A3),
        ?assertEqual({error, too_short}, halley_postgres_pairs:open(A, 100000))
    end).

%% What is appended while it is written anew is behind it.
compacted_pairs_test() ->
    folder(fun(Folder) ->
        [A, B] = [filename:join(Folder, "pairs-" ++ N) || N <- ["1", "2"]],
        A1 = halley_postgres_pairs:append(
            [{Operation, pair(N)} || N <- lists:seq(1, 1000), Operation <- [add, remove, add]],
            halley_postgres_pairs:create(A, <<"t">>)),
        Bytes = halley_postgres_pairs:bytes(A1),
        A2 = halley_postgres_pairs:append([{remove, pair(7)}, {add, pair(2000)}], A1),
        ok = halley_postgres_owned:compact({A, Bytes}, B, <<"t">>),
        {ok, B1} = halley_postgres_pairs:open(B, filelib:file_size(B)),
        ?assert(halley_postgres_pairs:bytes(B1) < Bytes div 2),
        ?assertEqual({0, lists:sort([pair(N) || N <- lists:seq(1, 1000)])}, owned([B], [])),
        B2 = halley_postgres_pairs:continue(A2, {B1, Bytes}),
        ?assertEqual({0, lists:sort([pair(N) || N <- [2000 | lists:seq(1, 1000)], N =/= 7])},
                     owned([B], [])),
        ?assertEqual(filelib:file_size(B), halley_postgres_pairs:bytes(B2)),
        ok = halley_postgres_pairs:close(B2)
    end).

damaged_pairs_test() ->
    folder(fun(Folder) ->
        Path = filename:join(Folder, "pairs-1"),
        File = halley_postgres_pairs:append([{add, pair(2)}], halley_postgres_pairs:append(
            [{add, pair(1)}], halley_postgres_pairs:create(Path, <<"t">>))),
        ok = halley_postgres_pairs:close(File),
        {ok, Bytes} = file:read_file(Path),
        At = byte_size(Bytes) - 1,
        <<Before:At/binary, Last>> = Bytes,
        ok = file:write_file(Path, <<Before/binary, (Last bxor 1)>>),
        ?assertEqual({1, [pair(1)]}, owned([Path], [])),
        ok = file:write_file(Path, <<"HALLEYPP">>),
        ?assertEqual(#{}, halley_postgres_pairs:tables(Folder))
    end).

state_test() ->
    folder(fun(Folder) ->
        ok = application:set_env(halley, data_dir, Folder),
        ?assertEqual(none, halley_postgres_state:read()),
        State = #{system => <<"73">>, slot => <<"halley">>, lsn => 16#16B374D848, outbox => 9,
                  tables => #{<<"t(a, b)">> => #{file => "pairs-1", bytes => 7, base => 6,
                                                 from => 5, shape => #{<<"table">> => <<"16384">>}},
                              <<"u(a, b)">> => #{file => "pairs-2", bytes => 7, base => 6,
                                                 from => 5, shape => unknown}}},
        ok = halley_postgres_state:write(State),
        ?assertEqual({ok, State}, halley_postgres_state:read()),
        ok = halley_postgres_state:write(State#{outbox := unknown}),
        ?assertEqual({ok, State#{outbox := unknown}}, halley_postgres_state:read()),
        Path = filename:join([Folder, "postgres", "state"]),
        {ok, Text} = file:read_file(Path),
        ok = file:write_file(Path, string:replace(Text, "halley", "valley")),
        ?assertEqual(damaged, halley_postgres_state:read()),
        %% A file where the folder should be.
        ok = application:set_env(halley, data_dir, Path),
        ?assertExit({not_written, _, _}, halley_postgres_state:write(State))
    end).

explained_test() ->
    [?assertEqual(Line, iolist_to_binary(halley_postgres_connection:explain(Reason)))
     || {Line, Reason} <- [
        {<<"/d/state can't be written: no space left on device">>,
         {not_written, "/d/state", enospc}},
        {<<"PostgreSQL says: no">>,
         {error, {error, fatal, <<"57P01">>, admin_shutdown, <<"no">>, []}}},
        {<<"PostgreSQL says: no">>,
         {shutdown, {error, fatal, <<"57P01">>, admin_shutdown, <<"no">>, []}}},
        {<<"the connection was closed">>, sock_closed}]].

%% One line, whatever letters the names and the server's words have.
login_explained_test_() ->
    {ok, #{server := Server}} = halley_postgres_config:settings(
        #{url => "postgres://%C3%B6:secret@db\x{5bc6}/x", publish => on}),
    [?_assertMatch({_, {match, _}}, begin
         Line = unicode:characters_to_binary(halley_postgres_connection:explain(
                    {error, {no_connection, Reason, Server()}})),
         {Line, re:run(Line, Pattern, [unicode])}
     end) || {Reason, Pattern} <- [
         {{error, fatal, <<"28P01">>, invalid_password, <<"no ö"/utf8>>, []},
          "^PostgreSQL says: no ö; .*in postgres\\.url$"},
         {{error, fatal, <<"28000">>, x, <<"Peer authentication failed", 246>>, []},
          "failedö; Halley must run as the system's user ö,"},
         {{error, fatal, <<"57P03">>, cannot_connect_now, <<"starting up">>, []},
          "^PostgreSQL says: starting up$"},
         {password_missing, "set postgres\\.password_file"}, {econnrefused, "db密:5432.*refused"},
         {timeout, "no answer from db密"}, {ssl_not_available, "postgres\\.tls = off"},
         {{unsupported_auth_method, gss}, "gss.*pg_hba\\.conf"},
         {{sasl_server_final, missing}, "doesn't prove"}, {{sasl, nonce_mismatch}, "is it Postgr"},
         {{ssl_negotiation_failed, {tls_alert, {unknown_ca, "x"}}}, "postgres\\.tls_ca"},
         {{ssl_negotiation_failed, {tls_alert, {certificate_expired, "x"}}}, "has run out"},
         {{ssl_negotiation_failed, {tls_alert, {handshake_failure, "hostname_check_failed"}}},
          "isn't for the name db密 of postgres\\.url"},
         {{ssl_negotiation_failed, {options, {keyfile, "k", x}}}, "tls_key isn't right"},
         {{ssl_negotiation_failed, closed}, "fails: "}, {{strange, thing}, "no connection"}]].

%% A server is asked for no setting that it doesn't know: it would refuse the session.
settings_by_version_test_() ->
    [?_assertEqual({Text, Purpose, Expected},
                   {Text, Purpose, [Name || Name <- ["transaction_timeout", "statement_timeout"],
                                            is_set(Name, Purpose, Text)]})
     || {Text, Expected} <-
            [{Text, ["statement_timeout"]}
             || Text <- [<<"15.18 (Debian 15.18-0+deb12u1)">>, <<"16.14">>, <<"16rc1">>, <<>>,
                         undefined, <<"of its own">>]]
            ++ [{Text, ["transaction_timeout", "statement_timeout"]}
                || Text <- [<<"17.0">>, <<"17.2 (Debian 17.2-1.pgdg120+1)">>, <<"18beta1">>,
                            <<"18.4">>, <<"19devel">>]],
        Purpose <- [queries, replication, writes]].

%% A pooler would refuse them for queries; a statement_timeout of 1 ms would end the SET of others.
first_message_test_() ->
    [?_assertEqual({Purpose, Has},
                   {Purpose, lists:member({"statement_timeout", "0"},
                                          halley_postgres_settings:first(Purpose))})
     || {Purpose, Has} <- [{queries, false}, {replication, false}, {writes, true}]].

is_set(Name, Purpose, Text) ->
    Sql = halley_postgres_settings:all(Purpose, halley_postgres_settings:version(Text), []),
    string:find(lists:flatten(Sql), "SET " ++ Name ++ " = '0'; ") =/= nomatch.

%% As PostgreSQL reads synchronous_standby_names.
is_named_test_() ->
    [?_assertEqual({Names, Expected}, {Names, halley_postgres_standby:is_named(Names, "halley")})
     || {Names, Expected} <- [
         {<<>>, false}, {<<" ">>, false}, {<<"*">>, true}, {<<"\"*\"">>, true},
         {<<"halley">>, true}, {<<"HALLEY">>, true}, {<<"\"Halley\"">>, true},
         {<<"standby1">>, false}, {<<"halley2, \"halley x\"">>, false}, {<<"a, halley">>, true},
         {<<"FIRST 1 (a, b)">>, false}, {<<"first 2 (a, *)">>, true}, {<<"ANY 1(*)">>, true},
         {<<"2 (a, halley)">>, true}, {<<"first">>, false}, {<<"any 1 (\"a\"\"b\", c)">>, false},
         {<<"a b">>, false},
         %% Bytes of LATIN1 in the server's file, which is of no database.
         {<<"\"h", 228, "lley\"">>, false}, {<<"\"", 228, "\", Halley">>, true}]].

%% Of a database of LATIN9 there are all bytes, of others not.
utf8_test() ->
    Table = {bytes, list_to_tuple([<<"x">>, none | lists:duplicate(125, <<"y">>)] ++ [<<"z">>])},
    ?assertEqual({ok, <<255>>}, halley_postgres_encoding:utf8(<<255>>, utf8)),
    ?assertEqual({ok, <<"aYb">>}, halley_postgres_encoding:utf8(<<"aYb">>, Table)),
    ?assertEqual({ok, <<"axyzb">>},
                 halley_postgres_encoding:utf8(<<"a", 128, 130, 255, "b">>, Table)),
    ?assertMatch({error, _}, halley_postgres_encoding:utf8(<<129>>, Table)),
    ?assertEqual({ok, <<"é"/utf8>>}, halley_postgres_encoding:utf8(<<"é"/utf8>>, sql_ascii)),
    ?assertMatch({error, _}, halley_postgres_encoding:utf8(<<233>>, sql_ascii)),
    ?assertMatch({error, _}, halley_postgres_encoding:utf8(<<233>>, {other, <<"EUC_JP">>})).

%% A stream as pgoutput's messages: PostgreSQL's documentation, "Logical Replication Message
%% Formats".
steps(Messages) ->
    {ok, #{follows := [Spec]}} =
        halley_postgres_config:settings(#{host => "db", follows => "t(a, b)"}),
    State = halley_postgres_changes:new(#{<<"t(a, b)">> => #{spec => Spec, from => 100,
                                                             oid => 5}}, true,
                                        {<<"73">>, 1, []}, utf8),
    {Steps, _} = lists:mapfoldl(fun halley_postgres_changes:take/2, State, Messages),
    lists:append(Steps).

begins(Lsn) -> <<$B, Lsn:64, 0:64, 9:32>>.

commits(Lsn) -> <<$C, 0, Lsn:64, (Lsn + 1):64, 0:64>>.

relation(Columns) ->
    <<$R, 5:32, "public", 0, "t", 0, $d, (length(Columns)):16,
      << <<IsKey, Name/binary, 0, 20:32, -1:32>> || {Name, IsKey} <- Columns >>/binary>>.

insert(A, B) ->
    <<$I, 5:32, $N, 2:16, $t, (byte_size(A)):32, A/binary, $t, (byte_size(B)):32, B/binary>>.

%% An older transaction comes with the columns of its time, and says nothing about now.
steps_test() ->
    Now = relation([{<<"b">>, 1}, {<<"a">>, 1}]),
    Renewed = {renewed, <<"t(a, b)">>},
    ?assertEqual([Renewed, {position, 51}, Renewed,
                  {change, {add, <<"t(a, b)">>, {<<"2">>, <<"1">>}}, 9}, {position, 101}],
                 steps([begins(50), relation([{<<"x">>, 1}, {<<"b">>, 1}]),
                        insert(<<"7">>, <<"8">>), commits(50),
                        begins(100), Now, insert(<<"1">>, <<"2">>), commits(100)])),
    ?assertEqual([Renewed, {position, 51}, {change, {add, <<"t(a, b)">>, {<<"2">>, <<"1">>}}, 9}],
                 steps([begins(50), Now, insert(<<"7">>, <<"8">>), commits(50),
                        begins(100), insert(<<"1">>, <<"2">>)])),
    ?assertMatch([Renewed, {stop, <<"t(a, b)">>, <<"it has no column a", _/binary>>}],
                 steps([begins(100), relation([{<<"x">>, 1}, {<<"b">>, 1}]),
                        insert(<<"1">>, <<"2">>), insert(<<"1">>, <<"3">>)])),
    ?assertMatch([Renewed, {stop, _, <<"its replica identity", _/binary>>}],
                 steps([begins(100), relation([{<<"a">>, 1}, {<<"b">>, 0}]),
                        insert(<<"1">>, <<"2">>)])),
    %% Described again; and another table of that name.
    ?assertEqual([Renewed, {change, {add, <<"t(a, b)">>, {<<"2">>, <<"1">>}}, 9}, Renewed],
                 steps([begins(100), Now, insert(<<"1">>, <<"2">>), Now])),
    %% The same table, which had another name then.
    <<$R, Five:32, "public", 0, "t", 0, Described/binary>> = Now,
    ?assertEqual([Renewed, {change, {add, <<"t(a, b)">>, {<<"2">>, <<"1">>}}, 9}],
                 steps([begins(100), <<$R, Five:32, "public", 0, "u", 0, Described/binary>>,
                        insert(<<"1">>, <<"2">>)])),
    %% One that had its name before it was copied.
    ?assertEqual([{position, 51}],
                 steps([begins(50), <<$R, 7:32, "public", 0, "t", 0, Described/binary>>,
                        <<$I, 7:32, $N, 2:16, $t, 1:32, "1", $t, 1:32, "2">>, commits(50)])),
    %% A partition has another replica identity, and nothing more is taken behind that.
    ?assertMatch([Renewed, {stop, <<"t(a, b)">>, <<"a change of a partition", _/binary>>}, Renewed],
                 steps([begins(100), Now, <<$D, 5:32, $K, 2:16, $n, $t, 1:32, "1">>,
                        insert(<<"1">>, <<"2">>)])),
    <<$R, _:32, Rest/binary>> = Now,
    ?assertMatch([{stop, <<"t(a, b)">>, <<"there is another table", _/binary>>},
                  {renewed, <<"t(a, b)">>}],
                 steps([begins(100), <<$R, 7:32, Rest/binary>>,
                        <<$I, 7:32, $N, 2:16, $t, 1:32, "1", $t, 1:32, "2">>])).

%% The same place on two timelines, and the same number twice, are two events.
ids_test() ->
    Id = fun(Lsn, Timeline, History) ->
        halley_postgres_message:id(Lsn, {<<"73">>, Timeline, History})
    end,
    ?assertEqual(<<"pg-73-0/10">>, Id(16, 1, [])),
    ?assertEqual(<<"pg-73-0/10">>, Id(16, 3, [{1, 17}, {2, 30}])),
    %% The place is the end of a record: a timeline's last one has its end.
    ?assertEqual(<<"pg-73-0/11">>, Id(17, 3, [{1, 17}, {2, 30}])),
    ?assertEqual(<<"pg-73.2-0/12">>, Id(18, 3, [{1, 17}, {2, 30}])),
    ?assertEqual(<<"pg-73.2-0/1E">>, Id(30, 3, [{1, 17}, {2, 30}])),
    ?assertEqual(<<"pg-73.3-0/1F">>, Id(31, 3, [{1, 17}, {2, 30}])),
    Row = #{<<"id">> => <<"7">>, <<"subject">> => <<"s">>, <<"data">> => <<"1">>},
    ok = halley_limits:set(#{}),
    Ids = [begin
               {ok, {_, _, #{id := RowId}}} =
                   halley_postgres_message:of_row(Row#{<<"created_at">> => At}, <<"p-">>),
               RowId
           end || At <- [<<"2026-11-24 01:00:00.1+00">>, <<"2026-11-24 01:00:00.1+00">>,
                         <<"2026-11-24 01:00:00.2+00">>]],
    ?assertMatch([Same, Same, Other] when Same =/= Other, Ids).

%% What a write of ours has left is told behind its whole transaction, wherever it stands in it.
seen_test() ->
    Now = relation([{<<"b">>, 1}, {<<"a">>, 1}]),
    Left = <<"M", 1, 100:64, "halley_follows", 0, 7:32, "t 1 - -">>,
    ?assertEqual([{renewed, <<"t(a, b)">>},
                  {change, {add, <<"t(a, b)">>, {<<"2">>, <<"1">>}}, 9}, {position, 101},
                  {seen, <<"t 1 - -">>}],
                 steps([begins(100), Now, Left, insert(<<"1">>, <<"2">>), commits(100)])).

texts_of_types_test() ->
    Is = fun(Type, Texts) ->
        [Text || Text <- Texts, halley_postgres_sql:is_text_of(Text, Type)]
    end,
    ?assertEqual([<<"0">>, <<"-1">>, <<"9223372036854775807">>],
                 Is(<<"bigint">>, [<<"0">>, <<"-1">>, <<"9223372036854775807">>,
                                   <<"9223372036854775808">>, <<"007">>, <<"-0">>, <<"+1">>,
                                   <<"1\n">>, <<"1.0">>, <<>>, <<" 1">>, <<"ann">>])),
    ?assertEqual([<<"32767">>], Is(<<"smallint">>, [<<"32767">>, <<"-32769">>])),
    Uuid = <<"0f8fad5b-d9cb-469f-a165-70867728950e">>,
    ?assertEqual([Uuid], Is(<<"uuid">>, [Uuid, string:uppercase(Uuid), <<"{", Uuid/binary, "}">>])),
    ?assertEqual([<<"ann">>], Is(<<"text">>, [<<"ann">>])).
