%% The processes of a brain in a cluster. If one dies, its brain is no member that others can rely
%% on: all of them end, and with them the brain.
-module(halley_cluster_sup).
-behaviour(supervisor).

-export([start_link/1, init/1]).

-spec start_link(halley_cluster_brain:settings()) -> supervisor:startlink_ret().
start_link(Settings) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Settings).

-spec init(halley_cluster_brain:settings()) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(#{name := Name} = Settings) ->
    %% No change of follows bypasses the log; until the brain runs, it isn't known what came of it.
    ok = halley_follows_backend:set(fun halley_cluster_follows:change/2),
    {ok, {#{strategy => one_for_all, intensity => 0, period => 1},
          [#{id => halley_cluster_links, start => {halley_cluster_links, start_link, [Name]}},
           #{id => halley_cluster_brain, start => {halley_cluster_brain, start_link, [Settings]}}
          ]}}.
