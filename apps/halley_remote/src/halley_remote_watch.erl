%% Watches the sessions of this node: a process whose session breaks gets `{halley_broken, User,
%% Cursor}', once, after all that the session has put into its mailbox. It does so, too, when the
%% application is stopped.
%%
%% Its state is in a table of the supervisor's, a row for each session, so that it may break itself:
%% it then watches anew, and reports the sessions that have ended meanwhile. The process that takes
%% a row reports it.
-module(halley_remote_watch).
-behaviour(gen_server).

-export([new/0, start_link/0, add/3, cursor/1, remove/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(CURSOR, 4).

%% The caller owns the table.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ok.

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% The calling process is a session of this owner's.
-spec add(Owner :: pid(), User :: binary(), Cursor :: binary()) -> ok.
add(Owner, User, Cursor) ->
    true = ets:insert(?MODULE, {self(), Owner, User, Cursor}),
    gen_server:cast(?MODULE, {watch, self()}).

%% How far the calling session is.
-spec cursor(binary()) -> ok.
cursor(Cursor) ->
    _ = ets:update_element(?MODULE, self(), {?CURSOR, Cursor}),
    ok.

%% The calling session ends, and nobody is to be told.
-spec remove() -> ok.
remove() ->
    true = ets:delete(?MODULE, self()),
    ok.

-spec init([]) -> {ok, none}.
init([]) ->
    %% Sessions that are stopped with the application have ended before it is told to end, and it
    %% takes its messages in order.
    process_flag(trap_exit, true),
    _ = [erlang:monitor(process, Session)
         || [Session] <- ets:match(?MODULE, {'$1', '_', '_', '_'})],
    {ok, none}.

-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast({watch, Session}, State) ->
    _ = erlang:monitor(process, Session),
    {noreply, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), none) -> {noreply, none}.
handle_info({'DOWN', _, process, Session, _}, State) ->
    _ = [Owner ! {halley_broken, User, Cursor}
         || {_, Owner, User, Cursor} <- ets:take(?MODULE, Session)],
    {noreply, State};
handle_info(_, State) ->
    {noreply, State}.
