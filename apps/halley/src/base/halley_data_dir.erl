%% `data.dir': made, checked and locked before anything in it is opened.
%%
%% Its content is for one user: directories are 0700 and files 0600, whatever the umask. A directory
%% that others can read is tightened, with what Halley has in it, and one line in the log says so.
%% One that others can write to, or that belongs to another user than the brain's or root, or has
%% something in it that does, is refused: its files may be another user's. The top of a mounted file
%% system is an exception, as that of a tmpfs is made for all users, but sticky: no user can have
%% replaced another's files there, so it is tightened.
%%
%% A full disk or a read-only file system doesn't fail `open/0': what is there can still be read,
%% and each part says for itself that it can't write.
%%
%% The lock is a Unix socket in the abstract namespace, named after the directory's inode. The
%% kernel drops it with the process, however that ends; nothing listens on it. Builds before this
%% one locked `<data.dir>/mnesia', so where that exists its lock is taken as well.
-module(halley_data_dir).

-include_lib("kernel/include/file.hrl").
-include_lib("kernel/include/logger.hrl").

-export([open/0, close/0, path/0, is_in_place/0]).
-export([place/1, check_writable/1]).
-export([make_directory/1, make_private/1, sync_directory/1, replace_file/2, replace_file/3]).
-export([check_owner/1, own_uid/0]).
-export_type([place/0]).

-define(DIRECTORY_MODE, 8#700).
-define(FILE_MODE, 8#600).
-define(GROUP_OR_OTHERS, 8#077).
-define(GROUP_WRITES, 8#020).
-define(OTHERS_WRITE, 8#002).
-define(STICKY, 8#1000).
%% Everybody's, and to stay so.
-define(PUBLIC, ["/tmp", "/var/tmp", "/dev/shm"]).
%% What is tightened in it, besides the names of parts (`halley_part').
-define(OWN, ["follows", "history", "mnesia", "server-keys", "history.position",
              "follows.position"]).

%% Which file or directory a name stands for.
-type place() :: {Device :: non_neg_integer(), Inode :: non_neg_integer()}.

%% The error is one sentence for the operator; it names the configuration key to look at.
-spec open() -> ok | {error, Line :: binary()}.
open() ->
    ok = close(),
    Path = configured(),
    steps([fun() -> existing(make_directory(Path), Path) end,
           fun() -> check_owner(Path, fun error_text/2) end,
           fun() -> check_entries(Path) end,
           fun() -> probe(Path) end,
           fun() -> lock("halley-data", Path, Path) end,
           fun() -> lock_of_before(Path) end,
           fun() -> tighten(Path) end,
           fun() -> remember(Path) end]).

steps([Step | Steps]) ->
    case Step() of
        ok -> steps(Steps);
        {error, _} = Error ->
            ok = close(),
            Error
    end;
steps([]) -> ok.

-spec close() -> ok.
close() ->
    lists:foreach(fun(Socket) -> _ = socket:close(Socket) end,
                  persistent_term:get({?MODULE, locks}, [])),
    _ = persistent_term:erase({?MODULE, locks}),
    _ = persistent_term:erase(?MODULE),
    ok.

