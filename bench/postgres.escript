#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none +A 4
%% Follows and events out of a PostgreSQL: no HTTP, no edge; sessions are processes.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/postgres.escript copy [rows]
%%   ERL_LIBS=_build/default/lib escript bench/postgres.escript changes [a second] [seconds]
%%   ERL_LIBS=_build/default/lib escript bench/postgres.escript events [a second] [seconds]
%%   ERL_LIBS=_build/default/lib escript bench/postgres.escript batches [events] [followers]
%%   ERL_LIBS=_build/default/lib escript bench/postgres.escript writes [seconds]
%%
%% It starts a PostgreSQL of its own, with fsync on, on the same machine: what it needs of the
%% processors is part of every figure. Times begin before a transaction is sent: its commit, with
%% the sync of PostgreSQL's log, is part of them, and shown by itself. Of `events' they begin at the
%% server, in the statement whose end is the commit; the events are written by pgbench, at times of
%% chance that have the rate, and the first two seconds don't count. `batches' writes as fast as one
%% client can, and ends when all followers have all events; its slowest second is that of the
%% receipts. `copy' is one round, of a brain that has nothing yet: `PARTS="copy copy copy"' of
%% `make bench-postgres' makes three. RSS is that of the emulator, which is the brain.
-mode(compile).

-define(CALLERS, 16).
-define(FOLLOWERS, 16).
-define(SUBJECTS, 1000).
-define(BATCH, 100).
-define(WAIT_MS, 600000).
-define(WARM_S, 2).
%% Callers at once, and pairs of each of their calls.
-define(ASKED, [{1, 1}, {64, 1}, {16, 1000}]).

main([Command | Args]) ->
    logger:set_primary_config(level, error),
    process_flag(trap_exit, true),
    Dir = string:trim(os:cmd("mktemp -d /tmp/halley-bench.XXXXXX")),
    Postgres = start_postgres(Dir),
    try run(Command, [list_to_integer(Arg) || Arg <- Args], Dir, Postgres)
    after
        stop_postgres(Postgres),
        os:cmd("rm -rf " ++ Dir)
    end.

run("copy", Args, Dir, Postgres) -> copy(defaults(Args, [15000000]), Dir, Postgres);
run("changes", Args, Dir, Postgres) -> changes(defaults(Args, [2000, 10]), Dir, Postgres);
run("events", Args, Dir, Postgres) -> events(defaults(Args, [4000, 10]), Dir, Postgres);
run("batches", Args, Dir, Postgres) -> batches(defaults(Args, [200000, ?FOLLOWERS]), Dir, Postgres);
run("writes", Args, Dir, Postgres) -> writes(defaults(Args, [5]), Dir, Postgres).

defaults(Args, Defaults) -> Args ++ lists:nthtail(length(Args), Defaults).

%% --- the first copy ----------------------------------------------------------------------------

copy([Rows], Dir, Postgres) ->
    C = connect(Postgres),
    sql(C, "create table follows (a int8, b int8)"),
    Users = max(1, Rows div 15),
    sql(C, io_lib:format("insert into follows select n / 15, (hashint8(n)::int8 + 2147483648) "
                         "% ~b from generate_series(0, ~b) n", [Users, Rows - 1])),
    sql(C, "alter table follows replica identity full"),
    sql(C, "checkpoint"),
    start_brain(Dir, Postgres),
    Sampler = spawn_link(fun() -> sample(0) end),
    Begin = now_us(),
    start_stream(Postgres),
    streams(),
    Us = now_us() - Begin,
    Sampler ! {most, self()},
    Most = receive {most, Bytes} -> Bytes end,
    Peak = status("VmHWM"),
    row("rows of the table", Rows, ""),
    row("follows in the brain (some rows are alike)", halley_follows:count(), ""),
    row("first copy, until it streams", Us div 1000, "ms"),
    row("  of it", round(Rows * 1000000 / Us), "rows/s"),
    row("memory of the VM, the most", Most div 1000000, "MB"),
    timer:sleep(2000),
    ok = halley_follows_owner:checkpoint(),
    [garbage_collect(Pid) || Pid <- processes()],
    timer:sleep(5000),
    row("memory of the VM afterwards", erlang:memory(total) div 1000000, "MB"),
    After = status("VmRSS"),
    row("RSS, the most", Peak div 1000, "MB"),
    row("RSS afterwards", After div 1000, "MB"),
    row("  the most to afterwards", Peak / After, "").

%% Kilobytes, of this process.
status(Field) ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Value]} = re:run(Status, [Field, ":\\s+([0-9]+) kB"],
                              [{capture, all_but_first, list}]),
    list_to_integer(Value).

sample(Most) ->
    receive {most, Pid} -> Pid ! {most, Most}
    after 20 -> sample(max(Most, erlang:memory(total)))
    end.

%% --- a change until it is seen -----------------------------------------------------------------

changes([Rate, Seconds], Dir, Postgres) ->
    C = connect(Postgres),
    sql(C, "create table follows (a int8, b int8, primary key (a, b))"),
    start_brain(Dir, Postgres),
    start_stream(Postgres),
    streams(),
    Watcher = spawn_link(fun() -> watch([]) end),
    {Commits, Effects} = paced(Rate, Seconds, Postgres, fun(Connection, N) ->
        {ok, 1} = epgsql:prepared_query(Connection, "change", [N, N + 1])
    end, "insert into follows values ($1::int8, $2::int8)", fun(N) ->
        Watcher ! {await, N, self()},
        receive {seen, N} -> ok end
    end),
    row("changes, one a transaction", length(Effects), ""),
    row("  a second", round(length(Effects) / Seconds), ""),
    percentiles("commit", Commits),
    percentiles("sent to effect", Effects).

%% A look each millisecond, at the oldest ones: changes take effect nearly in their order.
watch(Waiting) ->
    receive {await, N, Pid} -> watch(Waiting ++ [{N, Pid}])
    after 0 ->
        receive after 1 -> ok end,
        {First, Rest} = lists:split(min(64, length(Waiting)), Waiting),
        watch([One || {N, Pid} = One <- First, not told(is_seen(N), N, Pid)] ++ Rest)
    end.

told(true, N, Pid) -> Pid ! {seen, N}, true;
told(false, _, _) -> false.

is_seen(N) ->
    case {halley_ids:lookup(integer_to_binary(N)), halley_ids:lookup(integer_to_binary(N + 1))} of
        {User, Subject} when is_integer(User), is_integer(Subject) ->
            halley_follows_graph:is_follower(User, Subject);
        _ -> false
    end.

%% --- an event until all its followers have it --------------------------------------------------

events([Rate, Seconds], Dir, Postgres) ->
    start_brain(Dir, Postgres),
    Size = 4 * Rate * (Seconds + ?WARM_S),
    Seen = {Counts, Begun, Took} = {atomics:new(Size, []), atomics:new(Size, []),
                                    atomics:new(Size, [])},
    receivers(Seen),
    start_stream(Postgres),
    streams(),
    timer:sleep(1000),
    Busy = busy(),
    BeginUs = os:system_time(microsecond) + ?WARM_S * 1000000,
    Commits = pgbench(Rate, Seconds + ?WARM_S, Dir, Postgres),
    Share = (busy() - Busy) / (Seconds + ?WARM_S) / 100,
    timer:sleep(2000),
    All = [N || N <- lists:seq(1, Size), atomics:get(Counts, N) > 0],
    [] = [N || N <- All, atomics:get(Counts, N) =/= ?FOLLOWERS],
    true = length(All) =:= length(Commits),
    Receipts = [atomics:get(Took, N) || N <- All, atomics:get(Begun, N) >= BeginUs],
    row("events, one a transaction", length(Receipts), ""),
    row("  a second", round(length(Receipts) / Seconds), ""),
    row("processors that were busy, all programs", Share, ""),
    percentiles("commit", [Us || {AtUs, Us} <- Commits, AtUs >= BeginUs]),
    percentiles("commit begun to 16 receipts", Receipts).

%% Each subject has 16 followers, processes that look at the clock. The last of an event notes it.
receivers(Seen) ->
    [begin
         User = <<"u", (integer_to_binary(F))/binary>>,
         {ok, _} = halley:follow([{User, <<"s", (integer_to_binary(S))/binary>>}
                                  || S <- lists:seq(0, ?SUBJECTS - 1)]),
         Pid = spawn_link(fun() -> received(Seen) end),
         ok = halley:login(User, Pid)
     end || F <- lists:seq(1, ?FOLLOWERS)].

received({Counts, Begun, Took} = Seen) ->
    receive
        {halley, #{data := [N, AtUs]}} ->
            case atomics:add_get(Counts, N, 1) of
                ?FOLLOWERS ->
                    ok = atomics:put(Begun, N, AtUs),
                    ok = atomics:put(Took, N, os:system_time(microsecond) - AtUs);
                _ -> ok
            end
    end,
    received(Seen).

%% Each client counts for itself. Gives when each transaction began, and how long it took.
pgbench(Rate, Seconds, Dir, {_, Port, _}) ->
    Script = filename:join(Dir, "event.sql"),
    ok = file:write_file(Script, io_lib:format(
        "\\set n :n + ~b\n"
        "select pg_logical_emit_message(true, 'halley', '{\"subject\":\"s' || :n::int % ~b "
        "|| '\",\"data\":[' || (:n::int + :client_id::int) || ',' "
        "|| (extract(epoch from clock_timestamp()) * 1000000)::int8 || ']}');\n",
        [?CALLERS, ?SUBJECTS])),
    Said = os:cmd(io_lib:format(
        "cd ~ts && ~ts/pgbench -h 127.0.0.1 -p ~b -U ann -n -M prepared -c ~b -j 1 -R ~b -T ~b "
        "-D n=1 -f ~ts -l postgres 2>&1", [Dir, bin(), Port, ?CALLERS, Rate, Seconds, Script])),
    Logs = filelib:wildcard(filename:join(Dir, "pgbench_log.*")),
    Logs =/= [] orelse error({pgbench, Said}),
    [commit(string:lexemes(Line, " "))
     || Log <- Logs, {ok, Text} <- [file:read_file(Log)],
        Line <- binary:split(Text, <<"\n">>, [global, trim_all])].

%% client, transaction, time, script, second and microsecond of its end, lag
commit([_, _, TimeUs, _, EndS, EndUs, LagUs | _]) ->
    Us = binary_to_integer(TimeUs) - binary_to_integer(LagUs),
    {binary_to_integer(EndS) * 1000000 + binary_to_integer(EndUs) - Us, Us}.

%% Hundredths of a second in which processors had something to do.
busy() ->
    {ok, Stat} = file:read_file("/proc/stat"),
    [<<"cpu">> | Fields] = string:lexemes(hd(binary:split(Stat, <<"\n">>)), " "),
    [User, Nice, System, _Idle, _Wait | Others] = [binary_to_integer(F) || F <- Fields],
    User + Nice + System + lists:sum(lists:sublist(Others, 3)).

batches([Events, Followers], Dir, Postgres) ->
    start_brain(Dir, Postgres),
    Seconds = atomics:new(3600, []),
    Begin = now_us(),
    Counting = [counting(F, Events, Begin, Seconds) || F <- lists:seq(1, Followers)],
    start_stream(Postgres),
    streams(),
    C = connect(Postgres),
    Begun = now_us(),
    [sql(C, io_lib:format("select pg_logical_emit_message(true, 'halley', "
                          "'{\"subject\":\"s' || n % ~b || '\",\"data\":\"' || repeat('x', 100) "
                          "|| '\",\"id\":\"' || n || '\"}') from generate_series(~b, ~b) n",
                          [?SUBJECTS, From, From + ?BATCH - 1]))
     || From <- lists:seq(1, Events, ?BATCH)],
    Written = now_us() - Begun,
    until(fun() -> count("halley_postgres_events_total") >= Events end),
    Us = now_us() - Begun,
    [receive {all_received, Pid} -> ok after ?WAIT_MS -> error(not_received) end
     || Pid <- Counting],
    Received = now_us() - Begun,
    row("events, 100 a transaction", Events, ""),
    row("written by one client in", Written div 1000, "ms"),
    row("published, on disk, after", Us div 1000, "ms"),
    row("  of them", round(Events * 1000000 / Us), "events/s"),
    row("followers that have each of them", Followers, ""),
    row("  all have all of them after", Received div 1000, "ms"),
    row("  of them", round(Events * 1000000 / Received), "events/s"),
    [row("  in the slowest second", Slowest div Followers, "events/s")
     || Followers > 0, Slowest <- slowest(Seconds, Begin, Begun, Begun + Received)].

%% A follower of all subjects, that notes in which second it got how many.
counting(F, Events, Begin, Seconds) ->
    User = <<"u", (integer_to_binary(F))/binary>>,
    {ok, _} = halley:follow([{User, <<"s", (integer_to_binary(S))/binary>>}
                             || S <- lists:seq(0, ?SUBJECTS - 1)]),
    Owner = self(),
    Pid = spawn_link(fun() -> counted(Events, Owner, Begin, Seconds) end),
    ok = halley:login(User, Pid),
    Pid.

counted(0, Owner, _, _) -> Owner ! {all_received, self()};
counted(Left, Owner, Begin, Seconds) ->
    receive {halley, #{subject := _}} ->
        ok = atomics:add(Seconds, (now_us() - Begin) div 1000000 + 1, 1),
        counted(Left - 1, Owner, Begin, Seconds)
    end.

%% Of the seconds that are wholly between those times; none, if there is none.
slowest(Seconds, Begin, FromUs, ToUs) ->
    First = (FromUs - Begin) div 1000000 + 2,
    Last = (ToUs - Begin) div 1000000,
    [lists:min([atomics:get(Seconds, N) || N <- lists:seq(First, Last)]) || First =< Last].

%% --- the API that writes the table -------------------------------------------------------------

%% Follows that the API is asked for, one a call or many: each call returns when PostgreSQL has
%% committed it and it is in effect here. Beside it the same calls without PostgreSQL.
writes([Seconds], Dir, Postgres) ->
    start_brain(Dir, Postgres),
    [written("the brain's own store", Callers, Pairs, Seconds) || {Callers, Pairs} <- ?ASKED],
    start_stream(Postgres, #{store_backend => postgres}),
    streams(),
    [written("PostgreSQL", Callers, Pairs, Seconds) || {Callers, Pairs} <- ?ASKED].

written(Store, Callers, Pairs, Seconds) ->
    Owner = self(),
    EndUs = now_us() + Seconds * 1000000,
    First = erlang:unique_integer([positive, monotonic]) * 1000000000,
    [spawn_link(fun() -> Owner ! {times, asked(First + Caller * 10000000, Pairs, EndUs, [])} end)
     || Caller <- lists:seq(1, Callers)],
    Times = lists:append([receive {times, Each} -> Each end || _ <- lists:seq(1, Callers)]),
    What = io_lib:format("~b callers, ~b a call", [Callers, Pairs]),
    row([Store, ": ", What], round(length(Times) * Pairs / Seconds), "follows/s"),
    percentiles("  a call", Times).

asked(N, Pairs, EndUs, Times) ->
    case now_us() of
        Us when Us < EndUs ->
            {ok, #{added := Pairs}} = halley:follow(
                [{integer_to_binary(N + I), integer_to_binary(I)} || I <- lists:seq(1, Pairs)]),
            asked(N + Pairs, Pairs, EndUs, [now_us() - Us | Times]);
        _ -> Times
    end.

%% --- at a rate ---------------------------------------------------------------------------------

%% Callers with a connection each; times in microseconds.
paced(Rate, Seconds, Postgres, Do, Sql, Await) ->
    Each = Rate * Seconds div ?CALLERS,
    Owner = self(),
    Begin = now_us() + 500000,
    Due = fun(N) -> Begin + round(N * 1.0e6 / Rate) end,
    [spawn_link(fun() ->
        C = connect(Postgres),
        {ok, _} = epgsql:parse(C, "change", Sql, []),
        Owner ! {self(), [one(N, Due(N), C, Do, Await, Owner)
                          || K <- lists:seq(0, Each - 1), N <- [Caller + K * ?CALLERS]]}
    end) || Caller <- lists:seq(1, ?CALLERS)],
    Commits = lists:append([receive {Pid, Times} when is_pid(Pid) -> Times end
                            || _ <- lists:seq(1, ?CALLERS)]),
    Effects = [receive {effect, Us} -> Us after ?WAIT_MS -> error(no_effect) end || _ <- Commits],
    {Commits, Effects}.

%% The time counts from when it was due, so that one that waits for the one before is not a gain.
one(N, DueUs, C, Do, Await, Owner) ->
    receive after max(0, (DueUs - now_us()) div 1000) -> ok end,
    spawn_link(fun() -> Await(N), Owner ! {effect, now_us() - DueUs} end),
    _ = Do(C, N),
    now_us() - DueUs.

percentiles(What, Times) ->
    Sorted = lists:sort(Times),
    [row([What, ", ", Name], lists:nth(max(1, round(length(Sorted) * Share)), Sorted) / 1000, "ms")
     || {Name, Share} <- [{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}]].

%% --- brain and PostgreSQL ----------------------------------------------------------------------

start_brain(Dir, _) ->
    ok = application:set_env(halley, data_dir, filename:join(Dir, "brain")),
    ok = halley_limits:set(#{}),
    {ok, _} = halley_sup:start_link(),
    ok.

settings({_, Port, _}, More) ->
    {ok, Settings} = halley_postgres_config:settings(
        maps:merge(#{host => "127.0.0.1", port => Port, user => "ann", publish => on,
                     follows => "follows(a, b)"}, More)),
    Settings.

start_stream(Postgres) -> start_stream(Postgres, #{}).

start_stream(Postgres, More) ->
    C = connect(Postgres),
    Settings = settings(Postgres, More),
    sql(C, "create table if not exists follows (a int8, b int8, primary key (a, b))"),
    {_, ok} = halley_postgres_command:setup(C, Settings, 4),
    {ok, _} = halley_postgres_sup:start_link(Settings).

streams() -> until(fun() -> count("halley_postgres_streaming") =:= 1 end).

count(Metric) ->
    {match, [Value]} = re:run(halley_metrics:render(), ["\n", Metric, " ([0-9]+)\n"],
                              [{capture, all_but_first, list}]),
    list_to_integer(Value).

until(Is) ->
    Is() orelse begin timer:sleep(10), until(Is) end.

connect({_, Port, _}) ->
    {ok, C} = epgsql:connect(#{host => "127.0.0.1", port => Port, username => "ann",
                               database => "postgres"}),
    C.

sql(C, Sql) ->
    [] = [Error || {error, Error} <- lists:flatten([epgsql:squery(C, Sql)])].

start_postgres(Dir) ->
    Data = filename:join(Dir, "postgres"),
    {ok, Socket} = gen_tcp:listen(0, []),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Bin = bin(),
    As = case string:trim(os:cmd("id -u")) of
        "0" -> "setpriv --reuid postgres --regid postgres --clear-groups ";
        _ -> ""
    end,
    os:cmd("mkdir " ++ Data ++ "; chmod 755 " ++ Dir ++ "; test -z '" ++ As
           ++ "' || chown postgres " ++ Data),
    os:cmd(As ++ Bin ++ "/initdb -D " ++ Data ++ " -U ann -A trust -E UTF8 --locale C.UTF-8"),
    Options = io_lib:format("-c port=~b -c listen_addresses=127.0.0.1 -c wal_level=logical "
                            "-c unix_socket_directories= -c max_wal_size=8GB "
                            "-c shared_buffers=256MB", [Port]),
    Process = open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", lists:flatten(
        ["exec ", As, Bin, "/postgres -D ", Data, " ", Options, " >", Data, "/log 2>&1"])]}]),
    {os_pid, Pid} = erlang:port_info(Process, os_pid),
    until(fun() ->
        case file:read_file(Data ++ "/log") of
            {ok, Log} -> string:find(Log, "ready to accept connections") =/= nomatch;
            _ -> false
        end
    end),
    {Data, Port, Pid}.

bin() -> lists:last(filelib:wildcard("/usr/lib/postgresql/*/bin")).

stop_postgres({_, _, Pid}) ->
    os:cmd("kill -INT " ++ integer_to_list(Pid)),
    until(fun() -> os:cmd("kill -0 " ++ integer_to_list(Pid)) =/= "" end).

now_us() -> erlang:monotonic_time(microsecond).

row(What, Value, Unit) when is_float(Value) ->
    io:format("~-44ts ~12.2f ~ts~n", [What, Value, Unit]);
row(What, Value, Unit) ->
    io:format("~-44ts ~12w ~ts~n", [What, Value, Unit]).
