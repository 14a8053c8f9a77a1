%% The status as events: while a session follows it, with each second once; closed when keys change.
-module(halley_api_status_feed_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MODULES, [halley_subscriptions_table, halley_status, halley_router, halley_status_streams,
                  halley_api_status_h]).

feed_test_() ->
    {foreach, fun start/0, fun stop/1,
     [fun(_) -> {timeout, 30, Case} end
      || Case <- [fun nobody_follows/0, fun each_sample_once/0, fun not_published/0,
                  fun keys_change/0]]}.

start() ->
    ok = halley_server_keys:force(false, []),
    [ok = meck:new(M, [no_link]) || M <- ?MODULES],
    follows(true),
    meck:expect(halley_api_status_h, text, fun(Samples) -> {text, Samples} end).

stop(_) ->
    meck:unload(?MODULES).

%% What it does is told to the calling process; so is what became of it, by its end.
with_feed(Case) ->
    Self = self(),
    takes(),
    meck:expect(halley_status_streams, close, fun(_) -> Self ! closed, ok end),
    {ok, Pid} = halley_api_status_feed:start_link(),
    try Case()
    after
        unlink(Pid),
        Monitor = monitor(process, Pid),
        exit(Pid, kill),
        receive {'DOWN', Monitor, _, _, _} -> ok end
    end.

takes() ->
    Self = self(),
    meck:expect(halley_router, publish_own,
                fun(_, {text, Samples}) -> Self ! {published, Samples}, {ok, #{}} end).

follows(Does) ->
    meck:expect(halley_subscriptions_table, has_any, fun(_) -> Does end).

%% A hundred samples at once, then twenty more at each call, whatever the clock does in between:
%% a feed that stood still must not find more than it may publish at once.
samples(FirstAt) ->
    Calls = counters:new(1, []),
    meck:expect(halley_status, since, fun(After, _) ->
        timer:sleep(20),
        Last = FirstAt + 100 + 20 * counters:get(Calls, 1),
        ok = counters:add(Calls, 1, 1),
        [{At, [1]} || At <- lists:seq(FirstAt, Last), At > After]
    end).

published() ->
    receive {published, Samples} -> [At || {At, _} <- Samples] after 5000 -> error(nothing) end.

nobody_follows() ->
    follows(false),
    samples(erlang:system_time(millisecond)),
    with_feed(fun() ->
        receive {published, _} -> error(published) after 2500 -> ok end,
        ?assertEqual(0, meck:num_calls(halley_status, since, '_'))
    end).

each_sample_once() ->
    First = erlang:system_time(millisecond) - 100,
    samples(First),
    with_feed(fun() ->
        [Before | _] = Published = [published() || _ <- lists:seq(1, 5)],
        All = lists:append(Published),
        ?assertEqual(lists:seq(hd(All), lists:last(All)), All),
        %% Not all that there are: a reader that was away for longer has to ask.
        ?assertEqual(60, length(Before)),
        ?assert(hd(Before) > First)
    end).

%% What wasn't published is in the next one.
not_published() ->
    First = erlang:system_time(millisecond),
    meck:expect(halley_status, since,
                fun(After, _) -> [{At, [1]} || At <- [First], At > After] end),
    with_feed(fun() ->
        Self = self(),
        meck:expect(halley_router, publish_own,
                    fun(_, _) -> Self ! refused, {error, disk_full} end),
        receive refused -> ok end,
        takes(),
        ?assertEqual([First], published())
    end).

keys_change() ->
    follows(false),
    with_feed(fun() ->
        receive closed -> error(closed) after 1500 -> ok end,
        {_, Key} = halley_server_key:new(<<"a">>, [read], 0),
        ok = halley_server_keys:force(true, [Key]),
        receive closed -> ok after 5000 -> error(open) end,
        receive closed -> error(twice) after 2500 -> ok end
    end),
    halley_server_keys:force(false, []).
