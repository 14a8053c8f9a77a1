%% Where a brain with empty data begins, by a fake engine.
-module(halley_cluster_joining_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_cluster_fake_engine, [settings/1, advance/2, away/1, back/1, fail_over/2]).

-define(ENGINE, halley_cluster_fake_engine).

joining_test_() ->
    [{timeout, 60, {Name, fun() ->
        {ok, Fake} = ?ENGINE:start(),
        try Test(Fake) after ?ENGINE:stop(Fake) end
    end}} || {Name, Test} <- [{"a new log", fun new_log/1},
                              {"the whole retention", fun retention/1},
                              {"an epoch that loses nothing", fun epoch/1},
                              {"an epoch that loses rows", fun lost_rows/1},
                              {"an epoch that began before the floor", fun old_epoch/1},
                              {"the log is away", fun log_away/1}]].

new_log(Fake) ->
    ?assertMatch({ok, #{head := 0, epoch := 1, ids := Ids}} when Ids =:= #{}, place(Fake)).

%% The brain reads all rows itself.
retention(Fake) ->
    appended(Fake, 0, 1, [<<"a">>]),
    ?assertMatch({ok, #{head := 0, epoch := 1, ids := Ids}} when Ids =:= #{}, place(Fake)).

epoch(Fake) ->
    appended(Fake, 0, 2, [<<"a">>, <<"b">>]),
    appended(Fake, 2, 3, [<<"c">>]),
    ok = fail_over(Fake, 0),
    {ok, #{store := Store}} = place(Fake),
    appended(Fake, 3, 4, [<<"d">>]),
    ?assertEqual({ok, #{store => Store, head => 3, epoch => 2,
                        ids => #{<<"a">> => 1, <<"b">> => 2, <<"c">> => 3}}}, place(Fake)).

lost_rows(Fake) ->
    appended(Fake, 0, 1, [<<"a">>]),
    appended(Fake, 1, 2, [<<"lost">>]),
    ok = fail_over(Fake, 1),
    ?assertMatch({ok, #{head := 1, epoch := 2, ids := #{<<"a">> := 1} = Ids}}
                     when map_size(Ids) =:= 1, place(Fake)).

old_epoch(Fake) ->
    appended(Fake, 0, 1, [<<"a">>]),
    ok = fail_over(Fake, 0),
    appended(Fake, 1, 2, [<<"b">>]),
    ok = advance(Fake, 1000),
    appended(Fake, 2, 3, [<<"c">>]),
    {ok, Handle, #{at := At}} = ?ENGINE:open(settings(Fake)),
    {ok, 2} = ?ENGINE:trim(At - 500, Handle),
    ?assertMatch({ok, #{head := 2, epoch := 2, ids := Ids}} when Ids =:= #{}, place(Fake)).

log_away(Fake) ->
    ok = away(Fake),
    ?assertEqual({error, away}, place(Fake)),
    ok = back(Fake),
    ?assertMatch({ok, _}, place(Fake)).

place(Fake) -> halley_cluster_joining:place({?ENGINE, settings(Fake)}).

appended(Fake, Prev, Last, Ids) ->
    #{records := Records} = halley_cluster_records:proposal(
        [{event, halley_event:draft(Id, <<"s">>, <<"1">>)} || Id <- Ids]),
    {ok, Handle, _} = ?ENGINE:open(settings(Fake)),
    {ok, _} = ?ENGINE:append(Prev, <<Last:128>>,
                             #{last => Last, changes => [],
                               body => halley_cluster_records:body(1, [{<<Last:128>>, Records}])},
                             Handle),
    ?ENGINE:close(Handle).
