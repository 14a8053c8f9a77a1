%% The promises of `halley_log_engine', by each engine: the fake one of other tests, PostgreSQL
%% alone, and PostgreSQL that waits for a standby. Failures that only PostgreSQL has are in
%% `halley_cluster_postgres_SUITE' and `halley_cluster_standby_SUITE'.
-module(halley_cluster_engine_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_cluster_test, [open/1, append/5, append/6, token/0, all_rows/2, is_chain/1]).

-define(WRITERS, 4).
-define(EACH, 50).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [{group, fake}, {group, postgres}, {group, standby}].

groups() ->
    Cases = [chain, conflicts, race, bodies, bytes_bound, changes, changes_of_a_conflict,
             snapshot_of_one_row, old_rows_go, ahead_begins_an_epoch, roles, roles_expire,
             members, positions, one_epoch, closed],
    [{fake, [], Cases}, {postgres, [], Cases}, {standby, [], Cases}].

init_per_group(fake, Config) -> [{kind, fake} | Config];
init_per_group(postgres, Config) -> halley_cluster_test:start_postgres(Config);
init_per_group(standby, Config) -> halley_cluster_test:start_pair(Config).

end_per_group(fake, _) -> ok;
end_per_group(_, Config) -> halley_cluster_test:stop_postgres(Config).

init_per_testcase(_, Config) -> halley_cluster_test:init_per_testcase(Config).

end_per_testcase(_, Config) -> halley_cluster_test:end_per_testcase(Config).

%% --- the chain ----------------------------------------------------------------------------------

