%% Where the history lives: the folder that was opened, and whether a segment's name still leads to
%% the open file.
%%
%% A file that was removed, or whose folder was moved or replaced, accepts writes and syncs all the
%% same, and the next start won't find them. So names are looked up again: one call for each group.
%% A file system that has just gone read-only after an error may report a sync that it didn't do
%% (seen with ext4, Linux 6.18). It refuses to open a file for writing, so that is tried as well.
-module(halley_history_home).

-export([set_directory/1, directory/0, find/1, make/2, check/3, may_pass/1]).

%% The folder of the segments, for all who read them. To be set before the log starts.
-spec set_directory(file:name_all()) -> ok.
set_directory(Dir) -> persistent_term:put(?MODULE, Dir).

-spec directory() -> file:name_all().
directory() -> persistent_term:get(?MODULE).

-spec find(file:name_all()) -> halley_data_dir:place() | none.
find(Dir) ->
    case halley_data_dir:place(Dir) of
        {ok, Place} -> Place;
        {error, _} -> none
    end.

%% The folder for a new segment. Where there was one it must be the same.
-spec make(file:name_all(), Before :: halley_data_dir:place() | none) ->
    {ok, halley_data_dir:place()} | {error, term()}.
make(Dir, Before) ->
    case {halley_data_dir:place(Dir), Before} of
        {{ok, Place}, none} -> {ok, Place};
        {{ok, Place}, Place} -> {ok, Place};
        {{error, enoent}, none} -> made(halley_data_dir:make_directory(Dir), Dir);
        {Found, _} -> moved(Found)
    end.

made(ok, Dir) -> halley_data_dir:place(Dir);
made(Error, _) -> Error.

%% Whether the segment's name still stands for this file, and its file system takes writes.
-spec check(file:name_all(), halley_history_segment:number_(), halley_data_dir:place()) ->
    ok | {error, term()}.
check(Dir, Number, Place) ->
    Path = halley_history_segment:path(Dir, Number),
    case halley_data_dir:place(Path) of
        {ok, Place} -> halley_data_dir:check_writable(Path);
        Found -> moved(Found)
    end.

moved({error, Reason}) when Reason =/= enoent, Reason =/= enotdir -> {error, Reason};
moved(_) -> {error, data_dir_moved}.

%% Failures of now: they end without anybody changing rights or names.
-spec may_pass(term()) -> boolean().
may_pass(Reason) ->
    lists:member(Reason, [enospc, edquot, erofs, eio, emfile, enfile, enomem]).
