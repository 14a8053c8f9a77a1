%% By how much the wall's clock was set, forwards or backwards, since events were published.
%%
%% An event has its time by the wall's clock of then. How old it is, which `history.retention_of'
%% asks, must not change when that clock is set: so for each *step* of it there is a seq and by how
%% many milliseconds it went, and `as_of_now/2' gives the time of an event as the clock of now would
%% have had it.
%%
%% `look/1' compares the wall's clock with the monotonic one, which no step moves; while the machine
%% sleeps the wall's alone goes on, so that is a step too, and nothing grows old meanwhile. The log
%% looks four times a second, and begins a segment after a step. Segments begin with a stamp of both
%% clocks (`halley_history_clock'), so the steps are found again at the next start. A change of the
%% wall's clock while the machine restarts isn't a step: it can't be known.
%%
%% Most of the time there are none, and an event costs one look at a word.
-module(halley_history_steps).

-export([start/1, look/2, as_of_now/2]).
-export_type([watch/0]).

-type seq() :: non_neg_integer().
%% Events up to the first seq were published before the step, those above the second behind it. One
%% in between is taken for what lies nearer to the wall's time when the step was noticed.
-type step() :: {seq(), seq(), Ms :: integer(), NoticedMs :: integer()}.
%% The wall's clock less the monotonic one, and up to which seq that is known.
-opaque watch() :: {OffsetMs :: integer(), seq()}.

%% Clocks that run are corrected by less, and what is shown for that much longer harms nobody.
-define(STEP_MS, 1000).
-define(STEPS_MAX, 64).

%% By the stamps of segments, each with the seq that nothing before it is above, the oldest first,
%% and of now.
-spec start([{halley_history_clock:stamp(), seq()}, ...]) -> watch().
start(Stamps) ->
    ok = put_steps(steps(Stamps)),
    {_, Seq} = lists:last(Stamps),
    {offset_ms(), Seq}.

steps([{{Boot, UptimeMs, WallMs}, _} | [{{Boot, LaterMs, NowMs}, Seq} | _] = Later])
  when Boot =/= 0 ->
    Ms = (NowMs - WallMs) - (LaterMs - UptimeMs),
    [{Seq, Seq, Ms, NowMs} || abs(Ms) > ?STEP_MS] ++ steps(Later);
steps([_ | Later]) ->
    steps(Later);
steps([]) ->
    [].

%% Up to `Seq' all is drawn, and all up to the floor is gone.
-spec look(Seq :: seq(), watch()) -> {same | stepped, watch()}.
look(Seq, {OffsetMs, Before}) ->
    Ms = offset_ms() - OffsetMs,
    case abs(Ms) > ?STEP_MS of
        true ->
            Floor = halley_history_atomics:get(floor),
            Known = [Step || {_, High, _, _} = Step <- get_steps(), High > Floor],
            ok = put_steps(Known ++ [{Before, Seq, Ms, halley_clock:wall_ms()}]),
            {stepped, {OffsetMs + Ms, Seq}};
        false ->
            {same, {OffsetMs, Seq}}
    end.

offset_ms() -> halley_clock:wall_ms() - erlang:monotonic_time(millisecond).

-spec get_steps() -> [step()].
get_steps() -> persistent_term:get(?MODULE, []).

%% Beyond ?STEPS_MAX the two oldest become one.
put_steps([{_, _, Ms1, _}, {Low, High, Ms2, NoticedMs} | Steps] = All)
  when length(All) > ?STEPS_MAX ->
    put_steps([{Low, High, Ms1 + Ms2, NoticedMs} | Steps]);
put_steps(Steps) ->
    persistent_term:put(?MODULE, Steps).

%% When an event of this seq was published, by the clock as it is now.
-spec as_of_now(seq(), AtMs :: integer()) -> integer().
as_of_now(Seq, AtMs) ->
    lists:foldl(fun(Step, Ms) -> behind(Step, Seq, Ms) end, AtMs, get_steps()).

behind({Low, _, Ms, _}, Seq, AtMs) when Seq =< Low -> AtMs + Ms;
behind({_, High, Ms, NoticedMs}, Seq, AtMs)
  when Seq =< High, abs(AtMs + Ms - NoticedMs) < abs(AtMs - NoticedMs) -> AtMs + Ms;
behind(_, _, AtMs) -> AtMs.
