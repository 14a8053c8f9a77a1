%% An edge's knowledge of its sessions: the seam between the API, which calls, and the application
%% that has the links to the edges, which implements this behaviour and registers itself by `set/1'.
%% Until then nothing is known.
%%
%% The caller waits for the edge's worker, so it is no link and no shard that calls this.
-module(halley_inspection).

-export([set/1, inspect/3, behind/2]).
-export_type([waiting/0]).

%% The fields of INSPECTED (protocol/link.md 10.8), `state' and `transport' as atoms.
-type waiting() :: #{atom() => term()}.

%% What waits for a session. `gone': its worker, or the session, is there no more.
-callback inspect(halley_links:slot(), halley_directory:conn(), TimeoutMs :: pos_integer()) ->
    {ok, waiting() | [waiting()]} | timeout | gone.

%% The sessions of a worker whose clients don't take what waits for them, the most first.
%% `unknown': its edge is of a build that doesn't tell.
-callback behind(halley_links:slot(), TimeoutMs :: pos_integer()) ->
    {ok, [waiting()]} | unknown | timeout | gone.

-spec set(module()) -> ok.
set(Module) -> persistent_term:put(?MODULE, Module).

-spec inspect(halley_links:slot(), halley_directory:conn(), TimeoutMs :: pos_integer()) ->
    {ok, waiting() | [waiting()]} | timeout | gone.
inspect(Slot, Conn, TimeoutMs) ->
    case persistent_term:get(?MODULE, none) of
        none -> timeout;
        Module -> Module:inspect(Slot, Conn, TimeoutMs)
    end.

-spec behind(halley_links:slot(), TimeoutMs :: pos_integer()) ->
    {ok, [waiting()]} | unknown | timeout | gone.
behind(Slot, TimeoutMs) ->
    case persistent_term:get(?MODULE, none) of
        none -> unknown;
        Module -> Module:behind(Slot, TimeoutMs)
    end.
