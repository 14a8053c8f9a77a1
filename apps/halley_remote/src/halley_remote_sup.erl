%% The sessions of this node's processes, and who watches them.
-module(halley_remote_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, _} = Started -> Started;
        {error, _} = Error -> Error;
        ignore -> {error, ignore}
    end.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = halley_remote_watch:new(),
    %% The sessions are stopped first.
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => halley_remote_watch, start => {halley_remote_watch, start_link, []}},
           #{id => halley_remote_session_sup, type => supervisor,
             start => {halley_remote_session_sup, start_link, []}}]}}.
