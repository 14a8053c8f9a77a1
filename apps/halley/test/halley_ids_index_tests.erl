%% The index against a map, through growth, equal hashes and readers in between.
-module(halley_ids_index_tests).

-include_lib("eunit/include/eunit.hrl").

-define(IDS, 20000).

holds(Number, Id) -> ets:lookup(?MODULE, Number) =:= [{Number, Id}].

index_test_() ->
    {setup,
     fun() ->
         ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
         halley_ids_index:publish(halley_ids_index:new(0))
     end,
     fun(_) ->
         persistent_term:erase(halley_ids_index),
         ets:delete(?MODULE)
     end,
     [fun empty/0, fun grows/0, {timeout, 120, fun readers_while_it_grows/0},
      fun a_hash_alone_is_no_id/0, fun comes_and_goes/0, fun made_anew/0]}.

lookup(Id) -> halley_ids_index:lookup(Id, fun holds/2).

insert(Ids) ->
    true = ets:insert(?MODULE, [{Number, Id} || {Id, Number} <- Ids]),
    halley_ids_index:insert(Ids).

id(N) -> <<"user-", (integer_to_binary(N))/binary>>.

empty() ->
    ?assertEqual(0, halley_ids_index:count()),
    ?assertEqual(undefined, lookup(<<"nobody">>)).

%% In portions that pass one and several doublings.
grows() ->
    lists:foreach(fun({From, To}) -> ok = insert([{id(N), N} || N <- lists:seq(From, To)]) end,
                  [{1, 1}, {2, 769}, {770, 771}, {772, ?IDS}]),
    ?assertEqual(?IDS, halley_ids_index:count()),
    ?assertEqual(lists:seq(1, ?IDS), [lookup(id(N)) || N <- lists:seq(1, ?IDS)]),
    ?assertEqual([], [N || N <- lists:seq(?IDS + 1, 2 * ?IDS), lookup(id(N)) =/= undefined]).

%% Whoever asks for an id that was there when it began finds it, whatever grows meanwhile.
readers_while_it_grows() ->
    Known = atomics:new(1, []),
    ok = atomics:put(Known, 1, ?IDS),
    Readers = [spawn_monitor(fun() -> read(Known, 4 * ?IDS) end) || _ <- [1, 2, 3]],
    lists:foreach(fun(N) ->
        ok = insert([{id(N), N}]),
        ok = atomics:put(Known, 1, N)
    end, lists:seq(?IDS + 1, 4 * ?IDS)),
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
     || {Pid, Monitor} <- Readers].

read(Known, End) ->
    case atomics:get(Known, 1) of
        End -> ok;
        Now ->
            [true = lookup(id(N)) =:= N || N <- [Now, rand:uniform(Now)]],
            read(Known, End)
    end.

%% With names that always differ, as those of another id with the same hash.
a_hash_alone_is_no_id() ->
    ?assertEqual(undefined, halley_ids_index:lookup(id(1), fun(_, _) -> false end)),
    ?assertEqual(1, halley_ids_index:lookup(id(1), fun(Number, _) -> Number =:= 1 end)).

%% Ids that come and go for ever take no more places than those that stay, and hide none of these.
comes_and_goes() ->
    ok = halley_ids_index:publish(halley_ids_index:new(0)),
    Staying = [{id(N), N} || N <- lists:seq(1, 500)],
    ok = insert(Staying),
    Words = fun() -> element(2, persistent_term:get(halley_ids_index)) end,
    #{size := Size} = atomics:info(Words()),
    lists:foreach(fun(Round) ->
        Visitors = [{<<"visitor-", (integer_to_binary(1000 * Round + N))/binary>>, 1000 + N}
                    || N <- lists:seq(1, 100)],
        ok = insert(Visitors),
        ?assertEqual(600, halley_ids_index:count()),
        ?assertEqual([], [Id || {Id, N} <- Visitors, lookup(Id) =/= N]),
        ok = halley_ids_index:remove(Visitors),
        ?assertEqual([], [Id || {Id, _} <- Visitors, lookup(Id) =/= undefined])
    end, lists:seq(1, 300)),
    ?assertEqual([], [Id || {Id, N} <- Staying, lookup(Id) =/= N]),
    ?assertMatch(#{size := S} when S =< 2 * Size, atomics:info(Words())),
    %% As the next test expects it.
    ok = halley_ids_index:publish(halley_ids_index:add([{id(4), 4}], halley_ids_index:new(0))).

made_anew() ->
    Index = halley_ids_index:add([{id(3), 3}], halley_ids_index:new(?IDS)),
    ?assertEqual(4, lookup(id(4))),
    ok = halley_ids_index:publish(Index),
    ?assertEqual({3, undefined, 1}, {lookup(id(3)), lookup(id(4)), halley_ids_index:count()}).
