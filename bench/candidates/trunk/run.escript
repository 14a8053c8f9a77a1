#!/usr/bin/env escript
%% -*- erlang -*-
%%! +S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none +K true
%% A trunk per edge against a link per worker, in turns (docs/internals/trunk.md). No part of the
%% product. This starts and measures the programs; `trunk_brain' is the brain's side and runs here.
%%
%%   cargo build --release --manifest-path bench/candidates/trunk/Cargo.toml
%%   escript bench/candidates/trunk/run.escript [ROUNDS [SECONDS [WORKERS...]]]
%%
%% TRUNK_PROGRAM is another edge and clients. Each round runs while ROUND_LOCK does, a command that
%% answers each line, as `flock /tmp/lock cat'.
-mode(compile).

-define(STREAMS, 4480).
-define(PUBLISHERS, 64).
-define(RECEIVERS, 16).

-define(LOADS, [{"1,000 single events/s", "rate 1000 ~b"},
                {"4,000 single events/s", "rate 4000 ~b"},
                {"most, single events", "most single 64 ~b"},
                {"most, batches of 256", "most batch 8 ~b"}]).
-define(MODES, [links, thread, worker]).
-define(WINDOWS, 4).                     % of each load in a round

%% Seconds are of the processor, for a million deliveries; wakes, of workers by the trunk's reader
%% and of that by workers, for an event.
-define(FIGURES, [deliveries_per_s, brain_s, edge_s, both_s, p50_ms, p99_ms, ack_p50_ms, ack_p99_ms,
                  wakes]).

main(Args) ->
    {ok, trunk_brain, Code} = compile:file(beside("trunk_brain.erl"), [binary, report]),
    {module, trunk_brain} = code:load_binary(trunk_brain, "trunk_brain.erl", Code),
    [Rounds, Seconds | Workers] = case [list_to_integer(Arg) || Arg <- Args] of
        [] -> [3, 3, 2, 16, 56];
        [R] -> [R, 3, 2, 16, 56];
        [R, S] -> [R, S, 2, 16, 56];
        All -> All
    end,
    io:format("~b streams, ~b receivers of an event, ~b s; load average before: ~s~n",
              [?STREAMS, ?RECEIVERS, Seconds, load()]),
    compare(Workers, Rounds, Seconds).

beside(Name) ->
    filename:join(filename:dirname(escript:script_name()), Name).

load() ->
    {ok, Text} = file:read_file("/proc/loadavg"),
    hd(string:split(Text, " ")).

%% A round has all edges at once, and for each load a window of each in turn, several times. The
%% rounds of all numbers of workers are in turns as well: the machine changes with time.
compare(All, Rounds, Seconds) ->
    Runs = [{N, round(Round, N, Seconds)} || Round <- lists:seq(1, Rounds), N <- All],
    lists:foreach(fun(N) ->
        Its = lists:append([Run || {Of, Run} <- Runs, Of =:= N]),
        io:format("~n## ~b workers; medians of ~b windows, and of their ratios to links~n",
                  [N, Rounds * ?WINDOWS]),
        lists:foreach(fun({Load, _}) -> table(Load, Its) end, ?LOADS)
    end, All).

