%% The lines of `make run' for a person to try, for configurations that differ.
-module(halley_try_command_tests).

-include_lib("eunit/include/eunit.hrl").

-define(PLAIN, #{public => "127.0.0.1:8080", api => "127.0.0.1:8081", auth_mode => none,
                 needs_key => false, tls => []}).

said(Facts) ->
    unicode:characters_to_list(lists:join("\n", halley_try_command:lines(Facts))).

has(Text, Part) -> string:find(Text, Part) =/= nomatch.

plain_test_() ->
    Said = said(?PLAIN),
    [?_assert(has(Said, Part)) || Part <- ["http://localhost:8080/demo\n",
                                           "'http://localhost:8080/v1/stream?user=ann'",
                                           " http://localhost:8081/v1/events"]]
    ++ [?_assertNot(has(Said, "$"))].

other_addresses_test_() ->
    Said = said(?PLAIN#{public := "0.0.0.0:9000", api := "[::1]:9001"}),
    [?_assert(has(Said, Part)) || Part <- ["http://localhost:9000/demo",
                                           "http://[::1]:9001/v1/events"]]
    ++ [?_assertNot(has(Said, "8080"))].

%% halley_api_demo_h: "Only in auth.mode none".
no_demo_with_tokens_test_() ->
    Said = said(?PLAIN#{auth_mode := jwt}),
    [?_assertNot(has(Said, "/demo")), ?_assertNot(has(Said, "?user=")),
     ?_assert(has(Said, "-H \"Authorization: Bearer $TOKEN\" http://localhost:8080/v1/stream"))].

tls_of_either_listener_test_() ->
    Public = said(?PLAIN#{tls := ["--public-certificate", "--public-key"]}),
    Api = said(?PLAIN#{tls := ["--api-certificate", "--api-key", "--api-client-ca"]}),
    [?_assert(has(Public, "https://localhost:8080/demo")),
     ?_assert(has(Public, "http://localhost:8081/")),
     ?_assert(has(Public, "localhost stands for the name in the certificate")),
     ?_assert(has(Api, "http://localhost:8080/demo")),
     ?_assert(has(Api, "--cert client.pem --key client.key")),
     ?_assert(has(Api, "https://localhost:8081/"))].

server_keys_test() ->
    ?assert(has(said(?PLAIN#{needs_key := true}),
                "curl -H \"Authorization: Bearer $KEY\" -d '")).
