%% Halley's memory of PostgreSQL, harmed: files that are damaged, gone, or on a full disk, copies
%% that are cut short, and folders that come from a backup.
-module(halley_postgres_damage_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    sql/2, set_up/2, start_stream/1, stop_stream/0, begin_with/2, streaming/0, eventually/2,
    following/1, follows/1, gauge/1, rows/2, dropped_slot/1]).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [truncated_while_away, damaged_state, lost_folder, short_file_of_pairs,
     damaged_header_of_a_file_of_pairs, damaged_file_of_pairs, lost_slot_during_a_copy,
     note_of_what_was_applied, full_disk, full_disk_during_a_copy, backup_that_goes_on,
     backup_of_long_ago, backup_of_a_moment_with_changes].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

%% A follow of the API is there, and must always stay.
init_per_testcase(_, Config) ->
    Config1 = halley_postgres_test:init_per_testcase(Config),
    {ok, _} = halley:follow([{<<"0">>, <<"api">>}]),
    Config1.

end_per_testcase(_, Config) -> halley_postgres_test:end_per_testcase(Config).

graph(C) ->
    [{<<"0">>, <<"api">>} | rows(C, "select follower_id, followed_id from follows")].

%% Of all who ever were in a table here.
follows_are(Expected) ->
    Users = lists:usort([<<"0">> | [integer_to_binary(N) || N <- lists:seq(1, 60)]]),
    eventually(lists:sort(Expected), fun() ->
        lists:sort([{User, Subject} || User <- Users, Subject <- following(User)])
    end).

folder(Config) -> filename:join(?config(dir, Config), "postgres").

file_of_pairs(Config) ->
    [Path] = filelib:wildcard(filename:join(folder(Config), "pairs-*")),
    Path.

