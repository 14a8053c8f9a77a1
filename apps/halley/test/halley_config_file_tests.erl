%% How people write halley.conf and the environment: each line is read as it was meant, or refused
%% in a sentence with the remedy; none is read in another sense.
-module(halley_config_file_tests).
-include_lib("eunit/include/eunit.hrl").

taken_test_() ->
    [{Text, ?_assertEqual([{Key, Value}], given(Text, []))}
     || {Text, Key, Value} <-
            [{"drain.time = 5s", "drain.time", "5s"},
             {"drain.time=5s\r\n", "drain.time", "5s"},
             {"\n  \tdrain.time\t=\t5s\t\n\n", "drain.time", "5s"},
             {"drain.time = 5s # five\n", "drain.time", "5s"},
             {"drain.time = 5s\t#five\n", "drain.time", "5s"},
             {"# drain.time =\n#drain.time = \"7s\"\ndrain.time = 5s\n", "drain.time", "5s"},
             {"drain.time = 1m30s\n", "drain.time", "1m30s"},
             {"history.bytes = 4000000000\n", "history.bytes", "4000000000"},
             {"history.bytes = 4gb\n", "history.bytes", "4gb"},
             {"data.dir = my data\n", "data.dir", "my data"},
             {"data.dir = Füße\n", "data.dir", "Füße"},
             {"auth.issuer = a=b\n", "auth.issuer", "a=b"},
             {"auth.issuer = \"a\" and 'b\n", "auth.issuer", "\"a\" and 'b"},
             {"auth.issuer = $HOME%20\n", "auth.issuer", "$HOME%20"}]].

refused_test_() ->
    [{lists:flatten(io_lib:format("~0tp", [Text])), ?_assertEqual({error, named(Line)},
                                                                 given(Text, []))}
     || {Text, Line} <-
            [{<<16#EF, 16#BB, 16#BF, "drain.time = 5s\n">>,
              "F: begins with a byte order mark; save it as UTF-8 without one"},
             {"log.level = info\nauth.issuer = https://a.example/#b\n",
              "F: line 2: the # would end the value of auth.issuer; put a space before a comment; "
              "a value with a # can be set in the environment"},
             {"auth.hmac_secret = 0123456789abcdef0123456789abcdef#0123\n",
              "F: line 1: the # would end the value of auth.hmac_secret; put a space before a "
              "comment; a value with a # can be set in the environment"},
             {"drain.time =\n", "F: line 1: drain.time has no value; write one, or make the line a "
                                "comment"},
             {"cors.origins = # none\r\n", "F: line 1: cors.origins has no value; write one, or "
                                           "make the line a comment"},
             {"include more.conf\n", "F: line 1: include isn't known; there is one file"},
             {"include " ++ file() ++ "\n", "F: line 1: include isn't known; there is one file"},
             {"\n[server]\n", "F: line 2 is not of the form key = value"},
             {"drain.time: 5s\n", "F: line 1 is not of the form key = value"},
             {"; drain.time = 5s\n", "F: line 1 is not of the form key = value"},
             {"data.dir = a\\\n  b\n", "F: line 2 is not of the form key = value"},
             {"Drain.Time = 5s\n", "F: there is no key Drain.Time; did you mean drain.time?"},
             {"colour = red\n", "F: there is no key colour; `./halley config` lists what there is"},
             {"data.dir = \"my data\"\n", "data.dir: has quotes around its value; leave them out"},
             {"edge.workers = '2'\n", "edge.workers: has quotes around its value; leave them out"},
             {"drain.time = 5000\n", "drain.time: must be a duration such as 500ms, 25s or 10m; "
                                     "it is \"5000\""},
             {"history.bytes = 4 GB\n", "history.bytes: must be a number of bytes such as 500MB or "
                                        "4GB; it is \"4 GB\""},
             {"limits.publish_ms_max = 5s\n", "limits.publish_ms_max: must be a whole number of "
                                              "milliseconds, without a unit; it is \"5s\""},
             {"limits.outbox_bytes_max = 1MB\n", "limits.outbox_bytes_max: must be a whole number "
                                                 "of bytes, without a unit; it is \"1MB\""},
             {"limits.ids_max = 16M\n", "limits.ids_max: must be a whole number; it is \"16M\""},
             {"edge.sandbox = yes\n", "edge.sandbox: must be one of on, off; it is \"yes\""}]].

%% Several lines that are wrong are told together.
each_line_is_named_test() ->
    {error, Lines} = given("drain.time =\nlog.level = info\nauth.issuer = a#b\n", []),
    ?assertMatch([_, _], string:split(Lines, "\n", all)).

environment_test_() ->
    [{Variable ++ "=" ++ Value, ?_assertEqual(Expected, given("", [{Variable, Value}]))}
     || {Variable, Value, Expected} <-
            [{"HALLEY_AUTH_ISSUER", "a # b", [{"auth.issuer", "a # b"}]},
             {"HALLEY_CORS_ORIGINS", "", [{"cors.origins", ""}]},
             {"HALLEY_DATA_DIR", "\"/srv/halley\"",
              {error, "data.dir: has quotes around its value; leave them out"}},
             {"HALLEY_DRAIN_TIME", " 6s ",
              {error, "drain.time: must be a duration such as 500ms, 25s or 10m; it is \" 6s \""}},
             {"HALLEY_WORKERS", "2",
              {error, "HALLEY_WORKERS: no key has this variable; did you mean "
                      "HALLEY_EDGE_WORKERS?"}},
             {"HALLEY_X", "2", {error, "HALLEY_X: no key has this variable; `./halley config` "
                                       "lists what there is"}}]].

%% A Service called `halley', or `halley-api', beside the container.
variables_of_kubernetes_test_() ->
    [{Variable, ?_assertEqual([], given("", [{Variable, Value}]))}
     || {Variable, Value} <-
            [{"HALLEY_SERVICE_HOST", "10.96.0.7"}, {"HALLEY_SERVICE_PORT", "8080"},
             {"HALLEY_SERVICE_PORT_HTTP", "8080"}, {"HALLEY_PORT", "tcp://10.96.0.7:8080"},
             {"HALLEY_PORT_8080_TCP", "tcp://10.96.0.7:8080"},
             {"HALLEY_PORT_8080_TCP_PROTO", "tcp"}, {"HALLEY_PORT_8080_TCP_PORT", "8080"},
             {"HALLEY_PORT_8080_TCP_ADDR", "10.96.0.7"},
             {"HALLEY_API_SERVICE_HOST", "10.96.0.8"},
             {"HALLEY_API_PORT", "tcp://10.96.0.8:8081"},
             {"HALLEY_API_PORT_8081_TCP_ADDR", "10.96.0.8"}]]
    ++ [{Variable, ?_assertMatch({error, _}, given("", [{Variable, Value}]))}
        || {Variable, Value} <- [{"HALLEY_PORT", "8080"}, {"HALLEY_API_PORT", "8081"},
                                 {"HALLEY_EXPORT", "tcp://10.96.0.7:8080"}]].

file() ->
    filename:join("/tmp", "halley-config-file-test-" ++ os:getpid()).

named(Line) ->
    lists:flatten(string:replace(Line, "F:", file() ++ ":")).

%% What the configuration has, sorted; or why it is refused.
given(Text, Environment) ->
    ok = file:write_file(file(), unicode:characters_to_binary(Text)),
    try halley_config:load(file(), Environment) of
        {ok, #{given := Given}} -> lists:sort(maps:to_list(Given()));
        {error, Lines} -> {error, Lines}
    after
        file:delete(file())
    end.
