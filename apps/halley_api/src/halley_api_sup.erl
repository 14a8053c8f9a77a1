%% Its process waits for a second before it does anything, so it can't use up its restarts.
-module(halley_api_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 5},
          [#{id => halley_api_status_feed, start => {halley_api_status_feed, start_link, []}}]}}.
