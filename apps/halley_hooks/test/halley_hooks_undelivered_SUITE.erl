%% Undelivered events name exactly the users that had no session then, and no other.
-module(halley_hooks_undelivered_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([undelivered_private/1, undelivered_to_followers/1, present_users_are_not_told/1,
         late_round_knows_who_was_there/1, full_disk_knows_who_was_there/1,
         nobody_is_missing_before_all_is_said/1, session_on_its_way_is_one/1,
         session_long_on_its_way_is_one/1,
         who_followed_is_told/1, queue_at_its_bound/1, moves_are_bounded/1]).

-import(halley_hooks_SUITE, [start_hooks/2, settled/1, says/3, hooks/1, of_type/2, event_ids/1,
                             eventually/2]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [undelivered_private, undelivered_to_followers, present_users_are_not_told,
     late_round_knows_who_was_there, full_disk_knows_who_was_there,
     nobody_is_missing_before_all_is_said, session_on_its_way_is_one,
     session_long_on_its_way_is_one, who_followed_is_told,
     queue_at_its_bound, moves_are_bounded].

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

%% Who had left before an event is told of, and who was there isn't, however late the round that
%% reads it: the taker stood still.
late_round_knows_who_was_there(Config) ->
    start_hooks(Config, #{users => "user/*", after_ms => 60000}),
    settled(Config),
    ok = sys:suspend(halley_hooks_taker),
    Late = said_to_one_who_left(),
    timer:sleep(500),
    ok = sys:resume(halley_hooks_taker),
    eventually([Late], fun() -> event_ids(of_type(<<"undelivered">>, Config)) end).

%% Or the queue took nothing, for so long that the first round which it takes reads all of that.
full_disk_knows_who_was_there(Config) ->
    start_hooks(Config, #{users => "user/*", after_ms => 60000}),
    settled(Config),
    ok = halley:login(<<"user/eve">>),
    timer:sleep(500),
    Late = halley_hooks_disk_SUITE:without_room(fun() ->
        ok = halley:logout(self()),
        timer:sleep(20),
        ToEve = says(<<"x">>, {to, [<<"user/eve">>]}, 1),
        ToBob = said_to_one_who_left(),
        timer:sleep(3500),
        [ToEve, ToBob]
    end),
    eventually(Late, fun() -> event_ids(of_type(<<"undelivered">>, Config)) end).

%% While it is there, and behind that.
said_to_one_who_left() ->
    ok = halley:login(<<"user/bob">>),
    _ = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    ok = halley:logout(self()),
    timer:sleep(20),
    says(<<"x">>, {to, [<<"user/bob">>]}, 2).

%% A link whose sync goes on has users that it hasn't said yet. Who comes meanwhile with its cursor
%% is in time.
nobody_is_missing_before_all_is_said(Config) ->
    start_hooks(Config, #{users => "user/*", events => "undelivered"}),
    {_, Slot, _} = halley_hooks_SUITE:link_in_sync([]),
    Before = cursor(),
    Id = says(<<"x">>, {to, [<<"user/bob">>, <<"user/eve">>]}, 1),
    timer:sleep(4500),
    ok = halley:login(<<"user/bob">>),
    ok = halley_began:fed(<<"user/bob">>, Before),
    ?assertEqual([], hooks(Config)),
    ok = halley_links_synced:synced(Slot),
    eventually([{Id, [<<"user/eve">>]}], fun() -> of_users(Config) end).

of_users(Config) ->
    [{Id, Users} || #{<<"event">> := #{<<"id">> := Id}, <<"users">> := Users} <- hooks(Config)].

%% A session whose past is being sent gets the event behind it. So its user is neither missing nor
%% gone.
session_on_its_way_is_one(Config) ->
    start_hooks(Config, #{users => "user/*", events => "undelivered,opened,closed"}),
    {_, Slot, _} = halley_hooks_SUITE:linked(),
    settled(Config),
    Bob = halley_test_brain:number(<<"user/bob">>),
    ok = halley:login(<<"user/bob">>),
    eventually(1, fun() -> length(of_type(<<"opened">>, Config)) end),
    ok = halley_directory_leaving:hold(Bob, Slot),
    ok = halley:logout(self()),
    _ = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    timer:sleep(4000),
    ?assertEqual([], of_type(<<"undelivered">>, Config) ++ of_type(<<"closed">>, Config)),
    ok = halley_directory_leaving:release(Bob, Slot),
    eventually(1, fun() -> length(of_type(<<"closed">>, Config)) end),
    Late = says(<<"x">>, {to, [<<"user/bob">>]}, 2),
    eventually([Late], fun() -> event_ids(of_type(<<"undelivered">>, Config)) end).

%% However long its past takes: when that began is forgotten by then.
session_long_on_its_way_is_one(Config) ->
    start_hooks(Config, #{users => "user/*", events => "undelivered"}),
    {_, Slot, _} = halley_hooks_SUITE:linked(),
    settled(Config),
    Bob = halley_test_brain:number(<<"user/bob">>),
    ok = halley_directory_leaving:hold(Bob, Slot),
    ok = halley_began:held(Slot, [{Bob, 7, cursor()}]),
    eventually([], fun() -> ets:tab2list(halley_hooked_moves) end),
    _ = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    First = says(<<"x">>, {to, [<<"user/eve">>]}, 1),
    eventually([{First, [<<"user/eve">>]}], fun() -> of_users(Config) end),
    _ = says(<<"x">>, {to, [<<"user/bob">>]}, 1),
    ok = halley_directory:open(Bob, {link, Slot, 7}, infinity),
    ok = halley_directory_leaving:release(Bob, Slot),
    Last = says(<<"x">>, {to, [<<"user/eve">>]}, 1),
    eventually([{First, [<<"user/eve">>]}, {Last, [<<"user/eve">>]}],
               fun() -> of_users(Config) end).

%% Who follows behind an event has none of it, and who unfollows behind it has all of it.
who_followed_is_told(Config) ->
    start_hooks(Config, #{users => "user/*", events => "undelivered"}),
    settled(Config),
    {ok, _} = halley:follow([{<<"user/bob">>, <<"room">>}, {<<"user/eve">>, <<"room">>},
                             {<<"user/dan">>, <<"room">>}]),
    %% Else the event may be judged before the changes that follow it.
    ok = sys:suspend(halley_hooks_taker),
    Id = says(<<"x">>, <<"room">>, 1),
    {ok, _} = halley:follow([{<<"user/ann">>, <<"room">>}]),
    {ok, _} = halley:unfollow([{<<"user/bob">>, <<"room">>}]),
    {ok, _} = halley:forget(<<"user/dan">>),
    ok = sys:resume(halley_hooks_taker),
    eventually([{Id, [<<"user/bob">>, <<"user/eve">>]}], fun() -> of_users(Config) end).

%% While the queue takes nothing: what is owed is decided by the event's own moment, whoever is
%% there when it is read.
queue_at_its_bound(Config) ->
    Bound = halley_limits:get(hooks_queue_bytes_max),
    start_hooks(Config, #{users => "user/*", events => "undelivered"}),
    settled(Config),
    full(Config),
    To = fun(User) -> says(<<"x">>, {to, [User]}, 1) end,
    Back = To(<<"user/back">>),
    ok = halley:login(<<"user/back">>),
    ok = halley:login(<<"user/there">>),
    _ = To(<<"user/there">>),
    ok = halley:logout(self()),
    Left = To(<<"user/there">>),
    timer:sleep(50),
    ok = halley:login(<<"user/there">>),
    _ = To(<<"user/there">>),
    Late = To(<<"user/late">>),
    Before = cursor(),
    _ = To(<<"user/caught">>),
    ok = halley:login(<<"user/caught">>),
    ok = halley_began:fed(<<"user/caught">>, Before),
    Missed = To(<<"user/missed">>),
    ok = halley:login(<<"user/missed">>),
    ok = halley_began:fed(<<"user/missed">>, cursor()),
    timer:sleep(2500),
    ok = halley:login(<<"user/late">>),
    ok = halley_began:fed(<<"user/late">>, Before),
    %% The taker may be killed as well: the moves are not its own.
    halley_test_brain:kill_and_wait(halley_hooks_taker),
    ok = free(Bound, Config),
    eventually([{Back, [<<"user/back">>]}, {Left, [<<"user/there">>]}, {Late, [<<"user/late">>]},
                {Missed, [<<"user/missed">>]}],
               fun() -> without_full(Config) end).

cursor() -> halley_cursor:encode(halley_history:store(), 1, halley_history:heads()).

without_full(Config) ->
    [One || {_, [User]} = One <- of_users(Config), User =/= <<"user/full">>].

%% The endpoint takes nothing, and what waits for it is more than may.
full(Config) ->
    ok = halley_hooks_endpoint:does(fun(_, _) -> 500 end, ?config(endpoint, Config)),
    halley_test_brain:limits(#{hooks_retry_ms_max => 200, hooks_queue_bytes_max => 1}),
    _ = says(<<"x">>, {to, [<<"user/full">>]}, 1),
    Asked = fun() -> halley_hooks_endpoint:requests(?config(endpoint, Config)) =/= [] end,
    eventually(true, Asked),
    timer:sleep(300).

free(Bound, Config) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 200, hooks_queue_bytes_max => Bound}),
    halley_hooks_endpoint:does(fun(_, _) -> 200 end, ?config(endpoint, Config)).

%% Beyond the bound nobody knows: a gap says since when, and behind it all is known again.
moves_are_bounded(Config) ->
    start_hooks(Config, #{users => "user/*", events => "undelivered"}),
    settled(Config),
    Bound = halley_limits:get(hooks_queue_bytes_max),
    full(Config),
    halley_test_brain:limits(#{hooks_retry_ms_max => 200, hooks_queue_bytes_max => 1,
                               hooks_moves_max => 4}),
    [begin ok = halley:login(<<"user/a">>), ok = halley:logout(self()) end
     || _ <- lists:seq(1, 10)],
    _ = says(<<"x">>, {to, [<<"user/b">>]}, 1),
    ?assert(length(ets:tab2list(halley_hooked_moves)) =< 4),
    ok = free(Bound, Config),
    eventually([<<"too_old">>],
               fun() -> [Reason || #{<<"reason">> := Reason} <- of_type(<<"gap">>, Config)] end),
    Id = says(<<"x">>, {to, [<<"user/c">>]}, 1),
    eventually([{Id, [<<"user/c">>]}],
               fun() -> without_full(Config) end).
