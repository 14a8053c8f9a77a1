#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none
%% The log of a cluster in PostgreSQL: `halley_cluster_postgres' by itself, without brains.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/cluster-append.escript [seconds [kept]]
%%
%% It starts a PostgreSQL of its own, with fsync on, on the same machine. Events have 150 bytes of
%% chance.
%%
%% First one writer appends groups of one size, the next when the last is answered. Then a writer
%% appends at a rate: each millisecond the events that are due since the last group, while readers
%% read the table, each again a millisecond after it has found no row. PostgreSQL's processor time
%% is that of its processes (`/proc/PID/schedstat'): of the writer's backend, of the readers', of
%% all others. The first second of each part doesn't count. `kept': with statements that the session
%% keeps.
-mode(compile).

-define(EVENT, 150).
-define(SIZES, [1, 50, 200, 1000]).
-define(RATES, [20000, 50000]).
-define(READERS, [0, 2]).
-define(WARM_US, 1000000).
-define(START_MS, 30000).
-define(READ_BYTES, 1000000).

main([]) -> main(["8"]);
main([Seconds, "kept"]) ->
    persistent_term:put(kept, true),
    main([Seconds]);
main([Seconds]) ->
    logger:set_primary_config(level, none),
    process_flag(trap_exit, true),
    Us = list_to_integer(Seconds) * 1000000,
    Dir = string:trim(os:cmd("mktemp -d /tmp/halley-bench.XXXXXX")),
    Postgres = start_postgres(Dir),
    try
        io:format("one append at a time~n~s~n",
                  ["events a group | groups/s | events/s | p50 ms | p99 ms | PG us a group"]),
        [sized(Size, Us, Postgres) || Size <- ?SIZES],
        io:format("~nat a rate, a group each millisecond; processor time of PostgreSQL in us an "
                  "event~n~s~n", ["events/s wanted | readers | events/s | groups/s | p50 ms | "
                                  "p99 ms | writer | each reader | others"]),
        [paced(Rate, Readers, Us, Postgres) || Rate <- ?RATES, Readers <- ?READERS]
    after
        stop_postgres(Postgres),
        os:cmd("rm -rf " ++ Dir)
    end.

sized(Size, Us, Postgres) ->
    C = fresh(Postgres),
    {Engine, Pid} = opened(Postgres, C),
    Body = crypto:strong_rand_bytes(Size * ?EVENT),
    Warm = closed(0, Size, Body, Engine, now_us() + ?WARM_US, []),
    Before = cpu_ns(Pid),
    Begin = now_us(),
    {_, Times} = closed(element(1, Warm), Size, Body, Engine, Begin + Us, []),
    Spent = now_us() - Begin,
    Cpu = cpu_ns(Pid) - Before,
    Count = length(Times),
    io:format("~b | ~b | ~b | ~.2f | ~.2f | ~b~n",
              [Size, Count * 1000000 div Spent, Count * Size * 1000000 div Spent,
               percentile(50, Times), percentile(99, Times), Cpu div Count div 1000]),
    ok = halley_cluster_postgres:close(Engine),
    epgsql:close(C).

closed(Prev, Size, Body, Engine, Until, Times) ->
    Begin = now_us(),
    case Begin < Until of
        true ->
            ok = append(Prev, Size, Body, Engine),
            closed(Prev + Size, Size, Body, Engine, Until, [now_us() - Begin | Times]);
        false -> {Prev, Times}
    end.

