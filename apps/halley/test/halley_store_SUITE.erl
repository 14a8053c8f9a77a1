%% Acknowledged changes stay: under a full disk, damaged files, and a folder that goes away.
-module(halley_store_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([full_during_a_group/1, full_during_a_checkpoint/1, full_at_start/1, full_at_first_start/1,
         refusals_end_nothing/1, read_only_start/1, killed_at_first_start/1, folder_moved_away/1,
         owner_dies_while_moved/1, damage_is_never_silent/1,
         damaged_checkpoint_is_made_up_for/1, a_torn_group_is_cut/1, an_older_copy_is_refused/1,
         idle_checkpoint/1]).

-import(halley_store_helper, [id/1, agree/0]).
-import(halley_disk_helper, [fill/1, fill/2, free/1]).
-import(halley_damage_helper, [aged_store/1, copy/2, damage/3, damage/4, names/1, pairs/2]).

-define(DAMAGES, 400).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [full_during_a_group, full_during_a_checkpoint, full_at_start, full_at_first_start,
     refusals_end_nothing, read_only_start, killed_at_first_start, folder_moved_away,
     owner_dies_while_moved, damage_is_never_silent,
     damaged_checkpoint_is_made_up_for, a_torn_group_is_cut, an_older_copy_is_refused,
     idle_checkpoint].

init_per_suite(Config) ->
    Self = self(),
    Owner = spawn(fun() ->
        ets:whereis(halley_metrics_edge) =:= undefined andalso halley_metrics:new(),
        Self ! {self(), ready},
        receive stop -> ok end
    end),
    receive {Owner, ready} -> ok end,
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{metrics, Owner}, {level, Level} | Config].

end_per_suite(Config) ->
    ok = logger:set_primary_config(level, proplists:get_value(level, Config)),
    proplists:get_value(metrics, Config) ! stop,
    ok.

init_per_testcase(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_path(Dir),
    [{dir, Dir} | Config].

end_per_testcase(_, Config) ->
    Dir = proplists:get_value(dir, Config),
    case whereis(halley_store_sup) of
        undefined -> ok;
        Sup -> halley_store_helper:close(Sup)
    end,
    halley_disk_helper:unmount(Dir).

%% --- a full disk ---------------------------------------------------------------------------------

%% A disk at the case's folder.
small_disk(Config, Size) ->
    halley_disk_helper:mount(proplists:get_value(dir, Config), Size).

await_writable() -> halley_store_helper:await(fun() -> halley_store:refusing() =:= false end).

%% The first finding: everything that was acknowledged after a group that met a full disk was lost.
full_during_a_group(Config) ->
    Dir = small_disk(Config, "16m"),
    Sup = halley_store_helper:open(Dir),
    First = pairs(1, 100),
    {ok, _} = halley_follows:follow(First),
    fill(Dir),
    ?assertEqual({error, disk_full}, halley_follows:follow(pairs(1000, 5000))),
    ?assertEqual(disk_full, halley_store:refusing()),
    ?assertEqual({error, disk_full}, halley_follows:follow([{<<"x">>, <<"y">>}])),
    ?assertEqual(undefined, halley_ids:lookup(<<"x">>)),
    ?assertEqual(lists:sort(First), lists:sort(agree())),
    free(Dir),
    ok = await_writable(),
    Later = lists:append([begin
        Pairs = pairs(10000 + 10 * N, 10),
        {ok, _} = halley_follows:follow(Pairs),
        Pairs
    end || N <- lists:seq(1, 20)]),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:usort(First ++ Later), lists:sort(agree())).

%% The third one: a checkpoint cut the journal though its pages never reached the disk.
full_during_a_checkpoint(Config) ->
    Dir = small_disk(Config, "16m"),
    Sup = halley_store_helper:open(Dir),
    Pairs = lists:usort(pairs(1, 48000)),
    {ok, _} = halley_follows:follow(Pairs),
    fill(Dir, 100000),
    ?assertMatch({error, enospc}, halley_follows_owner:checkpoint()),
    ?assertEqual([], filelib:wildcard(filename:join([Dir, "follows", "*.new"]))),
    free(Dir),
    More = pairs(100000, 10),
    {ok, _} = halley_follows:follow(More),
    Reopened = halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:usort(Pairs ++ More), lists:sort(agree())),
    ok = halley_follows_owner:checkpoint(),
    halley_store_helper:reopen(Reopened, Dir),
    ?assertEqual(lists:usort(Pairs ++ More), lists:sort(agree())).

