%% Ids keep their numbers, the store opens or says why not.
-module(halley_ids_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([numbers_are_dense/1, many_names_at_once/1, concurrent_interns_agree/1,
         too_many_ids/1, room_is_kept_for_sessions/1, bad_id/1, killed_ids_come_back/1,
         only_followed_ids_survive/1, names_survive_gaps/1,
         table_keeps_no_buffer/1, directory_unwritable/1, directory_in_use/1]).

-import(halley_store_helper, [id/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [numbers_are_dense, many_names_at_once, concurrent_interns_agree, too_many_ids,
     room_is_kept_for_sessions, bad_id,
     killed_ids_come_back, only_followed_ids_survive, names_survive_gaps, table_keeps_no_buffer,
     directory_unwritable, directory_in_use].

init_per_testcase(Case, Config) ->
    halley_store_helper:begin_case(Case, Config).

end_per_testcase(_, Config) ->
    halley_store_helper:end_case(),
    Config.

numbers_are_dense(_) ->
    Ids = [id(N) || N <- lists:seq(1, 1000)],
    ?assertEqual({ok, lists:seq(1, 1000)}, halley_ids:intern(Ids)),
    ?assertEqual({ok, [7, 1001, 1001]}, halley_ids:intern([<<"7">>, <<"new">>, <<"new">>])),
    ?assertEqual(1001, halley_ids:count()),
    ?assertEqual(Ids, [halley_ids:name(N) || N <- lists:seq(1, 1000)]),
    ?assertEqual(undefined, halley_ids:lookup(<<"nobody">>)),
    ?assertError({no_such_user_number, 1002}, halley_ids:name(1002)).

%% Of several pages, with numbers that are nobody's in their midst and behind the last.
many_names_at_once(_) ->
    {ok, _} = halley_ids:intern([id(N) || N <- lists:seq(1, 300)]),
    ok = halley_ids_pages:clear([5, 64, 127]),
    [?assertEqual([halley_ids:name(N) || N <- Numbers, N =< 300, not lists:member(N, [5, 64, 127])],
                  halley_ids_pages:ids(Numbers))
     || Numbers <- [[], lists:seq(1, 300), lists:seq(1, 400), [300, 301, 5000], [5], [5, 64, 127],
                    [63, 64, 65, 127, 128, 129, 300], lists:seq(1, 300, 37)]].

concurrent_interns_agree(_) ->
    Self = self(),
    Ids = [id(N) || N <- lists:seq(1, 500)],
    Pids = [spawn_link(fun() -> Self ! {self(), halley_ids:intern(Ids)} end)
            || _ <- lists:seq(1, 8)],
    [Numbers] = lists:usort([receive {Pid, {ok, Ns}} -> Ns end || Pid <- Pids]),
    ?assertEqual(lists:seq(1, 500), lists:sort(Numbers)).

too_many_ids(_) ->
    halley_limits:set(#{ids_max => 10, ids_for_sessions_percent => 0}),
    metrics(),
    {ok, _} = halley_ids:intern([id(N) || N <- lists:seq(1, 9)]),
    ?assertEqual({error, too_many_ids}, halley_ids:intern([<<"x">>, <<"y">>])),
    ?assertEqual(undefined, halley_ids:lookup(<<"x">>)),
    ?assertEqual({ok, #{added => 1, already => 0,
                        errors => [{1, too_many_ids}, {2, too_many_ids}]}},
                 halley_follows:follow([{<<"1">>, <<"2">>}, {<<"x">>, <<"1">>},
                                        {<<"1">>, <<"y">>}])),
    ?assertEqual({ok, [10]}, halley_ids:intern([<<"z">>])).

%% Whoever names ids by follows leaves the last of them to those who connect.
room_is_kept_for_sessions(_) ->
    halley_limits:set(#{ids_max => 100, ids_for_sessions_percent => 10}),
    metrics(),
    {ok, #{added := 89}} = halley_follows:follow([{<<"u">>, id(N)} || N <- lists:seq(1, 89)]),
    ?assertEqual(90, halley_ids:count()),
    Refused = {ok, #{added => 1, already => 0, errors => [{0, too_many_ids}, {2, too_many_ids}]}},
    ?assertEqual(Refused, halley_follows:follow([{<<"u">>, <<"x">>}, {<<"1">>, <<"2">>},
                                                 {<<"y">>, <<"1">>}])),
    Users = [<<"user", (id(N))/binary>> || N <- lists:seq(1, 10)],
    ?assertEqual({ok, lists:seq(91, 100)}, halley_ids:intern(Users)),
    ?assertEqual({error, too_many_ids}, halley_ids:intern([<<"z">>])),
    {Counters, #{too_many_ids := Place}} = persistent_term:get({halley_metrics, counters}),
    ?assertEqual(2, counters:get(Counters, Place)).

metrics() ->
    ets:whereis(halley_metrics_edge) =:= undefined orelse ets:delete(halley_metrics_edge),
    halley_metrics:new().

bad_id(_) ->
    Bad = <<"line\nbreak">>,
    ?assertEqual({error, {bad_id, Bad}}, halley_ids:intern([<<"good">>, Bad])),
    ?assertEqual(undefined, halley_ids:lookup(<<"good">>)).

%% Numbers that are only in memory outlive the process that gave them.
killed_ids_come_back(_) ->
    {ok, Numbers} = halley_ids:intern([id(N) || N <- lists:seq(1, 200)]),
    ok = halley_ids_index:publish(halley_ids_index:new(0)),
    ok = halley_store_helper:kill(halley_ids),
    ?assertEqual({ok, Numbers}, halley_ids:intern([id(N) || N <- lists:seq(1, 200)])),
    ?assertEqual({ok, [201]}, halley_ids:intern([<<"201">>])).

only_followed_ids_survive(Config) ->
    {ok, [1, 2]} = halley_ids:intern([<<"a">>, <<"b">>]),
    {ok, _} = halley_follows:follow([{<<"a">>, <<"b">>}]),
    {ok, _} = halley_ids:intern([id(N) || N <- lists:seq(1, 200)]),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual([1, 2], [halley_ids:lookup(Id) || Id <- [<<"a">>, <<"b">>]]),
    ?assertEqual(undefined, halley_ids:lookup(<<"200">>)),
    ?assertEqual({ok, [3]}, halley_ids:intern([<<"200">>])).

%% Numbers in between were never durable; what was followed keeps number and name.
names_survive_gaps(Config) ->
    {ok, _} = halley_ids:intern([id(N) || N <- lists:seq(1, 1000)]),
    {ok, _} = halley_follows:follow([{<<"10">>, <<"990">>}]),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual({10, 990}, {halley_ids:lookup(<<"10">>), halley_ids:lookup(<<"990">>)}),
    ?assertEqual(undefined, halley_ids:lookup(<<"500">>)),
    %% The lowest that is nobody's, once it is certain that no file names it.
    ?assertEqual({ok, [991]}, halley_ids:intern([<<"late">>])),
    [ok = halley_follows_owner:checkpoint() || _ <- [first, second]],
    ?assertEqual({ok, [1]}, halley_ids:intern([<<"500">>])),
    {ok, _} = halley_follows:follow([{<<"500">>, <<"990">>}]),
    ?assertEqual({[<<"500">>, <<"10">>], done}, halley_follows:followers(<<"990">>, start, 5)).

%% Ids are cut from import buffers of 64 KB; the table must not keep those.
table_keeps_no_buffer(_) ->
    Buffer = binary:copy(<<"x">>, 65536),
    {ok, [Number]} = halley_ids:intern([binary:part(Buffer, 0, 200)]),
    [{_, Page}] = ets:lookup(halley_id_pages, Number div 64),
    ?assertEqual(byte_size(Page), binary:referenced_byte_size(Page)),
    ?assertEqual(200, binary:referenced_byte_size(halley_ids:name(Number))).

%% Root may write anywhere, so a directory that can't be made stands for one without the right.
directory_unwritable(Config) ->
    halley_store_helper:close(proplists:get_value(sup, Config)),
    File = filename:join(proplists:get_value(priv_dir, Config), "a_file"),
    ok = file:write_file(File, <<>>),
    application:set_env(halley, data_dir, File),
    {error, Text} = halley_store_sup:start_link(),
    ?assertMatch({match, _}, re:run(Text, "^data.dir: cannot write in .*a_file: ")).

directory_in_use(Config) ->
    Dir = proplists:get_value(dir, Config),
    halley_store_helper:close(proplists:get_value(sup, Config)),
    Eval = "application:set_env(halley, data_dir, \"" ++ Dir ++ "\"),"
           " ok = halley_data_dir:open(), io:format(\"open~n\"), timer:sleep(infinity).",
    Port = open_port({spawn_executable, os:find_executable("erl")},
                     [{args, ["-noinput", "-pa", filename:dirname(code:which(halley_data_dir)),
                              "-eval", Eval]}, {line, 100}, exit_status]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    receive {Port, {data, {eol, "open"}}} -> ok end,
    {error, Text} = halley_store_sup:start_link(),
    "" = os:cmd("kill -9 " ++ integer_to_list(Pid)),
    receive {Port, {exit_status, 137}} -> ok end,
    ?assertMatch({match, _}, re:run(Text, "^data.dir: another running brain has .* open$")),
    halley_store_helper:open(Dir).
