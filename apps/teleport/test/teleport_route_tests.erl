%% A sender at the bound: what it asks of the link. The link is this process.
-module(teleport_route_tests).

-include_lib("eunit/include/eunit.hrl").
-include("teleport.hrl").

-define(MAX, 1000000).
-define(NODE, 'peer@127.0.0.1').

%% While somebody waits, those that don't wait leave the link alone.
busy_ones_say_nothing_test() ->
    with_route(fun(#route{queue = Queue}) ->
        ok = atomics:put(Queue, ?QUEUE_SMALL, ?MAX),
        ok = atomics:put(Queue, ?QUEUE_WAITING, 1),
        _ = [?assertEqual({error, busy},
                          teleport_route:send(?NODE, name, hello, #{full => busy}))
             || _ <- lists:seq(1, 1000)],
        ?assertEqual(?MAX, atomics:get(Queue, ?QUEUE_SMALL)),
        ?assertEqual(0, rooms(0))
    end).

%% What is taken back may be what kept a waiting one from its room.
room_is_said_once_test_() ->
    [?_assertEqual(Rooms, rooms_after(Left, Waiting))
     || {Left, Waiting, Rooms} <- [{?MAX div 2, 1, 1}, {?MAX div 2 - 9, 1, 1},
                                   {?MAX div 2 - 10, 1, 0}, {?MAX div 2 + 1, 1, 0},
                                   {?MAX div 2, 0, 0}]].

rooms_after(Left, Waiting) ->
    #route{queue = Queue} = Route = route(),
    ok = atomics:put(Queue, ?QUEUE_SMALL, Left + 10),
    ok = atomics:put(Queue, ?QUEUE_WAITING, Waiting),
    ok = teleport_post:take_back(Route, small, 10),
    rooms(0).

rooms(Count) -> receive room -> rooms(Count + 1) after 0 -> Count end.

with_route(Do) ->
    ok = teleport_table:new(),
    Route = route(),
    ok = teleport_table:put_route(?NODE, Route),
    try Do(Route)
    after _ = [ets:delete(Table) || Table <- [teleport_routes, teleport_readers, teleport_stats]]
    end.

route() ->
    #route{node = ?NODE, link = self(), queue = atomics:new(?QUEUE, []), queue_bytes_max = ?MAX,
           message_bytes_max = ?MAX, large_bytes = 1 bsl 16, writers = {self()}}.
