%% What is known of an event and a user, and what is remembered of sessions that ended.
-module(halley_trace_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [limits/1, number/1, link_with/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [no_such_event, event_of_a_follower, event_of_nobody, unfollowed_since, unfollowed_before,
     link_is_behind, sessions_that_ended, closings_are_bounded].

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
    ok = halley_closings:record(Number, #{worker => 1, conn => 4, reason => closed}),
    timer:sleep(2),
    Id = publish(),
    timer:sleep(2),
    ok = halley_closings:record(Number, #{worker => 1, conn => 5, reason => slow_consumer}),
    ok = halley_closings:record(Number, #{worker => 2, conn => 6, reason => vanished}),
    ok = halley_closings:record(Number + 1, #{worker => 2, conn => 7, reason => closed}),
    ?assertMatch(#{ended := [#{worker := 2, conn := 6, reason := vanished},
                             #{worker := 1, conn := 5, reason := slow_consumer}]},
                 trace(Id, <<"bob">>)).

closings_are_bounded(_) ->
    ok = limits(#{closings_max => 3}),
    [ok = halley_closings:record(7, #{worker => 1, conn => Conn, reason => closed})
     || Conn <- lists:seq(1, 10)],
    ?assertEqual([10, 9, 8], [Conn || #{conn := Conn} <- halley_closings:of_user(7)]).
