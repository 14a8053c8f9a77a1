%% Rights of requests: every route with every kind of client, and the rights of users' tokens.
-module(halley_api_access_tests).

-include("support/halley_api_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [as_user/5, with_headers/4, header/2, json/1, failed/3, says/2]).

-define(EVERYTHING, <<"{\"publish\":[\"*\"],\"to\":[\"*\"],\"follow\":[\"*\"],"
                     "\"subscribe\":[\"*\"],\"presence\":[\"*\"],\"history\":[\"*\"],"
                     "\"state\":[\"*\"]}">>).
-define(NDJSON, <<"application/x-ndjson">>).
-define(JSON, <<"application/json">>).

access_test_() ->
    halley_api_fake:cases([fun every_route_needs_its_scope/0, fun open_without_keys/0,
                           fun a_key_that_is_revoked_ends_its_uploads/0,
                           fun nobody_learns_what_there_is/0,
                           fun a_key_used_too_often/0, fun public_has_nothing_of_the_api/0,
                           fun users_need_a_token/0, fun publishing/0, fun publishing_many/0,
                           fun ids_of_users_are_their_own/0, fun following/0,
                           fun following_many/0, fun without_a_right_nothing_is_read/0,
                           fun each_line_is_a_message/0, fun private_rights/0,
                           fun each_user_is_a_message/0, fun bytes_are_counted/0,
                           fun each_follow_is_a_message/0,
                           fun presence/0, fun no_address_for_strangers/0]).

%% --- server keys ---------------------------------------------------------------------------------

with_keys(Scopes) ->
    {Text, Key} = halley_server_key:new(<<"test">>, Scopes, 0),
    ok = halley_server_keys:force(true, [Key]),
    <<"Bearer ", Text/binary>>.

%% A path of the route, with something for its open parts.
path(Pattern) -> lists:flatten(["/", lists:join("/", parts(Pattern))]).

parts(['_' | Rest]) -> ["x" | parts(Rest)];
parts([Part | Rest]) -> [binary_to_list(Part) | parts(Rest)];
parts(_) -> [].

method(Method) -> list_to_binary(string:uppercase(atom_to_list(Method))).

call(Listener, Method, Path, Headers) ->
    try halley_api:handle(with_headers(Listener, Method, Path, Headers))
    catch _:_ -> passed
    end.

refusal({Status, _, _} = Answer) when Status =:= 401; Status =:= 403 ->
    #{<<"error">> := #{<<"code">> := Code}} = json(Answer),
    {Status, Code};
refusal(_) ->
    none.

of_api() ->
    [{method(Method), path(Pattern), Need}
     || {api, Pattern, _, _, Methods, _} <- halley_api:routes(), {Method, Need} <- Methods].

%% Walks the table: without a key 401, with every other scope 403, with its own one neither.
every_route_needs_its_scope() ->
    Scopes = halley_server_key:scopes(),
    Needs = [Need || {_, _, Need} <- of_api()],
    ?assertEqual([admin, follow, known, nothing, publish, read], lists:usort(Needs)),
    ?assertEqual(["/healthz", "/readyz", "/console"], [Path || {_, Path, nothing} <- of_api()]),
    ?assertEqual(["/v1/key", "/"], [Path || {_, Path, known} <- of_api()]),
    [begin
         Ask = fun(Headers) -> refusal(call(api, Method, Path, Headers)) end,
         Any = Need =:= nothing orelse Need =:= known,
         Key = with_keys(case Any of true -> [read]; false -> [Need] end),
         Others = with_keys(Scopes -- [Need]),
         {Unknown, _} = halley_server_key:new(<<"test">>, Scopes, 0),
         case Need of
             nothing ->
                 [?assertEqual(none, Ask(Headers)) || Headers <- [#{}, #{auth() => Key}]];
             _ ->
                 ?assertEqual({401, <<"key_missing">>}, Ask(#{})),
                 ?assertEqual({401, <<"key_unknown">>},
                              Ask(#{auth() => <<"Bearer ", Unknown/binary>>})),
                 ?assertEqual({401, <<"key_unknown">>}, Ask(#{auth() => Key})),
                 _ = [?assertEqual({403, <<"scope_missing">>}, Ask(#{auth() => Others}))
                      || not Any],
                 ?assertEqual(none, Ask(#{auth() => with_keys(case Any of
                                                                 true -> [follow];
                                                                 false -> [Need]
                                                             end)}))
         end
     end || {Method, Path, Need} <- of_api()].

auth() -> <<"authorization">>.

nobody_learns_what_there_is() ->
    Key = with_keys([publish]),
    [?assertEqual({401, <<"key_missing">>}, refusal(call(api, Method, Path, #{})))
     || {Method, Path} <- [{<<"GET">>, "/nowhere"}, {<<"PATCH">>, "/v1/events"}, {<<"GET">>, "/"},
                           {<<"OPTIONS">>, "/v1/follows"}]],
    failed(404, not_found, call(api, <<"GET">>, "/nowhere", #{auth() => Key})),
    failed(405, method_not_allowed, call(api, <<"PATCH">>, "/v1/events", #{auth() => Key})),
    Missing = call(api, <<"GET">>, "/metrics", #{}),
    ?assertEqual(<<"Bearer realm=\"halley\"">>, header(<<"www-authenticate">>, Missing)),
    Scope = call(api, <<"GET">>, "/metrics", #{auth() => Key}),
    ?assert(says("the scope read", failed(403, scope_missing, Scope))),
    ?assert(says("scope=\"read\"", header(<<"www-authenticate">>, Scope))).

%% RFC 6585, 4: 429, and when to come back.
a_key_used_too_often() ->
    Key = with_keys([read]),
    halley_limits:set(#{requests_per_s_per_key_max => 2}),
    %% A clock that stands still: the third comes as soon as the first, however long it takes.
    NowNs = erlang:monotonic_time(nanosecond),
    ok = meck:new(halley_rate, [passthrough, no_link]),
    meck:expect(halley_rate, take, fun(Meter, PerS) -> halley_rate:take(Meter, PerS, NowNs) end),
    try
        Ask = fun() -> call(api, <<"GET">>, "/nowhere", #{auth() => Key}) end,
        [failed(404, not_found, Ask()) || _ <- [1, 2]],
        Refused = Ask(),
        ?assert(says("2 requests in a second", failed(429, too_many_requests, Refused))),
        ?assertEqual(<<"1">>, header(<<"retry-after">>, Refused))
    after
        meck:unload(halley_rate),
        halley_limits:set(#{})
    end.

open_without_keys() ->
    [?assertEqual(none, refusal(call(api, Method, Path, #{}))) || {Method, Path, _} <- of_api()].

%% Asked again as the body comes: what comes after the revocation is not published.
a_key_that_is_revoked_ends_its_uploads() ->
    [begin
         Key = with_keys([Scope]),
         {stream, Read} = halley_api_fake:stream([<<Line/binary, "\n">> || Line <- Lines]),
         Slow = fun() -> timer:sleep(300), After(self()), Read() end,
         Request = with_headers(api, Method, Path, #{auth() => Key, <<"content-type">> => ?NDJSON}),
         failed(401, key_unknown, halley_api:handle(Request#{body := {stream, Slow}})),
         ok
     end || {Scope, Method, Path, Lines, After} <-
                [{publish, <<"POST">>, "/v1/events", [event(1), event(2), event(3)],
                  revoked_after(2)},
                 {follow, <<"POST">>, "/v1/follows", [follow(1), follow(2), follow(3)],
                  revoked_after(2)},
                 {follow, <<"DELETE">>, "/v1/follows", [follow(1)], revoked_after(2)}]],
    Published = [Data || {_, {halley, publish_many, [Items]}, _} <- meck:history(halley),
                         {_, {json, Data}, _} <- Items],
    ?assertEqual([<<"1">>], Published),
    ?assertEqual([], halley_api_fake:committed(follow) ++ halley_api_fake:committed(unfollow)).

event(N) -> <<"{\"subject\":\"s\",\"data\":", (integer_to_binary(N))/binary, "}">>.

follow(N) -> <<"{\"user\":1,\"subject\":", (integer_to_binary(N + 1))/binary, "}">>.

%% Revokes every key at the Nth reading.
revoked_after(N) ->
    Read = counters:new(1, []),
    fun(_) ->
        counters:add(Read, 1, 1),
        counters:get(Read, 1) =:= N andalso halley_server_keys:force(true, [])
    end.

%% --- users ---------------------------------------------------------------------------------------

%% Even who is a user with all rights and shows a server's key gets nothing of the API there.
public_has_nothing_of_the_api() ->
    Headers = #{auth() => with_keys(halley_server_key:scopes()), <<"halley-user">> => <<"u">>,
                <<"halley-rights">> => ?EVERYTHING},
    [failed(404, not_found, call(public, Method, Path, Headers))
     || {Method, Path, _} <- of_api(), Path =/= "/"],
    [?assertMatch({public, [<<"v1">>, <<"me">> | _], _, _, _, _}, Route)
     || {public, _, Module, _, _, _} = Route <- halley_api:routes(), Module =/= halley_api_demo_h,
        Module =/= halley_api_demo_act_h].

of_me() ->
    [{method(Method), path(Pattern), Need}
     || {public, Pattern, _, _, Methods, _} <- halley_api:routes(),
        {Method, Need} <- Methods, Need =/= nothing].

%% Nobody's, or those of a visitor, where its session isn't meant.
strangers(Need) ->
    [#{}, #{<<"halley-rights">> => ?EVERYTHING}, #{<<"halley-user">> => <<255>>},
     #{auth() => <<"Bearer x">>}] ++ [#{<<"halley-user">> => <<>>} || Need =/= session].

users_need_a_token() ->
    ?assertEqual([session, user], lists:usort([Need || {_, _, Need} <- of_me()])),
    ?assertEqual(13, length(of_me())),
    [begin
         application:set_env(halley_api, auth_mode, Mode),
         try
             [begin
                  failed(401, Code, call(public, Method, Path, Headers)),
                  ok
              end || {Method, Path, Need} <- of_me(), Headers <- strangers(Need)]
         after application:unset_env(halley_api, auth_mode)
         end
     end || {Mode, Code} <- [{jwt, token_missing}, {none, user_missing}]],
    %% Nor is there anything of one's own on the API listener.
    [failed(404, not_found, call(api, Method, Path, #{<<"halley-user">> => <<"u">>,
                                                     <<"halley-rights">> => ?EVERYTHING}))
     || {Method, Path, _} <- of_me()].

rights(Name, Patterns) ->
    {<<"u">>, iolist_to_binary(jiffy:encode(#{Name => Patterns}))}.

publish(User, Body) ->
    as_user(User, <<"POST">>, "/v1/me/events", Body, ?JSON).

publishing() ->
    User = rights(publish, [<<"room/*">>, <<"u">>]),
    ?assertEqual(#{<<"id">> => <<"generated">>},
                 json(publish(User, <<"{\"subject\":\"room/1\",\"data\":1}">>))),
    ?assertMatch({200, _, _}, publish(User, <<"{\"subject\":\"u\",\"data\":1}">>)),
    Refused = publish(User, <<"{\"subject\":\"roof\",\"data\":1}">>),
    ?assert(says("publish about roof", failed(403, right_missing, Refused))),
    failed(400, bad_json, publish(User, <<"{">>)),
    ?assertEqual(2, meck:num_calls(halley, publish, '_')).

publishing_many() ->
    Body = <<"{\"subject\":\"a1\",\"data\":1}\n{\"subject\":\"b1\",\"data\":1}\n"
             "{\"subject\":\"a2\",\"data\":1,\"id\":\"x\"}\n">>,
    Answer = {200, _, Text} = as_user(rights(publish, [<<"a*">>]), <<"POST">>, "/v1/me/events",
                                      Body, ?NDJSON),
    ?assertEqual(?NDJSON, header(<<"content-type">>, Answer)),
    Lines = binary:split(iolist_to_binary(Text), <<"\n">>, [global, trim]),
    ?assertMatch([#{<<"id">> := <<"generated">>},
                  #{<<"error">> := #{<<"code">> := <<"right_missing">>}},
                  #{<<"id">> := <<"me:u:x">>}],
                 [jiffy:decode(Line, [return_maps]) || Line <- Lines]).

%% No two users' ids are the same, whatever the ids.
ids_of_users_are_their_own() ->
    Id = fun(User, Chosen) ->
        Body = iolist_to_binary(jiffy:encode(#{subject => <<"s">>, data => 1, id => Chosen})),
        maps:get(<<"id">>, json(publish({User, ?EVERYTHING}, Body)))
    end,
    Ids = [Id(User, Chosen) || {User, Chosen} <- [{<<"a">>, <<"b:c">>}, {<<"a:b">>, <<"c">>},
                                                  {<<"a%3Ab">>, <<"c">>}, {<<"a">>, <<"b%3Ac">>}]],
    ?assertEqual(4, length(lists:usort(Ids))),
    ?assertEqual(<<"me:a:b:c">>, hd(Ids)),
    Long = iolist_to_binary(["{\"subject\":\"s\",\"data\":1,\"id\":\"", lists:duplicate(253, $x),
                             "\"}"]),
    failed(400, bad_id, publish({<<"u">>, ?EVERYTHING}, Long)).

following() ->
    User = rights(follow, [<<"team-*">>]),
    Ask = fun(Method, Path) -> as_user(User, Method, Path, <<>>, <<>>) end,
    ?assertEqual(#{<<"added">> => 1, <<"already">> => 0},
                 json(Ask(<<"PUT">>, "/v1/me/follows/team-1"))),
    ?assertEqual([[{<<"u">>, <<"team-1">>}]], halley_api_fake:committed(follow)),
    ?assertEqual(#{<<"removed">> => 1, <<"absent">> => 0},
                 json(Ask(<<"DELETE">>, "/v1/me/follows/team-2"))),
    ?assertEqual([[{<<"u">>, <<"team-2">>}]], halley_api_fake:committed(unfollow)),
    failed(400, bad_subject, Ask(<<"PUT">>, "/v1/me/follows/" ++ lists:duplicate(256, $x))),
    ?assertMatch(#{<<"following">> := [<<"a">>, <<"b">>, <<"c">>]},
                 json(Ask(<<"GET">>, "/v1/me/follows"))),
    ?assert(meck:called(halley_follows_own, page, [<<"u">>, start, 100])),
    meck:expect(halley_follows, follow,
                fun(_) -> {ok, #{added => 0, already => 0, errors => [{1, self}]}} end),
    failed(400, self, as_user({<<"u">>, ?EVERYTHING}, <<"PUT">>, "/v1/me/follows/u", <<>>, <<>>)),
    meck:expect(halley_follows, follow, fun(_) -> {error, overloaded} end),
    failed(503, overloaded, Ask(<<"PUT">>, "/v1/me/follows/team-1")).

following_many() ->
    User = rights(follow, [<<"a">>, <<"b">>]),
    Body = <<"{\"subject\":\"a\"}\n{\"subject\":\"c\"}\n\n{\"user\":\"v\",\"subject\":\"a\"}\n"
             "{\"subject\":\"b\"}">>,
    Post = fun(Method, Type) -> as_user(User, Method, "/v1/me/follows", Body, Type) end,
    #{<<"added">> := 2, <<"errors">> := Errors} = json(Post(<<"POST">>, ?NDJSON)),
    ?assertMatch([#{<<"line">> := 2, <<"error">> := #{<<"code">> := <<"right_missing">>}},
                  #{<<"line">> := 4, <<"error">> := #{<<"code">> := <<"bad_follow">>}}], Errors),
    ?assertEqual([[{<<"u">>, <<"a">>}, {<<"u">>, <<"b">>}]], halley_api_fake:committed(follow)),
    ?assertMatch(#{<<"removed">> := 2}, json(Post(<<"DELETE">>, ?NDJSON))),
    #{<<"added">> := 2} = json(Post(<<"POST">>, <<"text/plain;charset=UTF-8">>)),
    failed(415, unsupported_media_type, Post(<<"POST">>, <<"text/html">>)).

without_a_right_nothing_is_read() ->
    Unread = {stream, fun() -> error(read) end},
    [begin
         Answer = as_user({<<"u">>, Rights}, Method, Path, Unread, ?NDJSON),
         ?assert(says("no right to " ++ Words, failed(403, right_missing, Answer)))
     end || {Method, Path, Words, Other} <-
                [{<<"POST">>, "/v1/me/events", "publish", <<"follow">>},
                 {<<"POST">>, "/v1/me/follows", "follow", <<"publish">>},
                 {<<"DELETE">>, "/v1/me/follows", "follow", <<"publish">>}],
            Rights <- [<<"{}">>, <<>>, <<"{\"", Other/binary, "\":[\"*\"]}">>]].

limited(Limits, Test) ->
    halley_limits:set(Limits),
    try Test() after halley_limits:set(#{}) end.

told_lines({_, _, Body}) ->
    [case jiffy:decode(Line, [return_maps]) of
         #{<<"error">> := #{<<"code">> := Code}} -> Code;
         #{<<"id">> := _} -> ok
     end || Line <- binary:split(iolist_to_binary(Body), <<"\n">>, [global, trim])].

%% http.md 16.9: "Each line of a body under `/v1/me/` is a message of its user".
each_line_is_a_message() ->
    limited(#{requests_per_user_per_s_max => 10}, fun() ->
        Line = fun(N) -> ["{\"subject\":\"s\",\"data\":", integer_to_list(N), "}\n"] end,
        Body = iolist_to_binary([Line(N) || N <- lists:seq(1, 1000)]),
        Publish = fun(User, Type) ->
            as_user({User, ?EVERYTHING}, <<"POST">>, "/v1/me/events",
                    case Type of ?JSON -> iolist_to_binary(Line(1)); _ -> Body end, Type)
        end,
        Answer = {429, _, _} = Publish(<<"u">>, ?NDJSON),
        ?assertEqual(<<"1">>, header(<<"retry-after">>, Answer)),
        Told = told_lines(Answer),
        ?assertEqual(<<"too_many_requests">>, lists:last(Told)),
        Passed = length(Told) - 1,
        %% 10 seconds' worth at once, and some that became due meanwhile.
        ?assert(Passed >= 100 andalso Passed < 200),
        Published = [Data || {_, {halley, publish_many, [Items]}, _} <- meck:history(halley),
                             {_, {json, Data}, _} <- Items],
        ?assertEqual([integer_to_binary(N) || N <- lists:seq(1, Passed)], Published),
        Refused = Publish(<<"u">>, ?JSON),
        ?assert(says("10 messages in a second", failed(429, too_many_requests, Refused))),
        ?assertEqual(<<"1">>, header(<<"retry-after">>, Refused)),
        ?assertMatch({200, _, _}, Publish(<<"v">>, ?JSON)),
        ?assert(meck:called(halley_metrics, incr, [user_too_often]))
    end).

%% auth.md: to all of them, or not at all; publishing about a subject is another right.
private_rights() ->
    Publish = fun(Rights, To) ->
        as_user({<<"u">>, Rights}, <<"POST">>, "/v1/me/events",
                iolist_to_binary(["{\"to\":", To, ",\"data\":1}"]), ?JSON)
    end,
    {200, _, _} = Publish(<<"{\"to\":[\"bob\",\"team/*\"]}">>, "[\"bob\",\"team/ann\"]"),
    ?assert(meck:called(halley, publish, [{to, [<<"bob">>, <<"team/ann">>]}, '_', '_'])),
    Before = meck:num_calls(halley, publish, '_'),
    [?assert(says(Says, failed(403, right_missing, Publish(Rights, To))))
     || {Rights, To, Says} <-
            [{<<"{\"to\":[\"bob\",\"team/*\"]}">>, "[\"bob\",\"eve\",\"mallory\"]",
              "publish to eve: no pattern in \"to\" of its claim \"halley\" matches"},
             {<<"{\"publish\":[\"*\"]}">>, "[\"bob\"]", "publish to bob"},
             {<<"{}">>, "[\"bob\"]", "publish about anything"}]],
    ?assertEqual(Before, meck:num_calls(halley, publish, '_')).

%% http.md 16.9: "each user that a private event is for counts as a message".
each_user_is_a_message() ->
    limited(#{requests_per_user_per_s_max => 10}, fun() ->
        Line = "{\"to\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\"],"
               "\"data\":1}\n",
        Answer = as_user({<<"u">>, <<"{\"to\":[\"*\"]}">>}, <<"POST">>, "/v1/me/events",
                         iolist_to_binary(lists:duplicate(50, Line)), ?NDJSON),
        ?assertMatch({429, _, _}, Answer),
        ?assertEqual(10, length(told_lines(Answer)) - 1)
    end).

%% 16.9: "bytes_per_user_per_s_max".
bytes_are_counted() ->
    limited(#{bytes_per_user_per_s_max => 60000}, fun() ->
        Event = ["{\"subject\":\"s\",\"data\":\"", binary:copy(<<"x">>, 60000), "\"}\n"],
        Body = iolist_to_binary(lists:duplicate(100, Event)),
        Answer = as_user({<<"u">>, ?EVERYTHING}, <<"POST">>, "/v1/me/events", Body, ?NDJSON),
        ?assertMatch({429, _, _}, Answer),
        ?assert(length(told_lines(Answer)) =< 15)
    end).

each_follow_is_a_message() ->
    limited(#{requests_per_user_per_s_max => 10}, fun() ->
        Body = iolist_to_binary([["{\"subject\":\"", integer_to_list(N), "\"}\n"]
                                 || N <- lists:seq(1, 1000)]),
        Answer = as_user({<<"u">>, ?EVERYTHING}, <<"POST">>, "/v1/me/follows", Body, ?NDJSON),
        #{<<"added">> := Added, <<"errors_total">> := Refused, <<"errors">> := [First | _]} =
            json(Answer),
        ?assertEqual(1000, Added + Refused),
        ?assert(Added >= 100 andalso Added < 200),
        ?assertMatch(#{<<"line">> := 101, <<"error">> := #{<<"code">> := <<"too_many_requests">>}},
                     First)
    end).

presence() ->
    Ask = fun(User, Path) -> as_user(User, <<"GET">>, Path, <<>>, <<>>) end,
    ?assertEqual(#{<<"user">> => <<"u">>, <<"online">> => true},
                 json(Ask({<<"u">>, <<"{}">>}, "/v1/me/presence/u"))),
    ?assertMatch(#{<<"online">> := true},
                 json(Ask(rights(presence, [<<"v*">>]), "/v1/me/presence/vera"))),
    meck:expect(halley, presence, fun(User) -> #{user => User, sessions => 0} end),
    ?assertMatch(#{<<"online">> := false}, json(Ask({<<"u">>, <<"{}">>}, "/v1/me/presence/u"))).

%% Where the API is, is nothing for the internet.
no_address_for_strangers() ->
    application:set_env(halley_api, auth_mode, jwt),
    try
        [?assertNot(says("listen", failed(404, not_found, call(public, <<"GET">>, Path, #{}))))
         || Path <- ["/v1/events", "/metrics", "/healthz", "/x"]]
    after application:unset_env(halley_api, auth_mode)
    end.

%% --- rights --------------------------------------------------------------------------------------

actions() -> [publish, to, follow, subscribe, presence, history, state].

%% `right' stands for each of them.
mistakes_in_claims_give_nothing_test_() ->
    [?_assertNot(halley_api_rights:allows(Action, <<"s">>, halley_api_rights:parse(
        binary:replace(Text, <<"right">>, atom_to_binary(Action), [global]))))
     || Text <- [<<>>, <<"null">>, <<"[]">>, <<"{">>, <<"\"*\"">>, <<"{\"right\":\"*\"}">>,
                 <<"{\"right\":{\"s\":1}}">>, <<"{\"right\":[[\"s\"]]}">>,
                 <<"{\"right\":[1,null,\"\"]}">>, <<"{\"right\":[\"s*\",\"*\"]">>,
                 <<"{\"right\":[],\"right\":[\"*\"]}">>, <<"{\"Right\":[\"*\"]}">>,
                 <<"{\"rights\":[\"*\"]}">>],
        Action <- actions()].

%% A pattern is an id, or a prefix and `*'; a `*' elsewhere means itself.
patterns_test_() ->
    [?_assertEqual(Expected, halley_api_rights:allows(Action, Subject, halley_api_rights:parse(
        iolist_to_binary(jiffy:encode(#{Action => [Pattern]})))))
     || {Pattern, Subject, Expected} <-
        [{<<"*">>, <<"a">>, true}, {<<"a">>, <<"a">>, true}, {<<"a">>, <<"ab">>, false},
         {<<"a*">>, <<"a">>, true}, {<<"a*">>, <<"ab">>, true}, {<<"a*">>, <<"ba">>, false},
         {<<"ab*">>, <<"a">>, false}, {<<"a*b">>, <<"axb">>, false}, {<<"a*b">>, <<"a*b">>, true},
         {<<"a**">>, <<"a*x">>, true}, {<<"a**">>, <<"ax">>, false}, {<<>>, <<"a">>, false}],
        Action <- actions()].

properties_test_() ->
    {timeout, 60, [?_assert(proper:quickcheck(prop_patterns(), [{numtests, 1000}, quiet])),
                   ?_assert(proper:quickcheck(prop_any_text(), [{numtests, 1000}, quiet]))]}.

%% What is allowed is what some pattern says, by another way of saying it.
prop_patterns() ->
    ?FORALL({Action, Patterns, Subject}, {oneof(actions()), list(word()), word()}, begin
        Rights = halley_api_rights:parse(iolist_to_binary(jiffy:encode(#{Action => Patterns}))),
        Expected = lists:any(fun(Pattern) -> means(binary_to_list(Pattern),
                                                   binary_to_list(Subject)) end, Patterns),
        halley_api_rights:allows(Action, Subject, Rights) =:= Expected
    end).

means("*", _) -> true;
means([C | Pattern], [C | Subject]) -> means(Pattern, Subject);
means(Pattern, Subject) -> Pattern =:= Subject.

word() -> ?LET(Text, list(oneof([$a, $b, $*])), list_to_binary(Text)).

prop_any_text() ->
    ?FORALL({Action, Text},
            {oneof(actions()), oneof([binary(), ?LET(B, binary(),
                                                     <<"{\"publish\":[\"", B/binary>>)])}, begin
        not halley_api_rights:allows(Action, <<"s">>, halley_api_rights:parse(Text))
    end).
