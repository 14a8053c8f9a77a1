%% `auth.connect_url' decides who may connect: the meaning of its answers, the number of requests,
%% and users who connect while it doesn't answer.
-module(halley_hooks_connect_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("support/halley_hooks_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_hooks_connect_helper, [start/1, start/2, does/2, requests/1, user/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [nobody_is_asked_without_it, answers, answer_is_remembered_for_a_while,
     sessions_of_one_user_are_one_request, slow_answers_hold_up_nobody_else,
     down_refuses_and_is_not_remembered, down_may_allow, too_many_wait,
     all_requests_hang, cache_is_bounded,
     killed_asker, sessions_of_before_are_closed, one_of_before_while_it_is_judged].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    [{endpoint, halley_hooks_endpoint:start()} | halley_test_brain:start(Config)].

end_per_testcase(_, Config) ->
    ok = halley_hooks_connect_helper:stop(),
    halley_hooks_endpoint:stop(endpoint(Config)),
    halley_test_brain:stop(Config).

endpoint(Config) -> ?config(endpoint, Config).

%% As a link's process does.
ask(User) ->
    case halley_hooked:ask(User, User) of
        asked -> receive {connect_judged, User, Judgement} -> Judgement
                 after ?WAIT_MS -> error(not_judged)
                 end;
        Judgement -> Judgement
    end.

%% -----------------------------------------------------------------------------------------------

nobody_is_asked_without_it(_) ->
    ?assertNot(halley_hooked:is_judged()),
    ?assertEqual(allow, halley_hooked:ask(<<"ann">>, tag)).

answers(Config) ->
    start(Config),
    does(fun(_, Body) ->
        binary_to_integer(user(Body))
    end, Config),
    [?assertEqual(allow, ask(Status)) || Status <- [<<"200">>, <<"204">>]],
    [?assertMatch({refuse, 403, 0, <<"connect_refused">>, _}, ask(Status))
     || Status <- [<<"401">>, <<"403">>]],
    [?assertMatch({refuse, 503, _, <<"connect_unavailable">>, _}, ask(Status))
     || Status <- [<<"500">>, <<"302">>, <<"404">>, <<"429">>]],
    [{Headers, _, _} | _] = halley_hooks_endpoint:requests(endpoint(Config)),
    ?assertMatch(#{<<"halley-signature">> := <<"t=", _/binary>>}, Headers).

answer_is_remembered_for_a_while(Config) ->
    start(Config, #{connect_ttl_ms => 4000}),
    ?assertEqual(allow, ask(<<"ann">>)),
    [?assertEqual(allow, halley_hooked:ask(<<"ann">>, tag)) || _ <- lists:seq(1, 100)],
    ?assertEqual(1, requests(Config)),
    does(fun(_, _) -> 403 end, Config),
    timer:sleep(4100),
    ?assertMatch({refuse, 403, _, _, _}, ask(<<"ann">>)),
    ?assertMatch({refuse, 403, _, _, _}, halley_hooked:ask(<<"ann">>, tag)),
    ?assertEqual(2, requests(Config)).

sessions_of_one_user_are_one_request(Config) ->
    start(Config),
    does(fun(_, _) -> timer:sleep(200), 200 end, Config),
    [asked = halley_hooked:ask(<<"ann">>, N) || N <- lists:seq(1, 50)],
    [receive {connect_judged, N, allow} -> ok after ?WAIT_MS -> error(N) end
     || N <- lists:seq(1, 50)],
    ?assertEqual(1, requests(Config)).

%% One request hangs for as long as it may, and takes one of the two that may be in flight.
slow_answers_hold_up_nobody_else(Config) ->
    halley_test_brain:limits(#{connect_in_flight_max => 2}),
    start(Config),
    does(fun(_, Body) -> case user(Body) of <<"slow">> -> hang; _ -> 200 end end, Config),
    asked = halley_hooked:ask(<<"slow">>, slow),
    [?assertEqual(allow, ask(integer_to_binary(N))) || N <- lists:seq(1, 50)],
    receive {connect_judged, slow, _} -> error(held_up) after 0 -> ok end,
    receive {connect_judged, slow, {refuse, 503, _, _, _}} -> ok
    after ?WAIT_MS -> error(not_judged)
    end.

down_refuses_and_is_not_remembered(Config) ->
    start(Config),
    does(fun(_, _) -> close end, Config),
    ?assertMatch({refuse, 503, _, <<"connect_unavailable">>, _}, ask(<<"ann">>)),
    does(fun(_, _) -> 200 end, Config),
    ?assertEqual(allow, ask(<<"ann">>)).

down_may_allow(Config) ->
    start(Config, #{connect_down => allow}),
    does(fun(_, _) -> 500 end, Config),
    ?assertEqual(allow, ask(<<"ann">>)),
    does(fun(_, _) -> 403 end, Config),
    ?assertMatch({refuse, 403, _, _, _}, ask(<<"ann">>)).

too_many_wait(Config) ->
    halley_test_brain:limits(#{connect_in_flight_max => 1, connect_waiting_max => 3}),
    start(Config),
    %% The first one isn't answered before the last one was refused.
    does(fun(_, _) ->
        _ = get(go) =:= true orelse receive go -> put(go, true) end,
        200
    end, Config),
    Users = [integer_to_binary(N) || N <- lists:seq(1, 20)],
    [asked = halley_hooked:ask(User, User) || User <- Users],
    Judged = fun(User) ->
        receive {connect_judged, User, J} -> J after ?WAIT_MS -> error(User) end
    end,
    {Waiting, Refused} = lists:split(3, Users),
    [?assertMatch({refuse, 503, _, _, _}, Judged(User)) || User <- Refused],
    {Endpoint, _} = endpoint(Config),
    Endpoint ! go,
    ?assertEqual([allow, allow, allow], [Judged(User) || User <- Waiting]).

%% Each is answered before it gives up. Who is in already is asked about all the same.
all_requests_hang(Config) ->
    halley_test_brain:limits(#{connect_in_flight_max => 1}),
    start(Config, #{connect_timeout_ms => 2000, connect_down => allow}),
    does(fun(_, _) -> hang end, Config),
    AskedMs = erlang:monotonic_time(millisecond),
    ok = halley:login(<<"bad">>),
    Users = [integer_to_binary(N) || N <- lists:seq(1, 10)],
    [asked = halley_hooked:ask(User, User) || User <- Users],
    asked = halley_hooked:ask(<<"bad">>, {later, <<"bad">>}),
    [receive {connect_judged, User, allow} -> ok after ?WAIT_MS -> error(User) end
     || User <- Users],
    ?assert(erlang:monotonic_time(millisecond) - AskedMs < 9000),
    does(fun(_, _) -> 403 end, Config),
    receive {halley_closed, <<"bad">>} -> ok after ?WAIT_MS -> error(not_closed) end.

cache_is_bounded(Config) ->
    halley_test_brain:limits(#{connect_cache_max => 10}),
    start(Config),
    [?assertEqual(allow, ask(integer_to_binary(N))) || N <- lists:seq(1, 55)],
    ?assert(ets:info(halley_hooks_connect, size) =< 10).

killed_asker(Config) ->
    start(Config),
    halley_test_brain:kill_and_wait(halley_hooks_connect),
    ?assertEqual(allow, ask(<<"ann">>)).

%% A brain that starts lets in who was there, and asks behind that.
sessions_of_before_are_closed(Config) ->
    start(Config),
    does(fun(_, Body) -> case user(Body) of <<"bad">> -> 403; <<"odd">> -> 500; _ -> 200 end end,
         Config),
    Users = [<<"good">>, <<"bad">>, <<"odd">>],
    lists:foreach(fun(User) ->
        ok = halley:login(User),
        asked = halley_hooked:ask(User, {later, User})
    end, Users),
    receive {halley_closed, <<"bad">>} -> ok after ?WAIT_MS -> error(not_closed) end,
    receive {halley_closed, User} -> error({closed, User}) after 300 -> ok end,
    %% From the cache it is the same.
    ok = halley:login(<<"bad">>),
    _ = halley_hooked:ask(<<"bad">>, {later, <<"bad">>}),
    receive {halley_closed, <<"bad">>} -> ok after ?WAIT_MS -> error(not_closed) end.

%% A session of before opens while the others of its user are closed, behind the look at them.
one_of_before_while_it_is_judged(Config) ->
    start(Config, #{connect_ttl_ms => 1}),
    does(fun(_, _) -> 403 end, Config),
    Case = self(),
    ok = meck:new(halley_sessions, [passthrough, no_link]),
    try
        ok = meck:expect(halley_sessions, close_user, fun(User, Reason) ->
            Closed = meck:passthrough([User, Reason]),
            _ = put(came, true) =:= undefined andalso begin
                %% Nobody remembers the judgement any more.
                timer:sleep(10),
                ok = halley:login(User, Case),
                asked = halley_hooked:ask(User, {later, User})
            end,
            Closed
        end),
        ok = halley:login(<<"bad">>),
        asked = halley_hooked:ask(<<"bad">>, {later, <<"bad">>}),
        [receive {halley_closed, <<"bad">>} -> ok after ?WAIT_MS -> error(not_closed) end
         || _ <- [1, 2]]
    after
        meck:unload(halley_sessions)
    end.
