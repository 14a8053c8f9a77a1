%% The application: without `hooks.url' and `auth.connect_url' it runs nothing.
-module(halley_hooks_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    Settings = application:get_env(halley_hooks, settings, none),
    ok = halley_code:load(called(Settings)),
    halley_hooks_sup:start_link(Settings).

%% By whom hooks are sent and questions asked, even when no descriptor is left to read it by.
called(none) ->
    [];
called(#{target := Hooks, connect := Connect}) ->
    Asked = case Connect of none -> none; #{target := Url} -> Url end,
    IsTls = lists:any(fun(Target) -> maps:get(tls, Target()) end, [Hooks, Asked] -- [none, none]),
    [halley_hooks | case IsTls of true -> [public_key, ssl]; false -> [] end].

-spec stop(term()) -> ok.
stop(_) ->
    ok = halley_hooked:judge(none),
    halley_hooked:off().
