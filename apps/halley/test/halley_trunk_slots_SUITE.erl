%% The workers of a trunk: slots that share a writer, its queue and its mark. Writers are played by
%% processes that forward what they get.
-module(halley_trunk_slots_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [number/1, link_with/1, message/1, delivered/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [one_message_for_all_workers, slots_of_others_between_them, events_of_a_turn,
     group_names_the_slots, group_and_others, members_and_sessions_by_words,
     all_workers_fall_behind_together, everybody_is_told_once, trunk_ends, worker_ends,
     registry_killed, registry_killed_while_a_trunk_ends, no_slot_and_no_trunk].

init_per_suite(Config) -> halley_test_brain:quiet(Config).

end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% --- events --------------------------------------------------------------------------------------

one_message_for_all_workers(_) ->
    [A, B, C, D] = followers([<<"a">>, <<"b">>, <<"c">>, <<"d">>]),
    {Trunk, [First, Second, Third]} = trunk_with([[{A, 1}, {B, 7}], [], [{C, 1}]]),
    Link = link_with([{D, 4}]),
    {ok, #{sessions := 4}} = halley:publish(<<"star">>, 1),
    {{_, _, Wire} = Delivery, Words} = message(Trunk),
    ?assertEqual([{First, 1}, {First, 7}, {Third, 1}], unpacked(Words)),
    ?assertEqual([4], delivered(Link)),
    {_, _, Queue} = Trunk,
    ?assertEqual(halley_links_queue:cost(Delivery, Words), counters:get(Queue, 1)),
    ?assertEqual(7 + byte_size(Wire) + 3 * 8, counters:get(Queue, 1)),
    ?assertEqual(3, length(lists:usort([First, Second, Third]))),
    nothing(Trunk).

%% An event's seq may move the trunk's cursor only once.
slots_of_others_between_them(_) ->
    [A, B, C, D] = followers([<<"a">>, <<"b">>, <<"c">>, <<"d">>]),
    {Trunk, [First]} = trunk_with([[{A, 1}]]),
    {_, LinkSlot, _} = Link = link_with([{B, 2}]),
    Second = worker(Trunk),
    _ = halley_directory:open(C, {link, Second, 3}, infinity),
    _ = halley_directory:open(D, {link, Second, 4}, infinity),
    ?assert(First < LinkSlot andalso LinkSlot < Second),
    {ok, #{sessions := 4}} = halley:publish(<<"star">>, 1),
    {_, Words} = message(Trunk),
    ?assertEqual([{First, 1}, {Second, 3}, {Second, 4}], unpacked(Words)),
    ?assertEqual([2], delivered(Link)),
    nothing(Trunk).

events_of_a_turn(_) ->
    [A, B] = followers([<<"a">>, <<"b">>]),
    {Trunk, [First, Second]} = trunk_with([[{A, 1}], [{B, 2}]]),
    _ = halley_test_brain:publish_all([{<<"star">>, 1}, {<<"a">>, 2}, {<<"star">>, 3}]),
    Got = [message(Trunk) || _ <- [1, 2, 3]],
    OfStar = [{S, Words} || {{S, _, _}, Words} <- Got, byte_size(Words) =:= 16],
    ?assertMatch([{_, _}, {_, _}], OfStar),
    [?assertEqual([{First, 1}, {Second, 2}], unpacked(Words)) || {_, Words} <- OfStar],
    ?assertEqual([[{First, 1}]], [unpacked(W) || {_, W} <- Got, byte_size(W) =:= 8]).

%% --- groups --------------------------------------------------------------------------------------

group_names_the_slots(_) ->
    {Trunk, [First, Second, _]} = trunk_with([[], [], []]),
    {_, LinkSlot, _} = Link = link_with([]),
    Event = group_event(),
    {0, []} = halley_fanout:send_group(Event, star(), [LinkSlot, Second, First], []),
    {Delivery, To} = message(Trunk),
    ?assertEqual({group, star(), [First, Second], <<>>}, To),
    {_, _, Queue} = Trunk,
    ?assertEqual(halley_links_queue:cost(Delivery, To), counters:get(Queue, 1)),
    ?assertMatch({_, {group, _, <<>>}}, message(Link)),
    nothing(Trunk).

%% 11.5: those who aren't members are named beside it; a slot that has ended is told of.
group_and_others(_) ->
    [A, B] = followers([<<"a">>, <<"b">>]),
    {Trunk, [First, Second, Third]} = trunk_with([[{A, 1}], [{B, 2}], []]),
    ok = halley_links:end_worker(Third),
    Others = halley_fanout:receivers(star()),
    {2, [Third]} = halley_fanout:send_group(group_event(), star(), [First, Third], Others),
    {_, {group, Group, Slots, Words}} = message(Trunk),
    ?assertEqual({star(), [First]}, {Group, Slots}),
    ?assertEqual([{First, 1}, {Second, 2}], unpacked(Words)),
    OfB = halley_fanout:of_users([<<"b">>]),
    {1, []} = halley_fanout:send_group(group_event(), star(), [], OfB),
    ?assertMatch({_, <<Second:16, 2:48>>}, message(Trunk)).

members_and_sessions_by_words(_) ->
    {{Writer, _, Queue}, [_, Slot]} = trunk_with([[], []]),
    ok = halley_links_queue:members(Slot, join, star(), <<Slot:16, 5:48, Slot:16, 6:48>>),
    ?assertEqual({members, join, star(), <<Slot:16, 5:48, Slot:16, 6:48>>}, told(Writer)),
    ?assertEqual(16, counters:get(Queue, 1)),
    ok = halley_links_queue:close_sessions(Slot, [5], <<"because">>),
    ?assertEqual({close_sessions, <<"because">>, [Slot bsl 48 bor 5]}, told(Writer)),
    ?assertEqual(16 + halley_links_queue:close_cost([5]), counters:get(Queue, 1)).

%% --- the mark ------------------------------------------------------------------------------------

all_workers_fall_behind_together(_) ->
    [A, B] = followers([<<"a">>, <<"b">>]),
    {{Writer, Way, Queue} = Trunk, [First, Second]} = trunk_with([[{A, 1}], [{B, 2}]]),
    ok = counters:put(Queue, 1, halley_limits:get(link_queue_bytes_max)),
    {ok, #{sessions := 1}} = halley:publish(<<"a">>, 1),
    ?assertEqual(behind, told(Writer)),
    ?assertEqual([Way, Way, Way], [halley_links:way(Slot) || Slot <- [Way, First, Second]]),
    ?assert(halley_links_backpressure:is_behind(Way)),
    ok = counters:put(Queue, 1, 0),
    {ok, #{sessions := 1}} = halley:publish(<<"b">>, 2),
    nothing(Trunk),
    ok = halley_links_backpressure:resume(Way),
    {ok, #{sessions := 1}} = halley:publish(<<"b">>, 3),
    ?assertEqual([Second], [S || {S, _} <- unpacked(element(2, message(Trunk)))]).

everybody_is_told_once(_) ->
    {{Writer, Way, _} = Trunk, _} = trunk_with([[], [], []]),
    ok = halley_links_queue:end_group(star()),
    ?assertEqual({end_group, star()}, told(Writer)),
    ok = halley_links_queue:mark(3, 17),
    ?assertEqual({mark, 3, 17}, told(Writer)),
    ok = halley_links_queue:mark(Way, 4, 18),
    ?assertEqual({mark, 4, 18}, told(Writer)),
    ok = halley_links_queue:leave_to_history(),
    ?assertEqual(behind, told(Writer)),
    nothing(Trunk),
    {ok, Text} = metrics(<<"halley_links">>),
    ?assertEqual(<<"3">>, Text).

%% --- how it ends ---------------------------------------------------------------------------------

trunk_ends(_) ->
    [A, B, C] = followers([<<"a">>, <<"b">>, <<"c">>]),
    {{Writer, Way, _}, Slots} = trunk_with([[{A, 1}], [{B, 2}]]),
    _ = link_with([{C, 3}]),
    exit(Writer, kill),
    wait(fun() -> halley_directory:online() =:= #{users => 1, sessions => 1} end),
    ?assertEqual([gone, gone, gone], [halley_links:find(Slot) || Slot <- [Way | Slots]]),
    ?assertEqual(1, length(halley_links:list())),
    ?assertEqual({error, gone}, halley_links:register_worker(Way, #{})),
    {ok, #{sessions := 1}} = halley:publish(<<"star">>, 1).

worker_ends(_) ->
    [A, B] = followers([<<"a">>, <<"b">>]),
    {Trunk, [First, Second]} = trunk_with([[{A, 1}], [{B, 2}]]),
    ok = halley_links:end_worker(First),
    ok = halley_links:end_worker(First),
    wait(fun() -> halley_directory:sessions(A) =:= [] end),
    wait(fun() -> halley_directory:shut_slots() =:= [] end),
    {ok, #{sessions := 1}} = halley:publish(<<"star">>, 1),
    ?assertEqual([{Second, 2}], unpacked(element(2, message(Trunk)))),
    Next = worker(Trunk),
    ?assertNot(lists:member(Next, [First, Second])),
    _ = halley_directory:open(A, {link, Next, 1}, infinity),
    {ok, #{sessions := 2}} = halley:publish(<<"star">>, 2),
    ?assertEqual([{Second, 2}, {Next, 1}], unpacked(element(2, message(Trunk)))).

registry_killed(_) ->
    [A] = followers([<<"a">>]),
    {{Writer, _, _} = Trunk, [_, Second]} = trunk_with([[], [{A, 1}]]),
    ok = halley_test_brain:kill_and_wait(halley_links),
    {ok, #{sessions := 1}} = halley:publish(<<"star">>, 1),
    ?assertEqual([{Second, 1}], unpacked(element(2, message(Trunk)))),
    exit(Writer, kill),
    wait(fun() -> halley_links:list() =:= [] andalso halley_directory:sessions(A) =:= [] end).

%% The end of a trunk's slots is found again by that of its writer, which is the last.
registry_killed_while_a_trunk_ends(_) ->
    [A] = followers([<<"a">>]),
    {{Writer, Way, _}, Slots} = trunk_with([[], [{A, 1}]]),
    ok = sys:suspend(halley_links),
    exit(Writer, kill),
    ok = halley_test_brain:kill_and_wait(halley_links),
    wait(fun() -> halley_links:list() =:= [] andalso halley_directory:sessions(A) =:= [] end),
    ?assertEqual([gone, gone, gone], [halley_links:find(Slot) || Slot <- [Way | Slots]]).

no_slot_and_no_trunk(_) ->
    {{_, Way, _} = Trunk, [Worker]} = trunk_with([[]]),
    ?assertEqual([{error, gone}, {error, gone}],
                 [halley_links:register_worker(Slot, #{}) || Slot <- [Worker, Worker + 1]]),
    ok = halley_links:end_worker(Way),
    ?assertMatch({ok, _}, halley_links:find(Way)),
    _ = [worker(Trunk) || _ <- lists:seq(3, halley_limits:get(links_max))],
    ?assertEqual({error, too_many_links}, halley_links:register_worker(Way, #{})).

%% --- helpers -------------------------------------------------------------------------------------

%% The trunk as link_with/1 gives a link, and the slots of its workers with these sessions.
trunk_with(Workers) ->
    Case = self(),
    Writer = spawn(fun() ->
        halley_test_brain:forward(fun(Message) -> Case ! {self(), Message} end)
    end),
    {ok, Way, Queue} = halley_links:register_trunk(Writer),
    Trunk = {Writer, Way, Queue},
    {Trunk, [begin
                 Slot = worker(Trunk),
                 [_ = halley_directory:open(User, {link, Slot, Conn}, infinity)
                  || {User, Conn} <- Sessions],
                 Slot
             end || Sessions <- Workers]}.

worker({_, Way, _}) ->
    {ok, Slot} = halley_links:register_worker(Way, #{}),
    Slot.

followers(Users) ->
    {ok, _} = halley:follow([{User, <<"star">>} || User <- Users]),
    [number(User) || User <- Users].

star() -> number(<<"star">>).

group_event() ->
    Draft = halley_event:draft(generated, <<"star">>, <<"1">>),
    halley_event:event(Draft, halley_event:id_prefix(1), {1, 1001}, 1700000000000).

unpacked(Words) -> [{Slot, Conn} || <<Slot:16, Conn:48>> <= Words].

%% But for the marks of the shards' own time.
told(Writer) ->
    receive
        {Writer, {mark, _, Seq}} when Seq > 100 -> told(Writer);
        {Writer, Message} -> Message
    after ?WAIT_MS -> error(not_told)
    end.

nothing({Writer, _, _}) ->
    receive
        {Writer, Message} when element(1, Message) =/= mark -> error({unexpected, Message})
    after 50 -> ok
    end.

metrics(Name) ->
    Text = iolist_to_binary(halley_metrics:render()),
    case re:run(Text, ["^", Name, " ([0-9]+)$"], [multiline, {capture, all_but_first, binary}]) of
        {match, [Value]} -> {ok, Value};
        nomatch -> error(Text)
    end.
