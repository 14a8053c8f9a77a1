%% Presence messages: changes, each once; nothing false when connections come back, links are cut or
%% the brain begins anew. The case plays the process of each link, as the worker of one edge. Of
%% many there are counts: halley_presence_large_SUITE.
-module(halley_presence_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [follow_all/2, number/1, wait/1]).

-define(LEAVE_MS, 400).
%% Where somebody has to be back before, however slow the machine is.
-define(LONG_LEAVE_MS, 8000).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [off, who_asks_is_told, several_sessions, by_subscription, by_follow, visitors,
     away_for_a_moment, a_link_is_cut, a_brain_begins, who_goes_as_it_begins, the_process_dies,
     of_those_followed, of_celebrities_nothing, subjects_not_configured, no_room,
     nobody_asks_any_more, held].

init_per_testcase(off, Config) ->
    halley_test_brain:start(Config);
init_per_testcase(Case, Config) ->
    ok = application:set_env(halley, presence_subjects, "room/*,u*"),
    ok = application:set_env(halley, presence_leave_ms, leave_ms(Case)),
    case {halley_test_brain:start(Config), Case} of
        {Started, _} when Case =:= a_brain_begins; Case =:= who_goes_as_it_begins -> Started;
        {Started, _} -> [{settled, settled()} | Started]
    end.

end_per_testcase(_, Config) ->
    ok = application:unset_env(halley, presence_subjects),
    ok = application:unset_env(halley, presence_leave_ms),
    ok = halley_presence_dirty:turn_on(""),
    halley_test_brain:stop(Config).

%% Half of it is over when the users go, and follows are written to the disk in what is left.
leave_ms(who_goes_as_it_begins) -> 2 * ?LONG_LEAVE_MS;
leave_ms(Case) when Case =:= away_for_a_moment; Case =:= of_those_followed;
                    Case =:= states_come_back ->
    ?LONG_LEAVE_MS;
leave_ms(_) -> ?LEAVE_MS.

%% --- helpers -------------------------------------------------------------------------------------

%% A worker that is linked, and has been for long enough that all is told.
settled() ->
    Link = link(0, 1),
    said_all(Link),
    timer:sleep(leave_ms()),
    Link.

%% Of this case.
leave_ms() -> application:get_env(halley, presence_leave_ms, ?LEAVE_MS).

now_ms() -> erlang:monotonic_time(millisecond).

