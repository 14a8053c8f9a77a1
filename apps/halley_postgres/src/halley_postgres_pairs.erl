%% Which follows are a table's own: a file of the pairs that came from it, in the order of their
%% changes.
%%
%% The brain's store doesn't record where a follow comes from. A table's follows are needed seldom:
%% when it is truncated, when it was copied anew and some of it isn't in the copy, when it isn't
%% configured any more. So it is a file that is only appended to, and read whole for those three
%% (`halley_postgres_owned'). When it has got much longer than its pairs need, it is written anew
%% while the stream goes on.
%%
%%   header: "HALLEYPP" version:16 size:16 table:size bytes crc:32
%%   block:  size:32 crc:32 records:size bytes
%%   record: $+ or $-, user size:8, subject size:8, user, subject; or $0, for "all are gone"
%%
%% The part after `bytes', the size that the state of the stream (`halley_postgres_state') knows to
%% be on disk, is cut off when the file is opened: its changes come again. Before that size each
%% block must be good.
-module(halley_postgres_pairs).

-export([create/2, open/2, append/2, block/1, add/2, sync/1, bytes/1, close/1, continue/2]).
-export([tables/1, fold/4, records/3, is_whole/3]).
-export_type([file/0, record/0, pair/0, part/0]).

-define(MAGIC, "HALLEYPP").
-define(VERSION, 1).
-define(BLOCK_BYTES_MAX, 67108864).

-type pair() :: {User :: binary(), Subject :: binary()}.
-type record() :: {add | remove, pair()} | clear.
%% Of a file: up to where it is read, and from where on a block that ends early is no damage.
-type part() :: #{limit => non_neg_integer(), known => non_neg_integer(), _ => _}.
-opaque file() :: {file:fd(), Path :: file:filename(), Bytes :: non_neg_integer()}.

%% A new file for a table, by the text that names it in the configuration.
-spec create(file:filename(), Table :: binary()) -> file().
create(Path, Table) ->
    {ok, File} = file:open(Path, [read, write, raw, binary, exclusive]),
    ok = halley_data_dir:make_private(Path),
    Head = <<?MAGIC, ?VERSION:16, (byte_size(Table)):16, Table/binary>>,
    Header = <<Head/binary, (erlang:crc32(Head)):32>>,
    ok = file:write(File, Header),
    {File, Path, byte_size(Header)}.

-spec open(file:filename(), Bytes :: non_neg_integer()) -> {ok, file()} | {error, term()}.
open(Path, Bytes) ->
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            Header = header_of(File),
            case file:position(File, eof) of
                _ when Header =:= none ->
                    _ = file:close(File),
                    {error, bad_header};
                {ok, Size} when Size >= Bytes ->
                    {ok, Bytes} = file:position(File, Bytes),
                    ok = file:truncate(File),
                    {ok, {File, Path, Bytes}};
                _ ->
                    _ = file:close(File),
                    {error, too_short}
            end;
        {error, _} = Error -> Error
    end.

-spec append([record()], file()) -> file().
append([], Pairs) -> Pairs;
append(Records, Pairs) -> add(block(Records), Pairs).

%% What `add/2' takes. Any process can make it.
-spec block([record()]) -> iodata().
block([]) -> [];
block(Records) ->
    Body = iolist_to_binary([encode(Record) || Record <- Records]),
    [<<(byte_size(Body)):32, (erlang:crc32(Body)):32>>, Body].

-spec add(Block :: iodata(), file()) -> file().
add(Block, {File, Path, Bytes}) ->
    case file:write(File, Block) of
        ok -> {File, Path, Bytes + iolist_size(Block)};
        {error, Reason} -> exit({not_written, Path, Reason})
    end.

encode({Operation, {User, Subject}}) ->
    [sign(Operation), byte_size(User), byte_size(Subject), User, Subject];
encode(clear) -> $0.

sign(add) -> $+;
sign(remove) -> $-.

-spec sync(file()) -> ok.
sync({File, _, _}) -> ok = file:datasync(File).

-spec bytes(file()) -> non_neg_integer().
bytes({_, _, Bytes}) -> Bytes.

-spec close(file()) -> ok.
close({File, _, _}) -> ok = file:close(File).

%% The files of a folder by the tables they are for. A file whose header can't be read is left out.
-spec tables(file:filename()) -> #{Table :: binary() => [file:filename()]}.
tables(Folder) ->
    Paths = lists:sort(filelib:wildcard(filename:join(Folder, "pairs-*"))),
    Named = [{Table, Path} || Path <- Paths,
                              {ok, File} <- [file:open(Path, [read, raw, binary])],
                              {ok, Table} <- [header(File)]],
    maps:groups_from_list(fun({Table, _}) -> Table end, fun({_, Path}) -> Path end, Named).

header(File) ->
    Header = header_of(File),
    _ = file:close(File),
    Header.

%% The file stands behind it then.
header_of(File) ->
    case file:read(File, 12) of
        {ok, <<?MAGIC, ?VERSION:16, Size:16>>} ->
            case file:read(File, Size + 4) of
                {ok, <<Table:Size/binary, Crc:32>>} ->
                    case erlang:crc32(<<?MAGIC, ?VERSION:16, Size:16, Table/binary>>) of
                        Crc -> {ok, Table};
                        _ -> none
                    end;
                _ -> none
            end;
        _ -> none
    end.

%% The file goes on in another one: what stands behind `From' is added to that as it is.
-spec continue(file(), {file(), From :: non_neg_integer()}) -> file().
continue({File, _, Bytes}, {{_, _, _} = New, From}) ->
    {ok, From} = file:position(File, From),
    Result = copied(File, Bytes - From, New),
    ok = file:close(File),
    Result.

