%% A lane's reader whose connection rests: it stays for those that it watches, and goes with the
%% last.
-module(teleport_reader_tests).

-include_lib("eunit/include/eunit.hrl").
-include("teleport.hrl").

-define(WATCHED, 300).
-define(WAIT_MS, 30000).

%% To look at all of its monitors for each that ends would make their end quadratic.
seldom_looks_at_its_monitors_test_() ->
    {timeout, 60, fun() ->
        Watched = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, ?WATCHED)],
        {Reader, MRefs} = watching(Watched),
        Ends = erlang:monitor(process, Reader),
        1 = erlang:trace(Reader, true, [call]),
        1 = erlang:trace_pattern({erlang, process_info, 2}, true, []),
        ok = teleport_reader:rest(lane, Reader),
        %% One at a time, by its end or by the peer that no longer asks.
        _ = [gone(N, Pid, MRef, Reader)
             || {N, {Pid, MRef}} <- lists:enumerate(lists:zip(Watched, MRefs))],
        ?assertEqual(normal, receive {'DOWN', Ends, process, Reader, Why} -> Why
                             after ?WAIT_MS -> stays
                             end),
        _ = erlang:trace_pattern({erlang, process_info, 2}, false, []),
        ?assert(lists:member(looks(0), lists:seq(1, 9)))
    end}.

looks(N) ->
    receive {trace, _, call, {erlang, process_info, [_, monitors]}} -> looks(N + 1)
    after 0 -> N
    end.

gone(N, _, MRef, Reader) when N rem 2 =:= 0 -> Reader ! {demonitor, MRef};
gone(_, Pid, MRef, _) ->
    Pid ! stop,
    receive {'DOWN', MRef, process, Pid, normal} -> ok after ?WAIT_MS -> error(silent) end.

%% A reader of this process's, which is what it watches for.
watching(Pids) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {packet, 4}]),
    {ok, Port} = inet:port(Listen),
    {ok, Ours} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, 4}]),
    {ok, Theirs} = gen_tcp:accept(Listen),
    ok = gen_tcp:close(Listen),
    Reader = teleport_reader:start_link(
        #{node => node(), number => 1, seen => atomics:new(1, []), watch => self(),
          stats => atomics:new(?STATS, []), bytes_max => 1 bsl 20, receivers => all}),
    ok = gen_tcp:controlling_process(Theirs, Reader),
    ok = teleport_reader:go(Reader, {tcp, Theirs}),
    ok = gen_tcp:send(Ours, teleport_codec:encode(
        [{monitor, make_ref(), self(), Pid} || Pid <- Pids])),
    {Reader, [receive {'$gen_cast', {monitor, _, _, MRef, Reader}} -> MRef
              after ?WAIT_MS -> error(silent)
              end || _ <- Pids]}.
