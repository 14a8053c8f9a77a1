%% An array of words, one for each user number: what `halley_directory' keeps where reading it
%% costs least.
%%
%% Words are unsigned and stand in chunks of `atomics' that are made as numbers appear; a word
%% that has no chunk is 0. Anyone reads and exchanges; only the directory's owner makes chunks,
%% since the tuple of chunks is replaced as a whole.
%%
%% It knows nothing of what a word means.
-module(halley_directory_atomics).

-export([new/0, chunks/0, get/2, exchange/3, grow/1, foreach/1]).
-export_type([index/0, chunks/0]).
-compile({no_auto_import, [get/1]}).

-type index() :: 0..16#FFFFFFFF.
-opaque chunks() :: tuple().

%% 2^16 words are 512 KiB: small beside a million users, large beside a tuple's element.
-define(CHUNK_BITS, 16).
-define(CHUNK_WORDS, (1 bsl ?CHUNK_BITS)).
-define(INDEX_MAX, 16#FFFFFFFF).

-spec new() -> ok.
new() ->
    persistent_term:put(?MODULE, {}).

%% For a fan-out: the chunks are fetched once, then each `get/2' is two steps.
-spec chunks() -> chunks().
chunks() ->
    persistent_term:get(?MODULE, {}).

-spec get(chunks(), index()) -> non_neg_integer().
get(Chunks, Index) ->
    case chunk(Chunks, Index) of
        none -> 0;
        Chunk -> atomics:get(Chunk, position(Index))
    end.

%% `ok', or the word that was found in place of the expected one, or `no_chunk'.
-spec exchange(index(), Expected, New) -> ok | Found | no_chunk when
    Expected :: non_neg_integer(), New :: non_neg_integer(), Found :: non_neg_integer().
exchange(Index, Expected, New) ->
    case chunk(chunks(), Index) of
        none -> no_chunk;
        Chunk -> atomics:compare_exchange(Chunk, position(Index), Expected, New)
    end.

%% Makes the chunk of a word if there is none.
-spec grow(index()) -> ok.
grow(Index) when Index =< ?INDEX_MAX ->
    Chunks = chunks(),
    case chunk(Chunks, Index) of
        none ->
            Missing = max(0, (Index bsr ?CHUNK_BITS) + 1 - tuple_size(Chunks)),
            Wide = list_to_tuple(tuple_to_list(Chunks) ++ lists:duplicate(Missing, none)),
            Chunk = atomics:new(?CHUNK_WORDS, [{signed, false}]),
            persistent_term:put(?MODULE, setelement((Index bsr ?CHUNK_BITS) + 1, Wide, Chunk));
        _ ->
            ok
    end.

%% Calls the fun for every word that isn't 0; what changes meanwhile may be seen or not.
-spec foreach(fun((index(), pos_integer()) -> ok)) -> ok.
foreach(Fun) ->
    Chunks = chunks(),
    lists:foreach(fun(I) -> foreach(Fun, element(I, Chunks), (I - 1) bsl ?CHUNK_BITS) end,
                  lists:seq(1, tuple_size(Chunks))).

foreach(_, none, _) -> ok;
foreach(Fun, Chunk, First) -> foreach(Fun, Chunk, First, ?CHUNK_WORDS).

foreach(_, _, _, 0) ->
    ok;
foreach(Fun, Chunk, First, N) ->
    case atomics:get(Chunk, N) of
        0 -> ok;
        Word -> ok = Fun(First + N - 1, Word)
    end,
    foreach(Fun, Chunk, First, N - 1).

chunk(Chunks, Index) when (Index bsr ?CHUNK_BITS) < tuple_size(Chunks) ->
    element((Index bsr ?CHUNK_BITS) + 1, Chunks);
chunk(_, _) ->
    none.

position(Index) ->
    (Index band (?CHUNK_WORDS - 1)) + 1.
