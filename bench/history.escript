#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none -kernel logger_level error
%% The history log by itself, beside OTP's disk_log: no HTTP, no edge, no fan-out.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/history.escript [seconds] [events]
%%
%% 64 publishers each wait until their event of 300 bytes is on disk before they publish the next.
%% disk_log gets the same groups from a process that gathers as the history's does, and, for
%% comparison, events and syncs from the publishers themselves. Five rounds in turn, and of each
%% figure the median, because other things run on the machine as well. Then the history alone: so
%% many events without waiting, chains and reads of them, and a brain that starts over them.
-mode(compile).

-define(PUBLISHERS, 64).
-define(SUBJECTS, 10000).
-define(DATA_BYTES, 220).
-define(ROUNDS, 5).

main(Args) ->
    Defaults = lists:nthtail(length(Args), ["1", "1000000"]),
    [Seconds, Events] = [list_to_integer(Arg) || Arg <- Args ++ Defaults],
    Dir = string:trim(os:cmd("mktemp -d")),
    application:set_env(halley, data_dir, Dir),
    try run(Dir, 1000 * Seconds, Events) after os:cmd("rm -rf " ++ Dir) end.

run(Dir, Ms, Events) ->
    io:format("one fdatasync after a write of 300 bytes~18b us~n", [fdatasync_us(Dir)]),
    title("64 publishers that wait for the disk, events of 300 bytes"),
    ok = halley_metrics:new(),
    ok = halley_history:new(),
    {ok, _} = halley_history_log:start_link(),
    Variants = [{"history log", fun history/1},
                {"disk_log, groups by one process", disk_log(Dir, fun gathering/1)},
                {"disk_log, each appends and syncs", disk_log(Dir, fun(_) -> fun publish_disk_log/1
                                                                  end)}],
    Rounds = [{Name, Variant(fun(Publish) -> publish(Publish, Ms) end)}
              || _ <- lists:seq(1, ?ROUNDS), {Name, Variant} <- Variants],
    [show(Name, [Result || {N, Result} <- Rounds, N =:= Name]) || {Name, _} <- Variants],
    title("history log alone, events of 300 bytes, nobody waits"),
    fill(Events),
    reads(),
    restart().

title(Text) -> io:format("~n~ts~n", [Text]).

row(Name, Value, Unit) -> io:format("  ~-46ts ~12ts ~ts~n", [Name, text(Value), Unit]).

text(Value) when is_float(Value) -> io_lib:format("~.2f", [Value]);
text(Value) -> io_lib:format("~b", [Value]).

fdatasync_us(Dir) ->
    {ok, File} = file:open(filename:join(Dir, "probe"), [write, raw, binary]),
    Bytes = binary:copy(<<"x">>, 300),
    {Us, _} = timer:tc(fun() -> [begin ok = file:write(File, Bytes), ok = file:datasync(File) end
                                 || _ <- lists:seq(1, 500)] end),
    ok = file:close(File),
    Us div 500.

%% --- 64 publishers -------------------------------------------------------------------------------

%% Gives {events/s, p50, p99, processor time per event, events per sync}.
publish(Publish, Ms) ->
    Syncs = syncs(),
    Until = erlang:monotonic_time(millisecond) + Ms,
    Self = self(),
    Cpu = cpu_us(),
    Pids = [spawn_link(fun() -> Self ! {self(), publisher(Publish, Until, N, [])} end)
            || N <- lists:seq(1, ?PUBLISHERS)],
    Took = lists:sort(lists:append([receive {Pid, T} -> T end || Pid <- Pids])),
    N = length(Took),
    {N * 1000 div Ms, lists:nth(N div 2, Took), lists:nth(N * 99 div 100, Took),
     (cpu_us() - Cpu) / N, N / max(1, syncs() - Syncs)}.

%% The median of each figure.
show(Name, Results) ->
    Median = fun(Place) ->
        lists:nth((?ROUNDS + 1) div 2, lists:sort([element(Place, Result) || Result <- Results]))
    end,
    row(Name, Median(1), "events/s"),
    row("  p50", Median(2), "us"),
    row("  p99", Median(3), "us"),
    row("  processor time", Median(4), "us/event"),
    [row("  events per sync", Median(5), "") || Name =:= "history log"].

publisher(Publish, Until, N, Took) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            {Us, ok} = timer:tc(fun() -> Publish(N) end),
            publisher(Publish, Until, (N + 7919) rem ?SUBJECTS, [Us | Took]);
        false ->
            Took
    end.

cpu_us() -> 1000 * element(1, statistics(runtime)).

