%% The time for reading the JSON of one event, in the process that serves all requests of an edge.
%% To be run by hand:
%%
%%   erl -noshell -pa ... -run halley_api_event_bench main
-module(halley_api_event_bench).

-export([main/0]).

-define(ROUNDS, 60).
-define(EVENTS, 2000).

main() ->
    Brain = halley_edge_test_brain:start(#{}),
    [begin
         Us = lists:sort([round_of(Body) || _ <- lists:seq(1, ?ROUNDS)]),
         io:format("~b bytes: ~.2f us an event, median of ~b rounds (the least: ~.2f)~n",
                   [byte_size(Body), lists:nth(?ROUNDS div 2, Us), ?ROUNDS, hd(Us)])
     end || Body <- [small(), large()]],
    ok = halley_edge_test_brain:stop(Brain),
    halt(0).

round_of(Body) ->
    {Us, ok} = timer:tc(fun() -> read(?EVENTS, Body) end),
    Us / ?EVENTS.

read(0, _) ->
    ok;
read(N, Body) ->
    {ok, _} = halley_api_event:parse(Body),
    read(N - 1, Body).

small() -> <<"{\"subject\":\"room/7\",\"data\":{\"text\":\"an ordinary message\",\"n\":42}}">>.

large() ->
    Items = [["{\"id\":", integer_to_list(N), ",\"text\":\"some words here\"}"]
             || N <- lists:seq(1, 30)],
    iolist_to_binary(["{\"subject\":\"room/7\",\"id\":\"e-1234567890\",\"data\":{\"items\":[",
                      lists:join($,, Items), "]}}"]).
