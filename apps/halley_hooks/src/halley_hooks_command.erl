%% `./halley hooks check': sends a signed test to hooks.url, then one whose signature is wrong, and
%% says what isn't as it should be. It runs in an emulator of its own; the exit status is 0 if the
%% first is taken and the second isn't.
-module(halley_hooks_command).

-export([main/0, check/1]).

-define(USAGE, "usage: ./halley hooks check").

-spec main() -> no_return().
main() ->
    {ok, _} = application:ensure_all_started(ssl),
    ok = logger:set_primary_config(level, none),
    Arguments = init:get_plain_arguments(),
    Arguments =:= ["check"] orelse
        halley_command:failed(halley_command:misused("hooks", Arguments, ?USAGE)),
    case halley_config:load() of
        {ok, Config} ->
            case halley_config:value(halley_hooks, settings, Config) of
                #{target := TargetOf} = Settings when TargetOf =/= none -> ended(check(Settings));
                _ -> halley_command:failed("there are no hooks in the configuration: set "
                                           "hooks.url, hooks.events and hooks.secret_file")
            end;
        {error, Line} -> halley_command:failed(Line)
    end.

-spec ended(ok | {wrong, iodata()}) -> no_return().
ended(ok) ->
    io:put_chars("hooks.url took a signed test, and refused one with a wrong signature\n"),
    halt(0);
ended({wrong, What}) ->
    io:put_chars(["wrong: ", What, $\n]),
    halt(1).

-spec check(halley_hooks_config:settings()) -> ok | {wrong, iodata()}.
check(#{target := TargetOf}) ->
    #{secret_file := File} = Target = TargetOf(),
    case halley_hooks_body:read_secrets(File) of
        {ok, Secrets} ->
            case sent(Secrets, Target) of
                {ok, Status} when Status >= 200, Status < 300 -> forged(Target);
                {ok, Status} -> {wrong, answered(Status)};
                {error, Reason} -> {wrong, ["hooks.url: ", halley_hooks_http:explain(Reason)]}
            end;
        {error, Line} -> {wrong, Line}
    end.

forged(Target) ->
    case sent([crypto:strong_rand_bytes(32)], Target) of
        {ok, Status} when Status >= 200, Status < 300 ->
            {wrong, "hooks.url took a signed test, and one with a wrong signature as well: it "
                    "doesn't check signatures, so anybody can send it hooks "
                    "(docs/guides/hooks.md)"};
        _ -> ok
    end.

sent(Secrets, Target) ->
    Id = <<"test-", (integer_to_binary(halley_clock:wall_ms()))/binary>>,
    Body = halley_hooks_body:text([halley_hooks_body:hook(Id, test)]),
    case halley_hooks_http:post(Target, halley_hooks_body:headers(Secrets, Body), Body,
                                halley_limits:get(hooks_request_ms_max), none) of
        {ok, Status, Connection} ->
            ok = halley_hooks_http:close(Connection),
            {ok, Status};
        {error, _} = Error -> Error
    end.

answered(Status) when Status >= 300, Status < 400 ->
    ["hooks.url answers ", integer_to_list(Status), ": redirects aren't followed; set hooks.url to "
     "where it leads"];
answered(Status) when Status =:= 401; Status =:= 403 ->
    ["hooks.url answers ", integer_to_list(Status), ": does it check signatures with the secret of "
     "hooks.secret_file, over the body as it came?"];
answered(Status) ->
    ["hooks.url answers ", integer_to_list(Status), ", and must answer 2xx to what it has taken"].
