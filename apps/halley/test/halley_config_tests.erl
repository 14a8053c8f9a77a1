%% The configuration: the value of each key, and the message of each mistake.
-module(halley_config_tests).

-include_lib("eunit/include/eunit.hrl").

env(App, Key, {ok, #{env := Env}}) ->
    proplists:get_value(Key, proplists:get_value(App, Env)).

by_environment(Variables) ->
    halley_config:load(none, Variables).

by_file(Text) ->
    by_file(Text, []).

by_file(Text, Variables) ->
    File = filename:join("/tmp", "halley-config-test-" ++ os:getpid()
                             ++ "-" ++ integer_to_list(erlang:unique_integer([positive]))),
    ok = file:write_file(File, Text),
    try halley_config:load(File, Variables)
    after file:delete(File)
    end.

%% The contract's table of keys.
defaults_are_the_contract_s_test_() ->
    Config = by_environment([]),
    [?_assertEqual('halley@127.0.0.1', env(halley, node_name, Config)),
     ?_assertEqual(filename:absname("data"), env(halley, data_dir, Config)),
     ?_assertEqual("127.0.0.1:8080", env(halley_edge, public_listen, Config)),
     ?_assertEqual("127.0.0.1:8081", env(halley_edge, api_listen, Config)),
     ?_assertEqual(erlang:system_info(schedulers_online), env(halley_edge, workers, Config)),
     ?_assertEqual(undefined, env(halley_edge, connections_max, Config)),
     ?_assertEqual(filename:absname("data/edge"), env(halley_edge, socket_dir, Config)),
     ?_assertEqual([], env(halley_edge, tls_files, Config)),
     ?_assertEqual(on, env(halley_edge, sandbox, Config)),
     ?_assertEqual(none, env(halley, auth_mode, Config)),
     ?_assertEqual(none, env(halley_api, auth_mode, Config)),
     ?_assertEqual(none, env(halley, token_keys, Config)),
     ?_assertEqual(true, env(halley, api_on_loopback, Config)),
     ?_assertEqual(embedded, env(halley, store_backend, Config)),
     ?_assertMatch({ok, #{notices := []}}, Config)].

environment_wins_over_file_test() ->
    Config = by_file("edge.workers = 3\nlog.level = error\n", [{"HALLEY_EDGE_WORKERS", "5"}]),
    ?assertEqual(5, env(halley_edge, workers, Config)),
    ?assertEqual(error, env(halley, log_level, Config)).

variables_of_keys_with_underscores_test() ->
    ?assertEqual("HALLEY_EDGE_CONNECTIONS_MAX", halley_config:variable("edge.connections_max")),
    ?assertEqual(77, env(halley_edge, connections_max,
                         by_environment([{"HALLEY_EDGE_CONNECTIONS_MAX", "77"}]))).

variables_of_keys_are_unique_and_documented_test() ->
    Keys = halley_config:keys(),
    Variables = [Variable || #{variable := Variable} <- Keys],
    ?assertEqual(length(Variables), length(lists:usort(Variables))),
    ?assertEqual([], [Key || #{key := Key, doc := []} <- Keys]).

every_limit_has_a_key_test_() ->
    Keys = [Key || #{key := Key} <- halley_config:keys()],
    [?_assertEqual(Scope =/= fixed, lists:member("limits." ++ atom_to_list(Name), Keys))
     || {Name, _, _, Scope, _} <- halley_limits:table()].

limit_is_set_by_its_key_test() ->
    Config = by_file("limits.outbox_bytes_max = 4096\n"),
    ?assertMatch(#{outbox_bytes_max := 4096, headers_max := 64}, env(halley, limits, Config)).

history_and_drain_are_in_force_in_their_units_test_() ->
    Defaults = by_environment([]),
    Given = by_file("history.retention = 2h\nhistory.bytes = 1.5GB\ndrain.time = 1ms\n"),
    [?_assertEqual(Expected, env(halley, Key, Config))
     || {Expected, Key, Config} <- [{600000, history_retention_ms, Defaults},
                                    {4 bsl 30, history_bytes, Defaults},
                                    {7000, drain_ms, Defaults},
                                    {7200000, history_retention_ms, Given},
                                    {3 bsl 29, history_bytes, Given},
                                    {1, drain_ms, Given}]].

%% Segments go by the longest age; what has no age of its own is shown for history.retention.
ages_longer_than_the_retention_test_() ->
    Rooms = {prefix, <<"room/">>},
    All = {prefix, <<>>},
    [?_assertEqual({Ms, Rules}, {env(halley, history_retention_ms, Config),
                                 env(halley, history_retention_of, Config)})
     || {Text, Ms, Rules} <-
            [{"room/* 1s", 600000, [{Rooms, {age, 1000}}]},
             {"room/* 7d", 604800000, [{Rooms, {age, 604800000}}, {All, {age, 600000}}]},
             {"room/* 7d, * 1h", 604800000, [{Rooms, {age, 604800000}}, {All, {age, 3600000}}]},
             {"room/* 7d, * 9", 604800000, [{Rooms, {age, 604800000}}, {All, {count, 9}},
                                            {All, {age, 600000}}]}],
        Config <- [by_environment([{"HALLEY_HISTORY_RETENTION_OF", Text}])]].

%% Whoever sets it hears what it does to all the others.
kept_longer_test_() ->
    [?_assertMatch({Text, [Expected | _]}, {Text, Notices ++ [nothing]})
     || {Text, Expected} <- [{"", nothing}, {"room/* 1s, room/* 9", nothing}],
        {ok, #{notices := Notices}} <-
            [by_environment([{"HALLEY_HISTORY_RETENTION_OF", Text}])]]
    ++ [fun() ->
            Config = by_environment([{"HALLEY_HISTORY_RETENTION_OF", "room/* 7d"}]),
            {ok, #{notices := [Notice]}} = Config,
            ?assertMatch("history.retention_of: all events stay on disk for its longest age, "
                         "604800 s" ++ _, Notice),
            ?assertEqual(600000, env(halley, history_plain_retention_ms, Config))
        end].

%% What concerns the edge goes to it by the names of link.md 5.
choices_are_sent_to_the_edge_test() ->
    Config = by_file("public.slow_consumer = latest_per_subject\nadmission.rate = 250\n"
                     "public.websocket_compression = off\n"),
    Settings = env(halley, edge_settings, Config),
    ?assertEqual(<<"off">>, proplists:get_value(<<"websocket_compression">>, Settings)),
    ?assertEqual(<<"latest_per_subject">>, proplists:get_value(<<"slow_consumer">>, Settings)),
    ?assertEqual(<<"250">>, proplists:get_value(<<"admission_per_s_max">>, Settings)).

%% docs/internals/shares.md: a user has its share of the subscriptions as long as these limits say
%% so together.
a_user_with_more_than_its_share_is_noted_test_() ->
    [?_assertMatch({Variables, {ok, #{notices := ["limits.subscriptions_max: one user may have "
                                                  "100000 of its 1999999, " ++ _]}}},
                   {Variables, by_environment(Variables)})
     || Variables <- [[{"HALLEY_LIMITS_SUBSCRIPTIONS_MAX", "1999999"}]]]
    ++ [?_assertMatch({Variables, {ok, #{notices := []}}}, {Variables, by_environment(Variables)})
        || Variables <- [[{"HALLEY_LIMITS_SUBSCRIPTIONS_MAX", "2000000"}],
                         [{"HALLEY_LIMITS_SUBSCRIPTIONS_MAX", "1999999"},
                          {"HALLEY_LIMITS_SESSIONS_PER_USER_MAX", "999"}],
                         [{"HALLEY_LIMITS_SUBSCRIPTIONS_MAX", "1999999"},
                          {"HALLEY_LIMITS_SUBSCRIPTIONS_PER_SESSION_MAX", "99"}],
                         [{"HALLEY_LIMITS_SUBSCRIPTIONS_MAX", "1999999"},
                          {"HALLEY_LIMITS_USER_SHARE_PERCENT_MAX", "6"}]]].

api_that_others_can_reach_is_noted_test() ->
    ?assertMatch({ok, #{notices := ["api.listen: 0.0.0.0:9 can be reached" ++ _]}},
                 by_environment([{"HALLEY_API_LISTEN", "0.0.0.0:9"}])).

api_with_tls_is_not_noted_test() ->
    Config = by_environment([{"HALLEY_API_LISTEN", "0.0.0.0:9"},
                             {"HALLEY_API_TLS_CERTIFICATE", "/a.pem"},
                             {"HALLEY_API_TLS_KEY", "a.key"},
                             {"HALLEY_API_TLS_CLIENT_CA", "/ca.pem"}]),
    ?assertMatch({ok, #{notices := []}}, Config),
    ?assertEqual([{"--api-certificate", "/a.pem"}, {"--api-key", filename:absname("a.key")},
                  {"--api-client-ca", "/ca.pem"}], env(halley_edge, tls_files, Config)).

%% Each says what is wrong, by the key's name, in one line.
mistakes_test_() ->
    mistakes(
      [{"HALLEY_EDGE_WORKERS", "many", "edge.workers: must be a whole number; it is \"many\""},
       {"HALLEY_EDGE_WORKERS", "0", "edge.workers: must be a whole number from 1 to 1000"},
       {"HALLEY_EDGE_WORKERS", "1001", "edge.workers: must be a whole number from 1 to 1000"},
       {"HALLEY_EDGE_WORKER", "1", "HALLEY_EDGE_WORKER: no key has this variable; did you mean "
                                   "HALLEY_EDGE_WORKERS?"},
       {"HALLEY_LIMITS_NEWCOMERS_PERCENT_MAX", "40",
        "HALLEY_LIMITS_NEWCOMERS_PERCENT_MAX: no key has this variable; did you mean "
        "HALLEY_LIMITS_PENDING_CONNECTIONS_PERCENT_MAX?"},
       {"HALLEY_PUBLIC_LISTEN", "8080", "public.listen: must be an IP address and a port"},
       {"HALLEY_PUBLIC_LISTEN", "127.0.0.1:0", "public.listen: must be an IP address and a port"},
       {"HALLEY_PUBLIC_LISTEN", "127.0.0.1:65536", "public.listen: must be an IP address"},
       {"HALLEY_PUBLIC_LISTEN", "localhost:80", "public.listen: must be an IP address"},
       {"HALLEY_PUBLIC_LISTEN", "0.0.0.0:8080", "public.listen: 0.0.0.0:8080 can be reached"},
       {"HALLEY_PUBLIC_LISTEN", "[::]:8080", "public.listen: [::]:8080 can be reached"},
       {"HALLEY_PUBLIC_LISTEN", "127.0.0.1:8081", "api.listen: is 127.0.0.1:8081, as public"},
       {"HALLEY_AUTH_MODE", "jwt", "auth.mode: jwt needs the keys of the tokens; set auth.keys"},
       {"HALLEY_AUTH_KEYS", "/x", "auth.keys: there are keys for tokens, and auth.mode = none"},
       {"HALLEY_AUTH_LEEWAY", "11m", "auth.leeway: must be a duration from 1ms to 10m"},
       {"HALLEY_AUTH_ISSUER", [1], "auth.issuer: must have 1024 characters at most"},
       {"HALLEY_AUTH_MODE", "maybe", "auth.mode: must be one of none, jwt; it is \"maybe\""},
       {"HALLEY_STORE_BACKEND", "postgres", "store.backend: postgres needs postgres.follows"},
       {"HALLEY_STREAM_HEARTBEAT", "often", "stream.heartbeat: must be a duration such as"},
       {"HALLEY_STREAM_HEARTBEAT", "2h", "stream.heartbeat: must be a duration from 1s to 1h"},
       {"HALLEY_HISTORY_RETENTION", "long", "history.retention: must be a duration such as"},
       {"HALLEY_HISTORY_RETENTION", "999ms", "history.retention: must be a duration from 1s to"},
       {"HALLEY_HISTORY_RETENTION_OF", "room/*", "history.retention_of: room/*: a pattern and an"},
       {"HALLEY_HISTORY_RETENTION_OF", "room/* 31d", "history.retention_of: room/* 31d: an age"},
       {"HALLEY_HISTORY_RETENTION", "31d", "history.retention: must be a duration from 1s to"},
       {"HALLEY_HISTORY_BYTES", "much", "history.bytes: must be a number of bytes such as 500MB"},
       {"HALLEY_HISTORY_BYTES", "-4GB", "history.bytes: must be"},
       {"HALLEY_HISTORY_BYTES", "1000KB", "history.bytes: must be 1MB at least"},
       {"HALLEY_PUBLIC_SLOW_CONSUMER", "ignore", "public.slow_consumer: must be one of "
                                                 "disconnect, drop_oldest, latest_per_subject"},
       {"HALLEY_PUBLIC_WEBSOCKET_COMPRESSION", "yes",
        "public.websocket_compression: must be one of on, off"},
       {"HALLEY_ADMISSION_RATE", "0", "admission.rate: must be a whole number from 1 to"},
       {"HALLEY_ADMISSION_RATE", "all", "admission.rate: must be a whole number; it is \"all\""},
       {"HALLEY_DRAIN_TIME", "soon", "drain.time: must be a duration such as"},
       {"HALLEY_DRAIN_TIME", "0s", "drain.time: must be a duration"},
       {"HALLEY_DRAIN_TIME", "61m", "drain.time: must be a duration from 1ms to 1h"},
       {"HALLEY_NODE_NAME", "halley", "node.name: must be a name and a host with a dot in it"},
       {"HALLEY_DATA_DIR", "", "data.dir: must not be empty"},
       {"HALLEY_DATA_DIR", "/" ++ lists:duplicate(100, $d), "edge.socket_dir: /ddd"},
       {"HALLEY_CORS_ORIGINS", "example.org", "cors.origins: must be localhost, *, or a list"},
       {"HALLEY_LIMITS_HEADERS_MAX", "-1", "limits.headers_max: must be a whole number from 1"},
       {"HALLEY_LIMITS_LINK_WINDOW_BYTES", "9", "limits.link_window_bytes: must be 524288"},
       {"HALLEY_LIMITS_TRUNK_WINDOW_BYTES", "9", "limits.trunk_window_bytes: must be 524288"},
       {"HALLEY_LIMITS_EVENT_DATA_BYTES_MAX", "180225",
        "limits.event_data_bytes_max: must be 180224 at most, so that an event fits a frame"},
       {"HALLEY_LIMITS_GROUPS_MAX", "1025",
        "limits.groups_max: must be 1024 at most, as many as a worker takes"},
       {"HALLEY_LIMITS_LINK_QUEUE_REFUSE_BYTES", "99999999",
        "limits.link_queue_refuse_bytes: must be less than limits.link_queue_bytes_max"}]).

mistakes(Table) ->
    [{Variable ++ "=" ++ Value,
      fun() ->
          {error, Line} = by_environment([{Variable, Value}]),
          ?assertEqual(Beginning, string:slice(Line, 0, length(Beginning))),
          ?assertEqual(nomatch, string:find(Line, "\n"))
      end} || {Variable, Value, Beginning} <- Table].

%% Who comes in at the edge, and who says so.
doors_test_() ->
    mistakes(
      [{"HALLEY_LIMITS_PENDING_CONNECTIONS_PERCENT_MAX", "101",
        "limits.pending_connections_percent_max: must be 100 at most; it is 101"},
       {"HALLEY_LIMITS_EXEMPT", "10.0.0.0/33", "limits.exempt: must be a list of networks"},
       {"HALLEY_PUBLIC_PROXY_PROTOCOL", "on",
        "public.proxy_protocol: is on, and no proxy is trusted; set proxy.trusted"},
       {"HALLEY_PROXY_FORWARDED_FOR", "on", "proxy.forwarded_for: is on, and no proxy is"},
       {"HALLEY_API_PROXY_PROTOCOL", "v1", "api.proxy_protocol: must be one of on, off"},
       {"HALLEY_PROXY_TRUSTED", "10.0.0.0/8 ::1", "proxy.trusted: must be a list of networks"},
       {"HALLEY_LIMITS_PROXY_HEADER_BYTES_MAX", "16385",
        "limits.proxy_header_bytes_max: must be 16384 at most; it is 16385"},
       {"HALLEY_PRESENCE_SUBJECTS", "news,room/*/a", "presence.subjects: must be ids, and pre"},
       {"HALLEY_AUTH_ANONYMOUS", "*/news", "auth.anonymous: must be ids, and prefixes that end"},
       {"HALLEY_HOOKS_USERS", "user/**", "hooks.users: must be ids, and prefixes that end"},
       {"HALLEY_HOOKS_SUBJECTS", "room/* live/*", "hooks.subjects: must be ids, and prefixes"},
       {"HALLEY_LIMITS_EXEMPT", "localhost", "limits.exempt: must be a list of networks"}]).

%% auth.* together: where the keys come from, and what the edge is told.
tokens_test() ->
    Secret = "a secret of thirty-two characters",
    Config = by_environment([{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_HMAC_SECRET", Secret},
                             {"HALLEY_AUTH_AUDIENCE", "halley"}, {"HALLEY_AUTH_LEEWAY", "3s"},
                             {"HALLEY_PUBLIC_LISTEN", "0.0.0.0:8080"}]),
    {secret, Fun} = env(halley, token_keys, Config),
    ?assertEqual(list_to_binary(Secret), Fun()),
    ?assertEqual(nomatch, string:find(io_lib:format("~p", [Config]), "thirty-two")),
    Settings = env(halley, edge_settings, Config),
    ?assertEqual([<<"jwt">>, <<>>, <<"halley">>, <<"3000">>],
                 [proplists:get_value(Name, Settings)
                  || Name <- [<<"auth_mode">>, <<"auth_issuer">>, <<"auth_audience">>,
                              <<"auth_leeway_ms">>]]).

token_mistakes_test_() ->
    Jwt = {"HALLEY_AUTH_MODE", "jwt"},
    [fun() ->
         {error, Line} = by_environment([Jwt | Variables]),
         ?assertEqual(Beginning, string:slice(Line, 0, length(Beginning))),
         ?assertEqual(nomatch, string:find(Line, "hush"))
     end || {Variables, Beginning} <-
        [{[{"HALLEY_AUTH_HMAC_SECRET", "hush"}], "auth.hmac_secret: the secret has 4 bytes; HS256"},
         {[{"HALLEY_AUTH_HMAC_SECRET", "hush"}, {"HALLEY_AUTH_KEYS", "/x"}],
          "auth.hmac_secret: auth.keys is set as well; keys come from one place"}]].

unknown_key_test() ->
    {error, Line} = by_file("edge.wrokers = 3\n"),
    ?assertMatch({match, _},
                 re:run(Line, "there is no key edge.wrokers; did you mean edge.workers\\?$")).

key_that_is_gone_test() ->
    {error, InFile} = by_file("edge.trunk = off\n"),
    {error, ByVariable} = by_environment([{"HALLEY_EDGE_TRUNK", "on"}]),
    [?assertMatch({match, _}, re:run(Line, "every edge has a trunk.*: take it out$"))
     || Line <- [InFile, ByVariable]].

renamed_key_test() ->
    {error, Line} = by_file("limits.newcomers_percent_max = 40\n"),
    ?assertMatch({match, _},
                 re:run(Line, "did you mean limits.pending_connections_percent_max\\?$")).

key_that_is_there_twice_test_() ->
    [fun() ->
         {error, Line} = by_file(["edge.workers = 3\n", Between, "edge.workers = ", Again, "\n"]),
         ?assertMatch({match, _},
                      re:run(Line, ": edge.workers is set more than once; keep one of its lines$"))
     end || Between <- ["", "log.level = error\n"], Again <- ["3", "4"]].

%% What else is wrong doesn't matter.
data_dir_alone_test_() ->
    In = fun(Text, Environment) ->
        File = filename:join("/tmp", "halley-config-test-" ++ os:getpid()),
        ok = file:write_file(File, Text),
        try halley_config:data_dir(File, Environment) after file:delete(File) end
    end,
    Wrong = "no.key = 1\nauth.mode = zip\nauth.mode = zip\n",
    [?_assertEqual({ok, "/x"}, In(["data.dir = /x\n", Wrong], [])),
     ?_assertEqual({ok, filename:absname("data")}, In(Wrong, [{"HALLEY_NO", "1"}])),
     ?_assertEqual({ok, "/y"}, In("no pair\n", [{"HALLEY_DATA_DIR", "/y"}])),
     ?_assertMatch({error, "data.dir: must not be empty"}, In("", [{"HALLEY_DATA_DIR", ""}])),
     ?_assertMatch({error, _}, In("data.dir = /x\ndata.dir = /y\n", [])),
     ?_assertMatch({error, _}, In("data.dir = /x\nno pair\n", []))].

line_that_is_no_pair_test() ->
    {error, Line} = by_file("edge.workers = 3\n# a comment\nwhat is this\n"),
    ?assertMatch({match, _}, re:run(Line, "line 3 is not of the form key = value$")).

file_that_cannot_be_read_test() ->
    ?assertEqual({error, "/nonexistent/halley.conf: cannot be read: no such file or directory"},
                 halley_config:load("/nonexistent/halley.conf", [])).

bytes_that_are_no_text_test() ->
    {error, Line} = by_file(<<"edge.workers = ", 255, 254, "\n">>),
    ?assertMatch({match, _}, re:run(Line, ": is not UTF-8 text$")).

included_file_that_is_not_there_test() ->
    ?assertEqual({error, "/nonexistent: cannot be read: no such file or directory"},
                 by_file("data.dir = $(</nonexistent)\n")).

loopback_test_() ->
    [?_assertEqual(Expected, halley_config_check:is_loopback(Listen))
     || {Listen, Expected} <- [{"127.0.0.1:1", true}, {"127.9.9.9:1", true}, {"[::1]:1", true},
                               {"10.0.0.1:1", false}, {"[::]:1", false},
                               {"[::ffff:10.0.0.1]:1", false}]].

origins_test_() ->
    [?_assertEqual(Expected, halley_config_check:origins(Text))
     || {Text, Expected} <- [{"*", true}, {"localhost", true}, {"https://a.example", true},
                             {"https://a.example, http://[::1]:80", true}, {"", true},
                             {"https://a.example/path", false}, {"https://a.example,", false},
                             {"https://a.example\r\nx: y", false}]].

%% http.md 6.1, and what the edge makes of each (its test reads the same file).
origins_of_the_table_test_() ->
    Here = proplists:get_value(source, ?MODULE:module_info(compile)),
    {ok, Text} = file:read_file(filename:join(filename:dirname(Here),
                                              "../../../protocol/origins.json")),
    #{<<"accepted">> := Accepted, <<"refused">> := Refused} = jiffy:decode(Text, [return_maps]),
    [{Written, ?_assertEqual(Expected, halley_config_check:origins(binary_to_list(Written)))}
     || {Expected, All} <- [{true, maps:keys(Accepted)}, {false, Refused}], Written <- All].

%% ... but no secret.
effective_hides_secrets_test() ->
    Given = [{"HALLEY_AUTH_MODE", "jwt"},
             {"HALLEY_AUTH_HMAC_SECRET", "a secret of thirty-two characters"}],
    [true = os:putenv(Variable, Value) || {Variable, Value} <- Given],
    try
        {ok, Keys} = halley_config:effective(),
        ?assert(lists:member({"auth.hmac_secret", "(a secret)", set}, Keys))
    after
        [os:unsetenv(Variable) || {Variable, _} <- Given]
    end.

%% The keys whose values may be secrets, of all applications.
secrets_are_known_test() ->
    ?assertEqual(["auth.connect_url", "auth.hmac_secret", "hooks.url", "postgres.url"],
                 lists:sort(halley_config:secrets())).

%% What `./halley config' shows: every key once, what was set before the defaults.
effective_shows_what_is_in_force_test() ->
    true = os:putenv("HALLEY_API_LISTEN", "127.0.0.1:9999"),
    try
        {ok, Keys} = halley_config:effective(),
        ?assertEqual([maps:get(key, K) || K <- halley_config:keys()], [K || {K, _, _} <- Keys]),
        ?assert(lists:member({"api.listen", "127.0.0.1:9999", set}, Keys)),
        ?assert(lists:member({"public.listen", "127.0.0.1:8080", default}, Keys))
    after
        os:unsetenv("HALLEY_API_LISTEN")
    end.
