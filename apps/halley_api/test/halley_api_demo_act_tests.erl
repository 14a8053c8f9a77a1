%% The right to kill the brain from a page: the demo page alone, in a browser on this machine.
-module(halley_api_demo_act_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [call/4, with_headers/4, failed/3]).

-define(HOST, <<"localhost:8080">>).

facts(Headers) ->
    Own = #{<<"host">> => ?HOST, <<"origin">> => <<"http://localhost:8080">>,
            <<"x-halley-demo">> => <<"act">>},
    #{auth_mode => none, listen => <<"127.0.0.1:8080">>, headers => maps:merge(Own, Headers)}.

the_page_may_test() ->
    ?assertEqual(none, halley_api_demo_act_h:refusal(facts(#{}))),
    [?assertEqual(none, halley_api_demo_act_h:refusal(facts(
         #{<<"host">> => Host, <<"origin">> => <<"http://", Host/binary>>})))
     || Host <- [<<"127.0.0.1:80">>, <<"[::1]:8080">>, <<"localhost">>]].

others_may_not_test() ->
    Refused = fun(Headers) -> element(1, halley_api_demo_act_h:refusal(facts(Headers))) end,
    [?assertEqual(403, Refused(Headers))
     || Headers <- [#{<<"origin">> => <<>>}, #{<<"origin">> => <<"null">>},
                    #{<<"origin">> => <<"http://evil.example">>},
                    #{<<"origin">> => <<"http://localhost:3000">>},
                    #{<<"x-halley-demo">> => <<>>},
                    %% A name that somebody bound to 127.0.0.1 has this host and this origin.
                    #{<<"host">> => <<"evil.example:8080">>,
                      <<"origin">> => <<"http://evil.example:8080">>},
                    #{<<"host">> => <<"localhost.evil.example">>,
                      <<"origin">> => <<"http://localhost.evil.example">>},
                    #{<<"host">> => <<>>, <<"origin">> => <<"http://">>}]].

nowhere_else_test() ->
    Refusal = fun(More) ->
        element(1, halley_api_demo_act_h:refusal(maps:merge(facts(#{}), More)))
    end,
    ?assertEqual(404, Refusal(#{auth_mode => jwt})),
    ?assertEqual(403, Refusal(#{listen => <<"0.0.0.0:8080">>})),
    ?assertEqual(403, Refusal(#{listen => <<"192.0.2.1:8080">>})).

acts_test_() ->
    halley_api_fake:cases([fun acts/0]).

acts() ->
    Do = fun(Act) ->
        Headers = maps:get(headers, facts(#{})),
        halley_api:handle(with_headers(public, <<"POST">>, "/demo/acts/" ++ Act, Headers))
    end,
    %% This emulator has no launcher, so it must not die of this.
    failed(409, no_launcher, Do("kill-brain")),
    failed(400, bad_user, Do("celebrity")),
    failed(404, not_found, Do("other")),
    failed(403, demo_only, call(public, <<"POST">>, "/demo/acts/kill-brain", <<>>)),
    failed(405, method_not_allowed, call(public, <<"GET">>, "/demo/acts/kill-brain", <<>>)).
