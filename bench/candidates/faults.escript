#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none +A 1
%% What SQLite and plain files say of damaged files, and what neither says. No part of the product.
%%
%%   apt-get install erlang-p1-sqlite3
%%   escript bench/candidates/faults.escript
-mode(compile).

-define(FAULTS, 400).

main([]) ->
    load(),
    _ = rand:seed(exsss, 11),
    Dir = string:trim(os:cmd("mktemp -d")),
    try faults(Dir) after os:cmd("rm -rf " ++ Dir) end.

load() ->
    Source = filename:join(filename:dirname(escript:script_name()), "candidates.erl"),
    {ok, candidates, Code} = compile:file(Source, [binary, report]),
    {module, candidates} = code:load_binary(candidates, Source, Code).

faults(Top) ->
    io:format("~n## Faults: ~b cases of each, the files in turn, as kill -9 leaves them~n"
              "# silently: rows are missing or older and nothing said so; the CRC of each row was~n"
              "# checked. Of those: seen by quick_check, by integrity_check, by checks of our own~n"
              "# (count, total, gaps, note), and left by all of them. Files have our own always.~n"
              "# readable: per cent of the last rows that a repair could still read~n",
              [?FAULTS]),
    io:format("~-16s~-11s~7s~10s~10s~10s~10s~5s~6s~9s~n",
              ["store, fault", "file", "equal", "reported", "silently", "quick_ch", "integrity",
               "own", "left", "readable"]),
    [faults(Name, Fault, filename:join(Top, Name))
     || Name <- [sqlite, file], lived(Name, filename:join(Top, Name)),
        Fault <- [flip, cut, remove, older]].

%% Three checkpoints and groups after each; a copy of every tenth group's state is an older one.
%% SQLite's WAL holds the third checkpoint and the groups after it.
lived(Name, Dir) ->
    _ = [file:del_dir_r(Old) || Old <- [Dir | filelib:wildcard(Dir ++ "-older*")]],
    Pages = [{Number * 7919, candidates:page()} || Number <- lists:seq(1, 400)],
    Changed = some_changed(Pages),
    New = [{Number * 7919 + 1, candidates:page()} || Number <- lists:seq(1, 10)],
    Changed2 = some_changed(Pages) ++ New,
    Pages2 = merged(Pages, Changed),
    Last = merged(Pages2, Changed2),
    Store1 = candidates:create(Name, Dir),
    ok = candidates:checkpoint(Store1, candidates:point(Pages, Pages, 0)),
    ok = candidates:fold(Store1),
    Store2 = candidates:renewed(Store1),
    tens(Store2, 1, 60),
    ok = candidates:checkpoint(Store2, candidates:point(Pages2, Changed, 30)),
    _ = candidates:copy(Dir, Dir ++ "-older-checkpoint"),
    ok = candidates:fold(Store2),
    Store3 = candidates:renewed(Store2),
    tens(Store3, 61, 80),
    ok = candidates:checkpoint(Store3, candidates:point(Last, Changed2, 80)),
    Store4 = candidates:renewed(Store3),
    tens(Store4, 81, 120),
    _ = candidates:copy(Dir, Dir ++ "-killed"),
    candidates:close(Store4),
    {Again, Whole} = candidates:open(Name, candidates:copy(Dir ++ "-killed", Dir ++ "-case")),
    candidates:close(Again),
    {ok, Read, Groups, []} = Whole,
    true = [{Key, Page} || {Key, Page, _} <- Read] =:= Last,
    true = [Seq || {Seq, _, _} <- Groups] =:= lists:seq(81, 120),
    put({expected, Name}, {Read, Groups}),
    true.

some_changed(Pages) ->
    [{Key, candidates:page()} || {Key, _} <- lists:sublist(candidates:shuffled(Pages), 40)].

merged(Pages, Changed) ->
    lists:sort(maps:to_list(maps:merge(maps:from_list(Pages), maps:from_list(Changed)))).

tens({_, Dir, _, _} = Store, First, Last) ->
    [begin
        candidates:groups(Store, Ten, [rand:bytes(7 + rand:uniform(505)) || _ <- lists:seq(1, 10)]),
        Ten + 9 < 120 andalso candidates:copy(Dir, Dir ++ "-older-" ++ integer_to_list(Ten))
    end || Ten <- lists:seq(First, Last, 10)].

faults(Name, Fault, Dir) ->
    {ok, All} = file:list_dir(Dir ++ "-killed"),
    Files = lists:sort(All),
    Cases = [begin
        File = lists:nth(N rem length(Files) + 1, Files),
        {File, one_fault(Name, Fault, File, Dir)}
    end || N <- lists:seq(1, ?FAULTS)],
    [show_faults(Name, Fault, File, [Result || {F, Result} <- Cases, F =:= File])
     || File <- Files].

