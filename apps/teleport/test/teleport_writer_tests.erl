%% A lane's writer when its link ends: every message with a name is reported to its sender, whatever
%% the writer was doing. The link and the large writer are processes of the test; the socket is a
%% closed one, so that the break is there at the first byte.
-module(teleport_writer_tests).

-include_lib("eunit/include/eunit.hrl").
-include("teleport.hrl").

-define(MANY, 3000).
-define(COST, 200).

%% Small ones that were held behind a large one go on when the peer has that, more than a frame of
%% them; the first frame's write finds the connection closed.
held_ones_are_told_test() ->
    with(fun(Writer) ->
        ok = post(Writer, {large, {[<<1>>], []}}, 0),
        _ = [ok = post(Writer, {small, [name | N]}, N) || N <- lists:seq(1, ?MANY)],
        Writer ! {socket, closed_socket()},
        Writer ! {done, [1]},
        ?assertEqual(lists:seq(1, ?MANY), told(?MANY))
    end).

%% The same where a large one is among those that were held.
held_ones_around_a_large_one_are_told_test() ->
    with(fun(Writer) ->
        ok = post(Writer, {large, {[<<1>>], []}}, 0),
        _ = [ok = post(Writer, case N rem 1000 of
                                   10 -> {large, {[<<1>>], []}};
                                   _ -> {small, [name | N]}
                               end, N) || N <- lists:seq(1, ?MANY)],
        Writer ! {socket, closed_socket()},
        Writer ! {done, [1]},
        Writer ! {done, [2]},
        %% The peer has the second large one.
        ?assertEqual(lists:seq(1, ?MANY) -- [10], told(?MANY - 1))
    end).

%% Who still has the route when the writer is no longer there is told by its own post.
late_ones_are_told_test() ->
    Queue = atomics:new(?QUEUE, []),
    Writer = spawn(fun() -> receive stop -> ok end end),
    Route = #route{node = node(), link = self(), queue = Queue, queue_bytes_max = 1 bsl 20,
                   message_bytes_max = 1 bsl 20, large_bytes = 1 bsl 16, writers = {Writer}},
    Post = fun(Name) ->
        teleport_post:hand_over(small, Route, self(), [name | Name], ?COST, {self(), Name})
    end,
    ok = Post(in_time),
    ok = atomics:put(Queue, ?QUEUE_ENDED, 1),
    ok = Post(late),
    ?assertEqual([late], told(1)),
    Writer ! stop.

%% A reply and a 'DOWN' find the table of calls gone, since the link ends: the messages before and
%% after them are told.
calls_are_gone_test() ->
    with(fun(Writer) ->
        ok = post(Writer, {small, [name | 1]}, 1),
        Writer ! {[[alias | make_ref()] | make_ref()], reply},
        ok = teleport_writer:ended(Writer, make_ref(), normal),
        ok = post(Writer, {small, [name | 2]}, 2),
        Writer ! {socket, closed_socket()},
        ?assertEqual([1, 2], told(2))
    end, fun ets:delete/1).

with(Do) -> with(Do, fun(_) -> true end).

with(Do, WithCalls) ->
    Test = self(),
    _ = spawn(fun() ->
        process_flag(trap_exit, true),
        Calls = teleport_calls:new(),
        {Writer, _} = teleport_writer:start_link(
            #{node => node(), number => 1, queue => atomics:new(?QUEUE, []), low_bytes => 1,
              stats => atomics:new(?STATS, []), large => Test,
              calls => Calls, large_bytes => 1 bsl 16,
              message_bytes_max => 1 bsl 20}),
        true = WithCalls(Calls),
        Test ! {writer, Writer},
        receive {'EXIT', Writer, Reason} -> exit({shutdown, Reason}) end
    end),
    receive {writer, Writer} -> Do(Writer) end.

post(Writer, Payload, Name) ->
    teleport_writer:post(Writer, self(), Payload, ?COST, {self(), Name}).

closed_socket() ->
    {ok, Listen} = gen_tcp:listen(0, []),
    ok = gen_tcp:close(Listen),
    {tcp, Listen}.

told(Count) -> told(Count, []).

told(Count, Told) when length(Told) >= Count -> Told;
told(Count, Told) ->
    receive {teleport_lost, _, Names} -> told(Count, Told ++ Names)
    after 4000 -> Told
    end.
