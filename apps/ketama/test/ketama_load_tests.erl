%% Bounded loads (arXiv:1608.01350): no server above its bound, and no key elsewhere without need.
-module(ketama_load_tests).

-include_lib("eunit/include/eunit.hrl").

-import(ketama_test_rings, [eight/0, equal/1]).

place(Keys, Ring, Options) ->
    lists:foldl(fun(Key, Loads) ->
        Load = fun(Server) -> maps:get(Server, Loads, 0) end,
        Server = ketama:owner(Key, Ring, Options#{load => Load}),
        maps:update_with(Server, fun(N) -> N + 1 end, 1, Loads)
    end, #{}, Keys).

%% "no server has more than ceil(c m / n)", with weights: its share of c m.
no_server_above_its_bound_test_() ->
    [{lists:flatten(io_lib:format("~p ~p", [Mode, Factor])), {timeout, 60, fun() ->
          Ring = ketama:new(eight(), #{mode => Mode}),
          Servers = ketama:servers(Ring),
          Total = lists:sum([Weight || {_, Weight} <- Servers]),
          Loads = place(ketama_test_rings:keys(1500), Ring, Options),
          ?assertEqual(1500, lists:sum(maps:values(Loads))),
          [?assert(maps:get(Name, Loads, 0) =< ceil(Factor * 1500 * Weight / Total))
           || {Name, Weight} <- Servers]
      end}}
     || Mode <- [libketama, libmemcached_unweighted],
        {Factor, Options} <- [{1.25, #{}}, {1, #{factor => 1}}, {2.5, #{factor => 2.5}}]].

%% Unbounded, some server of 50 holds far more than 1.25 of its share.
what_it_is_for_test() ->
    Ring = ketama:new(equal(50), #{}),
    Keys = ketama_test_rings:keys(2000),
    Most = fun(Loads) -> lists:max(maps:values(Loads)) end,
    ?assert(Most(place(Keys, Ring, #{factor => 1000})) > 50),
    ?assertEqual(50, Most(place(Keys, Ring, #{}))).

with_room_it_is_the_owner_test() ->
    Ring = ketama:new(eight(), #{}),
    Empty = fun(_) -> 0 end,
    [?assertEqual(ketama:owner(Key, Ring), ketama:owner(Key, Ring, #{load => Empty}))
     || Key <- ketama_test_rings:keys(100)].

%% From a full one it is the next different one that has room.
the_next_one_test() ->
    Ring = ketama:new(equal(8), #{}),
    [begin
         [First, Second, Third | _] = ketama:owners(Key, 8, Ring),
         Full = fun(Server) when Server =:= First; Server =:= Second -> 1000; (_) -> 1 end,
         ?assertEqual(Third, ketama:owner(Key, Ring, #{load => Full}))
     end || Key <- ketama_test_rings:keys(50)].

%% Loads that contradict the total, as when they change in between: where least is used.
none_has_room_test() ->
    Ring = ketama:new(equal(8), #{}),
    Loads = maps:from_list([{Name, 100 - I} || {I, {Name, _}} <- lists:zip(lists:seq(1, 8),
                                                                           equal(8))]),
    {Least, _} = lists:nth(8, equal(8)),
    Load = fun(Server) -> map_get(Server, Loads) end,
    ?assertEqual(Least, ketama:owner(<<"k">>, Ring, #{load => Load, total => 8})).

%% A known total saves asking everybody.
total_test() ->
    Ring = ketama:new(equal(100), #{}),
    Asked = counters:new(1, []),
    Load = fun(_) -> counters:add(Asked, 1, 1), 0 end,
    Owner = ketama:owner(<<"k">>, Ring),
    ?assertEqual(Owner, ketama:owner(<<"k">>, Ring, #{load => Load, total => 1000})),
    ?assertEqual(1, counters:get(Asked, 1)),
    ?assertEqual(Owner, ketama:owner(<<"k">>, Ring, #{load => Load})),
    ?assertEqual(102, counters:get(Asked, 1)).

bad_options_test() ->
    Ring = ketama:new(eight(), #{}),
    Load = fun(_) -> 0 end,
    [?assertError({bad_option, Name}, ketama:owner(<<"k">>, Ring, Options))
     || {Name, Options} <- [{load, #{}}, {load, #{load => 1}}, {load, none},
                            {factor, #{load => Load, factor => 0.9}},
                            {factor, #{load => Load, factor => high}},
                            {factor, #{load => Load, factor => 1 bsl 2000}},
                            {total, #{load => Load, total => -1}},
                            {total, #{load => Load, total => 1 bsl 2000}},
                            {loda, #{load => Load, loda => 1}}]].
