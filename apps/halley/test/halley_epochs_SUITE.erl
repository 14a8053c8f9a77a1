%% A brain whose log goes on under another store id, and one whose history and graph are emptied
%% while it runs (`halley_order:adopt/2', `wipe/2').
-module(halley_epochs_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, missed/2, ids/1]).
-import(halley_placed_SUITE, [row/2, event_row/2, follow/3, following/1, last/1, shards/0]).
-import(halley_test_brain, [event/0, link_with/1, number/1, wait/1]).

-define(NEXT, 16#11223344).
-define(AFTER_NEXT, 16#22334455).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [cursors_of_the_store_before, cursor_beyond_the_end, several_epochs, an_epoch_that_ends_lower,
     ids_are_of_the_epoch,
     links_sync_again, after_a_restart, a_list_that_is_damaged, emptied, emptied_and_followed_again,
     emptied_below_what_was, emptied_and_restarted].

init_per_testcase(Case, Config) -> halley_placed_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_placed_SUITE:end_per_testcase(Case, Config).

%%% Helpers

%% A cursor of a store with all up to this row.
cursor(Store, N) -> halley_cursor:encode(Store, erlang:system_time(second), all(last(N))).

all(Seq) -> list_to_tuple([Seq || _ <- shards()]).

written(N) -> ok = halley_history:await(all(last(N)), ?WAIT_MS).

restarted(Config, Then) ->
    [Keeper, Brain, Dir] = [proplists:get_value(Key, Config) || Key <- [keeper, brain, dir]],
    Monitor = monitor(process, Brain),
    exit(Keeper, kill),
    receive {'DOWN', Monitor, process, Brain, _} -> ok after ?WAIT_MS -> error(lives_on) end,
    ok = halley_store:close(),
    Then(Dir, fun() ->
        {ok, Next, _} = halley_test_keeper:start(Dir, [fun halley_sup:start_link/0]),
        Next
    end).

%%% Another store id

cursors_of_the_store_before(_) ->
    Store = halley_history:store(),
    A = event_row(1, <<"ann">>),
    B = event_row(2, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(2)),
    ?assertEqual(?NEXT, halley_history:store()),
    C = event_row(3, <<"ann">>),
    ?assertEqual([A, B, C], ids(missed(<<"ann">>, cursor(Store, 0)))),
    ?assertEqual([C], ids(missed(<<"ann">>, cursor(Store, 2)))),
    ?assertEqual([B, C], ids(missed(<<"ann">>, cursor(?NEXT, 1)))),
    ?assertEqual({ok, all(last(2))},
                 halley_replay_point:stands_at(<<"ann">>, cursor(Store, 2))),
    {ok, #{events := Past}} = halley_past:page(<<"ann">>, cursor(Store, 2), none, 10),
    ?assertEqual(2, length(Past)).

%% Its seqs mean what the log has lost.
cursor_beyond_the_end(_) ->
    Store = halley_history:store(),
    _ = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(1)),
    _ = event_row(2, <<"ann">>),
    ?assertEqual([other_store], missed(<<"ann">>, cursor(Store, 2))),
    ?assertEqual(gap, halley_replay_point:stands_at(<<"ann">>, cursor(Store, 2))),
    ?assertEqual({error, {bad_cursor, before, other_store}},
                 halley_past:page(<<"ann">>, cursor(Store, 2), none, 10)),
    ?assertMatch({gap, other_store, _, _, _},
                 halley_edge_catchup:begins(1, cursor(Store, 2), ?NEXT, all(last(2)), 0)),
    ?assertMatch({from, _, _},
                 halley_edge_catchup:begins(1, cursor(Store, 1), ?NEXT, all(last(2)), 0)).

several_epochs(_) ->
    Store = halley_history:store(),
    A = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(1)),
    B = event_row(2, <<"ann">>),
    ok = halley_order:adopt(?AFTER_NEXT, last(2)),
    C = event_row(3, <<"ann">>),
    ?assertEqual([A, B, C], ids(missed(<<"ann">>, cursor(Store, 0)))),
    ?assertEqual([C], ids(missed(<<"ann">>, cursor(?NEXT, 2)))),
    ?assertEqual([other_store], missed(<<"ann">>, cursor(Store, 2))).

%% Rows 2 and 3 of the first store were lost before this brain had them.
an_epoch_that_ends_lower(_) ->
    Store = halley_history:store(),
    A = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(3)),
    ok = halley_order:adopt(?AFTER_NEXT, last(1)),
    Others = [event_row(N, <<"ann">>) || N <- [2, 3]],
    ?assertEqual([A | Others], ids(missed(<<"ann">>, cursor(Store, 0)))),
    ?assertEqual([other_store], missed(<<"ann">>, cursor(Store, 2))),
    ?assertEqual([other_store], missed(<<"ann">>, cursor(?NEXT, 2))).

ids_are_of_the_epoch(_) ->
    A = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(1)),
    B = event_row(2, <<"ann">>),
    Prefix = halley_event:id_prefix(?NEXT),
    ?assertEqual([nomatch, {0, byte_size(Prefix)}],
                 [binary:match(Id, Prefix) || Id <- [A, B]]),
    written(2),
    [?assertMatch({ok, _}, halley_history:find(Id)) || Id <- [A, B]].

