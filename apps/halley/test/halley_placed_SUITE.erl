%% Changes that were decided elsewhere and have their places in a log of several brains: follows,
%% unfollows and users that are forgotten (`halley_follows_applied', `halley_forgetting:applied/3').
%% A case plays the process that orders, with rows of its own.
-module(halley_placed_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, missed/2, given/2, ids/1, caught_up/3]).
-import(halley_test_brain, [event/0, no_event/0, link_with/1, number/1]).

%% The rows below begin there, and each has so many seqs.
-define(FIRST, 1000).
-define(ROW, 10).
-define(AT, 1_700_000_000_000).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [a_row_raises_all_written_heads, follow_counts_from_its_place, unfollow_ends_at_its_place,
     what_changes_nothing, several_changes_of_a_pair, beyond_the_bound_of_a_user, applied_again,
     for_the_history_alone, the_next_row_finds_it, caught_up_by_places, nothing_is_drawn,
     cursor_of_a_brain_that_is_further, after_a_takeover, after_a_restart, forgotten].

init_per_testcase(_, Config) ->
    ok = application:set_env(halley, order, list_to_tuple([?MODULE || _ <- shards()])),
    Started = halley_test_brain:start(halley_test_brain:quiet(Config)),
    _ = row(0, []),
    Started.

end_per_testcase(_, Config) ->
    ok = application:unset_env(halley, order),
    halley_test_brain:stop(Config),
    halley_test_brain:loud(Config).

%%% Rows

shards() -> lists:seq(1, halley_shards:count()).

%% The last seq of the N-th row.
last(N) -> ?FIRST + ?ROW * N.

