%% Files of the store: what was written is on disk when the call returns, or the call says why not.
%%
%% A file that grows (`create/2', `append/3') belongs to one process. It has two descriptors: what
%% goes through the second is on disk when the write returns, at half the price of a write and a
%% sync. A file that is written once (`replace/2') gets its name when all of it is on disk, and
%% the name is on disk when the call returns: after a crash there is the whole file or none.
%%
%% Every error is returned. Nothing is cached, repaired or decided here.
-module(halley_store_file).

-export([create/2, open/2, append/3, cut/2, sync/1, is_in_place/1, check/1, close/1]).
-export([replace/2, read/2, read_header/3, fold/4, remove/2]).
-export_type([file/0]).

-include_lib("kernel/include/file.hrl").

-record(file, {path :: file:name_all(), plain :: file:fd(), through :: file:fd(),
               identity :: {Device :: integer(), Inode :: integer()}}).
-opaque file() :: #file{}.
-type path() :: file:name_all().

%% More isn't copied into one binary, as a write through needs it.
-define(THROUGH_BYTES_MAX, 65536).
-define(READ_BYTES, 1048576).

%% A new file that begins with these bytes.
-spec create(path(), iodata()) -> {ok, file()} | {error, term()}.
create(Path, Bytes) ->
    case file:open(Path, [read, write, raw, binary, exclusive]) of
        {ok, Plain} ->
            Folder = filename:dirname(Path),
            case halley_steps:run([fun() -> file:pwrite(Plain, 0, Bytes) end,
                                   fun() -> file:datasync(Plain) end,
                                   fun() -> halley_data_dir:sync_directory(Folder) end]) of
                ok ->
                    with_through(Path, Plain);
                Error ->
                    _ = file:close(Plain),
                    _ = file:delete(Path, [raw]),
                    Error
            end;
        Error ->
            Error
    end.

%% A file that is there, cut at this position.
-spec open(path(), Position :: non_neg_integer()) -> {ok, file()} | {error, term()}.
open(Path, Position) ->
    case file:open(Path, [read, write, raw, binary]) of
        {ok, Plain} ->
            case with_through(Path, Plain) of
                {ok, File} -> opened(File, Position);
                Error -> Error
            end;
        Error ->
            Error
    end.

%% What is there may have been written by a process that died before it could sync.
opened(File, Position) ->
    case halley_steps:run([fun() -> cut(File, Position) end, fun() -> sync(File) end]) of
        ok -> {ok, File};
        Error -> close(File), Error
    end.

with_through(Path, Plain) ->
    case {file:open(Path, [read, write, raw, binary, sync]), identity(Path)} of
        {{ok, Through}, {ok, Identity}} ->
            {ok, #file{path = Path, plain = Plain, through = Through, identity = Identity}};
        {Opened, Identified} ->
            _ = [file:close(Fd) || {ok, Fd} <- [Opened, {ok, Plain}]],
            hd([Error || {error, _} = Error <- [Opened, Identified]])
    end.

%% Writes at a position; returns when the bytes are on disk.
-spec append(file(), Position :: non_neg_integer(), iodata()) -> ok | {error, term()}.
append(#file{plain = Plain, through = Through}, Position, Bytes) ->
    case iolist_size(Bytes) =< ?THROUGH_BYTES_MAX of
        true ->
            file:pwrite(Through, Position, iolist_to_binary(Bytes));
        false ->
            halley_steps:run([fun() -> file:pwrite(Plain, Position, Bytes) end,
                              fun() -> file:datasync(Plain) end])
    end.

%% Ends the file at a position. Not synced.
-spec cut(file(), Position :: non_neg_integer()) -> ok | {error, term()}.
cut(#file{plain = Plain}, Position) ->
    case file:position(Plain, Position) of
        {ok, _} -> file:truncate(Plain);
        Error -> Error
    end.

-spec sync(file()) -> ok | {error, term()}.
sync(#file{plain = Plain}) -> file:datasync(Plain).

%% Whether the path still names this file. A descriptor of a file that was removed, or whose folder
%% was, takes writes and syncs as if nothing had happened.
-spec is_in_place(file()) -> boolean().
is_in_place(#file{path = Path, identity = Identity}) -> identity(Path) =:= {ok, Identity}.

%% After a write: whether it can be found again, and may be believed (`halley_history_home').
-spec check(file()) -> ok | {error, moved | erofs | eio}.
check(#file{path = Path} = File) ->
    case is_in_place(File) of
        true -> halley_data_dir:check_writable(Path);
        false -> {error, moved}
    end.

identity(Path) ->
    case file:read_file_info(Path, [raw]) of
        {ok, #file_info{major_device = Device, inode = Inode}} -> {ok, {Device, Inode}};
        Error -> Error
    end.

-spec close(file()) -> ok.
close(#file{plain = Plain, through = Through}) ->
    _ = file:close(Through),
    _ = file:close(Plain),
    ok.

%% Puts a file in the place of what had its name. `Write' is given a function that appends.
-spec replace(path(), fun((fun((iodata()) -> ok)) -> Result)) -> {ok, Result} | {error, term()}.
replace(Path, Write) ->
    New = unicode:characters_to_list([Path, ".new"]),
    case file:open(New, [write, raw, binary]) of
        {ok, File} ->
            try
                Append = fun(Bytes) -> checked(file:write(File, Bytes)) end,
                Result = Write(Append),
                checked(file:datasync(File)),
                checked(file:rename(New, Path)),
                checked(halley_data_dir:sync_directory(filename:dirname(Path))),
                {ok, Result}
            catch
                throw:{failed, Reason} ->
                    _ = file:delete(New, [raw]),
                    {error, Reason}
            after
                file:close(File)
            end;
        Error ->
            Error
    end.

checked(ok) -> ok;
checked({error, Reason}) -> throw({failed, Reason}).

%% The header of a file, if it is one of this kind and number.
-spec read_header(path(), halley_store_record:kind(), Number :: non_neg_integer()) ->
    {ok, halley_store_record:header(), halley_store_record:salt()} | {error, term()}.
read_header(Path, Kind, Number) ->
    case read(Path, halley_store_record:header_bytes()) of
        {ok, Bytes} ->
            case halley_store_record:read_header(Kind, Bytes) of
                {ok, #{number := Number}, _} = Read -> Read;
                {version, Version} -> {error, {version, Version}};
                _ -> {error, damaged_header}
            end;
        Error ->
            Error
    end.

%% The first bytes of a file: fewer if it is shorter.
-spec read(path(), Bytes :: pos_integer()) -> {ok, binary()} | {error, term()}.
read(Path, Bytes) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            Read = file:pread(File, 0, Bytes),
            _ = file:close(File),
            case Read of
                eof -> {ok, <<>>};
                _ -> Read
            end;
        Error ->
            Error
    end.

%% Gives a file from a position on to `Fun', as much of it at a time as is convenient; `Fun' gives
%% back what it left of it, and how many bytes it wants at least. Gives what is left at the end.
-spec fold(path(), Position :: non_neg_integer(),
           fun((binary(), Acc) -> {Left :: binary(), Wanted :: non_neg_integer(), Acc} |
                                  {stop, Acc}), Acc) ->
    {ok, Left :: binary(), Acc} | {stopped, Acc} | {error, term()}.
fold(Path, Position, Fun, Acc) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            try fold(File, Position, <<>>, ?READ_BYTES, Fun, Acc)
            after file:close(File)
            end;
        Error ->
            Error
    end.

fold(File, Position, Left, Wanted, Fun, Acc) ->
    case file:pread(File, Position, max(?READ_BYTES, Wanted)) of
        {ok, Bytes} ->
            case Fun(<<Left/binary, Bytes/binary>>, Acc) of
                {stop, Stopped} ->
                    {stopped, Stopped};
                {NewLeft, NewWanted, NewAcc} ->
                    fold(File, Position + byte_size(Bytes), NewLeft, NewWanted, Fun, NewAcc)
            end;
        eof ->
            {ok, Left, Acc};
        Error ->
            Error
    end.

%% Removes names from a folder. What is left after a crash is removed when it is opened next.
-spec remove(path(), [file:name_all()]) -> ok.
remove(Dir, Names) ->
    lists:foreach(fun(Name) -> file:delete(filename:join(Dir, Name), [raw]) end, Names).
