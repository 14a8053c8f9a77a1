%% The history's files as the log's process writes them: the segment that grows, those before it,
%% and the ledger.
%%
%% `write/3' gives records their place, `sync/1' makes all of them durable, `tick/1' is called once
%% in a while and does what time asks for. A write that somebody waits for goes through to the disk
%% at once if all before it is there: that is one system call instead of two. A failure is returned,
%% never thrown, and leaves a state that can be used: what was not written is cut off, and a segment
%% that could not be synced is left for a new one, because what the kernel still has of it can't be
%% trusted.
%%
%% It keeps the words of place and size (`halley_history_words') up to date. It knows no publishers
%% and no heads: `halley_history_log' does.
-module(halley_history_disk).

-export([open/1, write/3, sync/1, note/1, is_dirty/1, tick/1, starve/1, probe/1, lose/2, close/1]).
-export([renew/1, reserved_step/0]).
-export_type([disk/0, packed/0, failure/0]).

-include("halley_history.hrl").

-record(disk, {dir :: file:name_all(), store :: non_neg_integer(),
               ledger :: halley_history_ledger:ledger(),
               file = none :: none | halley_history_segment:output(),
               current :: halley_history_retention:segment(),
               next_number :: non_neg_integer(),
               segments = [] :: [halley_history_retention:segment()],
               highest = 0 :: non_neg_integer(),   % seq that was written, or lost
               placed = 0 :: non_neg_integer(),    % where the last place record is
               dirty = false :: boolean(),
               noted = true :: boolean(),          % that the last sync was done
               ids = [] :: [pos_integer()],        % written since the last sync, id chosen
               lost = [] :: [halley_history:range()]}). % to be written as soon as it is possible
-opaque disk() :: #disk{}.
-type packed() :: #packed{}.
-type failure() :: {error, term(), disk()}.

-define(RESERVED, 4194304).
-define(PLACE_BYTES, 65536).
-define(PROBE_BYTES, 65536).
%% More isn't copied into one binary, as a write through needs it.
-define(THROUGH_BYTES_MAX, 65536).

%% Recovers, sets the words, and begins a new segment.
-spec open(file:name_all()) -> {ok, disk()} | {error, binary()}.
open(Dir) ->
    ok = halley_history_index:clear(),
    case halley_history_recovery:recover(Dir) of
        {ok, Recovered} ->
            case begin_anew(Dir, Recovered) of
                {ok, Disk} -> {ok, Disk};
                {error, Reason, _} -> unwritable(Dir, Reason)
            end;
        {error, Reason} ->
            unwritable(Dir, Reason)
    end.

unwritable(Dir, Reason) ->
    {error, unicode:characters_to_binary(
        io_lib:format("data.dir: the history cannot write in ~ts: ~ts",
                      [Dir, file:format_error(Reason)]))}.

begin_anew(Dir, #{ledger := Ledger, store := Store, counter := Counter, segments := Segments,
                  number := Number, highest := Highest, damaged := Damaged, lost := Lost}) ->
    ok = halley_history_words:put(store, Store),
    ok = halley_history_words:put(counter, Counter),
    ok = halley_history_words:put(events, sum(events, Segments)),
    ok = halley_history_words:put(bytes, sum(bytes, Segments)),
    ok = halley_history_index:set_damaged(Damaged),
    Disk = #disk{dir = Dir, store = Store, ledger = Ledger, segments = Segments,
                 current = last(Segments), next_number = Number, highest = Highest, lost = Lost},
    case reserve(Disk, Counter) of
        {ok, Reserved} ->
            case begin_segment(Reserved) of
                {ok, Begun} -> {ok, drop(floor_at(Begun))};
                Error -> Error
            end;
        Error -> Error
    end.

sum(Key, Maps) -> lists:foldl(fun(Map, Sum) -> map_get(Key, Map) + Sum end, 0, Maps).

