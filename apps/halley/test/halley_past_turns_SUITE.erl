%% Turns to read pages: how many at a time, which user is next, and what an end frees.
-module(halley_past_turns_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-export([suite/0, all/0, init_per_testcase/2, end_per_testcase/2]).
-export([two_at_a_time_on_a_link/1, links_dont_wait_for_each_other/1, users_take_turns/1,
         a_reader_that_is_killed/1, one_that_waits_is_killed/1, nothing_stays/1]).


suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [two_at_a_time_on_a_link, links_dont_wait_for_each_other, users_take_turns,
     a_reader_that_is_killed, one_that_waits_is_killed, nothing_stays].

init_per_testcase(_, Config) ->
    ok = halley_limits:set(#{past_pages_max => 2}),
    {ok, Turns} = halley_past_turns:start_link(),
    unlink(Turns),
    Config.

end_per_testcase(_, _) ->
    gen_server:stop(halley_past_turns).

%% A process that wants a turn, says when it has it, and ends when it is told to. It has asked when
%% this returns.
reader(Place, Who) ->
    Case = self(),
    Before = asked(),
    Reader = spawn(fun() ->
        ok = halley_past_turns:take(Place, Who),
        Case ! {turn, self()},
        receive finish -> ok end
    end),
    wait(fun() -> asked() > Before end),
    Reader.

asked() ->
    {state, _, Turns, Waits} = sys:get_state(halley_past_turns),
    map_size(Turns) + map_size(Waits).

wait(Condition) ->
    Condition() orelse begin timer:sleep(2), wait(Condition) end.

has_turn(Reader) ->
    receive {turn, Reader} -> ok after ?WAIT_MS -> error({no_turn, Reader}) end.

%% Whoever had a turn to be given has it by now.
nobody_has_turn() ->
    _ = sys:get_state(halley_past_turns),
    receive {turn, _} = Turn -> error(Turn) after 20 -> ok end.

finish(Reader) ->
    Monitor = monitor(process, Reader),
    Reader ! finish,
    receive {'DOWN', Monitor, process, _, _} -> ok end.

two_at_a_time_on_a_link(_) ->
    [A, B, C, D] = [reader(link, Who) || Who <- [a, b, c, d]],
    has_turn(A),
    has_turn(B),
    nobody_has_turn(),
    finish(B),
    has_turn(C),
    nobody_has_turn(),
    finish(A),
    has_turn(D).

links_dont_wait_for_each_other(_) ->
    [has_turn(reader(stuck, a)) || _ <- [1, 2]],
    _ = [reader(stuck, a) || _ <- [1, 2, 3]],
    nobody_has_turn(),
    has_turn(reader(free, a)).

%% Who asks for much delays another by its turns under way and one more.
users_take_turns(_) ->
    [A1, A2, A3, A4] = [reader(link, a) || _ <- [1, 2, 3, 4]],
    B1 = reader(link, b),
    C1 = reader(link, c),
    has_turn(A1),
    has_turn(A2),
    finish(A1),
    has_turn(A3),
    finish(A2),
    has_turn(B1),
    finish(A3),
    has_turn(C1),
    finish(B1),
    has_turn(A4).

a_reader_that_is_killed(_) ->
    [A, B, C] = [reader(link, Who) || Who <- [a, b, c]],
    has_turn(A),
    has_turn(B),
    exit(A, kill),
    has_turn(C).

one_that_waits_is_killed(_) ->
    [A, B, C, D, E] = [reader(link, Who) || Who <- [a, a, b, b, c]],
    has_turn(A),
    has_turn(B),
    exit(C, kill),
    wait(fun() -> asked() =:= 4 end),
    finish(A),
    has_turn(D),
    finish(B),
    has_turn(E).

nothing_stays(_) ->
    Readers = [reader(Place, Who) || Place <- [x, y, z], Who <- [a, a, b]],
    [exit(Reader, kill) || Reader <- Readers],
    wait(fun() -> asked() =:= 0 end),
    {state, Places, _, _} = sys:get_state(halley_past_turns),
    ?assertEqual(#{}, Places).
