%% The processes for back ends, if `remote.listen' is set. All of it starts anew together: back ends
%% then log their processes in again with their cursors.
-module(halley_backends_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-spec start_link(none | halley_backends_config:settings()) ->
    {ok, pid()} | {error, term()}.
start_link(Settings) ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, Settings) of
        {ok, _} = Started -> Started;
        {error, {shutdown, Reason}} -> {error, Reason};
        {error, _} = Error -> Error;
        ignore -> {error, ignore}
    end.

-spec init(none | halley_backends_config:settings()) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(none) ->
    {ok, {#{}, []}};
init(Settings) ->
    {ok, {#{strategy => one_for_all, intensity => 5, period => 10},
          [#{id => halley_backends_feed, start => {halley_backends_feed, start_link, []}},
           #{id => halley_backends_session_sup, type => supervisor,
             start => {halley_backends_session_sup, start_link, []}},
           #{id => halley_backends, start => {halley_backends, start_link, [Settings]}}]}}.
