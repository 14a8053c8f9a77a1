%% Parts that need no server: SCRAM by RFC 7677's example, passwords by RFC 4013's, geometry, and
%% that codecs read what they have written.
-module(epgsql_codecs_tests).

-include_lib("eunit/include/eunit.hrl").
-include("epgsql_geometry.hrl").

%% Nonces and salt of RFC 7677, 3, with the empty name that PostgreSQL wants; the server's signature
%% is made here by the formula of RFC 5802, 3. A real server checks the proof in
%% epgsql_connection_SUITE.
scram_verifies_both_sides_test() ->
    Nonce = <<"rOprNGfwEbeRWgbNEkqO">>,
    {First, State} = epgsql_scram:first(none, Nonce),
    ?assertEqual(<<"n,,n=,r=rOprNGfwEbeRWgbNEkqO">>, iolist_to_binary(First)),
    ServerFirst = <<"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,",
                    "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096">>,
    {ok, Final, State1} = epgsql_scram:final(ServerFirst, "pencil", State),
    Salt = base64:decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
    Salted = crypto:pbkdf2_hmac(sha256, <<"pencil">>, Salt, 4096, 32),
    [WithoutProof, _] = string:split(iolist_to_binary(Final), ",p="),
    Message = <<"n=,r=rOprNGfwEbeRWgbNEkqO,", ServerFirst/binary, ",", WithoutProof/binary>>,
    Signature = crypto:mac(hmac, sha256, crypto:mac(hmac, sha256, Salted, "Server Key"), Message),
    Good = <<"v=", (base64:encode(Signature))/binary>>,
    ?assertEqual(ok, epgsql_scram:verify(Good, State1)),
    ?assertEqual({error, server_not_verified},
                 epgsql_scram:verify(<<"v=", (base64:encode(<<0:256>>))/binary>>, State1)),
    ?assertEqual({error, {server_error, <<"other-error">>}},
                 epgsql_scram:verify(<<"e=other-error">>, State1)),
    ?assertEqual({error, bad_server_final}, epgsql_scram:verify(<<>>, State1)).

scram_refuses_test_() ->
    {_, State} = epgsql_scram:first(none, <<"abc">>),
    [?_assertEqual({error, Reason}, epgsql_scram:final(ServerFirst, "pencil", State))
     || {ServerFirst, Reason} <- [
         {<<"r=xyz,s=AAAA,i=4096">>, nonce_mismatch}, {<<"r=abc,s=AAAA,i=4096">>, nonce_mismatch},
         {<<"r=abcd,s=AAAA,i=2000000000">>, {iterations, 2000000000}},
         {<<"r=abcd,s=AAAA,i=0">>, {iterations, 0}}, {<<"r=abcd,s=AAAA,i=x">>, bad_server_first},
         {<<"r=abcd,s=?,i=1">>, bad_server_first}, {<<"r=abcd">>, bad_server_first},
         {<<>>, bad_server_first}]].

%% RFC 5802, 6: an offer that was taken away by somebody in between must be noticed.
scram_mechanism_test_() ->
    Channel = {tls_server_end_point, <<"hash">>},
    [?_assertEqual(Expected, epgsql_scram:mechanism(Offered, Where))
     || {Offered, Where, Expected} <- [
         {[<<"SCRAM-SHA-256">>], none, {ok, <<"SCRAM-SHA-256">>, none}},
         {[<<"SCRAM-SHA-256">>], Channel, {ok, <<"SCRAM-SHA-256">>, unsupported}},
         {[<<"SCRAM-SHA-256">>, <<"SCRAM-SHA-256-PLUS">>], Channel,
          {ok, <<"SCRAM-SHA-256-PLUS">>, Channel}},
         {[<<"SCRAM-SHA-256-PLUS">>], none, none}, {[<<"GSSAPI">>], none, none}]].

%% RFC 4013, 3.
saslprep_test_() ->
    [?_assertEqual(unicode:characters_to_binary(Expected),
                   epgsql_saslprep:prepare(unicode:characters_to_binary(Given)))
     || {Given, Expected} <- [{"I\x{ad}X", "IX"}, {"user", "user"}, {"USER", "USER"},
                              {"\x{aa}", "a"}, {"\x{2168}", "IX"}, {"\x{e9}\x{7}", "\x{e9}\x{7}"},
                              {"a\x{a0}b", "a b"}]]
    ++ [?_assertEqual(<<255, 254>>, epgsql_saslprep:prepare(<<255, 254>>))].

geometry_test_() ->
    Point = #point{point_type = '3dm', x = 1.0, y = 2.0, z = 3.0, m = 4.0},
    Flat = #point{point_type = '2d', x = 1.0, y = 2.0},
    Line = #line_string{point_type = '2d', points = [Flat, Flat]},
    [?_assertEqual(Geometry,
                   ewkb:decode_geometry(iolist_to_binary(ewkb:encode_geometry(Geometry))))
     || Geometry <- [Point, Flat, Line, #polygon{point_type = '2d', rings = [Line, Line]},
                     #multi_point{point_type = '2d', points = [Flat]},
                     #compound_curve{point_type = '2d', lines = [Line]},
                     {geometry_collection, '2d', [Flat, Line]},
                     #tin{point_type = '2d', triangles = [#triangle{point_type = '2d',
                                                                    rings = [Line]}]}]]
    ++ [?_assertEqual(Flat, ewkb:decode_geometry(
            <<0, 16#20000001:32, 4326:32, 1.0:64/float, 2.0:64/float>>))].

%% A collection in a collection in a collection: bounded.
deep_geometry_test() ->
    Deep = << <<1, 7:32/little, 1:32/little>> || _ <- lists:seq(1, 100000) >>,
    ?assertError(_, ewkb:decode_geometry(Deep)).
