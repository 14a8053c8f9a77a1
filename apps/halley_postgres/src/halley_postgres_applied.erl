%% How far the changes of tables were taken into the store, beyond the position that is saved: the
%% file `applied' next to the state.
%%
%% Changes after the saved position come again when the stream begins anew. A follow that the API
%% made meanwhile, after the end of its row, must not end by that row's end coming again. So the
%% file has the position after the last changes, and the sizes of the files of pairs then; changes
%% up to there are left out for these tables, like those before their copy.
%%
%% The file is written after each group of changes and never synced: it is right after a kill. After
%% a power cut it, or the files that it names, may be old or damaged, which shows; then the changes
%% come again. The follows themselves were on disk before.
%%
%%   "HALLEYPA" body:size:16 crc:32; the body is JSON
-module(halley_postgres_applied).

-export([open/0, write/3, take/2, forget/0]).
-export_type([file/0]).

-opaque file() :: file:fd().
-define(MAGIC, "HALLEYPA").

path() -> filename:join(halley_postgres_state:folder(), "applied").

%% It keeps its place on the disk, so that it can be written when there is no other.
-spec open() -> file().
open() ->
    Path = path(),
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            ok = halley_data_dir:make_private(Path),
            File;
        {error, Reason} -> exit({not_written, Path, Reason})
    end.

%% What can't be written leaves what was there, or what is seen to be damaged.
-spec write(file(), Lsn :: non_neg_integer(), halley_postgres_follows:sources()) -> ok.
write(File, Lsn, Sources) ->
    Body = iolist_to_binary(jiffy:encode(#{lsn => Lsn, files => maps:from_list(
        [{unicode:characters_to_binary(filename:basename(Path)), halley_postgres_pairs:bytes(Pairs)}
         || #{path := Path, pairs := Pairs} <- maps:values(Sources)])})),
    _ = file:pwrite(File, 0, [?MAGIC, <<(byte_size(Body)):16, (erlang:crc32(Body)):32>>, Body]),
    ok.

%% The tables of the state, each as far as its changes were taken; on disk when this returns.
-spec take(#{Table => halley_postgres_state:table()}, Lsn :: non_neg_integer()) ->
    #{Table => halley_postgres_state:table()} when Table :: binary().
take(Tables, Lsn) ->
    case file:read_file(path()) of
        {ok, <<?MAGIC, Size:16, Crc:32, Body:Size/binary, _/binary>>} ->
            case erlang:crc32(Body) of
                Crc -> further(Tables, Lsn, jiffy:decode(Body, [return_maps]));
                _ -> Tables
            end;
        _ -> Tables
    end.

%% When the state has what was taken. On disk: it says nothing about copies that are made from now
%% on.
-spec forget() -> ok.
forget() ->
    Path = path(),
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            Written = halley_steps:run([fun() -> file:pwrite(File, 0, <<0:64>>) end,
                                        fun() -> file:datasync(File) end]),
            _ = file:close(File),
            _ = [file:delete(Path) || Written =/= ok],
            ok;
        {error, _} ->
            _ = file:delete(Path),
            ok
    end.

further(Tables, Lsn, #{<<"lsn">> := Applied, <<"files">> := Files}) when Applied > Lsn ->
    maps:map(fun(_, #{file := File, bytes := Bytes, from := From} = Table) ->
        case maps:get(unicode:characters_to_binary(File), Files, none) of
            To when is_integer(To), To >= Bytes, Applied > From ->
                is_there(Table, File, To, Applied);
            _ -> Table
        end
    end, Tables);
further(Tables, _, _) -> Tables.

is_there(#{bytes := Bytes} = Table, File, To, Applied) ->
    Path = filename:join(halley_postgres_state:folder(), File),
    case halley_postgres_pairs:is_whole(Path, Bytes, To) of
        true -> Table#{bytes := To, from := Applied};
        false -> Table
    end.
