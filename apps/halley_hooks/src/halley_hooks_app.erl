%% The application: without `hooks.url' and `auth.connect_url' it runs nothing.
-module(halley_hooks_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    Settings = application:get_env(halley_hooks, settings, none),
    ok = halley_code:load(called(Settings)),
    halley_hooks_sup:start_link(Settings).

%% The applications whose code sends hooks and asks. It is loaded now: later there may be no
%% descriptor to read a module by.
called(none) ->
    [];
called(#{target := Hooks, connect := Connect}) ->
    Asked = case Connect of none -> none; #{target := Url} -> Url end,
    Targets = [Target || Target <- [Hooks, Asked], Target =/= none],
    IsTls = lists:any(fun(Target) -> maps:get(tls, Target()) end, Targets),
    [halley_hooks | case IsTls of true -> [asn1, public_key, ssl]; false -> [] end].

-spec stop(term()) -> ok.
stop(_) ->
    ok = halley_hooked:judge(none),
    halley_hooked:off().