%% Rows 1 to 50, of which Halley knows; then it is away.
known_rows(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    ok = sql(C, "insert into follows select n, n % 3 + 100 from generate_series(1, 50) n"),
    follows_are(graph(C)),
    ok = sql(C, "delete from follows where follower_id > 45"),
    follows_are(graph(C)),
    stop_stream().

%% What happened meanwhile.
changed_rows(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "delete from follows where follower_id <= 20; insert into follows values (51, 7)").

is_right_again(Config) ->
    C = ?config(c, Config),
    start_stream(Config),
    streaming(),
    follows_are(graph(C)),
    ok = sql(C, "insert into follows values (52, 7) on conflict do nothing; "
                "delete from follows where follower_id = 30"),
    follows_are(graph(C)).

flip(Path, At) ->
    {ok, Bytes} = file:read_file(Path),
    <<Before:At/binary, Byte, Rest/binary>> = Bytes,
    ok = file:write_file(Path, [Before, Byte bxor 16#20, Rest]).

truncated_while_away(Config) ->
    known_rows(Config),
    ok = sql(?config(c, Config), "begin; truncate follows; insert into follows values (3, 9); "
                                 "commit"),
    is_right_again(Config),
    ?assertEqual(1, gauge("halley_postgres_copies_total")).

damaged_state(Config) ->
    known_rows(Config),
    changed_rows(Config),
    flip(filename:join(folder(Config), "state"), 20),
    is_right_again(Config),
    ?assertEqual(2, gauge("halley_postgres_copies_total")).

%% Nobody knows any more which follows were the table's: those whose rows are gone stay.
lost_folder(Config) ->
    C = ?config(c, Config),
    known_rows(Config),
    ok = file:del_dir_r(folder(Config)),
    is_right_again(Config),
    ok = sql(C, "truncate follows"),
    follows_are(graph(C)).

short_file_of_pairs(Config) ->
    known_rows(Config),
    Path = file_of_pairs(Config),
    {ok, Bytes} = file:read_file(Path),
    ok = file:write_file(Path, binary:part(Bytes, 0, 50)),
    is_right_again(Config),
    ?assertEqual(2, gauge("halley_postgres_copies_total")).

damaged_header_of_a_file_of_pairs(Config) ->
    known_rows(Config),
    flip(file_of_pairs(Config), 3),
    is_right_again(Config),
    ok = sql(?config(c, Config), "truncate follows"),
    follows_are(graph(?config(c, Config))).

%% The first block is good, and the one behind it isn't: what was only there stays, and is said.
damaged_file_of_pairs(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows values (1, 2)"),
    begin_with(Config, #{}),
    follows_are(graph(C)),
    FirstBytes = filelib:file_size(file_of_pairs(Config)),
    ok = sql(C, "insert into follows values (1, 3)"),
    follows_are(graph(C)),
    stop_stream(),
    flip(file_of_pairs(Config), FirstBytes + 10),
    dropped_slot(C),
    ok = sql(C, "delete from follows; insert into follows values (2, 3)"),
    start_stream(Config),
    follows_are([{<<"1">>, <<"3">>} | graph(C)]),
    %% The copy's own file is good.
    ok = sql(C, "truncate follows"),
    follows_are([{<<"1">>, <<"3">>} | graph(C)]).

lost_slot_during_a_copy(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows select n, 1000000 from generate_series(1, 100000) n"),
    set_up(Config, #{}),
    start_stream(Config),
    eventually(true, fun() -> halley_follows:count() > 1 end),
    ok = sql(C, "select pg_drop_replication_slot('halley')"),
    ok = sql(C, "delete from follows where follower_id <= 99990"),
    eventually(11, fun halley_follows:count/0),
    streaming(),
    ok = sql(C, "insert into follows values (1, 2)"),
    follows(#{<<"1">> => [<<"2">>], <<"99991">> => [<<"1000000">>]}).

%% --- disks ---------------------------------------------------------------------------------------

%% A small disk for data.dir/postgres alone: there it fills first.
on_small_disk(Config, Body) ->
    Folder = folder(Config),
    ok = filelib:ensure_path(Folder),
    Disk = halley_disk_helper:mount(Folder, "2m"),
    try Body(filename:join(Folder, "ballast"))
    after
        stop_stream(),
        halley_disk_helper:unmount(Disk)
    end.

fill(Ballast) -> os:cmd(["dd if=/dev/zero bs=4k of=", Ballast]).

%% Halley serves what it has, and takes nothing that it couldn't remember.
%% The file that says how far changes were taken beyond what is saved: damaged, cut, of another
%% time, or about a file of pairs whose end didn't come to the disk.
note_of_what_was_applied(Config) ->
    known_rows(Config),
    Path = filename:join(folder(Config), "applied"),
    Pairs = file_of_pairs(Config),
    Size = filelib:file_size(Pairs),
    Note = fun(Lsn, Bytes) ->
        Body = iolist_to_binary(jiffy:encode(#{
            lsn => Lsn, files => #{list_to_binary(filename:basename(Pairs)) => Bytes}})),
        <<"HALLEYPA", (byte_size(Body)):16, (erlang:crc32(Body)):32, Body/binary>>
    end,
    {ok, #{lsn := Lsn, tables := Tables}} = halley_postgres_state:read(),
    Future = 1 bsl 60,
    Taken = fun(Text) ->
        ok = file:write_file(Path, Text),
        Result = halley_postgres_applied:take(Tables, Lsn),
        ok = halley_postgres_applied:forget(),
        ?assertEqual(Tables, halley_postgres_applied:take(Tables, Lsn)),
        maps:values(maps:map(fun(_, #{bytes := B, from := From}) -> {B, From} end, Result))
    end,
    [#{bytes := Bytes, from := From}] = maps:values(Tables),
    [?assertEqual({Text, [{Bytes, From}]}, {Text, Taken(Text)})
     || Text <- [<<>>, <<"garbage">>, binary_part(Note(Future, Size), 0, 30),
                 binary:replace(Note(Future, Size), <<"files">>, <<"fires">>),
                 Note(Lsn, Size), Note(Future, Size + 1), Note(Future, Bytes - 1)]],
    ?assertEqual([{Size, Future}], Taken(Note(Future, Size))),
    Block = halley_postgres_pairs:block([{add, {<<"1">>, <<"2">>}}]),
    ok = file:write_file(Pairs, Block, [append]),
    Longer = Size + iolist_size(Block),
    ?assertEqual([{Longer, Future}], Taken(Note(Future, Longer))),
    ok = flip(Pairs, Longer - 2),
    ?assertEqual([{Bytes, From}], Taken(Note(Future, Longer))),
    changed_rows(Config),
    is_right_again(Config).

full_disk(Config) ->
    C = ?config(c, Config),
    on_small_disk(Config, fun(Ballast) ->
        begin_with(Config, #{}),
        ok = sql(C, "insert into follows values (1, 2)"),
        follows_are(graph(C)),
        _ = fill(Ballast),
        ok = sql(C, "insert into follows select n, 777 from generate_series(2, 40) n; "
                    "delete from follows where follower_id = 1"),
        eventually(true, fun() -> gauge("halley_postgres_failures_total") > 1 end),
        ?assertEqual([<<"api">>], following(<<"0">>)),
        ok = file:delete(Ballast),
        follows_are(graph(C))
    end).

full_disk_during_a_copy(Config) ->
    C = ?config(c, Config),
    ok = sql(C, "insert into follows select n, 777 from generate_series(1, 100) n"),
    set_up(Config, #{}),
    on_small_disk(Config, fun(Ballast) ->
        _ = fill(Ballast),
        start_stream(Config),
        eventually(true, fun() -> gauge("halley_postgres_failures_total") > 1 end),
        ok = sql(C, "delete from follows where follower_id > 50"),
        ok = file:delete(Ballast),
        streaming(),
        follows_are(graph(C))
    end).

%% --- backups -------------------------------------------------------------------------------------

backup(Config) -> backup(Config, fun(_) -> ok end).

%% By an emulator of its own, as the command does it. Before each step of it `Progress' is called
%% here.
backup(Config, Progress) ->
    From = ?config(dir, Config),
    {To, Ask} = {From ++ "-backup", From ++ "-ask"},
    Paths = [filename:dirname(code:which(Module))
             || Module <- [halley_backup, halley_postgres_backup, ?MODULE]],
    {ok, Peer, _} = peer:start_link(#{connection => standard_io, args => ["-pa" | Paths]}),
    Actor = halley_test_brain:spawn_actor(fun() ->
        peer:call(Peer, halley_backup, run, [From, To, fun(Doing) -> asks(Ask, Doing) end],
                  infinity)
    end),
    ok = answered(Actor, Ask, Progress),
    ?assertMatch({ok, #{segments := _}}, halley_test_brain:join(Actor)),
    ok = peer:stop(Peer),
    To.

asks(Ask, Doing) ->
    ok = file:write_file(Ask ++ "-new", Doing),
    ok = file:rename(Ask ++ "-new", Ask),
    waits(Ask).

waits(Ask) ->
    case filelib:is_file(Ask) of
        true -> timer:sleep(1), waits(Ask);
        false -> ok
    end.

answered({Pid, _} = Actor, Ask, Progress) ->
    case file:read_file(Ask) of
        {ok, Doing} ->
            ok = Progress(Doing),
            ok = file:delete(Ask),
            answered(Actor, Ask, Progress);
        {error, enoent} ->
            case is_process_alive(Pid) of
                true -> timer:sleep(1), answered(Actor, Ask, Progress);
                false -> ok
            end
    end.

%% This Halley ends; another one begins on the backup.
restored(To, Config) ->
    stop_stream(),
    ok = halley_test_brain:stop(Config),
    {ok, Keeper, [Brain]} = halley_test_keeper:start(To, [fun halley_sup:start_link/0]),
    lists:foldl(fun({Key, Value}, Acc) -> lists:keystore(Key, 1, Acc, {Key, Value}) end, Config,
                [{dir, To}, {keeper, Keeper}, {brain, Brain}]).

%% Nothing was confirmed since.
backup_that_goes_on(Config) ->
    known_rows(Config),
    To = backup(Config),
    changed_rows(Config),
    Restored = restored(To, Config),
    is_right_again(Restored),
    ?assertEqual(0, gauge("halley_postgres_copies_total")),
    ?assertNot(filelib:is_file(filename:join([To, "postgres", "copied"]))),
    stop_stream(),
    ok = halley_test_brain:stop(Restored).

backup_of_long_ago(Config) ->
    known_rows(Config),
    To = backup(Config),
    changed_rows(Config),
    is_right_again(Config),
    eventually(0, fun() -> gauge("halley_postgres_lag_bytes") end),
    Restored = restored(To, Config),
    ok = sql(?config(c, Config), "delete from follows where follower_id = 31"),
    is_right_again(Restored),
    ?assertEqual(1, gauge("halley_postgres_copies_total")),
    ?assertEqual(1, gauge("halley_postgres_losses_total")),
    stop_stream(),
    ok = halley_test_brain:stop(Restored).

%% A follow comes before the follows are copied, and ends behind that, before the files of pairs
%% are: the backup has the follow, and both in the file.
backup_of_a_moment_with_changes(Config) ->
    C = ?config(c, Config),
    known_rows(Config),
    start_stream(Config),
    streaming(),
    To = backup(Config, fun(Doing) ->
        case {Doing, get(has_followed)} of
            {<<"recovering", _/binary>>, true} ->
                ok = sql(C, "delete from follows where follower_id = 60"),
                follows(#{<<"60">> => []}),
                ok;
            {_, undefined} ->
                true = put(has_followed, true) =:= undefined,
                ok = sql(C, "insert into follows values (60, 7)"),
                follows(#{<<"60">> => [<<"7">>]});
            _ -> ok
        end
    end),
    changed_rows(Config),
    follows_are(graph(C)),
    %% Its position is further than the backup's now.
    eventually(0, fun() -> gauge("halley_postgres_lag_bytes") end),
    Restored = restored(To, Config),
    ?assertEqual([<<"7">>], following(<<"60">>)),
    is_right_again(Restored),
    ?assertEqual([], following(<<"60">>)),
    ?assertEqual(1, gauge("halley_postgres_copies_total")),
    stop_stream(),
    ok = halley_test_brain:stop(Restored).