%% What was dropped by the brain before is older than what is here, and by how much isn't known.
floor_at(Disk = #disk{segments = Segments, current = Current}) ->
    Bases = [Base || #{base := Base} <- Segments ++ [Current]],
    Times = [At || #{first_at := At} <- Segments, At =/= none] ++ [now_ms()],
    ok = halley_history_words:put(floor_at, case hd(Bases) of 0 -> 0; _ -> hd(Times) end),
    Disk.

%% What stands for the segment before the first.
last([]) -> new_segment(0, 0, 0);
last(Segments) -> lists:last(Segments).

new_segment(Number, Base, Bytes) ->
    NowMs = erlang:monotonic_time(millisecond),
    #{number => Number, base => Base, bytes => Bytes, events => 0, first_at => none,
      last_at => none, began_ms => NowMs, ended_ms => NowMs}.

%% --- writing -------------------------------------------------------------------------------------

%% Writes records in this order and indexes them. `IsAwaited': `sync/1' follows.
-spec write([packed()], IsAwaited :: boolean(), disk()) -> {ok, disk()} | failure().
write([], _, Disk) ->
    {ok, Disk};
write(Packed, IsAwaited, Disk0) ->
    Bytes = record_bytes(Packed),
    case make_room(Bytes, Disk0) of
        {ok, Disk = #disk{dirty = Dirty}} when Dirty; not IsAwaited; Bytes > ?THROUGH_BYTES_MAX ->
            write(Packed, fun halley_history_segment:write/3, true, Disk);
        {ok, Disk} ->
            write(Packed, fun halley_history_segment:write_through/3, false, Disk);
        Error ->
            Error
    end.

write(Packed, Write, Dirty, Disk = #disk{file = File, current = #{bytes := Position}}) ->
    {Prefix, PrefixBytes, Placed} = prefix(Disk),
    case Write(File, Position, [Prefix | [Record || #packed{record = Record} <- Packed]]) of
        ok ->
            Written = written(Packed, Position + PrefixBytes,
                              Disk#disk{lost = [], placed = Placed, dirty = Dirty}),
            {ok, case Dirty of true -> Written; false -> Written#disk{noted = false, ids = []} end};
        {error, Reason} ->
            {error, Reason, cut(Dirty, Reason, Disk)}
    end.

%% The segment is sound if there was no room; what else failed on its way to the disk says nothing
%% about what follows.
cut(false, Reason, Disk) when Reason =/= enospc, Reason =/= edquot -> leave(cut(Disk));
cut(_, _, Disk) -> cut(Disk).

record_bytes(Packed) -> lists:foldl(fun(#packed{bytes = Bytes}, Sum) -> Bytes + Sum end, 0, Packed).

%% What is due before the records: ranges that could not be written, and how far seqs have come.
prefix(#disk{store = Store, highest = Highest, lost = Lost, placed = Placed,
             current = #{bytes := Position}}) ->
    Ranges = [halley_history_record:lost(Store, {From, FromMs}, {To, ToMs})
              || {From, To, FromMs, ToMs} <- Lost],
    {Place, PlacedNow} = case Position - Placed >= ?PLACE_BYTES of
        true -> {[halley_history_record:place(Store, Highest, now_ms())], Position};
        false -> {[], Placed}
    end,
    {Records, Bytes} = lists:unzip(Ranges ++ Place),
    {Records, lists:sum(Bytes), PlacedNow}.

now_ms() -> erlang:system_time(millisecond).

%% Readers look no further than the written position: it is there before the first entry is.
written(Packed, Position, Disk = #disk{current = Current, ids = Ids}) ->
    #{number := Number, bytes := Begin, events := Events, first_at := FirstAt} = Current,
    End = Position + record_bytes(Packed),
    ok = halley_history_words:put(position, End),
    {End, NewIds} = lists:foldl(fun(One, Acc) -> index(One, Number, Acc) end,
                                {Position, Ids}, Packed),
    First = case FirstAt of none -> (hd(Packed))#packed.at; _ -> FirstAt end,
    N = length(Packed),
    ok = halley_history_words:add(events, N),
    ok = halley_history_words:add(bytes, End - Begin),
    ok = first_at(FirstAt, First, Disk),
    Grown = Current#{bytes := End, events := Events + N, first_at := First,
                     last_at := (lists:last(Packed))#packed.at,
                     ended_ms := erlang:monotonic_time(millisecond)},
    Highest = lists:max([Disk#disk.highest | [Seq || #packed{seq = Seq} <- Packed]]),
    Disk#disk{current = Grown, highest = Highest, ids = NewIds}.

index(#packed{kind = event, shard = Shard, seq = Seq, id = Id, subject = Subject,
              chosen = Chosen, sessions = Sessions, bytes = Bytes}, Number, {Position, Ids}) ->
    ok = halley_history_index:event(Shard, {Seq, Id, Subject}, Chosen, Sessions, Number, Position),
    {Position + Bytes, case Chosen of true -> [Seq | Ids]; false -> Ids end};
index(#packed{kind = unfollow, shard = Shard, seq = Seq, subject = User, id = Subject,
              bytes = Bytes}, Number, {Position, Ids}) ->
    ok = halley_history_index:unfollow(Shard, {Seq, User, Subject}, Number, Position),
    {Position + Bytes, Ids}.

first_at(none, At, #disk{segments = Segments}) ->
    case [First || #{first_at := First} <- Segments, First =/= none] of
        [] -> halley_history_words:put(oldest_at, At);
        _ -> ok
    end;
first_at(_, _, _) ->
    ok.

%% Where a write failed there may be a part of it.
cut(Disk = #disk{file = none}) ->
    Disk;
cut(Disk = #disk{file = File, current = #{bytes := Position}}) ->
    case halley_history_segment:cut(File, Position) of
        ok -> Disk;
        {error, _} -> abandon(Disk)
    end.

abandon(Disk) ->
    case sync(Disk) of
        {ok, Synced} -> leave(Synced);
        {error, _, Left} -> Left
    end.

%% Lets go of a segment.
leave(Disk = #disk{file = none}) ->
    Disk;
leave(Disk = #disk{file = File, segments = Segments, current = Current}) ->
    ok = halley_history_segment:close(File),
    Disk#disk{file = none, dirty = false, segments = Segments ++ [Current]}.

%% --- segments ------------------------------------------------------------------------------------

make_room(_, Disk = #disk{file = none}) ->
    begin_segment(Disk);
make_room(Bytes, Disk = #disk{current = #{bytes := Position, events := Events}}) ->
    Max = halley_history_retention:segment_bytes_max(
        halley_limits:get(history_segment_bytes), bytes_max()),
    case Position + Bytes > Max andalso Events > 0 of
        true -> rotate(Disk);
        false -> {ok, Disk}
    end.

rotate(Disk) ->
    case sync(Disk) of
        {ok, Synced} -> begin_segment(Synced);
        Error -> Error
    end.

%% The old segment stays in use if the new one can't begin.
begin_segment(Disk = #disk{dir = Dir, store = Store, ledger = Ledger, next_number = Number,
                           highest = Highest,
                           current = #{number := Previous, bytes := PreviousBytes}}) ->
    Header = #{store => Store, number => Number, previous => Previous,
               previous_bytes => PreviousBytes, base => Highest,
               stamp => halley_history_clock:stamp()},
    case halley_history_segment:create(Dir, Header) of
        {ok, File} ->
            Left = leave(Disk),
            Position = halley_history_segment:header_bytes(),
            ok = halley_history_words:put(position, 0),
            ok = halley_history_words:put(segment, Number),
            ok = halley_history_words:put(position, Position),
            ok = halley_history_words:add(bytes, Position),
            ok = halley_history_ledger:synced(Ledger, Number, Position, Highest),
            {ok, Left#disk{file = File, current = new_segment(Number, Highest, Position),
                             next_number = Number + 1, placed = Position}};
        {error, Reason} ->
            {error, Reason, Disk#disk{next_number = Number + 1}}
    end.

%% --- durability ----------------------------------------------------------------------------------

-spec is_dirty(disk()) -> boolean().
is_dirty(#disk{dirty = Dirty}) -> Dirty.

%% Returns when all that was written is on disk.
-spec sync(disk()) -> {ok, disk()} | failure().
sync(Disk = #disk{dirty = false}) ->
    {ok, Disk};
sync(Disk = #disk{file = File}) ->
    case halley_history_segment:sync(File) of
        ok ->
            {ok, Disk#disk{dirty = false, noted = false, ids = []}};
        {error, Reason} ->
            lists:foreach(fun halley_history_index:forget_id/1, Disk#disk.ids),
            {error, Reason, (leave(Disk))#disk{ids = []}}
    end.

%% Notes what is on disk. Not a part of `sync/1', so that who waits for that doesn't wait for this.
-spec note(disk()) -> disk().
note(Disk = #disk{noted = false, dirty = false, ledger = Ledger, highest = Highest,
                  current = #{number := Number, bytes := Bytes}}) ->
    ok = halley_history_ledger:synced(Ledger, Number, Bytes, Highest),
    Disk#disk{noted = true};
note(Disk) ->
    Disk.

%% Events of these seqs are not in the files. Said by a record as soon as one can be written.
-spec lose(halley_history:range(), disk()) -> disk().
lose({_, To, _, _} = Range, Disk = #disk{lost = Lost, highest = Highest}) ->
    Ranges = halley_history_retention:merge(Range, halley_history_index:damaged()),
    ok = halley_history_index:set_damaged(Ranges),
    Disk#disk{lost = halley_history_retention:merge(Range, Lost), highest = max(To, Highest)}.

%% Whether an event could be written now. Leaves what it had to say of lost ranges.
-spec probe(disk()) -> {ok, disk()} | failure().
probe(Disk = #disk{file = none}) ->
    case begin_segment(Disk) of
        {ok, Begun} -> probe(Begun);
        Error -> Error
    end;
probe(Disk = #disk{file = File, current = Current = #{bytes := Position}}) ->
    {Records, Bytes, Placed} = prefix(Disk),
    End = Position + Bytes,
    case halley_history_segment:write(File, Position, [Records, <<0:(8 * ?PROBE_BYTES)>>]) of
        ok ->
            ok = halley_history_words:add(bytes, Bytes),
            ok = halley_history_words:put(position, End),
            Probed = Disk#disk{current = Current#{bytes := End}, lost = [], dirty = true,
                               placed = Placed},
            case sync(cut(Probed)) of
                {ok, Synced} -> renew(Synced);
                Error -> Error
            end;
        {error, Reason} ->
            {error, Reason, cut(Disk)}
    end.

%% Renews the reservation when half of it is used.
-spec renew(disk()) -> {ok, disk()} | failure().
renew(Disk) ->
    Counter = halley_history_words:get(counter),
    case halley_history_words:get(reserved) - Counter < ?RESERVED div 2 of
        true -> reserve(Disk, Counter);
        false -> {ok, Disk}
    end.

%% So many seqs at most are reserved beyond those that were drawn.
-spec reserved_step() -> pos_integer().
reserved_step() -> ?RESERVED.

reserve(Disk = #disk{store = Store, ledger = Ledger}, Counter) ->
    Reserved = Counter + ?RESERVED,
    case halley_history_ledger:reserve({Store, Reserved}, Ledger) of
        {ok, Renewed} ->
            ok = halley_history_words:put(reserved, Reserved),
            {ok, Disk#disk{ledger = Renewed}};
        {error, Reason} ->
            {error, Reason, Disk}
    end.

%% --- time ----------------------------------------------------------------------------------------

%% Leaves a segment that is old enough, drops those that are too old or too many, and syncs what
%% nobody waited for.
-spec tick(disk()) -> {ok, disk()} | failure().
tick(Disk) ->
    case leave_old(Disk) of
        {ok, Left} -> sync(drop(Left));
        {error, Reason, Left} -> {error, Reason, drop(Left)}
    end.

leave_old(Disk) ->
    case is_old(Disk) of
        true -> rotate(Disk);
        false -> {ok, Disk}
    end.

is_old(#disk{file = File, current = #{events := Events, began_ms := BeganMs}}) ->
    MaxMs = halley_history_retention:segment_ms_max(retention_ms()),
    File =/= none andalso Events > 0 andalso erlang:monotonic_time(millisecond) - BeganMs >= MaxMs.

%% Instead of `tick/1' while nothing can be written. The segment is left without one that follows,
%% for which there may be no room: retention can only delete what isn't written to.
-spec starve(disk()) -> disk().
starve(Disk) ->
    case is_old(Disk) of
        true -> drop(abandon(Disk));
        false -> drop(Disk)
    end.

%% Deletes what retention doesn't keep.
drop(Disk = #disk{segments = Segments, current = Current, file = File}) ->
    CurrentBytes = case File of none -> 0; _ -> map_get(bytes, Current) end,
    Rule = #{retention_ms => retention_ms(), bytes_max => bytes_max(),
             now_ms => erlang:monotonic_time(millisecond)},
    {Gone, Retained} = halley_history_retention:split(Segments, CurrentBytes, Rule),
    Rest = case File of
        none -> Retained ++ [new_segment(Disk#disk.next_number, Disk#disk.highest, 0)];
        _ -> Retained ++ [Current]
    end,
    ok = raise_floor(Gone, Rest),
    _ = [halley_history_segment:delete(Disk#disk.dir, N) || #{number := N} <- Gone],
    Disk#disk{segments = Retained}.

%% The floor is the base of the oldest segment: no record before it has a higher seq. It rises
%% before anything goes, so who misses something then sees why.
raise_floor(Gone, [#{base := Base, number := Number} | _] = Segments) ->
    Floor = max(Base, halley_history_words:get(floor)),
    ok = halley_history_words:put(floor, Floor),
    _ = [halley_history_words:put(floor_at, At) || #{last_at := At} <- Gone, At =/= none],
    ok = halley_history_words:put(oldest_segment, Number),
    Oldest = [At || #{first_at := At} <- Segments, At =/= none],
    ok = halley_history_words:put(oldest_at, hd(Oldest ++ [0])),
    ok = halley_history_words:add(events, -sum(events, Gone)),
    ok = halley_history_words:add(bytes, -sum(bytes, Gone)),
    Damaged = halley_history_index:damaged(),
    case halley_history_retention:above(Floor, Damaged) of
        Damaged -> ok;
        Above -> halley_history_index:set_damaged(Above)
    end,
    halley_history_index:drop_below(Floor).

retention_ms() -> application:get_env(halley, history_retention_ms, 600000).
bytes_max() -> application:get_env(halley, history_bytes, 4 bsl 30).

%% Syncs, and gives back what of the reservation isn't used.
-spec close(disk()) -> ok.
close(Disk) ->
    Synced = case sync(Disk) of {ok, Ok} -> Ok; {error, _, Failed} -> Failed end,
    Counter = halley_history_words:get(counter),
    ok = halley_history_words:put(reserved, Counter),
    _ = halley_history_ledger:reserve({Synced#disk.store, Counter}, Synced#disk.ledger),
    _ = note(Synced),
    ok = halley_history_ledger:close(Synced#disk.ledger),
    _ = leave(Synced),
    ok.
