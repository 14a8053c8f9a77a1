%% Whether all of the brain stood still a moment ago: a process that was stopped, a container that
%% was frozen. Then timers fire far too late, while clients' bytes wait in sockets: a user who is
%% back looks as if it were still away. So no user counts as gone until these bytes had time to be
%% read. The clock of timers stands still while Linux is suspended, so that isn't seen here.
%%
%% Pure. A process that decides whether a user has gone has a timer that fires several times in
%% ?HOLD_MS, and reports here how late it is. A process with too much to do is late as well. So late
%% timers of which each was due before the last one's hold ended are one stretch, which holds leaves
%% for ?HELD_MS_MAX at most. Of each of them ?HOLD_MS at most are counted: a standstill in the
%% middle of a stretch uses up no more.
-module(halley_standstill).

-export([new/0, fired/3, is_over/2]).
-export_type([standstill/0]).

%% Since when it holds, moved by what wasn't held between, and until when.
-opaque standstill() :: none | {SinceMs :: integer(), UntilMs :: integer()}.

-define(LATE_MS, 200).
-define(HOLD_MS, 1000).
-define(HELD_MS_MAX, 10000).

-spec new() -> standstill().
new() -> none.

%% A timer has fired that was due at this time.
-spec fired(DueMs :: integer(), NowMs :: integer(), standstill()) -> standstill().
fired(DueMs, NowMs, Standstill) when NowMs - DueMs < ?LATE_MS -> Standstill;
fired(DueMs, NowMs, {SinceMs, UntilMs}) when DueMs < UntilMs ->
    {SinceMs + max(0, NowMs - UntilMs), NowMs + ?HOLD_MS};
fired(_, NowMs, _) -> {NowMs, NowMs + ?HOLD_MS}.

-spec is_over(NowMs :: integer(), standstill()) -> boolean().
is_over(_, none) -> true;
is_over(NowMs, {SinceMs, UntilMs}) ->
    NowMs >= UntilMs orelse NowMs - SinceMs >= ?HELD_MS_MAX.
