%% What the history must know of itself beside its records, in two small files.
%%
%% `store'   the store's id and the reservation: no seq above it was ever drawn. Two slots, written
%%           in turn and synced, so a torn write costs one of them and never both.
%% `synced'  up to where the newest segment was on disk when the log last said so. Written after
%%           each sync and never synced itself: it survives the brain, and that is what it is for.
%%           A file that is shorter than it says lost what was acknowledged. If the machine went
%%           down the note may be old, or torn and then none; it never claims too much.
%%
%%   slot    "HALLEYST" version:16 generation:64 store:32 reserved:64 crc:32
%%   synced  "HALLEYSY" store:32 segment:32 position:64 highest:64 stamp crc:32
-module(halley_history_ledger).

-export([open/1, read/2, reserve/2, synced/4, last_synced/2, close/1]).
-export_type([ledger/0, note/0]).

-record(ledger, {store_file :: file:fd(), synced_file :: file:fd(),
                 store = 0 :: non_neg_integer(), generation = 0 :: non_neg_integer()}).
-opaque ledger() :: #ledger{}.
-type note() :: #{segment := non_neg_integer(), position := non_neg_integer(),
                  highest := non_neg_integer(), stamp := halley_history_clock:stamp()}.

-define(STORE_MAGIC, "HALLEYST").
-define(SYNCED_MAGIC, "HALLEYSY").
-define(VERSION, 1).
-define(SLOT_BYTES, 34).
%% Apart, so that no disk tears both with one write.
-define(SLOT_DISTANCE, 4096).
-define(SYNCED_BYTES, 56).

-spec open(file:name_all()) -> {ok, ledger()} | {error, term()}.
open(Dir) ->
    case open_file(Dir, "store") of
        {ok, StoreFile} ->
            case open_file(Dir, "synced") of
                {ok, SyncedFile} ->
                    {ok, #ledger{store_file = StoreFile, synced_file = SyncedFile}};
                Error ->
                    _ = file:close(StoreFile),
                    Error
            end;
        Error -> Error
    end.

open_file(Dir, Name) -> file:open(filename:join(Dir, Name), [read, write, raw, binary]).

-spec close(ledger()) -> ok.
close(#ledger{store_file = StoreFile, synced_file = SyncedFile}) ->
    _ = file:close(StoreFile),
    _ = file:close(SyncedFile),
    ok.

%% The store's id and reservation, from the newer good slot. If the other slot isn't good it may
%% have been the newer one: it reserved at most `Step' more than this one.
-spec read(ledger(), Step :: pos_integer()) ->
    {ok, Store :: non_neg_integer(), Reserved :: non_neg_integer(), ledger()} | none.
read(Ledger = #ledger{store_file = File}, Step) ->
    Slots = [slot(file:pread(File, Slot * ?SLOT_DISTANCE, ?SLOT_BYTES)) || Slot <- [0, 1]],
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
reserve({Store, Reserved}, Ledger = #ledger{store_file = File, generation = Generation0}) ->
    Generation = Generation0 + 1,
    Fields = <<?STORE_MAGIC, ?VERSION:16, Generation:64, Store:32, Reserved:64>>,
    Slot = [Fields, <<(erlang:crc32(Fields)):32>>],
    case file:pwrite(File, Generation rem 2 * ?SLOT_DISTANCE, Slot) of
        ok ->
            case file:datasync(File) of
                ok -> {ok, Ledger#ledger{store = Store, generation = Generation}};
                Error -> Error
            end;
        Error -> Error
    end.

%% Notes that a segment is on disk up to a position. A note that can't be written is missed only
%% by who comes to look for lost events, so nobody is told.
-spec synced(ledger(), non_neg_integer(), non_neg_integer(), Highest :: non_neg_integer()) -> ok.
synced(#ledger{synced_file = File, store = Store}, Segment, Position, Highest) ->
    Stamp = halley_history_clock:pack(halley_history_clock:stamp()),
    Fields = <<?SYNCED_MAGIC, Store:32, Segment:32, Position:64, Highest:64, Stamp/binary>>,
    _ = file:pwrite(File, 0, <<Fields/binary, (erlang:crc32(Fields)):32>>),
    ok.

-spec last_synced(ledger(), Store :: non_neg_integer()) -> note() | none.
last_synced(#ledger{synced_file = File}, Store) ->
    case file:pread(File, 0, ?SYNCED_BYTES) of
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
