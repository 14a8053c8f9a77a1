%% Polls of one user that follows 100,000 subjects, all with an old cursor, and their price for
%% others: how long a poll of another user takes that missed one event and comes back over the same
%% link meanwhile. To be run by hand:
%%
%%   erl -noshell -pa ... -run halley_edge_polls_bench main 50 1000 10
%%
%% So many of the user's polls come at once, and each comes again a second after it was answered;
%% so many events were published since the cursor, one of them in a hundred about what the user
%% follows; for so many seconds. The worker is a socket within the same emulator: its work is
%% counted as well.
-module(halley_edge_polls_bench).

-export([main/1]).

-define(FOLLOWS, 100000).
-define(POLL, 5).
-define(MUCH_AFTER_MS, 1000).
-define(LITTLE_EVERY_MS, 20).

main(Args) ->
    [Polls, Events, Seconds] = lists:map(fun list_to_integer/1, Args),
    ok = application:set_env(halley, history_bytes, 1 bsl 32),
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    {ok, _} = halley:follow([{<<"much">>, subject(N)} || N <- lists:seq(1, ?FOLLOWS)]),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    Little = [<<"little", (integer_to_binary(N))/binary>>
              || N <- lists:seq(1, 1000 * Seconds div ?LITTLE_EVERY_MS)],
    publish([<<"little0">> | Little]),
    publish([case N rem 100 of 0 -> subject(N rem ?FOLLOWS); _ -> <<"stranger">> end
             || N <- lists:seq(1, Events)]),
    {ok, _} = halley:publish(subject(1), 1),
    worker(Dir, Polls, Cursor, Little),
    ok = halley_edge_test_brain:stop(Brain),
    ok = file:del_dir_r(Dir),
    halt(0).

subject(N) -> <<"s", (integer_to_binary(N))/binary>>.

publish([]) ->
    ok = halley_history:await(halley_history:heads(), 60000);
publish(Subjects) ->
    {Some, Rest} = lists:split(min(200, length(Subjects)), Subjects),
    _ = halley:publish_many([{Subject, 1, #{ack => memory}} || Subject <- Some]),
    ok = halley_history:await(halley_history:heads(), 60000),
    publish(Rest).

worker(Dir, Polls, Cursor, Little) ->
    Path = halley_edge_dial:path(Dir),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false}]),
    ok = halley_edge_dialer:connect(Dir, self()),
    {ok, Socket} = gen_tcp:accept(Listen),
    Hello = (fake_edge:hello())#{window := 2097152},
    ok = inet:setopts(Socket, [{active, true}]),
    send(Socket, [{hello_edge, Hello}, {sync_begin, 0, <<>>}, sync_end]),
    %% The first alone: what it reads is in memory afterwards, and so is this code.
    send(Socket, [{open, [{1, ?POLL, <<"little0">>, Cursor}]}]),
    State = serve(#{socket => Socket, buffer => <<>>, cursor => Cursor, next => 2, much => #{},
                    little => #{1 => 0}, took => [], answered => 0, cpu => 0, stop => true}),
    {Before, _} = erlang:statistics(runtime),
    Opened = lists:foldl(fun(_, S) -> open_much(S) end, State#{took := []}, lists:seq(1, Polls)),
    self() ! little,
    #{took := Took, answered := Answered} = serve(Opened#{names => Little, stop := false}),
    {After, _} = erlang:statistics(runtime),
    Sorted = lists:sort(Took),
    At = fun(Percent) -> lists:nth(max(1, length(Sorted) * Percent div 100), Sorted) / 1000 end,
    io:format("~b polls of one, ~b answered, ~.2f ms of processor time each; ~b polls of others: "
              "p50 ~.1f ms, p99 ~.1f ms, longest ~.1f ms~n",
              [Polls, Answered, (After - Before) / max(1, Answered), length(Took), At(50), At(99),
               At(100)]).

send(Socket, Frames) ->
    ok = gen_tcp:send(Socket, [fake_edge:bytes(Frame) || Frame <- Frames]).

open_much(#{socket := Socket, next := Conn, cursor := Cursor, much := Much} = State) ->
    send(Socket, [{open, [{Conn, ?POLL, <<"much">>, Cursor}]}]),
    State#{next := Conn + 1, much := Much#{Conn => true}}.

%% Until every poll of others was answered.
serve(#{little := Little, stop := true} = State) when map_size(Little) =:= 0 ->
    State;
serve(#{socket := Socket, buffer := Buffer} = State) ->
    receive
        little ->
            serve(open_little(State));
        much ->
            serve(open_much(State));
        {tcp, Socket, Data} ->
            {Cost, Conns, Rest} = frames(<<Buffer/binary, Data/binary>>, 0, [], Socket),
            Cost > 0 andalso send(Socket, [{credit, Cost}]),
            serve(lists:foldl(fun answered/2, State#{buffer := Rest}, Conns))
    end.

open_little(#{names := []} = State) ->
    State#{stop := true};
open_little(#{names := [Name | Names], socket := Socket, next := Conn, little := Little,
              cursor := Cursor} = State) ->
    _ = erlang:send_after(?LITTLE_EVERY_MS, self(), little),
    send(Socket, [{open, [{Conn, ?POLL, Name, Cursor}]}]),
    State#{next := Conn + 1, names := Names, little := Little#{Conn => now_us()}}.

now_us() -> erlang:monotonic_time(microsecond).

answered(Conn, #{little := Little, took := Took} = State) when is_map_key(Conn, Little) ->
    {Since, Rest} = maps:take(Conn, Little),
    State#{little := Rest, took := [now_us() - Since | Took]};
answered(Conn, #{much := Much, answered := Answered} = State) when is_map_key(Conn, Much) ->
    _ = erlang:send_after(?MUCH_AFTER_MS, self(), much),
    State#{much := maps:remove(Conn, Much), answered := Answered + 1};
answered(_, State) ->
    State.

%% What costs credit, and which polls were answered.
frames(<<Length:32, Frame:Length/binary, Rest/binary>>, Cost, Conns, Socket) ->
    case Frame of
        <<16#24, _:16, 16#19, Conn:64, _/binary>> ->
            frames(Rest, Cost + Length + 4, [Conn | Conns], Socket);
        <<16#01, Nonce:64>> ->
            send(Socket, [{pong, Nonce}]),
            frames(Rest, Cost, Conns, Socket);
        <<Type, _/binary>> when Type =< 4; Type =:= 16#10 ->
            frames(Rest, Cost, Conns, Socket);
        _ ->
            frames(Rest, Cost + Length + 4, Conns, Socket)
    end;
frames(Rest, Cost, Conns, _) ->
    {Cost, lists:reverse(Conns), Rest}.
