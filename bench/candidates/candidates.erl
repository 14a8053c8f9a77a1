%% The two stores that were compared, and what the programs beside this file share.
%%
%% SQLite, set for this use: WAL, synchronous=FULL, exclusive locking (no -shm file), one
%% transaction for a checkpoint and the cut of the journal, 200 rows a statement, and the WAL
%% copied into the database (`fold/1`) only when nobody waits.
%% Plain files: `checkpoint` (header, records, footer with count and total; temporary file, fsync,
%% rename, fsync of the directory) and `journal` (a write and a fdatasync per group).
%% In both each row has a CRC, counts and a total stand with the checkpoint, and the note `synced`
%% beside them is the number of the last durable group. The note itself is not synced: it outlives
%% kill -9, and after a power cut it is only older.
%%
%% A store is {Name, Dir, Handle, Note}, for the process that opened it. This is a scratch program
%% that a decision stands on, not a part of the product.
-module(candidates).

-export([create/2, open/2, close/1, groups/3, checkpoint/2, fold/1, renewed/1, point/3]).
-export([connect/2, settings/0, sql/2, sql/3, copy/2, page/0, shuffled/1]).

-type name() :: sqlite | file.
-type store() :: {name(), file:filename(), pid() | file:fd() | undefined, file:fd()}.
-type rows() :: [{non_neg_integer(), binary()}].
-type point() :: #{pages | changed => rows(), up_to | count | total => non_neg_integer()}.
-type read() :: [{non_neg_integer(), binary(), Crc :: non_neg_integer()}].

-define(ROWS, 200).
-define(CHUNK_BYTES, 1048576).
-define(SETTINGS, ["PRAGMA locking_mode=EXCLUSIVE", "PRAGMA page_size=16384",
                   "PRAGMA auto_vacuum=NONE", "PRAGMA journal_mode=WAL",
                   "PRAGMA synchronous=FULL", "PRAGMA wal_autocheckpoint=0",
                   "PRAGMA secure_delete=OFF", "PRAGMA cache_size=-32768"]).

%% What a checkpoint is given: the footer's total is kept by who changes pages, so it is free.
-spec point(rows(), rows(), non_neg_integer()) -> point().
point(Pages, Changed, UpTo) ->
    #{pages => Pages, changed => Changed, up_to => UpTo, count => length(Pages),
      total => lists:sum([crc(Key, Page) || {Key, Page} <- Pages])}.

crc(Key, Bytes) -> erlang:crc32(erlang:crc32(<<Key:64>>), Bytes).

-spec page() -> binary().
page() -> rand:bytes(3000 + rand:uniform(1000)).

-spec groups(store(), pos_integer(), [binary()]) -> ok.
groups(Store, First, Rows) ->
    _ = lists:foldl(fun(Row, N) -> ok = group(Store, N, Row), N + 1 end, First, Rows),
    ok.

-spec create(name(), file:filename()) -> store().
create(Name, Dir) ->
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    create_files(Name, Dir),
    {ok, Note} = file:open(filename:join(Dir, "synced"), [raw, write, read]),
    Store = {Name, Dir, handle(Name, Dir), Note},
    ok = note(Note, 0),
    Store.

create_files(sqlite, Dir) ->
    Db = handle(sqlite, Dir),
    [ok = sql(Db, Sql)
     || Sql <- ["CREATE TABLE page(key INTEGER PRIMARY KEY, crc INTEGER, bytes BLOB)",
                "CREATE TABLE journal(seq INTEGER PRIMARY KEY, crc INTEGER, bytes BLOB)",
                "CREATE TABLE point(one INTEGER PRIMARY KEY, upto, pages, total)"]],
    {rowid, 1} = sql(Db, "INSERT INTO point VALUES(1, 0, 0, 0)"),
    sqlite3:close_timeout(Db, infinity);
