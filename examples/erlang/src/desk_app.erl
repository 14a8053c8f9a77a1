%% Sets Halley's address, and starts the clerk. Its settings come from the environment: HALLEY_HOST,
%% HALLEY_PORT, HALLEY_SECRET_FILE, and DESK_DIR for the clerk's files.
-module(desk_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1, init/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    ok = halley_remote:start(#{node => 'halley@127.0.0.1',
                               host => os:getenv("HALLEY_HOST", "127.0.0.1"),
                               port => list_to_integer(os:getenv("HALLEY_PORT", "8090")),
                               secret_file => os:getenv("HALLEY_SECRET_FILE", "halley.secret")}),
    case supervisor:start_link({local, desk_sup}, ?MODULE, []) of
        {ok, _} = Started -> Started;
        {error, _} = Error -> Error
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{intensity => 10, period => 10},
          [#{id => desk_clerk, start => {desk_clerk, start_link, []}}]}}.