append(Prev, Size, Body, Engine) ->
    {ok, _} = halley_cluster_postgres:append(Prev, crypto:strong_rand_bytes(16),
        #{last => Prev + Size, body => Body, changes => []}, Engine),
    ok.

paced(Rate, Count, Us, Postgres) ->
    C = fresh(Postgres),
    {Engine, Writer} = opened(Postgres, C),
    Readers = [reader(Postgres, C) || _ <- lists:seq(1, Count)],
    Chance = crypto:strong_rand_bytes(2000 * ?EVENT),
    Begin = now_us(),
    {Prev, _} = at_rate(0, Begin, Rate, Chance, Engine, Begin + ?WARM_US, []),
    Backends = [Writer | [Pid || {_, Pid} <- Readers]],
    Others = postgres_pids(Postgres) -- Backends,
    Before = [cpu_ns(Pid) || Pid <- Backends],
    OthersBefore = lists:sum([cpu_ns(Pid) || Pid <- Others]),
    Measured = now_us(),
    {Last, Times} = at_rate(Prev, Begin, Rate, Chance, Engine, Measured + Us, []),
    Spent = now_us() - Measured,
    [WriterNs | ReaderNs] = [cpu_ns(Pid) - Ns || {Pid, Ns} <- lists:zip(Backends, Before)],
    OthersNs = lists:sum([cpu_ns(Pid) || Pid <- Others]) - OthersBefore,
    Events = Last - Prev,
    io:format("~b | ~b | ~b | ~b | ~.2f | ~.2f | ~.2f | ~s | ~.2f~n",
              [Rate, Count, Events * 1000000 div Spent, length(Times) * 1000000 div Spent,
               percentile(50, Times), percentile(99, Times), WriterNs / Events / 1000,
               lists:join(", ", [io_lib:format("~.2f", [Ns / Events / 1000]) || Ns <- ReaderNs]),
               OthersNs / Events / 1000]),
    [begin Pid ! {stop, self()}, receive {stopped, Pid} -> ok end end || {Pid, _} <- Readers],
    ok = halley_cluster_postgres:close(Engine),
    epgsql:close(C).

at_rate(Prev, Begin, Rate, Chance, Engine, Until, Times) ->
    Now = now_us(),
    Due = min((Now - Begin) * Rate div 1000000 - Prev, 2000),
    if
        Now >= Until -> {Prev, Times};
        Due * 1000 < Rate ->
            timer:sleep(1),
            at_rate(Prev, Begin, Rate, Chance, Engine, Until, Times);
        true ->
            ok = append(Prev, Due, binary:part(Chance, 0, Due * ?EVENT), Engine),
            at_rate(Prev + Due, Begin, Rate, Chance, Engine, Until, [now_us() - Now | Times])
    end.

reader(Postgres, C) ->
    Self = self(),
    Pid = spawn_link(fun() ->
        {Engine, Backend} = opened(Postgres, C),
        Self ! {self(), Backend},
        reading(0, Engine)
    end),
    receive {Pid, Backend} -> {Pid, Backend} end.

reading(After, Engine) ->
    receive
        {stop, From} ->
            ok = halley_cluster_postgres:close(Engine),
            From ! {stopped, self()}
    after 0 ->
        case halley_cluster_postgres:read(After, ?READ_BYTES, Engine) of
            {ok, []} ->
                timer:sleep(1),
                reading(After, Engine);
            {ok, Rows} -> reading(maps:get(last, lists:last(Rows)), Engine)
        end
    end.

%% --- helpers -----------------------------------------------------------------------------------

fresh(Postgres) ->
    {ok, C} = epgsql:connect(options(Postgres)),
    [] = [Error || {error, Error} <- lists:flatten(
        [epgsql:squery(C, "drop schema if exists halley_cluster cascade; checkpoint")])],
    {ok, _} = halley_cluster_tables:install(C),
    C.

options({Dir, _}) -> #{host => list_to_binary(Dir), username => "postgres", database => "postgres"}.

%% With the process of the server that belongs to it.
opened(Postgres, C) ->
    Before = backends(C),
    {ok, Engine, _} = halley_cluster_postgres:open(
        #{connect => options(Postgres), keeps_statements => persistent_term:get(kept, false)}),
    [Pid] = backends(C) -- Before,
    {Engine, Pid}.

backends(C) ->
    {ok, _, Rows} = epgsql:squery(C, "select pid from pg_stat_activity "
                                     "where backend_type = 'client backend'"),
    [binary_to_integer(Pid) || {Pid} <- Rows].

cpu_ns(Pid) ->
    {ok, Stat} = file:read_file("/proc/" ++ integer_to_list(Pid) ++ "/schedstat"),
    [Ns | _] = binary:split(Stat, <<" ">>),
    binary_to_integer(Ns).

postgres_pids({_, Port}) ->
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    Children = string:tokens(os:cmd("pgrep -P " ++ integer_to_list(OsPid)), "\n"),
    [OsPid | [list_to_integer(Pid) || Pid <- Children]].

percentile(P, Us) ->
    Sorted = lists:sort(Us),
    lists:nth(max(1, length(Sorted) * P div 100), Sorted) / 1000.

now_us() -> erlang:monotonic_time(microsecond).

start_postgres(Dir) ->
    [Bin | _] = lists:reverse(filelib:wildcard("/usr/lib/postgresql/*/bin")),
    Data = Dir ++ "/data",
    os:cmd("chown postgres " ++ Dir),
    os:cmd(as_user() ++ Bin ++ "/initdb -D " ++ Data ++ " -U postgres -A trust -E UTF8"),
    ok = file:write_file(Data ++ "/postgresql.conf",
        ["listen_addresses = ''\nunix_socket_directories = '", Dir, "'\nmax_wal_size = 8GB\n"]),
    Port = open_port({spawn, as_user() ++ Bin ++ "/postgres -D " ++ Data
                             ++ " -c logging_collector=on"}, [exit_status]),
    ok = ready({Dir, Port}, now_us() + ?START_MS * 1000),
    {Dir, Port}.

ready(Postgres, Until) ->
    case epgsql:connect(options(Postgres)) of
        {ok, C} -> epgsql:close(C);
        {error, _} ->
            true = now_us() < Until,
            timer:sleep(100),
            ready(Postgres, Until)
    end.

stop_postgres({_, Port}) ->
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    os:cmd("kill -INT " ++ integer_to_list(OsPid)),
    receive {Port, {exit_status, _}} -> ok after ?START_MS -> ok end.

as_user() ->
    case string:trim(os:cmd("id -u")) of
        "0" -> "setpriv --reuid postgres --regid postgres --clear-groups ";
        _ -> ""
    end.