create_files(file, Dir) ->
    ok = write_checkpoint(Dir, point([], [], 0)),
    ok = write_journal(Dir, 1).

handle(sqlite, Dir) -> connect(Dir, ?SETTINGS);
handle(file, Dir) ->
    {ok, Journal} = file:open(filename:join(Dir, "journal"), [raw, append]),
    Journal.

%% The journal is a new file after a checkpoint.
-spec renewed(store()) -> store().
renewed({file, Dir, Journal, Note}) ->
    ok = file:close(Journal),
    {file, Dir, handle(file, Dir), Note};
renewed(Store) -> Store.

-spec sql(pid(), iodata()) -> term().
sql(Db, Sql) -> sqlite3:sql_exec_timeout(Db, Sql, infinity).

-spec sql(pid(), binary(), list()) -> term().
sql(Db, Sql, Parameters) -> sqlite3:sql_exec_timeout(Db, Sql, Parameters, infinity).

-spec settings() -> [string()].
settings() -> ?SETTINGS.

-spec connect(file:filename(), [string()]) -> pid().
connect(Dir, Settings) ->
    {ok, Db} = gen_server:start(sqlite3, [{file, filename:join(Dir, "db")}], []),
    put(db, Db),
    [sql(Db, Sql) || Sql <- Settings],
    Db.

%% Opens and reads everything: {Store, {ok, Pages, Groups, Doubts} | {error, Reason}}.
-spec open(name(), file:filename()) ->
    {store(), {ok, read(), read(), [atom()]} | {error, term()}}.
open(Name, Dir) ->
    erase(db),
    Read = try read(Name, Dir) catch _:Reason -> {error, Reason} end,
    {ok, Note} = file:open(filename:join(Dir, "synced"), [raw, write, read]),
    case Read of
        {ok, Db, Pages, Groups, Doubts} -> {{Name, Dir, Db, Note}, {ok, Pages, Groups, Doubts}};
        {error, _} -> {{Name, Dir, erase(db), Note}, Read}
    end.

-spec close(store()) -> ok.
close({_, _, undefined, Note}) -> file:close(Note);
close({sqlite, _, Db, Note}) -> sqlite3:close_timeout(Db, infinity), file:close(Note);
close({file, _, Journal, Note}) -> file:close(Journal), file:close(Note).

note(Note, Seq) -> file:pwrite(Note, 0, <<Seq:64, (erlang:crc32(<<Seq:64>>)):32>>).

read_note(Dir) ->
    {ok, <<Seq:64, Crc:32>>} = file:read_file(filename:join(Dir, "synced")),
    Crc = erlang:crc32(<<Seq:64>>),
    Seq.

group({sqlite, _, Db, Note}, Seq, Row) ->
    {rowid, Seq} = sql(Db, <<"INSERT INTO journal VALUES(?,?,?)">>,
                                    [Seq, crc(Seq, Row), {blob, Row}]),
    note(Note, Seq);
group({file, _, Journal, Note}, Seq, Row) ->
    ok = file:write(Journal, [<<(byte_size(Row)):32, (crc(Seq, Row)):32, Seq:64>>, Row]),
    ok = file:datasync(Journal),
    note(Note, Seq).

