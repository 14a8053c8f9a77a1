%% The rate of one driver, and the processor time of a query: `run' starts a node for each driver,
%% since two of them have the same module names, and gets a line of the form `{Driver, Figure,
%% Value}.' for each figure.
-module(epgsql_speed).

-export([main/1]).
%% Workers of poolboy are the connections themselves, so that nothing is in their way.
-export([start_link/1]).

-define(SIZE, 16).
-define(CALLERS, [1, 16, 64]).
-define(SQL, <<"select $1::int4">>).
-define(STATEMENT, "speed").
-define(TIME_US_MAX, 100000).

main([Driver, Port, Server, Seconds, Rows, CopyRows]) ->
    _ = application:load(poolboy),
    Options = {list_to_atom(Driver), list_to_integer(Port)},
    Query = start(Options),
    1 = Query(1),
    [[print(Driver, {Figure, Callers}, Value)
      || {Figure, Value} <- queries(Callers, Query, list_to_integer(Seconds) * 1000, Server)
                            ++ times(Callers, Query)]
     || Callers <- ?CALLERS],
    [print(Driver, Figure, rate(fun() -> rows(Options, Figure, list_to_integer(Count)) end))
     || {Figure, Count} <- [{select, Rows}, {copy, CopyRows}], Count =/= "0",
        Driver =/= "p1_pgsql" orelse Figure =:= select],
    print(Driver, memory_mb, erlang:memory(total) div 1048576),
    halt(0).

print(Driver, Figure, Value) -> io:format("~p.~n", [{list_to_atom(Driver), Figure, Value}]).

%% --- queries ------------------------------------------------------------------------------------