link(Worker, Workers) ->
    halley_test_brain:link_with([], #{worker => Worker, workers => Workers, pid => 1}).

said_all({_, Slot, _}) -> halley_links_synced:synced(Slot).

key(Subject) -> halley_presence_keys:key(Subject).

open({_, Slot, _}, Conn, User, Subjects) ->
    [] = halley_subscriptions:open(Slot, [{Conn, User, live, Subjects} || Subjects =/= []]),
    is_integer(User) andalso halley_sessions:open(User, {link, Slot, Conn}, configured),
    is_integer(User) andalso halley_groups:changed(User),
    ok.

close({_, Slot, _}, Conn, User) ->
    is_integer(User) andalso halley_directory:close(User, {link, Slot, Conn}),
    is_integer(User) andalso halley_groups:changed(User),
    halley_subscriptions:close(Slot, [Conn]).

%% What the next message on this link says, and to whom.
told({Writer, _, _} = Link) ->
    case get({told, Writer}) of
        [{Json, Conns} | Others] ->
            _ = put({told, Writer}, Others),
            #{<<"presence">> := What} = jiffy:decode(Json, [return_maps]),
            {lists:sort(Conns), What};
        _ ->
            receive {Writer, {presence, Told}} -> put({told, Writer}, Told)
            after ?WAIT_MS -> error(nothing_told) end,
            told(Link)
    end.

state(Subject, Users) -> state(Subject, length(Users), Users).
state(Subject, Online, Users) ->
    #{<<"subject">> => Subject, <<"online">> => Online, <<"users">> => Users}.

change(Subject, User, What) ->
    #{<<"subject">> => Subject, <<"user">> => User, <<"state">> => What}.

join(Subject, User) -> change(Subject, User, <<"join">>).
leave(Subject, User) -> change(Subject, User, <<"leave">>).

nothing_told(Link) -> nothing_told(Link, leave_ms() + 2 * ?LEAVE_MS).

nothing_told({Writer, _, _}, Ms) ->
    true = lists:member(get({told, Writer}), [undefined, []]),
    receive {Writer, {presence, Told}} -> error({told, Told}) after Ms -> ok end.

here(Config) -> proplists:get_value(settled, Config).

%% --- cases ---------------------------------------------------------------------------------------

%% Without presence.subjects there is no process, and nothing is noted.
off(_) ->
    ?assertEqual(undefined, whereis(halley_presence)),
    Link = link(0, 1),
    ok = said_all(Link),
    ok = open(Link, 1, number(<<"u1">>), [<<"room/1">>, key(<<"room/1">>)]),
    ?assertEqual(0, ets:info(halley_presence_dirty, size)),
    nothing_told(Link).

who_asks_is_told(Config) ->
    Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, U2, [key(<<"room/1">>)]),
    ?assertEqual({[2], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    {_, Slot, _} = Link,
    {added, _} = halley_subscriptions:add(Slot, {2, U2, live}, <<"room/1">>),
    ?assertEqual({[2], join(<<"room/1">>, <<"u2">>)}, told(Link)),
    {added, _} = halley_subscriptions:add(Slot, {1, U1, live}, key(<<"room/1">>)),
    ?assertEqual({[1], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Link)),
    removed = halley_subscriptions:remove(Slot, 2, <<"room/1">>),
    ?assertEqual({[1, 2], leave(<<"room/1">>, <<"u2">>)}, told(Link)),
    removed = halley_subscriptions:remove(Slot, 1, key(<<"room/1">>)),
    ok = close(Link, 1, U1),
    ?assertEqual({[2], leave(<<"room/1">>, <<"u1">>)}, told(Link)),
    nothing_told(Link).

%% A user joins once and leaves once.
several_sessions(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[1], state(<<"room/1">>, [])}, told(Link)),
    ok = open(Link, 2, U1, [<<"room/1">>]),
    ?assertEqual({[1], join(<<"room/1">>, <<"u1">>)}, told(Link)),
    ok = follow_all(<<"u1">>, [<<"room/1">>]),
    ok = open(Link, 3, U1, [<<"room/1">>]),
    ok = close(Link, 2, U1),
    nothing_told(Link),
    ok = close(Link, 3, U1),
    ?assertEqual({[1], leave(<<"room/1">>, <<"u1">>)}, told(Link)),
    nothing_told(Link).

by_subscription(Config) ->
    Link = here(Config),
    ok = open(Link, 1, nobody, [key(<<"room/1">>), key(<<"room/2">>)]),
    ?assertMatch([{[1], #{<<"users">> := []}}, {[1], #{<<"users">> := []}}],
                 [told(Link), told(Link)]),
    ok = open(Link, 2, number(<<"u1">>), [<<"room/2">>, <<"room/3">>]),
    ?assertEqual({[1], join(<<"room/2">>, <<"u1">>)}, told(Link)),
    nothing_told(Link).

%% Followers that are online, and the subject itself; a follow and an unfollow count.
by_follow(Config) ->
    Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = follow_all(<<"u2">>, [<<"u1">>]),
    ok = open(Link, 1, nobody, [key(<<"u1">>)]),
    ?assertEqual({[1], state(<<"u1">>, [])}, told(Link)),
    ok = open(Link, 2, U2, []),
    ?assertEqual({[1], join(<<"u1">>, <<"u2">>)}, told(Link)),
    ok = open(Link, 3, U1, []),
    ?assertEqual({[1], join(<<"u1">>, <<"u1">>)}, told(Link)),
    ok = open(Link, 4, number(<<"u3">>), []),
    ok = follow_all(<<"u3">>, [<<"u1">>]),
    ?assertEqual({[1], join(<<"u1">>, <<"u3">>)}, told(Link)),
    ok = halley:unfollow(<<"u2">>, <<"u1">>),
    ?assertEqual({[1], leave(<<"u1">>, <<"u2">>)}, told(Link)),
    ok = close(Link, 3, U1),
    ?assertEqual({[1], leave(<<"u1">>, <<"u1">>)}, told(Link)).

visitors(Config) ->
    ok = halley_test_brain:limits(#{presence_counts_ms => 100}),
    Link = here(Config),
    ok = open(Link, 1, nobody, [<<"room/1">>, key(<<"room/1">>)]),
    ?assertEqual({[1], state(<<"room/1">>, 1, [])}, told(Link)),
    ok = open(Link, 2, nobody, [<<"room/1">>]),
    Count = fun(N) -> #{<<"subject">> => <<"room/1">>, <<"online">> => N} end,
    ?assertEqual({[1], Count(2)}, told(Link)),
    ok = close(Link, 2, nobody),
    ?assertEqual({[1], Count(1)}, told(Link)),
    nothing_told(Link).

%% A connection that breaks and comes back, and one that does so again and again.
away_for_a_moment(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[2], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    lists:foreach(fun(Conn) ->
        ok = close(Link, Conn, U1),
        nothing_told(Link, ?LEAVE_MS div 3),
        ok = open(Link, Conn + 10, U1, [<<"room/1">>]),
        nothing_told(Link, 50)
    end, [1, 11, 21, 31, 41]),
    nothing_told(Link).

%% Its sessions are gone, and so are those who asked. While it is away nobody has left; when it is
%% back it says its sessions, and who asked is told the state. One that didn't come back has left.
a_link_is_cut(Config) ->
    Other = link(1, 2),
    {Writer, _, _} = here(Config),
    exit(Writer, kill),
    Link = link(0, 2),
    [said_all(L) || L <- [Link, Other]],
    [U1, U2, U3] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>]],
    timer:sleep(?LEAVE_MS),
    ok = open(Other, 1, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[1], state(<<"room/1">>, [])}, told(Other)),
    [begin
         ok = open(Link, Conn, User, [<<"room/1">>]),
         ?assertMatch({[1], #{<<"state">> := <<"join">>}}, told(Other))
     end || {Conn, User} <- [{1, U1}, {2, U2}]],
    ok = open(Link, 3, U3, [key(<<"room/1">>)]),
    ?assertMatch({[3], #{<<"users">> := [<<"u1">>, <<"u2">>]}}, told(Link)),
    {Cut, _, _} = Link,
    exit(Cut, kill),
    nothing_told(Other),
    Back = link(0, 2),
    ok = open(Back, 1, U1, [<<"room/1">>]),
    ok = open(Back, 3, U3, [key(<<"room/1">>)]),
    ?assertEqual({[3], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Back)),
    nothing_told(Other),
    ok = said_all(Back),
    ?assertEqual({[1], leave(<<"room/1">>, <<"u2">>)}, told(Other)),
    ?assertEqual({[3], leave(<<"room/1">>, <<"u2">>)}, told(Back)),
    nothing_told(Other).

%% It says nothing before both workers have said their sessions and `leave_after' is over: then
%% everybody is told the state.
a_brain_begins(_) ->
    [Link, Other] = [link(0, 2), link(1, 2)],
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [<<"room/1">>, key(<<"room/1">>)]),
    ok = said_all(Link),
    nothing_told(Link),
    ok = open(Other, 1, U2, [<<"room/1">>, key(<<"*">>)]),
    SaidMs = now_ms(),
    ok = said_all(Other),
    ?assertEqual({[1], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Link)),
    ?assert(now_ms() - SaidMs >= ?LEAVE_MS),
    ?assertEqual({[1], state(<<"*">>, [])}, told(Other)),
    nothing_told(Link).

%% Who went a moment before the state is told is in it, and has left when it doesn't come back.
who_goes_as_it_begins(_) ->
    Link = link(0, 1),
    [U1, U2, U3, U5] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>, <<"u5">>]],
    ok = follow_all(<<"u5">>, [<<"u1">>, <<"u4">>]),
    ok = follow_all(<<"u3">>, [<<"room/1">>]),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, U2, [<<"room/1">>]),
    ok = open(Link, 3, U3, []),
    ok = open(Link, 5, U5, [key(<<"room/1">>), key(<<"*">>)]),
    ok = said_all(Link),
    timer:sleep(leave_ms() div 2),
    [ok = close(Link, N, U) || {N, U} <- [{1, U1}, {2, U2}, {3, U3}]],
    ok = follow_all(<<"u4">>, [<<"room/1">>]),
    ?assertEqual(lists:sort([{[5], (state(<<"*">>, [<<"u1">>]))},
                             {[5], state(<<"room/1">>, [<<"u1">>, <<"u2">>, <<"u3">>])}]),
                 lists:sort([told(Link), told(Link)])),
    ok = open(Link, 12, U2, [<<"room/1">>]),
    ?assertEqual(lists:sort([{[5], leave(<<"*">>, <<"u1">>)},
                             {[5], leave(<<"room/1">>, <<"u1">>)},
                             {[5], leave(<<"room/1">>, <<"u3">>)}]),
                 lists:sort([told(Link), told(Link), told(Link)])),
    nothing_told(Link).

the_process_dies(Config) ->
    Link = here(Config),
    [U1, U2] = [number(U) || U <- [<<"u1">>, <<"u2">>]],
    ok = open(Link, 1, U1, [<<"room/1">>, key(<<"room/1">>)]),
    ?assertEqual({[1], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    halley_test_brain:kill_and_wait(halley_presence),
    ok = open(Link, 2, U2, [<<"room/1">>]),
    ?assertEqual({[1], state(<<"room/1">>, [<<"u1">>, <<"u2">>])}, told(Link)),
    ok = close(Link, 2, U2),
    ?assertEqual({[1], leave(<<"room/1">>, <<"u2">>)}, told(Link)).

%% http.md 22.6
of_those_followed(Config) ->
    Link = here(Config),
    [U1, U2, U3, Other] = [number(U) || U <- [<<"u1">>, <<"u2">>, <<"u3">>, <<"other">>]],
    ok = follow_all(<<"u1">>, [<<"u2">>, <<"u3">>, <<"other">>]),
    ok = open(Link, 2, U2, []),
    ok = open(Link, 1, U1, [key(<<"*">>)]),
    ?assertEqual({[1], state(<<"*">>, [<<"u2">>])}, told(Link)),
    ok = open(Link, 3, U3, [key(<<"*">>)]),
    ?assertEqual([{[1], join(<<"*">>, <<"u3">>)}, {[3], state(<<"*">>, [])}],
                 lists:sort([told(Link), told(Link)])),
    %% presence.subjects doesn't have it.
    ok = open(Link, 4, Other, []),
    ok = close(Link, 2, U2),
    ?assertEqual({[1], leave(<<"*">>, <<"u2">>)}, told(Link)),
    ok = close(Link, 3, U3),
    ok = open(Link, 5, U3, []),
    nothing_told(Link).

of_celebrities_nothing(Config) ->
    ok = halley_test_brain:limits(#{presence_listed_max => 2}),
    Link = here(Config),
    [ok = follow_all(U, [<<"ustar">>]) || U <- [<<"u1">>, <<"u2">>, <<"u3">>]],
    ok = open(Link, 1, number(<<"u1">>), [key(<<"*">>)]),
    ?assertEqual({[1], state(<<"*">>, [])}, told(Link)),
    ok = open(Link, 2, number(<<"ustar">>), []),
    nothing_told(Link).

subjects_not_configured(Config) ->
    Link = here(Config),
    ok = open(Link, 1, number(<<"u1">>), [<<"live">>, key(<<"live">>)]),
    nothing_told(Link).

%% A link that has no room gets the state when it has.
no_room(Config) ->
    {Writer, _, Queue} = Link = here(Config),
    ok = open(Link, 1, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[1], state(<<"room/1">>, [])}, told(Link)),
    Full = halley_limits:get(link_queue_bytes_max),
    ok = counters:add(Queue, 1, Full),
    ok = open(Link, 2, number(<<"u1">>), [<<"room/1">>]),
    nothing_told(Link, 500),
    receive {Writer, behind} -> ok after 0 -> ok end,
    ok = counters:sub(Queue, 1, Full),
    ?assertEqual({[1], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    nothing_told(Link).

%% After a while nothing is noted, and who asks then is told what is so.
nobody_asks_any_more(Config) ->
    Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, nobody, [key(<<"room/1">>), key(<<"*">>)]),
    ?assertEqual({[1], state(<<"room/1">>, [])}, told(Link)),
    ok = close(Link, 1, nobody),
    wait(fun() -> #{presence_subjects => 0} =:= halley_presence_dirty:gauges() end),
    ok = open(Link, 2, U1, [<<"room/1">>]),
    ?assertEqual(0, ets:info(halley_presence_dirty, size)),
    ok = open(Link, 3, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[3], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    ok = close(Link, 2, U1),
    ?assertEqual({[3], leave(<<"room/1">>, <<"u1">>)}, told(Link)).

%% A user that is on its way in hasn't left.
held(Config) ->
    {_, Slot, _} = Link = here(Config),
    U1 = number(<<"u1">>),
    ok = open(Link, 1, U1, [<<"room/1">>]),
    ok = open(Link, 2, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[2], state(<<"room/1">>, [<<"u1">>])}, told(Link)),
    ok = halley_directory_leaving:hold(U1, Slot),
    ok = close(Link, 1, U1),
    nothing_told(Link),
    ok = open(Link, 3, U1, [<<"room/1">>]),
    ok = halley_directory_leaving:release(U1, Slot),
    nothing_told(Link).
