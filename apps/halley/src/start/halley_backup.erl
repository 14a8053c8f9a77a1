%% Copies `data.dir' to a folder that a brain can be started on, while one runs or not.
%%
%% It takes no lock and calls no process: all that is copied only grows or is replaced as a whole.
%%
%%   follows/     the newest checkpoint and the journal since, the last file cut after its last
%%                whole group: the graph as it stood at that moment
%%   history/     the segments, from the oldest on, read after the follows: an unfollow is noted in
%%                the history before the journal has it, so none is without its note
%%                `copied' says that it is a copy (`halley_history_copied')
%%   postgres/    and the like: files of applications above the brain, copied by their parts
%%                (`halley_part')
%%   server-keys, server-keys.made  the API's keys, and that there were any
%%   revocations  whose tokens are revoked
%%
%% Not copied are what is about this folder or this process: `*.position', `halley.pid', and of the
%% history `store' and `synced'. Without these a brain on the copy takes sequence numbers far above
%% all that were given out here, and tells a gap to a cursor from after the backup.
%%
%% Files are opened before any is read: one that is deleted meanwhile can be read on. If one is gone
%% before it was opened, the list was old, and is made anew.
%%
%% Everything is on disk when it returns, and the follows were recovered from the copy, as a start
%% does it. A failure leaves no copy.
-module(halley_backup).

-export([run/3]).

-import(halley_backup_files, [names/1, open_all/1, copy/3, copy_small/2, checked/2, failed/2]).

-export_type([result/0]).

-type result() :: #{ids := non_neg_integer(), follows := non_neg_integer(),
                    segments := non_neg_integer(), bytes := non_neg_integer()}.

-define(TRIES, 50).
-define(DIRECTORY_MODE, 8#700).

%% The error is one sentence.
-spec run(From :: file:filename(), To :: file:filename(), halley_progress:progress()) ->
    {ok, result()} | {error, unicode:chardata()}.
run(From, To, Progress) ->
    try
        check_source(From),
        IsMade = check_target(To),
        try
            {ok, copied(From, To, Progress)}
        catch
            throw:{error, _} = Failed ->
                ok = remove(To, IsMade),
                throw(Failed)
        end
    catch
        throw:{error, _} = Error -> Error
    end.

check_source(From) ->
    filelib:is_dir(From) orelse failed("data.dir: there is no ~ts", [From]),
    filelib:is_file(filename:join([From, "mnesia", "schema.DAT"]))
        andalso failed("data.dir: ~ts has the store of a build before; start Halley once, which "
                       "takes it over", [From]).

%% Whether the folder is made here.
check_target(To) ->
    case file:list_dir_all(To) of
        {ok, []} -> false;
        {ok, _} -> failed("~ts is not empty; a backup takes an empty folder, or one that is not "
                          "there", [To]);
        {error, enoent} ->
            checked(To, halley_data_dir:make_directory(To)),
            true;
        {error, Reason} -> failed("~ts: ~ts", [To, file:format_error(Reason)])
    end.

remove(To, true) ->
    _ = file:del_dir_r(To),
    ok;
remove(To, false) ->
    {ok, Names} = file:list_dir_all(To),
    lists:foreach(fun(Name) -> file:del_dir_r(filename:join(To, Name)) end, Names).

copied(From, To, Progress) ->
    checked(To, file:change_mode(To, ?DIRECTORY_MODE)),
    Parts = [Part:backup(From) || {_, Part} <- halley_part:all()],
    {FollowsBytes, Counts} = follows(From, To, Progress),
    PartsBytes = lists:sum([Copy(To, Progress) || Copy <- Parts, Copy =/= none]),
    {Segments, HistoryBytes} = copy_history(From, To, Progress),
    KeysBytes = copy_keys(From, To),
    checked(To, halley_data_dir:sync_directory(To)),
    checked(To, halley_data_dir:sync_directory(filename:dirname(filename:absname(To)))),
    Counts#{segments => Segments,
            bytes => FollowsBytes + PartsBytes + HistoryBytes + KeysBytes}.

%% --- follows -------------------------------------------------------------------------------------

%% A newest checkpoint that is damaged is made up for by the one before it, as a start does it.
follows(From, To, Progress) ->
    try
        copy_verified(From, To, 1, Progress)
    catch
        throw:{error, _} = Error ->
            case length(halley_store_journal:numbers("checkpoint-",
                                                     names(filename:join(From, "follows")))) of
                Count when Count > 1 ->
                    ok = remove(To, false),
                    copy_verified(From, To, Count, Progress);
                _ -> throw(Error)
            end
    end.

copy_verified(From, To, Checkpoints, Progress) ->
    Bytes = copy_follows(From, To, Checkpoints, Progress),
    ok = Progress("recovering the follows from the copy"),
    {Bytes, verify(To)}.

