%% The shards' supervisor: a shard that dies is restarted alone.
-module(halley_shard_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Flags = #{strategy => one_for_one, intensity => 20, period => 10},
    {ok, {Flags, [#{id => Shard, start => {halley_shard_server, start_link, [Shard]}}
                  || Shard <- lists:seq(1, halley_shards:count())]}}.
