%% Subjects of Halley's own: no id is one, hooks don't hear of them, and how many follow the status.
-module(halley_own_tests).

-include_lib("eunit/include/eunit.hrl").

no_id_is_one_test() ->
    Status = halley_own:status(),
    ?assert(halley_own:is_own(Status)),
    ?assertEqual({error, control_character}, halley_id:check(Status)),
    [begin
         ?assertNot(halley_own:is_own(Id)),
         ?assert(halley_own:is_id(Id))
     end || Id <- [<<"status">>, <<" ">>, <<"é"/utf8>>, <<255>>]],
    [?assertNot(halley_own:is_id(Key))
     || Key <- [Status, halley_presence_keys:key(<<"a">>), <<2, 0, "piece">>]].

%% What is published about one goes this way alone.
published_by_nobody_else_test() ->
    Item = {halley_own:status(), {json, <<"1">>}, #{}},
    meck:new([halley_history, halley_links_backpressure, halley_metrics], [no_link]),
    meck:expect(halley_history, refusing, fun(_) -> false end),
    meck:expect(halley_links_backpressure, overloaded, fun(_) -> false end),
    meck:expect(halley_metrics, incr, fun(_) -> ok end),
    try
        ?assertMatch([{error, {bad_id, _}}], halley_router:publish_many([Item])),
        ?assertMatch({error, {bad_id, _}}, halley_router:accept(Item)),
        ?assertError({badmatch, false}, halley_router:publish_own(<<"a">>, <<"1">>)),
        meck:expect(halley_history, refusing, fun(_) -> disk_full end),
        ?assertEqual({error, disk_full},
                     halley_router:publish_own(halley_own:status(), <<"1">>))
    after
        meck:unload([halley_history, halley_links_backpressure, halley_metrics])
    end.

hooks_test() ->
    meck:new(halley_hooked, [no_link]),
    Self = self(),
    meck:expect(halley_hooked, came, fun(Key) -> Self ! {told, {came, Key}}, ok end),
    meck:expect(halley_hooked, left, fun(Key) -> Self ! {told, {left, Key}}, ok end),
    ok = halley_subscriptions_table:new(),
    try
        [begin
             ok = halley_subscriptions_table:add(Subject, 1),
             ok = halley_subscriptions_table:remove(Subject, 1)
         end || Subject <- [halley_own:status(), halley_presence_keys:key(<<"a">>), <<"a">>]],
        ?assertEqual([{came, {subject, <<"a">>}}, {left, {subject, <<"a">>}}], told())
    after
        ets:delete(halley_subscriptions_table),
        meck:unload(halley_hooked)
    end.

%% Tests share a process, and so its mailbox.
told() ->
    receive {told, Told} -> [Told | told()] after 0 -> [] end.

%% As many as the limit has, and none is counted twice or for another subject.
streams_test() ->
    ok = halley_limits:set(#{status_readers_max => 2}),
    meck:new([halley_metrics, halley_links_queue], [no_link]),
    meck:expect(halley_metrics, gauges, fun(_, _) -> ok end),
    meck:expect(halley_metrics, incr, fun(Name) -> self() ! {told, Name}, ok end),
    ok = halley_status_streams:new(),
    Status = [halley_own:status()],
    Self = self(),
    meck:expect(halley_links_queue, close_sessions,
                fun(Slot, Conns, _) -> Self ! {told, {Slot, Conns}}, ok end),
    Word = fun(Slot, Conn) -> Slot bsl 48 bor Conn end,
    try
        ?assert(halley_status_streams:opened(Word(1, 7), Status)),
        ?assert(halley_status_streams:opened(Word(2, 8), Status)),
        ?assertNot(halley_status_streams:opened(Word(1, 9), Status)),
        ?assert(halley_status_streams:opened(Word(1, 9), [<<"a">>])),
        ok = halley_status_streams:closed(Word(1, 7), [<<"a">>]),
        ?assertEqual({2, [status_refused]}, {halley_status_streams:count(), told()}),
        ok = halley_status_streams:close(<<"why">>),
        ?assertEqual([{1, [7]}, {2, [8]}], lists:sort(told())),
        ok = halley_status_streams:closed(Word(1, 7), Status),
        ?assert(halley_status_streams:opened(Word(1, 9), Status)),
        ok = halley_status_streams:clear(),
        ?assertEqual(0, halley_status_streams:count())
    after
        meck:unload([halley_metrics, halley_links_queue]),
        ets:delete(halley_status_streams),
        halley_limits:set(#{})
    end.
