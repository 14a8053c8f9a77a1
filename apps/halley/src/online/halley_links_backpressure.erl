%% Backpressure: which links take no events for now, and whether all of them are full.
%%
%% A link whose queue is full is *behind*: as long as it is, neither events nor marks are sent to it
%% (link.md 4.7, 10.6). When the queue has drained, the writer calls `resume/1', reads the heads
%% after that, and gets from the history what is not above them. Nothing is lost in between: a shard
%% moves its head before it looks at the flag, so an event that found the link behind is not above
%% heads that are read after the flag was cleared. `behind' is sent once each time that the flag is
%% set, because a writer that drained before it was set would sleep. The flag, not the message, is
%% the truth. Members and ends of groups are sent all the same.
%%
%% A flag belongs to a way (`halley_links'): the workers of a trunk are behind together.
%%
%% A single slow link makes no publisher wait. `overloaded/1' turns true when every link has
%% `link_queue_refuse_bytes' waiting: then it is the brain that is too fast.
-module(halley_links_backpressure).

-export([new/1, is_behind/1, fall_behind/2, resume/1]).
-export([note/1, overloaded/1]).

-include("halley_links.hrl").

-define(BEHIND, {?MODULE, behind}).
-define(OVERLOADED, {?MODULE, overloaded}).

%% Makes the flags, one for each slot.
-spec new(SlotMax :: pos_integer()) -> ok.
new(SlotMax) ->
    persistent_term:put(?BEHIND, atomics:new(SlotMax, [])),
    persistent_term:put(?OVERLOADED, atomics:new(1, [])).

%% Whether events for what has this way have been left to the history.
-spec is_behind(Way :: halley_links:slot()) -> boolean().
is_behind(Way) ->
    atomics:get(persistent_term:get(?BEHIND), Way) =:= 1.

%% Leaves events for this way to the history from now on, and informs its writer; `was': it was
%% behind before.
-spec fall_behind(Way :: halley_links:slot(), Writer :: pid()) -> fell | was.
fall_behind(Way, Writer) ->
    case atomics:exchange(persistent_term:get(?BEHIND), Way, 1) of
        0 ->
            Writer ! behind,
            fell;
        1 ->
            was
    end.

%% Events are sent this way again. The writer calls it, and reads the heads afterwards.
-spec resume(Way :: halley_links:slot()) -> ok.
resume(Way) ->
    atomics:put(persistent_term:get(?BEHIND), Way, 0).

%% So many bytes wait for a link, or would if there were room. From half of the bound on
%% `overloaded/1' looks at all queues: to look up users' part is too much for each delivery.
-spec note(Bytes :: non_neg_integer()) -> ok.
note(Bytes) ->
    case Bytes >= halley_limits:get(link_queue_refuse_bytes) bsr 1 of
        true -> atomics:put(persistent_term:get(?OVERLOADED), 1, 1);
        false -> ok
    end.

%% Whether events of these must be refused because every link's queue is near its bound.
-spec overloaded(halley_limits:whose()) -> boolean().
overloaded(Whose) ->
    Flag = persistent_term:get(?OVERLOADED),
    atomics:get(Flag, 1) =:= 1 andalso still_overloaded(Flag, Whose).

%% Clearing first and looking then: a delivery that passes the bound in between sets the flag again.
still_overloaded(Flag, Whose) ->
    ok = atomics:put(Flag, 1, 0),
    case all_full(users) of
        true ->
            ok = atomics:put(Flag, 1, 1),
            Whose =:= users orelse all_full(Whose);
        false -> false
    end.

%% It ends at the first link that has room, so a slow link among others costs little.
all_full(Whose) ->
    Bytes = halley_limits:part(Whose, link_queue_refuse_bytes),
    true = ets:safe_fixtable(?LINKS, true),
    try
        First = ets:first(?LINKS),
        First =/= '$end_of_table' andalso full_from(First, Bytes)
    after
        ets:safe_fixtable(?LINKS, false)
    end.

full_from('$end_of_table', _) -> true;
full_from(Slot, Bytes) ->
    is_full(ets:lookup(?LINKS, Slot), Bytes) andalso full_from(ets:next(?LINKS, Slot), Bytes).

is_full([#link{queue = Queue}], Bytes) -> counters:get(Queue, 1) >= Bytes;
is_full([], _) -> true.
