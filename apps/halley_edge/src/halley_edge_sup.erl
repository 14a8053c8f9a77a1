%% Permits of replays, links, the dialer, and the runner of the edge, in this order: if one is
%% restarted, so are those after it. A runner that starts anew adopts the edge that the last one
%% left.
-module(halley_edge_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => rest_for_one, intensity => 10, period => 60}, [
        #{id => halley_turns_permits,
          start => {halley_turns_permits, start_link, []}},
        #{id => halley_edge_link_sup, start => {halley_edge_link_sup, start_link, []},
          type => supervisor},
        #{id => halley_edge_dialer, start => {halley_edge_dialer, start_link, []}},
        #{id => halley_edge_runner, start => {halley_edge_runner, start_link, []}}]}}.
