%% The store of the builds before, in Mnesia, is taken over once, and whole.
-module(halley_store_takeover_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([taken_over/1, taken_over_twice/1, both_are_there/1, taken_over_by_another_node/1,
         taken_over_by_repair/1]).

-import(halley_store_helper, [id/1, agree/0]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [taken_over, taken_over_twice, both_are_there, taken_over_by_another_node,
     taken_over_by_repair].

init_per_suite(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{level, Level} | Config].

end_per_suite(Config) ->
    logger:set_primary_config(level, proplists:get_value(level, Config)).

init_per_testcase(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_path(Dir),
    [{dir, Dir} | Config].

end_per_testcase(_, Config) ->
    case whereis(halley_store_sup) of
        undefined -> ok;
        Sup -> halley_store_helper:close(Sup)
    end,
    Config.

%% Made by the last build that kept it in Mnesia: 2,000 follows and a checkpoint, then every fifth
%% unfollowed again, and 50 more.
unpack(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    ok = filelib:ensure_path(Dir),
    Archive = filename:join(proplists:get_value(data_dir, Config), "mnesia.tgz"),
    ok = erl_tar:extract(Archive, [compressed, {cwd, Dir}]),
    Dir.

expected() ->
    lists:sort([{<<"u", (id(N))/binary>>, <<"s", (id(N rem 7))/binary>>}
                || N <- lists:seq(1, 2000), N rem 5 =/= 0]
               ++ [{<<"v", (id(N))/binary>>, <<"u", (id(N))/binary>>} || N <- lists:seq(1, 50)]).

taken_over(Config) ->
    Dir = unpack(Config),
    Sup = halley_store_helper:open(Dir),
    ?assertEqual(expected(), lists:sort(agree())),
    ?assertEqual(2014, halley_ids:lookup(<<"v7">>)),
    ?assert(filelib:is_dir(filename:join(Dir, "mnesia-taken-over"))),
    ?assertNot(filelib:is_file(filename:join(Dir, "mnesia"))),
    {ok, _} = halley_follows:follow([{<<"new">>, <<"s1">>}]),
    halley_store_helper:reopen(Sup, Dir),
    ?assertEqual(lists:sort([{<<"new">>, <<"s1">>} | expected()]), lists:sort(agree())).

%% It was cut short behind its checkpoint, and when only the folder's name was left to be changed.
taken_over_twice(Config) ->
    Dir = unpack(Config),
    Sup = halley_store_helper:open(Dir),
    halley_store_helper:close(Sup),
    ok = file:rename(filename:join(Dir, "mnesia-taken-over"), filename:join(Dir, "mnesia")),
    Again = halley_store_helper:open(Dir),
    ?assertEqual(expected(), lists:sort(agree())),
    halley_store_helper:close(Again),
    ok = file:rename(filename:join(Dir, "mnesia-taken-over"), filename:join(Dir, "mnesia")),
    [Journal] = filelib:wildcard(filename:join([Dir, "follows", "journal-*"])),
    ok = file:delete(Journal),
    _ = halley_store_helper:open(Dir),
    ?assertEqual(expected(), lists:sort(agree())).

%% Somebody went back to the build before, and then forward again.
both_are_there(Config) ->
    Dir = unpack(Config),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow([{<<"new">>, <<"s1">>}]),
    halley_store_helper:close(Sup),
    ok = file:rename(filename:join(Dir, "mnesia-taken-over"), filename:join(Dir, "mnesia")),
    {error, Line} = halley_store_sup:start_link(),
    ?assertMatch({match, _}, re:run(Line, "^data.dir: .* are both there")),
    %% Without the note as well.
    ok = file:delete(filename:join(Dir, "follows.position")),
    ?assertEqual({error, Line}, halley_store_sup:start_link()).

taken_over_by_another_node(Config) ->
    Dir = unpack(Config),
    Eval = "application:set_env(halley, data_dir, \"" ++ Dir ++ "\"),"
           "{error, Text} = halley_store_sup:start_link(), io:put_chars([Text, 10]), halt().",
    Output = os:cmd("erl -noinput -start_epmd false -dist_listen false -sname other@localhost"
                    " -pa " ++ filename:dirname(code:which(halley_store)) ++ " -eval '"
                    ++ Eval ++ "'"),
    ?assertMatch({match, _}, re:run(Output, "node.name: .* belongs to node nonode@nohost, and "
                                            "this one is other@localhost")),
    ?assert(filelib:is_file(filename:join([Dir, "mnesia", "schema.DAT"]))).

%% A build before lost pages of one direction: the takeover refuses that, and the other has it all.
taken_over_by_repair(Config) ->
    Dir = unpack(Config),
    application:set_env(halley, data_dir, Dir),
    Repair = fun(IsDry) ->
        halley_store_repair:run(#{dry_run => IsDry, progress => fun(_) -> ok end})
    end,
    ?assertEqual({ok, {taken_over, whole}}, Repair(false)),
    ok = file:delete(filename:join([Dir, "mnesia", "halley_following_page.DCD"])),
    {error, _} = halley_store_sup:start_link(),
    {ok, {taken_over, {Counts, #{count := 0}}}} = Repair(true),
    ?assertEqual(length(expected()), maps:get(follows, Counts)),
    ?assert(filelib:is_dir(filename:join(Dir, "mnesia"))),
    ?assertMatch({ok, {taken_over, {Counts, _}}}, Repair(false)),
    _ = halley_store_helper:open(Dir),
    ?assertEqual(expected(), lists:sort(agree())).
