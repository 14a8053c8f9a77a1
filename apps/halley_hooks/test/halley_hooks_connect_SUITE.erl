%% `auth.connect_url' is asked who may connect: what its answers mean, how often it is asked, and
%% what becomes of who connects while it doesn't answer.
-module(halley_hooks_connect_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("support/halley_hooks_wait.hrl").

-compile([export_all, nowarn_export_all]).


suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [nobody_is_asked_without_it, answers, answer_is_remembered_for_a_while,
     sessions_of_one_user_are_one_request, slow_answers_hold_up_nobody_else,
     down_refuses_and_is_not_remembered, down_may_allow, too_many_wait,
     all_requests_hang, cache_is_bounded,
     killed_asker, sessions_of_before_are_closed].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    [{endpoint, halley_hooks_endpoint:start()} | halley_test_brain:start(Config)].

end_per_testcase(_, Config) ->
    case whereis(halley_hooks_sup) of
        undefined -> ok;
        Sup ->
            Monitor = monitor(process, Sup),
            exit(Sup, kill),
            receive {'DOWN', Monitor, process, Sup, _} -> ok end
    end,
    ok = halley_hooked:judge(none),
    halley_hooks_endpoint:stop(endpoint(Config)),
    halley_test_brain:stop(Config).

endpoint(Config) -> ?config(endpoint, Config).

start(Config) -> start(Config, #{}).

start(Config, More) ->
    Url = "http://127.0.0.1:" ++ integer_to_list(halley_hooks_endpoint:port(endpoint(Config))),
    Keys = #{connect_url => Url ++ "/connect", connect_timeout_ms => 8000,
             secret_file => halley_hooks_endpoint:secret_file(?config(dir, Config))},
    {ok, Settings} = halley_config_hooks:settings(maps:merge(Keys, More)),
    Case = self(),
    spawn(fun() ->
        process_flag(trap_exit, true),
        {ok, Sup} = halley_hooks_sup:start_link(Settings),
        Case ! started,
        receive {'EXIT', Sup, _} -> ok end
    end),
    receive started -> ok after ?WAIT_MS -> error(no_hooks) end.

does(Does, Config) -> halley_hooks_endpoint:does(Does, endpoint(Config)).

requests(Config) -> length(halley_hooks_endpoint:requests(endpoint(Config))).

%% As a link's process does.
ask(User) ->
    case halley_hooked:ask(User, User) of
        asked -> receive {connect_judged, User, Judgement} -> Judgement
                 after ?WAIT_MS -> error(not_judged)
                 end;
        Judgement -> Judgement
    end.

user(Body) ->
    #{<<"connect">> := #{<<"user">> := User}} = jiffy:decode(Body, [return_maps]),
    User.

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
