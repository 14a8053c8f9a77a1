%% Since when those are away who went while presence begins.
-module(halley_presence_departures_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_presence_departures, [new/0, note/3, since/2, users/1]).

departures_test_() ->
    {foreach,
     fun() -> ok = meck:new(halley_directory, [passthrough]) end,
     fun(_) -> meck:unload(halley_directory) end,
     [fun who_went_once/0, fun who_was_back_for_a_moment/0]}.

%% Of user 1.
sessions(Sessions) -> meck:expect(halley_directory, sessions, fun(1) -> Sessions end).

noted(Notes) -> lists:foldl(fun({Note, Now}, R) -> note(Note, Now, R) end, new(), Notes).

%% What else changes about it doesn't keep it.
who_went_once() ->
    sessions([]),
    Departures = noted([{{user, 1}, 100}, {{user, 1}, 900}, {{followed, 1}, 900}]),
    ?assertEqual([1], users(since(99, Departures))),
    ?assertEqual([], users(since(100, Departures))),
    sessions([{link, 1, 1}]),
    ?assertEqual([], users(note({there, 1}, 950, Departures))),
    ?assertEqual([], users(note({followed, 1}, 950, new()))).

%% Between two looks it came and went, so that it went anew, in whichever order notes are taken.
who_was_back_for_a_moment() ->
    sessions([]),
    [begin
         Departures = noted([{{user, 1}, 100} | [{{What, 1}, 900} || What <- Order]]),
         ?assertEqual([1], users(since(899, Departures)))
     end || Order <- [[there], [there, user], [user, there]]].
