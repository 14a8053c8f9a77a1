%% Blocks of segments in memory, shared by all readers: 64 KB each, in ETS as binaries.
%%
%% A block is what `block/4' read from the file, at most up to where the log has written; the last
%% block of the segment that is written to is therefore short at first, and read anew when a reader
%% needs more of it. Written bytes never change, so no block is ever wrong.
%%
%% At most `history_cache_bytes_max': each block has a slot of a ring, and takes it from the block
%% that had it before.
%%
%% A block is kept when it is read a second time. A reader that goes over much of the log, once,
%% holds the block it is at by itself: it takes no room here from the shared blocks.
-module(halley_history_cache).

-export([new/0, block/4, block_bytes/0, bytes/0]).

-define(BLOCK_BYTES, 65536).
-define(NEXT, next).
%% Blocks that were asked for once lately: a word for each, by a hash.
-define(ASKED, 1024).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true},
                                {write_concurrency, true}]),
    true = ets:insert(?MODULE, {?NEXT, 0}),
    persistent_term:put(?MODULE, atomics:new(?ASKED, [{signed, false}])).

-spec block_bytes() -> pos_integer().
block_bytes() -> ?BLOCK_BYTES.

%% The block of a segment, with at least `Needed' bytes if the log has written so many. `Read' gets
%% its bytes from the file, given the position and how many.
-spec block(halley_history_segment:number_(), Block :: non_neg_integer(), Needed :: pos_integer(),
            Read :: fun((non_neg_integer(), pos_integer()) -> {ok, binary()} | Failure)) ->
    {ok, binary()} | Failure.
block(Segment, Block, Needed, Read) ->
    Key = (Segment bsl 32) bor Block,
    case ets:lookup(?MODULE, Key) of
        [{_, Bytes}] when byte_size(Bytes) >= Needed -> {ok, Bytes};
        Found -> fill(Key, Segment, Block, Found, Read)
    end.

fill(Key, Segment, Block, Found, Read) ->
    case Read(Block * ?BLOCK_BYTES, readable(Segment, Block)) of
        {ok, Bytes} ->
            keep(Key, Bytes, Found),
            {ok, Bytes};
        Failure ->
            Failure
    end.

%% The segment is read before its length: a segment that was left meanwhile is read to its end.
readable(Segment, Block) ->
    case halley_history_atomics:get(segment) of
        Segment ->
            Written = halley_history_atomics:get(position) - Block * ?BLOCK_BYTES,
            max(1, min(?BLOCK_BYTES, Written));
        _ ->
            ?BLOCK_BYTES
    end.

keep(Key, Bytes, [_]) ->
    _ = ets:update_element(?MODULE, Key, {2, Bytes}),
    ok;
keep(Key, Bytes, []) ->
    case was_asked(Key) andalso ets:insert_new(?MODULE, {Key, Bytes}) of
        true -> take_slot(Key);
        false -> ok
    end.

%% A word is 0 or a key and one. What another block has overwritten is asked for once more.
was_asked(Key) ->
    Place = erlang:phash2(Key, ?ASKED) + 1,
    atomics:exchange(persistent_term:get(?MODULE), Place, Key + 1) =:= Key + 1.

take_slot(Key) ->
    Slots = max(1, halley_limits:get(history_cache_bytes_max) div ?BLOCK_BYTES),
    Slot = {slot, ets:update_counter(?MODULE, ?NEXT, {2, 1, Slots - 1, 0})},
    _ = case ets:lookup(?MODULE, Slot) of
            [{_, Before}] -> ets:delete(?MODULE, Before);
            [] -> true
        end,
    true = ets:insert(?MODULE, {Slot, Key}),
    ok.

%% What the blocks take now.
-spec bytes() -> non_neg_integer().
bytes() ->
    lists:sum([byte_size(Bytes) || [Bytes] <- ets:match(?MODULE, {'_', '$1'}), is_binary(Bytes)]).
