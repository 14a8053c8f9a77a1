%% `data.dir': made for its owner alone, refused where it is not its owner's alone, locked, and
%% opened although nothing can be written in it.
-module(halley_data_dir_tests).

-include_lib("eunit/include/eunit.hrl").
-include_lib("kernel/include/file.hrl").

-define(NOBODY, 65534).

data_dir_test_() ->
    {foreach, fun start/0, fun stop/1,
     [fun(Dir) -> {Title, {timeout, 60, fun() -> Case(Dir) end}} end || {Title, Case} <- cases()]}.

cases() ->
    [{"a new one is its owner's alone", fun new_is_private/1},
     {"one that others can read is tightened, with what is in it", fun is_tightened/1},
     {"a link in it leads nowhere", fun link_is_not_followed/1},
     {"one that others can write to is refused", fun writable_is_refused/1},
     {"one of the own group is not", fun own_group_is_tightened/1},
     {"one of another user is refused", fun stranger_is_refused/1},
     {"one with a file of another user is refused", fun stranger_in_it_is_refused/1},
     {"a mounted file system that is everybody's is tightened", fun mounted_is_tightened/1},
     {"one that takes no writes any more is told", fun read_only_is_said/1},
     {"a sticky directory is refused", fun sticky_is_refused/1},
     {"a second brain is refused", fun second_is_refused/1},
     {"a brain of a build before is refused, and refuses", fun build_before_is_refused/1},
     {"it is in place until it is moved", fun in_place/1},
     {"one without room is opened", fun full_is_opened/1},
     {"a file is replaced as a whole, in steps that a crash can't part", fun is_replaced/1},
     {"a file that can't be replaced keeps what it has", fun is_not_replaced/1},
     {"a position is read back", fun position_is_read_back/1},
     {"a position that is torn is damaged", fun position_is_damaged/1},
     {"a position that can't be written is counted", fun position_fails/1}].

start() ->
    Parent = string:trim(os:cmd("mktemp -d")),
    Dir = filename:join(Parent, "data"),
    application:set_env(halley, data_dir, Dir),
    ok = halley_metrics:new(),
    Dir.

stop(Dir) ->
    ok = halley_data_dir:close(),
    _ = [persistent_term:erase({halley_position, Part}) || Part <- [history, follows]],
    ets:delete(halley_metrics_edge),
    application:unset_env(halley, data_dir),
    _ = os:cmd("umount " ++ Dir ++ " 2>/dev/null"),
    ok = file:del_dir_r(filename:dirname(Dir)).

open() -> halley_history_helper:silently(fun halley_data_dir:open/0).

mode(Path) ->
    {ok, #file_info{mode = Mode}} = file:read_file_info(Path),
    Mode band 8#777.

refused(Pattern) ->
    {error, Line} = open(),
    ?assertMatch({match, _}, re:run(Line, Pattern)).

new_is_private(Dir) ->
    application:set_env(halley, data_dir, filename:join([Dir, "a", "b"])),
    ok = open(),
    ?assertEqual(8#700, mode(filename:join([Dir, "a", "b"]))),
    ?assertEqual(filename:join([Dir, "a", "b"]), halley_data_dir:path()).

is_tightened(Dir) ->
    %% The last two are folders of parts.
    Files = [filename:join([Dir, Folder, "synced"]) || Folder <- ["history", "hooks", "postgres"]],
    Folders = [filename:dirname(File) || File <- Files],
    ok = lists:foreach(fun(File) ->
        ok = filelib:ensure_dir(File),
        ok = file:write_file(File, "1"),
        ok = file:change_mode(File, 8#644),
        ok = file:change_mode(filename:dirname(File), 8#755)
    end, Files),
    ok = file:change_mode(Dir, 8#755),
    ok = open(),
    ?assertEqual([8#700 || _ <- [Dir | Folders]], [mode(Path) || Path <- [Dir | Folders]]),
    ?assertEqual([8#600 || _ <- Files], [mode(File) || File <- Files]).

link_is_not_followed(Dir) ->
    ok = filelib:ensure_path(Dir),
    Outside = filename:join(filename:dirname(Dir), "outside"),
    ok = file:write_file(Outside, "1"),
    ok = file:change_mode(Outside, 8#644),
    ok = file:make_symlink(Outside, filename:join(Dir, "link")),
    ok = file:change_mode(Dir, 8#755),
    ok = open(),
    ?assertEqual([8#700, 8#644], [mode(Dir), mode(Outside)]).

writable_is_refused(Dir) ->
    ok = filelib:ensure_path(Dir),
    ok = file:change_mode(Dir, 8#757),
    refused("^data.dir: others can write to " ++ Dir ++ "; .*`chmod go-w " ++ Dir ++ "`$"),
    ?assertEqual(8#757, mode(Dir)).

own_group_is_tightened(Dir) ->
    ok = filelib:ensure_path(Dir),
    ok = file:change_mode(Dir, 8#775),
    ok = open(),
    ?assertEqual(8#700, mode(Dir)).

%% Only root can give a directory away.
stranger_is_refused(Dir) ->
    ok = filelib:ensure_path(Dir),
    case file:change_owner(Dir, ?NOBODY) of
        ok ->
            refused("^data.dir: " ++ Dir ++ " belongs to user 65534, and this runs as user 0; ");
        {error, eperm} ->
            ?assert(os:cmd("id -u") =/= "0\n")
    end.

stranger_in_it_is_refused(Dir) ->
    ok = filelib:ensure_path(filename:join(Dir, "history")),
    case file:change_owner(filename:join(Dir, "history"), ?NOBODY) of
        ok -> refused("^data.dir: " ++ Dir ++ "/history belongs to user 65534, and this runs as ");
        {error, eperm} -> ?assert(os:cmd("id -u") =/= "0\n")
    end.

mounted_is_tightened(Dir) ->
    ok = filelib:ensure_path(Dir),
    case os:cmd("mount -t tmpfs -o size=64k none " ++ Dir ++ " && echo mounted") of
        "mounted\n" ->
            ?assertEqual(8#777, mode(Dir)),
            ok = open(),
            ?assertEqual(8#700, mode(Dir));
        _ ->
            ?debugMsg("no right to mount: not tried")
    end.

read_only_is_said(Dir) ->
    ok = filelib:ensure_path(Dir),
    case os:cmd("mount -t tmpfs -o size=64k none " ++ Dir ++ " && echo mounted") of
        "mounted\n" ->
            Path = filename:join(Dir, "x"),
            ok = file:write_file(Path, <<"x">>),
            ?assertEqual(ok, halley_data_dir:check_writable(Path)),
            "" = os:cmd("mount -o remount,ro " ++ Dir),
            ?assertEqual({error, erofs}, halley_data_dir:check_writable(Path));
        _ ->
            ?debugMsg("no right to mount: not tried")
    end.

sticky_is_refused(Dir) ->
    ok = filelib:ensure_path(Dir),
    ok = file:change_mode(Dir, 8#1777),
    refused("^data.dir: others can write to ").

second_is_refused(Dir) ->
    ok = open(),
    Eval = "application:set_env(halley, data_dir, \"" ++ Dir ++ "\"),"
           "{error, Text} = halley_data_dir:open(), io:put_chars([Text, 10]), halt().",
    Command = "erl -noinput -pa " ++ filename:dirname(code:which(halley_data_dir))
              ++ " -eval '" ++ Eval ++ "'",
    ?assertEqual("data.dir: another running brain has " ++ Dir ++ " open\n", os:cmd(Command)),
    ok = halley_data_dir:close(),
    ?assertMatch({match, _}, re:run(os:cmd(Command), "badmatch")).

build_before_is_refused(Dir) ->
    Mnesia = filename:join(Dir, "mnesia"),
    ok = filelib:ensure_path(Mnesia),
    {ok, #file_info{major_device = Device, inode = Inode}} = file:read_file_info(Mnesia),
    Name = iolist_to_binary(io_lib:format("\0halley-store-~b-~b", [Device, Inode])),
    Address = #{family => local, path => Name},
    {ok, Before} = socket:open(local, dgram),
    ok = socket:bind(Before, Address),
    refused("another running brain has " ++ Dir ++ " open$"),
    ok = socket:close(Before),
    ok = open(),
    {ok, Late} = socket:open(local, dgram),
    ?assertEqual({error, eaddrinuse}, socket:bind(Late, Address)),
    ok = socket:close(Late).

in_place(Dir) ->
    ?assertNot(halley_data_dir:is_in_place()),
    ok = open(),
    ?assert(halley_data_dir:is_in_place()),
    ok = file:rename(Dir, Dir ++ ".moved"),
    ?assertNot(halley_data_dir:is_in_place()),
    ok = file:make_dir(Dir),
    ?assertNot(halley_data_dir:is_in_place()),
    ok = file:del_dir(Dir),
    ok = file:rename(Dir ++ ".moved", Dir),
    ?assert(halley_data_dir:is_in_place()).

%% A file system of its own, read-only and full, needs the right to mount.
full_is_opened(Dir) ->
    ok = filelib:ensure_path(Dir),
    case os:cmd("mount -t tmpfs -o size=64k,mode=700 none " ++ Dir ++ " && echo mounted") of
        "mounted\n" ->
            full = filled(filename:join(Dir, "filler"), 0),
            ok = open(),
            [] = os:cmd("mount -o remount,ro " ++ Dir),
            ok = open();
        _ ->
            ?debugMsg("no right to mount: not tried")
    end.

filled(Path, N) ->
    case file:write_file([Path, integer_to_list(N)], <<0:8192>>) of
        ok -> filled(Path, N + 1);
        {error, enospc} -> full
    end.

%% What a crash has left under the other name doesn't matter.
is_replaced(Dir) ->
    ok = filelib:ensure_path(Dir),
    Path = filename:join(Dir, "a file"),
    ok = file:write_file([Path, ".new"], binary:copy(<<"torn">>, 1000)),
    Steps = halley_file_steps:of_fun(fun() ->
        ok = halley_data_dir:replace_file(Path, ["first", $\n])
    end),
    ?assertEqual([{open, Path ++ ".new"}, change_mode, write, sync, close, {rename, Path},
                  {open, Dir}, sync, close], Steps),
    ?assertEqual({ok, <<"first\n">>}, file:read_file(Path)),
    ?assertEqual(8#600, mode(Path)),
    ok = halley_data_dir:replace_file(list_to_binary(Path), <<"2">>, fun() ->
        %% Nobody sees it before that is so.
        ?assertEqual({ok, <<"2">>}, file:read_file([Path, ".new"])),
        ?assertEqual({ok, <<"first\n">>}, file:read_file(Path)),
        ok
    end),
    ?assertEqual({ok, <<"2">>}, file:read_file(Path)),
    ?assertEqual({ok, ["a file"]}, file:list_dir(Dir)).

is_not_replaced(Dir) ->
    ok = filelib:ensure_path(filename:join([Dir, "directory", "in it"])),
    Path = filename:join(Dir, "file"),
    ok = halley_data_dir:replace_file(Path, <<"1">>),
    ?assertEqual({error, eacces},
                 halley_data_dir:replace_file(Path, <<"2">>, fun() -> {error, eacces} end)),
    ?assertEqual({ok, <<"1">>}, file:read_file(Path)),
    ?assertMatch({error, _}, halley_data_dir:replace_file(filename:join(Dir, "directory"), <<>>)),
    ?assertEqual({error, enoent},
                 halley_data_dir:replace_file(filename:join([Dir, "none", "file"]), <<>>)),
    {ok, Names} = file:list_dir(Dir),
    ?assertEqual(["directory", "file"], lists:sort(Names)).

without_room_test_() ->
    halley_disk_helper:tests("64k", [{"a file isn't replaced on a full disk", fun full_disk/1}]).

full_disk(Dir) ->
    Path = filename:join(Dir, "file"),
    ok = halley_data_dir:replace_file(Path, <<"1">>),
    ?assertEqual({error, enospc},
                 halley_data_dir:replace_file(Path, binary:copy(<<"2">>, 100000))),
    ?assertEqual({ok, <<"1">>}, file:read_file(Path)),
    ?assertEqual({ok, ["file"]}, file:list_dir(Dir)).

position_is_read_back(Dir) ->
    ok = filelib:ensure_path(Dir),
    ?assertEqual(none, halley_position:read(history)),
    ok = halley_position:write(history, binary:copy(<<"x">>, 400)),
    ok = halley_position:write(history, <<"12">>),
    ok = halley_position:write(follows, <<>>),
    ?assertEqual({ok, <<"12">>}, halley_position:read(history)),
    ?assertEqual({ok, <<>>}, halley_position:read(follows)),
    ?assertEqual(8#600, mode(filename:join(Dir, "history.position"))).

position_is_damaged(Dir) ->
    ok = filelib:ensure_path(Dir),
    ok = halley_position:write(history, <<"12">>),
    Path = filename:join(Dir, "history.position"),
    {ok, Bytes} = file:read_file(Path),
    [begin
         halley_history_helper:damage(Path, At, fun(Byte) -> Byte bxor 1 end),
         ?assertEqual(damaged, halley_position:read(history)),
         ok = file:write_file(Path, Bytes)
     end || At <- [0, 9, 10, 12, 14, 300, 511]],
    ok = file:write_file(Path, binary_part(Bytes, 0, 511)),
    ?assertEqual(damaged, halley_position:read(history)),
    %% The note of another part.
    ok = file:write_file(filename:join(Dir, "follows.position"), Bytes),
    ?assertEqual(damaged, halley_position:read(follows)).

position_fails(Dir) ->
    ok = filelib:ensure_path(filename:join(Dir, "history.position")),
    ok = meck:new(halley_metrics, [passthrough]),
    halley_history_helper:silently(fun() -> ok = halley_position:write(history, <<"12">>) end),
    Counted = meck:num_calls(halley_metrics, incr, [position_errors]),
    ok = meck:unload(halley_metrics),
    ?assertEqual(1, Counted),
    ?assertEqual(damaged, halley_position:read(history)).
