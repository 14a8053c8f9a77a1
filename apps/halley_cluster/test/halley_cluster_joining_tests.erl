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
                              {"an older epoch", fun epoch/1},
                              {"an epoch that began before the floor", fun floor_behind/1},
                              {"the log is away", fun log_away/1}]].

new_log(Fake) ->
    ?assertMatch({ok, #{head := 0, epoch := 1}}, place(Fake)).

retention(Fake) ->
    appended(Fake, 0, 1),
    ?assertMatch({ok, #{head := 0, epoch := 1}}, place(Fake)).

%% The rows of the older epoch come first.
epoch(Fake) ->
    {ok, #{store := Store}} = place(Fake),
    appended(Fake, 0, 3),
    ok = fail_over(Fake, 0),
    ?assertEqual({ok, #{store => Store, head => 0, epoch => 1}}, place(Fake)).

floor_behind(Fake) ->
    appended(Fake, 0, 1),
    ok = fail_over(Fake, 0),
    appended(Fake, 1, 2),
    ok = advance(Fake, 1000),
    appended(Fake, 2, 3),
    {ok, Handle, #{at := At, epochs := [#{store := Store}, _]}} = ?ENGINE:open(settings(Fake)),
    {ok, 2} = ?ENGINE:trim(At - 500, Handle),
    ?assertEqual({ok, #{store => Store, head => 2, epoch => 2}}, place(Fake)).

log_away(Fake) ->
    ok = away(Fake),
    ?assertEqual({error, away}, place(Fake)),
    ok = back(Fake),
    ?assertMatch({ok, _}, place(Fake)).

place(Fake) -> halley_cluster_joining:place({?ENGINE, settings(Fake)}).

appended(Fake, Prev, Last) ->
    {ok, Handle, _} = ?ENGINE:open(settings(Fake)),
    {ok, _} = ?ENGINE:append(Prev, <<Last:128>>, #{last => Last, changes => [], body => <<>>},
                             Handle),
    ?ENGINE:close(Handle).
