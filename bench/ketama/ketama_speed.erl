%% Look-ups a second: apps/ketama, compared with the article's port program.
%%
%% All take turns, and of each the median of the rounds counts, but of the port program its best
%% round, since its pace between two cores depends on which process wakes which. `core' is one
%% process, so one scheduler, alone; the port program has a second core for itself meanwhile. Keys
%% are a thousand, such as `user:123456', made before.
-module(ketama_speed).

-export([run/2]).

-import(ketama_bench, [servers/1]).

-define(ROUNDS, 7).
-define(ROUND_MS, 250).
-define(BATCH, 500).
-define(LISTS, 100).
-define(WEIGHT_MAX, 1000).
-define(PORT_PROGRAM, ["the port program, 1 caller", "the port program, 16 callers"]).
%% What owner/2 shall reach: a second and core, and times the port program's rate.
-define(RATE_MIN, 700000).
-define(TIMES_MIN, 20).

-spec run(Scratch :: file:filename(), Driver :: file:filename()) -> boolean().
run(Scratch, Driver) ->
    ketama_bench:head("Look-ups of a ring, and the article's port program beside it",
                      "make bench-ketama"),
    Keys = list_to_tuple([<<"user:", (integer_to_binary(100000 + 7 * I))/binary>>
                          || I <- lists:seq(1, 1000)]),
    io:format("| servers | what | a second | lowest, highest round "
              "| times the port program's best |~n| --- | --- | --- | --- | --- |~n"),
    IsGood = lists:all(fun(Good) -> Good end,
                       [of_servers(Count, Keys, Scratch, Driver) || Count <- [10, 1000]]),
    io:format("~nRings made, one each:~n~n| servers | points | ms | words of the term beside its "
              "binaries |~n| --- | --- | --- | --- |~n"),
    [made(Count) || Count <- [10, 1000, 10000]],
    io:format("~nWhat servers of random weights have too much or too little, summed up, of ~b "
              "random lists:~n~n| servers | mode | mean | worst |~n| --- | --- | --- | --- |~n",
              [?LISTS]),
    [met(Count, Mode) || Count <- [2, 8, 20, 80, 200], Mode <- [libketama, libmemcached]],
    io:format("~nowner/2 with 10 and with 1,000 servers: at least ~b a second and core, and at "
              "least ~b times the port program's best round: ~ts~n",
              [?RATE_MIN, ?TIMES_MIN, case IsGood of true -> "yes"; false -> "NO" end]),
    IsGood.

