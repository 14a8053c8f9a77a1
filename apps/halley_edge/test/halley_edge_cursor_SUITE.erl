%% The time in a link's cursor (docs/internals/delivery.md): what the cursor lacks was published
%% from then on, however long it was on its way. A gap begins there.
-module(halley_edge_cursor_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [held_up, idle].

init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    Edge = fake_edge:start(halley_edge_dial:path(Dir, 0)),
    ok = halley_edge_dialer:connect(Dir, 1, self()),
    Begun = fake_worker:until(fun(W) -> fake_worker:cursor(W) =/= <<>> end, fake_worker:new(Edge)),
    Opened = fake_worker:open(1, <<"anna">>, Begun),
    Worker = fake_worker:until(fun fake_worker:connected/1, Opened),
    [{brain, Brain}, {dir, Dir}, {worker, Worker} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%% The writer says in a CURSOR where it stands, and an event that is older waits behind it.
held_up(Config) ->
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    {ok, _} = halley:publish(<<"nobody's">>, 1),
    Heads = halley_history:heads(),
    until(fun() ->
        {messages, Messages} = process_info(Writer, messages),
        length([mark || {mark, _, _} <- Messages]) >= halley_shards:count()
    end),
    Writer ! cursor_due,
    LackedMs = erlang:system_time(millisecond),
    {ok, _} = halley:publish(<<"anna">>, 1),
    timer:sleep(1100),
    true = erlang:resume_process(Writer),
    Moved = at(Heads, proplists:get_value(worker, Config)),
    ?assertEqual([], fake_worker:seen(1, Moved)),
    ?assert(time_ms(Moved) =< LackedMs),
    _ = fake_worker:until(fun(W) -> fake_worker:seen(1, W) =/= [] end, Moved).

%% A link to which nothing happens has the time all the same.
idle(Config) ->
    timer:sleep(3000),
    BeforeMs = erlang:system_time(millisecond),
    Worker = fake_worker:open(2, <<"bert">>, proplists:get_value(worker, Config)),
    Opened = fake_worker:until(fun fake_worker:connected/1, Worker),
    ?assert(time_ms(Opened) > BeforeMs - 2500).

writer() ->
    [#{writer := Writer}] = halley_links:list(),
    Writer.

at(Heads, Worker) ->
    fake_worker:until(fun(#{cursor := Cursor}) ->
        {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
        halley_vector:is_reached(Heads, Vector)
    end, Worker).

%% Of a worker's cursor, or of an event's.
time_ms(#{cursor := Cursor}) ->
    {ok, #{at := Second}} = halley_cursor:decode(Cursor),
    Second * 1000.
