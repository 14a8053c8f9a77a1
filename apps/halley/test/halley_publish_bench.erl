%% Micro-benchmark of publishing: what one event with 16 online followers costs without the edge.
%%
%%   rebar3 as test shell --eval 'halley_publish_bench:run(), halt().'
%%
%% It starts the brain over a store in a temporary directory and plays two links. It prints the
%% microseconds of one `halley:publish/2' from one caller (checks, shard, fan-out, the messages to
%% the links), and the events per second that eight callers reach together.
-module(halley_publish_bench).

-export([run/0]).

-define(SUBJECTS, 2000).
-define(FOLLOWERS, 16).
-define(EVENTS, 20000).
-define(CALLERS, 8).

-spec run() -> ok.
run() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = application:set_env(halley, data_dir, Dir),
    ok = halley_limits:set(#{}),
    {ok, Brain} = halley_sup:start_link(),
    try measure()
    after
        unlink(Brain),
        exit(Brain, shutdown),
        ok = halley_store:close(),
        ok = file:del_dir_r(Dir)
    end.

measure() ->
    ok = populate(),
    Data = {json, <<"{\"text\":\"an ordinary message of an ordinary length\"}">>},
    Publish = fun(N) ->
                  Subject = integer_to_binary(N rem ?SUBJECTS),
                  {ok, #{sessions := ?FOLLOWERS}} = halley:publish(Subject, Data)
              end,
    _ = repeat(Publish, ?EVENTS),
    One = lists:min([repeat(Publish, ?EVENTS) || _ <- lists:seq(1, 3)]),
    {AllUs, _} = timer:tc(fun() -> together(fun() -> repeat(Publish, ?EVENTS) end) end),
    io:format("~b followers: ~.1f us per publish from one caller, ~b events/s from ~b callers~n",
              [?FOLLOWERS, One / ?EVENTS, ?CALLERS * ?EVENTS * 1000000 div AllUs, ?CALLERS]).

populate() ->
    Links = [start_link_double() || _ <- [1, 2]],
    Users = lists:seq(1, ?SUBJECTS * ?FOLLOWERS),
    Names = [<<"user ", (integer_to_binary(User))/binary>> || User <- Users],
    Subjects = [integer_to_binary(User rem ?SUBJECTS) || User <- Users],
    {ok, _} = halley:follow(lists:zip(Names, Subjects)),
    {ok, Numbers} = halley_ids:intern(Names),
    lists:foreach(fun(Number) ->
                      Slot = lists:nth(rand:uniform(2), Links),
                      ok = halley_directory:open(Number, {link, Slot, Number})
                  end, Numbers).

%% A writer that hands everything on at once.
start_link_double() ->
    Writer = spawn_link(fun() -> receive {queue, Queue} -> drain(Queue) end end),
    {ok, Slot, Queue} = halley_links:register(Writer, #{}),
    Writer ! {queue, Queue},
    Slot.

drain(Queue) ->
    receive {deliver, Event, Conns} ->
        ok = counters:sub(Queue, 1, halley_links:cost(Event, Conns)),
        drain(Queue)
    end.

repeat(Publish, Times) ->
    {Us, ok} = timer:tc(fun() -> lists:foreach(Publish, lists:seq(1, Times)) end),
    Us.

together(Fun) ->
    Monitors = [element(2, spawn_monitor(Fun)) || _ <- lists:seq(1, ?CALLERS)],
    lists:foreach(fun(Monitor) -> receive {'DOWN', Monitor, _, _, normal} -> ok end end, Monitors).