one_fault(Name, Fault, File, Dir) ->
    Case = candidates:copy(Dir ++ "-killed", Dir ++ "-case"),
    Path = filename:join(Case, File),
    {ok, Bytes} = file:read_file(Path),
    At = rand:uniform(byte_size(Bytes)) - 1,
    case Fault of
        flip ->
            <<Head:At/binary, Byte, Tail/binary>> = Bytes,
            ok = file:write_file(Path, [Head, Byte bxor rand:uniform(255), Tail]);
        cut -> ok = file:write_file(Path, binary:part(Bytes, 0, At));
        remove -> ok = file:delete(Path);
        older ->
            Copies = filelib:wildcard(Dir ++ "-older-*"),
            Older = lists:nth(rand:uniform(length(Copies)), Copies),
            {ok, _} = file:copy(filename:join(Older, File), Path)
    end,
    Readable = readable(Name, candidates:copy(Case, Dir ++ "-salvage")),
    {Store, Result} = candidates:open(Name, Case),
    Pragmas = [Pragma || Name =:= sqlite, Pragma <- [quick_check, integrity_check],
                         element(3, Store) =/= undefined,
                         checked(element(3, Store), Pragma) =/= [{<<"ok">>}]],
    candidates:close(Store),
    {Readable, case Result of
        {error, _} -> reported;
        {ok, Pages, Groups, Doubts} ->
            case {Pages, Groups} =:= get({expected, Name}) of
                true -> equal;
                false -> {Pragmas, Doubts}
            end
    end}.

%% How many of the last pages and groups a repair that knows all keys could still read.
readable(sqlite, Dir) ->
    {Pages, Groups} = get({expected, sqlite}),
    Db = candidates:connect(Dir, candidates:settings()),
    Stands = fun(Sql, {Key, Bytes, _}) ->
        candidates:sql(Db, Sql, [Key, {blob, Bytes}]) =:= [{columns, ["1"]}, {rows, [{1}]}]
    end,
    Count = fun(Sql, Rows) -> length([1 || Row <- Rows, Stands(Sql, Row)]) end,
    Sum = Count(<<"SELECT 1 FROM page WHERE key=? AND bytes=?">>, Pages)
        + Count(<<"SELECT 1 FROM journal WHERE seq=? AND bytes=?">>, Groups),
    sqlite3:close_timeout(Db, infinity),
    Sum;
readable(file, Dir) ->
    {Pages, Groups} = get({expected, file}),
    Found = maps:from_keys(lists:append([case file:read_file(filename:join(Dir, File)) of
        {ok, Bytes} -> salvaged(Bytes);
        {error, enoent} -> []
    end || File <- ["checkpoint", "journal"]]), found),
    length([1 || Row <- Pages ++ Groups, is_map_key(Row, Found)]).

%% Records that are whole, wherever they begin.
salvaged(<<Size:32, Crc:32, Key:64, Bytes:Size/binary, Rest/binary>> = All) ->
    case erlang:crc32(erlang:crc32(<<Key:64>>), Bytes) of
        Crc -> [{Key, Bytes, Crc} | salvaged(Rest)];
        _ -> salvaged(binary:part(All, 1, byte_size(All) - 1))
    end;
salvaged(<<_, Rest/binary>>) -> salvaged(Rest);
salvaged(<<>>) -> [].

checked(Db, Pragma) ->
    case candidates:sql(Db, "PRAGMA " ++ atom_to_list(Pragma)) of
        [_, {rows, Rows}] -> Rows;
        Error -> Error
    end.

show_faults(Name, Fault, File, Cases) ->
    {Readable, Results} = lists:unzip(Cases),
    {Pages, Groups} = get({expected, Name}),
    Silent = [Result || {_, _} = Result <- Results],
    Seen = fun(Pragma) -> length([1 || {Pragmas, _} <- Silent, lists:member(Pragma, Pragmas)]) end,
    io:format("~-16s~-11s~7b~10b~10b~10b~10b~5b~6b~9.1f~n",
              [io_lib:format("~s, ~s", [Name, Fault]), File,
               length([1 || equal <- Results]), length([1 || reported <- Results]),
               length(Silent), Seen(quick_check), Seen(integrity_check),
               length([1 || {_, [_ | _]} <- Silent]), length([1 || {[], []} <- Silent]),
               100 * lists:sum(Readable) / length(Readable) / length(Pages ++ Groups)]).
