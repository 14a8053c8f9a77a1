%% Rings and measures that the tests here share.
-module(ketama_test_rings).

-export([article/0, eight/0, equal/1, here/1, shares/1, deviation/2, hashes/1, keys/1]).

%% Of libketama's Python tests.
article() -> [{<<"127.0.0.1:11211">>, 600}, {<<"127.0.0.1:11212">>, 400}].

%% Of libketama's ketama.servers.
eight() ->
    Weights = [600, 300, 200, 350, 1000, 800, 950, 100],
    [{iolist_to_binary(io_lib:format("10.0.1.~b:11211", [I])), Weight}
     || {I, Weight} <- lists:zip(lists:seq(1, 8), Weights)].

equal(Count) ->
    [{iolist_to_binary(io_lib:format("10.1.~b.~b:11211", [I bsr 8, I band 255])), 1}
     || I <- lists:seq(1, Count)].

%% A file of this application.
here(Path) ->
    Here = filename:dirname(proplists:get_value(source, ?MODULE:module_info(compile))),
    filename:join([Here, "..", Path]).

%% What part of all hashes each server has.
shares(Ring) ->
    Points = ketama:points(Ring),
    {Last, _} = lists:last(Points),
    {Arcs, _} = lists:foldl(fun({Point, Server}, {Arcs, Before}) ->
        {maps:update_with(Server, fun(Arc) -> Arc + Point - Before end, Point - Before, Arcs),
         Point}
    end, {#{}, Last - (1 bsl 32)}, Points),
    maps:map(fun(_, Arc) -> Arc / (1 bsl 32) end, Arcs).

%% What all servers have too much or too little, summed up.
deviation(Servers, Options) ->
    Shares = shares(ketama:new(Servers, Options)),
    Total = lists:sum([Weight || {_, Weight} <- Servers]),
    lists:sum([abs(Weight / Total - maps:get(Name, Shares, 0.0)) || {Name, Weight} <- Servers]).

%% How many MD5 each server has.
hashes(Ring) ->
    Points = lists:foldl(fun({_, Server}, Counts) ->
        maps:update_with(Server, fun(N) -> N + 1 end, 1, Counts)
    end, #{}, ketama:points(Ring)),
    maps:map(fun(_, Count) -> Count / 4 end, Points).

keys(Count) -> [integer_to_binary(I) || I <- lists:seq(1, Count)].
