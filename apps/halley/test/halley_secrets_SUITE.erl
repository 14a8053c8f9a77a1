%% Secrets in an Erlang node of its own: those with which it refuses to start, and that no secret
%% gets into its log, whatever crashes.
-module(halley_secrets_SUITE).

-include_lib("stdlib/include/assert.hrl").
-import(halley_boot_SUITE, [start_node/3, wait_line/2, wait_exit/1, signal/2, fails/3, write/3]).

-compile([export_all, nowarn_export_all]).

-define(PLANTED, "planted-secret-planted-secret-00").

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [no_secret_is_logged, environment_is_not_inherited, api_beyond_loopback_needs_a_key,
     broken_server_keys, jwks_with_a_private_part, jwks_that_is_not_there, short_secret_file].

init_per_testcase(Case, Config) ->
    halley_boot_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) ->
    halley_boot_SUITE:end_per_testcase(Case, Config).

%% Processes of Halley, of OTP and of nobody die with the secret in their state, message, mailbox
%% and arguments; and everything is shown that a person or a program would ask for.
no_secret_is_logged(Config) ->
    Secret = "<<\"" ++ ?PLANTED ++ "\">>",
    Crashes = [
        "spawn(fun() -> error({badmatch, S}) end)",
        "spawn(fun() -> lists:nth(S, S) end)",
        "proc_lib:spawn(fun() -> self() ! {waits, S}, put(key, S), exit({oops, S}) end)",
        "Ends(halley_server_keys, fun(_) -> "
            "catch gen_server:call(halley_server_keys, {S, S}, infinity) end)",
        "gen_server:cast(halley_directory, {S, [S]})",
        "Ends(halley_directory, fun(P) -> exit(P, {killed_with, S}) end)",
        "catch halley_token_keys ! S",
        "catch halley_directory ! {S}"],
    %% Their supervisor tells of it before it starts the next one.
    Ends = "Ends = fun(Name, Kill) -> P = whereis(Name), Kill(P), (fun Next() -> "
           "case whereis(Name) of N when is_pid(N), N =/= P -> ok; "
           "_ -> timer:sleep(20), Next() end end)() end",
    %% A message of the log is cut at 4,096 characters; beyond 500 in a second they are dropped.
    Shown = "logger:notice(\"~p ~p ~p\", [application:get_all_env(halley), "
            "sys:get_status(halley_token_keys, infinity), "
            "sys:get_state(halley_server_keys, infinity)]), "
            "timer:sleep(1000), "
            "[begin timer:sleep(4), logger:notice(\"~ts\", [Line]) end "
            "|| Line <- binary:split(iolist_to_binary(halley_metrics:render()), <<\"\\n\">>, "
            "[global])]",
    Expression = lists:flatten(["S = ", Secret, ", ", Ends, ", ",
                                [[Crash, ", timer:sleep(300), "] || Crash <- Crashes],
                                Shown, ", logger:notice(\"all done\")"]),
    Node = start_node(Config, [{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_HMAC_SECRET", ?PLANTED},
                               {"HALLEY_LOG_LEVEL", "debug"}], Expression),
    Lines = lines_until(Node, "all done"),
    ok = signal(Node, "TERM"),
    {0, Last} = wait_exit(Node),
    Log = iolist_to_binary(Lines ++ Last),
    %% They did crash, and were told of.
    [?assertNotEqual(nomatch, binary:match(Log, Part))
     || Part <- [<<"{bytes,32}">>, <<"badmatch">>, <<"halley_server_keys">>, <<"oops">>,
                 <<"killed_with">>, <<"halley_token_keys_changes_total">>]],
    Codes = lists:flatten(lists:join(",", [integer_to_list(C) || C <- "planted-secret"])),
    [?assertEqual(nomatch, binary:match(Log, iolist_to_binary(Form)))
     || Form <- ["planted-secret", Codes, base64:encode("planted-secret-planted-secret")]].

environment_is_not_inherited(Config) ->
    Node = start_node(Config, [{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_HMAC_SECRET", ?PLANTED}],
                      "logger:notice(\"child has ~p\", "
                      "[os:cmd(\"env | grep -c HMAC_SECRET\")])"),
    _ = wait_line(Node, "child has \"0"),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

api_beyond_loopback_needs_a_key(Config) ->
    Listen = {"HALLEY_API_LISTEN", "0.0.0.0:8081"},
    fails(Config, [Listen], "halley: api.listen: 0.0.0.0:8081 can be reached from other machines, "
                            "and there is no server key; make one first, .*halley key create .*"),
    DataDir = filename:join(proplists:get_value(dir, Config), "data"),
    {ok, Key, _} = halley_key_command:run([<<"create">>, <<"web">>, <<"--scope">>, <<"read">>],
                                          DataDir, 0),
    Header = ["<<\"Bearer ", string:trim(binary_to_list(iolist_to_binary(Key))), "\">>"],
    Node = start_node(Config, [Listen],
                      lists:flatten(["logger:notice(\"~p ~p\", [halley_server_keys:check(undefined)"
                                     ", halley_server_keys:check(", Header, ")])"])),
    _ = wait_line(Node, "missing {ok,\\[read\\]}"),
    ok = signal(Node, "TERM"),
    {0, _} = wait_exit(Node).

broken_server_keys(Config) ->
    ok = file:make_dir(filename:join(proplists:get_value(dir, Config), "data")),
    _ = write(Config, "data/server-keys", "{\n"),
    fails(Config, [], "halley: data.dir: .*/data/server-keys: line 1 is no server key; .*").

jwks_with_a_private_part(Config) ->
    Key = #{kty => <<"OKP">>, crv => <<"Ed25519">>, d => <<?PLANTED>>, kid => <<"mine">>,
            x => <<"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo">>},
    File = write(Config, "jwks.json", jiffy:encode(#{keys => [Key]})),
    fails(Config, [{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_KEYS", File}],
          "halley: auth.keys: " ++ File ++ ": its key 1 \\(kid \"mine\"\\) has a private part "
          "\\(d\\); only public keys belong here, and this one should be replaced if others could "
          "read the file").

jwks_that_is_not_there(Config) ->
    fails(Config, [{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_KEYS", "/nonexistent"}],
          "halley: auth.keys: /nonexistent: no such file or directory").

short_secret_file(Config) ->
    File = write(Config, "secret", "short\n"),
    fails(Config, [{"HALLEY_AUTH_MODE", "jwt"}, {"HALLEY_AUTH_HMAC_SECRET_FILE", File}],
          "halley: auth.hmac_secret_file: " ++ File ++ ": the secret has 5 bytes; HS256 takes 32 "
          "to 1024").

lines_until(Node = {Port, _}, Text) ->
    receive
        {Port, {data, {_, Line}}} ->
            case binary:match(Line, list_to_binary(Text)) of
                nomatch -> [Line, $\n | lines_until(Node, Text)];
                _ -> [Line, $\n]
            end;
        {Port, {exit_status, Status}} ->
            error({exited, Status})
    after 120000 ->
        error(no_line)
    end.
