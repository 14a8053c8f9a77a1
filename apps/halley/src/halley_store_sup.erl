%% Opens the store, owns the ETS tables that readers use, and supervises their writers.
%%
%% The tables belong to this supervisor, not to the writers: a writer that crashes finds them as
%% it left them and repairs them from the journal, while readers read on.
-module(halley_store_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

%% `{error, Text}` if the store cannot be opened: one sentence for the operator.
-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    case halley_store:open() of
        ok -> supervisor:start_link({local, ?MODULE}, ?MODULE, []);
        {error, _} = Error -> Error
    end.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    halley_ids:new_tables(),
    halley_follows_owner:new_tables(),
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => Module, start => {Module, start_link, []}, shutdown => 30000}
           || Module <- [halley_ids, halley_follows_owner]]}}.
