%% The state of the history besides its records: two small files, and a note outside.
%%
%% `store'     the store's id and the reservation: no seq above it was ever drawn. Two slots,
%%             written in turn and synced, so a torn write costs one of them and never both.
%% `synced'    up to where the newest segment was on disk when the log last said so. Written four
%%             times a second and never synced itself: it need only survive the brain. A file that
%%             is shorter than it says has lost acknowledged events. If the machine went down the
%%             note may be old, or torn and so unusable; it never claims too much.
%% the position (`halley_position') says both of them again, outside of the history's folder: only
%%             it can show that the folder, or `store' alone, is an older copy. The reservation is
%%             raised there before it is raised in `store'.
%%
%% If the disk can't be written it is opened for reading, and for writing once a write is requested
%% and possible.
%%
%%   slot      "HALLEYST" version:16 generation:64 store:32 reserved:64 crc:32
%%   synced    "HALLEYSY" store:32 segment:32 position:64 highest:64 stamp crc:32
%%   position  store:32 segment:32 position:64 highest:64 reserved:64
-module(halley_history_ledger).

-export([open/1, name/2, read/2, reserve/2, synced/4, settle/1, close/1]).
-export([last_synced/2, last_position/0]).
-export_type([ledger/0, note/0]).

-record(ledger, {dir :: file:name_all(),
                 store_file :: opened(), synced_file :: opened(),
                 store = 0 :: non_neg_integer(), generation = 0 :: non_neg_integer(),
                 reserved = 0 :: non_neg_integer(),
                 %% Segment, position and highest seq, as they are to be noted outside.
                 noted = {0, 0, 0} :: {non_neg_integer(), non_neg_integer(), non_neg_integer()},
                 is_settled = true :: boolean(),     % that they are
                 settled_ms = 0 :: integer()}).      % monotonic
-opaque ledger() :: #ledger{}.
-type opened() :: {writable, file:fd()} | {unwritable, Reason :: term(), none | file:fd()}.
-type note() :: #{segment := non_neg_integer(), position := non_neg_integer(),
                  highest := non_neg_integer(), stamp => halley_history_clock:stamp(),
                  store => non_neg_integer(), reserved => non_neg_integer()}.

-define(STORE_MAGIC, "HALLEYST").
-define(SYNCED_MAGIC, "HALLEYSY").
-define(VERSION, 1).
-define(SLOT_BYTES, 34).
%% Apart, so that no disk tears both with one write.
-define(SLOT_DISTANCE, 4096).
-define(SYNCED_BYTES, 56).
%% A lone publisher has each event synced by itself: not all of them are noted outside at once.
-define(SETTLE_MS, 50).

%% What isn't there and can't be made is as if it were empty.
-spec open(file:name_all()) -> {ok, ledger()} | {error, term()}.
open(Dir) ->
    case {open_file(Dir, "store"), open_file(Dir, "synced")} of
        {{ok, StoreFile}, {ok, SyncedFile}} ->
            {ok, #ledger{dir = Dir, store_file = StoreFile, synced_file = SyncedFile}};
        {{error, _} = Error, {ok, SyncedFile}} -> close_file(SyncedFile), Error;
        {{ok, StoreFile}, {error, _} = Error} -> close_file(StoreFile), Error;
        {Error, _} -> Error
    end.

open_file(Dir, Name) ->
    Path = filename:join(Dir, Name),
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            _ = halley_data_dir:make_private(Path),
            {ok, {writable, File}};
        {error, Reason} = Error ->
            case halley_history_home:may_pass(Reason) of
                true -> {ok, {unwritable, Reason, open_to_read(Path)}};
                false -> Error
            end
    end.

open_to_read(Path) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} -> File;
        {error, _} -> none
    end.

-spec close(ledger()) -> ok.
close(#ledger{store_file = StoreFile, synced_file = SyncedFile}) ->
    close_file(StoreFile),
    close_file(SyncedFile).

close_file({unwritable, _, none}) -> ok;
close_file({unwritable, _, File}) -> close_file({writable, File});
close_file({writable, File}) ->
    _ = file:close(File),
    ok.

pread({unwritable, _, none}, _, _) -> eof;
pread({unwritable, _, File}, Position, Bytes) -> file:pread(File, Position, Bytes);
pread({writable, File}, Position, Bytes) -> file:pread(File, Position, Bytes).

%% Says whose files these are, before the first note.
-spec name(Store :: non_neg_integer(), ledger()) -> ledger().
name(Store, Ledger) -> Ledger#ledger{store = Store}.

%% The store's id and reservation, from the newer good slot. If the other slot isn't good it may
%% have been the newer one: it reserved at most `Step' more than this one.
-spec read(ledger(), Step :: pos_integer()) ->
    {ok, Store :: non_neg_integer(), Reserved :: non_neg_integer(), ledger()} | none.
read(Ledger = #ledger{store_file = File}, Step) ->
    Slots = [slot(pread(File, Slot * ?SLOT_DISTANCE, ?SLOT_BYTES)) || Slot <- [0, 1]],
    case lists:sort([Slot || Slot <- Slots, Slot =/= none]) of
        [_, {Generation, Store, Reserved}] ->
            {ok, Store, Reserved, Ledger#ledger{store = Store, generation = Generation}};
        [{Generation, Store, Reserved}] ->
            {ok, Store, Reserved + Step,
             Ledger#ledger{store = Store, generation = Generation + 2}};
        [] ->
            none
    end.

slot({ok, <<?STORE_MAGIC, ?VERSION:16, Generation:64, Store:32, Reserved:64, Crc:32>> = Bytes}) ->
    case erlang:crc32(binary_part(Bytes, 0, ?SLOT_BYTES - 4)) of
        Crc -> {Generation, Store, Reserved};
        _ -> none
    end;
slot(_) ->
    none.

%% Writes the reservation and returns when it is on disk.
-spec reserve({Store :: non_neg_integer(), Reserved :: non_neg_integer()}, ledger()) ->
    {ok, ledger()} | {error, term()}.
reserve({Store, Reserved}, Ledger0) ->
    case writable(Ledger0) of
        {ok, Ledger = #ledger{store_file = {_, File}, generation = Generation0}} ->
            Generation = Generation0 + 1,
            Next = settled(Ledger#ledger{store = Store, generation = Generation,
                                         reserved = Reserved}),
            Fields = <<?STORE_MAGIC, ?VERSION:16, Generation:64, Store:32, Reserved:64>>,
            Slot = [Fields, <<(erlang:crc32(Fields)):32>>],
            case file:pwrite(File, Generation rem 2 * ?SLOT_DISTANCE, Slot) of
                ok -> reserved(file:datasync(File), Next);
                Error -> Error
            end;
        Error -> Error
    end.

reserved(ok, Ledger) -> {ok, Ledger};
reserved(Error, _) -> Error.

writable(Ledger = #ledger{store_file = {writable, _}, synced_file = {writable, _}}) ->
    {ok, Ledger};
writable(Ledger = #ledger{dir = Dir}) ->
    case open(Dir) of
        {ok, #ledger{store_file = {writable, _} = StoreFile,
                     synced_file = {writable, _} = SyncedFile}} ->
            ok = close(Ledger),
            %% The names of the files may be new.
            _ = halley_data_dir:sync_directory(Dir),
            {ok, Ledger#ledger{store_file = StoreFile, synced_file = SyncedFile}};
        {ok, Unwritable} ->
            ok = close(Unwritable),
            {error, hd([Reason || {unwritable, Reason, _} <- [Unwritable#ledger.store_file,
                                                              Unwritable#ledger.synced_file]])};
        Error -> Error
    end.

%% Notes that a segment is on disk up to a position. If the note can't be written, that isn't
%% reported: the note is only needed to find lost events after a crash.
-spec synced(ledger(), non_neg_integer(), non_neg_integer(), Highest :: non_neg_integer()) ->
    ledger().
synced(Ledger = #ledger{synced_file = Opened, store = Store, settled_ms = SettledMs},
       Segment, Position, Highest) ->
    Stamp = halley_history_clock:pack(halley_history_clock:stamp()),
    Fields = <<?SYNCED_MAGIC, Store:32, Segment:32, Position:64, Highest:64, Stamp/binary>>,
    _ = case Opened of
        {writable, File} -> file:pwrite(File, 0, <<Fields/binary, (erlang:crc32(Fields)):32>>);
        _ -> ok
    end,
    Noted = Ledger#ledger{noted = {Segment, Position, Highest}, is_settled = false},
    case erlang:monotonic_time(millisecond) - SettledMs >= ?SETTLE_MS of
        true -> settled(Noted);
        false -> Noted
    end.

%% Notes outside what isn't noted there yet. For a timer.
-spec settle(ledger()) -> ledger().
settle(Ledger = #ledger{is_settled = true}) -> Ledger;
settle(Ledger) -> settled(Ledger).

%% Before there is a reservation nothing was drawn, so there is nothing to note.
settled(Ledger = #ledger{reserved = 0}) ->
    Ledger;
settled(Ledger = #ledger{store = Store, reserved = Reserved, noted = Noted}) ->
    {Segment, Position, Highest} = Noted,
    ok = halley_position:write(history, <<Store:32, Segment:32, Position:64, Highest:64,
                                          Reserved:64>>),
    Ledger#ledger{is_settled = true, settled_ms = erlang:monotonic_time(millisecond)}.

-spec last_position() -> note() | none.
last_position() ->
    case halley_position:read(history) of
        {ok, <<Store:32, Segment:32, Position:64, Highest:64, Reserved:64>>} ->
            #{store => Store, segment => Segment, position => Position, highest => Highest,
              reserved => Reserved};
        _ -> none
    end.

-spec last_synced(ledger(), Store :: non_neg_integer()) -> note() | none.
last_synced(#ledger{synced_file = File}, Store) ->
    case pread(File, 0, ?SYNCED_BYTES) of
        {ok, <<?SYNCED_MAGIC, Store:32, Segment:32, Position:64, Highest:64, Stamp:20/binary,
               Crc:32>> = Bytes} ->
            case erlang:crc32(binary_part(Bytes, 0, ?SYNCED_BYTES - 4)) of
                Crc -> #{segment => Segment, position => Position, highest => Highest,
                         stamp => halley_history_clock:unpack(Stamp)};
                _ -> none
            end;
        _ ->
            none
    end.
