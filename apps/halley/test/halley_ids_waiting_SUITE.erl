%% A number that the store's files may name is given to a new id when no file can name the old one
%% any more: so whatever is lost in the journal, a repair gives no id the follows of another.
-module(halley_ids_waiting_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_store_proper.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([a_hole_over_three_groups/1, two_checkpoints/1, an_empty_journal/1, a_restart/1,
         the_highest_number/1, owner_of_ids_dies/1, a_group_that_failed/1, a_file_that_stays/1,
         visitors_do_not_wait/1, an_idle_store/1, numbers_run_short/1, random_holes/0,
         random_holes/1]).

-import(halley_store_helper, [id/1, agree/0, await/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [a_hole_over_three_groups, two_checkpoints, an_empty_journal, a_restart, the_highest_number,
     owner_of_ids_dies, a_group_that_failed, a_file_that_stays, visitors_do_not_wait,
     an_idle_store, numbers_run_short, random_holes].

init_per_suite(Config) -> halley_ids_sweep_SUITE:init_per_suite(Config).
end_per_suite(Config) -> halley_ids_sweep_SUITE:end_per_suite(Config).
init_per_testcase(Case, Config) -> halley_ids_sweep_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_ids_sweep_SUITE:end_per_testcase(Case, Config).

sweep() ->
    ok = halley_ids_sweep:round(),
    ok = halley_ids_sweep:round().

%% Ann's number, which is nobody's now.
freed_ann() ->
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"payroll">>}]),
    Ann = halley_ids:lookup(<<"ann">>),
    {ok, _} = halley_follows:unfollow([{<<"ann">>, <<"payroll">>}]),
    sweep(),
    ?assertEqual({undefined, 1}, {halley_ids:lookup(<<"ann">>), halley_ids:waiting()}),
    Ann.

given(Name) ->
    {ok, [Number]} = halley_ids:intern([Name]),
    Number.

%% Returns when the owner of the ids has heard of it as well.
checkpoint() ->
    ok = halley_follows_owner:checkpoint(),
    _ = sys:get_state(halley_ids),
    ok.

reopen(Config) ->
    halley_store_helper:reopen(whereis(halley_store_sup), proplists:get_value(dir, Config)).

