%% Groups in a whole brain: what must hold while they wait, are filled, end, and when one of their
%% processes dies. Three followers are a crowd here.
-module(halley_groups_life_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, number/1, shard/1, link_with/1, wait/1, spawn_actor/1,
                            join/1, await_publish/1, kill_and_wait/1]).

-define(LIMITS, #{group_followers_min => 3, group_followers_low => 2}).
-define(STARS, [<<"sun">>, <<"moon">>, <<"comet">>]).
-define(ACTORS, 6).
-define(STEPS, 300).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [marks_while_a_group_waits, a_login_while_a_group_ends, as_many_come_as_go,
          the_owner_of_follows_dies, a_shard_dies, never_more_than_there_may_be, nothing_is_left].

init_per_testcase(_, Config) ->
    Started = halley_test_brain:start(Config),
    ok = limits(?LIMITS),
    Started.

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% One group is filled for ever, the other waits: what changes needs no mark that nobody settles.
marks_while_a_group_waits(_) ->
    ok = limits(?LIMITS#{group_fill_per_s_max => 1}),
    Users = crowd([<<"sun">>, <<"moon">>]),
    [{ok, _} = halley:publish(Star, 1) || Star <- [<<"sun">>, <<"moon">>]],
    wait(fun() -> length(halley_groups:list()) =:= 2 end),
    {_, Slot, _} = link_with([]),
    [open(User, Slot, User) || User <- Users],
    wait(fun() -> halley_groups_marks:count() =:= 0 end),
    [?assertMatch({ok, #{sessions := 3}}, halley:publish(Star, 2))
     || Star <- [<<"sun">>, <<"moon">>]].

%% A publish waits for its shard when the group is to end, and a session opens. The event is above
%% the heads that this session could read, so it must get it.
a_login_while_a_group_ends(_) ->
    [User | _] = crowd([<<"sun">>]),
    {_, Slot, _} = link_with([]),
    group(<<"sun">>),
    Shard = shard(halley_shards:of_subject(<<"sun">>)),
    ok = sys:suspend(Shard, infinity),
    Publisher = spawn_actor(fun() -> halley:publish(<<"sun">>, 2) end),
    await_publish(Shard),
    unfollow([{<<"user 2">>, <<"sun">>}, {<<"user 3">>, <<"sun">>}]),
    ok = census(),
    ?assertEqual([], halley_groups:list()),
    open(User, Slot, 1),
    ok = sys:resume(Shard, infinity),
    ?assertMatch({ok, #{sessions := 1}}, join(Publisher)),
    wait(fun() -> halley_groups_table:list() =:= [] end).

%% The census looks again though there are as many follows as before.
as_many_come_as_go(_) ->
    _ = crowd([<<"sun">>]),
    group(<<"sun">>),
    ok = census(),
    unfollow([{<<"user 2">>, <<"sun">>}, {<<"user 3">>, <<"sun">>}]),
    {ok, _} = halley:follow([{<<"user 2">>, <<"moon">>}, {<<"user 3">>, <<"moon">>}]),
    ok = census(),
    wait(fun() -> halley_groups_table:list() =:= [] end).

%% It wrote a follow to the disk, and died before it was in the tables, or marked. All groups are
%% exact as soon as its follow is seen, not only when they have been filled anew.
the_owner_of_follows_dies(_) ->
    _ = crowd([<<"sun">>, <<"moon">>]),
    Late = number(<<"late">>),
    {_, Slot, _} = link_with([]),
    open(Late, Slot, 1),
    [group(Star) || Star <- [<<"sun">>, <<"moon">>]],
    ok = limits(?LIMITS#{group_fill_per_s_max => 1}),
    Keys = lists:sort([halley_pages:key(Late, number(Star)) || Star <- [<<"sun">>, <<"moon">>]]),
    ok = sys:suspend(halley_follows_owner, infinity),
    Dir = halley_store:directory(),
    {ok, Number} = halley_store_recovery:last_journal(Dir),
    {ok, Journal, _} = halley_store_journal:open(Dir, Number),
    {ok, _, Written} = halley_store_journal:append(
        [halley_store_entries:names([{Late, <<"late">>}]),
         halley_store_entries:pairs(add, halley_pages:pack(Keys))], Journal),
    ok = halley_store_journal:close(Written),
    kill_and_wait(halley_follows_owner),
    wait(fun() -> length(halley:followers(<<"moon">>)) =:= 4 end),
    %% It answers, so its beginning is over.
    {ok, _} = halley:follow([{<<"late">>, <<"comet">>}]),
    [?assertMatch({Star, {ok, #{sessions := 1}}}, {Star, halley:publish(Star, 2)})
     || Star <- [<<"sun">>, <<"moon">>]].

%% Its groups are none until they are filled again: no row stands, no mark waits for it, and the
%% workers forget them.
a_shard_dies(_) ->
    Users = crowd([<<"sun">>]),
    {Writer, Slot, _} = link_with([]),
    group(<<"sun">>),
    [{Sun, Shard, Filling}] = halley_groups_table:list(),
    ok = told_of_end(Writer, Sun),
    ok = sys:suspend(halley_groups, infinity),
    kill_and_wait(shard(Shard)),
    {ok, _} = halley:publish(<<"sun">>, 2),
    ok = told_of_end(Writer, Sun),
    ?assertEqual([], halley_groups_table:list()),
    [open(User, Slot, User) || User <- Users],
    ?assertEqual(0, halley_groups_marks:count()),
    ?assertMatch({ok, #{sessions := 3}}, halley:publish(<<"sun">>, 3)),
    ok = sys:resume(halley_groups, infinity),
    wait(fun() -> lists:member({Sun, filled}, halley_groups:list()) end),
    ?assertMatch([{_, Shard, Later}] when Later > Filling, halley_groups_table:list()),
    ?assertMatch({ok, #{sessions := 3}}, halley:publish(<<"sun">>, 4)).

%% A group that ends is heard of by the workers before another one begins in its place.
never_more_than_there_may_be(_) ->
    ok = limits(?LIMITS#{groups_max => 1}),
    {Old, New} = two_of_different_shards(),
    _ = crowd([Old, New]),
    group(Old),
    Shard = shard(halley_shards:of_subject(Old)),
    ok = sys:suspend(Shard, infinity),
    unfollow([{<<"user 2">>, Old}, {<<"user 3">>, Old}]),
    ok = census(),
    {ok, _} = halley:publish(New, 2),
    ?assertEqual([{number(New), filling}], halley_groups:list()),
    timer:sleep(100),
    ?assertMatch([{_, _, _}], halley_groups_table:list()),
    ok = sys:resume(Shard, infinity),
    wait(fun() -> halley_groups:list() =:= [{number(New), filled}] end).

%% Whatever came and went and in whichever order: when nobody follows and nobody is there, all is as
%% it was at the beginning.
nothing_is_left(_) ->
    Everybody = [{User, Star} || User <- users(), Star <- ?STARS],
    {ok, _} = halley:follow(Everybody),
    unfollow(Everybody),
    {Writer, Slot, _} = link_with([]),
    ok = census(),
    Before = remains(),
    Actors = [spawn_actor(fun() -> act(N, Slot) end) || N <- lists:seq(1, ?ACTORS)],
    Disturber = spawn_actor(fun() -> disturb(60) end),
    [join(Actor) || Actor <- Actors],
    join(Disturber),
    unfollow(Everybody),
    exit(Writer, kill),
    wait(fun() -> halley_links:list() =:= [] andalso halley_directory:shut_slots() =:= [] end),
    ok = census(),
    %% Those that ended by themselves are logged out when the directory hears of it.
    _ = catch wait(fun() -> remains() =:= Before#{links := 0} end),
    ?assertEqual(Before#{links := 0}, remains()).

%% Each actor has users of its own, so that it closes what it opened.
act(N, Slot) ->
    Users = [User || {User, I} <- lists:zip(users(), lists:seq(1, length(users()))),
                     I rem ?ACTORS =:= N rem ?ACTORS],
    lists:foreach(fun(_) -> step(rand:uniform(6), pick(Users), pick(?STARS), Slot) end,
                  lists:seq(1, ?STEPS)).

step(1, User, Star, _) -> halley:unfollow(User, Star);
step(2, User, _, Slot) -> open(number(User), Slot, number(User));
step(3, User, _, Slot) ->
    ok = halley_directory:close(number(User), {link, Slot, number(User)}),
    halley_groups:changed(number(User));
step(4, User, _, _) ->
    ok = halley:login(User),
    case rand:uniform(3) of
        1 -> ok = halley:logout(self());
        2 -> {ok, _} = halley:close_sessions(User);
        3 -> ok = halley:login(User, spawn(fun() -> timer:sleep(rand:uniform(3)) end))
    end;
step(5, _, Star, _) -> halley:publish(Star, 1);
step(6, User, Star, _) -> halley:follow(User, Star).

%% Groups end and begin, and somebody who has to do with them dies; so seldom that no supervisor
%% gives up.
disturb(0) ->
    ok;
disturb(N) ->
    case N of
        20 -> kill_and_wait(halley_groups);
        35 -> kill_and_wait(shard(halley_shards:of_subject(<<"sun">>)));
        50 -> kill_and_wait(halley_follows_owner);
        _ -> census()
    end,
    timer:sleep(rand:uniform(10)),
    disturb(N - 1).

remains() ->
    Shards = [element(5, sys:get_state(shard(N), infinity))
              || N <- lists:seq(1, halley_shards:count())],
    #{rows => ets:info(halley_groups_table, size), marks => ets:info(halley_groups_marks, size),
      sessions => ets:info(halley_directory_rows, size),
      pairs => halley_pages_table:size(halley_followers),
      links => ets:info(halley_links, size),
      shards => Shards, groups => halley_groups:list(), online => halley_directory:online(),
      directory => sys:get_state(halley_directory, infinity)}.

%% --- what happens --------------------------------------------------------------------------------

users() -> [<<"user ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 12)].

%% Three users who follow all of these.
crowd(Stars) ->
    Users = lists:sublist(users(), 3),
    {ok, _} = halley:follow([{User, Star} || User <- Users, Star <- Stars]),
    [number(User) || User <- Users].

told_of_end(Writer, Subject) ->
    receive {Writer, {end_group, Subject}} -> ok after 60000 -> not_told end.

unfollow(Pairs) ->
    {ok, _} = halley_follows:unfollow(Pairs),
    ok.

open(User, Slot, Conn) ->
    _ = halley_directory:open(User, {link, Slot, Conn}, infinity),
    halley_groups:changed(User).

group(Star) ->
    {ok, _} = halley:publish(Star, 1),
    wait(fun() -> lists:member({number(Star), filled}, halley_groups:list()) end).

%% Returns behind it.
census() ->
    halley_groups ! census,
    _ = sys:get_state(halley_groups, infinity),
    ok.

two_of_different_shards() ->
    [Old | Others] = [<<"star ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    Shard = halley_shards:of_subject(Old),
    {Old, hd([Star || Star <- Others, halley_shards:of_subject(Star) =/= Shard])}.

pick(List) -> lists:nth(rand:uniform(length(List)), List).
