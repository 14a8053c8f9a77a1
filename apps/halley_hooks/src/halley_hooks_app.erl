%% The application: without `hooks.url' and `auth.connect_url' it runs nothing.
-module(halley_hooks_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    halley_hooks_sup:start_link(application:get_env(halley_hooks, settings, none)).

-spec stop(term()) -> ok.
stop(_) ->
    ok = halley_hooked:judge(none),
    halley_hooked:off().
