%% The history's files as the log's process writes them: the segment that grows, those before it,
%% and the ledger.
%%
%% `write/3' writes records, `sync/1' makes all of them durable, `tick/1' does what is due by time.
%% A write for which a publisher waits goes through to the disk at once if everything before it is
%% there: that is one system call instead of two. A failure is returned, never thrown, and leaves a
%% usable state: the unwritten part is cut off, and after a failed sync a new segment begins,
%% because what the kernel still has of the old one can't be trusted.
%%
%% A file that was removed or moved accepts writes all the same. So before a group is answered, the
%% segment's name must still lead to the open file, and the folder must be the one that was opened.
%% Otherwise the failure is `data_dir_moved', until it is back.
%%
%% It keeps position and sizes in `halley_history_atomics' up to date. It knows no publishers and no
%% heads: `halley_history_log' does.
-module(halley_history_disk).

-export([open/1, write/3, sync/1, is_dirty/1, tick/1, starve/1, probe/1, lose/2, close/1]).
-export([renew/1, leaving/1, begin_anew/3]).
-export_type([disk/0, packed/0, failure/0]).

-include("halley_history.hrl").

-record(disk, {dir :: file:name_all(), store :: non_neg_integer(),
               ledger :: halley_history_ledger:ledger(),
               file = none :: none | halley_history_segment:output(),
               current :: halley_history_retention:segment(),
               next_number :: non_neg_integer(),
               %% Which directory and which file the names stood for; `none': there was none yet.
               home = none :: none | halley_data_dir:place(),
               place = none :: none | halley_data_dir:place(),
               spare = [] :: [non_neg_integer()],  % segments to delete once there is another
               segments = [] :: [halley_history_retention:segment()],
               highest = 0 :: non_neg_integer(),   % seq that was written, or lost
               placed = 0 :: non_neg_integer(),    % where the last place record is
               dirty = false :: boolean(),
               is_checked = true :: boolean(),     % that what was written is where it should be
               noted = true :: boolean(),          % that the last sync was done
               %% The wall's clock, and whether it was set since this segment began.
               watch :: halley_history_steps:watch(),
               stepped = false :: boolean(),
               ids = [] :: [pos_integer()],        % written since the last sync, id chosen
               %% Those of segments that are on disk, but weren't where they should be.
               elsewhere = [] :: [{halley_history_segment:number_(), halley_data_dir:place(),
                                   [pos_integer()]}],
               lost = [] :: [halley_history:range()],  % to be written as soon as it is possible
               telling = [] :: [halley_history:range()]}). % written, and not yet on disk
-opaque disk() :: #disk{}.
-type packed() :: #packed{}.
-type failure() :: {error, term(), disk()}.

%% So many seqs at most are reserved beyond those that were drawn.
-define(RESERVED, 4194304).
-define(PLACE_BYTES, 65536).
-define(PROBE_BYTES, 65536).
-define(STEPPED_MS_MIN, 2000).
%% More isn't copied into one binary, as a write through needs it.
-define(THROUGH_BYTES_MAX, 65536).

