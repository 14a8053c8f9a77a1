%% The taker and the sender. Their knowledge is on disk: when one ends, both begin anew.
-module(halley_hooks_telling_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-spec start_link(halley_hooks_config:settings()) -> supervisor:startlink_ret().
start_link(Settings) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Settings).

-spec init(halley_hooks_config:settings()) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Settings) ->
    {ok, {#{strategy => one_for_all, intensity => 10, period => 10},
          [#{id => Module, start => {Module, start_link, [Settings]}}
           || Module <- [halley_hooks_taker, halley_hooks_sender]]}}.
