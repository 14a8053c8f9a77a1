%% A short run of many breaks, with a seed that is printed. `bench/teleport/run breaks' has long
%% ones.
-module(teleport_breaks_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([what_it_would_find/1, many_breaks/1, breaks_of_each_connection/1]).

-define(BREAKS, 150).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [what_it_would_find, many_breaks, breaks_of_each_connection].

%% The verdict finds what it's for.
what_it_would_find(_) ->
    Sent = [{1, [1, 2, 3, 4], [3]}, {2, [1, 2], []}],
    ?assertMatch(#{out_of_order := [], twice := [], untold := [], sent := 6, told := 1},
                 teleport_breaks:verdict(Sent, [{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}])),
    ?assertMatch(#{out_of_order := [2], twice := [], untold := [4]},
                 teleport_breaks:verdict(Sent, [{1, 1}, {1, 3}, {1, 2}, {2, 1}, {2, 2}])),
    ?assertMatch(#{out_of_order := [], twice := [2], untold := [2]},
                 teleport_breaks:verdict(Sent, [{1, 1}, {1, 2}, {1, 2}, {1, 4}, {2, 1}])).

many_breaks(_) ->
    Seed = case os:getenv("BREAKS_SEED") of
        false -> rand:uniform(1 bsl 30);
        Given -> list_to_integer(Given)
    end,
    Verdict = teleport_breaks:run(?BREAKS, Seed),
    ct:pal("BREAKS_SEED=~b: ~p", [Seed, maps:with([breaks, sent, received, told, calls, monitors],
                                                    Verdict)]),
    ?assertMatch(#{out_of_order := [], twice := [], untold := [], unended := 0}, Verdict),
    #{received := Received, calls := Calls, monitors := Monitors} = Verdict,
    ?assert(Received > 1000),
    ?assert(Calls > 50 andalso Monitors > 20).

%% The connection for control, then the first two of lanes, which there always are: cut in each step
%% of the handshake, which has about 300 bytes, between its end and the first frame, and in the
%% first frames.
breaks_of_each_connection(_) ->
    Cuts = [{Number, Bytes} || Number <- [1, 2, 3],
                               Bytes <- [1, 64, 150, 200, 250, 290, 310, 330, 400, 1000]],
    Verdicts = teleport_breaks:run_each(Cuts),
    Bad = [{Cut, Verdict} || {Cut, #{out_of_order := Disorder, twice := Twice,
                                     untold := Untold} = Verdict} <- lists:zip(Cuts, Verdicts),
                             {Disorder, Twice, Untold} =/= {[], [], []}],
    ?assertEqual([], Bad).