copy_follows(From, To, Checkpoints, Progress) ->
    Source = filename:join(From, "follows"),
    Target = filename:join(To, "follows"),
    case open_follows(Source, Checkpoints, ?TRIES) of
        [] -> 0;
        Files ->
            checked(Target, halley_data_dir:make_directory(Target)),
            Bytes = copy(Files, Target, Progress),
            cut(Target),
            checked(Target, halley_data_dir:sync_directory(Target)),
            Bytes
    end.

open_follows(Dir, _, 0) ->
    failed("~ts: its files change too fast to be copied", [Dir]);
open_follows(Dir, Checkpoints, Tries) ->
    Names = names(Dir),
    Journals = halley_store_journal:numbers("journal-", Names),
    Newest = lists:reverse(halley_store_journal:numbers("checkpoint-", Names)),
    Bases = lists:sublist(Newest, Checkpoints),
    Oldest = case Bases of [] -> 0; _ -> lists:last(Bases) end,
    Paths = [halley_store_checkpoint:path(Dir, N) || N <- Bases]
        ++ [halley_store_journal:path(Dir, N) || N <- Journals, N >= Oldest],
    case open_all(Paths) of
        {ok, Files} -> Files;
        gone -> open_follows(Dir, Checkpoints, Tries - 1)
    end.

%% The part of a group that was being written goes. One that has no header yet was made just now.
cut(Dir) ->
    Last = lists:last(halley_store_journal:numbers("journal-", names(Dir))),
    Path = halley_store_journal:path(Dir, Last),
    case halley_store_journal:read(Dir, Last, infinity, fun(_, ok) -> ok end, ok) of
        {ok, #{position := Position, tail := Tail}, ok} when Tail =/= damaged ->
            cut(Path, Position);
        {error, damaged_header} when Last > 1 ->
            checked(Path, file:delete(Path, [raw]));
        {ok, #{position := Position}, ok} ->
            failed("~ts is damaged at byte ~b; `./halley repair` says what can be saved and saves "
                   "it", [filename:basename(Path), Position]);
        {error, Reason} ->
            failed("~ts ~ts", [filename:basename(Path), halley_store_journal:describe(Reason)])
    end.

cut(Path, Position) ->
    case halley_store_file:open(Path, Position) of
        {ok, File} -> halley_store_file:close(File);
        {error, Reason} -> failed("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

%% --- history and keys ----------------------------------------------------------------------------

copy_history(From, To, Progress) ->
    Source = filename:join(From, "history"),
    Target = filename:join(To, "history"),
    case open_segments(Source, ?TRIES) of
        [] -> {0, 0};
        Files ->
            checked(Target, halley_data_dir:make_directory(Target)),
            Bytes = copy(Files, Target, Progress),
            More = halley_backup_files:written(filename:join(Target, "copied"),
                                               halley_history_copied:text_for_backup(Source)),
            checked(Target, halley_data_dir:sync_directory(Target)),
            {length(Files), Bytes + More}
    end.

open_segments(Dir, 0) ->
    failed("~ts: its files change too fast to be copied", [Dir]);
open_segments(Dir, Tries) ->
    Names = lists:sort([Name || Name <- names(Dir), filename:extension(Name) =:= ".log"]),
    case open_all([filename:join(Dir, Name) || Name <- Names]) of
        {ok, Files} -> Files;
        gone -> open_segments(Dir, Tries - 1)
    end.

%% What says that there were keys goes first: without it, keys that are gone would open the API.
copy_keys(From, To) ->
    lists:sum([copy_small(filename:join(From, Name), filename:join(To, Name))
               || Name <- ["server-keys.made", "server-keys", "revocations"]]).

%% --- the copy, read back -------------------------------------------------------------------------

%% As a start does it, but that the lock isn't needed: nobody else knows of the folder.
verify(To) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        application:set_env(halley, data_dir, To),
        ok = halley_ids:new_tables(),
        ok = halley_follows_owner:new_tables(),
        Self ! {self(), recovered(filename:join(To, "follows"))}
    end),
    receive
        {Pid, {ok, Counts}} -> demonitor(Monitor, [flush]), Counts;
        {Pid, {error, Line}} -> throw({error, Line});
        {'DOWN', Monitor, process, Pid, Reason} -> failed("the copy: ~0tP", [Reason, 30])
    end.

recovered(Dir) ->
    case halley_store_recovery:recover(Dir) of
        {ok, _} ->
            Ids = halley_ids_pages:fold(fun(Ids, _, N) -> N + length(Ids) end, 0),
            {ok, #{ids => Ids, follows => halley_follows_graph:size()}};
        {error, _} = Error ->
            Error
    end.
