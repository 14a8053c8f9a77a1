%% http.md 4.4: a parameter that isn't read is a server's mistake, and one that is almost known a
%% page's.
-module(halley_api_parameters_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [failed/3, says/2]).

cases_test_() ->
    halley_api_fake:cases([fun of_servers/0, fun of_pages/0, fun let_pass/0]).

of_servers() ->
    [?assert(says(Part, failed(400, unknown_parameter, ask(api, Method, Path, Name))), {Path, Name})
     || {Method, Path, Name, Part} <-
            [{<<"GET">>, "/v1/subjects/s/followers", <<"limt">>, "named limt; did you mean limit?"},
             {<<"GET">>, "/v1/subjects/s/followers", <<"page">>, "there are limit, after"},
             {<<"GET">>, "/v1/subjects/s/followers", <<"before">>, "there are limit, after"},
             {<<"GET">>, "/v1/subjects/s/events", <<"Before">>, "did you mean before?"},
             {<<"GET">>, "/v1/users/u", <<"limit">>, "this resource has none"},
             {<<"GET">>, "/v1/users/u", <<255, "\r\n">>, "named like one of the query's"},
             {<<"DELETE">>, "/v1/users/u/sessions", <<"user">>, "this resource has none"},
             {<<"GET">>, "/v1/ended", <<"reson">>, "did you mean reason?"},
             {<<"GET">>, "/v1/events/e/trace", <<"users">>, "did you mean user?"},
             {<<"POST">>, "/v1/events", <<"keep">>, "this resource has none"}]],
    Headers = #{<<"content-type">> => <<"application/json">>},
    Event = halley_api_fake:post(api, "/v1/events",
                                 {Headers, <<"{\"subject\":\"s\",\"data\":1}">>}),
    ?assertMatch({answer, {400, _, _}},
                 halley_api:prepare(Event#{query := [{<<"keep">>, <<"true">>}]})),
    ?assertMatch({publish, _, _}, halley_api:prepare(Event)).

of_pages() ->
    [?assert(says(Part, failed(400, unknown_parameter,
                               ask(public, <<"GET">>, "/v1/me/follows", Name))), Name)
     || {Name, Part} <- [{<<"limt">>, "mean limit?"}, {<<"aftr">>, "mean after?"},
                         {<<"USER">>, "mean user?"}, {<<"tokne">>, "mean token?"},
                         {<<"li_mit">>, "mean limit?"}, {<<"limits">>, "mean limit?"}]].

let_pass() ->
    [begin
         {Status, _, Body} = ask(Listener, <<"GET">>, Path, Name),
         Text = iolist_to_binary(Body),
         ?assertMatch({Path, Name, nomatch},
                      {Path, Name, binary:match(Text, <<"unknown_parameter">>)}),
         ?assert(is_integer(Status))
     end || {Listener, Path, Names} <-
                [{public, "/v1/me/follows", [<<"_">>, <<"utm_source">>, <<"v">>, <<"used">>,
                                             <<"time">>, <<"use">>, <<"fast">>, <<>>, <<255>>]},
                 {api, "/readyz", [<<"verbose">>]}, {api, "/metrics", [<<"limt">>]},
                 {api, "/console", [<<"v">>]}, {api, "/v1/nothing", [<<"x">>]},
                 {api, "/v1/users/u", [<<>>]}],
            Name <- Names].

ask(Listener, Method, Path, Name) ->
    Headers = #{<<"halley-user">> => <<"ann">>, <<"halley-rights">> => <<>>},
    Request = halley_api_fake:with_headers(Listener, Method, Path, Headers),
    halley_api:handle(Request#{query := [{Name, <<"1">>}]}).
