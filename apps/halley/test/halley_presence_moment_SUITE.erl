%% A user that is on its way out, comes back and goes again before `halley_presence' has looked: it
%% is away from then on, so no leave is sent before it was away for `presence.leave_after'.
-module(halley_presence_moment_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_presence_SUITE, [open/4, close/3, here/1, key/1, told/1, nothing_told/1, state/2,
                                join/2, leave/2, link/2, said_all/1]).
-import(halley_test_brain, [follow_all/2, number/1]).

%% That of halley_presence_SUITE.
-define(LEAVE_MS, 400).
%% That of halley_standstill.
-define(HOLD_MS, 1000).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [in_a_room, followed, of_follows_alone, as_it_begins, stood_still].

init_per_testcase(as_it_begins, Config) ->
    ok = meck:new(halley_presence_watch, [passthrough, no_link]),
    halley_presence_SUITE:init_per_testcase(a_brain_begins, Config);
init_per_testcase(Case, Config) ->
    halley_presence_SUITE:init_per_testcase(Case, Config).

end_per_testcase(as_it_begins, Config) ->
    meck:unload(halley_presence_watch),
    halley_presence_SUITE:end_per_testcase(as_it_begins, Config);
end_per_testcase(Case, Config) -> halley_presence_SUITE:end_per_testcase(Case, Config).

now_ms() -> erlang:monotonic_time(millisecond).

%% It goes, and comes back for a moment as another connection. When it had gone for good. However
%% slow this is, nobody has left before.
there_for_a_moment({_, Slot, _} = Link, {First, Second}, User, Subjects) ->
    ok = halley_directory_leaving:hold(User, Slot),
    ok = close(Link, First, User),
    timer:sleep(?LEAVE_MS div 2),
    ok = sys:suspend(halley_presence),
    ok = open(Link, Second, User, Subjects),
    ok = close(Link, Second, User),
    ok = halley_directory_leaving:release(User, Slot),
    GoneMs = now_ms(),
    ok = sys:resume(halley_presence),
    GoneMs.

in_a_room(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[2], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    GoneMs = there_for_a_moment(Link, {1, 3}, U1, [<<"room/1">>]),
    ?assertEqual({[2], leave(<<"room/1">>, <<"u1">>)}, told(Link)),
    ?assert(now_ms() - GoneMs >= ?LEAVE_MS).

followed(Config) ->
    Link = here(Config),
    ok = follow_all(<<"u1">>, [<<"u2">>]),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [key(<<"*">>)]),
    ?assertEqual({[1], state(<<"*">>, [])}, told(Link)),
    ok = open(Link, 2, U2, []),
    ?assertEqual({[1], join(<<"*">>, <<"u2">>)}, told(Link)),
    GoneMs = there_for_a_moment(Link, {2, 3}, U2, []),
    ?assertEqual({[1], leave(<<"*">>, <<"u2">>)}, told(Link)),
    ?assert(now_ms() - GoneMs >= ?LEAVE_MS).

%% What others follow meanwhile doesn't keep it.
of_follows_alone(Config) ->
    Link = here(Config),
    ok = follow_all(<<"u1">>, [<<"u2">>]),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [key(<<"*">>)]),
    ?assertEqual({[1], state(<<"*">>, [])}, told(Link)),
    ok = open(Link, 2, U2, []),
    ?assertEqual({[1], join(<<"*">>, <<"u2">>)}, told(Link)),
    ok = close(Link, 2, U2),
    Follower = spawn_link(fun() -> follow_on(1) end),
    ?assertEqual({[1], leave(<<"*">>, <<"u2">>)}, told(Link)),
    unlink(Follower),
    exit(Follower, kill).

follow_on(N) ->
    ok = follow_all(<<"u2">>, [<<"s", (integer_to_binary(N))/binary>>]),
    timer:sleep(20),
    follow_on(N + 1).

%% Who goes, follows or unfollows while a brain that begins reads who is there.
as_it_begins(_) ->
    Case = self(),
    meck:expect(halley_presence_watch, open, fun(Subject) ->
        ok = asked(Case, before),
        Room = meck:passthrough([Subject]),
        ok = asked(Case, behind),
        Room
    end),
    Link = link(0, 1),
    [U1, U2, U3] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>]],
    ok = follow_all(<<"u2">>, [<<"room/1">>]),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, U2, []),
    ok = open(Link, 3, U3, []),
    ok = open(Link, 9, nobody, [key(<<"room/1">>)]),
    ok = said_all(Link),
    ok = answer(before, fun() -> close(Link, 1, U1) end),
    ok = answer(behind, fun() ->
        ok = follow_all(<<"u3">>, [<<"room/1">>]),
        halley:unfollow(<<"u2">>, <<"room/1">>)
    end),
    ?assertEqual({[9], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Link)),
    ?assertEqual({[9], join(<<"room/1">>, <<"u3">>)}, told(Link)),
    ?assertEqual([{[9], leave(<<"room/1">>, <<"u1">>)}, {[9], leave(<<"room/1">>, <<"u2">>)}],
                 lists:sort([told(Link), told(Link)])),
    nothing_told(Link).

asked(Case, When) ->
    Case ! {self(), When},
    receive {go, When} -> ok end.

answer(When, Do) ->
    receive {Presence, When} when is_pid(Presence) -> ok = Do(), Presence ! {go, When}, ok end.

%% It stood still: whoever has gone gets a second to be read, and ?LEAVE_MS is less.
stood_still(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[2], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    ok = sys:suspend(halley_presence),
    ok = close(Link, 1, U1),
    timer:sleep(2 * ?LEAVE_MS),
    ResumedMs = now_ms(),
    ok = sys:resume(halley_presence),
    ?assertEqual({[2], leave(<<"room/1">>, <<"u1">>)}, told(Link)),
    ?assert(now_ms() - ResumedMs >= ?HOLD_MS).
