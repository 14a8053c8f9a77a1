%% One handle of the engine, as the core sees it: closed, being opened, or open, with at most one
%% call at a time.
%%
%% Every call has a reference of its own, so a late result of a handle that was closed isn't
%% mistaken for that of a later call. A handle that failed is opened again after a pause, which
%% doubles up to a bound.
%%
%% Pure.
-module(halley_cluster_handle).

-export([new/1, open/3, call/3, result/2, opened/2, retry/2, reopen/1, is_idle/1, epoch/1]).
-export_type([handle/0, name/0, ref/0, request/0, effect/0]).

-define(PAUSE_MS, 100).
-define(PAUSE_MS_MAX, 1000).

-record(handle, {
    name :: name(),
    state = closed :: closed | opening | open,
    calls = 0 :: non_neg_integer(),
    call = none :: none | {ref(), term()},
    epoch = 0 :: non_neg_integer(),       % the newest one when it was opened
    due = 0 :: integer(),                 % when it may be opened
    pause = ?PAUSE_MS :: pos_integer()
}).
-opaque handle() :: #handle{}.
-type name() :: append | read.
-type ref() :: {name(), pos_integer()}.
%% The calls of `halley_log_engine'.
-type request() :: open
                 | {append, halley_cursor:seq(), halley_log_engine:token(),
                    halley_log_engine:group()}
                 | {read, halley_cursor:seq(), MaxBytes :: pos_integer()}
                 | snapshot
                 | {take, halley_log_engine:role(), Brain :: binary(), Term :: non_neg_integer(),
                    TtlMs :: pos_integer()}
                 | {brains, Head :: halley_cursor:seq()}
                 | {trim, OlderThan :: halley_log_engine:at_ms()}.
-type effect() :: {call, ref(), request()} | {close, name()}.

-spec new(name()) -> handle().
new(Name) ->
    #handle{name = Name}.

%% Opens it, if it is closed and its pause is over. `Context' comes back with the result.
-spec open(Now :: integer(), Context :: term(), handle()) -> {handle(), [effect()]}.
open(Now, Context, #handle{state = closed, due = Due} = Handle) when Now >= Due ->
    send(open, Context, Handle#handle{state = opening});
open(_, _, Handle) ->
    {Handle, []}.

%% Only if it is idle.
-spec call(request(), Context :: term(), handle()) -> {handle(), [effect()]}.
call(Request, Context, #handle{state = open, call = none} = Handle) ->
    send(Request, Context, Handle).

send(Request, Context, #handle{name = Name, calls = Calls} = Handle) ->
    Ref = {Name, Calls + 1},
    {Handle#handle{calls = Calls + 1, call = {Ref, Context}}, [{call, Ref, Request}]}.

%% The context of the call that this result is of.
-spec result(ref(), handle()) -> {ok, Context :: term(), handle()} | other.
result(Ref, #handle{call = {Ref, Context}} = Handle) ->
    {ok, Context, Handle#handle{call = none}};
result(_, _) ->
    other.

-spec opened(Epoch :: pos_integer(), handle()) -> handle().
opened(Epoch, Handle) ->
    Handle#handle{state = open, epoch = Epoch, pause = ?PAUSE_MS}.

%% It is good for nothing any more; opened again after a pause.
-spec retry(Now :: integer(), handle()) -> {handle(), [effect()]}.
retry(Now, #handle{pause = Pause} = Handle) ->
    {Closed, Effects} = reopen(Handle),
    {Closed#handle{due = Now + Pause, pause = min(2 * Pause, ?PAUSE_MS_MAX)}, Effects}.

%% The same, opened again at once.
-spec reopen(handle()) -> {handle(), [effect()]}.
reopen(#handle{state = closed} = Handle) ->
    {Handle, []};
reopen(#handle{name = Name} = Handle) ->
    {Handle#handle{state = closed, call = none}, [{close, Name}]}.

-spec is_idle(handle()) -> boolean().
is_idle(#handle{state = State, call = Call}) -> State =:= open andalso Call =:= none.

-spec epoch(handle()) -> non_neg_integer().
epoch(#handle{state = open, epoch = Epoch}) -> Epoch;
epoch(_) -> 0.
