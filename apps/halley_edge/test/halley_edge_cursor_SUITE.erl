%% The time in a link's cursor (docs/internals/delivery.md): what the cursor lacks was published
%% from then on, however long it was on its way. A gap begins there.
-module(halley_edge_cursor_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [held_up, held_up_by_a_write, idle].

init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(#{}),
    Dir = string:trim(os:cmd("mktemp -d")),
    Started = fake_worker:new(fake_edge:start(halley_edge_dial:path(Dir))),
    ok = halley_edge_dialer:connect(Dir, self()),
    Begun = fake_worker:until(fun(W) -> fake_worker:cursor(W) =/= <<>> end, Started),
    [{brain, Brain}, {dir, Dir}, {edge, opened(1, <<"anna">>, Begun)} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%% The writer says in a CURSOR where it stands, and an event that is older waits behind it.
held_up(Config) ->
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    lacks_what_waited(0, fun() -> true = erlang:resume_process(Writer) end, Config).

%% A write lasts as long as the worker reads nothing. What comes meanwhile waits, too.
held_up_by_a_write(Config) ->
    #{edge := Edge} = proplists:get_value(edge, Config),
    ok = fake_edge:pause(Edge),
    Large = publish_until_stuck(writer(), 0),
    lacks_what_waited(Large, fun() -> ok = fake_edge:resume(Edge) end, Config).

%% So many events were for anna until the writer stopped; it goes on by GoOn.
lacks_what_waited(Before, GoOn, Config) ->
    Writer = writer(),
    {ok, _} = halley:publish(<<"nobody's">>, 1),
    Heads = halley_history:heads(),
    until(fun() ->
        {messages, Messages} = process_info(Writer, messages),
        Marked = lists:usort([Shard || {mark, Shard, Seq} <- Messages,
                                       Seq >= element(Shard, Heads)]),
        length(Marked) =:= halley_shards:count()
    end),
    Writer ! cursor_due,
    LackedMs = erlang:system_time(millisecond),
    {ok, _} = halley:publish(<<"anna">>, 1),
    timer:sleep(1100),
    GoOn(),
    Moved = at(Heads, proplists:get_value(edge, Config)),
    ?assertEqual(Before, length(fake_worker:seen(1, Moved))),
    ?assert(time_ms(Moved) =< LackedMs),
    _ = fake_worker:until(fun(W) -> length(fake_worker:seen(1, W)) =:= Before + 1 end, Moved).

publish_until_stuck(Writer, Published) ->
    timer:sleep(100),
    case process_info(Writer, status) of
        {status, suspended} ->
            Published;
        _ ->
            {ok, _} = halley:publish(<<"anna">>, binary:copy(<<"x">>, 40000)),
            publish_until_stuck(Writer, Published + 1)
    end.

%% A link to which nothing happens has the time all the same.
idle(Config) ->
    BeginsMs = erlang:system_time(millisecond),
    time_goes_on(BeginsMs, 2, proplists:get_value(edge, Config)).

%% Whoever comes when nothing has happened for a while is told a later time than this. The link may
%% have been held up for a part of it.
time_goes_on(Ms, Conn, Edge) ->
    timer:sleep(3000),
    Opened = opened(Conn, <<"bert">>, Edge),
    case time_ms(Opened) > Ms of
        true -> ok;
        false when Conn < 6 -> time_goes_on(Ms, Conn + 1, Opened)
    end.

opened(Conn, User, Worker) ->
    fake_worker:until(fun fake_worker:connected/1, fake_worker:open(Conn, User, Worker)).

writer() ->
    [#{writer := Writer}] = halley_links:list(),
    Writer.

at(Heads, Edge) ->
    fake_worker:until(fun(#{cursor := Cursor}) ->
        {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
        halley_vector:is_reached(Heads, Vector)
    end, Edge).

%% Of the cursor where the worker stands.
time_ms(Edge) ->
    {ok, #{at := Second}} = halley_cursor:decode(fake_worker:cursor(Edge)),
    Second * 1000.
