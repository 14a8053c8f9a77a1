%% Targets and answers, without a link.
-module(halley_edge_request_tests).

-include_lib("eunit/include/eunit.hrl").

target_test_() ->
    [{Target, ?_assertMatch({ok, #{path := Path, query := Query}}, parse(Target))}
     || {Target, Path, Query} <- [
         {"/", [], []},
         {"*", [], []},
         {"/v1/users/a%2Fb%20c", [<<"v1">>, <<"users">>, <<"a/b c">>], []},
         {"/demo/", [<<"demo">>, <<>>], []},
         {"/a+b?a+b=c+d", [<<"a+b">>], [{<<"a b">>, <<"c d">>}]},
         {"/?a=1=2&&b", [], [{<<"a">>, <<"1=2">>}, {<<"b">>, <<>>}]},
         {"/%C3%BC", [<<"ü"/utf8>>], []},
         {"http://host:1/v1?x=y", [<<"v1">>], [{<<"x">>, <<"y">>}]},
         {"https://host", [], []},
         {"http://host?q", [], [{<<"q">>, <<>>}]}]].

bad_target_test_() ->
    [{Target, ?_assertMatch({error, {400, _, _}}, parse(Target))}
     || Target <- ["", "v1", "/%", "/%4", "/%4g", "/a?%", "http://", "http:///v1", "ftp://host/"]].

repeated_headers_are_one_test() ->
    Headers = [{<<"a">>, <<"1">>}, {<<"b">>, <<>>}, {<<"a">>, <<"2">>}],
    {ok, #{headers := Map}} = halley_edge_request:parse(api, <<"GET">>, <<"/">>, Headers),
    ?assertEqual(#{<<"a">> => <<"1, 2">>, <<"b">> => <<>>}, Map).

%% However long the body, the frames carry exactly it, and only the last says END.
response_test_() ->
    [{integer_to_list(Bytes), fun() ->
        Body = binary:copy(<<"x">>, Bytes),
        Frames = halley_edge_request:response(7, 200, [{<<"a">>, "b"}], [Body], 0),
        {ok, Decoded, <<>>} = halley_edge_codec:deframe(iolist_to_binary(Frames)),
        [{_, {response, 7, 200, _, Bytes, [{<<"a">>, <<"b">>}], First}} | Rest] = Decoded,
        Parts = [Part || {_, {response_body, 7, _, Part}} <- Rest],
        ?assertEqual(Body, iolist_to_binary([First | Parts])),
        Ends = [element(4, Frame) band 1 || {_, Frame} <- [hd(Decoded)]]
            ++ [element(3, Frame) || {_, Frame} <- Rest],
        ?assertEqual(lists:duplicate(length(Decoded) - 1, 0) ++ [1], Ends)
     end} || Bytes <- [0, 1, 65536, 65537, 131072, 131073, 1000000]].

parse(Target) ->
    halley_edge_request:parse(public, <<"GET">>, list_to_binary(Target), []).