%% Absolute. Before `open/0' it is what the configuration says.
-spec path() -> string().
path() ->
    case persistent_term:get(?MODULE, none) of
        none -> configured();
        {Path, _} -> Path
    end.

configured() ->
    Configured = application:get_env(halley, data_dir, "data"),
    unicode:characters_to_list(filename:absname(Configured)).

%% Whether the path still names the directory that was opened.
-spec is_in_place() -> boolean().
is_in_place() ->
    case persistent_term:get(?MODULE, none) of
        none -> false;
        {Path, Place} -> place(Path) =:= {ok, Place}
    end.

remember(Path) ->
    case place(Path) of
        {ok, Place} -> persistent_term:put(?MODULE, {Path, Place});
        {error, Reason} -> unusable(Path, Reason)
    end.

-spec place(file:name_all()) -> {ok, place()} | {error, file:posix() | badarg}.
place(Path) ->
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{major_device = Device, inode = Inode}} -> {ok, {Device, Inode}};
        {error, _} = Error -> Error
    end.

%% Whether the file system of a file takes writes. What else keeps the file from being opened, such
%% as too few descriptors, says nothing about that.
-spec check_writable(file:name_all()) -> ok | {error, erofs | eio}.
check_writable(Path) ->
    case file:open(Path, [read, write, raw]) of
        {ok, File} ->
            _ = file:close(File),
            ok;
        {error, Reason} when Reason =:= erofs; Reason =:= eio -> {error, Reason};
        {error, _} -> ok
    end.

%% --- directories and files -----------------------------------------------------------------------

%% Makes a directory, and what is missing above it, that is readable for nobody else. Its name is
%% durable. One that exists is left as it is.
-spec make_directory(file:name_all()) -> ok | {error, term()}.
make_directory(Path) ->
    case filelib:is_dir(Path) of
        true -> ok;
        false ->
            case filelib:ensure_dir(Path) of
                ok -> made(file:make_dir(Path), Path);
                Error -> Error
            end
    end.

made(ok, Path) ->
    case file:change_mode(Path, ?DIRECTORY_MODE) of
        ok -> sync_directory(filename:dirname(Path));
        Error -> Error
    end;
made(Error, _) ->
    Error.

%% For a file that was just made.
-spec make_private(file:name_all()) -> ok | {error, term()}.
make_private(Path) ->
    file:change_mode(Path, ?FILE_MODE).

%% Makes the names in a directory durable.
-spec sync_directory(file:name_all()) -> ok | {error, term()}.
sync_directory(Path) ->
    case file:open(Path, [read, raw, directory]) of
        {ok, File} ->
            Result = file:sync(File),
            _ = file:close(File),
            Result;
        Error -> Error
    end.

%% Gives a file another content as a whole, readable for nobody else: after a crash it has the old
%% one or the new one. On disk when it returns; an error has changed nothing, unless it is of the
%% directory's sync: then a crash decides.
-spec replace_file(file:name_all(), iodata()) -> ok | {error, term()}.
replace_file(Path, Content) -> replace_file(Path, Content, fun() -> ok end).

%% `Before': what must be so when the file has its new content, done when that is on disk under
%% another name. Its error leaves the old content.
-spec replace_file(file:name_all(), iodata(), Before :: fun(() -> ok | {error, term()})) ->
    ok | {error, term()}.
replace_file(Path, Content, Before) ->
    New = unicode:characters_to_list([Path, ".new"]),
    case halley_steps:run([fun() -> write_synced(New, Content) end, Before,
                           fun() -> file:rename(New, Path) end,
                           fun() -> sync_directory(filename:dirname(Path)) end]) of
        ok -> ok;
        Error ->
            _ = file:delete(New),
            Error
    end.

write_synced(Path, Content) ->
    case file:open(Path, [write, raw, binary]) of
        {ok, File} ->
            Result = halley_steps:run([fun() -> make_private(Path) end,
                                       fun() -> file:write(File, Content) end,
                                       fun() -> file:sync(File) end]),
            _ = file:close(File),
            Result;
        Error -> Error
    end.

%% Whether a file or a directory may be trusted: it belongs to the brain's user or to root, and
%% nobody else can write to it. A group of the brain's own counts as itself. What isn't there is
%% fine. The error is one sentence, to be put behind the key that named the file.
-spec check_owner(file:name_all()) -> ok | {error, Sentence :: binary()}.
check_owner(Path) ->
    check_owner(Path, fun text/2).

check_owner(Path, Text) ->
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{uid = Uid, gid = Gid, mode = Mode}} ->
            {OwnUid, OwnGid} = own_ids(),
            IsOwn = lists:member(Uid, [OwnUid, 0]) orelse OwnUid =:= unknown,
            IsWritten = (Mode band ?OTHERS_WRITE =/= 0
                         orelse Mode band ?GROUP_WRITES =/= 0 andalso Gid =/= OwnGid)
                andalso not (Mode band ?STICKY =/= 0 andalso is_mounted(Path)),
            judge_owner(IsOwn, IsWritten, {Path, Uid, OwnUid}, Text);
        {error, _} ->
            ok
    end.

judge_owner(false, _, {Path, Uid, OwnUid}, Text) ->
    {error, Text("~ts belongs to user ~b, and this runs as user ~b; run it as that user, or if it "
                 "is yours `chown` it, or else take another", [Path, Uid, OwnUid])};
judge_owner(true, true, {Path, _, _}, Text) ->
    {error, Text("others can write to ~ts; see that what is in it is yours, then "
                 "`chmod go-w ~ts`", [Path, Path])};
judge_owner(true, false, _, _) ->
    ok.

%% Whether a file system of its own begins here.
is_mounted(Path) ->
    case {place(Path), place(filename:dirname(Path))} of
        {{ok, {Device, _}}, {ok, {Above, _}}} ->
            Device =/= Above andalso not lists:member(Path, ?PUBLIC);
        _ -> false
    end.

