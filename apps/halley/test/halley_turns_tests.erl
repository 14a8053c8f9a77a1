%% The scheduler of sessions that come back, with plans that are counted down. The log has written
%% what `written' says.
-module(halley_turns_tests).
-behaviour(halley_turns).

-include_lib("eunit/include/eunit.hrl").
-export([init/1, handle/3, has_room/1, plan/4, batch/4, given/5, cursor/1]).

-define(WAIT_MS, 5000).

%% --- the callback module: a plan is how many batches are left, those without an event first ------

init({Test, Options}) ->
    {maps:merge(#{kept_max => 10, permits => false}, Options), Test}.

handle({do, Do}, Turns, Test) -> {Do(Turns), Test};
handle({call, From, kept}, Turns, Test) ->
    ok = gen_server:reply(From, halley_turns:kept(Turns)),
    {Turns, Test}.

has_room(_) -> persistent_term:get(?MODULE, true).

plan(_, _, Cursor, Test) ->
    Test ! {planned, Cursor},
    Cursor.

batch({0, 0}, UpTo, Reader, _) -> {UpTo, done, {0, 0}, none, Reader};
batch({0, N}, UpTo, Reader, _) -> {UpTo, more, {0, N - 1}, none, Reader};
batch({N, M}, UpTo, Reader, _) -> {UpTo, yield, {N - 1, M}, none, Reader}.

given(Key, What, UpTo, {_, _}, Test) ->
    Test ! {given, Key, What, UpTo},
    {case What of yield -> late; _ -> idle end, Test}.

cursor(Plan) -> Plan.

%% --- helpers -------------------------------------------------------------------------------------

with(Options, Written, Test) ->
    Modules = [halley_history, halley_history_reader],
    ok = meck:new(Modules, [no_link]),
    ok = meck:expect(halley_history_reader, vheap_words, 0, 1024),
    ok = meck:expect(halley_history_reader, new, 0, reader),
    ok = meck:expect(halley_history, written, 0, Written),
    try
        Pid = halley_turns:start_link(?MODULE, {self(), Options}, []),
        Test(Pid),
        ended(Pid)
    after
        persistent_term:erase(?MODULE),
        meck:unload(Modules)
    end.

%% What it has sent is no later test's.
ended(Pid) ->
    Monitor = monitor(process, Pid),
    unlink(Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, _, _} -> flush() end.

flush() ->
    receive {planned, _} -> flush() after 0 -> ok end.

do(Pid, Do) -> Pid ! {do, Do}, ok.

%% Sessions come, all at once, and wait for turns.
come(Pid, Sessions) ->
    do(Pid, fun(Turns) ->
        lists:foldl(fun({Key, User, Plan}, T) ->
            halley_turns:go_on(Key, halley_turns:add(Key, User, {from, Plan}, T))
        end, Turns, Sessions)
    end).

given(N) ->
    [receive {given, Key, What, _} -> {Key, What} after ?WAIT_MS -> error(missing) end
     || _ <- lists:seq(1, N)].

nothing() ->
    receive {given, _, _, _} = Given -> error(Given) after 50 -> ok end.

%% --- turns ---------------------------------------------------------------------------------------

users_share_the_turns_test() ->
    with(#{}, 0, fun(Pid) ->
        Much = [{{ann, N}, ann, {0, 1}} || N <- lists:seq(1, 20)],
        ok = come(Pid, Much ++ [{bob, bob, {0, 1}}]),
        ?assertMatch([{{ann, 1}, more}, {bob, more}, {{ann, 2}, more} | _], given(21))
    end).

a_turn_for_each_batch_that_is_wanted_test() ->
    with(#{}, 7, fun(Pid) ->
        ok = come(Pid, [{ann, ann, {1, 1}}]),
        ?assertEqual([{ann, yield}, {ann, more}], given(2)),
        ok = nothing(),
        GoOn = fun(Turns) -> halley_turns:go_on(ann, halley_turns:go_on(ann, Turns)) end,
        ok = do(Pid, GoOn),
        receive {given, ann, done, UpTo} -> ?assertEqual(7, UpTo) end,
        ok = nothing()
    end).

%% The others are planned anew; one that yielded keeps its state, in the place of one that is idle.
no_more_plans_are_kept_than_may_be_test() ->
    with(#{kept_max => 2}, 0, fun(Pid) ->
        ok = come(Pid, [{N, N, {0, 5}} || N <- [1, 2, 3]]),
        _ = given(3),
        ?assertEqual(2, gen_server:call(Pid, kept)),
        [receive {planned, {0, 5}} -> ok end || _ <- [1, 2, 3]],
        ok = do(Pid, fun(Turns) -> halley_turns:go_on(3, Turns) end),
        receive {planned, {0, 4}} -> ok after ?WAIT_MS -> error(missing) end,
        _ = given(1),
        ok = come(Pid, [{4, 4, {2, 1}}]),
        ?assertEqual([{4, yield}, {4, yield}, {4, more}], given(3)),
        receive {planned, {2, 1}} -> ok end,
        receive {planned, _} = Anew -> error(Anew) after 0 -> ok end,
        ?assertEqual(2, gen_server:call(Pid, kept))
    end).

%% --- the log -------------------------------------------------------------------------------------

heads_are_awaited_in_their_order_and_read_up_to_test() ->
    with(#{}, 0, fun(Pid) ->
        ok = meck:expect(halley_history, notify, 1, {later, first}),
        ok = do(Pid, fun(Turns) ->
            Added = lists:foldl(fun(Key, T) -> halley_turns:add(Key, Key, {from, {0, 0}}, T) end,
                                Turns, [a, b, c, gone]),
            Awaiting = halley_turns:await([a, b, gone], 10, 10, Added),
            halley_turns:remove(gone, halley_turns:await([c], 20, written, Awaiting))
        end),
        %% Only a session that is idle goes on.
        ok = do(Pid, fun(Turns) -> halley_turns:go_on(a, Turns) end),
        ok = nothing(),
        ?assertEqual(1, meck:num_calls(halley_history, notify, '_')),
        ok = meck:expect(halley_history, notify, fun(10) -> written; (20) -> {later, second} end),
        Pid ! {history_written, first},
        Got = [receive {given, Key, done, UpTo} -> {Key, UpTo} end || Key <- [a, b]],
        ?assertEqual([{a, 10}, {b, 10}], Got),
        ok = nothing(),
        ok = meck:expect(halley_history, notify, 1, written),
        ok = meck:expect(halley_history, written, 0, 21),
        Pid ! {history_written, second},
        receive {given, c, done, 21} -> ok after ?WAIT_MS -> error(missing) end,
        ok = nothing()
    end).

%% --- what bounds turns ---------------------------------------------------------------------------

no_turn_without_room_test() ->
    with(#{}, 0, fun(Pid) ->
        ok = persistent_term:put(?MODULE, false),
        ok = come(Pid, [{ann, ann, {0, 1}}]),
        ok = nothing(),
        ok = persistent_term:put(?MODULE, true),
        ?assertEqual([{ann, more}], given(1))
    end).

%% A permit is good for eight turns, and is given back where there are none to take.
no_turn_without_a_permit_test() ->
    {ok, Permits} = halley_turns_permits:start_link(1),
    asked = halley_turns_permits:ask(),
    Mine = receive {replay_permit, Permit} -> Permit end,
    with(#{permits => true}, 0, fun(Pid) ->
        ok = come(Pid, [{N, N, {0, 1}} || N <- lists:seq(1, 10)]),
        ok = nothing(),
        ok = halley_turns_permits:give_back(Mine),
        asked = halley_turns_permits:ask(),
        _ = given(8),
        Again = receive {replay_permit, P} -> P after ?WAIT_MS -> error(missing) end,
        ok = nothing(),
        ok = halley_turns_permits:give_back(Again),
        _ = given(2),
        asked = halley_turns_permits:ask(),
        receive {replay_permit, _} -> ok after ?WAIT_MS -> error(missing) end
    end),
    unlink(Permits),
    exit(Permits, kill).
