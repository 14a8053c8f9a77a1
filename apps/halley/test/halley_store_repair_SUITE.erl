%% The result of `./halley repair' of damaged stores: one that opens, with nothing that wasn't
%% there, and never less than it reports.
-module(halley_store_repair_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([damages/1, many_damages/1, one_direction/1, unreadable_in_both/1, a_hole_in_the_journal/1,
         a_group_that_failed/1,
         a_number_that_changed_hands/1,
         a_number_that_changed_hands_unseen/1, an_older_copy/1, a_whole_store/1, a_damaged_note/1,
         nothing_left/1, a_full_disk/1, cut_short/1, of_two_stores/1, while_a_brain_runs/1]).

-import(halley_store_helper, [agree/0]).
-import(halley_damage_helper, [aged_store/1, copy/2, damage/3, damage/4, names/1, pairs/2]).

-define(DAMAGES, 100).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [damages, many_damages, one_direction, unreadable_in_both, a_hole_in_the_journal,
     a_group_that_failed, a_number_that_changed_hands, a_number_that_changed_hands_unseen,
     an_older_copy,
     a_whole_store, a_damaged_note, nothing_left, a_full_disk, cut_short, of_two_stores,
     while_a_brain_runs].

init_per_suite(Config) -> halley_store_SUITE:init_per_suite(Config).
end_per_suite(Config) -> halley_store_SUITE:end_per_suite(Config).
init_per_testcase(Case, Config) -> halley_store_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_store_SUITE:end_per_testcase(Case, Config).

%% --- any damage ----------------------------------------------------------------------------------

damages(Config) -> repaired_all(Config, 1).

many_damages(Config) -> repaired_all(Config, 4).

repaired_all(Config, Count) ->
    {Dir, Older, Pairs, Names} = aged(Config),
    Seed = rand:seed_s(exsss, {3, Count, erlang:unique_integer([positive])}),
    {Outcomes, _} = lists:mapfoldl(fun(N, State) ->
        Copy = filename:join(filename:dirname(Dir), "copy-" ++ integer_to_list(N)),
        copy(Dir, Copy),
        {Damages, State1} = lists:mapfoldl(fun(_, S) -> damage(Copy, Older, S) end, State,
                                           lists:seq(1, Count)),
        Outcome = try outcome(Copy, is_noted(Damages), Pairs, Names)
                  catch Class:Reason:Stack -> ct:fail({Damages, Class, Reason, Stack})
                  end,
        ok = file:del_dir_r(Copy),
        {Outcome, State1}
    end, Seed, lists:seq(1, ?DAMAGES)),
    Counts = [{Kind, length([O || O <- Outcomes, O =:= Kind])} || Kind <- lists:usort(Outcomes)],
    ct:pal("~p", [Counts]),
    ?assert(lists:member(repaired, Outcomes)).

%% Without the note, or with an older one, a tail that is gone doesn't show.
is_noted(Damages) -> not lists:any(fun({_, _, Name}) -> Name =:= "follows.position" end, Damages).

outcome(Dir, IsNoted, Pairs, Names) ->
    application:set_env(halley, data_dir, Dir),
    case halley_store_sup:start_link() of
        {ok, Sup} ->
            unlink(Sup),
            halley_store_helper:close(Sup),
            opened;
        {error, _} ->
            Before = files(Dir),
            Looked = repair(Dir, true),
            ?assertEqual(Before, files(Dir)),
            Repaired = repair(Dir, false),
            case {Looked, Repaired} of
                {{ok, {repaired, Counts, Finding, none}}, {ok, {repaired, Counts, Finding, _}}} ->
                    ok = check(Dir, Finding#{is_noted := IsNoted}, Pairs, Names),
                    repaired;
                {{ok, {whole, _, _}}, {ok, {whole, _, _}}} -> whole;
                {{error, Line}, {error, Line}} ->
                    {match, _} = re:run(Line, "nothing was changed"),
                    nothing
            end
    end.

files(Dir) ->
    [{File, element(2, file:read_file(filename:join(Dir, File)))}
     || File <- filelib:wildcard("**", Dir), filename:extension(File) =/= ".new"].

repair(Dir, IsDry) ->
    application:set_env(halley, data_dir, Dir),
    Progress = fun(Text) -> true = is_binary(unicode:characters_to_binary(Text)), ok end,
    halley_store_repair:run(#{dry_run => IsDry, progress => Progress}).

%% Everything that was ever followed in the aged store.
ever() -> lists:append([pairs(1, 2000), pairs(2000, 1000), pairs(5000, 50), pairs(6000, 50)]).

check(Dir, Finding, Pairs, Names) ->
    Sup = halley_store_helper:open(Dir),
    Found = agree(),
    ?assertEqual([], Found -- ever()),
    ?assertEqual([], names(Found) -- Names),
    ?assertEqual([], all_names() -- Names),
    #{missing := Missing, unknown := Unknown, dropped := #{count := Dropped}} = Finding,
    IsBounded = Missing =:= [] andalso lists:append(maps:values(Unknown)) =:= []
        andalso maps:get(is_noted, Finding),
    Lost = length(Pairs -- Found),
    Text = unicode:characters_to_binary(halley_store_repair_command:text(
        {repaired, #{ids => 0, follows => length(Found)}, Finding, "aside"}, false)),
    Lost =:= 0 orelse ?assertMatch({match, _}, re:run(Text, "Lost: |May be lost: ")),
    Back = length(Found -- Pairs),
    IsBounded andalso ?assertEqual({true, 0}, {Lost =< Dropped, Back}),
    %% Those who come later get nobody's place.
    New = [{<<"new">>, <<"s1">>}, {<<"newer">>, <<"new">>}],
    {ok, #{added := 2}} = halley_follows:follow(New),
    Again = halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:sort(New ++ Found), lists:sort(agree())),
    halley_store_helper:close(Again).

%% With the ids that nobody follows or that follow nobody any more.
aged(Config) ->
    {Dir, Older, Pairs, _} = aged_store(Config),
    Sup = halley_store_helper:open(Dir),
    Names = lists:sort(all_names()),
    halley_store_helper:close(Sup),
    {Dir, Older, Pairs, Names}.

all_names() -> halley_ids_pages:fold(fun(Ids, _, Acc) -> Ids ++ Acc end, []).

%% --- what is saved -------------------------------------------------------------------------------

checkpoints(Dir) -> lists:sort(filelib:wildcard(filename:join([Dir, "follows", "checkpoint-*"]))).
journals(Dir) -> lists:sort(filelib:wildcard(filename:join([Dir, "follows", "journal-*"]))).

%% Turns a bit in each row of a kind (the first byte of a record's body).
spoil(Path, Kinds) ->
    {ok, <<Header:44/binary, Records/binary>>} = file:read_file(Path),
    ok = file:write_file(Path, [Header, spoiled(Records, Kinds)]).

spoiled(<<Magic:4/binary, Length:32, Crc:4/binary, Kind, Body:(Length - 1)/binary, Rest/binary>>,
        Kinds) ->
    New = case lists:member(Kind, Kinds) of true -> Kind + 16; false -> Kind end,
    [Magic, <<Length:32>>, Crc, New, Body | spoiled(Rest, Kinds)];
spoiled(<<>>, _) -> [].

nothing_lost(#{missing := Missing, unknown := Unknown, dropped := #{count := Dropped}}) ->
    ?assertEqual({[], [], 0}, {Missing, lists:append(maps:values(Unknown)), Dropped}).

same(Dir, Pairs, Names) ->
    Sup = halley_store_helper:open(Dir),
    ?assertEqual(Pairs, lists:sort(agree())),
    ?assertEqual([], all_names() -- Names),
    halley_store_helper:close(Sup).

%% Each row of one direction, in both checkpoints.
one_direction(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    lists:foreach(fun(Kind) ->
        Copy = Dir ++ integer_to_list(Kind),
        copy(Dir, Copy),
        [spoil(Path, [Kind]) || Path <- checkpoints(Copy)],
        {ok, {repaired, Counts, Finding, Aside}} = repair(Copy, false),
        ?assertEqual(length(Pairs), maps:get(follows, Counts)),
        nothing_lost(Finding),
        ?assertEqual(2, length(maps:get(files, Finding))),
        ?assert(filelib:is_file(filename:join(Aside, "follows.position"))),
        same(Copy, Pairs, Names),
        ?assertMatch({ok, {whole, _, _}}, repair(Copy, false))
    end, [2, 3]).

%% Both directions of the newest; the one before it and the journal since tell it all. Without
%% these the users and subjects are known.
unreadable_in_both(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    [Older, Newest] = checkpoints(Dir),
    Copy = Dir ++ "-copy",
    spoil(Newest, [2, 3]),
    spoil(Older, [2]),
    copy(Dir, Copy),
    {ok, {repaired, _, Finding, _}} = repair(Dir, false),
    nothing_lost(Finding),
    same(Dir, Pairs, Names),
    ok = file:delete(filename:join([Copy, "follows", filename:basename(Older)])),
    ok = file:delete(hd(journals(Copy))),
    {ok, {repaired, _, #{unknown := Unknown}, _}} = repair(Copy, false),
    ?assertMatch(#{halley_following := [_ | _], halley_followers := [_ | _]}, Unknown).

%% What stands behind the hole says what is to be all the same.
a_hole_in_the_journal(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    Journal = lists:last(journals(Dir)),
    ok = damage(flip, 60 / filelib:file_size(Journal), Journal, none),
    {ok, {repaired, _, #{missing := [{From, From}]}, _}} = repair(Dir, false),
    Sup = halley_store_helper:open(Dir),
    Found = agree(),
    ?assertEqual(pairs(5000, 50), lists:sort(Pairs -- Found)),
    ?assertEqual([], Found -- Pairs),
    ?assertEqual([], names(Found) -- Names),
    halley_store_helper:close(Sup).

%% Its sync failed and it couldn't be cut off: the next file says where the one before it ends.
a_group_that_failed(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    Folder = filename:join(Dir, "follows"),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"news">>}]),
    [Ann, Payroll, Carl, News] = [halley_ids:lookup(Id) || Id <- [<<"ann">>, <<"payroll">>,
                                                                  <<"carl">>, <<"news">>]],
    halley_store_helper:close(Sup),
    {ok, First, _} = halley_store_journal:open(Folder, 1),
    {Store, 1, Sequence} = halley_store_journal:place(First),
    End = filelib:file_size(halley_store_journal:path(Folder, 1)),
    Add = fun(User, Subject, Journal) ->
        Pair = halley_pages:pack([halley_pages:key(User, Subject)]),
        {ok, Bytes, Next} =
            halley_store_journal:append([halley_store_entries:pairs(add, Pair)], Journal),
        {Bytes, Next}
    end,
    {_, Failed} = Add(Carl, Payroll, First),
    ok = halley_store_journal:close(Failed),
    {ok, Second} = halley_store_journal:create(Folder, Store, {2, Sequence, End}),
    {_, Third} = Add(Ann, News, Second),
    Path = halley_store_journal:path(Folder, 2),
    At = filelib:file_size(Path),
    {_, Fourth} = Add(Ann, Carl, Third),
    {_, Last} = Add(News, Carl, Fourth),
    ok = halley_store_journal:close(Last),
    ok = damage(flip, (At + 20.5) / filelib:file_size(Path), Path, none),
    {ok, {repaired, _, #{missing := [{_, _}]}, _}} = repair(Dir, false),
    _ = halley_store_helper:open(Dir),
    ?assertEqual([{<<"ann">>, <<"news">>}, {<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"news">>},
                  {<<"news">>, <<"carl">>}], lists:sort(agree())).

%% Ann's number is given back and becomes Bob's. First, the group in which she unfollowed is lost.
a_number_that_changed_hands(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    Folder = filename:join(Dir, "follows"),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"payroll">>}]),
    Ann = halley_ids:lookup(<<"ann">>),
    Payroll = halley_ids:lookup(<<"payroll">>),
    halley_store_helper:close(Sup),
    {ok, Journal, _} = halley_store_journal:open(Folder, 1),
    Pair = fun(Subject) -> halley_pages:pack([halley_pages:key(Ann, Subject)]) end,
    {ok, Bytes, Freed} = halley_store_journal:append(
        [halley_store_entries:pairs(remove, Pair(Payroll)), halley_store_entries:freed([Ann])],
        Journal),
    At = filelib:file_size(halley_store_journal:path(Folder, 1)) - Bytes,
    {ok, _, Bobs} = halley_store_journal:append(
        [halley_store_entries:names([{Ann, <<"bob">>}, {100, <<"news">>}]),
         halley_store_entries:pairs(add, Pair(100))], Freed),
    ok = halley_store_journal:close(Bobs),
    ok = damage(flip, (At + 20) / filelib:file_size(halley_store_journal:path(Folder, 1)),
                halley_store_journal:path(Folder, 1), none),
    {ok, {repaired, _, #{missing := [{2, 2}], dropped := #{count := 1}}, _}} = repair(Dir, false),
    _ = halley_store_helper:open(Dir),
    ?assertEqual([{<<"bob">>, <<"news">>}, {<<"carl">>, <<"payroll">>}], lists:sort(agree())).

%% Then, both that it was given back and whose it became is lost: what Bob follows later isn't
%% Ann's.
a_number_that_changed_hands_unseen(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    Folder = filename:join(Dir, "follows"),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"payroll">>}]),
    Ann = halley_ids:lookup(<<"ann">>),
    Carl = halley_ids:lookup(<<"carl">>),
    {ok, _} = halley_follows:unfollow([{<<"ann">>, <<"payroll">>}]),
    halley_store_helper:close(Sup),
    Path = halley_store_journal:path(Folder, 1),
    {ok, Journal, _} = halley_store_journal:open(Folder, 1),
    At = filelib:file_size(Path),
    Pair = fun(Subject) -> halley_pages:pack([halley_pages:key(Ann, Subject)]) end,
    {ok, Bytes1, Freed} = halley_store_journal:append([halley_store_entries:freed([Ann])], Journal),
    {ok, _, Bobs} = halley_store_journal:append(
        [halley_store_entries:names([{Ann, <<"bob">>}, {100, <<"news">>}]),
         halley_store_entries:pairs(add, Pair(100))], Freed),
    {ok, _, Last} = halley_store_journal:append(
        [halley_store_entries:pairs(add, Pair(Carl))], Bobs),
    ok = halley_store_journal:close(Last),
    lists:foreach(fun(Place) ->
        ok = damage(flip, (Place + 20.5) / filelib:file_size(Path), Path, none)
    end, [At, At + Bytes1]),
    {ok, {repaired, _, #{missing := [{3, 4}], dropped := #{count := 1}}, _}} =
        repair(Dir, false),
    _ = halley_store_helper:open(Dir),
    ?assertEqual([{<<"carl">>, <<"payroll">>}], agree()).

an_older_copy(Config) ->
    {Dir, Older, _, _} = aged(Config),
    ok = file:del_dir_r(filename:join(Dir, "follows")),
    copy(filename:join(Older, "follows"), Dir),
    {ok, {repaired, _, #{missing := [{From, To}], files := []}, _}} = repair(Dir, false),
    ?assertEqual(2, To - From + 1),
    Sup = halley_store_helper:open(Dir),
    ?assertEqual([], agree() -- ever()),
    halley_store_helper:close(Sup).

a_whole_store(Config) ->
    {Dir, _, Pairs, _} = aged(Config),
    Before = files(Dir),
    {ok, {whole, #{follows := Count}, #{made_up := [], is_noted := true}}} = repair(Dir, false),
    ?assertEqual(length(Pairs), Count),
    ?assertEqual(Before, files(Dir)).

a_damaged_note(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    Note = filename:join(Dir, "follows.position"),
    Before = files(Dir),
    ok = damage(flip, 0.1, Note, none),
    {ok, {whole, _, #{is_noted := false}}} = repair(Dir, false),
    ?assertEqual(Before, files(Dir)),
    same(Dir, Pairs, Names).

%% The operator is told what there is to go back to; an empty store isn't made of it.
nothing_left(Config) ->
    {Dir, _, _, _} = aged(Config),
    ok = file:del_dir_r(filename:join(Dir, "follows")),
    {error, Line} = repair(Dir, false),
    ?assertMatch(nomatch, re:run(Line, "mnesia")),
    ok = file:make_dir(filename:join(Dir, "mnesia-taken-over")),
    {error, Told} = repair(Dir, false),
    ?assertMatch({match, _}, re:run(Told, "rename .*/mnesia-taken-over to mnesia")),
    ?assertMatch({error, _}, halley_store_sup:start_link()).

a_full_disk(Config) ->
    Dir = halley_disk_helper:mount(proplists:get_value(dir, Config), "1m"),
    {Store, _, _, _} = aged(Config),
    [Older, Newest] = checkpoints(Store),
    [spoil(Path, [2]) || Path <- [Older, Newest]],
    halley_disk_helper:fill(Dir),
    Before = files(Store),
    {error, Line} = repair(Store, false),
    ?assertMatch({match, _}, re:run(Line, "no space left on device")),
    ?assertEqual(Before, files(Store)),
    halley_disk_helper:free(Dir),
    {ok, {repaired, _, Finding, _}} = repair(Store, false),
    nothing_lost(Finding).

%% Between the two renames, the folder was made anew by a brain that tried to start.
cut_short(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    Follows = filename:join(Dir, "follows"),
    [spoil(Path, [2]) || Path <- checkpoints(Dir)],
    {ok, {repaired, _, _, Aside}} = repair(Dir, false),
    ok = file:rename(filename:join(Aside, "follows.position"), Follows ++ ".position"),
    ok = file:rename(Follows, Follows ++ "-repaired"),
    application:set_env(halley, data_dir, Dir),
    {error, _} = halley_store_sup:start_link(),
    {ok, {whole, _, _}} = repair(Dir, false),
    same(Dir, Pairs, Names).

%% Files of another store that were put there say nothing about this one.
of_two_stores(Config) ->
    {Dir, _, Pairs, Names} = aged(Config),
    Other = filename:join(proplists:get_value(dir, Config), "other"),
    Sup = halley_store_helper:open(Other),
    {ok, _} = halley_follows:follow([{<<"x">>, <<"y">>}]),
    halley_store_helper:close(Sup),
    [Newest | _] = lists:reverse(checkpoints(Dir)),
    {ok, _} = file:copy(hd(journals(Other)), lists:last(journals(Dir))),
    ok = outcome_of(Dir, Newest, Pairs, Names).

outcome_of(Dir, _, Pairs, Names) ->
    {ok, {repaired, _, #{missing := [_ | _], files := [{_, Text}]} = Finding, _}} =
        repair(Dir, false),
    ?assertEqual("is of another store", lists:flatten(Text)),
    check(Dir, Finding, Pairs, Names).

while_a_brain_runs(Config) ->
    Dir = proplists:get_value(dir, Config),
    Eval = "application:set_env(halley, data_dir, \"" ++ Dir ++ "\"),"
           "{error, Text} = halley_store_repair:run(#{dry_run => false,"
           " progress => fun(_) -> ok end}), io:put_chars([Text, 10]), halt().",
    _ = halley_store_helper:open(Dir),
    Output = os:cmd("erl -noinput -start_epmd false -dist_listen false -pa "
                    ++ filename:dirname(code:which(halley_store)) ++ " -eval '" ++ Eval ++ "'"),
    ?assertMatch({match, _}, re:run(Output, "another running brain has .* open")).
