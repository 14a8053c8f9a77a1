%% A store of its own for a test case, opened and closed in the test's VM. There is no history: a
%% double of it knows of no events, so no unfollow is recorded.
-module(halley_store_helper).

-export([begin_case/2, end_case/0, open/1, close/1, reopen/2, kill/1]).
-export([await/1, await_owner/0, agree/0, id/1]).

%% A minute, 10 ms apart.
-define(TRIES, 6000).

%% For `init_per_testcase': a store in a folder of the case.
begin_case(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    [{dir, Dir}, {sup, open(Dir)} | Config].

%% For `end_per_testcase', whatever the case has left of the store and the limits.
end_case() ->
    halley_limits:set(#{}),
    case whereis(halley_store_sup) of
        undefined -> halley_store:close();
        Sup -> close(Sup)
    end.

open(Dir) ->
    no_history(),
    application:set_env(halley, data_dir, Dir),
    {ok, Sup} = halley_store_sup:start_link(),
    unlink(Sup),
    Sup.

no_history() ->
    no_double(),
    ok = meck:new(halley_history, [no_link]),
    ok = meck:expect(halley_history, heads, 0, {}),
    ok = meck:expect(halley_history, await, 2, ok),
    ok = meck:expect(halley_history, has_events, 1, false),
    ok = meck:expect(halley_history, drawn, 0, 0),
    ok = meck:expect(halley_history, is_empty, 0, false),
    ok = meck:expect(halley_history, followed, 2, ok),
    ok = meck:expect(halley_history, unfollowed, 1, ok).

%% For init_per_testcase, whose process ends before the case: the supervisor is not linked.
close(Sup) ->
    Ref = monitor(process, Sup),
    exit(Sup, shutdown),
    receive {'DOWN', Ref, process, _, _} -> ok
    after 60000 -> exit(Sup, kill)
    end,
    no_double(),
    halley_store:close().

no_double() ->
    whereis(halley_history_meck) =:= undefined orelse meck:unload(halley_history).

reopen(Sup, Dir) ->
    close(Sup),
    open(Dir).

%% Kills a named process and returns when another has its name.
kill(Name) ->
    Pid = whereis(Name),
    exit(Pid, kill),
    await(fun() -> is_pid(whereis(Name)) andalso whereis(Name) =/= Pid end),
    _ = sys:get_state(Name, infinity),
    ok.

await_owner() ->
    await(fun() -> is_pid(whereis(halley_follows_owner)) end),
    _ = sys:get_state(halley_follows_owner, infinity),
    ok.

await(Condition) -> await(Condition, ?TRIES).

await(Condition, Tries) when Tries > 0 ->
    case Condition() of
        true -> ok;
        false -> timer:sleep(10), await(Condition, Tries - 1)
    end.

%% Both directions hold the same pairs, as many as are counted. Gives them, user first.
agree() ->
    Following = [Key || <<Key:64>> <= halley_pages_table:pairs(halley_following)],
    Followers = [halley_pages:swap(Key)
                 || <<Key:64>> <= halley_pages_table:pairs(halley_followers)],
    Following = lists:sort(Followers),
    true = length(Following) =:= halley_follows:count(),
    [{halley_ids:name(Key bsr 32), halley_ids:name(Key band 16#ffffffff)} || Key <- Following].

id(N) -> integer_to_binary(N).
