%% Permits of replays: a few at a time, in the order in which processes asked, and none is lost.
-module(halley_turns_permits_tests).
-include_lib("eunit/include/eunit.hrl").

-define(PROCESSES, 20).

with(Permits, Test) ->
    {ok, Pid} = halley_turns_permits:start_link(Permits),
    try Test()
    after
        unlink(Pid),
        exit(Pid, shutdown),
        wait_for_end(Pid)
    end.

wait_for_end(Pid) ->
    Monitor = monitor(process, Pid),
    receive {'DOWN', Monitor, process, _, _} -> ok end.

%% A process that asks, says that it has a permit, and holds it until it is told.
holder(Name) ->
    Test = self(),
    spawn(fun() ->
        asked = halley_turns_permits:ask(),
        Test ! {asked, Name},
        receive {replay_permit, Permit} ->
            Test ! {holds, Name},
            receive stop -> ok end,
            ok = halley_turns_permits:give_back(Permit),
            Test ! {gave_back, Name},
            receive never -> ok end
        end
    end).

holders(Names) ->
    [begin
         Pid = holder(Name),
         receive {asked, Name} -> Pid end
     end || Name <- Names].

expect(What) ->
    receive What -> ok
    after 5000 -> error({missing, What, process_info(self(), messages)})
    end.

%% All that was cast before has been dealt with. Messages of other tests may be in the mailbox.
nothing_more() ->
    _ = sys:get_state(halley_turns_permits),
    receive {What, _} = Message when What =:= asked; What =:= holds; What =:= gave_back ->
        error({unexpected, Message})
    after 50 -> ok
    end.

a_few_at_a_time_and_in_their_order_test() ->
    with(2, fun() ->
        Pids = holders(lists:seq(1, ?PROCESSES)),
        ok = expect({holds, 1}),
        ok = expect({holds, 2}),
        ok = nothing_more(),
        lists:foreach(fun(Nth) ->
            lists:nth(Nth, Pids) ! stop,
            ok = expect({gave_back, Nth}),
            Nth + 2 > ?PROCESSES orelse expect({holds, Nth + 2})
        end, lists:seq(1, ?PROCESSES)),
        ok = nothing_more(),
        [exit(Pid, kill) || Pid <- Pids]
    end).

one_that_ends_leaves_its_permit_and_its_place_test() ->
    with(1, fun() ->
        [Holds, Waits, _] = Pids = holders([holds, waits, last]),
        ok = expect({holds, holds}),
        exit(Waits, kill),
        ok = nothing_more(),
        exit(Holds, kill),
        ok = expect({holds, last}),
        ok = nothing_more(),
        [exit(Pid, kill) || Pid <- Pids]
    end).

a_permit_is_over_after_a_few_turns_test() ->
    with(1, fun() ->
        asked = halley_turns_permits:ask(),
        receive {replay_permit, Permit} ->
            timer:sleep(20), % time alone is no turn
            ?assertNot(halley_turns_permits:is_over(Permit)),
            Over = used_up(Permit, 100),
            ok = halley_turns_permits:give_back(Over)
        end
    end).

used_up(Permit, Most) when Most > 0 ->
    case halley_turns_permits:is_over(Permit) of
        true -> Permit;
        false -> used_up(halley_turns_permits:used(Permit), Most - 1)
    end.

without_the_process_all_may_run_test() ->
    Permit = halley_turns_permits:ask(),
    ?assertEqual(free, Permit),
    ?assertNot(halley_turns_permits:is_over(halley_turns_permits:used(Permit))),
    ?assertEqual(ok, halley_turns_permits:give_back(Permit)).
