%% The parts of bench/teleport/run: each part starts nodes of its own, lets teleport and the
%% distribution take turns, prints a table and whether the figure that was to reach is reached.
%% Medians of rounds count. teleport_bench_node is what runs on the nodes.
-module(teleport_bench).

-export([run/1, text/0]).

-define(ROUNDS, 5).
-define(WAYS, [dist, teleport]).
-define(BREAKS, 10000).
-define(BREAKS_A_RUN, 1000).
%% The ring of the article: 48 processes on 6 nodes, 10 MiB each, over 5 hops.
-define(RING_NODES, 6).
-define(RING_SERVERS, 8).
-define(STALL_MS, 25000).
-define(STALL_BOUND, (32 bsl 20)).

%% Its arguments are the parts; `--save' is for who keeps the text. False: a promise was broken.
-spec run([string()]) -> boolean().
run(Given) ->
    head(Given),
    Args = Given -- ["--save"],
    Parts = case Args of [] -> ["rates", "beside", "ring", "stall", "breaks"]; _ -> Args end,
    Good = [part(string:split(Part, "=")) || Part <- Parts],
    print("~nAll figures reached: ~s~n", [yes(lists:all(fun(G) -> G =:= true end, Good))]),
    not lists:member(broken, Good).

%% What this process printed.
-spec text() -> unicode:chardata().
text() -> case get(?MODULE) of undefined -> []; Printed -> Printed end.

print(Text) -> print(Text, []).

print(Format, Args) ->
    Text = io_lib:format(Format, Args),
    io:put_chars(Text),
    _ = put(?MODULE, [text(), Text]),
    ok.

part(["rates"]) -> rates();
part(["beside"]) -> beside();
part(["ring"]) -> ring();
part(["stall"]) -> stall();
part(["breaks"]) -> breaks(?BREAKS);
part(["breaks", Count]) -> breaks(list_to_integer(Count)).

head(Args) ->
    Changes = case line("git status --porcelain -uno -- :/ ':(exclude,top)bench/results'") of
                  "" -> "";
                  _ -> " with changes"
              end,
    print("# apps/teleport beside OTP's distribution~n~nMade by `~ts`, commit ~ts~ts, ~ts~n",
          [lists:join(" ", ["bench/teleport/run" | Args]), line("git rev-parse --short HEAD"),
           Changes, line("date +%F")]),
    print("~ts cores (~ts), ~ts GB; OTP ~ts, erts ~ts~nLoad average before it: ~ts~n",
          [line("nproc"), line("sed -n 's/^model name.*: //p' /proc/cpuinfo"),
           line("awk '/MemTotal/ { printf \"%.0f\", $2 / 1048576 }' /proc/meminfo"),
           erlang:system_info(otp_release), erlang:system_info(version),
           line("cut -d ' ' -f 1 /proc/loadavg")]).

line(Command) -> hd(string:split(os:cmd(Command ++ " 2>/dev/null"), "\n")).

yes(true) -> "yes";
yes(_) -> "NO".

with(Count, Options, Do) ->
    Nodes = teleport_test_nodes:start(Count, Options),
    _ = [{module, _} = call(Node, code, ensure_loaded, [Module])
         || Node <- Nodes, Module <- [teleport_bench_node, teleport_test_nodes]],
    try Do(Nodes) after teleport_test_nodes:stop(Nodes) end.

call(Node, Module, Function, Args) -> teleport_test_nodes:call(Node, Module, Function, Args).

on(Node, Function, Args) -> call(Node, teleport_bench_node, Function, Args).

median(Values) -> lists:nth(length(Values) div 2 + 1, lists:sort(Values)).

%% Of each way, what each round gave.
rounds(Do) ->
    Results = [[{Way, Do(Way)} || Way <- ?WAYS] || _ <- lists:seq(1, ?ROUNDS)],
    [{Way, [proplists:get_value(Way, Round) || Round <- Results]} || Way <- ?WAYS].

both(Results) -> [{_, Dist}, {_, Teleport}] = Results, {Dist, Teleport}.

spread(Values, Format) -> io_lib:format(Format ++ " to " ++ Format,
                                        [lists:min(Values), lists:max(Values)]).

%% --- small messages ----------------------------------------------------------------------------

rates() ->
    print("~n## 100 bytes one way, messages a second~n~n| senders | the distribution | lowest, "
          "highest | teleport | lowest, highest | times |~n| --- | --- | --- | --- | --- | --- "
          "|~n"),
    with(2, #{}, fun([First, {_, Node}]) ->
        Good = [begin
                    {Dist, Teleport} = both(rounds(fun(Way) ->
                        on(First, rate, [Way, Node, Senders, 512000 div Senders])
                    end)),
                    Times = median(Teleport) / median(Dist),
                    print("| ~b | ~b | ~s | ~b | ~s | ~.2f |~n",
                          [Senders, median(Dist), spread(Dist, "~b"), median(Teleport),
                           spread(Teleport, "~b"), Times]),
                    Times >= 1.5
                end || Senders <- [1, 64]],
        IsGood = lists:all(fun(G) -> G end, Good),
        print("~nAt least 1.5 times the distribution's: ~s~n", [yes(IsGood)]),
        IsGood
    end).

%% --- beside a bulk transfer --------------------------------------------------------------------

beside() ->
    print("~n## 1 KiB there and back, a thousand a second, beside a bulk transfer of 10 MiB "
          "messages~n~n| way | p50 in ms | p99 in ms | lowest, highest p99 | bulk in MiB/s "
          "|~n| --- | --- | --- | --- | --- |~n"),
    with(2, #{}, fun([First, {_, Node}]) ->
        Results = rounds(fun(Way) -> on(First, beside, [Way, Node, 3000]) end),
        [Dist, Teleport] = [begin
            P99 = [P || {_, P, _} <- Rounds],
            print("| ~s | ~.2f | ~.2f | ~s | ~b |~n",
                  [name(Way), median([P || {P, _, _} <- Rounds]) / 1000, median(P99) / 1000,
                   spread([P / 1000 || P <- P99], "~.2f"),
                   median([B || {_, _, B} <- Rounds])]),
            median(P99)
        end || {Way, Rounds} <- Results],
        IsGood = Teleport =< 0.2 * Dist,
        print("~np99 at most 0.2 times the distribution's: ~s (~.2f)~n",
              [yes(IsGood), Teleport / Dist]),
        IsGood
    end).

name(dist) -> "the distribution";
name(teleport) -> "teleport".

%% --- the article's ring ------------------------------------------------------------------------

ring() ->
    print("~n## The ring of the article: ~b nodes, ~b processes, 10 MiB over 5 hops~n~n| way | "
          "seconds | lowest, highest | MiB/s |~n| --- | --- | --- | --- |~n",
          [?RING_NODES, ?RING_NODES * ?RING_SERVERS]),
    with(?RING_NODES, #{}, fun(Nodes) ->
        Names = [Name || {_, Name} <- Nodes],
        _ = [on(Node, ring_servers, [?RING_SERVERS, Names]) || Node <- Nodes],
        Results = rounds(fun(Way) -> ring(Way, Nodes) end),
        MiB = ?RING_NODES * ?RING_SERVERS * 5 * 10,
        [Dist, Teleport] = [begin
            print("| ~s | ~.2f | ~s | ~b |~n",
                  [name(Way), median(Ms) / 1000, spread([M / 1000 || M <- Ms], "~.2f"),
                   round(MiB * 1000 / median(Ms))]),
            median(Ms)
        end || {Way, Ms} <- Results],
        print("~nAt least 1.3 times as fast: ~s (~.2f)~n",
              [yes(Dist >= 1.3 * Teleport), Dist / Teleport]),
        Dist >= 1.3 * Teleport
    end).

%% All go at once; the pump is primed by a small round before.
ring(Way, Nodes) ->
    _ = ring_round(Way, Nodes, 1),
    ring_round(Way, Nodes, 10 bsl 20).

ring_round(Way, Nodes, Bytes) ->
    _ = [ok = on(Node, ring_prepare, [Bytes]) || Node <- Nodes],
    Self = self(),
    StartedUs = erlang:monotonic_time(microsecond),
    _ = [spawn_link(fun() -> Self ! {done, on(Node, ring_go, [Way])} end) || Node <- Nodes],
    _ = [receive {done, ok} -> ok end || _ <- Nodes],
    (erlang:monotonic_time(microsecond) - StartedUs) div 1000.

%% --- a peer that stands still ------------------------------------------------------------------

stall() ->
    print("~n## SIGSTOP of the peer for ~b s under load~n~n", [?STALL_MS div 1000]),
    with(2, #{queue_bytes_max => ?STALL_BOUND}, fun([First, {_, Node} = Second]) ->
        ok = on(First, load_start, [Node, 16]),
        timer:sleep(2000),
        Before = on(First, footprint, [Node]),
        Stopped = teleport_test_nodes:freeze(Second),
        Samples = [begin timer:sleep(500), on(First, footprint, [Node]) end
                   || _ <- lists:seq(1, ?STALL_MS div 500)],
        Asked = on(First, ask_soon, [Node]),
        timer:sleep(100),
        GoneUs = os:system_time(microsecond),
        _ = teleport_test_nodes:thaw(Stopped),
        AnsweredUs = on(First, answered, [Asked]),
        Sent = on(First, load_stop, []),
        Verdict = on(First, order, [Node, Sent]),
        stall_table(Before, Samples, (AnsweredUs - GoneUs) div 1000, Verdict)
    end).

stall_table(Before, Samples, RecoveryMs, Verdict) ->
    Most = fun(Key) -> lists:max([maps:get(Key, S) || S <- Samples]) end,
    print("| what | before | most while it stood |~n| --- | --- | --- |~n"
          "| memory of the emulator, MiB | ~.1f | ~.1f |~n"
          "| queue, MiB, of a bound of ~b | ~.1f | ~.1f |~n"
          "| longest mailbox but the writers' | ~b | ~b |~n| senders that wait | ~b | ~b |~n",
          [mib(maps:get(memory, Before)), mib(Most(memory)), ?STALL_BOUND bsr 20,
           mib(maps:get(queue, Before)), mib(Most(queue)), maps:get(mailbox, Before),
           Most(mailbox), maps:get(waiting, Before), Most(waiting)]),
    print("~nA call that was made while it stood was answered ~b ms after SIGCONT; ~s~n",
          [RecoveryMs, Verdict]),
    IsGood = Most(queue) =< 1.1 * ?STALL_BOUND andalso Verdict =:= "all came, in order"
        andalso Most(memory) - maps:get(memory, Before) =< 2 * ?STALL_BOUND
        andalso Most(mailbox) =< 100 andalso RecoveryMs =< 1000,
    print("~nMemory within the bound, order kept, no mailbox grows, recovery within 1 s: ~s~n",
          [yes(IsGood)]),
    IsGood.

mib(Bytes) -> Bytes / (1 bsl 20).

%% --- breaks ------------------------------------------------------------------------------------

breaks(Count) ->
    print("~n## ~b random breaks: proxies cut connections at any byte, while both nodes send, call "
          "and monitor~n~n| seed | breaks | sent | came | told | calls | monitors | out of order | "
          "twice | lost and not told | monitors not ended once |~n| --- | --- | --- | --- | --- | "
          "--- | --- | --- | --- | --- | --- |~n", [Count]),
    Runs = max(1, Count div ?BREAKS_A_RUN),
    Good = [broken(rand:uniform(1 bsl 30), min(Count, ?BREAKS_A_RUN)) || _ <- lists:seq(1, Runs)],
    IsGood = lists:all(fun(G) -> G end, Good),
    print("~nNone out of order, none twice, every loss told: ~s~n", [yes(IsGood)]),
    case IsGood of true -> true; false -> broken end.

broken(Seed, Count) ->
    #{breaks := Breaks, sent := Sent, received := Received, told := Told, out_of_order := Disorder,
      calls := Calls, monitors := Monitors, twice := Twice, untold := Untold,
      unended := Unended} = teleport_breaks:run(Count, Seed),
    print("| ~b | ~b | ~b | ~b | ~b | ~b | ~b | ~b | ~b | ~b | ~b |~n",
          [Seed, Breaks, Sent, Received, Told, Calls, Monitors, length(Disorder), length(Twice),
           length(Untold), Unended]),
    {Disorder, Twice, Untold, Unended} =:= {[], [], [], 0}.
