%% Which directory the sockets between brain and edge are in.
%%
%% `edge.socket_dir' where that is set. Else it is `edge' in data.dir; and where that takes no
%% writes, as on a read-only mount, one in the first of XDG_RUNTIME_DIR, /run, /tmp and /dev/shm
%% that takes some. Its name is made of our user and of data.dir's inode, so that the next brain and
%% `./halley drain' find it again. Where sockets are listened on already, by an edge that outlived
%% its brain, they stay, whatever can be written to by now.
%%
%% No other user of the machine may talk to the edge: the directory is the owner's alone. Another
%% user may have made one by that name in /tmp: a directory that isn't ours, or a link, isn't used.
-module(halley_edge_directory).

-export([choose/1, all/2, leave/1]).

-include_lib("kernel/include/file.hrl").
-include_lib("kernel/include/logger.hrl").

-define(BASES, ["/run", "/tmp", "/dev/shm"]).
-define(GROUP_OR_OTHERS, 8#077).
-define(PATH_BYTES_MAX, 90).

%% Makes it, if it isn't there.
-spec choose(halley_edge_process:config()) ->
    {ok, file:filename_all()} | {error, Line :: unicode:chardata()}.
choose(#{socket_dir := Dir}) ->
    case halley_edge_dial:check_path(halley_edge_dial:second_name(halley_edge_dial:path(Dir))) of
        ok ->
            choose(Dir, application:get_env(halley_edge, socket_dir_is_set, true));
        {error, {path_too_long, Bytes, Max}} ->
            {error, io_lib:format("edge.socket_dir: ~ts is too long for Unix sockets (a path of "
                                  "~b bytes, at most ~b)", [Dir, Bytes, Max])}
    end.

choose(Dir, true) ->
    prepared(Dir);
choose(Dir, false) ->
    Elsewhere = elsewhere(halley_data_dir:path()),
    case [Place || Place <- Elsewhere, is_ours(Place), is_listened_in(Place)] of
        [Place | _] ->
            {ok, Place};
        [] ->
            case is_listened_in(Dir) orelse is_written_to(Dir) of
                true -> prepared(Dir);
                false -> made(Elsewhere, Dir)
            end
    end.

%% All that it may be, for data.dir `Data'.
-spec all(file:filename_all(), Data :: file:filename_all()) -> [file:filename_all()].
all(Dir, Data) ->
    [Dir | elsewhere(Data)].

%% The edge has stopped: nothing of it stays where it was only for want of a better place.
-spec leave(file:filename_all()) -> ok.
leave(Dir) ->
    case lists:member(Dir, elsewhere(halley_data_dir:path())) of
        true ->
            ok = halley_pidfile:remove(),
            %% Names of sockets, and perhaps the pid file of a brain before.
            _ = file:del_dir_r(Dir),
            ok;
        false -> ok
    end.

elsewhere(Data) ->
    case halley_data_dir:place(Data) of
        {ok, {Device, Inode}} ->
            Name = io_lib:format("halley-~b-~b-~b", [halley_data_dir:own_uid(), Device, Inode]),
            Places = [filename:join(Base, Name) || Base <- bases()],
            [Place || Place <- Places,
                      byte_size(unicode:characters_to_binary(Place)) =< ?PATH_BYTES_MAX];
        {error, _} ->
            []
    end.

bases() ->
    case os:getenv("XDG_RUNTIME_DIR") of
        "/" ++ _ = Base -> [Base | ?BASES];
        _ -> ?BASES
    end.

%% Of this user, no link, and closed to others.
is_ours(Place) ->
    case file:read_link_info(Place, [raw]) of
        {ok, #file_info{type = directory, uid = Uid, mode = Mode}} ->
            Uid =:= halley_data_dir:own_uid() andalso Mode band ?GROUP_OR_OTHERS =:= 0;
        _ ->
            false
    end.

%% proc(5): the kernel lists the sockets that are bound, and drops them with their process.
is_listened_in(Dir) ->
    case file:read_file("/proc/net/unix") of
        {ok, Table} ->
            Prefix = [<<" ">>, unicode:characters_to_binary(Dir), <<"/">>],
            binary:match(Table, iolist_to_binary(Prefix)) =/= nomatch;
        {error, _} ->
            false
    end.

is_written_to(Dir) ->
    Probe = filename:join(Dir, "writable"),
    case halley_data_dir:make_directory(Dir) of
        ok ->
            case file:write_file(Probe, <<>>, [raw]) of
                ok -> _ = file:delete(Probe, [raw]), true;
                %% What else is wrong with it is said when it is prepared.
                {error, Reason} -> not is_full(Reason)
            end;
        {error, Reason} ->
            not is_full(Reason)
    end.

is_full(Reason) -> lists:member(Reason, [erofs, enospc, edquot, eio]).

made([Place | Places], Dir) ->
    %% Closed from the first moment by the umask of the launcher, and in any case before it is used.
    _ = case file:make_dir(Place) of
        ok -> file:change_mode(Place, 8#700);
        Exists -> Exists
    end,
    case is_ours(Place) andalso is_written_to(Place) of
        true ->
            ?LOG_WARNING("~ts takes no writes: the sockets between brain and edge are in ~ts",
                         [Dir, Place]),
            {ok, Place};
        false ->
            made(Places, Dir)
    end;
made([], Dir) ->
    {error, io_lib:format("edge.socket_dir: ~ts takes no writes, and there is no place for it in "
                          "~ts; set it to a directory of yours that does",
                          [Dir, lists:join(", ", bases())])}.

%% A directory of somebody else could have his sockets in it.
prepared(Dir) ->
    case {halley_data_dir:make_directory(Dir), halley_data_dir:check_owner(Dir)} of
        {ok, ok} -> private(make_private(Dir), Dir);
        {ok, {error, Sentence}} -> {error, ["edge.socket_dir: ", Sentence]};
        {Error, _} -> private(Error, Dir)
    end.

%% Where nothing can be written it may be so already.
make_private(Dir) ->
    case file:change_mode(Dir, 8#700) of
        ok -> ok;
        {error, erofs} ->
            case is_ours(Dir) of
                true -> ok;
                false -> {error, erofs}
            end;
        Error -> Error
    end.

private(ok, Dir) -> {ok, Dir};
private({error, Reason}, Dir) ->
    {error, io_lib:format("edge.socket_dir: cannot use ~ts: ~ts",
                          [Dir, file:format_error(Reason)])}.