round(Round, Workers, Seconds) ->
    Lock = lock(os:getenv("ROUND_LOCK")),
    io:format("# round ~b, ~b workers, load average ~s~n", [Round, Workers, load()]),
    Edges = [start(Mode, Workers) || Mode <- ?MODES],
    Runs = [begin
        Figures = load(Command, Seconds, Edge),
        raw(Mode, Load, Figures),
        {Load, Mode, {Round, Window}, Figures}
    end || {Load, Command} <- ?LOADS, Window <- lists:seq(1, ?WINDOWS),
           #{mode := Mode} = Edge <- in_turn(Round + Window, Edges)],
    lists:foreach(fun stop/1, Edges),
    Lock =:= none orelse port_close(Lock),
    Runs.

lock(false) ->
    none;
lock(Command) ->
    Lock = open_port({spawn, Command}, [{line, 80}]),
    port_command(Lock, "locked\n"),
    receive {Lock, {data, {eol, "locked"}}} -> Lock end.

%% Another one goes first each time.
in_turn(Number, All) ->
    {Before, After} = lists:split(Number rem length(All), All),
    After ++ Before.

raw(Mode, Load, Figures) ->
    Columns = [io_lib:format("~w ~.3f", [Figure, maps:get(Figure, Figures) * 1.0])
               || Figure <- ?FIGURES],
    io:format("# ~w, ~s: ~s~n", [Mode, Load, lists:join(", ", Columns)]).

table(Load, Runs) ->
    Of = fun(Mode, Figure) ->
        [{Round, maps:get(Figure, F)} || {L, M, Round, F} <- Runs, L =:= Load, M =:= Mode]
    end,
    io:format("~n~-24s", [Load]),
    [io:format("~22w", [Mode]) || Mode <- ?MODES],
    io:format("~n"),
    lists:foreach(fun(Figure) ->
        io:format("~-24w", [Figure]),
        Links = maps:from_list(Of(links, Figure)),
        lists:foreach(fun(Mode) ->
            Values = Of(Mode, Figure),
            Ratios = [ratio(Value, maps:get(Round, Links)) || {Round, Value} <- Values],
            io:format("~13.3f (~6.3f)", [median([V || {_, V} <- Values]), median(Ratios)])
        end, ?MODES),
        io:format("~n")
    end, ?FIGURES).

ratio(_, Zero) when Zero == 0 -> 0.0;
ratio(Value, Other) -> Value / Other.

median(Values) ->
    Sorted = lists:sort(Values),
    (lists:nth((length(Sorted) + 1) div 2, Sorted) + lists:nth(length(Sorted) div 2 + 1, Sorted))
        / 2.

%%% One edge

start(Mode, Workers) ->
    Streams = ?STREAMS div Workers,
    Dir = string:trim(os:cmd("mktemp -d")),
    Counts = numbers([Workers, Streams, ?PUBLISHERS]),
    Edge = program(["edge", atom_to_list(Mode)] ++ Counts ++ [Dir]),
    "ports " ++ Ports = line(Edge),
    Clients = program(["clients" | numbers([Streams, ?PUBLISHERS])] ++ string:lexemes(Ports, " ")),
    "connected" = line(Clients),
    Brain = trunk_brain:start(Mode, Dir, Workers, Streams),
    #{mode => Mode, edge => Edge, clients => Clients, brain => Brain, dir => Dir}.

stop(#{edge := Edge, clients := Clients, brain := Brain, dir := Dir}) ->
    lists:foreach(fun(Pid) ->
        unlink(Pid),
        exit(Pid, kill)
    end, Brain),
    lists:foreach(fun port_close/1, [Edge, Clients]),
    os:cmd("rm -rf " ++ Dir).

numbers(Numbers) ->
    [integer_to_list(Number) || Number <- Numbers].

program(Args) ->
    Program = os:getenv("TRUNK_PROGRAM", beside("target/release/trunk")),
    open_port({spawn_executable, Program}, [{args, Args}, {line, 4096}, exit_status]).

line(Port) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, Status}} -> exit({program_ended, Status})
    after 60000 -> exit(program_says_nothing)
    end.

load(Command, Seconds, #{edge := Edge, clients := Clients}) ->
    Before = [used(Edge), wakes(Edge)],
    port_command(Clients, [io_lib:format(Command, [Seconds]), "\n"]),
    "figures " ++ Text = line(Clients),
    [{Brain, OfEdge}, Wakes] = lists:zipwith(fun minus/2, [used(Edge), wakes(Edge)], Before),
    [All, Within, P50, P99, Acked, AckP50, AckP99] =
        [list_to_integer(Number) || Number <- string:lexemes(Text, " ")],
    #{deliveries_per_s => Within / Seconds, brain_s => Brain * 1.0e6 / All,
      edge_s => OfEdge * 1.0e6 / All, both_s => (Brain + OfEdge) * 1.0e6 / All,
      p50_ms => P50 / 1000, p99_ms => P99 / 1000,
      acked => Acked,
      ack_p50_ms => AckP50 / 1000, ack_p99_ms => AckP99 / 1000,
      wakes => Wakes * ?RECEIVERS / All}.

minus({A, B}, {C, D}) -> {A - C, B - D};
minus(A, B) -> A - B.

wakes(Edge) ->
    port_command(Edge, "\n"),
    "wakes " ++ Wakes = line(Edge),
    list_to_integer(Wakes).

%% Processor seconds of this program and of the edge.
used(Edge) ->
    {os_pid, Pid} = erlang:port_info(Edge, os_pid),
    {seconds(os:getpid()), seconds(integer_to_list(Pid))}.

%% Of all threads, to the nanosecond; none of them ends meanwhile.
seconds(Pid) ->
    lists:sum([begin
        {ok, Text} = file:read_file(File),
        binary_to_integer(hd(binary:split(Text, <<" ">>))) / 1.0e9
    end || File <- filelib:wildcard("/proc/" ++ Pid ++ "/task/*/schedstat")]).
