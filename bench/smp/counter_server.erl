%% The server of "Lies, Damned Lies, and Benchmarks" (2009), written anew: each request over a
%% `{packet, http}` socket increments one counter in a Mnesia transaction, by read/3 and write/1,
%% and is answered with the value before. It shows how OTP itself scales over schedulers, sockets
%% and a contended lock included; there is nothing of Halley in it.
%%
%%   erl -pa DIRECTORY -run counter_server start PORT      prints `ready'; ends with its stdin
%%   GET /                    increments
%%   GET /count               the value, as it is
%%   GET /alone/N/MS          increments by N processes for so long, without sockets: how many
%%
%% A process per connection, HTTP/1.1 with keep-alive (1.0: if asked for). A benchmark's server: it
%% listens on the loopback address alone, and what it doesn't understand ends the connection.
-module(counter_server).

-export([start/1]).

-define(BACKLOG, 1024).
-define(PROCESSES_MAX, 10000).
-define(ALONE_MS_MAX, 60000).

-record(counter, {key, value}).

%% Called by `-run`.
-spec start([string()]) -> no_return().
start([Port]) ->
    ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(counter, [{attributes, record_info(fields, counter)}]),
    {atomic, ok} = mnesia:transaction(fun() -> mnesia:write(#counter{key = n, value = 0}) end),
    {ok, Listen} = gen_tcp:listen(list_to_integer(Port),
                                  [binary, {ip, {127, 0, 0, 1}}, {packet, http}, {active, false},
                                   {reuseaddr, true}, {nodelay, true}, {backlog, ?BACKLOG}]),
    io:format("ready~n"),
    spawn_link(fun() -> until_eof(), halt(0) end),
    accept(Listen).

until_eof() ->
    case io:get_line("") of
        Line when is_list(Line) -> until_eof();
        _ -> ok
    end.

accept(Listen) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> serve(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen).

serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_request, 'GET', {abs_path, Path}, Version}} ->
            Keep = headers(Socket, Version =:= {1, 1}),
            reply(Socket, integer_to_list(answer(string:lexemes(Path, "/"))), Keep);
        _ ->
            gen_tcp:close(Socket)
    end.

%% Whether the connection stays.
headers(Socket, Keep) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_header, _, 'Connection', _, Value}} ->
            headers(Socket, string:lowercase(Value) =:= "keep-alive");
        {ok, {http_header, _, _, _, _}} ->
            headers(Socket, Keep);
        {ok, http_eoh} ->
            Keep
    end.

reply(Socket, Body, Keep) ->
    Connection = case Keep of true -> "keep-alive"; false -> "close" end,
    ok = gen_tcp:send(Socket, ["HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: ",
                               Connection, "\r\ncontent-length: ",
                               integer_to_list(length(Body)), "\r\n\r\n", Body]),
    case Keep of
        true -> serve(Socket);
        false -> gen_tcp:close(Socket)
    end.

answer([]) ->
    increment();
answer(["count"]) ->
    [#counter{value = Value}] = mnesia:dirty_read(counter, n),
    Value;
answer(["alone", Processes, Ms]) ->
    alone(min(list_to_integer(Processes), ?PROCESSES_MAX), min(list_to_integer(Ms), ?ALONE_MS_MAX)).

increment() ->
    {atomic, Before} = mnesia:transaction(fun() ->
        [#counter{value = Value} = Counter] = mnesia:read(counter, n, write),
        ok = mnesia:write(Counter#counter{value = Value + 1}),
        Value
    end),
    Before.

alone(Processes, Ms) ->
    Self = self(),
    End = erlang:monotonic_time(millisecond) + Ms,
    Pids = [spawn_link(fun() -> Self ! {self(), until(End, 0)} end)
            || _ <- lists:seq(1, Processes)],
    lists:sum([receive {Pid, N} -> N end || Pid <- Pids]).

until(End, N) ->
    case erlang:monotonic_time(millisecond) < End of
        true -> _ = increment(), until(End, N + 1);
        false -> N
    end.
