%% Shared by the suites: a brain and a back end for each case, and steps with them.
-module(halley_backends_case).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([start/4, stop/1, node_of/2, restart_brain/1, brain/4, back_end/3, process/3]).
-export([logged_in/2, publish/3, numbers/2, all_come/3, sessions/2, until_done/1]).

-import(halley_backends_nodes, [call/4, wait/1]).

-define(USER, <<"ann">>).
-define(SUBJECT, <<"news">>).

%% A brain with these limits, and a back end, which may reach it through a proxy of the test's.
start(Limits, Options, Through, Config) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    Port = halley_backends_nodes:free_port(),
    Brain = halley_backends_nodes:start_brain(Dir, Port, Limits),
    BackEnd = halley_backends_nodes:start_back_end(Port, maps:merge(Options, Through(Port))),
    Nodes = ets:new(nodes, [public]),
    true = ets:insert(Nodes, [{brain, Brain}, {back_end, BackEnd}]),
    [{dir, Dir}, {port, Port}, {limits, Limits}, {nodes, Nodes} | Config].

stop(Config) ->
    _ = [halley_backends_nodes:stop(Node) || {_, Node} <- ets:tab2list(?config(nodes, Config))],
    _ = file:del_dir_r(?config(dir, Config)),
    ok.

node_of(What, Config) -> ets:lookup_element(?config(nodes, Config), What, 2).

%% After it was killed.
restart_brain(Config) ->
    Again = halley_backends_nodes:start_brain(?config(dir, Config), ?config(port, Config),
                                              ?config(limits, Config)),
    true = ets:insert(?config(nodes, Config), {brain, Again}),
    ok.

brain(Module, Function, Args, Config) -> call(node_of(brain, Config), Module, Function, Args).
back_end(Function, Args, Config) -> call(node_of(back_end, Config), halley_remote, Function, Args).
process(Function, Args, Config) ->
    call(node_of(back_end, Config), halley_backends_nodes, Function, Args).

logged_in(Options, Config) ->
    ok = back_end(follow, [?USER, ?SUBJECT], Config),
    {ok, Reader} = process(reader, [?USER, Options], Config),
    Reader.

publish(From, To, Config) ->
    _ = [{ok, _} = brain(halley, publish, [?SUBJECT, N], Config) || N <- lists:seq(From, To)],
    ok.

numbers(Reader, Config) ->
    [N || {halley, #{data := N}} <- process(got, [Reader], Config)].

%% All of them, each once, in order.
all_come(Reader, Count, Config) ->
    ok = wait(fun() -> length(numbers(Reader, Config)) >= Count end),
    ?assertEqual(lists:seq(1, Count), numbers(Reader, Config)).

sessions(User, Config) -> maps:get(sessions, brain(halley, presence, [User], Config)).

until_done(Do) ->
    case Do() of
        {error, unavailable} -> timer:sleep(10), until_done(Do);
        Done -> Done
    end.
