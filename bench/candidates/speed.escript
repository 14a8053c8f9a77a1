#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none +A 1
%% SQLite against plain files, in turns: checkpoints, groups, opening. No part of the product.
%%
%%   apt-get install erlang-p1-sqlite3
%%   escript bench/candidates/speed.escript
%%
%% 55,625 pages: two directions of 20,000 and a page for 64 of 1,000,000 ids. The processor's time
%% is that of all threads, the kernel's part of it included.
-mode(compile).

-define(ROUNDS, 5).
-define(CHANGED, 1000).

main([]) ->
    load(),
    _ = rand:seed(exsss, 11),
    Dir = string:trim(os:cmd("mktemp -d")),
    try speed(Dir) after os:cmd("rm -rf " ++ Dir) end.

load() ->
    Source = filename:join(filename:dirname(escript:script_name()), "candidates.erl"),
    {ok, candidates, Code} = compile:file(Source, [binary, report]),
    {module, candidates} = code:load_binary(candidates, Source, Code).

speed(Dir) ->
    Pages = pages(1000000),
    Total = lists:sum([byte_size(Page) || {_, Page} <- Pages]),
    io:format("~n## Speed: ~b pages, ~b MB; medians of ~b rounds in turns~n",
              [length(Pages), Total div 1000000, ?ROUNDS]),
    Rounds = [{Name, Figure, Value} || Round <- lists:seq(1, ?ROUNDS), Name <- [sqlite, file],
                                       {Figure, Value} <- round(Name, Dir, Round, Pages)],
    Figures = lists:usort([Figure || {_, Figure, _} <- Rounds]),
    io:format("~-40s~18s~18s~19s~n", ["wall ms (processor ms)", "SQLite", "files", "SQLite/files"]),
    [show(Figure, median(Rounds, sqlite, Figure), median(Rounds, file, Figure))
     || Figure <- Figures],
    [io:format("~s on disk: ~s MiB~n", [Name, string:trim(os:cmd(
        "du -sm " ++ filename:join(Dir, Name) ++ " | cut -f1"))]) || Name <- [sqlite, file]].

round(Name, Top, Round, Pages) ->
    Dir = filename:join(Top, Name),
    Old = case Round of
        1 -> candidates:create(Name, Dir);
        _ -> element(1, candidates:open(Name, Dir))
    end,
    Some = lists:sublist(candidates:shuffled(Pages), ?CHANGED),
    Changed = [{Key, candidates:page()} || {Key, _} <- Some],
    All = candidates:point(Pages, Pages, 0),
    Merged = maps:merge(maps:from_list(Pages), maps:from_list(Changed)),
    Few = candidates:point(lists:sort(maps:to_list(Merged)), Changed, 0),
    Groups = [rand:bytes(7 + rand:uniform(505)) || _ <- lists:seq(1, 500)],
    Rows = [rand:bytes(800000) || _ <- lists:seq(1, 20)],
    {WholeMs, _} = Whole = measure(fun() -> candidates:checkpoint(Old, All) end),
    Before = [{"1 checkpoint of all pages", Whole},
              {"1a longest wait of a group meanwhile", {waited(Name, Top, All, WholeMs), 0}},
              {"1b copying the WAL after it", measure(fun() -> candidates:fold(Old) end)},
              {"2 checkpoint, 1,000 pages changed",
               measure(fun() -> candidates:checkpoint(Old, Few) end)},
              {"2b copying the WAL after it", measure(fun() -> candidates:fold(Old) end)}],
    Store = candidates:renewed(Old),
    After = [{"3 500 groups of 8 to 512 bytes",
              measure(fun() -> candidates:groups(Store, 1, Groups) end)},
             {"4 20 journal rows of 800 KB",
              measure(fun() -> candidates:groups(Store, 501, Rows) end)}],
    ok = candidates:checkpoint(Store, candidates:point(Pages, Pages, 520)),
    Killed = candidates:copy(Dir, filename:join(Top, "killed")),
    {KilledTime, Table} = open_measured(Name, Killed),
    true = ets:info(Table, size) =:= length(Pages),
    ets:delete(Table),
    Closing = measure(fun() -> candidates:fold(Store), candidates:close(Store) end),
    {ClosedTime, Again} = open_measured(Name, Dir),
    ets:delete(Again),
    Checks = [{Pragma, measure(fun() -> check(Dir, Pragma) end)}
              || Name =:= sqlite, Pragma <- [quick_check, integrity_check]],
    Before ++ After ++ [{"5 opening after kill -9 at a checkpoint", KilledTime},
              {"6 closing", Closing},
              {"7 opening after closing", ClosedTime} | Checks].