%% The text of all metrics would ask parts of the brain that don't run here.
syncs() ->
    {Counters, #{history_commits := Index}} = persistent_term:get({halley_metrics, counters}),
    counters:get(Counters, Index).

entry(N) ->
    Subject = integer_to_binary(N),
    Shard = halley_shards:of_subject(Subject),
    Seq = halley_history:draw(Shard),
    Id = <<"m1n2b3v4-", (integer_to_binary(Seq, 36))/binary>>,
    Data = binary:copy(<<"7">>, ?DATA_BYTES),
    Json = <<"{\"id\":\"", Id/binary, "\",\"subject\":\"", Subject/binary,
             "\",\"at\":1700000000000,\"data\":", Data/binary, "}">>,
    {Shard, #{id => Id, subject => Subject, at => erlang:system_time(millisecond), json => Json,
              data_offset => byte_size(Json) - ?DATA_BYTES - 1, seq => Seq, sessions => 1}}.

history(Run) ->
    Run(fun publish_history/1).

publish_history(N) ->
    {Shard, Entry} = entry(N),
    Ref = make_ref(),
    ok = halley_history:append(Shard, [Entry], [{{self(), Ref}, ok}]),
    receive {Ref, ok} -> ok end.

disk_log(Dir, Make) ->
    File = filename:join(Dir, "disk_log"),
    fun(Run) ->
        {ok, bench} = disk_log:open([{name, bench}, {file, File}, {type, halt},
                                     {format, external}]),
        Result = Run(Make(bench)),
        ok = disk_log:close(bench),
        Result
    end.

publish_disk_log(N) ->
    {_, #{json := Json}} = entry(N),
    ok = disk_log:blog(bench, Json),
    disk_log:sync(bench).

gathering(Log) ->
    Pid = spawn_link(fun() -> gather(Log) end),
    fun(N) ->
        {_, #{json := Json}} = entry(N),
        Ref = make_ref(),
        Pid ! {self(), Ref, Json},
        receive {Ref, ok} -> ok end
    end.

gather(Log) ->
    receive {Pid, Ref, Json} -> gather(Log, [{Pid, Ref}], [Json]) end.

gather(Log, Waiting, Jsons) ->
    receive
        {Pid, Ref, Json} -> gather(Log, [{Pid, Ref} | Waiting], [Json | Jsons])
    after 0 ->
        ok = disk_log:blog_terms(Log, lists:reverse(Jsons)),
        ok = disk_log:sync(Log),
        [Pid ! {Ref, ok} || {Pid, Ref} <- Waiting],
        gather(Log)
    end.

%% --- alone ---------------------------------------------------------------------------------------

fill(Events) ->
    Before = memory(),
    Count = count(),
    {Us, _} = timer:tc(fun() -> fill_from(1, Events) end),
    Added = count() - Count,
    row("appended", Added * 1000000 div Us, "events/s"),
    row("memory of the VM per event", (memory() - Before) / Added, "bytes"),
    row("on disk per event", maps:get(bytes, halley_history:info()) div count(), "bytes").

fill_from(From, To) when From > To -> ok;
fill_from(From, To) ->
    [begin
         {Shard, Entry} = entry(N rem ?SUBJECTS),
         halley_history:append(Shard, [Entry], [none])
     end || N <- lists:seq(From, min(To, From + 9999))],
    [halley_history:mark(Shard) || Shard <- lists:seq(1, halley_shards:count())],
    ok = halley_history:await(halley_history:heads(), 60000),
    fill_from(From + 10000, To).

count() -> maps:get(events, halley_history:info()).

memory() ->
    [garbage_collect(Pid) || Pid <- processes()],
    erlang:memory(total).

reads() ->
    Up = halley_history:mark(1),
    Subjects = [integer_to_binary(N) || N <- lists:seq(0, 999)],
    {ChainUs, Chains} = timer:tc(fun() -> [chain(S, 0, Up) || S <- Subjects] end),
    Seqs = lists:append(Chains),
    row("chain, per event in it", ChainUs / length(Seqs), "us"),
    Recent = lists:sublist(lists:reverse(lists:sort(Seqs)), 15000),
    Random = [Seq || {_, Seq} <- lists:sort([{rand:uniform(), Seq} || Seq <- Recent])],
    read(Random),
    row("read in random order, from the cache", read(Random), "us"),
    row("read in order", read(lists:sort(Seqs)), "us").

chain(_, Up, Up) ->
    [];
chain(Subject, After, Up) ->
    {Seqs, To, _} = halley_history:stretch(halley_shards:of_subject(Subject), Subject, After, Up),
    Seqs ++ chain(Subject, To, Up).

%% In a process of its own, as replays are: a large heap would be collected again and again.
read(Seqs) ->
    Self = self(),
    Pid = spawn_link(fun() ->
        {Us, _} = timer:tc(fun() -> lists:foldl(fun read/2, halley_history_reader:new(), Seqs) end),
        Self ! {self(), Us / length(Seqs)}
    end),
    receive {Pid, Each} -> Each end.

read(Seq, Reader) ->
    {ok, _, Next} = halley_history_reader:read(Seq, Reader),
    Next.

%% What a brain does that was killed: only its log starts again here.
restart() ->
    Pid = whereis(halley_history_log),
    Events = count(),
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end,
    {Us, {ok, _}} = timer:tc(fun() -> halley_history_log:start_link() end),
    Events = count(),
    row("starting over them", Us div 1000, "ms"),
    row("  events", Events, "").
