%% The holders of a pool's connections: a word of 64 bits for each place, changed by compare and
%% exchange, so that a connection is taken and given back without any process.
%%
%% A place is empty, idle, owned by a process, or on its way to a waiter who hasn't taken it yet:
%% handed, or sent, when the waiter's request has been written to it already.
%% An owner's word is the id and the serial of its pid in the external term format (NEW_PID_EXT), so
%% whoever finds the word can ask whether the owner lives. Those words aren't negative: the other
%% states are. Each handing has a number of its own, so that a late one is seen as such.
-module(epgsql_pool_slots).

-export([new/1, me/0, word/1, owner/1, take_idle/2, take_empty/2, exchange/4, word_of/2, put_idle/2,
         put_empty/2, put_handed/2, put_sent/3, sent_to/2, idle_since/2, count_idle/1]).

-export_type([slots/0, slot/0, word/0]).

-define(EMPTY, -1).
-define(IDLE, -2).
-define(HANDED(Number), (-2 * Number - 2)).
-define(SENT(Number), (-2 * Number - 1)).
%% In a caller's dictionary: the place it had last, of the pool that it used last.
-define(LAST, epgsql_pool_slots_last).
%% Its own last connection is the caller's first choice for so long.
-define(WARM, erlang:convert_time_unit(10, millisecond, native)).

%% For each slot its word, since when it is idle or on its way, and whom it was sent to; before them
%% the number of the last handing.
-opaque slots() :: {atomics:atomics_ref(), Size :: pos_integer()}.
-type slot() :: pos_integer().
-type word() :: integer().

-define(WORD(Slot), (3 * Slot - 1)).
-define(SINCE(Slot), (3 * Slot)).
-define(SENT_TO(Slot), (3 * Slot + 1)).

-spec new(pos_integer()) -> slots().
new(Size) ->
    Words = atomics:new(3 * Size + 1, []),
    lists:foreach(fun(Slot) -> atomics:put(Words, ?WORD(Slot), ?EMPTY) end, lists:seq(1, Size)),
    {Words, Size}.

-spec count_idle(slots()) -> non_neg_integer().
count_idle({Words, Size}) ->
    length([idle || Slot <- lists:seq(1, Size), atomics:get(Words, ?WORD(Slot)) =:= ?IDLE]).

%% The calling process's word.
-spec me() -> word().
me() ->
    case get(?MODULE) of
        undefined ->
            Word = word(self()),
            _ = put(?MODULE, Word),
            Word;
        Word -> Word
    end.

-spec word(pid()) -> word().
word(Pid) ->
    External = term_to_binary(Pid),
    <<Word:64/signed, _Creation:32>> = binary:part(External, byte_size(External), -12),
    Word.

-spec owner(word()) -> {pid, pid()} | empty | idle | handed | sent.
owner(?EMPTY) -> empty;
owner(?IDLE) -> idle;
owner(Word) when Word < 0, Word rem 2 =:= 0 -> handed;
owner(Word) when Word < 0 -> sent;
owner(Word) ->
    External = term_to_binary(self()),
    Head = binary:part(External, 0, byte_size(External) - 12),
    Creation = binary:part(External, byte_size(External), -4),
    {pid, binary_to_term(<<Head/binary, Word:64, Creation/binary>>, [safe])}.

%% The caller's last one, if somebody has used it a moment ago; or the first idle one: those at the
%% end are left idle when there is little to do.
-spec take_idle(word(), slots()) -> {ok, slot()} | none.
take_idle(Me, {Words, Size}) ->
    case get(?LAST) of
        {Words, Last} ->
            case atomics:get(Words, ?WORD(Last)) =:= ?IDLE
                 andalso erlang:monotonic_time() - atomics:get(Words, ?SINCE(Last)) < ?WARM
                 andalso atomics:compare_exchange(Words, ?WORD(Last), ?IDLE, Me) =:= ok of
                true -> {ok, Last};
                false -> take_first_idle(Me, Words, Size)
            end;
        _ -> take_first_idle(Me, Words, Size)
    end.

take_first_idle(Me, Words, Size) ->
    case take(?IDLE, Me, Words, 1, Size) of
        {ok, Slot} = Taken ->
            _ = put(?LAST, {Words, Slot}),
            Taken;
        none -> none
    end.

-spec take_empty(word(), slots()) -> {ok, slot()} | none.
take_empty(Me, {Words, Size}) -> take(?EMPTY, Me, Words, 1, Size).

take(_, _, _, Slot, Size) when Slot > Size -> none;
take(Wanted, Me, Words, Slot, Size) ->
    case atomics:get(Words, ?WORD(Slot)) =:= Wanted
         andalso atomics:compare_exchange(Words, ?WORD(Slot), Wanted, Me) =:= ok of
        true -> {ok, Slot};
        false -> take(Wanted, Me, Words, Slot + 1, Size)
    end.

-spec exchange(slot(), From :: idle | word(), To :: word(), slots()) -> boolean().
exchange(Slot, idle, To, Slots) -> exchange(Slot, ?IDLE, To, Slots);
exchange(Slot, From, To, {Words, _}) ->
    atomics:compare_exchange(Words, ?WORD(Slot), From, To) =:= ok.

-spec word_of(slot(), slots()) -> word().
word_of(Slot, {Words, _}) -> atomics:get(Words, ?WORD(Slot)).

%% By its owner, as the next three.
-spec put_idle(slot(), slots()) -> ok.
put_idle(Slot, {Words, _}) ->
    ok = atomics:put(Words, ?SINCE(Slot), erlang:monotonic_time()),
    atomics:put(Words, ?WORD(Slot), ?IDLE).

-spec put_empty(slot(), slots()) -> ok.
put_empty(Slot, {Words, _}) -> atomics:put(Words, ?WORD(Slot), ?EMPTY).

%% The word that the waiter exchanges for its own.
-spec put_handed(slot(), slots()) -> word().
put_handed(Slot, {Words, _}) -> put_on_its_way(Slot, ?HANDED(atomics:add_get(Words, 1, 1)), Words).

-spec put_sent(slot(), Waiter :: word(), slots()) -> word().
put_sent(Slot, Waiter, {Words, _}) ->
    ok = atomics:put(Words, ?SENT_TO(Slot), Waiter),
    put_on_its_way(Slot, ?SENT(atomics:add_get(Words, 1, 1)), Words).

put_on_its_way(Slot, Word, Words) ->
    ok = atomics:put(Words, ?SINCE(Slot), erlang:monotonic_time()),
    ok = atomics:put(Words, ?WORD(Slot), Word),
    Word.

%% Whom a place that is sent was sent to.
-spec sent_to(slot(), slots()) -> {pid, pid()}.
sent_to(Slot, {Words, _}) -> owner(atomics:get(Words, ?SENT_TO(Slot))).

%% How long ago it was put idle, handed or sent.
-spec idle_since(slot(), slots()) -> Milliseconds :: integer().
idle_since(Slot, {Words, _}) ->
    erlang:convert_time_unit(erlang:monotonic_time() - atomics:get(Words, ?SINCE(Slot)), native,
                             millisecond).
