%% The meaning of `hooks.*': where hooks go, which are sent, and refused values.
-module(halley_hooks_config_tests).

-include_lib("eunit/include/eunit.hrl").

settings(Keys) ->
    halley_hooks_config:settings(maps:merge(#{url => "https://app.example.org/hooks",
                                              events => "published", secret_file => "/s"}, Keys)).

target(Url) ->
    {ok, #{target := Target}} = settings(#{url => Url}),
    Target().

says(Words, Keys) ->
    {error, Line} = settings(Keys),
    ?assertNotEqual({Words, nomatch}, {Words, string:find(iolist_to_binary(Line), Words)}).

nothing_is_configured_test() ->
    ?assertEqual(none, halley_hooks_config:settings(#{users => "*", subjects => "*"})),
    ?assertMatch({error, _}, halley_hooks_config:settings(#{events => "opened"})),
    ?assertMatch({error, _}, halley_hooks_config:settings(#{url => "https://a",
                                                            events => "opened"})).

url_test() ->
    ?assertMatch(#{tls := true, host := "app.example.org", port := 443, path := <<"/hooks">>,
                   authority := <<"app.example.org">>, ca := none, secret_file := "/s"},
                 target("https://app.example.org/hooks")),
    ?assertMatch(#{tls := false, host := "10.0.0.1", port := 8000, path := <<"/?a=b">>,
                   authority := <<"10.0.0.1:8000">>}, target("http://10.0.0.1:8000?a=b")),
    ?assertMatch(#{host := "::1", port := 80, authority := <<"[::1]">>}, target("http://[::1]/")),
    [says("hooks.url", #{url => Url})
     || Url <- ["ftp://a/b", "app.example.org", "http://", "http://a:99999/", "https://ann:pw@a/",
                "http://a/b c", "http://a/\r\nx: y", "http://a/b#c"]],
    [says("hooks.url: is one address", #{url => Url})
     || Url <- ["http://a/,http://b/", "http://a/b,https://c/d", "https://a/?b;https://c"]],
    ?assertMatch(#{path := <<"/?to=https://b">>}, target("https://a/?to=https://b")).

events_test() ->
    ?assertMatch({ok, #{events := [opened, closed, undelivered]}},
                 settings(#{events => "opened, closed,undelivered"})),
    says("hooks.events: say", #{events => " , "}),
    says("opend is none of opened", #{events => "opend"}).

patterns_test() ->
    {ok, #{users := Users, subjects := All}} = settings(#{users => "user/*, admin"}),
    Matches = fun(Id) -> halley_hooks_config:matches(Id, Users) end,
    ?assertEqual([true, true, true, false, false, false],
                 [Matches(Id) || Id <- [<<"user/">>, <<"user/7">>, <<"admin">>, <<"admins">>,
                                        <<"user">>, <<"x">>]]),
    ?assert(halley_hooks_config:matches(<<"anything">>, All)),
    says("hooks.users", #{users => ","}).

%% It may have a secret.
address_is_not_printed_test() ->
    {ok, Settings} = settings(#{url => "https://a/token-7"}),
    ?assertEqual(nomatch, string:find(io_lib:format("~0p", [Settings]), "token-7")),
    says("hooks.url", #{url => "https://us:token-7@a/"}),
    {error, Line} = settings(#{url => "https://us:token-7@a/"}),
    ?assertEqual(nomatch, string:find(iolist_to_binary(Line), "token-7")).
