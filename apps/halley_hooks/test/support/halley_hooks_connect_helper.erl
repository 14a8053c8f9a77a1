%% Shared by the suites of `auth.connect_url': an endpoint that judges, and callers. Config has the
%% `endpoint', and a `dir' for the secret.
-module(halley_hooks_connect_helper).

-include_lib("common_test/include/ct.hrl").
-include("halley_hooks_wait.hrl").

-export([start/1, start/2, stop/0, does/2, requests/1, user/1]).

start(Config) -> start(Config, #{}).

start(Config, More) ->
    Url = "http://127.0.0.1:" ++ integer_to_list(halley_hooks_endpoint:port(endpoint(Config))),
    Keys = #{connect_url => Url ++ "/connect", connect_timeout_ms => 8000,
             secret_file => halley_hooks_endpoint:secret_file(?config(dir, Config))},
    {ok, Settings} = halley_hooks_config:settings(maps:merge(Keys, More)),
    Case = self(),
    spawn(fun() ->
        process_flag(trap_exit, true),
        {ok, Sup} = halley_hooks_sup:start_link(Settings),
        Case ! started,
        receive {'EXIT', Sup, _} -> ok end
    end),
    receive started -> ok after ?WAIT_MS -> error(no_hooks) end.

%% If it runs.
stop() ->
    case whereis(halley_hooks_sup) of
        undefined -> ok;
        Sup ->
            Monitor = monitor(process, Sup),
            exit(Sup, kill),
            receive {'DOWN', Monitor, process, Sup, _} -> ok end
    end,
    halley_hooked:judge(none).

does(Does, Config) -> halley_hooks_endpoint:does(Does, endpoint(Config)).

requests(Config) -> length(halley_hooks_endpoint:requests(endpoint(Config))).

endpoint(Config) -> ?config(endpoint, Config).

%% About whom a request is.
user(Body) ->
    #{<<"connect">> := #{<<"user">> := User}} = jiffy:decode(Body, [return_maps]),
    User.
