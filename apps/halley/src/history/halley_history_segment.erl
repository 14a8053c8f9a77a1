%% The files of the history's records: `<number>.log', sixteen hex digits. Each begins with a header
%%
%%   "HALLEYLG" version:16 0:16 store:32 number:32 previous:32 previous_bytes:64 base:64 stamp
%%   crc:32
%%
%% and goes on with records (`halley_history_record'). `previous' and `previous_bytes' name the
%% segment before and its length when it was left, so what is missing in between shows. `base' is
%% the highest seq that had been written when the segment began.
%%
%% A segment is written by one process and read by any number of others through descriptors of
%% their own. The writer has two: what goes through the second is on disk when the call returns, at
%% half the price of a write and a sync. Nothing here is cached, and nothing is decided: `scan/4'
%% tells what it finds.
-module(halley_history_segment).

-export([list/1, path/2, create/3, write/3, write_through/3, sync/1, cut/2, close/1]).
-export([truncate/3, delete/2]).
-export([open/2, read/3, read_header/2, header_bytes/0, scan/4]).
-export_type([number_/0, header/0, found/0, descriptor/0, output/0]).

-type number_() :: 0..16#FFFFFFFF.
-type descriptor() :: file:fd().
%% A segment that is written to: the second descriptor writes through to the disk.
-type output() :: {descriptor(), descriptor()}.
-type header() :: #{store := non_neg_integer(), number := number_(), previous := number_(),
                    previous_bytes := non_neg_integer(), base := non_neg_integer(),
                    stamp := halley_history_clock:stamp()}.
%% What a scan meets, in the order of the file. A damaged range has a good record, or the file's
%% end, behind it.
-type found() :: {header, header()}
               | {record, Offset :: non_neg_integer(), halley_history_record:record()}
               | {damaged, From :: non_neg_integer(), To :: non_neg_integer()}
               | {torn, From :: non_neg_integer(), To :: non_neg_integer()}.

-define(MAGIC, "HALLEYLG").
-define(VERSION, 1).
-define(HEADER_BYTES, 64).
-define(SCAN_BYTES, 1048576).
%% Places where a record could begin but none does; with more of them the rest isn't searched.
-define(CANDIDATES_MAX, 10000).

-spec path(file:name_all(), number_()) -> file:name_all().
path(Dir, Number) ->
    filename:join(Dir, io_lib:format("~16.16.0b.log", [Number])).