chain(Config) ->
    {Engine, #{last := 0, floor := 0, epochs := [#{n := 1, 'after' := 0}]}} = open(Config),
    {ok, At1} = append(0, 3, token(), <<"one">>, Engine),
    {ok, At2} = append(3, 4, token(), <<"two">>, Engine),
    ?assert(At2 >= At1),
    {Module, Handle} = Engine,
    ?assertMatch({ok, [#{prev := 0, last := 3, at := At1, body := <<"one">>},
                       #{prev := 3, last := 4, at := At2, body := <<"two">>}]},
                 Module:read(0, 1000000, Handle)),
    ?assertMatch({ok, [#{prev := 3}]}, Module:read(3, 1000000, Handle)),
    ?assertEqual({ok, []}, Module:read(4, 1000000, Handle)),
    {_, #{last := 4, floor := 0, epochs := [#{n := 1}]}} = open(Config).

conflicts(Config) ->
    {Engine, _} = open(Config),
    {ok, _} = append(0, 10, token(), <<>>, Engine),
    {ok, _} = append(10, 20, token(), <<>>, Engine),
    [?assertEqual({Prev, {conflict, 20}}, {Prev, append(Prev, Prev + 1, token(), <<>>, Engine)})
     || Prev <- [0, 5, 10, 15, 21, 1000]],
    {ok, _} = append(20, 21, token(), <<>>, Engine),
    ?assertMatch([#{last := 10}, #{last := 20}, #{last := 21}], all_rows(0, Engine)).

%% Each writer appends after the last row that it knows, until each of its tokens is in the chain.
race(Config) ->
    Tokens = [[token() || _ <- lists:seq(1, ?EACH)] || _ <- lists:seq(1, ?WRITERS)],
    Writers = [spawn_monitor(fun() ->
        {Engine, #{last := Last}} = open(Config),
        _ = lists:foldl(fun(Token, Prev) -> appended(Prev, Token, Engine) end, Last, Own)
    end) || Own <- Tokens],
    _ = [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
         || {Pid, Monitor} <- Writers],
    {Engine, _} = open(Config),
    Rows = all_rows(0, Engine),
    ?assert(is_chain(Rows)),
    ?assertEqual(lists:sort(lists:append(Tokens)),
                 lists:sort([Token || #{token := Token} <- Rows])).

appended(Prev, Token, Engine) ->
    Last = Prev + 1 + rand:uniform(5),
    case append(Prev, Last, Token, <<"race">>, Engine) of
        {ok, _} -> Last;
        {conflict, Other} -> appended(Other, Token, Engine);
        %% Another one's commit took long.
        {error, away} -> appended(Prev, Token, Engine)
    end.

%% Every byte, and more of them than a page, a buffer or a socket takes at once.
bodies(Config) ->
    {Engine, _} = open(Config),
    Bodies = [<<>>, << <<N>> || N <- lists:seq(0, 255) >>]
        ++ [crypto:strong_rand_bytes(N) || N <- [2000, 9000, 40000, 3000000]],
    _ = lists:foldl(fun(Body, Prev) ->
        {ok, _} = append(Prev, Prev + 1, token(), Body, Engine),
        Prev + 1
    end, 0, Bodies),
    ?assertEqual(Bodies, [Body || #{body := Body} <- all_rows(0, Engine)]).

bytes_bound(Config) ->
    {{Module, Handle} = Engine, _} = open(Config),
    _ = [{ok, _} = append(N, N + 1, token(), binary:copy(<<"x">>, 1000), Engine)
         || N <- lists:seq(0, 9)],
    Count = fun(Bytes) -> {ok, Rows} = Module:read(2, Bytes, Handle), length(Rows) end,
    ?assertEqual([1, 1, 2, 3, 8], [Count(Bytes) || Bytes <- [1, 1000, 1001, 3000, 100000]]).

%% --- changes and snapshots -----------------------------------------------------------------------

snapshot({Module, Handle}) ->
    Case = self(),
    {ok, At} = Module:snapshot(fun({Kind, Rows}) -> Case ! {Kind, Rows}, ok end, Handle),
    {At, maps:from_list([{Kind, lists:sort(parts(Kind))} || Kind <- [follows, kept, keys]])}.

parts(Kind) -> receive {Kind, Rows} -> Rows ++ parts(Kind) after 0 -> [] end.

changes(Config) ->
    {Engine, _} = open(Config),
    Odd = <<"Jos\x{e9} \x{1f600} '\""/utf8>>,
    {ok, At} = append(0, 1, token(), <<>>, [
        {follow, <<"ann">>, <<"news">>}, {follow, <<"bob">>, <<"news">>},
        {follow, <<"ann">>, <<"news">>}, {follow, Odd, <<"sport">>},
        {unfollow, <<"bob">>, <<"news">>}, {unfollow, <<"bob">>, <<"sport">>},
        {keep, <<"news">>, 1, <<"old">>}, {keep, <<"news">>, 1, <<0, 255>>},
        {keep, <<"gone">>, 1, <<"x">>}, {clear, <<"gone">>},
        {key, <<"k1">>, <<"record">>}, {key, <<"k2">>, <<"x">>}, {key, <<"k2">>, removed}], Engine),
    ?assertEqual({1, #{follows => lists:sort([{<<"ann">>, <<"news">>}, {Odd, <<"sport">>}]),
                       kept => [{<<"news">>, 1, At, <<0, 255>>}],
                       keys => [{<<"k1">>, <<"record">>}]}},
                 snapshot(Engine)),
    {ok, _} = append(1, 2, token(), <<>>, [
        {follow, <<"bob">>, <<"ann">>}, {follow, <<"ann">>, <<"bob">>}, {forget, <<"ann">>},
        {follow, <<"ann">>, <<"later">>}, {key, <<"k1">>, <<"other">>}], Engine),
    ?assertEqual({2, #{follows => lists:sort([{<<"ann">>, <<"later">>}, {Odd, <<"sport">>}]),
                       kept => [{<<"news">>, 1, At, <<0, 255>>}],
                       keys => [{<<"k1">>, <<"other">>}]}},
                 snapshot(Engine)),
    Many = [{follow, integer_to_binary(N), <<"many">>} || N <- lists:seq(1, 5000)],
    {ok, _} = append(2, 3, token(), <<>>, Many, Engine),
    {3, #{follows := Follows}} = snapshot(Engine),
    ?assertEqual(5002, length(Follows)).

changes_of_a_conflict(Config) ->
    {Engine, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, [{follow, <<"a">>, <<"b">>}], Engine),
    {conflict, 1} = append(0, 2, token(), <<>>, [{unfollow, <<"a">>, <<"b">>},
                                                  {follow, <<"c">>, <<"d">>}], Engine),
    ?assertMatch({1, #{follows := [{<<"a">>, <<"b">>}]}}, snapshot(Engine)).

%% While rows come that change all three tables together.
snapshot_of_one_row(Config) ->
    Case = self(),
    {_, Monitor} = spawn_monitor(fun() ->
        {Engine, _} = open(Config),
        Case ! {writes, self()},
        writing(0, Engine)
    end),
    Writer = receive {writes, Pid} -> Pid end,
    {Engine, _} = open(Config),
    Snapshots = [snapshot(Engine) || _ <- lists:seq(1, 20)],
    Writer ! stop,
    receive {'DOWN', Monitor, process, Writer, Reason} -> ?assertEqual(normal, Reason) end,
    lists:foreach(fun
        ({0, #{follows := [], kept := [], keys := []}}) -> ok;
        ({At, #{kept := [{<<"s">>, _, Ms, _}]} = Tables}) ->
            Text = integer_to_binary(At),
            ?assertEqual(#{follows => [{Text, <<"s">>}], kept => [{<<"s">>, At, Ms, Text}],
                           keys => [{<<"k">>, Text}]}, Tables)
    end, Snapshots),
    ?assert(length(lists:usort([At || {At, _} <- Snapshots])) > 1).

writing(Prev, Engine) ->
    receive stop -> ok
    after 0 ->
        Last = Prev + 1,
        Text = integer_to_binary(Last),
        {ok, _} = append(Prev, Last, token(), <<>>, [
            {unfollow, integer_to_binary(Prev), <<"s">>}, {follow, Text, <<"s">>},
            {keep, <<"s">>, Last, Text}, {key, <<"k">>, Text}], Engine),
        writing(Last, Engine)
    end.

%% --- retention and lost rows ---------------------------------------------------------------------

%% Segments are short, and two brains append and trim.
old_rows_go(Config) ->
    {{Module, Handle} = Engine, _} = open([{retention_ms, 120} | Config]),
    {Other, _} = open([{retention_ms, 120} | Config]),
    Until = erlang:monotonic_time(millisecond) + 1500,
    {Last, Floor} = growing(0, 0, [Engine, Other], Config, Until),
    ?assert(Floor > 0),
    Rows = all_rows(Floor, Engine),
    ?assert(is_chain(Rows)),
    ?assertMatch({Floor, Last}, {maps:get(prev, hd(Rows)), maps:get(last, lists:last(Rows))}),
    ?assertEqual(too_old, Module:read(0, 1000, Handle)),
    ?assertEqual(too_old, Module:read(Floor - 1, 1000, Handle)),
    %% A writer of the beginning, whose segment was emptied.
    ?assertEqual({conflict, Last}, append(0, 1, token(), <<>>, Engine)),
    {_, #{last := Last, floor := Floor}} = open(Config),
    %% The newest row stays.
    {ok, At} = append(Last, Last + 1, token(), <<>>, Engine),
    {ok, Newest} = Module:trim(At + 100000, Handle),
    ?assert(Newest =< Last),
    ?assertMatch({ok, [_ | _]}, Module:read(Newest, 1000, Handle)),
    {ok, _} = append(Last + 1, Last + 2, token(), <<>>, Other).

growing(Prev, Floor, [{Module, Handle} = Engine | Others], Config, Until) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            {ok, At} = append(Prev, Prev + 2, token(), <<"body">>, Engine),
            halley_cluster_test:pass(Config, 3),
            {ok, Floor1} = Module:trim(At - 120, Handle),
            ?assert(Floor1 >= Floor),
            growing(Prev + 2, Floor1, Others ++ [Engine], Config, Until);
        false -> {Prev, Floor}
    end.

%% Two brains have rows that the chain hasn't: one epoch begins, and not two.
ahead_begins_an_epoch(Config) ->
    {{Module, Handle} = Engine, #{epochs := [#{store := Old}]}} = open(Config),
    {{_, Other}, _} = open(Config),
    {ok, _} = append(0, 5, token(), <<>>, Engine),
    ?assertEqual(ahead, Module:read(9, 1000, Handle)),
    ?assert(lists:member(Module:read(9, 1000, Other), [ahead, {error, away}])),
    {Again, #{last := 5, epochs := [#{n := 2, store := New, 'after' := 5},
                                    #{n := 1, store := Old, 'after' := 0}]}} = open(Config),
    ?assertNotEqual(Old, New),
    ?assertEqual(new_stretch, append(5, 6, token(), <<>>, Engine)),
    {ok, _} = append(5, 7, token(), <<>>, Again),
    {_, #{epochs := [#{n := 2}, _]}} = open(Config).

one_epoch(Config) ->
    Case = self(),
    Pids = [spawn_link(fun() ->
        Case ! {self(), epochs(halley_cluster_test:engine(Config))}
    end) || _ <- lists:seq(1, 8)],
    ?assertMatch([[#{n := 1, 'after' := 0}]],
                 lists:usort([receive {Pid, Epochs} -> Epochs end || Pid <- Pids])).

%% The first one's commit may take long.
epochs({Module, Settings} = Engine) ->
    case Module:open(Settings) of
        {ok, _, #{epochs := Epochs}} -> Epochs;
        {error, away} -> epochs(Engine)
    end.

%% --- roles, members, places ----------------------------------------------------------------------

roles(Config) ->
    {{Module, Handle}, _} = open(Config),
    {{_, Other}, _} = open(Config),
    Take = fun(Brain, Term, H) -> Module:take(order, Brain, Term, 60000, H) end,
    ?assertEqual({held, 1}, Take(<<"a">>, 0, Handle)),
    ?assertEqual({other, <<"a">>, 1}, Take(<<"b">>, 0, Other)),
    ?assertEqual({held, 1}, Take(<<"a">>, 1, Handle)),
    %% Another process of that name doesn't have its term.
    ?assertEqual({other, <<"a">>, 1}, Take(<<"a">>, 0, Other)),
    ?assertEqual({held, 1}, Module:take(hooks, <<"b">>, 0, 60000, Other)),
    ok = Module:give(order, <<"b">>, 1, Other),
    ok = Module:give(order, <<"a">>, 7, Handle),
    ?assertEqual({other, <<"a">>, 1}, Take(<<"b">>, 0, Other)),
    ok = Module:give(order, <<"a">>, 1, Handle),
    ?assertEqual({held, 2}, Take(<<"b">>, 0, Other)),
    ?assertEqual({other, <<"b">>, 2}, Take(<<"a">>, 1, Handle)),
    ok = Module:give(order, <<"b">>, 2, Other),
    ?assertEqual({held, 3}, Take(<<"b">>, 2, Other)).

roles_expire(Config) ->
    {{Module, Handle}, _} = open(Config),
    ?assertEqual({held, 1}, Module:take(order, <<"a">>, 0, 100, Handle)),
    halley_cluster_test:pass(Config, 150),
    %% Late, and in time: no other brain had it.
    ?assertEqual({held, 1}, Module:take(order, <<"a">>, 1, 100, Handle)),
    halley_cluster_test:pass(Config, 150),
    ?assertEqual({held, 2}, Module:take(order, <<"b">>, 0, 60000, Handle)),
    ?assertEqual({other, <<"b">>, 2}, Module:take(order, <<"a">>, 1, 100, Handle)).

members(Config) ->
    {{Module, Handle}, _} = open(Config),
    Brain = fun(Name, Head) ->
        #{name => Name, address => <<"10.0.0.1:4370">>, version => 1, head => Head, seen => 0}
    end,
    {ok, [#{name := <<"a">>, head := 5, seen := At}], At} =
        Module:brains(Brain(<<"a">>, 5), Handle),
    {ok, Both, Now} = Module:brains(Brain(<<"b">>, 6), Handle),
    ?assert(Now >= At),
    ?assertMatch([#{name := <<"a">>, head := 5, seen := At},
                  #{name := <<"b">>, head := 6, seen := Now}],
                 lists:sort(fun(A, B) -> maps:get(name, A) < maps:get(name, B) end, Both)),
    {ok, Again, _} = Module:brains(Brain(<<"a">>, 9), Handle),
    ?assertMatch([#{head := 9, address := <<"10.0.0.1:4370">>, version := 1}],
                 [Each || #{name := <<"a">>} = Each <- Again]).

positions(Config) ->
    {{Module, Handle}, _} = open(Config),
    ?assertEqual({ok, none}, Module:position(<<"hooks">>, Handle)),
    ok = Module:save_position(<<"hooks">>, <<0, 1, 255>>, Handle),
    ok = Module:save_position(<<"other">>, <<>>, Handle),
    ok = Module:save_position(<<"hooks">>, <<2>>, Handle),
    ?assertEqual([{ok, <<2>>}, {ok, <<>>}],
                 [Module:position(Each, Handle) || Each <- [<<"hooks">>, <<"other">>]]).

closed(Config) ->
    {{Module, Handle}, _} = open(Config),
    ok = Module:close(Handle),
    ok = Module:close(Handle).
