%% Opens the store, owns the ETS tables that readers use, and supervises their writers.
%%
%% The tables belong to this supervisor, not to the writers: a writer that crashes finds them as
%% it left them and repairs them from the journal, while readers read on.
-module(halley_store_sup).
-behaviour(supervisor).

-export([start_link/0, start_link/1]).
-export([init/1]).

-define(ERROR, {?MODULE, error}).

%% The store without the rest of a brain: nobody is told of changes. For tools and tests.
-spec start_link() -> supervisor:startlink_ret().
start_link() -> start_link(fun(_) -> ok end).

%% `Tell' is for the owner of the follows. `{error, Line}` if the store cannot be opened: one
%% sentence for the operator.
-spec start_link(Tell :: fun((halley_pages:packed()) -> ok)) -> supervisor:startlink_ret().
start_link(Tell) ->
    case halley_store:open_data_dir() of
        ok -> started(supervisor:start_link({local, ?MODULE}, ?MODULE, Tell));
        {error, _} = Error -> Error
    end.

%% A supervisor that can't start can't say why, so it starts without children.
started({ok, Pid}) ->
    case persistent_term:get(?ERROR, none) of
        none ->
            {ok, Pid};
        Line ->
            true = unlink(Pid),
            Monitor = monitor(process, Pid),
            true = exit(Pid, shutdown),
            receive {'DOWN', Monitor, process, Pid, _} -> ok end,
            halley_store:close(),
            {error, Line}
    end;
started(Error) ->
    Error.

-spec init(fun((halley_pages:packed()) -> ok)) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Tell) ->
    ok = halley_ids:new_tables(),
    ok = halley_follows_owner:new_tables(),
    Children = case halley_store:recover() of
        ok ->
            _ = persistent_term:erase(?ERROR),
            [{halley_ids, []}, {halley_follows_owner, [Tell]}, {halley_ids_sweep, []}];
        {error, Line} ->
            ok = persistent_term:put(?ERROR, Line),
            []
    end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => Module, start => {Module, start_link, Arguments}, shutdown => 30000}
           || {Module, Arguments} <- Children]}}.
