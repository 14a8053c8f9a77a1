%% Of events that found no session of a user, this user is told: who had none then, and no other.
-module(halley_hooks_undelivered_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([undelivered_private/1, undelivered_to_followers/1, present_users_are_not_told/1,
         late_round_knows_who_was_there/1]).

-import(halley_hooks_SUITE, [start_hooks/2, settled/1, says/3, hooks/1, of_type/2, event_ids/1,
                             eventually/2]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [undelivered_private, undelivered_to_followers, present_users_are_not_told,
     late_round_knows_who_was_there].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(Case, Config) -> halley_hooks_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_hooks_SUITE:end_per_testcase(Case, Config).

undelivered_private(Config) ->
    start_hooks(Config, #{events => "undelivered"}),
    settled(Config),
    ok = halley:login(<<"bob">>),
    {ok, #{id := Id}} = halley:publish({to, [<<"bob">>, <<"eve">>, <<"joe">>]}, 1),
    eventually([[<<"eve">>, <<"joe">>]],
               fun() -> [Users || #{<<"users">> := Users} <- hooks(Config)] end),
    ?assertEqual([Id], event_ids(hooks(Config))).

undelivered_to_followers(Config) ->
    halley_test_brain:limits(#{hooks_followers_max => 2}),
    start_hooks(Config, #{users => "user/*"}),
    settled(Config),
    {ok, _} = halley:follow([{<<"user/bob">>, <<"room">>}, {<<"user/eve">>, <<"room">>},
                             {<<"user/a">>, <<"hall">>}, {<<"user/b">>, <<"hall">>},
                             {<<"user/c">>, <<"hall">>}]),
    ok = halley:login(<<"user/eve">>),
    halley_test_brain:publish(<<"room">>, 1),
    halley_test_brain:publish(<<"user/z">>, 2),
    halley_test_brain:publish(<<"hall">>, 3),
    {ok, _} = halley:publish({subjects, [<<"room">>, <<"user/y">>]}, 4),
    eventually([{[<<"user/bob">>], none}, {[<<"user/bob">>, <<"user/y">>], none},
                {[<<"user/z">>], none}],
               fun() -> lists:sort([{Users, maps:get(<<"more">>, Hook, none)}
                                    || #{<<"users">> := Users} = Hook <- hooks(Config)])
               end).

present_users_are_not_told(Config) ->
    start_hooks(Config, #{users => "user/*", after_ms => 60000}),
    settled(Config),
    ok = halley:login(<<"user/bob">>),
    timer:sleep(200),
    Left = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    %% It got it, and left at once.
    ok = halley:logout(self()),
    timer:sleep(200),
    Late = says(<<"x">>, {to, [<<"user/bob">>]}, 2),
    eventually([Late], fun() -> event_ids(of_type(<<"undelivered">>, Config)) end),
    ?assertNotEqual(Left, Late).

%% Who had left before an event is told of, however long the queue took nothing: it was full, say.
late_round_knows_who_was_there(Config) ->
    start_hooks(Config, #{users => "user/*", after_ms => 60000}),
    settled(Config),
    ok = sys:suspend(halley_hooks_taker),
    ok = halley:login(<<"user/bob">>),
    _ = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    ok = halley:logout(self()),
    timer:sleep(20),
    Late = says(<<"x">>, {to, [<<"user/bob">>]}, 2),
    timer:sleep(500),
    ok = sys:resume(halley_hooks_taker),
    eventually([Late], fun() -> event_ids(of_type(<<"undelivered">>, Config)) end).