%% A row with an event about each of these subjects, from the first seq on; their ids.
row(N, Subjects) ->
    Placed = [{last(N - 1) + I, I, halley_event:draft(generated, Subject, integer_to_binary(N))}
              || {I, Subject} <- lists:enumerate(Subjects)],
    [ok = halley_order:committed(Shard, last(N), ?AT + N, self(),
                                 [P || {_, I, _} = P <- Placed,
                                       halley_shards:of_subject(lists:nth(I, Subjects)) =:= Shard])
     || Shard <- shards()],
    lists:append([receive {posted, Answers} -> [Id || {_, {ok, #{id := Id}}} <- Answers]
                  after ?WAIT_MS -> error(no_answer)
                  end || _ <- lists:usort([halley_shards:of_subject(S) || S <- Subjects])]).

event_row(N, Subject) ->
    [Id] = row(N, [Subject]),
    Id.

%% Changes of the N-th row, at its last seqs.
change(N, Changes) ->
    First = last(N) - length(Changes),
    halley_follows_applied:change(last(N - 1), ?AT + N,
                                  [{Operation, First + I, Pair}
                                   || {I, {Operation, Pair}} <- lists:enumerate(Changes)]).

follow(N, User, Subject) -> change(N, [{add, {User, Subject}}]).

unfollow(N, User, Subject) -> change(N, [{remove, {User, Subject}}]).

following(User) -> element(1, halley_follows:following(User, start, 10)).

%%% Cases

%% A shard without events of a row tells the log by itself four times a second only.
a_row_raises_all_written_heads(_) ->
    {Us, ok} = timer:tc(fun() ->
        lists:foreach(fun(N) ->
            _ = event_row(N, <<"room">>),
            All = list_to_tuple([last(N) || _ <- shards()]),
            ok = halley_history:await(All, ?WAIT_MS)
        end, lists:seq(1, 40))
    end),
    ?assert(Us < 4_000_000).

follow_counts_from_its_place(_) ->
    Cursor = cursor(),
    _ = event_row(1, <<"bob">>),
    ?assertEqual({ok, [changed]}, follow(2, <<"ann">>, <<"bob">>)),
    _ = row(2, []),
    After = event_row(3, <<"bob">>),
    ?assertEqual([<<"bob">>], following(<<"ann">>)),
    ?assertEqual([last(2)], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual([After], ids(missed(<<"ann">>, Cursor))).

unfollow_ends_at_its_place(_) ->
    ?assertEqual({ok, [changed]}, follow(1, <<"ann">>, <<"bob">>)),
    _ = row(1, []),
    Cursor = cursor(),
    Before = event_row(2, <<"bob">>),
    ?assertEqual({ok, [changed]}, unfollow(3, <<"ann">>, <<"bob">>)),
    _ = row(3, []),
    _ = event_row(4, <<"bob">>),
    ?assertEqual([], following(<<"ann">>)),
    ?assertEqual([last(3)], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual([Before], ids(missed(<<"ann">>, Cursor))).

%% A record of a follow that was there before would hide what its user has missed.
what_changes_nothing(_) ->
    ?assertEqual({ok, [changed]}, follow(1, <<"ann">>, <<"bob">>)),
    _ = row(1, []),
    Cursor = cursor(),
    Id = event_row(2, <<"bob">>),
    ?assertEqual({ok, [same, same, same]},
                 change(3, [{add, {<<"ann">>, <<"bob">>}}, {add, {<<"ann">>, <<"ann">>}},
                            {remove, {<<"bob">>, <<"ann">>}}])),
    _ = row(3, []),
    ?assertEqual([], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual([Id], ids(missed(<<"ann">>, Cursor))).

several_changes_of_a_pair(_) ->
    _ = event_row(1, <<"bob">>),
    Pair = {<<"ann">>, <<"bob">>},
    ?assertEqual({ok, [changed, same, changed, changed]},
                 change(2, [{add, Pair}, {add, Pair}, {remove, Pair}, {add, Pair}])),
    _ = row(2, []),
    ?assertEqual([<<"bob">>], following(<<"ann">>)),
    ?assertEqual([last(2), last(2) - 1, last(2) - 3], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual({ok, [changed, changed]}, change(3, [{remove, Pair}, {add, Pair}])),
    ?assertEqual([<<"bob">>], following(<<"ann">>)).

%% Two brains at once have each admitted what was the user's last follow. A brain that refused one
%% of them could never go on in the log.
beyond_the_bound_of_a_user(_) ->
    ok = halley_test_brain:limits(#{follows_per_user_max => 2}),
    Adds = fun(Subjects) -> [{add, {<<"ann">>, Subject}} || Subject <- Subjects] end,
    _ = [number(Subject) || Subject <- [<<"cid">>, <<"dan">>, <<"gil">>]],
    ?assertEqual({ok, [changed]}, change(1, Adds([<<"bob">>]))),
    ?assertEqual({ok, [changed, changed]}, change(2, Adds([<<"cid">>, <<"dan">>]))),
    ?assertEqual({ok, [changed, changed]}, change(3, Adds([<<"new">>, <<"newer">>]))),
    ?assertEqual(5, halley_follows:count_following(<<"ann">>)),
    %% The bound is for requests.
    [?assertMatch({ok, #{added := 0, errors := [{0, too_many_follows}]}},
                  halley_follows:follow([{<<"ann">>, Subject}]))
     || Subject <- [<<"gil">>, <<"newest">>]].

%% The history had it, and the follows didn't, or both did.
applied_again(_) ->
    _ = event_row(1, <<"bob">>),
    ok = halley_history:placed([{follow, last(2), {<<"ann">>, <<"bob">>}}], ?AT),
    ?assertEqual({ok, [changed]}, follow(2, <<"ann">>, <<"bob">>)),
    ?assertEqual({ok, [same]}, follow(2, <<"ann">>, <<"bob">>)),
    ?assertEqual([last(2)], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual([last(2)], halley_history:changes_of(<<"bob">>, 0)).

%% As with rows up to a snapshot whose follows the brain has.
for_the_history_alone(_) ->
    {ok, _} = follow(1, <<"ann">>, <<"bob">>),
    _ = row(1, []),
    Cursor = cursor(),
    Before = event_row(2, <<"bob">>),
    ok = halley_history:placed([{unfollow, last(3) - 1, {<<"ann">>, <<"bob">>}},
                                {follow, last(3), {<<"ann">>, <<"bob">>}}], ?AT),
    _ = row(3, []),
    Id = event_row(4, <<"bob">>),
    ?assertEqual([<<"bob">>], following(<<"ann">>)),
    ?assertEqual([Id], ids(missed(<<"ann">>, Cursor)) -- [Before]).

the_next_row_finds_it(_) ->
    ok = halley:login(<<"ann">>),
    {ok, [changed]} = follow(1, <<"ann">>, <<"bob">>),
    _ = row(1, []),
    Id = event_row(2, <<"bob">>),
    ?assertMatch(#{id := Id}, event()),
    {ok, [changed]} = unfollow(3, <<"ann">>, <<"bob">>),
    _ = row(3, []),
    _ = event_row(4, <<"bob">>),
    no_event().

caught_up_by_places(_) ->
    {_, Slot, _} = link_with([{number(<<"ann">>), 1}, {number(<<"cid">>), 2}]),
    {ok, _} = follow(1, <<"cid">>, <<"bob">>),
    _ = row(1, []),
    From = halley_history:heads(),
    A = event_row(2, <<"bob">>),
    {ok, _} = change(3, [{add, {<<"ann">>, <<"bob">>}}, {remove, {<<"cid">>, <<"bob">>}}]),
    _ = row(3, []),
    B = event_row(4, <<"bob">>),
    ?assertEqual([{A, [2]}, {B, [1]}], caught_up(Slot, From, 512)).

%% What is drawn here would be another event's.
nothing_is_drawn(_) ->
    _ = event_row(1, <<"bob">>),
    {ok, _} = follow(2, <<"ann">>, <<"bob">>),
    {ok, _} = unfollow(3, <<"ann">>, <<"bob">>),
    {ok, _} = halley_forgetting:applied(<<"bob">>, last(4), ?AT),
    ?assertEqual(last(4), halley_history:drawn()).

%% It has applied a row that this one hasn't. The client gets that row's events again, and lacks
%% none.
cursor_of_a_brain_that_is_further(_) ->
    _ = event_row(1, <<"ann">>),
    Further = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                   list_to_tuple([last(2) || _ <- shards()])),
    {ok, Replay} = halley_replay:new(<<"ann">>, Further),
    Limits = #{events_max => 256, bytes_max => 131072},
    ?assertEqual([], ids(given(Replay, Limits))),
    Ids = [event_row(N, <<"ann">>) || N <- [2, 3]],
    ?assertEqual(Ids, ids(given(Replay, Limits))),
    ?assertEqual(tl(Ids), ids(missed(<<"ann">>, Further))).

%% The owner of the follows dies, and the next one writes a checkpoint.
after_a_takeover(_) ->
    Cursor = cursor(),
    _ = event_row(1, <<"bob">>),
    {ok, [changed]} = follow(2, <<"ann">>, <<"bob">>),
    _ = row(2, []),
    ok = halley_test_brain:kill_and_wait(halley_follows_owner),
    ?assertEqual({ok, [same]}, follow(2, <<"ann">>, <<"bob">>)),
    Id = event_row(3, <<"bob">>),
    ok = halley_follows_owner:checkpoint(),
    ?assertEqual([<<"bob">>], following(<<"ann">>)),
    ?assertEqual({ok, [changed]}, unfollow(4, <<"ann">>, <<"bob">>)),
    _ = row(4, []),
    ?assertEqual([last(4), last(2)], halley_history:changes(<<"ann">>, 0)),
    ?assertEqual([Id], ids(missed(<<"ann">>, Cursor))).

after_a_restart(Config) ->
    Cursor = cursor(),
    _ = event_row(1, <<"bob">>),
    {ok, _} = follow(2, <<"ann">>, <<"bob">>),
    _ = row(2, []),
    Id = event_row(3, <<"bob">>),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    [Keeper, Brain, Dir] = [proplists:get_value(Key, Config) || Key <- [keeper, brain, dir]],
    Monitor = monitor(process, Brain),
    exit(Keeper, kill),
    receive {'DOWN', Monitor, process, Brain, _} -> ok after ?WAIT_MS -> error(lives_on) end,
    ok = halley_store:close(),
    {ok, Next, _} = halley_test_keeper:start(Dir, [fun halley_sup:start_link/0]),
    try
        ?assertEqual([<<"bob">>], following(<<"ann">>)),
        ?assertEqual([last(2)], halley_history:changes(<<"ann">>, 0)),
        ?assertEqual([Id], ids(missed(<<"ann">>, Cursor)))
    after
        halley_test_keeper:stop(Next)
    end.

forgotten(_) ->
    {ok, _} = change(1, [{add, {<<"ann">>, <<"bob">>}}, {add, {<<"bob">>, <<"cid">>}},
                         {add, {<<"bob">>, <<"ann">>}}]),
    _ = row(1, []),
    Cursor = cursor(),
    _ = row(2, [<<"bob">>, <<"cid">>]),
    ok = halley:login(<<"bob">>),
    ?assertEqual({ok, #{sessions => 1, following => 2, followers => 1}},
                 halley_forgetting:applied(<<"bob">>, last(3), ?AT)),
    receive {halley_closed, <<"bob">>} -> ok after ?WAIT_MS -> error(not_closed) end,
    _ = row(3, []),
    ?assertEqual({[], []}, {following(<<"ann">>), following(<<"bob">>)}),
    ?assertEqual([too_old], missed(<<"bob">>, Cursor)),
    ?assertEqual([], past(<<"bob">>)),
    ?assertEqual(last(3), halley_history:forgotten(<<"bob">>)),
    ?assertEqual([last(3)], halley_history:changes(<<"bob">>, 0)),
    %% Again, as after an error.
    ?assertMatch({ok, #{following := 0, followers := 0}},
                 halley_forgetting:applied(<<"bob">>, last(3), ?AT)),
    ?assertEqual([last(3)], halley_history:changes(<<"bob">>, 0)),
    Later = event_row(4, <<"bob">>),
    ?assertEqual([too_old, Later], ids(missed(<<"bob">>, Cursor))),
    ?assertMatch([_], past(<<"bob">>)).

past(Subject) ->
    {ok, #{events := Events}} = halley_past:page(Subject, none, none, 10),
    Events.
