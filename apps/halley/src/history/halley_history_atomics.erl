%% The numbers that shards, log and readers of the history share: one array of atomics.
%%
%% Writers: a shard writes its own head; everyone the counter and the queue's bytes, by adding;
%% `halley_history_log' all the rest. Readers need no lock and no message.
%%
%% Invariants: a shard's head is at most the counter; its written head is at most its head; both
%% only rise. No seq above `reserved' is ever drawn, and `reserved' is on disk before it is here.
-module(halley_history_atomics).

-export([new/1, draw/0, draw/2, has_room/0, mark/1, reached/2]).
-export([heads/0, written/0, written/2, all_written/0]).
-export([get/1, put/2, add/2, get_refusing/0, put_refusing/1]).
-compile({no_auto_import, [get/1, put/2]}).
-export_type([word/0, seq/0, vector/0, refusing/0]).

-type seq() :: 0..16#FFFFFFFFFFFF.
%% One seq for each shard.
-type vector() :: tuple().
-type word() :: counter        % the last seq that was drawn
              | reserved       % the last seq that may be drawn
              | floor          % events up to it are not promised any more
              | floor_at       % when the last of them was published
              | oldest_at      % when the oldest retained event was published, 0 for none
              | queue_bytes    % what waits for the log
              | segment        % number of the segment that is written to
              | position       % its length as far as it is written
              | oldest_segment
              | store          % as cursors name it (`halley_history_epochs')
              | segments_store % as the files name it
              | events         % in retention
              | bytes          % on disk
               | private        % the last seq of a private event that is indexed
              | joint          % and of one about several subjects
              | cut            % what is written up to there in one shard is so in all
              | forgotten.     % the last seq of a record that hides a user's past

%% Why nothing may be published: there is no room; the disk fails; the folder isn't where it was.
-type refusing() :: false | disk_full | failed | data_dir_moved.

%% Behind it the heads, then the written heads.
-define(HEADS, 18).
-define(REFUSING, 13).
%% A quarter of what is reserved at a time; it is renewed when half is left.
-define(ROOM, 1048576).

%% Nothing was drawn above this seq, and nothing up to it is here. All else is zero.
-spec new(seq()) -> ok.
new(Seq) ->
    Heads = [?HEADS + N || N <- lists:seq(1, 2 * halley_shards:count())],
    Ref = atomics:new(lists:last(Heads), []),
    lists:foreach(fun(Place) -> ok = atomics:put(Ref, Place, Seq) end,
                  [place(counter), place(reserved), place(cut), place(floor) | Heads]),
    persistent_term:put(?MODULE, Ref).

ref() -> persistent_term:get(?MODULE).

%% The last of the next N seqs; the shard's head moves to it. Only the shard itself may call it.
-spec draw(halley_shards:index(), N :: pos_integer()) -> seq().
draw(Shard, N) ->
    Ref = ref(),
    Seq = draw_from(Ref, N),
    ok = atomics:put(Ref, ?HEADS + Shard, Seq),
    Seq.

%% Whether many may be drawn: what is left of the reservation would do for all that each shard may
%% draw one by one before the next look.
-spec has_room() -> boolean().
has_room() ->
    Ref = ref(),
    atomics:get(Ref, place(reserved)) - atomics:get(Ref, place(counter)) >= ?ROOM.

%% The next seq, for what belongs to no shard's order.
-spec draw() -> seq().
draw() ->
    draw_from(ref(), 1).

%% The reservation is renewed when half of it is used, and publishing is refused when that fails.
%% So two million drawn seqs separate this assertion from what can happen. A brain that could not
%% reserve anything at its start refuses from then on.
draw_from(Ref, N) ->
    Seq = atomics:add_get(Ref, place(counter), N),
    true = Seq =< atomics:get(Ref, place(reserved)),
    Seq.

%% Moves the shard's head to the counter: it will draw nothing up to there. Only the shard itself
%% may call it. `same': the head was there before.
-spec mark(halley_shards:index()) -> {moved | same, seq()}.
mark(Shard) ->
    Ref = ref(),
    Seq = atomics:get(Ref, place(counter)),
    case atomics:exchange(Ref, ?HEADS + Shard, Seq) of
        Seq -> {same, Seq};
        _ -> {moved, Seq}
    end.

%% The shard's head moves to a seq that another brain may have drawn, and the counter as well, if it
%% isn't there yet. Only the shard itself may call it. `none': the seq is of what belongs to no
%% shard's order.
-spec reached(halley_shards:index() | none, seq()) -> ok.
reached(Shard, Seq) ->
    Ref = ref(),
    ok = raise(Ref, place(counter), Seq, atomics:get(Ref, place(counter))),
    Shard =:= none orelse atomics:put(Ref, ?HEADS + Shard, Seq),
    ok.

raise(_, _, Seq, Before) when Before >= Seq ->
    ok;
raise(Ref, Place, Seq, Before) ->
    case atomics:compare_exchange(Ref, Place, Before, Seq) of
        ok -> ok;
        Now -> raise(Ref, Place, Seq, Now)
    end.

%% Vectors are cuts: none has a seq without all that was answered, in any shard, before that was
%% drawn, although the parts are read one after the other. So events of two shards stand on the same
%% side of each other for all who part what was from what comes.
-spec heads() -> vector().
heads() -> vector(counter, ?HEADS).

-spec written() -> vector().
written() -> vector(cut, ?HEADS + halley_shards:count()).

%% What is above `Cut' came later: it isn't looked at.
vector(Cut, Before) ->
    Ref = ref(),
    Highest = atomics:get(Ref, place(Cut)),
    list_to_tuple([min(Highest, atomics:get(Ref, Before + Shard))
                   || Shard <- lists:seq(1, halley_shards:count())]).

%% All that was said to be written so far is.
-spec all_written() -> ok.
all_written() ->
    Ref = ref(),
    First = ?HEADS + halley_shards:count() + 1,
    Highest = lists:max([atomics:get(Ref, Place)
                         || Place <- lists:seq(First, First + halley_shards:count() - 1)]),
    atomics:put(Ref, place(cut), Highest).

%% Raises the written head of a shard.
-spec written(halley_shards:index(), seq()) -> ok.
written(Shard, Seq) ->
    Ref = ref(),
    Place = ?HEADS + halley_shards:count() + Shard,
    case atomics:get(Ref, Place) < Seq of
        true -> atomics:put(Ref, Place, Seq);
        false -> ok
    end.

-spec get(word()) -> integer().
get(Word) -> atomics:get(ref(), place(Word)).

-spec put(word(), integer()) -> ok.
put(Word, Value) -> atomics:put(ref(), place(Word), Value).

-spec add(word(), integer()) -> ok.
add(Word, Value) -> atomics:add(ref(), place(Word), Value).

-spec get_refusing() -> refusing().
get_refusing() ->
    case atomics:get(ref(), ?REFUSING) of
        0 -> false;
        1 -> disk_full;
        2 -> failed;
        3 -> data_dir_moved
    end.

-spec put_refusing(refusing()) -> ok.
put_refusing(Refusing) -> atomics:put(ref(), ?REFUSING, code(Refusing)).

code(false) -> 0;
code(disk_full) -> 1;
code(failed) -> 2;
code(data_dir_moved) -> 3.

place(counter) -> 1;
place(reserved) -> 2;
place(floor) -> 3;
place(floor_at) -> 4;
place(oldest_at) -> 5;
place(queue_bytes) -> 6;
place(segment) -> 7;
place(position) -> 8;
place(oldest_segment) -> 9;
place(store) -> 10;
place(events) -> 11;
place(bytes) -> 12;
place(private) -> 14;
place(forgotten) -> 15;
place(joint) -> 16;
place(cut) -> 17;
place(segments_store) -> 18.
