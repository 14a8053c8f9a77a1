%% The folder `postgres' of a backup: how far PostgreSQL's stream was taken, and the files of pairs
%% that say which follows are its tables' own.
%%
%% The state is read before the follows, and the files of pairs after them. So the stream can go on
%% from that state: later changes come again. And a pair whose follow is in the backup is in a file:
%% one that was followed meanwhile stands in the appended part. But so may its end, which the
%% follows of the backup don't have yet. The empty file `copied' marks that, and the part after the
%% sizes of the state is read with it in mind.
%%
%% A file that is written anew meanwhile goes away: it is open by then, and the new one is copied
%% besides.
-module(halley_postgres_backup).

-export([open/1]).

-import(halley_backup_files, [names/1, open_all/1, checked/2]).

-define(TRIES, 50).

%% Before the follows are read. The fun copies, after them.
-spec open(From :: file:filename()) -> none | halley_part:copy().
open(From) ->
    Dir = filename:join(From, "postgres"),
    case open(Dir, ?TRIES) of
        none -> none;
        {State, Files} -> fun(To, Progress) -> copy(State, Files, Dir, To, Progress) end
    end.

open(Dir, Tries) ->
    case {file:read_file(filename:join(Dir, "state")), pairs(Dir)} of
        {{error, enoent}, _} -> none;
        {{error, Reason}, _} ->
            halley_backup_files:failed("~ts: ~ts", [Dir, file:format_error(Reason)]);
        {{ok, State}, {ok, Files}} -> {State, Files};
        {{ok, _}, gone} when Tries > 0 -> open(Dir, Tries - 1);
        {{ok, _}, gone} -> halley_backup_files:failed("~ts: its files change too fast", [Dir])
    end.

pairs(Dir) ->
    open_all([filename:join(Dir, "pairs-" ++ Name) || "pairs-" ++ Name <- lists:sort(names(Dir))]).

copy(State, Files, Dir, To, Progress) ->
    Target = filename:join(To, "postgres"),
    checked(Target, halley_data_dir:make_directory(Target)),
    Opened = [filename:basename(Path) || {Path, _} <- Files],
    {ok, Now} = newest(Dir, ?TRIES),
    New = [File || {Path, _} = File <- Now, not lists:member(filename:basename(Path), Opened)],
    _ = [file:close(File) || {_, File} <- Now -- New],
    Bytes = halley_backup_files:copy(Files ++ New, Target, Progress),
    _ = halley_backup_files:written(filename:join(Target, "copied"), <<>>),
    More = halley_backup_files:written(filename:join(Target, "state"), State),
    checked(Target, halley_data_dir:sync_directory(Target)),
    Bytes + More.

newest(Dir, Tries) ->
    case pairs(Dir) of
        {ok, Files} -> {ok, Files};
        gone when Tries > 0 -> newest(Dir, Tries - 1);
        gone -> halley_backup_files:failed("~ts: its files change too fast", [Dir])
    end.