%% SQLite has one writer, so a group waits for the checkpoint's transaction. The checkpoint of files
%% is written by a process of its own, here into a folder of its own, while the journal goes on.
waited(sqlite, _, _, WholeMs) -> WholeMs;
waited(file, Top, Point, _) ->
    Journal = candidates:create(file, filename:join(Top, "waiting")),
    Beside = filename:join(Top, "beside"),
    {_, Monitor} = spawn_monitor(fun() ->
        candidates:checkpoint(candidates:create(file, Beside), Point)
    end),
    Longest = longest_group(Journal, Monitor, 1, 0),
    candidates:close(Journal),
    Longest.

longest_group(Journal, Monitor, Seq, Longest) ->
    receive {'DOWN', Monitor, process, _, normal} -> Longest
    after 0 ->
        Start = erlang:monotonic_time(microsecond),
        ok = candidates:groups(Journal, Seq, [rand:bytes(200)]),
        Ms = (erlang:monotonic_time(microsecond) - Start) / 1000,
        longest_group(Journal, Monitor, Seq + 1, max(Ms, Longest))
    end.

check(Dir, Pragma) ->
    Db = candidates:connect(Dir, candidates:settings()),
    [{<<"ok">>}] = checked(Db, Pragma),
    sqlite3:close_timeout(Db, infinity).

open_measured(Name, Dir) ->
    Time = measure(fun() ->
        {Store, {ok, Read, _, []}} = candidates:open(Name, Dir),
        Table = ets:new(pages, [ordered_set, public]),
        true = ets:insert(Table, Read),
        put(opened, {Store, Table})
    end),
    {Store, Table} = erase(opened),
    candidates:close(Store),
    {Time, Table}.

%% Two directions of 20,000 pages of up to 4 KB, and 64 ids a page.
pages(Users) ->
    [{Kind bsl 60 bor (Number * 7919), candidates:page()}
     || Kind <- [0, 1], Number <- lists:seq(1, 20000)]
        ++ [{2 bsl 60 bor Number, rand:bytes(64 * 16)} || Number <- lists:seq(1, Users div 64)].

%% --- Measures

%% {Wall, Processor} in ms.
measure(Fun) ->
    erlang:garbage_collect(),
    Cpu = processor_ns(),
    Start = erlang:monotonic_time(microsecond),
    _ = Fun(),
    Wall = (erlang:monotonic_time(microsecond) - Start) / 1000,
    {Wall, (processor_ns() - Cpu) div 1000000}.

%% Of all threads; statistics(runtime) leaves out the kernel's part.
processor_ns() ->
    lists:sum([begin
        {ok, Text} = file:read_file(File),
        binary_to_integer(hd(binary:split(Text, <<" ">>)))
    end || File <- filelib:wildcard("/proc/self/task/*/schedstat")]).

median(Rounds, Name, Figure) ->
    case [Value || {N, F, Value} <- Rounds, N =:= Name, F =:= Figure] of
        [] -> none;
        Values ->
            {Walls, Cpus} = lists:unzip(Values),
            Middle = (length(Values) + 1) div 2,
            {lists:nth(Middle, lists:sort(Walls)), lists:nth(Middle, lists:sort(Cpus))}
    end.

show(Figure, {Wall, Cpu}, none) ->
    io:format("~-40s~10.1f ~7s~n", [Figure, Wall, io_lib:format("(~b)", [Cpu])]);
show(Figure, {Wall, Cpu}, {FileWall, FileCpu}) ->
    io:format("~-40s~10.1f ~7s~10.1f ~7s~10s~9s~n",
              [Figure, Wall, io_lib:format("(~b)", [Cpu]), FileWall,
               io_lib:format("(~b)", [FileCpu]), ratio(Wall, FileWall),
               ["(", ratio(Cpu, FileCpu), ")"]]).

ratio(_, B) when B < 1 -> "-";
ratio(A, B) -> io_lib:format("~.2f", [A / B]).

checked(Db, Pragma) ->
    case candidates:sql(Db, "PRAGMA " ++ atom_to_list(Pragma)) of
        [_, {rows, Rows}] -> Rows;
        Error -> Error
    end.
