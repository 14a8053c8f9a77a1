%% When the next checkpoint is due: a pure account of how much the journal has since the last one,
%% for the owner of the follows.
%%
%% A checkpoint costs what the store has, so it begins when the journal has a part of that. Once it
%% is begun, what is written goes on counting for the next one; where it fails nothing is taken off.
%%
%% Times are monotonic milliseconds and come from the caller. It writes nothing and starts nothing:
%% `halley_store_writer' does.
-module(halley_store_pace).

-export([new/2, journalled/3, is_due_idle/2, may_begin/2, begun/1, done/1, failed/2]).
-export_type([pace/0]).

%% A checkpoint begins when the journal has at least this many bytes and an eighth of what all
%% follows would take in it, or, once nothing was asked for a while, an eighth of that.
-define(JOURNAL_BYTES, (16 bsl 20)).
-define(JOURNAL_BYTES_IDLE, (1 bsl 18)).
-define(IDLE_SHARE, 8).
%% A journal this many times too large waits for the checkpoint that is on its way.
-define(JOURNAL_OVERRUN, 4).
%% How long after a checkpoint that failed the next one may begin: twice as long for each failure in
%% a row, as each may have written all that there is, up to the second one.
-define(AGAIN_MS, 30000).
-define(AGAIN_MS_MAX, 960000).

-record(pace, {%% Of the journal, since the last checkpoint.
               bytes :: non_neg_integer(),
               %% Of these, those that the checkpoint on its way makes up for.
               covered = none :: none | non_neg_integer(),
               %% How long to wait after the next failure.
               again_ms = ?AGAIN_MS :: pos_integer(),
               after_ms :: integer()}).
-opaque pace() :: #pace{}.

-spec new(Bytes :: non_neg_integer(), NowMs :: integer()) -> pace().
new(Bytes, NowMs) -> #pace{bytes = Bytes, after_ms = NowMs}.

%% The journal has so many bytes more. `due': a checkpoint should begin; `late': the one on its way
%% should be waited for.
-spec journalled(Bytes :: non_neg_integer(), Follows :: non_neg_integer(), pace()) ->
    {none | due | late, pace()}.
journalled(Bytes, Follows, #pace{bytes = Before, covered = Covered} = Pace) ->
    Now = Before + Bytes,
    Enough = max(?JOURNAL_BYTES, Follows),
    Then = case Covered of
        none when Now >= Enough -> due;
        none -> none;
        _ when Now >= ?JOURNAL_OVERRUN * Enough -> late;
        _ -> none
    end,
    {Then, Pace#pace{bytes = Now}}.

%% Whether one should begin when nothing was asked for a while.
-spec is_due_idle(Follows :: non_neg_integer(), pace()) -> boolean().
is_due_idle(Follows, #pace{bytes = Bytes, covered = Covered}) ->
    Covered =:= none andalso Bytes >= max(?JOURNAL_BYTES_IDLE, Follows div ?IDLE_SHARE).

%% Not while one is on its way, nor soon after one that failed.
-spec may_begin(NowMs :: integer(), pace()) -> boolean().
may_begin(NowMs, #pace{covered = Covered, after_ms = AfterMs}) ->
    Covered =:= none andalso NowMs >= AfterMs.

-spec begun(pace()) -> pace().
begun(#pace{bytes = Bytes} = Pace) -> Pace#pace{covered = Bytes}.

-spec done(pace()) -> pace().
done(#pace{bytes = Bytes, covered = Covered} = Pace) when is_integer(Covered) ->
    Pace#pace{bytes = Bytes - Covered, covered = none, again_ms = ?AGAIN_MS}.

%% It failed, or couldn't begin. Gives when the next one may begin.
-spec failed(NowMs :: integer(), pace()) -> {AfterMs :: integer(), pace()}.
failed(NowMs, #pace{again_ms = AgainMs} = Pace) ->
    AfterMs = NowMs + AgainMs,
    {AfterMs, Pace#pace{covered = none, after_ms = AfterMs,
                        again_ms = min(?AGAIN_MS_MAX, 2 * AgainMs)}}.
