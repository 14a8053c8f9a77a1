%% When users had their first session, and when they lost their last, for as long as hooks have not
%% judged the events of that time: whether an event reached no session is decided by its own moment,
%% however late it is read (docs/internals/hooks.md).
%%
%% Rows of an ordered table, {{Id, MonotonicMs, Unique}, What, WallMs, Seq}, which the process that
%% changes a session writes after the change, and only while hooks report undelivered events. So a
%% time is that of the change or some milliseconds later. Rows are deleted once they were judged: a
%% user without rows has been, all the time, as it is now. Rows have ids, as the id of a user who
%% left and follows nothing is soon not found any more. The seq is the last that was drawn by then:
%% events above it looked for sessions after the move.
%%
%% Events have their time by the wall's clock, so moves are compared by that; and where it was set
%% since, as `halley_history_steps' does, by the clock as it is now.
%%
%% There is a bound on the rows. One more is not kept, and the time of the first that wasn't is
%% (`lost/0'): from there on it isn't known.
%%
%% Each move is also a row of a second table, in the order of time, until hooks have written it to
%% their disk (`halley_hooks_moves'). At a start they load the rows that they find there.
-module(halley_hooked_moves).

-export([on/1, left/1, came/1, caught/2, in_sync/1, of_user/1, forget/1, lost/0, clear/0]).
-export([unwritten/1, written/1, load/1, lose/1]).
-export_type([move/0, what/0, row/0, id_of/0, drawn/0, max/0]).

-define(STATE, {?MODULE, state}).
-define(UNWRITTEN, halley_hooked_moves_unwritten).
-define(COUNT, 1).
-define(LOST, 2).
%% A step of the clock, as in `halley_history_steps'.
-define(STEP_MS, 1000).

%% `came': without a cursor, so it has nothing from before. `caught': it is sent what is behind the
%% vector. `synced': a worker said it in its sync, so it was there before, or came meanwhile.
-type what() :: left | came | synced | {caught, halley_cursor:vector()}.
-type move() :: {AtMs :: integer(), what(), seq()}.
-type seq() :: non_neg_integer().
%% Its time by the monotonic clock, and by the wall's clock of then.
-type row() :: {Key :: integer(), Ms :: integer(), WallMs :: integer(), seq(), halley_id:id(),
                what()}.

%% `undefined' is nobody's number any more.
-type id_of() :: fun((halley_id:user_number()) -> halley_id:id() | undefined).
-type drawn() :: fun(() -> seq()).
%% How many rows there may be.
-type max() :: fun(() -> non_neg_integer()).

%% The caller owns the table.
-spec on({id_of(), drawn(), max()}) -> ok.
on({IdOf, Drawn, Max}) ->
    _ = [ets:new(Table, [ordered_set, public, named_table, {write_concurrency, true}])
         || Table <- [?MODULE, ?UNWRITTEN], ets:whereis(Table) =:= undefined],
    persistent_term:put(?STATE, {IdOf, Drawn, Max, atomics:new(2, [])}),
    clear().

-spec left(halley_id:user_number()) -> ok.
left(User) -> moved(User, left).

-spec came(halley_id:user_number()) -> ok.
came(User) ->
    moved(User, case get(?MODULE) of in_sync -> synced; _ -> came end).

-spec caught(halley_id:user_number(), halley_cursor:vector()) -> ok.
caught(User, Vector) -> moved(User, {caught, Vector}).

%% Users that come in this process meanwhile are said in a sync.
-spec in_sync(fun(() -> Result)) -> Result.
in_sync(Do) ->
    _ = put(?MODULE, in_sync),
    try Do() after erase(?MODULE) end.

%% Without its table nobody asks any more.
moved(User, What) ->
    try
        {IdOf, Drawn, Max, State} = persistent_term:get(?STATE),
        case IdOf(User) of
            undefined -> ok;
            Id -> moved(Id, What, Drawn(), Max, State)
        end
    catch
        error:badarg -> ok
    end.

moved(Id, What, Seq, Max, State) ->
    AtMs = halley_clock:wall_ms(),
    case atomics:add_get(State, ?COUNT, 1) > Max() of
        false ->
            Ms = now_ms(),
            Unique = erlang:unique_integer([monotonic]),
            true = ets:insert(?MODULE, {{Id, Ms, Unique}, What, AtMs, Seq}),
            true = ets:insert(?UNWRITTEN, {Unique, Ms, AtMs, Seq, Id, What}),
            ok;
        true ->
            ok = atomics:sub(State, ?COUNT, 1),
            lose(AtMs)
    end.

%% At most so many that aren't on disk yet, the oldest first.
-spec unwritten(Max :: pos_integer()) -> [row()].
unwritten(Max) ->
    case ets:select(?UNWRITTEN, [{'_', [], ['$_']}], Max) of
        {Rows, _} -> Rows;
        '$end_of_table' -> []
    end.

-spec written([row()]) -> ok.
written(Rows) ->
    lists:foreach(fun({Unique, _, _, _, _, _}) -> ets:delete(?UNWRITTEN, Unique) end, Rows).

%% What the disk has, in order. What has no room is lost.
-spec load([{Ms :: integer(), WallMs :: integer(), seq(), halley_id:id(), what()}]) -> ok.
load(Moves) ->
    {_, _, Max, State} = persistent_term:get(?STATE),
    Room = max(0, Max() - atomics:get(State, ?COUNT)),
    {Fit, Rest} = lists:split(min(Room, length(Moves)), Moves),
    true = ets:insert(?MODULE, [{{Id, Ms, erlang:unique_integer([monotonic])}, What, WallMs, Seq}
                                || {Ms, WallMs, Seq, Id, What} <- Fit]),
    ok = atomics:add(State, ?COUNT, length(Fit)),
    case Rest of
        [] -> ok;
        [{_, WallMs, _, _, _} | _] -> lose(WallMs)
    end.

%% Nobody knows what happened from then on.
-spec lose(AtMs :: integer()) -> ok.
lose(AtMs) ->
    _ = atomics:compare_exchange(state(), ?LOST, 0, AtMs),
    ok.

now_ms() -> erlang:monotonic_time(millisecond).

%% In their order.
-spec of_user(halley_id:id()) -> [move()].
of_user(Id) ->
    OffsetMs = halley_clock:wall_ms() - now_ms(),
    [{as_of_now(AtMs, Ms + OffsetMs), What, Seq}
     || {Ms, What, AtMs, Seq} <- ets:select(?MODULE, [{{{Id, '$1', '_'}, '$2', '$3', '$4'}, [],
                                                       [{{'$1', '$2', '$3', '$4'}}]}])].

as_of_now(WallMs, NowMs) when abs(NowMs - WallMs) > ?STEP_MS -> NowMs;
as_of_now(WallMs, _) -> WallMs.

%% All that was published before this time of the monotonic clock has been judged.
-spec forget(BeforeMs :: integer()) -> ok.
forget(BeforeMs) ->
    _ = ets:select_delete(?UNWRITTEN, [{{'_', '$1', '_', '_', '_', '_'}, [{'<', '$1', BeforeMs}],
                                        [true]}]),
    Deleted = ets:select_delete(?MODULE, [{{{'_', '$1', '_'}, '_', '_', '_'},
                                           [{'<', '$1', BeforeMs}], [true]}]),
    atomics:sub(state(), ?COUNT, Deleted).

%% When the first that had no room happened.
-spec lost() -> AtMs :: integer() | none.
lost() ->
    case atomics:get(state(), ?LOST) of
        0 -> none;
        AtMs -> AtMs
    end.

%% From here on all are known again.
-spec clear() -> ok.
clear() ->
    State = state(),
    ok = atomics:put(State, ?LOST, 0),
    true = ets:delete_all_objects(?UNWRITTEN),
    Deleted = ets:select_delete(?MODULE, [{'_', [], [true]}]),
    case atomics:sub_get(State, ?COUNT, Deleted) < 0 of
        true -> atomics:put(State, ?COUNT, 0);
        false -> ok
    end.

state() ->
    {_, _, _, State} = persistent_term:get(?STATE),
    State.