%% The fourth: a start on a full disk deleted logs.
full_at_start(Config) ->
    Dir = small_disk(Config, "16m"),
    Sup = halley_store_helper:open(Dir),
    Pairs = lists:usort(pairs(1, 5000)),
    {ok, _} = halley_follows:follow(Pairs),
    halley_store_helper:close(Sup),
    fill(Dir),
    Full = halley_store_helper:open(Dir),
    ?assertEqual(Pairs, lists:sort(agree())),
    ?assertEqual({error, disk_full}, halley_follows:follow(pairs(9000, 5000))),
    free(Dir),
    ok = await_writable(),
    {ok, _} = halley_follows:follow(pairs(9000, 10)),
    halley_store_helper:reopen(Full, Dir),
    ?assertEqual(lists:usort(Pairs ++ pairs(9000, 10)), lists:sort(agree())).

full_at_first_start(Config) ->
    Dir = small_disk(Config, "1m"),
    fill(Dir),
    Sup = halley_store_helper:open(Dir),
    ?assertEqual({error, disk_full}, halley_follows:follow([{<<"a">>, <<"b">>}])),
    free(Dir),
    ok = await_writable(),
    {ok, _} = halley_follows:follow([{<<"a">>, <<"b">>}]),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual([{<<"a">>, <<"b">>}], agree()).

%% The sixth: six refused requests within ten seconds ended the brain.
refusals_end_nothing(Config) ->
    Dir = small_disk(Config, "4m"),
    Sup = halley_store_helper:open(Dir),
    Owner = whereis(halley_follows_owner),
    fill(Dir),
    [?assertEqual({error, disk_full}, halley_follows:follow(pairs(1000 * N, 900)))
     || N <- lists:seq(1, 50)],
    ?assertEqual({Sup, Owner}, {whereis(halley_store_sup), whereis(halley_follows_owner)}).

read_only_start(Config) ->
    Dir = small_disk(Config, "4m"),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 10)),
    halley_store_helper:close(Sup),
    "" = os:cmd("mount -o remount,ro " ++ Dir),
    ReadOnly = halley_store_helper:open(Dir),
    ?assertEqual(lists:sort(pairs(1, 10)), lists:sort(agree())),
    ?assertEqual({error, {store_failed, failed}}, halley_follows:follow(pairs(100, 10))),
    "" = os:cmd("mount -o remount,rw " ++ Dir),
    ok = await_writable(),
    {ok, _} = halley_follows:follow(pairs(100, 10)),
    halley_store_helper:reopen(ReadOnly, Dir),
    ?assertEqual(lists:sort(pairs(1, 10) ++ pairs(100, 10)), lists:sort(agree())).

%% The first file was there, and not all of its header.
killed_at_first_start(Config) ->
    Dir = proplists:get_value(dir, Config),
    Journal = filename:join([Dir, "follows", "journal-0000000000000001"]),
    lists:foreach(fun(Bytes) ->
        ok = filelib:ensure_dir(Journal),
        ok = file:write_file(Journal, Bytes),
        Sup = halley_store_helper:open(Dir),
        {ok, _} = halley_follows:follow(pairs(1, 10)),
        Again = halley_store_helper:reopen(Sup, Dir),
        ?assertEqual(lists:sort(pairs(1, 10)), lists:sort(agree())),
        halley_store_helper:close(Again),
        ok = file:del_dir_r(Dir)
    end, [<<>>, <<"HALLEYJN">>, <<0:(44 * 8)>>]),
    ok = filelib:ensure_path(Dir).

%% The next one doesn't make a folder where none belongs, and what it applies again is known.
owner_dies_while_moved(Config) ->
    Dir = proplists:get_value(dir, Config),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 10)),
    Away = Dir ++ "-away",
    ok = file:rename(Dir, Away),
    ok = halley_store_helper:kill(halley_follows_owner),
    ?assertEqual({error, data_dir_moved}, halley_follows:follow(pairs(100, 10))),
    ?assertNot(filelib:is_file(Dir)),
    ok = file:rename(Away, Dir),
    ok = await_writable(),
    {ok, _} = halley_follows:follow(pairs(200, 10)),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:usort(pairs(1, 10) ++ pairs(200, 10)), lists:sort(agree())).

%% What is written into a folder that has no name is gone with the process.
folder_moved_away(Config) ->
    Dir = proplists:get_value(dir, Config),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 10)),
    Away = Dir ++ "-away",
    ok = file:rename(Dir, Away),
    ?assertEqual({error, data_dir_moved}, halley_follows:follow(pairs(100, 10))),
    ?assertEqual(data_dir_moved, halley_store:refusing()),
    ?assertEqual(lists:sort(pairs(1, 10)), lists:sort(agree())),
    ok = file:rename(Away, Dir),
    ok = await_writable(),
    {ok, _} = halley_follows:follow(pairs(200, 10)),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:usort(pairs(1, 10) ++ pairs(200, 10)), lists:sort(agree())).

