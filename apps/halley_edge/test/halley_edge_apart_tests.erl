%% The slots of a trunk that don't follow it: what each of them is sent, drops and keeps.
-module(halley_edge_apart_tests).

-include_lib("eunit/include/eunit.hrl").

-define(STORE, 7).
-define(START, {10, 10, 10, 10, 10, 10, 10, 10}).

%% Before its SYNC_END, and while it waits for a catch-up, a slot skips what is for it; the rest is
%% the trunk's.
skipped_test() ->
    {_, Apart} = halley_edge_apart:add(3, position(?START), #{}),
    {Following, Written, Same} = halley_edge_apart:event(delivery(1, 20), words([{2, 7}, {3, 8}]),
                                                         Apart),
    ?assertEqual(words([{2, 7}]), Following),
    ?assertEqual({0, []}, Written),
    ?assertEqual(none, halley_edge_apart:due(Same)),
    {Slots, Vector, 99, _} = halley_edge_apart:due(halley_edge_apart:synced(3, Same)),
    ?assertEqual({#{3 => []}, ?START}, {Slots, Vector}).

%% One catch-up for those that stand at one place.
due_together_test() ->
    Elsewhere = setelement(1, ?START, 11),
    {_, One} = halley_edge_apart:add(1, position(?START), #{}),
    {_, Two} = halley_edge_apart:add(2, position(Elsewhere), One),
    {_, Three} = halley_edge_apart:add(3, position(?START), Two),
    Synced = lists:foldl(fun halley_edge_apart:synced/2, Three, [1, 2, 3]),
    {#{1 := [], 3 := []} = Slots, ?START, 99, Begun} = halley_edge_apart:due(Synced),
    ?assertEqual(2, map_size(Slots)),
    {#{2 := []}, Elsewhere, 99, Last} = halley_edge_apart:due(Begun),
    ?assertEqual(none, halley_edge_apart:due(Last)).

%% What is held and not in the catch-up is written at its end, in order; what others got moves the
%% vector.
held_test() ->
    Held = holding([3]),
    {none, {Kept, []}, A} = halley_edge_apart:event(delivery(1, 20), words([{3, 8}]), Held),
    ?assertEqual(halley_links_queue:cost(delivery(1, 20), <<8:64>>), Kept),
    {none, {Kept, []}, B} = halley_edge_apart:event(delivery(1, 30), words([{3, 8}]), A),
    {Others, {0, []}, C} = halley_edge_apart:event(delivery(2, 40), words([{2, 1}]), B),
    ?assertEqual(words([{2, 1}]), Others),
    Heads = setelement(1, ?START, 25),
    {{Delta, Frames}, Live} = halley_edge_apart:release(Heads, #{3 => []}, C),
    ?assertMatch([{3, {deliver, #{seq := 30, cursor := <<>>}, <<8:64>>}}], decoded(Frames)),
    ?assertEqual(bytes(Frames) - 2 * Kept, Delta),
    {[3], Trunk, Left} = halley_edge_apart:join(position(?START), Live),
    ?assertEqual(#{}, Left),
    ?assertEqual(setelement(1, setelement(2, ?START, 40), 30), vector(Trunk)).

live_test() ->
    {{0, []}, Live} = halley_edge_apart:release(?START, #{3 => []}, holding([3])),
    ?assert(halley_edge_apart:is_flowing(Live)),
    {none, {Delta, Frames}, Sent} = halley_edge_apart:event(delivery(1, 20), words([{3, 8}]), Live),
    ?assertMatch([{3, {deliver, #{seq := 20}, <<8:64>>}}], decoded(Frames)),
    ?assertEqual(bytes(Frames), Delta),
    Fallen = halley_edge_apart:fall_behind(Sent),
    ?assertNot(halley_edge_apart:is_flowing(Fallen)),
    {_, Vector, _, _} = halley_edge_apart:due(Fallen),
    ?assertEqual(setelement(1, ?START, 20), Vector).

%% 13.5: a slot that doesn't follow the trunk is in no frame of it.
group_test() ->
    {{0, []}, Live} = halley_edge_apart:release(?START, #{3 => []}, holding([3])),
    {Following, {_, Frames}, _} =
        halley_edge_apart:event(delivery(1, 20), {group, 5, [2, 3], words([{2, 1}, {3, 8}])}, Live),
    ?assertEqual({group, 5, [2], words([{2, 1}])}, Following),
    ?assertMatch([{3, {deliver, _, <<8:64>>}}, {3, {group_deliver, 5, _}}], decoded(Frames)),
    {Only, _, _} = halley_edge_apart:event(delivery(1, 21), {group, 5, [3], <<>>}, Live),
    ?assertEqual(none, Only),
    {Members, _, _} = halley_edge_apart:event(delivery(1, 22), {group, 5, [1], <<>>}, Live),
    ?assertEqual({group, 5, [1], <<>>}, Members).

%% Changes of a group don't overtake its events.
members_test() ->
    Join = {members, join, 5, <<8:64>>},
    {{8, []}, Kept} = halley_edge_apart:of_group(3, Join, holding([3])),
    {{_, Frames}, Live} = halley_edge_apart:release(?START, #{3 => []}, Kept),
    ?assertMatch([{3, {group_join, 5, <<8:64>>}}], decoded(Frames)),
    {{_, End}, _} = halley_edge_apart:of_group(all, {end_group, 5}, Live),
    ?assertMatch([{3, {group_end, 5}}], decoded(End)).

%% An opening waits for its heads only while the slot is live, and goes on waiting on the trunk.
waiters_test() ->
    Heads = setelement(4, ?START, 50),
    {_, Syncing} = halley_edge_apart:add(3, position(?START), #{}),
    {[{Heads, early, Cursor}], _} =
        halley_edge_apart:reached(halley_edge_apart:await(3, opening, Heads, early, Syncing)),
    ?assertMatch({ok, #{vector := ?START}}, halley_cursor:decode(Cursor)),
    {{0, []}, Live} = halley_edge_apart:release(?START, #{3 => []}, holding([3])),
    Waiting = halley_edge_apart:await(3, last, Heads, later, Live),
    ?assertEqual([4], halley_edge_apart:lagging(Waiting)),
    {[], Still} = halley_edge_apart:reached(Waiting),
    {[3], Trunk, #{}} = halley_edge_apart:join(position(?START), Still),
    {moved, Moved} = halley_edge_position:marked(4, 50, Trunk),
    ?assertMatch({[{Heads, later}], _}, halley_edge_position:reached(Moved)).

%% --- helpers -------------------------------------------------------------------------------------

position(Vector) ->
    halley_edge_position:clock(99, halley_edge_position:new(?STORE, Vector)).

vector(Position) ->
    {Vector, _} = halley_edge_position:stands_at(Position),
    Vector.

holding(Slots) ->
    Apart = lists:foldl(fun(Slot, A) ->
        {_, Added} = halley_edge_apart:add(Slot, position(?START), A),
        halley_edge_apart:synced(Slot, Added)
    end, #{}, Slots),
    {Due, _, _, Begun} = halley_edge_apart:due(Apart),
    halley_edge_apart:hold(Due, Begun).

words(Words) -> << <<Slot:16, Conn:48>> || {Slot, Conn} <- Words >>.

delivery(Shard, Seq) ->
    Json = <<"{\"data\":0}">>,
    {Shard, Seq, <<Shard, Seq:64, 0:64, 8:32, 0:16, 0:16, 0, (byte_size(Json)):32, Json/binary>>}.

bytes(Frames) ->
    Sizes = [Bytes || {Bytes, _} <- Frames],
    ?assertEqual(Sizes, [iolist_size(Frame) || {_, Frame} <- Frames]),
    lists:sum(Sizes).

decoded(Frames) ->
    Bytes = iolist_to_binary([Frame || {_, Frame} <- Frames]),
    {ok, Decoded, <<>>} = halley_edge_codec:deframe(Bytes),
    [{Slot, Frame} || {_, {to_slot, Slot, Frame}} <- Decoded].
