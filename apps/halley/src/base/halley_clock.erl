%% The time on the wall, as the machine's clock has it now.
%%
%% There are two clocks, and docs/internals/clocks.md says which decides what. The wall's may be set
%% by an hour at any moment, forwards and backwards, so it is for times that people and other
%% machines read: an event's `at', a hook's signature, a gap's `from' and `to'. How long something
%% took, what is due and what came first is decided by `erlang:monotonic_time/1' or by seqs.
%%
%% This is the one module of the brain that asks the wall's clock (the rule `clocks' of tools/tidy).
%% It asks the machine itself: `erlang:system_time/1' is the emulator's own idea of it, which
%% follows a step only later, or by one per cent at most where time doesn't warp.
%%
%% Not here: the age of what is on disk (`halley_history_clock').
-module(halley_clock).

-export([wall_ms/0, wall_s/0]).

%% Milliseconds since 1970.
-spec wall_ms() -> integer().
wall_ms() -> os:system_time(millisecond).

%% Seconds since 1970.
-spec wall_s() -> integer().
wall_s() -> os:system_time(second).
