%% Entries of a link that ended leave the directory, whatever else ends meanwhile: the directory's
%% owner, the registry of links, or the brain.
-module(halley_purge_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_test_brain, [number/1, link_with/1, kill_and_wait/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [link_dies_and_is_purged, link_reads_on_behind_its_purge, purge_is_interrupted,
     stop_waits_for_purges, no_purge_outlives_its_registry, free_slots_keep_their_order].

init_per_suite(Config) ->
    halley_test_brain:quiet(Config).

end_per_suite(Config) ->
    halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

link_dies_and_is_purged(_) ->
    Users = [number(integer_to_binary(N)) || N <- lists:seq(1, 1000)],
    {Writer, Slot, _} = link_with([{User, User} || User <- Users]),
    {_, Other, _} = link_with([{hd(Users), 77}]),
    exit(Writer, kill),
    wait(fun() -> halley_directory:online() =:= #{users => 1, sessions => 1} end),
    ?assertEqual([{link, Other, 77}], halley_directory:sessions(hd(Users))),
    ?assertEqual(gone, halley_links:find(Slot)),
    ?assertEqual([Other], [S || #{slot := S} <- halley_links:list()]),
    {ok, #{sessions := 0}} = halley:publish(<<"2">>, 1).

%% The writer found the socket closed, and the link's process still has an OPEN to read.
link_reads_on_behind_its_purge(_) ->
    Number = number(<<"ann">>),
    {Writer, Slot, _} = link_with([]),
    exit(Writer, kill),
    wait(fun() -> halley_links:list() =:= [] andalso halley_directory:shut_slots() =:= [] end),
    _ = halley_directory:open(Number, {link, Slot, 1}, infinity),
    ok = halley_directory_leaving:hold(Number, Slot),
    ?assertNot(halley_directory_leaving:is_any_held()),
    ok = halley:login(<<"ann">>),
    _ = halley_directory:open(Number, {link, Slot, 2}, infinity),
    ?assertEqual([self()], halley_directory:sessions(Number)),
    ?assertEqual(#{users => 1, sessions => 1}, halley_directory:online()),
    %% A registry that is restarted keeps it so, and whoever gets the slot has sessions there.
    ok = kill_and_wait(halley_links),
    _ = halley_directory:open(Number, {link, Slot, 3}, infinity),
    ?assertEqual([self()], halley_directory:sessions(Number)),
    ok = halley_directory:mark(Slot, given),
    _ = halley_directory:open(Number, {link, Slot, 4}, infinity),
    ?assertEqual([self(), {link, Slot, 4}], lists:sort(halley_directory:sessions(Number))),
    ok = halley_directory_leaving:hold(Number, Slot),
    ?assert(halley_directory_leaving:is_held(Number)).

%% halley_links: "the slot that was free for the longest is given out first", by a registry that was
%% restarted as well.
free_slots_keep_their_order(_) ->
    Slots = [begin
                 {Writer, Slot, _} = link_with([]),
                 exit(Writer, kill),
                 wait(fun() -> halley_links:list() =:= [] end),
                 wait(fun() -> halley_directory:shut_slots() =:= [] end),
                 Slot
             end || _ <- lists:seq(1, 3)],
    ok = kill_and_wait(halley_links),
    {_, Next, _} = link_with([]),
    ?assertNot(lists:member(Next, Slots)).

%% The purge waits for the directory's owner when that is killed: it is done again.
purge_is_interrupted(_) ->
    Number = number(<<"ann">>),
    {Writer, Slot, _} = link_with([{Number, 1}]),
    ok = halley:login(<<"ann">>),
    ok = purge_hangs(Writer),
    [Slot] = halley_directory:shut_slots(),
    ok = kill_and_wait(halley_directory),
    wait(fun() -> halley_directory:shut_slots() =:= [] end),
    ?assertEqual([self()], halley_directory:sessions(Number)).

%% docs/internals/brain.md: no purge still walks a table when the tables go.
stop_waits_for_purges(Config) ->
    Number = number(<<"ann">>),
    {Writer, _, _} = link_with([{Number, 1}]),
    ok = halley:login(<<"ann">>),
    ok = purge_hangs(Writer),
    [Purge] = purges(),
    [Purging, Brain] = [monitor(process, P) || P <- [Purge, whereis(halley_sup)]],
    proplists:get_value(keeper, Config) ! stop,
    wait(fun() -> whereis(halley_groups) =:= undefined end),
    %% Longer than a supervisor waits as a rule.
    timer:sleep(6000),
    ok = sys:resume(halley_directory, infinity),
    receive {'DOWN', Purging, process, _, Reason} -> ?assertEqual(normal, Reason)
    after ?WAIT_MS -> error(purge_hangs)
    end,
    receive {'DOWN', Brain, process, _, Ended} -> ?assertEqual(shutdown, Ended)
    after ?WAIT_MS -> error(brain_hangs)
    end.

%% They die with their registry, and its successor does them again.
no_purge_outlives_its_registry(_) ->
    {Writer, Slot, _} = link_with([{number(<<"ann">>), 1}]),
    ok = halley:login(<<"ann">>),
    ok = sys:suspend(halley_directory, infinity),
    exit(Writer, kill),
    wait(fun() -> purges() =/= [] end),
    [Purge] = purges(),
    Monitor = monitor(process, Purge),
    ok = kill_and_wait(halley_links),
    receive {'DOWN', Monitor, process, _, killed} -> ok after ?WAIT_MS -> error(lives_on) end,
    ?assertEqual([Slot], halley_directory:shut_slots()),
    ok = sys:resume(halley_directory, infinity),
    wait(fun() -> halley_directory:shut_slots() =:= [] end).

%% A link ends, and its purge waits for the directory's owner, who does nothing.
purge_hangs(Writer) ->
    ok = sys:suspend(halley_directory, infinity),
    exit(Writer, kill),
    wait(fun() -> {message_queue_len, 1} =:=
                      process_info(whereis(halley_directory), message_queue_len) end).

purges() ->
    {links, Links} = process_info(whereis(halley_links), links),
    [Pid || Pid <- Links, is_pid(Pid),
            process_info(Pid, initial_call) =:= {initial_call, {halley_directory, purge, 2}}].
