%% Which slots of links are *shut*: they take no session. A slot is shut when its link ends, and
%% stays so until another link gets it, for the process of the link that ended may still have frames
%% to read.
%%
%% A process that puts a session somewhere under its slot looks here afterwards, and takes it back
%% if the slot is shut; a purge shuts the slot first. So nothing of a link that ended stays. A mark
%% for each slot, read without a lock, written by the registry of links and by the purge.
-module(halley_directory_slots).

-export([new/0, mark/2, is_shut/1, to_purge/0]).

-define(SLOT_MAX, 1023).
-define(GIVEN, 0).
-define(ENDED, 1).
-define(PURGED, 2).

%% No slot is shut.
-spec new() -> ok.
new() -> persistent_term:put(?MODULE, atomics:new(?SLOT_MAX, [])).

%% It is a link's; or its link has ended, and its sessions are to be purged, or were.
-spec mark(halley_directory:slot(), given | ended | purged) -> ok.
mark(Slot, Mark) -> atomics:put(persistent_term:get(?MODULE), Slot, number(Mark)).

number(given) -> ?GIVEN;
number(ended) -> ?ENDED;
number(purged) -> ?PURGED.

-spec is_shut(halley_directory:slot()) -> boolean().
is_shut(Slot) -> marked(Slot) =/= ?GIVEN.

%% The slots that still have to be purged.
-spec to_purge() -> [halley_directory:slot()].
to_purge() -> [Slot || Slot <- lists:seq(1, ?SLOT_MAX), marked(Slot) =:= ?ENDED].

marked(Slot) -> atomics:get(persistent_term:get(?MODULE), Slot).
