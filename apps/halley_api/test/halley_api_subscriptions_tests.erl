%% The right to subscribe, and the answers of the door (http.md 21).
-module(halley_api_subscriptions_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [json/1, failed/3]).

doors_test_() ->
    halley_api_fake:cases([fun who_may/0, fun several/0, fun answers/0, fun who_may_ask/0,
                           fun over_http/0, fun the_status/0]).

request(Method, Subject, Headers) ->
    #{method => Method, path => [<<"v1">>, <<"me">>, <<"subscriptions">>, Subject], query => [],
      headers => Headers, listener => public, body => {full, <<>>}}.

wish(Method, Subject, User, Rights) ->
    halley_api:prepare(request(Method, Subject, #{<<"halley-user">> => User,
                                                  <<"halley-rights">> => Rights})).

%% 21.7: users and visitors, by their claims.
who_may() ->
    Rights = <<"{\"subscribe\":[\"*\"]}">>,
    [begin
         ?assertMatch({subscription, add, User, <<"a">>, _},
                      wish(<<"PUT">>, <<"a">>, User, Rights)),
         failed(403, right_missing, element(2, wish(<<"PUT">>, <<"a">>, User, <<"{}">>))),
         [failed(400, bad_subject, element(2, wish(<<"PUT">>, Subject, User, Rights)))
          || Subject <- [<<"a\n">>, <<>>]]
     end || User <- [<<"ann">>, <<>>]].

%% "Each subject must match."
several() ->
    Rights = <<"{\"subscribe\":[\"room/*\",\"hall\"]}">>,
    ?assertEqual(ok, halley_api:subscribable(Rights, [])),
    ?assertEqual(ok, halley_api:subscribable(Rights, [<<"room/1">>, <<"hall">>])),
    {error, {403, <<"right_missing">>, Message}} =
        halley_api:subscribable(Rights, [<<"room/1">>, <<"hall/1">>]),
    ?assertMatch({match, _}, re:run(Message, "no right to subscribe to hall/1: no pattern in "
                                             "\"subscribe\"")),
    ?assertMatch({error, {400, <<"bad_subject">>, _}},
                 halley_api:subscribable(<<"{\"subscribe\":[\"*\"]}">>, [<<"a">>, <<255>>])).

%% link.md 17: a server key with the scope `read' stands where others have rights, behind a byte
%% that no rights begin with; to everybody else the subject is no id.
the_status() ->
    Status = halley_own:status(),
    Ask = fun(Authorization) ->
        halley_api:subscribable(<<3, Authorization/binary>>, [Status])
    end,
    ?assertEqual(ok, Ask(<<>>)),
    [?assertMatch({error, {400, <<"bad_subject">>, _}}, halley_api:subscribable(Rights, Subjects))
     || {Rights, Subjects} <- [{<<"{\"subscribe\":[\"*\"]}">>, [Status]},
                               {<<"{\"subscribe\":[\"*\"]}">>, [<<"a">>, Status]},
                               {<<>>, [Status]}, {<<3>>, [<<3, "other">>]}]],
    [?assertMatch({error, {403, <<"right_missing">>, _}}, halley_api:subscribable(<<3>>, Subjects))
     || Subjects <- [[<<"a">>, Status], [<<"a">>, <<"b">>]]],
    {Reader, ReaderKey} = halley_server_key:new(<<"reader">>, [read], 0),
    {Publisher, PublisherKey} = halley_server_key:new(<<"publisher">>, [publish], 0),
    ok = halley_server_keys:force(true, [ReaderKey, PublisherKey]),
    ?assertEqual(ok, Ask(<<"Bearer ", Reader/binary>>)),
    [?assertMatch({error, {Answer, Code, _}}, Ask(Shown))
     || {Shown, Answer, Code} <- [{<<>>, 401, <<"key_missing">>},
                                  {<<"Bearer ", Publisher/binary>>, 403, <<"scope_missing">>}]],
    ok = halley_server_keys:force(true, [PublisherKey]),
    ?assertMatch({error, {401, _, _}}, Ask(<<"Bearer ", Reader/binary>>)).

%% 21.4, 21.5
answers() ->
    {subscription, add, _, _, Told} =
        wish(<<"PUT">>, <<"a">>, <<"ann">>, <<"{\"subscribe\":[\"*\"]}">>),
    [?assertEqual(Expected, json(Told(Result)))
     || {Result, Expected} <- [{added, #{<<"added">> => 1, <<"already">> => 0}},
                               {already, #{<<"added">> => 0, <<"already">> => 1}},
                               {removed, #{<<"removed">> => 1, <<"absent">> => 0}},
                               {absent, #{<<"removed">> => 0, <<"absent">> => 1}}]],
    [failed(Status, Code, Told(Result))
     || {Result, Status, Code} <- [{too_many_of_session, 400, too_many_subscriptions},
                                   {too_many, 503, too_many_subscriptions},
                                   {no_session, 409, no_session}]].

%% A user, or a visitor's WebSocket; whoever has neither header is nobody at all.
who_may_ask() ->
    [begin
         {answer, Answer} = halley_api:prepare(request(<<"PUT">>, <<"a">>, Headers)),
         failed(401, user_missing, Answer)
     end || Headers <- [#{}, #{<<"halley-user">> => <<255>>},
                        #{<<"halley-rights">> => <<"{\"subscribe\":[\"*\"]}">>}]],
    ?assertEqual(later, halley_api:prepare((request(<<"PUT">>, <<"a">>, #{}))#{listener := api})).

%% A body that is still to come has no WebSocket.
over_http() ->
    Request = request(<<"PUT">>, <<"a">>, #{<<"halley-user">> => <<"ann">>}),
    failed(409, no_session, halley_api:handle(Request)).
