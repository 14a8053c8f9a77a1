%% The files of a backup: lists them, opens them all before any is read, copies what they have by
%% then, puts it on disk. A failure is thrown as `{error, Sentence}'.
-module(halley_backup_files).

-export([names/1, open_all/1, copy/3, copy_small/2, written/2, checked/2, failed/2]).
-export_type([opened/0]).

-type opened() :: [{file:filename(), file:fd()}].

-define(BLOCK_BYTES, 1048576).
-define(FILE_MODE, 8#600).

-spec names(Dir :: file:filename()) -> [file:filename()].
names(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} -> Names;
        {error, enoent} -> [];
        {error, Reason} -> failed("~ts: ~ts", [Dir, file:format_error(Reason)])
    end.

%% `gone': one of them is, so the list was old.
-spec open_all([file:filename()]) -> {ok, opened()} | gone.
open_all(Paths) -> open_all(Paths, []).

open_all([Path | Paths], Files) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            open_all(Paths, [{Path, File} | Files]);
        {error, enoent} ->
            lists:foreach(fun({_, File}) -> file:close(File) end, Files),
            gone;
        {error, Reason} ->
            failed("~ts: ~ts", [Path, file:format_error(Reason)])
    end;
open_all([], Files) ->
    {ok, lists:reverse(Files)}.

%% Into a folder, and the files are closed. So many bytes.
-spec copy(opened(), Target :: file:filename(), halley_progress:progress()) -> non_neg_integer().
copy(Files, Target, Progress) ->
    try
        lists:sum([copy_file(Path, File, Target, Progress) || {Path, File} <- Files])
    after
        lists:foreach(fun({_, File}) -> file:close(File) end, Files)
    end.

copy_file(Path, File, Target, Progress) ->
    Copy = filename:join(Target, filename:basename(Path)),
    {ok, To} = created(Copy),
    Bytes = copy_blocks({Path, File}, {Copy, To}, 0, Progress),
    checked(Copy, file:datasync(To)),
    checked(Copy, file:close(To)),
    Bytes.

created(Path) ->
    case file:open(Path, [write, raw, binary, exclusive]) of
        {ok, File} ->
            checked(Path, file:change_mode(Path, ?FILE_MODE)),
            {ok, File};
        {error, Reason} ->
            failed("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

copy_blocks({Path, From} = Source, {Copy, To} = Target, Position, Progress) ->
    ok = Progress(io_lib:format("~ts, ~b MB", [filename:basename(Path), Position bsr 20])),
    case file:pread(From, Position, ?BLOCK_BYTES) of
        {ok, Bytes} ->
            checked(Copy, file:write(To, Bytes)),
            copy_blocks(Source, Target, Position + byte_size(Bytes), Progress);
        eof ->
            Position;
        {error, Reason} ->
            failed("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

%% 0 if there is none.
-spec copy_small(file:filename(), Copy :: file:filename()) -> non_neg_integer().
copy_small(Path, Copy) ->
    case file:read_file(Path) of
        {ok, Bytes} -> written(Copy, Bytes);
        {error, enoent} -> 0;
        {error, Reason} -> failed("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

-spec written(file:filename(), iodata()) -> non_neg_integer().
written(Path, Bytes) ->
    {ok, File} = created(Path),
    checked(Path, file:write(File, Bytes)),
    checked(Path, file:datasync(File)),
    checked(Path, file:close(File)),
    iolist_size(Bytes).

-spec checked(file:filename(), ok | {error, file:posix() | badarg | terminated | system_limit}) ->
    ok.
checked(_, ok) -> ok;
checked(Path, {error, Reason}) -> failed("~ts: ~ts", [Path, file:format_error(Reason)]).

-spec failed(string(), [term()]) -> no_return().
failed(Format, Args) -> throw({error, io_lib:format(Format, Args)}).
