%% The bound of replies, at a link's teleport_watch alone: writers are processes that read nothing,
%% and replies are messages in their mailboxes.
-module(teleport_watch_tests).

-include_lib("eunit/include/eunit.hrl").
-include("teleport.hrl").

-define(MAX, 100000).
-define(STAYS_MS, 2500).

bound_test_() ->
    {setup, fun() -> ok = teleport_table:new() end,
     fun(_) -> [ets:delete(T) || T <- [teleport_routes, teleport_stats, teleport_readers]] end,
     {inparallel, [{timeout, 60, {atom_to_list(Name), fun() -> bound(Name) end}}
                   || Name <- [too_much, too_much_and_a_trickle, within, taken_ones]]}}.

%% The peer reads nothing, or a little now and then: what waits is above the bound all the time.
bound(too_much) -> ?assertEqual(replies_above_bound, ends(3 * ?MAX, 0, 0));
bound(too_much_and_a_trickle) -> ?assertEqual(replies_above_bound, ends(3 * ?MAX, 0, 10));
bound(within) -> ?assertEqual(stays, ends(?MAX, 0, 0));
%% Some of them were taken by the writer, and are counted like all that waits.
bound(taken_ones) -> ?assertEqual(replies_above_bound, ends(?MAX, 5 * ?MAX div 2, 0)).

%% Why it ends with so many bytes in the mailbox, so many counted, and so many messages written each
%% tenth of a second.
ends(Bytes, Counted, Trickle) ->
    Node = list_to_atom("node" ++ integer_to_list(erlang:unique_integer([positive]))),
    Writer = spawn_link(fun() -> receive stop -> ok end end),
    Queue = atomics:new(?QUEUE, []),
    ok = atomics:put(Queue, ?QUEUE_LARGE, Counted),
    ok = atomics:put(Queue, ?QUEUE_SMALL, 1),
    Calls = teleport_calls:new(),
    ok = teleport_calls:begun(Calls, make_ref(), make_ref(), self(), self()),
    Writer ! {[[alias | make_ref()] | make_ref()], binary:copy(<<1>>, Bytes)},
    {Watch, Ref} = spawn_watch(Calls, #route{
        node = Node, link = self(), queue = Queue, queue_bytes_max = ?MAX,
        message_bytes_max = 1 bsl 20, large_bytes = 1 bsl 16, writers = {Writer}}),
    Why = why(Ref, teleport_table:stats(Node), Trickle, ?STAYS_MS),
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Writer, Watch]],
    Why.

spawn_watch(Calls, Route) ->
    {ok, Watch} = teleport_watch:start_link(Calls),
    true = unlink(Watch),
    ok = teleport_watch:attach(Watch, Route),
    {Watch, erlang:monitor(process, Watch)}.

why(_, _, _, LeftMs) when LeftMs =< 0 -> stays;
why(Ref, Stats, Trickle, LeftMs) ->
    receive {'DOWN', Ref, process, _, {shutdown, Why}} -> Why
    after 100 ->
        ok = atomics:add(Stats, ?SENT, Trickle),
        why(Ref, Stats, Trickle, LeftMs - 100)
    end.
