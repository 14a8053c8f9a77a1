%% A user that was forgotten: gone for everybody, others untouched, over kills, until retention has
%% taken the last trace.
-module(halley_forgetting_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, missed/2, ids/1, caught_up/3]).
-import(halley_test_brain, [publish/2, follow_all/2, number/1, link_with/1, message/1]).


suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [sessions_and_follows_end, ids_that_leave_meanwhile, what_was_about_the_user,
     what_was_for_the_user_alone,
     a_follower_that_comes_back, the_user_comes_back, its_cursor_holds, a_link_that_was_behind,
     an_id_stays_taken, a_stranger, a_disk_that_is_full, after_a_restart, the_last_trace,
     retention_takes_the_last_trace, a_bound].

init_per_testcase(after_a_restart, Config) -> Config;
init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(after_a_restart, _) -> ok;
end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% --- helpers -------------------------------------------------------------------------------------

past(Subject) ->
    {ok, #{events := Events, gaps := Gaps}} = halley_past:page(Subject, none, none, 100),
    [maps:get(<<"id">>, jiffy:decode(Json, [return_maps])) || {_, Json} <- Events] ++ Gaps.

forget(User) ->
    {ok, Forgotten} = halley:forget(User),
    Forgotten.

%% --- cases ---------------------------------------------------------------------------------------

sessions_and_follows_end(_) ->
    ok = follow_all(<<"bob">>, [<<"ann">>, <<"eve">>]),
    Followers = [<<"u", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 2500)],
    {ok, _} = halley:follow([{User, <<"bob">>} || User <- Followers]),
    {ok, _} = halley:follow([{User, <<"ann">>} || User <- Followers]),
    ok = halley:login(<<"bob">>),
    ok = halley:login(<<"u1">>),
    ?assertEqual(#{sessions => 1, following => 2, followers => 2500}, forget(<<"bob">>)),
    receive {halley_closed, <<"bob">>} -> ok after ?WAIT_MS -> error(not_closed) end,
    ?assertEqual(#{user => <<"bob">>, sessions => 0}, halley:presence(<<"bob">>)),
    ?assertEqual({[], []}, {halley:following(<<"bob">>), halley:followers(<<"bob">>)}),
    ?assertEqual(2500, halley_follows:count_followers(<<"ann">>)),
    ?assertEqual(#{user => <<"u1">>, sessions => 1}, halley:presence(<<"u1">>)),
    ?assertEqual(#{sessions => 0, following => 0, followers => 0}, forget(<<"bob">>)).

%% The last id of a page has nothing but the follow that ends, and is given back before the next
%% page is read.
ids_that_leave_meanwhile(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 2500)],
    {ok, _} = halley:follow([{<<"bob">>, Subject} || Subject <- Subjects]),
    ok = meck:new(halley_follows, [passthrough, no_link]),
    ok = meck:expect(halley_follows, unfollow, fun(Pairs) ->
        Result = meck:passthrough([Pairs]),
        ok = halley_ids_sweep:round(),
        Result
    end),
    try
        ?assertEqual(#{sessions => 0, following => 2500, followers => 0}, forget(<<"bob">>))
    after
        meck:unload(halley_follows)
    end.

what_was_about_the_user(_) ->
    Id = publish(<<"bob">>, 1),
    Other = publish(<<"ann">>, 2),
    _ = forget(<<"bob">>),
    ?assertEqual([], past(<<"bob">>)),
    ?assertEqual([Other], past(<<"ann">>)),
    ?assertEqual({error, not_found}, halley_trace:trace(Id, <<"ann">>)),
    New = publish(<<"bob">>, 3),
    ?assertEqual([New], past(<<"bob">>)).

what_was_for_the_user_alone(_) ->
    Cursor = cursor(),
    {ok, #{id := Both}} = halley:publish({to, [<<"bob">>, <<"eve">>]}, 1),
    {ok, #{id := Own}} = halley:publish({to, [<<"bob">>]}, 2),
    ?assertEqual([Both, Own], ids(missed(<<"bob">>, Cursor))),
    _ = forget(<<"bob">>),
    ?assertEqual([too_old], ids(missed(<<"bob">>, Cursor))),
    ?assertEqual([Both], ids(missed(<<"eve">>, Cursor))),
    ?assertMatch({ok, #{followed := true}}, halley_trace:trace(Both, <<"eve">>)),
    ?assertMatch({ok, #{followed := false}}, halley_trace:trace(Both, <<"bob">>)),
    ?assertEqual({error, not_found}, halley_trace:trace(Own, <<"bob">>)).

%% Both ways of a gathering, over the follows and over the events.
a_follower_that_comes_back(_) ->
    ok = follow_all(<<"few">>, [<<"ann">>, <<"bob">>]),
    Many = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 3000)],
    ok = follow_all(<<"many">>, [<<"ann">>, <<"bob">> | Many]),
    Cursor = cursor(),
    Bobs = [publish(<<"bob">>, N) || N <- lists:seq(1, 3)],
    Ann = publish(<<"ann">>, 1),
    ?assertEqual(Bobs ++ [Ann], ids(missed(<<"few">>, Cursor))),
    _ = forget(<<"bob">>),
    ?assertEqual([Ann], ids(missed(<<"few">>, Cursor))),
    ?assertEqual([Ann], ids(missed(<<"many">>, Cursor))).

%% With an old cursor: what it followed is not its any more, and it is told so.
the_user_comes_back(_) ->
    ok = follow_all(<<"bob">>, [<<"ann">>]),
    Cursor = cursor(),
    Before = publish(<<"ann">>, 1),
    ?assertEqual([Before], ids(missed(<<"bob">>, Cursor))),
    _ = forget(<<"bob">>),
    ?assertEqual([too_old], ids(missed(<<"bob">>, Cursor))),
    ok = follow_all(<<"bob">>, [<<"ann">>]),
    After = publish(<<"ann">>, 2),
    ?assertEqual([too_old, After], ids(missed(<<"bob">>, Cursor))).

%% The cursor of its gap is one from which it goes on, though nothing was published since: a client
%% that polls waits there, in place of being told gaps one after the other.
its_cursor_holds(_) ->
    Old = cursor(),
    Before = publish(<<"bob">>, 1),
    ?assertEqual([Before], ids(missed(<<"bob">>, Old))),
    _ = forget(<<"bob">>),
    {gap, #{reason := too_old, cursor := Cursor}, _} = halley_replay:new(<<"bob">>, Old),
    ?assertMatch({ok, _}, halley_replay:new(<<"bob">>, Cursor)),
    ?assertEqual([], ids(missed(<<"bob">>, Cursor))),
    Page = fun(From, To) -> halley_past:page(<<"bob">>, From, To, 10) end,
    ?assertMatch({ok, #{events := []}}, Page(Cursor, none)),
    After = publish(<<"bob">>, 2),
    ?assertEqual([After], ids(missed(<<"bob">>, Cursor))),
    ?assertMatch({ok, #{events := [_]}}, Page(none, Cursor)).

a_link_that_was_behind(_) ->
    ok = follow_all(<<"ann">>, [<<"bob">>, <<"eve">>]),
    ok = follow_all(<<"bob">>, [<<"eve">>]),
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    From = halley_history:heads(),
    _ = publish(<<"bob">>, 1),
    _ = publish({to, [<<"bob">>]}, 2),
    Eve = publish(<<"eve">>, 3),
    {ok, #{id := Both}} = halley:publish({to, [<<"ann">>, <<"bob">>]}, 4),
    _ = forget(<<"bob">>),
    %% As somebody new, on a link that still lacks what was before.
    {_, Other, _} = link_with([{number(<<"bob">>), 2}]),
    ?assertEqual(lists:sort([{Eve, [1]}, {Both, [1]}]),
                 lists:sort(caught_up(Slot, From, 512))),
    ?assertEqual([], caught_up(Other, From, 512)).

%% A publisher that asks again gets the first answer, and nobody the event.
an_id_stays_taken(_) ->
    {ok, First} = halley:publish(<<"bob">>, 1, #{id => <<"x">>}),
    _ = forget(<<"bob">>),
    ok = halley:login(<<"bob">>),
    ?assertEqual({ok, First}, halley:publish(<<"bob">>, 1, #{id => <<"x">>})),
    halley_test_brain:no_event().

a_stranger(_) ->
    ?assertEqual(#{sessions => 0, following => 0, followers => 0}, forget(<<"never heard of">>)),
    ?assertEqual(undefined, halley_ids:lookup(<<"never heard of">>)).

%% Nothing is hidden that isn't on disk.
a_disk_that_is_full(_) ->
    Id = publish(<<"bob">>, 1),
    ok = halley_history_helper:mocked([halley_history_disk], fun() ->
        ok = meck:expect(halley_history_disk, write,
                         fun(_, _, Disk) -> {error, enospc, Disk} end),
        ?assertEqual({error, disk_full}, halley:forget(<<"bob">>))
    end),
    ?assertEqual(0, halley_history:forgotten(<<"bob">>)),
    ?assertEqual([Id], past(<<"bob">>)).

after_a_restart(_) ->
    halley_history_helper:silently(fun() ->
        halley_history_helper:with([], fun() ->
            _ = halley_history_helper:publish_all([<<"bob">>, <<"ann">>]),
            ok = halley_history:forget(<<"bob">>),
            Forgotten = halley_history:forgotten(<<"bob">>),
            _ = halley_history_helper:restart(),
            ?assertEqual(Forgotten, halley_history:forgotten(<<"bob">>)),
            ?assertEqual({0, 1}, {length(past(<<"bob">>)), length(past(<<"ann">>))})
        end)
    end).

the_last_trace(_) ->
    _ = publish(<<"bob">>, 1),
    _ = forget(<<"bob">>),
    ?assertEqual(1, halley_history_forgotten:count()),
    ok = halley_history_forgotten:drop_below(halley_history:forgotten(<<"bob">>) - 1),
    ?assertEqual(1, halley_history_forgotten:count()),
    ok = halley_history_forgotten:drop_below(halley_history:forgotten(<<"bob">>)),
    ?assertEqual({0, 0}, {halley_history_forgotten:count(), halley_history:forgotten(<<"bob">>)}).

%% The log is told when it is so, not before, and not of whom.
retention_takes_the_last_trace(_) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    try
        _ = publish(<<"bob">>, 1),
        _ = forget(<<"bob">>),
        _ = forget(<<"ann">>),
        _ = publish(<<"eve">>, 2),
        receive {told, Early} -> error({early, Early}) after 0 -> ok end,
        ?assertEqual(2, halley_history_forgotten:count()),
        ok = application:set_env(halley, history_retention_ms, 400),
        ?assertEqual(2, told_of_last_traces(0)),
        ?assertEqual(0, halley_history_forgotten:count())
    after
        ok = application:unset_env(halley, history_retention_ms),
        ok = logger:remove_handler(?MODULE)
    end.

told_of_last_traces(2) -> 2;
told_of_last_traces(Users) ->
    receive
        {told, Line} ->
            {match, [Count]} = re:run(Line, "^history: the last trace of (\\d) forgotten users? "
                                            "has left it$", [{capture, all_but_first, list}]),
            told_of_last_traces(Users + list_to_integer(Count))
    after ?WAIT_MS -> error(not_told)
    end.

%% A handler of the log.
log(#{msg := {Format, Args}}, #{config := Case}) when is_list(Args) ->
    Line = lists:flatten(io_lib:format(Format, Args)),
    string:find(Line, "last trace") =/= nomatch andalso (Case ! {told, Line});
log(_, _) ->
    ok.

%% One more than may be is refused before anything is done; who was forgotten may be so again.
a_bound(_) ->
    ok = halley_test_brain:limits(#{forgotten_users_max => 2}),
    ok = follow_all(<<"cid">>, [<<"x">>]),
    {ok, _} = halley:forget(<<"ann">>),
    {ok, _} = halley:forget(<<"bob">>),
    ?assertEqual({error, too_many_forgotten}, halley:forget(<<"cid">>)),
    ?assertEqual([<<"x">>], halley:following(<<"cid">>)),
    {ok, _} = halley:forget(<<"ann">>),
    ok = halley_test_brain:limits(#{forgotten_users_max => 3}),
    ?assertMatch({ok, #{following := 1}}, halley:forget(<<"cid">>)).
