%% Holds the link, and that to an edge which is replaced. None is restarted here: halley_edge_dialer
%% knows when to dial again.
-module(halley_edge_link_sup).
-behaviour(supervisor).

-export([start_link/0, start_link_process/1]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% Starts a link to the edge at Path for the calling dialer.
-spec start_link_process(Path :: binary()) -> supervisor:startchild_ret().
start_link_process(Path) ->
    supervisor:start_child(?MODULE, [Path, self()]).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => link, start => {halley_edge_link, start_link, []}, restart => temporary,
             shutdown => 2000}]}}.
