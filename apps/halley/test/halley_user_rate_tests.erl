%% A user's requests in a second, by a clock of the test's own.
-module(halley_user_rate_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SECOND, 1_000_000_000).

user_rate_test_() ->
    {foreach, fun() -> ok = halley_user_rate:new() end,
     fun(_) ->
         [application:unset_env(halley, Key) || Key <- [history_bytes, history_retention_ms]],
         halley_limits:set(#{})
     end,
     [fun messages/0, fun bytes/0, fun each_user_has_its_own/0, fun what_is_larger_than_a_burst/0,
      fun many_in_one/0, fun a_part_of_the_history/0,
      fun a_refusal_costs_nothing/0, fun new_ids/0, fun no_new_ids/0,
      fun a_flood_evicts_nothing/0]}.

now_ns() -> erlang:monotonic_time(nanosecond) + ?SECOND.

%% How many of `N' pass that come at once at this time.
passing(N, User, Bytes, At) ->
    length([ok || _ <- lists:seq(1, N), halley_user_rate:take(User, 1, Bytes, At) =:= ok]).

messages() ->
    halley_limits:set(#{requests_per_user_per_s_max => 10, requests_burst_ms => 2000}),
    T = now_ns(),
    ?assertEqual(20, passing(1000, <<"u">>, 1, T)),
    ?assertEqual({wait, 100}, halley_user_rate:take(<<"u">>, 1, 1, T)),
    ?assertEqual(10, passing(1000, <<"u">>, 1, T + ?SECOND)),
    ?assertEqual(20, passing(1000, <<"u">>, 1, T + 100 * ?SECOND)).

bytes() ->
    halley_limits:set(#{bytes_per_user_per_s_max => 1000, requests_burst_ms => 10000}),
    T = now_ns(),
    ?assertEqual(25, passing(1000, <<"u">>, 400, T)),
    ?assertEqual({wait, 400}, halley_user_rate:take(<<"u">>, 1, 400, T)),
    ?assertEqual(5, passing(1000, <<"u">>, 400, T + 2 * ?SECOND)).

each_user_has_its_own() ->
    halley_limits:set(#{requests_per_user_per_s_max => 10, requests_burst_ms => 1000}),
    T = now_ns(),
    [?assertEqual(10, passing(20, integer_to_binary(N), 1, T)) || N <- lists:seq(1, 100)].

what_is_larger_than_a_burst() ->
    halley_limits:set(#{bytes_per_user_per_s_max => 10, requests_burst_ms => 1000}),
    T = now_ns(),
    ?assertEqual(1, passing(3, <<"u">>, 100, T)),
    ?assertEqual({wait, 10000}, halley_user_rate:take(<<"u">>, 1, 100, T)),
    ?assertEqual(1, passing(3, <<"u">>, 100, T + 10 * ?SECOND)).

%% http.md 16.3: a private event counts as a message for each of its users.
many_in_one() ->
    halley_limits:set(#{requests_per_user_per_s_max => 10, requests_burst_ms => 2000}),
    T = now_ns(),
    ?assertEqual(ok, halley_user_rate:take(<<"u">>, 15, 1, T)),
    ?assertEqual({wait, 1000}, halley_user_rate:take(<<"u">>, 15, 1, T)),
    ?assertEqual(ok, halley_user_rate:take(<<"u">>, 5, 1, T)),
    ?assertEqual(ok, halley_user_rate:take(<<"v">>, 1000, 1, T)),
    ?assertEqual({wait, 98100}, halley_user_rate:take(<<"v">>, 1, 1, T)).

%% http.md 16.9: however long the retention, others find room in the history.
a_part_of_the_history() ->
    halley_limits:set(#{requests_per_user_per_s_max => 1 bsl 30, history_per_user_percent_max => 25,
                        bytes_per_user_per_s_max => 1 bsl 40}),
    ok = application:set_env(halley, history_bytes, 1000000),
    ok = application:set_env(halley, history_retention_ms, 10000),
    T = now_ns(),
    ?assertEqual(25, passing(1000, <<"u">>, 10000 - 256, T)),
    ?assertEqual({wait, 400}, halley_user_rate:take(<<"u">>, 1, 10000 - 256, T)),
    ?assertEqual(25, passing(1000, <<"v">>, 10000 - 256, T)),
    ?assertEqual(2, passing(1000, <<"u">>, 10000 - 256, T + ?SECOND)),
    ?assertEqual(25, passing(1000, <<"u">>, 10000 - 256, T + 100 * ?SECOND)),
    %% Small ones count with what is kept beside them.
    ?assertEqual(976, passing(1000, <<"w">>, 0, T)).

a_refusal_costs_nothing() ->
    halley_limits:set(#{requests_per_user_per_s_max => 10, bytes_per_user_per_s_max => 100,
                        requests_burst_ms => 1000}),
    T = now_ns(),
    ?assertEqual(1, passing(50, <<"u">>, 60, T)),
    ?assertEqual(9, passing(50, <<"u">>, 1, T)).

%% As many as there is room for, then as many as time brings back; messages don't count here.
new_ids() ->
    halley_limits:set(#{new_ids_per_user_max => 100, new_ids_per_user_ms => 10000}),
    T = now_ns(),
    ?assertEqual(60, halley_user_rate:take_ids(<<"u">>, 60, T)),
    ?assertEqual(40, halley_user_rate:take_ids(<<"u">>, 60, T)),
    ?assertEqual(0, halley_user_rate:take_ids(<<"u">>, 1, T)),
    ?assertEqual(100, halley_user_rate:ids_wait_ms(<<"u">>, T)),
    ?assertEqual(10, halley_user_rate:take_ids(<<"u">>, 60, T + ?SECOND)),
    ?assertEqual(0, halley_user_rate:take_ids(<<"u">>, 60, T + ?SECOND)),
    ?assertEqual(0, halley_user_rate:ids_wait_ms(<<"u">>, T + 2 * ?SECOND)),
    ?assertEqual(100, halley_user_rate:take_ids(<<"v">>, 1000, T)),
    ?assertEqual(100, halley_user_rate:take_ids(<<"u">>, 1000, T + 100 * ?SECOND)),
    ?assertEqual(ok, halley_user_rate:take(<<"u">>, 1, 1, T)).

no_new_ids() ->
    halley_limits:set(#{new_ids_per_user_max => 0, new_ids_per_user_ms => 10000}),
    ?assertEqual(0, halley_user_rate:take_ids(<<"u">>, 1, now_ns())),
    ?assert(halley_user_rate:ids_wait_ms(<<"u">>, now_ns()) > 0).

%% By the defaults, what one user may say in the retention is less than half of the history, with
%% 1,024 bytes for what is kept beside each.
a_flood_evicts_nothing() ->
    Messages = halley_limits:get(requests_per_user_per_s_max),
    Bytes = halley_limits:get(bytes_per_user_per_s_max) + Messages * 1024,
    {ok, Config} = halley_config:load(),
    RetentionMs = halley_config:value(halley, history_retention_ms, Config),
    HistoryBytes = halley_config:value(halley, history_bytes, Config),
    Burst = halley_limits:get(requests_burst_ms),
    ?assert(2 * Bytes * (RetentionMs + Burst) div 1000 < HistoryBytes).
