%% Whether presence has settled, so that all present users are known: all workers of each edge are
%% linked and have sent all of their sessions, and the brain didn't stand still a moment ago. Until
%% that has been so for `presence_leave_ms', no user is reported as gone.
%%
%% For `halley_presence', whose process may be younger than the links.
-module(halley_presence_settled).

-export([new/1, fired/3, is_settled/3]).
-export_type([settled/0]).

%% How long a brain that begins waits for replays to end, in times of `presence_leave_ms'.
-define(HELD_TIMES, 3).

-record(settled, {
    leave_ms :: pos_integer(),
    since_ms = erlang:monotonic_time(millisecond) :: integer(),
    standstill = halley_standstill:new() :: halley_standstill:standstill()
}).
-opaque settled() :: #settled{}.

-spec new(LeaveMs :: pos_integer()) -> settled().
new(LeaveMs) -> #settled{leave_ms = LeaveMs}.

%% A timer has fired that was due at this time.
-spec fired(DueMs :: integer(), NowMs :: integer(), settled()) -> settled().
fired(DueMs, NowMs, #settled{standstill = Standstill} = Settled) ->
    Settled#settled{standstill = halley_standstill:fired(DueMs, NowMs, Standstill)}.

%% A brain that begins waits for the end of replays as well.
-spec is_settled(NowMs :: integer(), HasBegun :: boolean(), settled()) -> boolean().
is_settled(NowMs, HasBegun, #settled{since_ms = SinceMs, leave_ms = LeaveMs} = Settled) ->
    case halley_standstill:is_over(NowMs, Settled#settled.standstill)
        andalso halley_links_synced:since() of
        SyncedMs when is_integer(SyncedMs) ->
            Ms = NowMs - max(SyncedMs, SinceMs),
            Ms >= LeaveMs andalso (HasBegun orelse not halley_directory_leaving:is_any_held()
                                   orelse Ms >= ?HELD_TIMES * LeaveMs);
        _ ->
            false
    end.