%% Recovers, sets the words, and begins a new segment. If that isn't possible now, what is there
%% can be read, nothing may be drawn, and `probe/1' is to be tried.
-spec open(file:name_all()) -> {ok, disk()} | failure() | {error, Line :: binary()}.
open(Dir) ->
    ok = clear(),
    case halley_history_recovery:recover(Dir, ?RESERVED) of
        {ok, Recovered} ->
            case begun_anew(begin_segment(recovered(Dir, Recovered))) of
                {ok, _} = Ok -> Ok;
                {error, Reason, Disk} ->
                    case halley_history_home:may_pass(Reason) of
                        true -> {error, Reason, Disk};
                        false -> unwritable(Dir, Reason)
                    end
            end;
        {error, Reason} ->
            unwritable(Dir, Reason)
    end.

clear() ->
    ok = halley_history_index:clear(),
    ok = halley_history_forgotten:clear(),
    halley_history_kept:clear().

unwritable(Dir, Reason) ->
    {error, unicode:characters_to_binary(
        io_lib:format("data.dir: the history cannot write in ~ts: ~ts",
                      [Dir, file:format_error(Reason)]))}.

recovered(Dir, #{ledger := Ledger, store := Store, counter := Counter, segments := Segments,
                 number := Number, highest := Highest, damaged := Damaged, lost := Lost,
                 spare := Spare, stamps := Stamps}) ->
    ok = halley_history_atomics:put(segments_store, Store),
    ok = halley_history_atomics:put(store, halley_history_epochs:open(Dir, Store)),
    ok = halley_history_atomics:put(counter, Counter),
    ok = halley_history_atomics:put(reserved, Counter),
    ok = halley_history_atomics:put(events, halley_history_floor:sum(events, Segments)),
    ok = halley_history_atomics:put(bytes, halley_history_floor:sum(bytes, Segments)),
    ok = halley_history_index:set_damaged(Damaged),
    #disk{dir = Dir, store = Store, ledger = Ledger, segments = Segments, next_number = Number,
          home = halley_history_home:find(Dir), current = halley_history_floor:last(Segments),
          highest = Highest, lost = Lost, spare = Spare,
          watch = halley_history_steps:start(Stamps)}.

%% Forgets everything, on disk as well, and begins as this store behind this seq. Segments are
%% numbered on, so no reader that has one open takes it for a new one. A brain that is killed
%% meanwhile may find some of the old ones.
-spec begin_anew(Store :: non_neg_integer(), Before :: non_neg_integer(), disk()) ->
    {ok, disk()} | failure().
begin_anew(Store, Before, Disk0) ->
    Disk = #disk{dir = Dir, segments = Segments, ledger = Ledger} = leave(Disk0),
    ok = halley_history_epochs:wipe(Dir),
    ok = halley_history_atomics:new(Before),
    _ = [ok = halley_history_atomics:put(Word, Store) || Word <- [segments_store, store]],
    ok = clear(),
    ok = halley_history_index:set_damaged([]),
    _ = [halley_history_segment:delete(Dir, N)
         || N <- Disk#disk.spare ++ [N || #{number := N} <- Segments]],
    Empty = Disk#disk{store = Store, ledger = halley_history_ledger:name(Store, Ledger),
                      current = halley_history_floor:last([]), segments = [], spare = [],
                      highest = Before, placed = 0, ids = [], elsewhere = [], lost = [],
                      telling = []},
    begun_anew(begin_segment(Empty)).

%% What the segment says is lost is on disk before the reservation, which is known from then on.
begun_anew({ok, Disk}) -> reserve(floored(Disk), halley_history_atomics:get(counter));
begun_anew({error, Reason, Disk}) -> {error, Reason, floored(Disk)}.

floored(Disk = #disk{segments = Segments}) ->
    ok = halley_history_floor:at_start(Segments ++ [newest(Disk)]),
    drop(Disk).

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
                              (told(Disk))#disk{placed = Placed, dirty = Dirty,
                                                is_checked = false}),
            {ok, Written#disk{noted = Dirty andalso Disk#disk.noted}};
        {error, Reason} ->
            IsSound = Dirty orelse Reason =:= enospc orelse Reason =:= edquot,
            {error, Reason, undo(Packed, IsSound, Disk)}
    end.

%% What failed is cut off, and that is synced. A record that is found again at the next start has a
%% seq behind cursors that never met it, and its publisher is told that it is known: where nobody
%% can say that it won't be, its seqs are lost. A segment is sound if there was no room; what else
%% failed on its way to the disk says nothing about what follows.
undo(Packed, IsSound, Disk = #disk{file = File, current = #{bytes := Position}}) ->
    case halley_history_segment:cut(File, Position) of
        ok ->
            case sync(Disk#disk{dirty = true}) of
                {ok, Synced} when IsSound -> Synced;
                {ok, Synced} -> leave(Synced);
                {error, _, Left} -> lose_new(Packed, Left)
            end;
        {error, _} ->
            lose_new(Packed, abandon(Disk))
    end.

%% A kept value that is written again with its own seq is in the files already.
lose_new(Packed, Disk = #disk{highest = Highest}) ->
    case [One || #packed{kind = Kind, seq = Seq} = One <- Packed,
                 Kind =/= kept orelse Seq > Highest] of
        [] -> Disk;
        New -> lose(halley_history_group:range(New), Disk)
    end.

told(Disk = #disk{lost = Lost, telling = Telling}) ->
    Disk#disk{lost = [], telling = Lost ++ Telling}.

record_bytes(Packed) -> lists:foldl(fun(#packed{bytes = Bytes}, Sum) -> Bytes + Sum end, 0, Packed).

%% What is due before the records: ranges that could not be written, and how far seqs have come.
prefix(Disk = #disk{store = Store, highest = Highest, placed = Placed,
                    current = #{bytes := Position}}) ->
    {Lost, LostBytes} = halley_history_record:lost(Store, Disk#disk.lost),
    case Position - Placed >= ?PLACE_BYTES of
        true ->
            {Place, Bytes} = halley_history_record:place(Store, Highest,
                                                         halley_clock:wall_ms()),
            {[Lost, Place], LostBytes + Bytes, Position};
        false ->
            {Lost, LostBytes, Placed}
    end.

%% Readers look no further than the written position: it is there before the first entry is.
written(Packed, Position, Disk = #disk{current = Current, ids = Ids, segments = Segments}) ->
    #{number := Number, bytes := Begin, events := Events, first_at := FirstAt} = Current,
    End = Position + record_bytes(Packed),
    ok = halley_history_atomics:put(position, End),
    NewIds = halley_history_index:written(Packed, Number, Position),
    First = case FirstAt of none -> (hd(Packed))#packed.at; _ -> FirstAt end,
    ok = halley_history_floor:grown(length(Packed), End - Begin),
    ok = halley_history_floor:first_at(First, [Current | Segments]),
    Grown = Current#{bytes := End, events := Events + length(Packed), first_at := First,
                     last_at := (lists:last(Packed))#packed.at,
                     ended_ms := erlang:monotonic_time(millisecond)},
    Highest = lists:max([Disk#disk.highest | [Seq || #packed{seq = Seq} <- Packed]]),
    Disk#disk{current = Grown, highest = Highest, ids = NewIds ++ Ids}.

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
    Disk#disk{file = none, dirty = false, noted = true, is_checked = true,
              segments = Segments ++ [Current]}.

%% --- segments ------------------------------------------------------------------------------------

make_room(_, Disk = #disk{file = none}) ->
    begin_segment(Disk);
make_room(Bytes, Disk = #disk{current = #{bytes := Position, events := Events}}) ->
    case Position + Bytes > halley_history_floor:segment_bytes_max() andalso Events > 0 of
        true -> rotate(Disk);
        false -> {ok, Disk}
    end.

rotate(Disk) ->
    case sync(Disk) of
        {ok, Synced} -> begin_segment(Synced);
        Error -> Error
    end.

%% The old segment stays in use if the new one can't begin.
begin_segment(Disk = #disk{dir = Dir, store = Store, next_number = Number, highest = Highest,
                           current = #{number := Previous, bytes := PreviousBytes}}) ->
    Header = #{store => Store, number => Number, previous => Previous,
               previous_bytes => PreviousBytes, base => Highest,
               stamp => halley_history_clock:stamp()},
    {Lost, LostBytes} = halley_history_record:lost(Store, Disk#disk.lost),
    case halley_history_home:make(Dir, Disk#disk.home) of
        {ok, Home} ->
            case halley_history_segment:create(Dir, Header, Lost) of
                {ok, File, Place} ->
                    Position = halley_history_segment:header_bytes() + LostBytes,
                    Left = leave(Disk),
                    Begun = found(Left#disk{file = File, place = Place, home = Home}),
                    {ok, begun(Position, Begun)};
                {error, Reason} ->
                    {error, Reason, Disk#disk{next_number = Number + 1}}
            end;
        {error, Reason} ->
            {error, Reason, Disk}
    end.

begun(Position, Disk = #disk{dir = Dir, ledger = Ledger, next_number = Number, spare = Spare,
                             highest = Highest}) ->
    ok = halley_history_atomics:put(position, 0),
    ok = halley_history_atomics:put(segment, Number),
    ok = halley_history_atomics:put(position, Position),
    ok = halley_history_atomics:add(bytes, Position),
    Noted = halley_history_ledger:synced(Ledger, Number, Position, Highest),
    _ = [halley_history_segment:delete(Dir, N) || N <- Spare],
    Disk#disk{current = halley_history_floor:segment(Number, Highest, Position), lost = [],
              stepped = false,
              next_number = Number + 1, placed = Position, spare = [], ledger = Noted}.

%% --- durability ----------------------------------------------------------------------------------

-spec is_dirty(disk()) -> boolean().
is_dirty(#disk{dirty = Dirty}) -> Dirty.

%% Returns when all that was written is on disk, and where it can be found.
-spec sync(disk()) -> {ok, disk()} | failure().
sync(Disk = #disk{dirty = false, is_checked = true}) -> {ok, Disk};
sync(Disk = #disk{dirty = false}) -> check(Disk);
sync(Disk = #disk{file = File}) ->
    case halley_history_segment:sync(File) of
        ok -> check(Disk#disk{dirty = false, noted = false});
        {error, Reason} -> unsound(Reason, Disk)
    end.

check(Disk = #disk{file = none}) ->
    {ok, Disk#disk{ids = [], telling = []}};
check(Disk = #disk{dir = Dir, place = Place, current = #{number := Number}}) ->
    case halley_history_home:check(Dir, Number, Place) of
        ok -> {ok, Disk#disk{is_checked = true, ids = [], telling = []}};
        {error, Reason} -> unsound(Reason, Disk)
    end.

%% Chosen ids of these events may be published again, and lost ranges are written down again.
unsound(Reason, Disk0 = #disk{telling = Telling, current = #{number := Number}}) ->
    Disk = uncertain(Reason, Disk0),
    ok = halley_history_kept:doubt(Number),
    Lost = lists:foldl(fun halley_history_retention:merge/2, Disk#disk.lost, Telling),
    {error, Reason, (leave(Disk))#disk{ids = [], lost = Lost, telling = []}}.

%% Nothing is written until the folder is back, and then its files are as they were. So these ids
%% stay known: published again, such an event would be in the history twice.
uncertain(data_dir_moved, Disk = #disk{ids = [_ | _] = Ids, place = Place, elsewhere = Elsewhere,
                                       current = #{number := Number}}) ->
    Disk#disk{elsewhere = [{Number, Place, Ids} | Elsewhere]};
uncertain(_, Disk = #disk{ids = Ids}) ->
    lists:foreach(fun halley_history_index:forget_id/1, Ids),
    Disk.

%% The folder is the one that it was. Ids of a segment that isn't in it are free; of one that can't
%% be looked at nothing is known before the next segment.
found(Disk = #disk{dir = Dir, elsewhere = Elsewhere}) ->
    Looked = [{halley_history_home:check(Dir, Number, Place), Segment}
              || {Number, Place, _} = Segment <- Elsewhere],
    _ = [halley_history_index:forget_id(Seq)
         || {{error, data_dir_moved}, {_, _, Ids}} <- Looked, Seq <- Ids],
    Disk#disk{elsewhere = [Segment || {{error, Reason}, Segment} <- Looked,
                                      Reason =/= data_dir_moved]}.

%% Notes what is on disk. With the tick, not with each sync: it would be one more write for each.
note(Disk = #disk{noted = false, dirty = false, ledger = Ledger, highest = Highest,
                  current = #{number := Number, bytes := Bytes}}) ->
    Noted = halley_history_ledger:synced(Ledger, Number, Bytes, Highest),
    Disk#disk{noted = true, ledger = Noted};
note(Disk) -> Disk.

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
            ok = halley_history_atomics:add(bytes, Bytes),
            ok = halley_history_atomics:put(position, End),
            Probed = (told(Disk))#disk{current = Current#{bytes := End}, dirty = true,
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
    Counter = halley_history_atomics:get(counter),
    case halley_history_atomics:get(reserved) - Counter < ?RESERVED div 2 of
        true -> reserve(Disk, Counter);
        false -> {ok, Disk}
    end.

reserve(Disk = #disk{store = Store, ledger = Ledger}, Counter) ->
    Reserved = Counter + ?RESERVED,
    case halley_history_ledger:reserve({Store, Reserved}, Ledger) of
        {ok, Renewed} ->
            ok = halley_history_atomics:put(reserved, Reserved),
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
        {ok, Left} -> ticked(sync(drop(Left)));
        {error, Reason, Left} -> {error, Reason, drop(Left)}
    end.

%% Nobody is to be answered first to learn that the folder is gone.
ticked({ok, Synced}) ->
    case check(Synced) of
        {ok, Disk} ->
            #disk{ledger = Ledger} = Noted = note(Disk),
            {ok, Noted#disk{ledger = halley_history_ledger:settle(Ledger)}};
        Error -> Error
    end;
ticked(Error) ->
    Error.

leave_old(Disk0) ->
    Disk = looked(Disk0),
    case is_old(Disk) of
        true -> rotate(Disk);
        false -> {ok, Disk}
    end.

looked(Disk = #disk{watch = Before, stepped = WasStepped}) ->
    {What, Watch} = halley_history_steps:look(halley_history_atomics:get(counter), Before),
    Disk#disk{watch = Watch, stepped = WasStepped orelse What =:= stepped}.

%% A segment's stamp tells the next start of a step of the clock, so one begins behind each; but a
%% clock that is set without end doesn't fill the folder.
is_old(#disk{file = File, current = #{events := Events, began_ms := BeganMs}, stepped = Stepped}) ->
    AgeMs = erlang:monotonic_time(millisecond) - BeganMs,
    File =/= none
        andalso (Events > 0 andalso AgeMs >= halley_history_floor:segment_ms_max()
                 orelse Stepped andalso AgeMs >= ?STEPPED_MS_MIN).

%% Instead of `tick/1' while nothing can be written. The segment is left without one that follows,
%% for which there may be no room: retention can only delete what isn't written to.
-spec starve(disk()) -> disk().
starve(Disk0) ->
    Disk = looked(Disk0),
    case is_old(Disk) of
        true -> drop(abandon(Disk));
        false -> drop(Disk)
    end.