check_entries(Path) ->
    {OwnUid, _} = own_ids(),
    Names = case file:list_dir_all(Path) of {ok, All} -> All; {error, _} -> [] end,
    Foreign = [{Name, Uid} || Name <- Names, OwnUid =/= unknown,
                              {ok, #file_info{uid = Uid}} <- [info(filename:join(Path, Name))],
                              Uid =/= OwnUid, Uid =/= 0],
    case Foreign of
        [] -> ok;
        [{Name, Uid} | _] ->
            judge_owner(false, false, {filename:join(Path, Name), Uid, OwnUid}, fun error_text/2)
    end.

info(Path) -> file:read_link_info(Path, [raw]).

%% Whose files are ours.
-spec own_uid() -> non_neg_integer().
own_uid() ->
    {Uid, _} = own_ids(),
    true = is_integer(Uid),
    Uid.

%% proc(5): real, effective, saved, file system.
own_ids() ->
    case file:read_file("/proc/self/status") of
        {ok, Status} -> {own_id(<<"Uid">>, Status), own_id(<<"Gid">>, Status)};
        {error, _} -> {unknown, unknown}
    end.

own_id(Name, Status) ->
    {match, [Id]} = re:run(Status, <<"^", Name/binary, ":\\s+\\d+\\s+(\\d+)">>,
                           [multiline, {capture, all_but_first, list}]),
    list_to_integer(Id).

%% --- opening -------------------------------------------------------------------------------------

existing(ok, _) -> ok;
existing({error, Reason}, Path) -> unusable(Path, Reason).

unusable(Path, Reason) ->
    {error, error_text("cannot write in ~ts: ~ts", [Path, file:format_error(Reason)])}.

%% What refuses for want of room, or for now, may do so: what is there is served.
probe(Path) ->
    Probe = filename:join(Path, "writable"),
    case file:write_file(Probe, <<>>, [raw]) of
        ok ->
            _ = file:delete(Probe, [raw]),
            ok;
        {error, Reason} when Reason =:= enospc; Reason =:= edquot; Reason =:= erofs ->
            ?LOG_ERROR("data.dir: cannot write in ~ts: ~ts; what is there is served",
                       [Path, file:format_error(Reason)]);
        {error, Reason} ->
            unusable(Path, Reason)
    end.

lock_of_before(Path) ->
    Mnesia = filename:join(Path, "mnesia"),
    case filelib:is_dir(Mnesia) of
        true -> lock("halley-store", Mnesia, Path);
        false -> ok
    end.

lock(Prefix, Locked, Path) ->
    {ok, {Device, Inode}} = place(Locked),
    Name = io_lib:format("~s-~b-~b", [Prefix, Device, Inode]),
    {ok, Socket} = socket:open(local, dgram),
    case socket:bind(Socket, #{family => local, path => iolist_to_binary([0, Name])}) of
        ok ->
            Locks = persistent_term:get({?MODULE, locks}, []),
            persistent_term:put({?MODULE, locks}, [Socket | Locks]);
        {error, _} ->
            ok = socket:close(Socket),
            {error, error_text("another running brain has ~ts open", [Path])}
    end.

%% Only where the directory itself was open to others can anything in it have been read.
tighten(Path) ->
    {ok, #file_info{mode = Mode}} = file:read_file_info(Path, [raw]),
    case Mode band ?GROUP_OR_OTHERS of
        0 -> ok;
        _ -> tightened(tighten_all(Path), Path)
    end.

tightened(ok, Path) ->
    ?LOG_WARNING("data.dir: others could read ~ts; now its owner alone can", [Path]);
tightened({error, Reason}, Path) ->
    ?LOG_WARNING("data.dir: others can read ~ts, and that cannot be changed: ~ts",
                 [Path, file:format_error(Reason)]).

%% From the inside out: as long as something is open, the next start sees it at the top.
tighten_all(Path) ->
    Names = lists:append([?OWN | [Part:data() || {_, Part} <- halley_part:all()]]),
    Results = [tighten_below(filename:join(Path, Name)) || Name <- Names],
    halley_steps:first_error(Results ++ [file:change_mode(Path, ?DIRECTORY_MODE)]).

tighten_below(Path) ->
    case info(Path) of
        {ok, #file_info{type = directory}} ->
            Names = case file:list_dir_all(Path) of {ok, All} -> All; {error, _} -> [] end,
            Results = [tighten_below(filename:join(Path, Name)) || Name <- Names],
            halley_steps:first_error(Results ++ [file:change_mode(Path, ?DIRECTORY_MODE)]);
        {ok, #file_info{type = regular}} ->
            file:change_mode(Path, ?FILE_MODE);
        {ok, _} -> ok;
        {error, enoent} -> ok;
        Error -> Error
    end.

error_text(Format, Args) -> text("data.dir: " ++ Format, Args).

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).