copied(_, 0, New) -> New;
copied(File, Left, {NewFile, Path, Bytes}) ->
    {ok, Block} = file:read(File, min(Left, 1048576)),
    ok = file:write(NewFile, Block),
    copied(File, Left - byte_size(Block), {NewFile, Path, Bytes + byte_size(Block)}).

%% Folds over the blocks' records, as bytes, with their places. What is damaged ends it.
-spec fold(file:filename(), part(), fun((At :: non_neg_integer(), binary(), Acc) -> Acc), Acc) ->
    {whole | damaged, Acc}.
fold(Path, Part, Fun, Acc) ->
    {ok, File} = file:open(Path, [read, raw, binary, {read_ahead, 1048576}]),
    Result = case header_of(File) of
        {ok, Table} -> blocks(File, 16 + byte_size(Table), Part, Fun, Acc);
        none -> {damaged, Acc}
    end,
    _ = file:close(File),
    Result.

blocks(_, At, #{limit := Limit}, _, Acc) when At >= Limit ->
    {whole, Acc};
blocks(File, At, Part, Fun, Acc) ->
    case file:read(File, 8) of
        {ok, <<Size:32, Crc:32>>} when Size =< ?BLOCK_BYTES_MAX ->
            case file:read(File, Size) of
                {ok, <<Body:Size/binary>>} ->
                    case erlang:crc32(Body) of
                        Crc -> blocks(File, At + 8 + Size, Part, Fun, Fun(At, Body, Acc));
                        _ -> {damaged, Acc}
                    end;
                _ -> {cut(At, Part), Acc}
            end;
        eof -> {whole, Acc};
        {ok, Head} when byte_size(Head) < 8 -> {cut(At, Part), Acc};
        _ -> {damaged, Acc}
    end.

cut(At, #{known := Known}) when At >= Known -> whole;
cut(_, _) -> damaged.

%% Whether good blocks stand from there to there. If so they are on disk when this returns.
-spec is_whole(file:filename(), From :: non_neg_integer(), To :: non_neg_integer()) -> boolean().
is_whole(Path, From, To) ->
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            {ok, From} = file:position(File, From),
            IsWhole = are_good(File, To - From) andalso file:datasync(File) =:= ok,
            _ = file:close(File),
            IsWhole;
        {error, _} -> false
    end.

are_good(_, 0) -> true;
are_good(File, Left) when Left >= 8 ->
    case file:read(File, 8) of
        {ok, <<Size:32, Crc:32>>} when Size =< Left - 8, Size =< ?BLOCK_BYTES_MAX ->
            case file:read(File, Size) of
                {ok, <<Body:Size/binary>>} ->
                    erlang:crc32(Body) =:= Crc andalso are_good(File, Left - 8 - Size);
                _ -> false
            end;
        _ -> false
    end;
are_good(_, _) -> false.

%% Folds over the records of a block, each with its bytes.
-spec records(binary(), fun((record(), binary(), Acc) -> Acc), Acc) -> Acc.
records(<<$0, Rest/binary>>, Fun, Acc) ->
    records(Rest, Fun, Fun(clear, <<$0>>, Acc));
records(<<Sign, U, S, User:U/binary, Subject:S/binary, Rest/binary>> = Bytes, Fun, Acc) ->
    Record = {case Sign of $+ -> add; $- -> remove end, {User, Subject}},
    records(Rest, Fun, Fun(Record, binary_part(Bytes, 0, 3 + U + S), Acc));
records(<<>>, _, Acc) ->
    Acc.