%% --- damaged files -------------------------------------------------------------------------------

%% Every file, flipped, cut, removed or swapped with an older one of its name: it starts with
%% everything, or says which file it is. Nothing else.
damage_is_never_silent(Config) ->
    {Dir, Older, Pairs, Names} = aged_store(Config),
    Seed = rand:seed_s(exsss, {1, 2, erlang:unique_integer([positive])}),
    {Outcomes, _} = lists:mapfoldl(fun(N, State) ->
        Copy = filename:join(filename:dirname(Dir), "copy-" ++ integer_to_list(N)),
        copy(Dir, Copy),
        {Damage, State1} = damage(Copy, Older, State),
        Outcome = outcome(Copy, Pairs, Names),
        ?assertNotEqual({Damage, silent}, {Damage, Outcome}),
        ok = file:del_dir_r(Copy),
        {Outcome, State1}
    end, Seed, lists:seq(1, ?DAMAGES)),
    %% Damage that hurts nothing, and such that can't be made up for.
    ?assert(lists:member(whole, Outcomes)),
    ?assert(lists:member(named, Outcomes)).

outcome(Dir, Pairs, Names) ->
    application:set_env(halley, data_dir, Dir),
    case halley_store_sup:start_link() of
        {ok, Sup} ->
            unlink(Sup),
            Found = try {lists:sort(agree()), names(Pairs)} catch _:Reason -> Reason end,
            halley_store_helper:close(Sup),
            case Found of
                {Pairs, Names} -> whole;
                _ -> silent
            end;
        {error, Line} ->
            {match, _} = re:run(Line, "^data.dir: .*follows.*`./halley repair`"),
            named
    end.

%% The checkpoint before and the journal since are kept for that, and a new one is written.
damaged_checkpoint_is_made_up_for(Config) ->
    {Dir, _, Pairs, _} = aged_store(Config),
    Newest = lists:last(filelib:wildcard(filename:join([Dir, "follows", "checkpoint-*"]))),
    ok = damage(flip, 0.5, Newest, none),
    Sup = halley_store_helper:open(Dir),
    ?assertEqual(Pairs, lists:sort(agree())),
    ?assertEqual(1, halley_store:damaged()),
    ok = halley_follows_owner:checkpoint(),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(0, halley_store:damaged()),
    ?assertEqual(Pairs, lists:sort(agree())).

%% Nobody was answered for what was being written when the brain was killed.
a_torn_group_is_cut(Config) ->
    {Dir, _, Pairs, _} = aged_store(Config),
    Journal = lists:last(filelib:wildcard(filename:join([Dir, "follows", "journal-*"]))),
    {ok, Bytes} = file:read_file(Journal),
    Group = binary_part(Bytes, 44, byte_size(Bytes) - 44),
    lists:foreach(fun(Size) ->
        ok = file:write_file(Journal, [Bytes, binary_part(Group, 0, Size)]),
        Sup = halley_store_helper:open(Dir),
        ?assertEqual(Pairs, lists:sort(agree())),
        halley_store_helper:close(Sup),
        ?assertEqual(byte_size(Bytes), filelib:file_size(Journal))
    end, [1, 4, 11, 12, 13, 100]),
    %% Zeros, as a file system leaves them that had given the room already.
    ok = file:write_file(Journal, [Bytes, <<0:80000>>]),
    _ = halley_store_helper:open(Dir),
    ?assertEqual(Pairs, lists:sort(agree())).

an_older_copy_is_refused(Config) ->
    {Dir, Older, _, _} = aged_store(Config),
    ok = file:del_dir_r(filename:join(Dir, "follows")),
    copy(filename:join(Older, "follows"), Dir),
    application:set_env(halley, data_dir, Dir),
    {error, Line} = halley_store_sup:start_link(),
    ?assertMatch({match, _}, re:run(Line, "2 groups of changes .* or the folder is an older copy")).

%% Three seconds after the last change, whatever else the owner is asked meanwhile.
idle_checkpoint(Config) ->
    Dir = proplists:get_value(dir, Config),
    _ = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 40000)),
    Written = fun() -> filelib:wildcard(filename:join([Dir, "follows", "checkpoint-*"])) =/= [] end,
    [begin
         ok = halley_follows_owner:leave([]),
         timer:sleep(500)
     end || _ <- lists:seq(1, 120), not Written()],
    ?assert(Written()).
