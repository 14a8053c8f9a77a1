%% Polls by halley_mochiweb, with a Halley that refuses.
-module(halley_mochiweb_poll_tests).

-include_lib("eunit/include/eunit.hrl").

-define(WAIT_MS, 5000).

with(Expects, Test) ->
    ok = halley_limits:set(#{}),
    ok = meck:new(halley, [no_link]),
    [ok = meck:expect(halley, Name, Do)
     || {Name, Do} <- [{login, fun(_) -> ok end}, {logout, fun(_) -> ok end},
                       {cursor, fun() -> <<"c0">> end} | Expects]],
    {ok, Server} = mochiweb_http:start([{name, ?MODULE}, {ip, {127, 0, 0, 1}}, {port, 0},
                                        {loop, {halley_mochiweb_public, handle}}]),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, mochiweb_socket_server:get(?MODULE, port),
                                   [binary, {active, false}]),
    try Test(Socket)
    after
        _ = gen_tcp:close(Socket),
        ok = mochiweb_socket_server:stop(Server),
        meck:unload(halley)
    end.

%% What comes up to this text, or all there is.
polled(Socket, End) ->
    ok = gen_tcp:send(Socket, "GET /v1/poll?user=ann HTTP/1.1\r\nHost: halley\r\n\r\n"),
    answer(Socket, End, <<>>).

answer(Socket, End, Got) ->
    case binary:match(Got, End) of
        nomatch ->
            case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
                {ok, More} -> answer(Socket, End, <<Got/binary, More/binary>>);
                {error, _} -> Got
            end;
        _ ->
            Got
    end.

is_refused(Status, Answer) ->
    ?assertMatch({0, _}, binary:match(Answer, <<"HTTP/1.1 ", Status/binary>>)),
    ?assertMatch({_, _}, binary:match(Answer, <<"Retry-After: 1">>)).

%% The connection stays, and the session doesn't.
a_log_that_stands_still_test() ->
    with([{read, fun(_, _, _) -> {error, unavailable} end}], fun(Socket) ->
        [is_refused(<<"503">>, polled(Socket, <<"poll again later">>)) || _ <- [1, 2]],
        ?assertEqual(2, meck:num_calls(halley, logout, '_'))
    end).

too_many_sessions_test() ->
    with([{login, fun(_) -> {error, too_many_sessions} end}], fun(Socket) ->
        is_refused(<<"429">>, polled(Socket, <<"close a session first">>))
    end).
