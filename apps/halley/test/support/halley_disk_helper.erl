%% A file system of a test's own, which it can fill.
-module(halley_disk_helper).

-export([mounted/2, mount/2, unmount/1, fill/1, fill/2, free/1]).

-define(TAKES_ROOT, "it fills a disk, which only root may mount; run it as root").

%% Runs `Fun(Dir)' on a disk of that size (`16m', `64k') for EUnit, which can't skip: another user
%% than root is told that nothing was tested.
mounted(Size, Fun) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    try try_mount(Dir, Size) of
        true -> Fun(Dir);
        false -> io:format(user, "skipped: " ?TAKES_ROOT "~n", [])
    after
        unmount(Dir),
        _ = file:del_dir(Dir)
    end.

%% Mounts a disk of that size at the folder of a case of Common Test.
mount(Dir, Size) ->
    case try_mount(Dir, Size) of
        true -> Dir;
        false -> throw({skip, ?TAKES_ROOT})
    end.

%% A full disk can't be played. For root a mount that fails is a failure, so that a run as root
%% (CI's is one) leaves no case out.
try_mount(Dir, Size) ->
    Said = os:cmd("mount -t tmpfs -o mode=700,size=" ++ Size ++ " halley-test " ++ Dir ++ " 2>&1"),
    case {Said, os:cmd("id -u")} of
        {"", _} -> true;
        {_, "0\n"} -> error({no_mount, Said});
        _ -> false
    end.

%% Nothing is mounted there after cases that didn't ask for it.
unmount(Dir) ->
    _ = os:cmd("umount -l " ++ Dir ++ " 2>&1"),
    ok.

fill(Dir) -> fill(Dir, 0).

%% All but so many bytes.
fill(Dir, Left) ->
    File = filler(Dir),
    _ = os:cmd("dd if=/dev/zero bs=4k of=" ++ File ++ " 2>&1"),
    {ok, Fd} = file:open(File, [read, write, raw]),
    {ok, End} = file:position(Fd, eof),
    {ok, _} = file:position(Fd, max(0, End - Left)),
    ok = file:truncate(Fd),
    ok = file:close(Fd).

free(Dir) -> ok = file:delete(filler(Dir)).

filler(Dir) -> filename:join(Dir, "filler").
