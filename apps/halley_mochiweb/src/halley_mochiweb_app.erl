%% The application: a listener for clients (`public'), and one for servers (`api') if the
%% environment has its address and a `handler', such as `halley_api'.
-module(halley_mochiweb_app).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).

-define(CONNECTIONS_MAX, 1000000).
-define(BACKLOG, 1024).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Listeners = [{public, halley_mochiweb_public}, {api, halley_mochiweb_api}],
    {ok, {#{}, [#{id => Module, start => {mochiweb_http, start_link, [
                    [{name, Module}, {ip, Ip}, {port, Port}, {max, ?CONNECTIONS_MAX},
                     {backlog, ?BACKLOG}, {nodelay, true}, {loop, {Module, handle}}]]}}
                || {Name, Module} <- Listeners,
                   {ok, {Ip, Port}} <- [application:get_env(halley_mochiweb, Name)]]}}.
