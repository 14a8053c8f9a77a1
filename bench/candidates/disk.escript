#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none +A 1
%% SQLite on a full disk, and what its driver does in the VM. No part of the product.
%%
%%   apt-get install erlang-p1-sqlite3
%%   escript bench/candidates/disk.escript        as root, because it mounts a tmpfs
-mode(compile).

main([]) ->
    load(),
    _ = rand:seed(exsss, 11),
    Dir = string:trim(os:cmd("mktemp -d")),
    try full(Dir), driver(Dir) after os:cmd("rm -rf " ++ Dir) end.

load() ->
    Source = filename:join(filename:dirname(escript:script_name()), "candidates.erl"),
    {ok, candidates, Code} = compile:file(Source, [binary, report]),
    {module, candidates} = code:load_binary(candidates, Source, Code).

%% --- A full disk

full(Top) ->
    io:format("~n## A full disk (tmpfs); what SQLite answers, in order~n"),
    [full(filename:join(Top, "tmpfs"), Locking) || Locking <- ["NORMAL", "EXCLUSIVE"]].

full(Dir, Locking) ->
    Settings = candidates:settings() -- ["PRAGMA locking_mode=EXCLUSIVE"],
    With = ["PRAGMA locking_mode=" ++ Locking | Settings],
    io:format("# locking_mode=~s~n", [Locking]),
    on_tmpfs(Dir, 4, fun() -> full_commits(Dir, With) end),
    [on_tmpfs(Dir, 16, fun() -> full_open(Dir, With, State) end) || State <- ["clean", "killed"]].

%% Leaves two copies beside Dir: `clean` has nothing in the WAL, `killed` has.
full_commits(Dir, Settings) ->
    Db = candidates:connect(Dir, Settings),
    ok = candidates:sql(Db, "CREATE TABLE t(k INTEGER PRIMARY KEY, b BLOB)"),
    {rowid, 1} = insert(Db, 100),
    ok = candidates:fold({sqlite, Dir, Db, undefined}),
    _ = candidates:copy(Dir, Dir ++ "-clean"),
    {rowid, 2} = insert(Db, 100),
    ok = candidates:sql(Db, "BEGIN"),
    [{rowid, _} = insert(Db, 100000) || _ <- lists:seq(1, 100)],
    said("a transaction of 100 x 100 KB that fits the cache: COMMIT, ROLLBACK",
         [candidates:sql(Db, "COMMIT"), candidates:sql(Db, "ROLLBACK")]),
    said("  rows then; a row of 100 bytes; rows", [rows(Db), insert(Db, 100), rows(Db)]),
    _ = candidates:sql(Db, "PRAGMA cache_size=-256"),
    ok = candidates:sql(Db, "BEGIN"),
    Answers = [insert(Db, 100000) || _ <- lists:seq(1, 100)],
    {Taken, After} = lists:splitwith(fun(Answer) -> element(1, Answer) =:= rowid end, Answers),
    said("one that doesn't: rows taken before the first error, rows taken after it, errors",
         [length(Taken), length([1 || {rowid, _} <- After]),
          lists:usort([Answer || {error, _, _} = Answer <- After])]),
    said("  its COMMIT; rows then; a row of 100 bytes",
         [candidates:sql(Db, "COMMIT"), rows(Db), insert(Db, 100)]),
    said("  copying the WAL into the database; rows",
         [candidates:sql(Db, "PRAGMA wal_checkpoint(TRUNCATE)"), rows(Db)]),
    _ = candidates:copy(Dir, Dir ++ "-killed"),
    sqlite3:close_timeout(Db, infinity).

