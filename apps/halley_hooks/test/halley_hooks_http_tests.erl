%% Answers that are wrong or without end: each is an error in time, and none ends the requesting
%% process.
-module(halley_hooks_http_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MS, 300).

%% A server that does this with each connection, and where it is.
with_server(Serve, Do) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}},
                                        {recbuf, 4096}]),
    {ok, Port} = inet:port(Listener),
    Server = spawn(fun() -> accept(Listener, Serve) end),
    ok = gen_tcp:controlling_process(Listener, Server),
    try Do(#{tls => false, host => "127.0.0.1", port => Port, path => <<"/">>,
             authority => <<"here">>, ca => none, secret_file => ""})
    after exit(Server, kill)
    end.

accept(Listener, Serve) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Serve(Socket),
    accept(Listener, Serve).

post(Target, Body, Ms, Connection) ->
    {Us, Result} = timer:tc(fun() ->
        halley_hooks_http:post(Target, [], Body, Ms, Connection)
    end),
    ?assert(Us < 5000000),
    Result.

says(Socket, Bytes) ->
    {ok, _} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Bytes).

answers_without_end_test_() ->
    {timeout, 60, fun() ->
        Goes = fun Again(Socket, Bytes) ->
            case gen_tcp:send(Socket, Bytes) of ok -> Again(Socket, Bytes); _ -> ok end
        end,
        with_server(fun(Socket) ->
            {ok, _} = gen_tcp:recv(Socket, 0),
            Goes(Socket, binary:copy(<<"HTTP/1.1 100 Continue\r\n\r\n">>, 100))
        end, fun(Target) -> ?assertEqual({error, timeout}, post(Target, <<"x">>, ?MS, none)) end)
    end}.

%% Only a whole head of HTTP/1.x with a status of three digits is an answer.
heads_that_are_none_test_() ->
    [{binary_to_list(Head), {timeout, 30, fun() ->
        with_server(fun(Socket) ->
            says(Socket, Head),
            case Then of
                closes -> gen_tcp:close(Socket);
                waits -> timer:sleep(5000)
            end
        end, fun(Target) -> ?assertMatch({error, _}, post(Target, <<"x">>, ?MS, none)) end)
    end}} || {Head, Then} <- [
        {<<"HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 0200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 +200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1  200 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 200OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 099 OK\r\ncontent-length: 0\r\n\r\n">>, waits},
        {<<"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n">>, waits},
        {<<"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n">>, closes},
        {<<"HTTP/1.1 200 OK\r\ncontent-len">>, closes},
        {<<"HTTP/1.1 200 OK\r\n">>, closes},
        {<<"HTTP/1.1 200 OK">>, closes},
        {<<"HTTP/1.1 200 OK\r\nno header\r\n\r\n">>, waits},
        {<<"200 OK\r\n\r\n">>, waits},
        {<<"POST / HTTP/1.1\r\n\r\n">>, waits},
        {<<"HTTP/1.1 100 Continue\r\n\r\n">>, closes},
        {<<>>, closes}]].

heads_that_are_some_test_() ->
    [{binary_to_list(Head), fun() ->
        with_server(fun(Socket) -> says(Socket, Head), gen_tcp:close(Socket) end,
                    fun(Target) ->
                        ?assertMatch({ok, 200, _}, post(Target, <<"x">>, 5000, none))
                    end)
    end} || Head <- [<<"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n">>,
                     <<"HTTP/1.0 200 OK\r\n\r\n">>, <<"HTTP/1.1 200\r\n\r\n">>,
                     <<"HTTP/1.1 200 \r\n\r\n">>,
                     <<"HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n">>]].

%% What comes of a body behind the time limit isn't the next answer.
late_body_test() ->
    with_server(fun(Socket) ->
        says(Socket, <<"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\n">>),
        _ = gen_tcp:recv(Socket, 0)
    end, fun(Target) -> ?assertEqual({ok, 500, none}, post(Target, <<"x">>, ?MS, none)) end).

kept_connection_test() ->
    with_server(fun(Socket) ->
        says(Socket, <<"HTTP/1.1 200 X\r\nConnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok">>),
        says(Socket, <<"HTTP/1.1 201 X\r\ncontent-length: 0\r\n\r\n">>)
    end, fun(Target) ->
        {ok, 200, Connection} = post(Target, <<"x">>, 5000, none),
        ?assertMatch({ok, 201, Connection}, post(Target, <<"y">>, 5000, Connection)),
        ok = halley_hooks_http:close(Connection)
    end).

%% Each request has its own time, whatever the one before it on the connection had.
nobody_reads_test() ->
    with_server(fun(Socket) ->
        says(Socket, <<"HTTP/1.1 204 X\r\n\r\n">>),
        timer:sleep(20000)
    end, fun(Target) ->
        {ok, 204, Connection} = post(Target, <<"x">>, 20000, none),
        ?assertEqual({error, timeout}, post(Target, binary:copy(<<0>>, 50000000), ?MS, Connection))
    end).

bytes_that_are_no_text_test() ->
    with_server(fun(Socket) ->
        says(Socket, <<"HTTP/1.1 200 X\r\nconnection: ", 233, "\r\ncontent-length: ", 233,
                       "\r\n\r\n">>)
    end, fun(Target) -> ?assertEqual({ok, 200, none}, post(Target, <<"x">>, 5000, none)) end),
    ?assertMatch({error, _}, halley_hooks_body:secrets(binary:copy(<<255, 254>>, 32))).

%% As a slim image is.
system_without_cas_test() ->
    {ok, Module, Fake} = compile:forms(
        [{attribute, 1, module, pubkey_os_cacerts}, {attribute, 1, export, [{get, 0}]},
         {function, 1, get, 0, [{clause, 1, [], [],
             [{call, 1, {atom, 1, error}, [{atom, 1, failed_load_cacerts}]}]}]}]),
    true = code:unstick_mod(Module),
    {module, Module} = code:load_binary(Module, "fake", Fake),
    try
        with_server(fun(_) -> ok end, fun(Target) ->
            {error, Reason} = post(Target#{tls := true, host := "localhost"}, <<"x">>, ?MS, none),
            ?assertEqual({connect, no_cas}, Reason),
            ?assertMatch("it can't be reached: this system has no certificates" ++ _,
                         lists:flatten(halley_hooks_http:explain(Reason)))
        end)
    after
        _ = code:purge(Module),
        {module, Module} = code:load_file(Module),
        true = code:stick_mod(Module)
    end.
