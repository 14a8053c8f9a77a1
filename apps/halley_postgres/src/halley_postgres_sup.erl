%% The runner, if PostgreSQL is configured; what bounds `halley.rejected', if events come
%% from there; connections to write with, if the API writes there.
-module(halley_postgres_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-spec start_link(none | halley_postgres_config:settings()) -> supervisor:startlink_ret().
start_link(Settings) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Settings).

-spec init(none | halley_postgres_config:settings()) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Settings) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => halley_postgres_runner,
             start => {halley_postgres_runner, start_link, [Settings]}, shutdown => 10000}
           || Settings =/= none] ++ rejected(Settings) ++ writers(Settings)}}.

rejected(none) -> [];
rejected(#{publish := false}) -> [];
rejected(Settings) ->
    [#{id => halley_postgres_rejected,
       start => {halley_postgres_rejected, start_link, [Settings]}}].

writers(#{writes := #{}, server := Server}) -> [halley_postgres_writes:pool(Server())];
writers(_) -> [].
