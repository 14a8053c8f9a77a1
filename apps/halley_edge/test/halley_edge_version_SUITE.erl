%% Versions of the link: with workers of the version before, of this one and of a later one
%% (protocol/link.md 3.2).
-module(halley_edge_version_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [next/2, alive/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [a_worker_of_this_version_is_served, a_worker_that_chose_another_version_is_refused].

init_per_testcase(_, Config) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, halley_edge_test_brain:start()}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

a_worker_of_this_version_is_served(Config) ->
    served(Config, 6).

%% A HELLO_EDGE of a version that the brain didn't offer.
a_worker_that_chose_another_version_is_refused(Config) ->
    [begin
         Edge = edge(Config, {raw, <<7:32, 16#40, "HLY1", Version:16>>}),
         {goodbye, 2, Reason} = next(Edge, goodbye),
         ?assertMatch({match, _}, re:run(Reason, "6 to 6 here, " ++ integer_to_list(Version))),
         fake_edge:stop(Edge)
     end || Version <- [5, 7]].

%%% Helpers

%% The brain says its lowest and its highest; and a session of the worker gets an event.
served(Config, Version) ->
    Edge = edge(Config, (fake_edge:hello())#{version := Version}),
    {hello_brain, #{version := 6, settings := Settings}} = next(Edge, hello_brain),
    ?assertEqual({<<"link_version_max">>, <<"6">>},
                 lists:keyfind(<<"link_version_max">>, 1, Settings)),
    receive {link_up, #{version := Version}} -> ok after ?WAIT_MS -> error(not_up) end,
    fake_edge:send(Edge, {sync_begin, 0, <<>>}),
    fake_edge:send(Edge, sync_end),
    fake_edge:send(Edge, {open, [{1, 1, <<"anna">>, <<>>}]}),
    {opened, _, [{1, _}]} = next(Edge, opened),
    {ok, #{sessions := 1}} = halley:publish(<<"anna">>, 1),
    _ = next(Edge, deliver),
    alive(Edge),
    fake_edge:stop(Edge).

edge(Config, Hello) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir), Hello),
    ok = halley_edge_dialer:connect(Dir, self()),
    Edge.
