%% How a writer gathers: it takes what is in its mailbox until that is empty, then writes all of it,
%% so batching needs no timer. It is the loop of halley_edge_trunk_writer, which has its callbacks,
%% and decides when a CURSOR is due and marks are requested from shards (`due').
%%
%% The clock of cursors is read before the mailbox is looked at: events that come during a write,
%% which lasts as long as the worker doesn't read, are not older than it
%% (docs/internals/delivery.md).
-module(halley_edge_gather).

-export([start_link/2, run/2]).
-export([due/0, moved/1, told/1, is_cursor_due/1, ask_marks/3, asked/1]).
-export_type([due/0]).

-define(CURSOR_MS, 250).             % between CURSOR frames
-define(MARK_MS, 10).                % between requests for marks
-define(CLOCK_MS, 1000).             % for which cursors' time may stand still

%% A message was taken.
-callback handle(Message :: term(), State) -> State.
%% Nothing waits in the mailbox: what was gathered is written.
-callback flush(State) -> State.
%% It is written, and nothing waited at this second.
-callback rest(Second :: pos_integer(), State) -> State.

-record(due, {
    %% A CURSOR is sent when the timer comes if the vector moved without a frame that told it.
    cursor = no :: no | idle | moved,
    marks_asked = false :: boolean()
}).
-opaque due() :: #due{}.

%% Starts Module:init(self(), ...) for the calling process. In words: room for the frames of a
%% flush, so that fewer collections find nothing.
-spec start_link(module(), [term()]) -> {ok, pid()}.
start_link(Module, Arguments) ->
    Options = [link, {message_queue_data, off_heap}, {fullsweep_after, 20},
               {min_heap_size, 16384}, {min_bin_vheap_size, 131072}],
    {ok, spawn_opt(Module, init, [self() | Arguments], Options)}.

-spec run(module(), State :: term()) -> no_return().
run(Module, State) ->
    receive
        Message -> run(Module, Module:handle(Message, State))
    after 0 ->
        empty(Module, halley_clock:wall_s(), State)
    end.

empty(Module, Second, State) ->
    receive
        Message -> run(Module, Module:handle(Message, State))
    after 0 ->
        idle(Module, Module:rest(Second, Module:flush(State)))
    end.

idle(Module, State) ->
    receive
        Message -> run(Module, Module:handle(Message, State))
    after ?CLOCK_MS ->
        %% Messages may have come before this process noticed that it is late.
        run(Module, State)
    end.

-spec due() -> due().
due() -> #due{}.

%% The vector has moved, which no frame told.
-spec moved(due()) -> due().
moved(#due{cursor = no} = Due) ->
    _ = erlang:send_after(?CURSOR_MS, self(), cursor_due),
    Due#due{cursor = moved};
moved(Due) ->
    Due#due{cursor = moved}.

%% A frame tells where the link stands.
-spec told(due()) -> due().
told(#due{cursor = moved} = Due) -> Due#due{cursor = idle};
told(Due) -> Due.

%% `cursor_due' came: whether a CURSOR is to be sent.
-spec is_cursor_due(due()) -> {boolean(), due()}.
is_cursor_due(#due{cursor = Cursor} = Due) ->
    {Cursor =:= moved, Due#due{cursor = no}}.

%% Asks these shards for marks to this slot, but not again before `ask_marks' has come.
-spec ask_marks(halley_links:slot(), [halley_shards:index()], due()) -> due().
ask_marks(_, [], Due) ->
    Due;
ask_marks(_, _, #due{marks_asked = true} = Due) ->
    Due;
ask_marks(Slot, Shards, Due) ->
    ok = halley_shard:mark(Slot, Shards),
    _ = erlang:send_after(?MARK_MS, self(), ask_marks),
    Due#due{marks_asked = true}.

%% `ask_marks' came.
-spec asked(due()) -> due().
asked(Due) -> Due#due{marks_asked = false}.
