%% Whether everybody who is there is known to be: all workers of each edge are linked and have said
%% all of their sessions, and the brain didn't stand still a moment ago. Until that has been so for
%% `presence_leave_ms', nobody is said to have left.
%%
%% It keeps when each link had said all of its sessions, for `halley_presence'.
-module(halley_presence_quiet).

-export([new/1, synced/3, fired/3, is_quiet/3]).
-export_type([quiet/0]).

%% How long a brain that begins waits for replays to end, in times of `presence_leave_ms'.
-define(HELD_TIMES, 3).

-record(quiet, {
    leave_ms :: pos_integer(),
    synced :: halley_links_synced:said(),
    standstill = halley_standstill:new() :: halley_standstill:standstill()
}).
-opaque quiet() :: #quiet{}.

%% Of links that are there already it isn't known whether they are in their sync.
-spec new(LeaveMs :: pos_integer()) -> quiet().
new(LeaveMs) ->
    Now = erlang:monotonic_time(millisecond),
    Synced = maps:from_list([{Slot, {Writer, Now}}
                             || #{slot := Slot, writer := Writer} <- halley_links:list()]),
    #quiet{leave_ms = LeaveMs, synced = Synced}.

%% A link has said all of its sessions.
-spec synced(halley_links:slot(), NowMs :: integer(), quiet()) -> quiet().
synced(Slot, NowMs, #quiet{synced = Synced} = Quiet) ->
    case [Writer || #{slot := S, writer := Writer} <- halley_links:list(), S =:= Slot] of
        [Writer] -> Quiet#quiet{synced = Synced#{Slot => {Writer, NowMs}}};
        [] -> Quiet
    end.

%% A timer has fired that was due at this time.
-spec fired(DueMs :: integer(), NowMs :: integer(), quiet()) -> quiet().
fired(DueMs, NowMs, #quiet{standstill = Standstill} = Quiet) ->
    Quiet#quiet{standstill = halley_standstill:fired(DueMs, NowMs, Standstill)}.

%% A brain that begins waits for what was said to be read as well.
-spec is_quiet(NowMs :: integer(), HasBegun :: boolean(), quiet()) -> boolean().
is_quiet(NowMs, HasBegun, #quiet{synced = Synced, leave_ms = LeaveMs, standstill = Standstill}) ->
    IsOver = halley_standstill:is_over(NowMs, Standstill),
    case halley_links_synced:since(halley_links:list(), Synced) of
        never -> false;
        _ when not IsOver -> false;
        Since when NowMs - Since < LeaveMs -> false;
        _ when HasBegun -> true;
        Since -> not halley_directory_leaving:is_any_held()
                     orelse NowMs - Since >= ?HELD_TIMES * LeaveMs
    end.