%% An edge makes cursors of the store that it was told when its link began.
links_sync_again(_) ->
    {Writer, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    ok = halley:login(<<"bob">>),
    ok = halley_order:adopt(?NEXT, last(0)),
    ?assertNot(is_process_alive(Writer)),
    wait(fun() -> halley_links:find(Slot) =:= gone end),
    Id = event_row(1, <<"bob">>),
    ?assertMatch(#{id := Id}, event()).

after_a_restart(Config) ->
    Store = halley_history:store(),
    A = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(1)),
    B = event_row(2, <<"ann">>),
    written(2),
    restarted(Config, fun(_, Start) ->
        Keeper = Start(),
        try
            ?assertEqual(?NEXT, halley_history:store()),
            ?assertEqual([A, B], ids(missed(<<"ann">>, cursor(Store, 0)))),
            ?assertEqual([other_store], missed(<<"ann">>, cursor(Store, 2)))
        after
            halley_test_keeper:stop(Keeper)
        end
    end).

%% The events are there; cursors from before get a gap.
a_list_that_is_damaged(Config) ->
    Store = halley_history:store(),
    A = event_row(1, <<"ann">>),
    ok = halley_order:adopt(?NEXT, last(1)),
    written(1),
    restarted(Config, fun(Dir, Start) ->
        Path = filename:join([Dir, "history", "epochs"]),
        {ok, <<Begin:12/binary, Byte, Rest/binary>>} = file:read_file(Path),
        ok = file:write_file(Path, [Begin, Byte bxor 1, Rest]),
        Keeper = Start(),
        try
            ?assertEqual(Store, halley_history:store()),
            ?assertEqual([A], ids(missed(<<"ann">>, cursor(Store, 0)))),
            ?assertEqual([other_store], missed(<<"ann">>, cursor(?NEXT, 1)))
        after
            halley_test_keeper:stop(Keeper)
        end
    end).

%%% Emptied

emptied(_) ->
    Store = halley_history:store(),
    {Writer, _, _} = link_with([{number(<<"cid">>), 1}]),
    {ok, _} = follow(1, <<"ann">>, <<"bob">>),
    Id = event_row(1, <<"bob">>),
    ok = halley:login(<<"ann">>),
    ok = halley_order:wipe(?NEXT, last(5)),
    ?assertNot(is_process_alive(Writer)),
    ?assertEqual({[], 0}, {following(<<"ann">>), halley_follows:count()}),
    ?assertMatch(#{store := ?NEXT, events := 0, damaged := []}, halley_history:info()),
    ?assertEqual(none, halley_history:find(Id)),
    ?assertEqual([all(last(5)) || _ <- [1, 2]],
                 [halley_history:heads(), halley_history:written()]),
    ?assertEqual([other_store], missed(<<"ann">>, cursor(Store, 1))),
    %% Of the new store, but from before what is here.
    ?assertEqual([too_old], missed(<<"ann">>, cursor(?NEXT, 4))),
    ?assertEqual([self()], halley_directory:sessions(number(<<"ann">>))).

emptied_and_followed_again(_) ->
    {ok, _} = follow(1, <<"ann">>, <<"bob">>),
    _ = event_row(1, <<"bob">>),
    ok = halley_order:wipe(?NEXT, last(1)),
    ok = halley:login(<<"ann">>),
    _ = event_row(2, <<"bob">>),
    {ok, [changed]} = follow(3, <<"ann">>, <<"bob">>),
    _ = row(3, []),
    Id = event_row(4, <<"bob">>),
    ?assertMatch(#{id := Id}, event()),
    ?assertEqual([Id], ids(missed(<<"ann">>, cursor(?NEXT, 1)))),
    ?assertMatch({ok, _}, halley_history:find(Id)).

%% The brain had rows that the log has lost: seqs come again, for other events.
emptied_below_what_was(_) ->
    _ = [event_row(N, <<"ann">>) || N <- lists:seq(1, 50)],
    ok = halley_order:wipe(?NEXT, last(10)),
    ?assertEqual(last(10), halley_history:drawn()),
    Ids = [event_row(N, <<"ann">>) || N <- lists:seq(11, 20)],
    written(20),
    ?assertEqual(Ids, ids(missed(<<"ann">>, cursor(?NEXT, 10)))),
    ?assertEqual(last(20), halley_history:drawn()).

emptied_and_restarted(Config) ->
    {ok, _} = follow(1, <<"ann">>, <<"bob">>),
    _ = [event_row(N, <<"ann">>) || N <- lists:seq(1, 50)],
    ok = halley_order:wipe(?NEXT, last(10)),
    Id = event_row(11, <<"ann">>),
    written(11),
    restarted(Config, fun(_, Start) ->
        Keeper = Start(),
        try
            ?assertEqual(?NEXT, halley_history:store()),
            ?assertEqual([], following(<<"ann">>)),
            ?assertMatch(#{events := 1, damaged := []}, halley_history:info()),
            ?assertEqual([Id], ids(missed(<<"ann">>, cursor(?NEXT, 10))))
        after
            halley_test_keeper:stop(Keeper)
        end
    end).
