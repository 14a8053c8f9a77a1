%% A file system of a test's own, which it can fill. A full disk or one that goes read-only can't be
%% played: the kernel's own answers are what is tested.
-module(halley_disk_helper).

-export([tests/2, mount/2, unmount/1, fill/1, fill/2, free/1]).

-define(NEEDS_ROOT,
        "the case fills a small disk of its own, and the kernel lets only root mount one. Run it "
        "as root, or without root by: unshare --map-root-user --mount rebar3 ct --suite=...").

%% Tests of EUnit, which can't skip: each is `Fun(Dir)' on a disk of that size (`16m', `64k'). For
%% another user than root there are none, so that nothing is counted as passed, and a line says so.
tests(Size, Cases) ->
    case is_root() of
        true ->
            [{timeout, 180, {Title, fun() -> mounted(Size, Fun) end}} || {Title, Fun} <- Cases];
        false ->
            [io:format(user, "left out: ~ts: ~ts~n", [Title, ?NEEDS_ROOT])
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

%% Mounts a disk of that size at the folder of a case of Common Test. Without root the kernel
%% refuses the mount, and there is nothing to test: the case is skipped. CI is root, and skips none.
%% Any other user is root in a namespace of its own, where the same mount is allowed.
mount(Dir, Size) ->
    is_root() orelse throw({skip, ?NEEDS_ROOT}),
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