%% A fun that asks for a number and returns it.
start({apps_epgsql, Port}) ->
    {ok, _} = epgsql_pool:start_link(speed, #{size => ?SIZE, connect => connect(Port)}),
    fun(N) ->
        {ok, _, [{Answer}]} = epgsql_pool:equery(speed, ?SQL, [N]),
        Answer
    end;
start({epgsql, Port}) ->
    {ok, _} = poolboy({epgsql, Port}),
    {ok, Statement} = poolboy:transaction(speed, fun(C) ->
        epgsql:describe(C, statement, ?STATEMENT)
    end),
    fun(N) ->
        {ok, _, [{Answer}]} = poolboy:transaction(speed, fun(C) ->
            epgsql:prepared_query(C, Statement, [N])
        end),
        Answer
    end;
start({p1_pgsql, Port}) ->
    {ok, _} = application:ensure_all_started(p1_pgsql),
    {ok, _} = poolboy({p1_pgsql, Port}),
    fun(N) ->
        {ok, {_, [[Answer]]}} = poolboy:transaction(speed, fun(C) ->
            pgsql:execute(C, ?STATEMENT, [N])
        end),
        number(Answer)
    end.

number({int4, Answer}) -> number(Answer);
number(Answer) when is_integer(Answer) -> Answer;
number(Answer) when is_binary(Answer) -> binary_to_integer(Answer).

poolboy(Options) ->
    poolboy:start_link([{name, {local, speed}}, {worker_module, ?MODULE}, {size, ?SIZE},
                        {max_overflow, 0}], Options).

start_link({epgsql, Port}) ->
    {ok, C} = epgsql:connect(connect(Port)),
    {ok, _} = epgsql:parse(C, ?STATEMENT, ?SQL, []),
    {ok, C};
start_link({p1_pgsql, Port}) ->
    {ok, C} = p1(Port),
    {ok, _, _, _} = pgsql:prepare(C, ?STATEMENT, binary_to_list(?SQL)),
    {ok, C}.

connect(Port) ->
    #{host => "127.0.0.1", port => Port, username => "ann", database => "postgres"}.

p1(Port) ->
    pgsql:connect([{host, "127.0.0.1"}, {port, Port}, {user, "ann"}, {database, "postgres"},
                   {password, ""}, {as_binary, true}]).

%% A second of it before what counts, so that connections are there and code is loaded. Of the
%% processors' time, in nanoseconds a query: what this node takes, and what the server's processes.
queries(Callers, Query, Ms, Server) ->
    _ = counted(Callers, Query, 1000),
    Before = {processor_ns([os:getpid()]), processor_ns(children(Server))},
    Rate = counted(Callers, Query, Ms),
    After = {processor_ns([os:getpid()]), processor_ns(children(Server))},
    Queries = Rate * Ms div 1000,
    [{queries, Rate}, {client_ns, (element(1, After) - element(1, Before)) div Queries},
     {server_ns, (element(2, After) - element(2, Before)) div Queries}].

%% How long a query takes its caller, in a second of its own: looking at the clock costs, too.
times(Callers, Query) ->
    Times = counters:new(?TIME_US_MAX, [write_concurrency]),
    Timed = fun(N) ->
        Begin = erlang:monotonic_time(microsecond),
        N = Query(N),
        Us = erlang:monotonic_time(microsecond) - Begin,
        ok = counters:add(Times, max(1, min(Us, ?TIME_US_MAX)), 1),
        N
    end,
    _ = counted(Callers, Timed, 1000),
    Counts = [{Us, Count} || Us <- lists:seq(1, ?TIME_US_MAX),
                             Count <- [counters:get(Times, Us)], Count > 0],
    All = lists:sum([Count || {_, Count} <- Counts]),
    [{p50_us, at(0.5 * All, Counts)}, {p99_us, at(0.99 * All, Counts)}].

at(Left, [{Us, Count} | _]) when Left =< Count -> Us;
at(Left, [{_, Count} | Counts]) -> at(Left - Count, Counts).

%% All that this process has started; connections stay for the whole run.
children(Server) ->
    [Pid || "/proc/" ++ Pid <- filelib:wildcard("/proc/[0-9]*"),
            [_, Parent | _] <- [stat(Pid)], Parent =:= Server].

processor_ns(Pids) ->
    lists:sum([(list_to_integer(User) + list_to_integer(System)) * 10000000
               || Pid <- Pids, [_ | _] = Fields <- [stat(Pid)],
                  [User, System] <- [lists:sublist(Fields, 12, 2)]]).

%% From the state on; the name before it may have spaces.
stat(Pid) ->
    case file:read_file(["/proc/", Pid, "/stat"]) of
        {ok, Stat} ->
            [_, Fields] = string:split(binary_to_list(Stat), ") ", trailing),
            string:lexemes(Fields, " \n");
        {error, _} -> []
    end.

counted(Callers, Query, Ms) ->
    Self = self(),
    Counter = atomics:new(1, []),
    Pids = [spawn_link(fun() ->
        receive go -> ok end,
        Self ! {self(), asked(N, Query, Counter, 0)}
    end) || N <- lists:seq(1, Callers)],
    Begin = erlang:monotonic_time(microsecond),
    [Pid ! go || Pid <- Pids],
    timer:sleep(Ms),
    ok = atomics:put(Counter, 1, 1),
    Count = lists:sum([receive {Pid, Its} -> Its end || Pid <- Pids]),
    Count * 1000000 div (erlang:monotonic_time(microsecond) - Begin).

asked(N, Query, Counter, Count) ->
    case atomics:get(Counter, 1) of
        0 ->
            N = Query(N),
            asked(N, Query, Counter, Count + 1);
        1 -> Count
    end.

%% --- rows ---------------------------------------------------------------------------------------

rate(Fun) ->
    {Us, Count} = timer:tc(fun() ->
        {_, Monitor} = spawn_monitor(fun() -> exit({rows, Fun()}) end),
        receive {'DOWN', Monitor, process, _, {rows, Count}} -> Count end
    end),
    Count * 1000000 div Us.

%% All rows as one result.
rows({apps_epgsql, _}, select, Count) ->
    {ok, _, Rows} = epgsql_pool:equery(speed, select(Count)),
    length(Rows);
rows({epgsql, _}, select, Count) ->
    {ok, _, Rows} = poolboy:transaction(speed, fun(C) -> epgsql:equery(C, select(Count)) end,
                                        infinity),
    length(Rows);
rows({p1_pgsql, Port}, select, Count) ->
    {ok, C} = p1(Port),
    {ok, [{_, _, Rows}]} = pgsql:squery(C, select(Count), 600000),
    length(Rows);
%% As a stream; the sum of one column is made of it. epgsql has no COPY TO STDOUT: row by row.
rows({apps_epgsql, _}, copy, Count) ->
    {ok, Count, Sum} = epgsql_pool:with(speed, fun(C) ->
        epgsql:copy_to_stdout(C, ["copy (", select(Count), ") to stdout (format binary)"],
                              {binary, [int8, int8]}, fun sum/2, 0)
    end),
    Sum = Count * (Count + 1) div 2,
    Count;
rows({epgsql, Port}, copy, Count) ->
    {ok, C} = epgsql:connect(connect(Port)),
    {ok, Statement} = epgsql:parse(C, select(Count)),
    Ref = epgsqli:prepared_query(C, Statement, []),
    Sum = each(C, Ref, 0),
    Sum = Count * (Count + 1) div 2,
    Count.

select(Count) -> "select a, b from pairs where a <= " ++ integer_to_list(Count).

sum([{A, _} | Rows], Sum) -> sum(Rows, Sum + A);
sum([], Sum) -> Sum.

each(C, Ref, Sum) ->
    receive
        {C, Ref, {data, {A, _}}} -> each(C, Ref, Sum + A);
        {C, Ref, done} -> Sum;
        {C, Ref, _} -> each(C, Ref, Sum)
    end.
