%% From an id to its number: a hash table of words.
%%
%% An ETS row costs 88 bytes for an id of six bytes, and the id stands in `halley_id_pages` already.
%% So this holds numbers alone: open addressing in an `atomics`, one word for an id, at most three
%% quarters full, 11 to 21 bytes each. A word is the id's hash (32 bits) above its number (27), a
%% small integer of the VM; 0 is a free place. A look-up finds the words with the id's hash and
%% asks whether that number has that name, which is wrong once in four thousand million times.
%%
%% One process inserts and removes, anyone reads without locks:
%%   * a word that is removed becomes a *tombstone*, never a free place, so a reader that meets a
%%     free place knows that the id wasn't there all the time. A tombstone is number 0, which no id
%%     has: readers pass it. The next insert on its way takes its place;
%%   * a table that is full is copied into one of twice its size, which then takes its place as a
%%     whole. A reader in between reads the old one to the end; ids that came since aren't in it,
%%     and they hadn't come yet when it began. Copying needs no names, because words have hashes.
%% The hash is salted, by a secret of this brain: ids are chosen by strangers, who could otherwise
%% choose a million of the same hash.
%%
%% It is not durable, and doesn't know how ids are kept: it is built anew from the names.
-module(halley_ids_index).

-export([lookup/2, insert/1, remove/1, count/0]).
-export([new/1, add/2, publish/1]).

-export_type([index/0]).

-define(NUMBER_BITS, 27).
-define(NUMBER_MAX, ((1 bsl ?NUMBER_BITS) - 1)).
-define(HASHES, (1 bsl 32)).
-define(PLACES_MIN, 1024).
%% Whether so many ids are too many for so many places.
-define(IS_FULL(Ids, Places), (4 * (Ids) > 3 * (Places))).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
-define(TOMBSTONE, (1 bsl ?NUMBER_BITS)).

%% Places are 0 to Mask, words 1 to Mask + 1; the words after them count ids and tombstones.
-record(index, {words :: atomics:atomics_ref(), mask :: pos_integer(),
                salt :: non_neg_integer()}).
-opaque index() :: #index{}.

%% The number that was inserted for the id. `Holds` says whether a number's name is an id.
-spec lookup(id(), Holds :: fun((user_number(), id()) -> boolean())) -> user_number() | undefined.
lookup(Id, Holds) ->
    #index{words = Words, mask = Mask, salt = Salt} = persistent_term:get(?MODULE),
    Hash = hash(Salt, Id),
    lookup(Words, Mask, Hash, Hash band Mask, Id, Holds).

lookup(Words, Mask, Hash, Place, Id, Holds) ->
    case atomics:get(Words, Place + 1) of
        0 ->
            undefined;
        Word when Word bsr ?NUMBER_BITS =:= Hash ->
            Number = Word band ?NUMBER_MAX,
            case Holds(Number, Id) of
                true -> Number;
                false -> lookup(Words, Mask, Hash, (Place + 1) band Mask, Id, Holds)
            end;
        _ ->
            lookup(Words, Mask, Hash, (Place + 1) band Mask, Id, Holds)
    end.

%% Adds ids that aren't there, each with a number of its own. For the one writer; what the numbers
%% are the names of must be readable already.
-spec insert([{id(), user_number()}]) -> ok.
insert(Ids) ->
    Before = persistent_term:get(?MODULE),
    case add(Ids, Before) of
        Before -> ok;
        Larger -> publish(Larger)
    end.

%% Removes ids that are there, each with its number. For the one writer.
-spec remove([{id(), user_number()}]) -> ok.
remove(Ids) ->
    Index = persistent_term:get(?MODULE),
    #index{words = Words, mask = Mask, salt = Salt} = Index,
    lists:foreach(fun({Id, Number}) ->
        Hash = hash(Salt, Id),
        Place = place(Words, Mask, Hash bsl ?NUMBER_BITS bor Number, Hash band Mask),
        atomics:put(Words, Place + 1, ?TOMBSTONE)
    end, Ids),
    add_count(-length(Ids), Index),
    atomics:add(Words, Mask + 3, length(Ids)).

%% Where a word is.
place(Words, Mask, Word, Place) ->
    case atomics:get(Words, Place + 1) of
        Word -> Place;
        Other when Other =/= 0 -> place(Words, Mask, Word, (Place + 1) band Mask)
    end.

%% One that nobody reads yet, with room for about so many ids.
-spec new(non_neg_integer()) -> index().
new(Ids) ->
    <<Salt:32>> = crypto:strong_rand_bytes(4),
    empty(places(?PLACES_MIN, Ids), Salt).

%% Adds ids to one that nobody reads yet, or grows.
-spec add([{id(), user_number()}], index()) -> index().
add(Ids, Index) ->
    #index{salt = Salt} = Roomy = room(Index, count(Index) + length(Ids)),
    lists:foreach(fun({Id, Number}) when Number =< ?NUMBER_MAX ->
                          put_word(hash(Salt, Id) bsl ?NUMBER_BITS bor Number, Roomy)
                  end, Ids),
    add_count(length(Ids), Roomy),
    Roomy.

%% From now on this is the one that is read.
-spec publish(index()) -> ok.
publish(Index) -> persistent_term:put(?MODULE, Index).

-spec count() -> non_neg_integer().
count() -> count(persistent_term:get(?MODULE)).

count(#index{words = Words, mask = Mask}) -> atomics:get(Words, Mask + 2).

%% Not a tuple: phash2 goes through a list from its head, so the salt is in every step of the id's.
hash(Salt, Id) -> erlang:phash2([Salt | Id], ?HASHES).

empty(Places, Salt) ->
    #index{words = atomics:new(Places + 2, [{signed, false}]), mask = Places - 1, salt = Salt}.

places(Places, Ids) when ?IS_FULL(Ids, Places) -> places(2 * Places, Ids);
places(Places, _) -> Places.

%% Tombstones take places, and go when the table is copied.
room(#index{words = Words, mask = Mask, salt = Salt} = Index, Ids) ->
    Taken = Ids + atomics:get(Words, Mask + 3),
    case ?IS_FULL(Taken, Mask + 1) of
        false ->
            Index;
        true ->
            Fresh = empty(places(Mask + 1, Ids + Ids div 4), Salt),
            ok = copy(Words, Mask + 1, Fresh),
            add_count(count(Index), Fresh),
            Fresh
    end.

copy(_, 0, _) -> ok;
copy(Words, I, Larger) ->
    case atomics:get(Words, I) of
        0 -> ok;
        ?TOMBSTONE -> ok;
        Word -> put_word(Word, Larger)
    end,
    copy(Words, I - 1, Larger).

put_word(Word, #index{words = Words, mask = Mask}) ->
    put_word(Words, Mask, (Word bsr ?NUMBER_BITS) band Mask, Word).

put_word(Words, Mask, Place, Word) ->
    case atomics:get(Words, Place + 1) of
        0 ->
            atomics:put(Words, Place + 1, Word);
        ?TOMBSTONE ->
            atomics:sub(Words, Mask + 3, 1),
            atomics:put(Words, Place + 1, Word);
        _ ->
            put_word(Words, Mask, (Place + 1) band Mask, Word)
    end.

add_count(Ids, #index{words = Words, mask = Mask}) -> atomics:add(Words, Mask + 2, Ids).