full_open(Dir, Settings, State) ->
    Kept = Dir ++ "-" ++ State,
    {ok, Files} = file:list_dir(Kept),
    [{ok, _} = file:copy(filename:join(Kept, File), filename:join(Dir, File))
     || File <- Files, File =/= "db-shm"],
    Fill = filename:join(Dir, "fill"),
    _ = os:cmd("cat /dev/zero > " ++ Fill),
    Db = candidates:connect(Dir, Settings),
    said(["opened on a full disk, ", State, ": rows; files with sizes; a row of 100 bytes"],
         [rows(Db), [{File, filelib:file_size(filename:join(Dir, File))}
                     || File <- element(2, file:list_dir(Dir)), File =/= "fill"],
          insert(Db, 100)]),
    ok = file:delete(Fill),
    said("  with room again, same connection: a row of 100 bytes; rows",
         [insert(Db, 100), rows(Db)]),
    sqlite3:close_timeout(Db, infinity).

insert(Db, Bytes) ->
    candidates:sql(Db, <<"INSERT INTO t(b) VALUES(?)">>, [{blob, rand:bytes(Bytes)}]).

rows(Db) -> candidates:sql(Db, "SELECT count(*) FROM t").

said(What, Answers) ->
    io:format("~s:~n", [What]),
    [io:format("    ~0p~n", [brief(Answer)]) || Answer <- Answers].

brief([{columns, _}, {rows, [{N}]}]) -> N;
brief(Answer) -> Answer.

on_tmpfs(Dir, Megabytes, Fun) ->
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    "" = os:cmd(io_lib:format("mount -t tmpfs -o size=~bm tmpfs ~s", [Megabytes, Dir])),
    try Fun() after os:cmd("umount " ++ Dir) end.

%% --- The driver

driver(Top) ->
    io:format("~n## The driver~n"),
    Dir = filename:join(Top, "driver"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Db = candidates:connect(Dir, candidates:settings()),
    ok = candidates:sql(Db, "CREATE TABLE t(k INTEGER PRIMARY KEY, b BLOB)"),
    spawn(fun() -> timer:sleep(100), Db ! {a, message} end),
    Slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000000)"
           " SELECT max(i) FROM n",
    said("a statement whose answer is 3000000, while the connection's process gets {a, message};"
         " then two whose answers are 6 and 7",
         [candidates:sql(Db, Sql) || Sql <- [Slow, "SELECT 6", "SELECT 7"]]),
    erlang:system_monitor(self(), [{long_schedule, 20}]),
    ok = candidates:sql(Db, "BEGIN"),
    [insert(Db, 1000000) || _ <- lists:seq(1, 160)],
    ok = candidates:sql(Db, "COMMIT"),
    Killed = candidates:copy(Dir, Dir ++ "-killed"),
    said("160 MB written: who kept a scheduler for more than 20 ms", long_schedules([])),
    sqlite3:close_timeout(Db, infinity),
    said("closed, and by that the WAL copied: the same", long_schedules([])),
    Again = candidates:connect(Killed, candidates:settings()),
    said("opened as after kill -9, the WAL recovered: rows", [rows(Again)]),
    said("  the same", long_schedules([])),
    erlang:system_monitor(undefined),
    sqlite3:close_timeout(Again, infinity),
    Child = "{ok, D} = sqlite3:open(d, [{file, \"" ++ Dir ++ "/shm\"}]),"
            "[sqlite3:sql_exec(D, Q) || Q <- [\"PRAGMA journal_mode=WAL\", \"CREATE TABLE t(k)\"]],"
            "{ok, F} = file:open(\"" ++ Dir ++ "/shm-shm\", [read, write]), file:truncate(F),"
            "sqlite3:sql_exec(D, \"INSERT INTO t VALUES(1)\"), io:format(\"alive\"), halt(0).",
    said("a VM whose connection's -shm file was cut to nothing (normal locking): its exit code",
         [os:cmd("erl -noshell -eval '" ++ Child ++ "' 2>/dev/null; echo $?")]).

long_schedules(Long) ->
    receive {monitor, Who, long_schedule, Info} ->
        long_schedules([{case is_port(Who) of true -> port; false -> process end, Info} | Long])
    after 200 -> lists:reverse(Long) end.