of_servers(Count, Keys, Scratch, Driver) ->
    File = filename:join(Scratch, "ketama.servers"),
    ok = ketama_bench:write(File, servers(Count)),
    {ok, _} = ketama_driver:start_link(File, Driver),
    {ok, Follower} = ketama:start_link(File),
    Ring = ketama:new(servers(Count), #{mode => libketama}),
    [Owner = ketama_driver:getserver(element(I, Keys))
     || I <- lists:seq(1, 1000), Owner <- [ketama:owner(element(I, Keys), Ring)]],
    Results = ketama_bench:rounds(?ROUNDS, [{What, fun() -> rate(Callers, Keys, Fun) end}
                                            || {What, Callers, Fun} <- ways(Count, Ring)]),
    ok = ketama_driver:stop(),
    ok = gen_server:stop(Follower),
    {_, Port} = ketama_bench:spread(lists:append([proplists:get_value(What, Results)
                                                  || What <- ?PORT_PROGRAM])),
    [row(Count, Result, Port) || Result <- Results],
    Rate = ketama_bench:median(proplists:get_value("owner/2, libketama", Results)),
    Rate >= ?RATE_MIN andalso Rate >= ?TIMES_MIN * Port.

ways(Count, Ring) ->
    Memcached = ketama:new(servers(Count), #{mode => libmemcached}),
    Unweighted = ketama:new(servers(Count), #{mode => libmemcached_unweighted}),
    Bounded = #{load => fun(_) -> 0 end, total => 0},
    [One, Many] = ?PORT_PROGRAM,
    [{One, 1, fun ketama_driver:getserver/1},
     {Many, 16, fun ketama_driver:getserver/1},
     {"owner/2, libketama", 1, fun(Key) -> ketama:owner(Key, Ring) end},
     {"owner/2, libmemcached", 1, fun(Key) -> ketama:owner(Key, Memcached) end},
     {"owner/2, libmemcached_unweighted", 1, fun(Key) -> ketama:owner(Key, Unweighted) end},
     {"getserver/1, of a file", 1, fun ketama:getserver/1},
     {"owner/2, libketama, a process on each core", erlang:system_info(schedulers_online),
      fun(Key) -> ketama:owner(Key, Ring) end},
     {"erlang:md5/1 alone", 1, fun erlang:md5/1},
     {"crypto:hash/2 of MD5 alone", 1, fun(Key) -> crypto:hash(md5, Key) end},
     {"owners/3, the first 3", 1, fun(Key) -> ketama:owners(Key, 3, Ring) end},
     {"owner/3, bounded loads, total known", 1, fun(Key) -> ketama:owner(Key, Ring, Bounded) end}].

row(Count, {What, Rates}, Port) ->
    Median = ketama_bench:median(Rates),
    {Lowest, Highest} = ketama_bench:spread(Rates),
    io:format("| ~b | ~ts | ~b | ~b, ~b | ~.1f |~n",
              [Count, What, round(Median), round(Lowest), round(Highest), Median / Port]).

%% Calls a second of all callers together, for ?ROUND_MS.
rate(Callers, Keys, Fun) ->
    Until = erlang:monotonic_time(millisecond) + ?ROUND_MS,
    Pids = [spawn_monitor(fun() -> exit({rate, calls(Fun, Keys, Until)}) end)
            || _ <- lists:seq(1, Callers)],
    lists:sum([receive {'DOWN', Monitor, process, Pid, {rate, Rate}} -> Rate end
               || {Pid, Monitor} <- Pids]).

calls(Fun, Keys, Until) ->
    Started = erlang:monotonic_time(microsecond),
    Calls = batches(Fun, Keys, Until, 0),
    Calls * 1000000 / (erlang:monotonic_time(microsecond) - Started).

batches(Fun, Keys, Until, Calls) ->
    ok = batch(Fun, Keys, ?BATCH),
    case erlang:monotonic_time(millisecond) < Until of
        true -> batches(Fun, Keys, Until, Calls + ?BATCH);
        false -> Calls + ?BATCH
    end.

batch(_, _, 0) -> ok;
batch(Fun, Keys, N) ->
    _ = Fun(element(N * 7 rem tuple_size(Keys) + 1, Keys)),
    batch(Fun, Keys, N - 1).

made(Count) ->
    Servers = servers(Count),
    {Us, Ring} = timer:tc(fun() -> ketama:new(Servers, #{}) end),
    io:format("| ~b | ~b | ~.1f | ~b |~n",
              [Count, length(ketama:points(Ring)), Us / 1000, erts_debug:flat_size(Ring)]).

met(Count, Mode) ->
    Errors = [deviation([{<<(integer_to_binary(rand:uniform(1 bsl 50)))/binary, ":11211">>,
                          rand:uniform(?WEIGHT_MAX)} || _ <- lists:seq(1, Count)], Mode)
              || _ <- lists:seq(1, ?LISTS)],
    io:format("| ~b | ~ts | ~.1f % | ~.1f % |~n",
              [Count, Mode, 100 * lists:sum(Errors) / ?LISTS, 100 * lists:max(Errors)]).

%% By the parts of the ring, not by keys.
deviation(Servers, Mode) ->
    Points = ketama:points(ketama:new(Servers, #{mode => Mode})),
    {Last, _} = lists:last(Points),
    {Arcs, _} = lists:foldl(fun({Point, Server}, {Arcs, Before}) ->
        {maps:update_with(Server, fun(Arc) -> Arc + Point - Before end, Point - Before, Arcs),
         Point}
    end, {#{}, Last - (1 bsl 32)}, Points),
    Total = lists:sum([Weight || {_, Weight} <- Servers]),
    lists:sum([abs(Weight / Total - maps:get(Name, Arcs, 0) / (1 bsl 32))
               || {Name, Weight} <- Servers]).