%% Deletes what retention doesn't keep.
drop(Disk) ->
    {Due, Newer} = due(Disk),
    {Gone, Needed} = lists:splitwith(fun(#{number := N}) -> halley_history_kept:is_free(N) end,
                                     Due),
    Retained = Needed ++ Newer,
    ok = halley_history_floor:raise(Gone, Retained ++ [newest(Disk)]),
    _ = [halley_history_segment:delete(Disk#disk.dir, N) || #{number := N} <- Gone],
    Disk#disk{segments = Retained}.

due(#disk{segments = Segments, current = Current, file = File}) ->
    CurrentBytes = case File of none -> 0; _ -> map_get(bytes, Current) end,
    halley_history_floor:split(Segments, CurrentBytes).

%% The segment up to which kept values are to be written again: the last that is due, or the oldest
%% before it is, so that it can go when there is no room for anything; 0 if there is none.
-spec leaving(disk()) -> non_neg_integer().
leaving(#disk{segments = []}) ->
    0;
leaving(#disk{segments = [#{number := Oldest} | _]} = Disk) ->
    case due(Disk) of
        {[], _} -> Oldest;
        {Due, _} -> map_get(number, lists:last(Due))
    end.

%% What stands for the next segment where there is none to write to.
newest(#disk{file = none, next_number = Number, highest = Highest}) ->
    halley_history_floor:segment(Number, Highest, 0);
newest(#disk{current = Current}) ->
    Current.

%% Syncs, and gives back what of the reservation isn't used. If it isn't sure that all is noted that
%% must be, it ends as if it were killed.
-spec close(disk()) -> ok.
close(Disk) ->
    Left = case sync(Disk) of
        {ok, Synced = #disk{file = File, lost = []}} when File =/= none -> give_back(note(Synced));
        {ok, Synced} -> Synced;
        {error, _, Failed} -> Failed
    end,
    halley_history_atomics:put(reserved, halley_history_atomics:get(counter)),
    ok = halley_history_ledger:close(Left#disk.ledger),
    _ = leave(Left),
    ok.

give_back(Disk = #disk{store = Store, ledger = Ledger}) ->
    case halley_history_ledger:reserve({Store, halley_history_atomics:get(counter)}, Ledger) of
        {ok, Reserved} -> Disk#disk{ledger = Reserved};
        {error, _} -> Disk
    end.
