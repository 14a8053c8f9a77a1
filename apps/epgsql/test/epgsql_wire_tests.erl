%% Messages, byte for byte as PostgreSQL's documentation says ("Message Formats").
-module(epgsql_wire_tests).

-include_lib("eunit/include/eunit.hrl").
-include("epgsql.hrl").

-define(BYTES(Expected, Message),
        ?assertEqual(Expected, iolist_to_binary(epgsql_frontend:encode(Message)))).

frontend_test() ->
    ?BYTES(<<$Q, 13:32, "select 1", 0>>, epgsql_frontend:query("select 1")),
    ?BYTES(<<$P, 16:32, "s", 0, "sql", 0, 1:16, 23:32>>,
           epgsql_frontend:parse("s", <<"sql">>, <<1:16, 23:32>>)),
    ?BYTES(<<$B, 14:32, "p", 0, "s", 0, 0:16, 0:16, 0:16>>,
           epgsql_frontend:bind("p", "s", <<0:16, 0:16>>, <<0:16>>)),
    ?BYTES(<<$D, 7:32, $S, "s", 0>>, epgsql_frontend:describe(statement, "s")),
    ?BYTES(<<$E, 9:32, 0, 7:32>>, epgsql_frontend:execute("", 7)),
    ?BYTES(<<$C, 7:32, $P, "p", 0, $S, 4:32>>,
           [epgsql_frontend:close(portal, "p"), epgsql_frontend:plain(sync)]),
    ?assertEqual(<<21:32, 3:16, 0:16, "user", 0, "ann", 0, "a", 0, 0, 0>>,
                 iolist_to_binary(epgsql_frontend:startup([{"user", "ann"}, {"a", ""}]))),
    ?assertEqual(<<16:32, 1234:16, 5678:16, 7:32, -1:32>>, epgsql_frontend:cancel_request(7, -1)),
    ?assertEqual(<<8:32, 1234:16, 5679:16>>, epgsql_frontend:ssl_request()).

%% A NUL would end the query early; the server would run its first half.
nul_is_refused_test() ->
    ?assertError({nul_in_string, query}, epgsql_frontend:query(<<"select 1", 0, "2">>)),
    ?assertError({nul_in_string, statement}, epgsql_frontend:parse([0], "", <<>>)).

unicode_query_test() ->
    {$Q, Payload} = epgsql_frontend:query([1087, "x"]),
    ?assertEqual(<<1087/utf8, "x", 0>>, iolist_to_binary(Payload)).

error_test() ->
    Payload = <<"SFEHLER", 0, "VERROR", 0, "C42P01", 0, "Mnone", 0, "P15", 0, "zwhat", 0,
                "Ffile.c", 0, 0>>,
    ?assertEqual(#error{severity = error, code = <<"42P01">>, codename = undefined_table,
                        message = <<"none">>,
                        extra = [{file, <<"file.c">>}, {position, <<"15">>},
                                 {severity, <<"FEHLER">>}]},
                 epgsql_backend:error(Payload)).

complete_test_() ->
    [?_assertEqual(Expected, epgsql_backend:complete(<<Tag/binary, 0>>))
     || {Tag, Expected} <- [{<<"SELECT 3">>, select}, {<<"INSERT 0 2">>, {insert, 2}},
                            {<<"MERGE 4">>, {merge, 4}}, {<<"CREATE TABLE">>, create},
                            {<<"COPY 15000000">>, {copy, 15000000}}, {<<"NEWER">>, other}]].

codenames_test() ->
    ?assertEqual(query_canceled, epgsql_errcodes:to_name(<<"57014">>)),
    ?assertEqual(unique_violation, epgsql_errcodes:to_name(<<"23505">>)),
    ?assertEqual(successful_completion, epgsql_errcodes:to_name(<<"00000">>)),
    ?assertEqual(undefined, epgsql_errcodes:to_name(<<"99999">>)).

%% 1 GB is more than a server sends: what claims more is no message.
length_is_bounded_test() ->
    ?assertError({malformed, message_length}, epgsql_backend:message(<<$D, 16#40000000:32>>)),
    ?assertError({malformed, message_length}, epgsql_backend:message(<<$D, 3:32>>)),
    ?assertEqual(more, epgsql_backend:message(<<$D, 16#3fffffff:32, 1>>)).
