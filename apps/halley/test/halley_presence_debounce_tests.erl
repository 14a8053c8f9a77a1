%% When members that are away have left.
-module(halley_presence_debounce_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_presence_debounce, [new/1, back/2, away/3, away_anew/3, due/3]).

-define(LEAVE_MS, 100).

free(_) -> false.

due(Now, Debounce) -> due(Now, fun free/1, Debounce).

%% In the order in which they went, and each once.
leaves_after_its_time_test() ->
    Away = away(b, 5, away(a, 0, new(?LEAVE_MS))),
    ?assertMatch({[], _}, due(99, Away)),
    {[a], Next} = due(100, Away),
    {[b], Last} = due(1000, Next),
    ?assertMatch({[], _}, due(10000, Last)).

%% One that is known to be away stays so from then on; one that was back for a moment goes anew.
away_again_test() ->
    Away = away(a, 0, new(?LEAVE_MS)),
    ?assertMatch({[a], _}, due(100, away(a, 50, Away))),
    Anew = away_anew(a, 50, Away),
    {[], Waits} = due(100, Anew),
    ?assertMatch({[a], _}, due(150, Waits)).

comes_back_test() ->
    Back = back(a, away(a, 0, new(?LEAVE_MS))),
    ?assertMatch({[], _}, due(1000, Back)),
    {[], Gone} = due(1000, away(a, 990, Back)),
    ?assertMatch({[a], _}, due(1090, Gone)).

%% A member with a session on its way in waits once more.
held_test() ->
    Away = away(b, 0, away(a, 0, new(?LEAVE_MS))),
    {[b], Held} = due(100, fun(Member) -> Member =:= a end, Away),
    ?assertMatch({[], _}, due(199, Held)),
    ?assertMatch({[a], _}, due(200, Held)).
