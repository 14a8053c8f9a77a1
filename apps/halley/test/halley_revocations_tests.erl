%% Whose tokens are revoked: on disk before it is in force, and never fewer after a start.
-module(halley_revocations_tests).

-include_lib("eunit/include/eunit.hrl").

-define(DAY_S, 86400).

revocations_test_() ->
    {foreach, fun setup/0, fun cleanup/1,
     [fun they_outlive_a_restart/1, fun a_page_after_the_other/1, fun they_lapse/1,
      fun together_they_have_a_bound/1, fun what_is_damaged_is_told/1, fun a_full_disk/1,
      fun the_edge_gets_them_among_the_keys/1]}.

setup() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = application:set_env(halley, data_dir, Dir),
    halley_limits:set(#{revocations_bytes_max => 300}),
    ok = halley_metrics:new(),
    %% Nobody is linked.
    halley_links = ets:new(halley_links, [named_table, public, {keypos, 2}]),
    start(Dir).

start(Dir) ->
    ok = halley_revocations:new(),
    {ok, Pid} = halley_revocations:start_link(),
    true = unlink(Pid),
    {Dir, Pid}.

stop(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    %% Where a test started it again, the table went with that test.
    _ = ets:whereis(halley_revocations) =/= undefined andalso ets:delete(halley_revocations),
    ok.

cleanup({Dir, _}) ->
    stop(whereis(halley_revocations)),
    _ = [ets:delete(Table) || Table <- [halley_metrics_edge, halley_links]],
    halley_limits:set(#{}),
    ok = application:unset_env(halley, data_dir),
    ok = file:del_dir_r(Dir).

they_outlive_a_restart({Dir, Pid}) ->
    fun() ->
        In1Day = erlang:system_time(second) + ?DAY_S,
        ok = halley_revocations:put(<<"ann">>, 100, never),
        ok = halley_revocations:put(<<"ünï\"code"/utf8>>, 7, In1Day),
        ok = halley_revocations:put(<<"ann">>, 200, never),
        ok = halley_revocations:put(<<"bob">>, 1, never),
        deleted = halley_revocations:delete(<<"bob">>),
        absent = halley_revocations:delete(<<"bob">>),
        stop(Pid),
        _ = start(Dir),
        ?assertEqual({[{<<"ann">>, 200, never}, {<<"ünï\"code"/utf8>>, 7, In1Day}], done},
                     halley_revocations:page(start, 10)),
        ?assertEqual(none, halley_revocations:find(<<"bob">>))
    end.

a_page_after_the_other(_) ->
    fun() ->
        [ok = halley_revocations:put(User, 1, never) || User <- [<<"c">>, <<"a">>, <<"b">>]],
        {[{<<"a">>, 1, never}, {<<"b">>, 1, never}], Next} = halley_revocations:page(start, 2),
        ?assertEqual({[{<<"c">>, 1, never}], done}, halley_revocations:page(Next, 2)),
        ?assertEqual({[{<<"c">>, 1, never}], done}, halley_revocations:page(<<"bx">>, 2))
    end.

they_lapse({_, Pid}) ->
    fun() ->
        ok = halley_revocations:put(<<"ann">>, 1, erlang:system_time(second) - 1),
        {Before, <<"{\"ann\":1}">>} = halley_revocations:text(),
        Pid ! lapse,
        ok = halley_revocations:put(<<"bob">>, 1, never),
        {After, <<"{\"bob\":1}">>} = halley_revocations:text(),
        ?assertNotEqual(Before, After)
    end.

together_they_have_a_bound(_) ->
    fun() ->
        Ids = [<<"user-", (integer_to_binary(N))/binary>> || N <- lists:seq(10, 40)],
        Results = [halley_revocations:put(Id, 1, never) || Id <- Ids],
        Taken = length([ok || ok <- Results]),
        ?assertEqual(10, Taken),
        ?assertEqual({error, too_many_revocations}, lists:last(Results)),
        %% One that is there already may be moved, and what lapsed makes room.
        ok = halley_revocations:put(<<"user-10">>, 2, erlang:system_time(second) - 1),
        ?assertEqual(ok, halley_revocations:put(<<"user-40">>, 1, never))
    end.

what_is_damaged_is_told({Dir, Pid}) ->
    fun() ->
        ok = halley_revocations:put(<<"ann">>, 1, never),
        ok = halley_revocations:put(<<"bob">>, 1, never),
        Path = filename:join(Dir, "revocations"),
        {ok, Whole} = file:read_file(Path),
        Cut = [binary:part(Whole, 0, N) || N <- lists:seq(0, byte_size(Whole) - 1)],
        [_, _ | Lines] = binary:split(Whole, <<"\n">>, [global]),
        Without = iolist_to_binary(lists:join("\n", ["{\"revocations\":1}" | Lines])),
        stop(Pid),
        lists:foreach(fun(Bytes) ->
            ok = file:write_file(Path, Bytes),
            ?assertMatch({error, "data.dir: " ++ _}, halley_revocations:check())
        end, [Without | Cut]),
        ok = file:write_file(Path, Whole),
        ?assertEqual(ok, halley_revocations:check()),
        start(Dir)
    end.

%% What isn't on disk isn't in force.
a_full_disk({Dir, _}) ->
    fun() ->
        ok = halley_revocations:put(<<"ann">>, 1, never),
        ok = file:make_dir(filename:join(Dir, "revocations.new")),
        {error, {store_failed, eisdir}} = halley_revocations:put(<<"bob">>, 1, never),
        {error, {store_failed, eisdir}} = halley_revocations:delete(<<"ann">>),
        ?assertEqual({[{<<"ann">>, 1, never}], done}, halley_revocations:page(start, 10))
    end.

the_edge_gets_them_among_the_keys(_) ->
    fun() ->
        ok = application:set_env(halley, token_keys,
                                 {secret, fun() -> binary:copy(<<"s">>, 32) end}),
        {ok, Set} = halley_jwks:of_secret(binary:copy(<<"s">>, 32)),
        persistent_term:put(halley_token_keys, {<<"version">>, Set}),
        ?assertEqual({<<"version">>, Set}, halley_token_keys:current()),
        ok = halley_revocations:put(<<"ann">>, 5, never),
        {Version, With} = halley_token_keys:current(),
        ?assertNotEqual(<<"version">>, Version),
        Keys = jiffy:decode(Set, [return_maps]),
        ?assertEqual(Keys#{<<"revoked">> => #{<<"ann">> => 5}},
                     jiffy:decode(With, [return_maps])),
        persistent_term:erase(halley_token_keys),
        application:unset_env(halley, token_keys)
    end.
