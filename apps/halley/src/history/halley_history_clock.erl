%% How old something on disk is, by a clock that doesn't jump.
%%
%% A stamp has the time since the machine started, but for what it slept, and which start that was,
%% and the wall clock. Two stamps of one start are compared by the first, which no clock step
%% changes; only across a restart of the machine does the wall clock decide.
-module(halley_history_clock).

-export([stamp/0, age_ms/2, pack/1, unpack/1]).
-export_type([stamp/0]).

-type stamp() :: {Boot :: non_neg_integer(), UptimeMs :: non_neg_integer(), WallMs :: integer()}.

-define(BOOT, {?MODULE, boot}).

-spec stamp() -> stamp().
stamp() ->
    {Boot, OffsetMs} = boot(),
    {Boot, max(0, erlang:monotonic_time(millisecond) + OffsetMs),
     halley_clock:wall_ms()}.

%% The kernel is asked once; from then on the node's own monotonic clock counts. Both stand still
%% while the machine sleeps, as `/proc/uptime' doesn't.
boot() ->
    case persistent_term:get(?BOOT, none) of
        none ->
            Boot = read_boot(),
            persistent_term:put(?BOOT, Boot),
            Boot;
        Boot ->
            Boot
    end.

read_boot() ->
    NowMs = erlang:monotonic_time(millisecond),
    case file:read_file("/proc/sys/kernel/random/boot_id") of
        {ok, Id} -> {erlang:phash2({monotonic, Id}, 1 bsl 32 - 1) + 1, uptime_ms() - NowMs};
        {error, _} -> {0, -NowMs}
    end.

uptime_ms() ->
    {time, Uptime} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Uptime, native, millisecond).

%% How long before `Now' the other stamp was made. Boot 0 is no known start: it equals none.
-spec age_ms(stamp(), Now :: stamp()) -> non_neg_integer().
age_ms({Boot, UptimeMs, _}, {Boot, NowMs, _}) when Boot =/= 0 -> max(0, NowMs - UptimeMs);
age_ms({_, _, WallMs}, {_, _, NowMs}) -> max(0, NowMs - WallMs).

-spec pack(stamp()) -> <<_:160>>.
pack({Boot, UptimeMs, WallMs}) -> <<Boot:32, UptimeMs:64, WallMs:64>>.

-spec unpack(<<_:160>>) -> stamp().
unpack(<<Boot:32, UptimeMs:64, WallMs:64/signed>>) -> {Boot, UptimeMs, WallMs}.