%% The numbers of the segments in a directory, ascending; none if there is no directory.
-spec list(file:name_all()) -> {ok, [number_()]} | {error, file:posix()}.
list(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} ->
            Numbers = [catch list_to_integer(Digits, 16)
                       || Name <- Names, length(Name) =:= 20,
                          {Digits, ".log"} <- [lists:split(16, Name)]],
            {ok, lists:sort([N || N <- Numbers, is_integer(N), N >= 0, N =< 16#FFFFFFFF])};
        {error, enoent} -> {ok, []};
        Error -> Error
    end.

%% A new segment with its header and its first records, all on disk.
-spec create(file:name_all(), header(), Records :: iodata()) ->
    {ok, output(), halley_data_dir:place()} | {error, term()}.
create(Dir, Header = #{number := Number}, Records) ->
    case file:open(path(Dir, Number), [read, write, raw, binary, exclusive]) of
        {ok, File} ->
            case begin_file(Dir, File, Number, [encode_header(Header), Records]) of
                {ok, Through, Place} -> {ok, {File, Through}, Place};
                Error ->
                    close(File),
                    _ = delete(Dir, Number),
                    Error
            end;
        Error -> Error
    end.

begin_file(Dir, File, Number, Bytes) ->
    Path = path(Dir, Number),
    Steps = [fun() -> halley_data_dir:make_private(Path) end,
             fun() -> file:pwrite(File, 0, Bytes) end,
             fun() -> file:datasync(File) end,
             fun() -> halley_data_dir:sync_directory(Dir) end],
    case {halley_steps:run(Steps), halley_data_dir:place(Path)} of
        {ok, {ok, Place}} -> opened(file:open(Path, [read, write, raw, binary, sync]), Place);
        {ok, Error} -> Error;
        {Error, _} -> Error
    end.

opened({ok, Through}, Place) -> {ok, Through, Place};
opened(Error, _) -> Error.

-spec write(output(), Position :: non_neg_integer(), iodata()) -> ok | {error, term()}.
write({File, _}, Position, Bytes) -> file:pwrite(File, Position, Bytes).

%% Returns when these bytes are on disk. What `write/3' wrote before isn't by that. One binary: of
%% many pieces each thousand would be synced by itself.
-spec write_through(output(), Position :: non_neg_integer(), iodata()) -> ok | {error, term()}.
write_through({_, Through}, Position, Bytes) ->
    file:pwrite(Through, Position, iolist_to_binary(Bytes)).

-spec sync(output()) -> ok | {error, term()}.
sync({File, _}) -> file:datasync(File).

%% Ends the file at a position.
-spec cut(output(), non_neg_integer()) -> ok | {error, term()}.
cut({File, _}, Position) -> cut_file(File, Position).

cut_file(File, Position) ->
    case file:position(File, Position) of
        {ok, _} -> file:truncate(File);
        Error -> Error
    end.

-spec close(descriptor() | output()) -> ok.
close({File, Through}) ->
    close(Through),
    close(File);
close(File) ->
    _ = file:close(File),
    ok.

%% The same for a file that isn't open.
-spec truncate(file:name_all(), number_(), non_neg_integer()) -> ok | {error, term()}.
truncate(Dir, Number, Position) ->
    case file:open(path(Dir, Number), [read, write, raw, binary]) of
        {ok, File} ->
            Result = cut_file(File, Position),
            close(File),
            Result;
        Error -> Error
    end.

-spec delete(file:name_all(), number_()) -> ok | {error, term()}.
delete(Dir, Number) -> file:delete(path(Dir, Number), [raw]).

%% For a reader.
-spec open(file:name_all(), number_()) -> {ok, descriptor()} | {error, term()}.
open(Dir, Number) -> file:open(path(Dir, Number), [read, raw, binary]).

-spec read(descriptor(), non_neg_integer(), non_neg_integer()) ->
    {ok, binary()} | eof | {error, term()}.
read(File, Position, Bytes) -> file:pread(File, Position, Bytes).

%% `none': no segment, or its header is damaged.
-spec read_header(file:name_all(), number_()) -> {ok, header()} | none.
read_header(Dir, Number) ->
    case open(Dir, Number) of
        {ok, File} ->
            Read = read(File, 0, ?HEADER_BYTES),
            close(File),
            case Read of
                {ok, Bytes} -> decode_header(Bytes);
                _ -> none
            end;
        _ -> none
    end.

-spec header_bytes() -> pos_integer().
header_bytes() -> ?HEADER_BYTES.

encode_header(#{store := Store, number := Number, previous := Previous,
                previous_bytes := PreviousBytes, base := Base, stamp := Stamp}) ->
    Fields = <<?MAGIC, ?VERSION:16, 0:16, Store:32, Number:32, Previous:32, PreviousBytes:64,
               Base:64, (halley_history_clock:pack(Stamp))/binary>>,
    <<Fields/binary, (erlang:crc32(Fields)):32>>.

decode_header(<<?MAGIC, ?VERSION:16, 0:16, Store:32, Number:32, Previous:32, PreviousBytes:64,
                Base:64, Stamp:20/binary, Crc:32, _/binary>> = Bytes) ->
    case erlang:crc32(binary_part(Bytes, 0, ?HEADER_BYTES - 4)) of
        Crc ->
            {ok, #{store => Store, number => Number, previous => Previous,
                   previous_bytes => PreviousBytes, base => Base,
                   stamp => halley_history_clock:unpack(Stamp)}};
        _ -> none
    end;
decode_header(_) ->
    none.

%% --- scan ----------------------------------------------------------------------------------------

-record(scan, {file :: descriptor(), store :: non_neg_integer(),
               function :: fun((found(), Acc) -> Acc), eof = false :: boolean(),
               candidates = 0 :: non_neg_integer()}).

%% Folds over a whole segment. Gives where its last good record ends.
-spec scan(file:name_all(), Store :: non_neg_integer(), fun((found(), Acc) -> Acc), Acc) ->
    {ok, End :: non_neg_integer(), Acc} | {error, term()}.
scan(Path, Store, Function, Acc) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            try
                {Scan, Bytes} = fill(#scan{file = File, store = Store, function = Function},
                                     <<>>, 0, ?SCAN_BYTES),
                header(Scan, Bytes, Acc)
            catch
                throw:{error, _} = Error -> Error
            after
                close(File)
            end;
        Error -> Error
    end.

header(Scan = #scan{store = Store}, Bytes, Acc) when byte_size(Bytes) >= ?HEADER_BYTES ->
    <<_:?HEADER_BYTES/binary, Rest/binary>> = Bytes,
    case decode_header(Bytes) of
        {ok, #{store := Store} = Header} ->
            Acc1 = (Scan#scan.function)({header, Header}, Acc),
            records(Scan, Rest, ?HEADER_BYTES, Acc1);
        _ ->
            search(Scan, Rest, ?HEADER_BYTES, 0, Acc)
    end;
header(Scan, Bytes, Acc) ->
    end_of_file(Scan, 0, byte_size(Bytes), Acc).

records(Scan, Bytes, Offset, Acc) ->
    case halley_history_record:decode(Scan#scan.store, Bytes) of
        {ok, Body, Size} ->
            record(Scan, Body, Size, Bytes, Offset, Acc);
        {more, _} when Scan#scan.eof, Bytes =:= <<>> ->
            {ok, Offset, Acc};
        {more, Wanted} when not Scan#scan.eof ->
            {Filled, More} = fill(Scan, Bytes, Offset, max(Wanted, ?SCAN_BYTES)),
            records(Filled, More, Offset, Acc);
        _ ->
            search_behind(Scan, Bytes, Offset, Offset, Acc)
    end.

record(Scan, Body, Size, Bytes, Offset, Acc) ->
    case halley_history_record:body(Body) of
        {ok, Record} ->
            Acc1 = (Scan#scan.function)({record, Offset, Record}, Acc),
            <<_:Size/binary, Rest/binary>> = Bytes,
            records(Scan, Rest, Offset + Size, Acc1);
        damaged ->
            search_behind(Scan, Bytes, Offset, Offset, Acc)
    end.

search_behind(Scan, <<_, Rest/binary>>, Offset, From, Acc) ->
    search(Scan, Rest, Offset + 1, From, Acc).

%% Looks for the next record; what lies between `From' and it is damaged.
search(Scan, Bytes, Offset, From, Acc) ->
    case halley_history_record:resync(Bytes, 0) of
        {ok, Skip} ->
            <<_:Skip/binary, Rest/binary>> = Bytes,
            candidate(Scan, Rest, Offset + Skip, From, Acc);
        {none, _} when Scan#scan.eof ->
            end_of_file(Scan, From, Offset + byte_size(Bytes), Acc);
        {none, Skip} ->
            <<_:Skip/binary, Rest/binary>> = Bytes,
            {Filled, More} = fill(Scan, Rest, Offset + Skip, ?SCAN_BYTES),
            search(Filled, More, Offset + Skip, From, Acc)
    end.

candidate(#scan{candidates = ?CANDIDATES_MAX} = Scan, Bytes, Offset, From, Acc) ->
    end_of_file(Scan, From, Offset + byte_size(Bytes), Acc);
candidate(Scan, Bytes, Offset, From, Acc) ->
    case halley_history_record:decode(Scan#scan.store, Bytes) of
        {ok, Body, _} ->
            case halley_history_record:body(Body) of
                {ok, _} ->
                    Acc1 = (Scan#scan.function)({damaged, From, Offset}, Acc),
                    records(Scan, Bytes, Offset, Acc1);
                damaged ->
                    no_candidate(Scan, Bytes, Offset, From, Acc)
            end;
        {more, Wanted} when not Scan#scan.eof ->
            {Filled, More} = fill(Scan, Bytes, Offset, max(Wanted, ?SCAN_BYTES)),
            candidate(Filled, More, Offset, From, Acc);
        _ ->
            no_candidate(Scan, Bytes, Offset, From, Acc)
    end.

no_candidate(Scan = #scan{candidates = N}, Bytes, Offset, From, Acc) ->
    search_behind(Scan#scan{candidates = N + 1}, Bytes, Offset, From, Acc).

end_of_file(Scan, From, To, Acc) ->
    {ok, From, (Scan#scan.function)({torn, From, To}, Acc)}.

%% Reads on behind these bytes until there are so many, or the file ends.
fill(Scan, Bytes, Offset, Wanted) ->
    Missing = max(?SCAN_BYTES, Wanted - byte_size(Bytes)),
    case read(Scan#scan.file, Offset + byte_size(Bytes), Missing) of
        {ok, More} -> {Scan, <<Bytes/binary, More/binary>>};
        eof -> {Scan#scan{eof = true}, Bytes};
        {error, _} = Error -> throw(Error)
    end.