-spec checkpoint(store(), point()) -> ok.
checkpoint({sqlite, _, Db, _}, #{changed := Changed, up_to := UpTo} = Point) ->
    ok = sql(Db, "BEGIN IMMEDIATE"),
    {ok, Many} = sqlite3:prepare(Db, replace(?ROWS)),
    replace_all(Db, Many, Changed),
    ok = sqlite3:finalize(Db, Many),
    ok = sql(Db, <<"DELETE FROM journal WHERE seq <= ?">>, [UpTo]),
    #{count := Count, total := Total} = Point,
    ok = sql(Db, <<"UPDATE point SET upto=?, pages=?, total=?">>,
                          [UpTo, Count, Total]),
    ok = sql(Db, "COMMIT");
checkpoint({file, Dir, _, _}, #{up_to := UpTo} = Point) ->
    ok = write_checkpoint(Dir, Point),
    ok = write_journal(Dir, UpTo + 1).

replace(N) -> ["REPLACE INTO page VALUES", lists:join(",", lists:duplicate(N, "(?,?,?)"))].

replace_all(Db, Many, Pages) when length(Pages) >= ?ROWS ->
    {Now, Later} = lists:split(?ROWS, Pages),
    ok = sqlite3:bind(Db, Many, parameters(Now)),
    done = sqlite3:next_timeout(Db, Many, infinity),
    ok = sqlite3:reset(Db, Many),
    replace_all(Db, Many, Later);
replace_all(_, _, []) -> ok;
replace_all(Db, _, Pages) ->
    ok = sql(Db, iolist_to_binary(replace(length(Pages))), parameters(Pages)).

parameters(Pages) ->
    lists:append([[Key, crc(Key, Page), {blob, Page}] || {Key, Page} <- Pages]).

%% Copies the WAL into the database and empties it.
-spec fold(store()) -> ok.
fold({sqlite, _, Db, _}) ->
    [_, {rows, [{0, _, _}]}] = sql(Db, "PRAGMA wal_checkpoint(TRUNCATE)"),
    ok;
fold({file, _, _, _}) -> ok.

%% Everything that is there, and what says whether that is all. A bad CRC or an error ends the
%% reading of either. Doubts are what the other checks of our own found: files refuse them here,
%% SQLite's are given back, so that what it says by itself can be told from them.
read(sqlite, Dir) ->
    Db = connect(Dir, ?SETTINGS),
    Pages = select(Db, <<"SELECT key, crc, bytes FROM page"
                         " WHERE key > ? ORDER BY key LIMIT ?">>, -1, ?ROWS),
    Groups = select(Db, <<"SELECT seq, crc, bytes FROM journal"
                          " WHERE seq > ? ORDER BY seq LIMIT ?">>, -1, ?ROWS),
    [_, {rows, [{UpTo, Count, Total}]}] = sql(Db, "SELECT upto, pages, total FROM point"),
    {ok, Db, Pages, Groups, doubts(Dir, UpTo, Count, Total, Pages, Groups)};
read(file, Dir) ->
    {UpTo, Count, Total, Pages} = read_checkpoint(Dir),
    {First, Groups} = read_journal(Dir),
    true = First =< UpTo + 1,
    [] = doubts(Dir, UpTo, Count, Total, Pages, Groups),
    {ok, handle(file, Dir), Pages, Groups, []}.

select(Db, Sql, Above, Limit) ->
    [_, {rows, Rows}] = sql(Db, Sql, [Above, Limit]),
    Read = [{Key, Bytes, Crc} || {Key, Crc, {blob, Bytes}} <- Rows, Crc =:= crc(Key, Bytes)],
    true = length(Read) =:= length(Rows),
    case length(Rows) of
        Limit -> Read ++ select(Db, Sql, element(1, lists:last(Read)), Limit);
        _ -> Read
    end.

doubts(Dir, UpTo, Count, Total, Pages, Groups) ->
    Last = lists:max([UpTo | [Seq || {Seq, _, _} <- Groups]]),
    Note = try read_note(Dir) catch _:_ -> unreadable end,
    [count || Count =/= length(Pages)]
        ++ [total || Total =/= lists:sum([Crc || {_, _, Crc} <- Pages])]
        ++ [gap || [Seq || {Seq, _, _} <- Groups, Seq > UpTo] =/= lists:seq(UpTo + 1, Last)]
        ++ [synced || Note =:= unreadable orelse Note > Last].

%% --- Plain files

write_checkpoint(Dir, #{pages := Pages, up_to := UpTo, count := Count, total := Total}) ->
    Header = <<"CHKP", UpTo:64>>,
    Footer = <<16#ffffffff:32, Count:64, Total:64>>,
    replace_file(Dir, "checkpoint", fun(File) ->
        ok = file:write(File, [Header, <<(erlang:crc32(Header)):32>>]),
        write_pages(File, Pages, [], 0),
        ok = file:write(File, [Footer, <<(erlang:crc32(Footer)):32>>])
    end).

write_pages(File, Pages, Out, Bytes) when Pages =:= []; Bytes > ?CHUNK_BYTES ->
    ok = file:write(File, Out),
    Pages =:= [] orelse write_pages(File, Pages, [], 0);
write_pages(File, [{Key, Page} | Pages], Out, Bytes) ->
    Record = [<<(byte_size(Page)):32, (crc(Key, Page)):32, Key:64>>, Page],
    write_pages(File, Pages, [Out | Record], Bytes + byte_size(Page)).

write_journal(Dir, First) ->
    Header = <<"JRNL", First:64>>,
    replace_file(Dir, "journal", fun(File) ->
        ok = file:write(File, [Header, <<(erlang:crc32(Header)):32>>])
    end).

replace_file(Dir, Name, Write) ->
    Path = filename:join(Dir, Name),
    {ok, File} = file:open(Path ++ ".new", [raw, write]),
    Write(File),
    ok = file:sync(File),
    ok = file:close(File),
    ok = file:rename(Path ++ ".new", Path),
    {ok, Directory} = file:open(Dir, [raw, read, directory]),
    ok = file:sync(Directory),
    file:close(Directory).

read_checkpoint(Dir) ->
    {ok, File} = file:open(filename:join(Dir, "checkpoint"), [raw, read, binary]),
    try
        {ok, <<"CHKP", UpTo:64, Crc:32>>} = file:read(File, 16),
        Crc = erlang:crc32(<<"CHKP", UpTo:64>>),
        {Count, Total, Pages} = read_pages(File, <<>>, []),
        {UpTo, Count, Total, Pages}
    after file:close(File) end.

read_pages(File, Buffer, Pages) ->
    case Buffer of
        <<16#ffffffff:32, Count:64, Total:64, Crc:32>> ->
            Crc = erlang:crc32(<<16#ffffffff:32, Count:64, Total:64>>),
            eof = file:read(File, 1),
            {Count, Total, lists:reverse(Pages)};
        <<Size:32, Crc:32, Key:64, Page:Size/binary, Rest/binary>> ->
            Crc = crc(Key, Page),
            read_pages(File, Rest, [{Key, binary:copy(Page), Crc} | Pages]);
        _ ->
            {ok, More} = file:read(File, ?CHUNK_BYTES),
            read_pages(File, <<Buffer/binary, More/binary>>, Pages)
    end.

%% What is behind a row that is cut short was never acknowledged, or the note says so.
read_journal(Dir) ->
    {ok, <<"JRNL", First:64, Crc:32, Rows/binary>>} =
        file:read_file(filename:join(Dir, "journal")),
    Crc = erlang:crc32(<<"JRNL", First:64>>),
    {First, read_rows(Rows)}.

read_rows(<<Size:32, Crc:32, Seq:64, Row:Size/binary, Rest/binary>>) ->
    case crc(Seq, Row) of
        Crc -> [{Seq, Row, Crc} | read_rows(Rest)];
        _ -> []
    end;
read_rows(_) -> [].

%% --- Shared

-spec shuffled([Value]) -> [Value].
shuffled(List) -> [Value || {_, Value} <- lists:sort([{rand:uniform(), V} || V <- List])].

-spec copy(file:filename(), file:filename()) -> file:filename().
copy(From, To) ->
    _ = file:del_dir_r(To),
    ok = filelib:ensure_dir(filename:join(To, "x")),
    {ok, Files} = file:list_dir(From),
    [{ok, _} = file:copy(filename:join(From, File), filename:join(To, File)) || File <- Files],
    To.
