%% The brain's knowledge of an event and a user, and its memory of sessions that ended.
-module(halley_trace_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, number/1, link_with/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [no_such_event, event_of_a_follower, event_of_nobody, unfollowed_since, unfollowed_before,
     link_is_behind, sessions_that_ended, closings_are_bounded, freed_numbers_are_not_complete,
     processes, sessions_of_a_link, a_link_that_is_behind, held_sessions, openings_are_bounded,
     follow_in_the_making, user_that_is_leaving, a_user_without_end].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

trace(EventId, User) ->
    {ok, Trace} = halley_trace:trace(EventId, User),
    Trace.

publish() ->
    {ok, #{id := Id}} = halley:publish(<<"bob">>, #{text => <<"hi">>}),
    Id.

no_such_event(_) ->
    ?assertEqual({error, not_found}, halley_trace:trace(<<"no such">>, <<"ann">>)).

event_of_a_follower(_) ->
    ok = halley:follow(<<"ann">>, <<"bob">>),
    {_, Slot, _} = link_with([{number(<<"ann">>), 5}]),
    Id = publish(),
    ?assertMatch(#{event := #{id := Id, subject := <<"bob">>, sessions := 1}, followed := true,
                   unfollowed_at := none, ended := [],
                   sessions := [#{session := {link, Slot, 5}, passed := true}]},
                 trace(Id, <<"ann">>)),
    ?assertMatch(#{followed := true, sessions := []}, trace(Id, <<"bob">>)).

event_of_nobody(_) ->
    Id = publish(),
    ?assertMatch(#{followed := false, sessions := [], ended := []}, trace(Id, <<"ann">>)).

unfollowed_since(_) ->
    ok = halley:follow(<<"ann">>, <<"bob">>),
    Id = publish(),
    Before = erlang:system_time(millisecond),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    #{followed := true, unfollowed_at := At} = trace(Id, <<"ann">>),
    ?assert(Before =< At andalso At =< erlang:system_time(millisecond)).

unfollowed_before(_) ->
    ok = halley:follow(<<"ann">>, <<"bob">>),
    publish(),
    ok = halley:unfollow(<<"ann">>, <<"bob">>),
    ?assertMatch(#{followed := false, unfollowed_at := none}, trace(publish(), <<"ann">>)).

link_is_behind(_) ->
    {_, _, Queue} = link_with([{number(<<"bob">>), 5}]),
    ok = counters:put(Queue, 1, halley_limits:get(link_queue_bytes_max)),
    ?assertMatch(#{sessions := [#{passed := false}]}, trace(publish(), <<"bob">>)).

sessions_that_ended(_) ->
    Number = number(<<"bob">>),
    ok = ended(Number, 4, closed),
    Id = publish(),
    ok = ended(Number, 5, slow_consumer),
    ok = ended(Number, 6, vanished),
    ok = ended(Number + 1, 7, closed),
    ?assertMatch(#{ended := [#{worker := 1, conn := 6, reason := vanished},
                             #{worker := 1, conn := 5, reason := slow_consumer}]},
                 trace(Id, <<"bob">>)).

ended(Number, Conn, Reason) ->
    halley_closings:record(Number, #{worker => 1, conn => Conn, reason => Reason,
                                     drawn => halley_history:drawn()}).

%% What was dropped is not known to be complete any more.
closings_are_bounded(_) ->
    ok = limits(#{closings_max => 3, user_share_percent_max => 100}),
    Early = publish(),
    [ok = ended(7, Conn, closed) || Conn <- lists:seq(1, 10)],
    Late = publish(),
    ?assertEqual([10, 9, 8], [Conn || #{conn := Conn} <- halley_closings:of_user(7)]),
    {ok, EarlySeq} = halley_history:find(Early),
    {ok, LateSeq} = halley_history:find(Late),
    ?assert(EarlySeq =< halley_closings:floor(7) andalso halley_closings:floor(7) < LateSeq).

%% The number's next user is somebody else, and who had it may come again.
freed_numbers_are_not_complete(_) ->
    ok = ended(7, 1, closed),
    Id = publish(),
    ok = ended(7, 2, closed),
    ok = halley_closings:freed([7]),
    ?assertEqual([], halley_closings:of_user(7)),
    {ok, Seq} = halley_history:find(Id),
    ?assert(Seq =< halley_closings:floor(undefined)).

%% --- where sessions began ---

began(EventId, User) ->
    #{sessions := Sessions} = trace(EventId, User),
    [Began || #{began := Began} <- Sessions].

%% A process is there from its login on, and not from a second one.
processes(_) ->
    Early = publish(),
    ok = halley:login(<<"bob">>),
    Late = publish(),
    ok = halley:login(<<"bob">>),
    ?assertEqual(['after'], began(Early, <<"bob">>)),
    ?assertEqual([before], began(Late, <<"bob">>)),
    ok = halley:logout(self()),
    ?assertMatch(#{ended := [#{reason := closed}], sessions := []}, trace(Late, <<"bob">>)),
    ?assertMatch(#{ended := [_]}, trace(Early, <<"bob">>)),
    Never = publish(),
    ?assertMatch(#{ended := []}, trace(Never, <<"bob">>)).

%% Sessions of a link: those that it said in its sync, those that came since, and what is remembered
%% of either.
sessions_of_a_link(_) ->
    Bob = number(<<"bob">>),
    {_, Slot, _} = link_with([]),
    ok = halley_began:syncs(Slot),
    ok = halley_directory:open(Bob, {link, Slot, 1}, infinity),
    InSync = publish(),
    ok = halley_began:synced(Slot),
    Between = publish(),
    Written = halley_began:written(Slot),
    ok = halley_began:opened(Written, [{Bob, {link, Slot, 2}}]),
    {several, _} = halley_directory:open(Bob, {link, Slot, 2}, infinity),
    Late = publish(),
    ?assertEqual([unknown, 'after'], began(InSync, <<"bob">>)),
    ?assertEqual([before, 'after'], began(Between, <<"bob">>)),
    ?assertEqual([before, before], began(Late, <<"bob">>)),
    %% A catch-up may have brought the second one what was before it.
    ok = halley_began:catches_up(#{Slot => []}),
    ?assertEqual([before, unknown], began(Between, <<"bob">>)),
    %% Those of the link before had these ids as well.
    ok = halley_began:syncs(Slot),
    ?assertEqual([unknown, unknown], began(Late, <<"bob">>)).

%% What came while the link was behind may have been sent to all that it had by then.
a_link_that_is_behind(_) ->
    Bob = number(<<"bob">>),
    {_, Slot, Queue} = link_with([{Bob, 1}]),
    ok = halley_began:syncs(Slot),
    ok = halley_began:synced(Slot),
    ok = counters:put(Queue, 1, halley_limits:get(link_queue_bytes_max)),
    Id = publish(),
    none = halley_began:written(Slot),
    ok = halley_began:opened(none, [{Bob, {link, Slot, 1}}]),
    ?assertEqual([unknown], began(Id, <<"bob">>)).

%% By what they came with.
held_sessions(_) ->
    Bob = number(<<"bob">>),
    {_, Slot, _} = link_with([{Bob, 1}]),
    Cursor = fun() ->
        halley_cursor:encode(halley_history:store(), 1, halley_history:heads())
    end,
    Early = Cursor(),
    Id = publish(),
    Late = Cursor(),
    [begin
         ok = halley_began:held(Slot, [{Bob, 1, Token}]),
         ?assertEqual({Token, [Began]}, {Token, began(Id, <<"bob">>)})
     end || {Token, Began} <- [{Early, cursor_before}, {Late, cursor_after},
                               {<<"last-3-", Late/binary>>, newest},
                               {<<"last-3-", Early/binary>>, cursor_before},
                               {<<"last-3">>, unknown}, {<<"-">>, unknown},
                               {<<"nonsense">>, unknown}]],
    ok = halley_began:held(Slot, [{Bob, 1, Early}]),
    %% It may have been too old for its subject by the time that its turn came.
    ok = application:set_env(halley, history_retention_of, [{{id, <<"bob">>}, {age, 1}}]),
    ok = halley_history_shown:new(),
    timer:sleep(5),
    ?assertEqual([unknown], began(Id, <<"bob">>)),
    ok = application:unset_env(halley, history_retention_of),
    ok = halley_history_shown:new(),
    #{held := 0} = trace(Id, <<"bob">>),
    ok = halley_directory_leaving:hold(Bob, Slot),
    #{held := 1} = trace(Id, <<"bob">>).

%% The oldest are dropped, and it is known from where on all are there.
openings_are_bounded(_) ->
    ok = limits(#{openings_max => 3}),
    Bob = number(<<"bob">>),
    ok = halley:login(<<"bob">>),
    Early = publish(),
    [ok = halley_began:opened(none, [{Bob + N, {link, 1, N}}]) || N <- lists:seq(1, 3)],
    ?assertEqual([before], began(Early, <<"bob">>)),
    Late = publish(),
    [ok = halley_began:opened(none, [{Bob + N, {link, 1, N}}]) || N <- lists:seq(4, 6)],
    Last = publish(),
    ?assertEqual([[unknown], [before], [before]],
                 [began(Id, <<"bob">>) || Id <- [Early, Late, Last]]),
    ?assertMatch([_, _, _], ets:tab2list(halley_openings)),
    ok = limits(#{openings_max => 0}),
    ok = halley_began:opened(none, [{Bob + 7, {link, 1, 7}}]),
    ?assertEqual([unknown], began(Last, <<"bob">>)).

%% A follow that is being made: its record is there, and names where it was asked for.
follow_in_the_making(_) ->
    {ok, From} = {ok, halley_history:drawn()},
    ok = halley:login(<<"ann">>),
    Id = publish(),
    ok = halley_history:followed([{<<"ann">>, <<"bob">>}], From),
    ok = halley:follow(<<"ann">>, <<"bob">>),
    ?assertMatch(#{meant := follows_just_then}, trace(Id, <<"ann">>)),
    ?assertMatch(#{meant := followed}, trace(publish(), <<"ann">>)).

%% Nothing refers to its number any more, so its id isn't found; what is remembered of it counts.
user_that_is_leaving(_) ->
    ok = halley:login(<<"bob">>),
    Id = publish(),
    ok = halley:logout(self()),
    ok = halley_ids_sweep:round(),
    undefined = halley_ids:lookup(<<"bob">>),
    ?assertMatch(#{ended := [#{reason := closed}]}, trace(Id, <<"bob">>)).

%% docs/internals/shares.md: a user whose sessions come and go as fast as they can pushes out what
%% is remembered of its own alone.
a_user_without_end(_) ->
    ok = limits(#{closings_max => 100, openings_max => 100}),
    [Ann, Mallory] = [number(User) || User <- [<<"ann">>, <<"mallory">>]],
    {_, Slot, _} = link_with([{Ann, 1}]),
    ok = halley_began:syncs(Slot),
    ok = halley_began:synced(Slot),
    Id = publish(),
    ok = halley_began:opened(halley_began:written(Slot), [{Ann, {link, Slot, 1}}]),
    ok = ended(Ann, 2, slow_consumer),
    [begin
         ok = halley_began:opened(none, [{Mallory, {link, Slot, 1000 + Conn}}]),
         ok = ended(Mallory, 1000 + Conn, closed)
     end || Conn <- lists:seq(1, 1000)],
    #{ended := Ended, sessions := [#{began := Began}]} = trace(Id, <<"ann">>),
    ?assertMatch([#{conn := 2, reason := slow_consumer}], Ended),
    ?assertEqual('after', Began),
    {ok, Seq} = halley_history:find(Id),
    Known = [Seq > max(halley_closings:floor(User), halley_openings:floor(User))
             || User <- [Ann, Mallory]],
    ?assertEqual([true, false], Known),
    ?assertEqual([2000, 1999, 1998, 1997, 1996],
                 [Conn || #{conn := Conn} <- halley_closings:of_user(Mallory)]),
    ?assertEqual(5, length(halley_openings:of_user(Mallory))),
    ok = limits(#{}).
