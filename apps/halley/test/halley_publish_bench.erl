%% Micro-benchmark of publishing: what one event with 16 online followers costs without the edge.
%%
%%   rebar3 as test compile
%%   ERL_LIBS=_build/test/lib erl -noshell -pa _build/test/lib/halley/test \
%%       -eval 'halley_publish_bench:run(), halt().'
%%
%% It starts the brain over a store in a temporary directory and plays two links. It prints the
%% microseconds of one `halley:publish/3' from one caller (checks, shard, fan-out, the messages to
%% the links), and the events per second that eight callers reach together; once for each `ack',
%% and once more for `publish_many/1'. Then the same of private events, for some users each.
%% At last the nanoseconds of a look at a limit.
-module(halley_publish_bench).

-export([run/0]).

-define(SUBJECTS, 2000).
-define(FOLLOWERS, 16).
-define(EVENTS, 20000).
-define(CALLERS, 8).
-define(BATCH, 1000).
-define(LOOKS, 5000000).

-spec run() -> ok.
run() ->
    halley_bench_brain:with(fun measure/0).

measure() ->
    ok = populate(),
    Data = {json, <<"{\"text\":\"an ordinary message of an ordinary length\"}">>},
    lists:foreach(fun(Ack) -> measure(Ack, Data) end, [memory, disk]),
    measure_batches(Data),
    lists:foreach(fun(Users) -> measure_private(Users, Data) end, [1, ?FOLLOWERS, 1000]),
    measure_limit(?LOOKS).

measure_limit(Looks) ->
    {Us, ok} = timer:tc(fun() -> look(Looks) end),
    io:format("a limit: ~.1f ns~n", [Us * 1000 / Looks]).

look(0) -> ok;
look(Looks) ->
    _ = halley_limits:get(event_data_bytes_max),
    look(Looks - 1).

%% In batches, that wait for the disk: what is in memory alone would pile up.
measure_private(Users, Data) ->
    Events = max(20, ?BATCH div Users),
    Items = [{{to, [name(N * Users + User) || User <- lists:seq(1, Users)]}, Data, #{}}
             || N <- lists:seq(0, Events - 1)],
    Publish = fun() -> [{ok, #{sessions := Users}} = One || One <- halley:publish_many(Items)] end,
    Us = lists:min([element(1, timer:tc(Publish)) || _ <- lists:seq(1, 10)]),
    io:format("private, for ~b users: ~.1f us per event, ~.2f us per user, in batches of ~b~n",
              [Users, Us / Events, Us / (Events * Users), Events]).

measure(Ack, Data) ->
    Publish = fun(N) ->
                  Subject = integer_to_binary(N rem ?SUBJECTS),
                  {ok, #{sessions := ?FOLLOWERS}} = halley:publish(Subject, Data, #{ack => Ack})
              end,
    Events = case Ack of memory -> ?EVENTS; disk -> ?EVENTS div 10 end,
    _ = repeat(Publish, Events),
    One = lists:min([repeat(Publish, Events) || _ <- lists:seq(1, 3)]),
    {AllUs, _} = timer:tc(fun() -> together(fun() -> repeat(Publish, Events) end) end),
    io:format("~p, ~b followers: ~.1f us per publish from one caller, ~b/s from ~b callers~n",
              [Ack, ?FOLLOWERS, One / Events, ?CALLERS * Events * 1000000 div AllUs, ?CALLERS]).

measure_batches(Data) ->
    Items = [{integer_to_binary(N rem ?SUBJECTS), Data, #{}} || N <- lists:seq(1, ?BATCH)],
    {Us, _} = timer:tc(fun() -> [halley:publish_many(Items) || _ <- lists:seq(1, 10)] end),
    io:format("batches of ~b, ~b followers: ~.1f us per event from one caller~n",
              [?BATCH, ?FOLLOWERS, Us / (10 * ?BATCH)]).

populate() ->
    Links = [start_link_double() || _ <- [1, 2]],
    Users = lists:seq(1, ?SUBJECTS * ?FOLLOWERS),
    Names = [name(User) || User <- Users],
    Subjects = [integer_to_binary(User rem ?SUBJECTS) || User <- Users],
    {ok, _} = halley:follow(lists:zip(Names, Subjects)),
    {ok, Numbers} = halley_ids:intern(Names),
    lists:foreach(fun(Number) ->
                      Slot = lists:nth(rand:uniform(2), Links),
                      _ = halley_directory:open(Number, {link, Slot, Number}, infinity)
                  end, Numbers).

name(User) -> <<"user ", (integer_to_binary(User))/binary>>.

%% A writer that hands everything on at once.
start_link_double() ->
    Writer = spawn_link(fun() -> receive {queue, Queue} -> drain(Queue) end end),
    {ok, Slot, Queue} = halley_test_brain:worker(Writer, #{}),
    Writer ! {queue, Queue},
    Slot.

drain(Queue) ->
    receive
        {deliver, Deliveries} ->
            Costs = [halley_links_queue:cost(Delivery, Conns) || {Delivery, Conns} <- Deliveries],
            ok = counters:sub(Queue, 1, lists:sum(Costs)),
            drain(Queue);
        {mark, _, _} ->
            drain(Queue)
    end.

repeat(Publish, Times) ->
    {Us, ok} = timer:tc(fun() -> lists:foreach(Publish, lists:seq(1, Times)) end),
    Us.

together(Fun) ->
    Monitors = [element(2, spawn_monitor(Fun)) || _ <- lists:seq(1, ?CALLERS)],
    lists:foreach(fun(Monitor) -> receive {'DOWN', Monitor, _, _, normal} -> ok end end, Monitors).