%% Lost are Ann's unfollow, that her number was freed, and whose number Bob's is. What Bob follows
%% then can be read.
a_hole_over_three_groups(Config) ->
    Dir = proplists:get_value(dir, Config),
    {ok, _} = halley_follows:follow([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"news">>}]),
    Path = filename:join([Dir, "follows", "journal-0000000000000001"]),
    From = filelib:file_size(Path),
    {ok, _} = halley_follows:unfollow([{<<"ann">>, <<"payroll">>}]),
    {ok, _} = halley_follows:follow([{<<"dan">>, <<"payroll">>}]),
    sweep(),
    {ok, _} = halley_follows:follow([{<<"bob">>, <<"payroll">>}]),
    To = filelib:file_size(Path),
    {ok, _} = halley_follows:follow([{<<"bob">>, <<"news">>}]),
    halley_store_helper:close(whereis(halley_store_sup)),
    ok = spoil(Path, From, To),
    {ok, {repaired, _, #{missing := [{2, 5}]}, _}} = repair(Dir),
    halley_store_helper:open(Dir),
    ?assertEqual([{<<"ann">>, <<"payroll">>}, {<<"carl">>, <<"news">>}], lists:sort(agree())).

%% Turns all bits of a part of a file.
spoil(Path, From, To) ->
    {ok, Bytes} = file:read_file(Path),
    <<Before:From/binary, Lost:(To - From)/binary, Behind/binary>> = Bytes,
    file:write_file(Path, [Before, << <<(bnot B)>> || <<B>> <= Lost >>, Behind]).

repair(Dir) ->
    application:set_env(halley, data_dir, Dir),
    halley_store_repair:run(#{dry_run => false, progress => fun(_) -> ok end}).

two_checkpoints(_) ->
    Ann = freed_ann(),
    ?assert(given(<<"bob">>) > Ann),
    checkpoint(),
    ?assert(given(<<"cid">>) > Ann),
    {ok, _} = halley_follows:follow([{<<"dan">>, <<"payroll">>}]),
    checkpoint(),
    ?assertEqual(0, halley_ids:waiting()),
    ?assertEqual(Ann, given(<<"eve">>)).

%% Nothing was written since, so the second would be the same file again.
an_empty_journal(Config) ->
    Ann = freed_ann(),
    checkpoint(),
    checkpoint(),
    ?assertEqual(Ann, given(<<"bob">>)),
    Files = filelib:wildcard(filename:join([proplists:get_value(dir, Config), "follows", "*"])),
    checkpoint(),
    ?assertEqual(Files, filelib:wildcard(filename:join(filename:dirname(hd(Files)), "*"))),
    reopen(Config),
    ?assertEqual([{<<"carl">>, <<"payroll">>}], agree()).

%% The rule outlives the brain, also where the newest checkpoint is younger than the freeing.
a_restart(Config) ->
    Ann = freed_ann(),
    reopen(Config),
    ?assert(given(<<"bob">>) > Ann),
    checkpoint(),
    reopen(Config),
    ?assert(given(<<"bob">>) > Ann),
    checkpoint(),
    ?assert(given(<<"cid">>) > Ann),
    checkpoint(),
    ?assertEqual(Ann, given(<<"dan">>)).

%% Nobody's number behind the last that is somebody's: it would be the next, and only the older
%% checkpoint names it.
the_highest_number(Config) ->
    {ok, _} = halley_follows:follow([{<<"carl">>, <<"payroll">>}]),
    Many = [{id(N), <<"payroll">>} || N <- lists:seq(1, 200)],
    {ok, _} = halley_follows:follow(Many),
    Highest = halley_ids_pages:last(),
    checkpoint(),
    {ok, _} = halley_follows:unfollow(Many),
    sweep(),
    checkpoint(),
    ?assertEqual(200, halley_ids:waiting()),
    reopen(Config),
    ?assertEqual(200, halley_ids:waiting()),
    ?assertEqual(Highest + 1, given(<<"bob">>)),
    checkpoint(),
    checkpoint(),
    ?assertEqual(0, halley_ids:waiting()),
    %% And then it is forgotten.
    checkpoint(),
    reopen(Config),
    ?assertEqual(2, halley_ids_pages:last()).

owner_of_ids_dies(_) ->
    Ann = freed_ann(),
    ok = halley_store_helper:kill(halley_ids),
    ?assertEqual(1, halley_ids:waiting()),
    ?assert(given(<<"bob">>) > Ann),
    checkpoint(),
    checkpoint(),
    ?assertEqual(Ann, given(<<"cid">>)).

%% It may be on disk though nobody heard so: its numbers wait as well.
a_group_that_failed(_) ->
    ok = meck:new(halley_store_journal, [passthrough, no_link]),
    ok = meck:expect(halley_store_journal, append,
                     fun(_, Journal) -> {error, unknown, eio, Journal} end),
    try {error, {store_failed, eio}} = halley_follows:follow([{<<"ann">>, <<"payroll">>}])
    after meck:unload(halley_store_journal)
    end,
    await(fun() -> halley_store:refusing() =:= false end),
    Numbers = [halley_ids:lookup(Id) || Id <- [<<"ann">>, <<"payroll">>]],
    sweep(),
    ?assertEqual(2, halley_ids:waiting()),
    ?assertNot(lists:member(given(<<"bob">>), Numbers)).

%% It can't be deleted, so it can be read.
a_file_that_stays(_) ->
    ok = meck:new(halley_store_file, [passthrough, no_link]),
    ok = meck:expect(halley_store_file, remove, fun(_, _) -> ok end),
    Ann = freed_ann(),
    checkpoint(),
    checkpoint(),
    ?assert(given(<<"bob">>) > Ann),
    meck:unload(halley_store_file),
    checkpoint(),
    ?assertEqual(Ann, given(<<"cid">>)).

%% Their numbers were never written.
visitors_do_not_wait(_) ->
    {ok, Numbers} = halley_ids:intern([id(N) || N <- lists:seq(1, 1000)]),
    sweep(),
    ?assertEqual(0, halley_ids:waiting()),
    ?assertEqual({ok, Numbers}, halley_ids:intern([id(N) || N <- lists:seq(2001, 3000)])).

%% Nothing else asks for a checkpoint: too many wait.
an_idle_store(_) ->
    Many = [{id(N), <<"payroll">>} || N <- lists:seq(1, 5000)],
    {ok, _} = halley_follows:follow(Many),
    {ok, _} = halley_follows:unfollow(Many),
    sweep(),
    await(fun() -> halley_ids:waiting() =:= 0 end),
    ?assert(given(<<"bob">>) =< 5001).

%% Few wait, but there are no others: the sweep doesn't wait for an hour.
numbers_run_short(_) ->
    Ann = freed_ann(),
    ok = halley_limits:set(#{id_quarantine_ms => 0, ids_max => 32}),
    Visitors = [id(N) || N <- lists:seq(4, 32)],
    {ok, _} = halley_ids:intern(Visitors),
    ok = open(Visitors),
    ?assertEqual({error, too_many_ids}, halley_ids:intern([<<"bob">>])),
    await(fun() -> halley_ids:waiting() =:= 0 end),
    ?assertEqual(Ann, given(<<"bob">>)),
    ok = close(Visitors).

open(Ids) ->
    lists:foreach(fun(Id) ->
        N = halley_ids:lookup(Id),
        ok = halley_sessions:open(N, {link, 1, N}, configured)
    end, Ids).

close(Ids) ->
    lists:foreach(fun(Id) ->
        N = halley_ids:lookup(Id),
        ok = halley_directory:close(N, {link, 1, N})
    end, Ids).

%% --- any life, any hole --------------------------------------------------------------------------

%% Users who follow and unfollow, with sweeps, checkpoints and restarts in between; then groups in a
%% row are lost, and perhaps the newest checkpoint. No follow stands after the repair that never was
%% asked for.
random_holes() -> [{timetrap, {minutes, 10}}].

random_holes(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(whereis(halley_store_sup)),
    true = proper:quickcheck(prop_holes(Dir), [{numtests, 30}]),
    halley_store_helper:open(Dir).

prop_holes(Dir) ->
    ?FORALL({Life, Percent, Count, IsNewestLost},
            {resize(60, list(step())), range(0, 99), range(3, 12), oneof([true, false])},
            begin
                Home = filename:join(Dir, integer_to_list(erlang:unique_integer([positive]))),
                halley_store_helper:open(Home),
                Ever = lists:usort(lists:append([live(Step, Home) || Step <- Life])),
                halley_store_helper:close(whereis(halley_store_sup)),
                ok = lose(filename:join(Home, "follows"), Percent, Count, IsNewestLost),
                try never_asked(repair(Home), Home, Ever) of
                    [] -> true;
                    Pairs -> ct:pal("~p", [Pairs]), false
                catch Class:Reason:Stack -> ct:pal("~p", [{Class, Reason, Stack}]), false
                end
            end).

never_asked({ok, _}, Home, Ever) ->
    halley_store_helper:open(Home),
    Found = agree(),
    halley_store_helper:close(whereis(halley_store_sup)),
    Found -- Ever;
%% The first groups were all that there was.
never_asked({error, Line}, _, _) ->
    {match, _} = re:run(Line, "nothing in .* can be read"),
    [].

step() ->
    frequency([{8, {follow, [{user(), user()}]}}, {6, unfollow}, {6, sweep}, {1, checkpoint},
               {1, reopen}]).

user() -> ?LET(N, range(1, 40), id(N)).

live({follow, Pairs0}, _) ->
    Pairs = [Pair || {U, S} = Pair <- Pairs0, U =/= S],
    {ok, _} = halley_follows:follow(Pairs),
    put(stands, lists:usort(Pairs ++ stands())),
    Pairs;
%% Mostly of what stands, or nobody's number would ever be free.
live(unfollow, _) ->
    Pairs = lists:sublist(stands(), 2),
    {ok, _} = halley_follows:unfollow(Pairs),
    put(stands, stands() -- Pairs),
    [];
live(sweep, _) ->
    sweep(),
    [];
live(checkpoint, _) ->
    checkpoint(),
    [];
live(reopen, Home) ->
    halley_store_helper:reopen(whereis(halley_store_sup), Home),
    [].

stands() -> case get(stands) of undefined -> []; Pairs -> Pairs end.

%% So many groups from one on, which is so far in the journal, of all its files.
lose(Folder, Percent, Count, IsNewestLost) ->
    _ = erase(stands),
    Checkpoints = filelib:wildcard(filename:join(Folder, "checkpoint-*")),
    _ = IsNewestLost andalso Checkpoints =/= []
        andalso spoil(lists:last(Checkpoints), 60, 70),
    Groups = lists:append([[{Path, From, To} || {From, To} <- groups(Path)]
                           || Path <- filelib:wildcard(filename:join(Folder, "journal-*"))]),
    lists:foreach(fun({Path, From, To}) -> ok = spoil(Path, From, To) end,
                  lists:sublist(Groups, Percent * length(Groups) div 100 + 1, Count)).

groups(Path) ->
    {ok, <<_:44/binary, Records/binary>>} = file:read_file(Path),
    groups(Records, 44).

groups(<<_:32, Length:32, _:32, _:Length/binary, Rest/binary>>, At) ->
    [{At, At + 12 + Length} | groups(Rest, At + 12 + Length)];
groups(<<>>, _) -> [].
