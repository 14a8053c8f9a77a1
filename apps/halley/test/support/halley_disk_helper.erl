%% A file system of a test's own, which it can fill. A full disk or one that goes read-only can't be
%% played: the kernel's own answers are what is tested.
-module(halley_disk_helper).

-export([tests/2, mount/2, unmount/1, fill/1, fill/2, free/1]).

%% Tests of EUnit, which can't skip: each is `Fun(Dir)' on a disk of that size (`16m', `64k'). For
%% another user than root there are none, so that nothing is counted as passed, and a line says so.
tests(Size, Cases) ->
    case is_root() of
        true ->
            [{timeout, 180, {Title, fun() -> mounted(Size, Fun) end}} || {Title, Fun} <- Cases];
        false ->
            [io:format(user, "left out, as mounting a small disk takes root: ~ts~n", [Title])
             || {Title, _} <- Cases],
            []
    end.

mounted(Size, Fun) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    try
        mounted_at(Dir, Size),
        Fun(Dir)
    after
        unmount(Dir),
        _ = file:del_dir(Dir)
    end.

%% Mounts a disk of that size at the folder of a case of Common Test. For another user than root the
%% case is skipped: only root may mount a file system, and CI is root, so there none is skipped.
mount(Dir, Size) ->
    is_root() orelse throw({skip, "only root may mount a file system: run it as root, as CI does"}),
    mounted_at(Dir, Size).

%% For root a mount that fails is a failure, so that a run as root leaves no case out.
mounted_at(Dir, Size) ->
    Said = os:cmd("mount -t tmpfs -o mode=700,size=" ++ Size ++ " halley-test " ++ Dir ++ " 2>&1"),
    Said =:= "" orelse error({no_mount, Said}),
    Dir.

is_root() -> os:cmd("id -u") =:= "0\n".

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
