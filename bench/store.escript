#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none +A 4
%% How fast and how large the durable store is, by itself: no HTTP, no edge.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/store.escript [users] [degree]
%%
%% A Barabási–Albert graph (Sanders-Schulz hashing, seed 1) is written as an edge list, one file
%% per 100,000 follows, imported by two processes that parse it as the API would, then the store
%% is stopped, opened again, read, and written by 64 processes with one follow each. At first the
%% history is empty. Then it has events that concern nobody, and at last one about each user, so
%% that follows are recorded there, too.
-mode(compile).

-define(CHUNK, 100000).
-define(IMPORTERS, 2).
-define(CALLERS, 64).
-define(SINGLE_MS, 3000).
-define(LATER_FOLLOWS, 200000).

main(Args) ->
    Defaults = lists:nthtail(length(Args), ["1000000", "15"]),
    [Users, Degree] = [list_to_integer(Arg) || Arg <- Args ++ Defaults],
    Dir = string:trim(os:cmd("mktemp -d")),
    application:set_env(halley, data_dir, Dir),
    logger:set_primary_config(level, warning),
    try run(Dir, Users, Degree) after os:cmd("rm -rf " ++ Dir) end.

run(Dir, Users, Degree) ->
    row("users", Users, ""),
    row("follows in the edge list", Users * Degree, ""),
    Files = graph(Dir, Users, Degree),
    ok = halley_metrics:new(),
    ok = halley_history:new(),
    {ok, _} = halley_history_log:start_link(),
    Empty = memory(),
    open(),
    {CpuBefore, _} = statistics(runtime),
    {ImportMs, Added} = ms(fun() -> import(Files) end),
    {CpuAfter, _} = statistics(runtime),
    row("follows added (the graph has a few twice)", Added, ""),
    row("import, parsing included", round(1000 * Users * Degree / ImportMs), "follows/s"),
    row("  CPU time of it, all processes", us(CpuAfter - CpuBefore, Users * Degree), "us/follow"),
    row("memory of the VM after the import", mb(memory()), "MB"),
    {CheckpointMs, ok} = ms(fun halley_follows_owner:checkpoint/0),
    row("last checkpoint", round(CheckpointMs), "ms"),
    settle(),
    row("memory of the VM, settled", mb(memory()), "MB"),
    row("  of it before the store was opened", mb(Empty), "MB"),
    row("  resident, the whole process", resident_mb(), "MB"),
    row("on disk", string:trim(os:cmd("du -sm " ++ Dir ++ "/follows | cut -f1")), "MiB"),
    close(),
    {OpenMs, _} = ms(fun open/0),
    row("open again", round(OpenMs), "ms"),
    Added = halley_follows:count(),
    reads(Users),
    singles("", Users),
    later("", Users),
    events(<<"x">>, Users),
    later(", events of others", Users),
    events(<<>>, Users),
    singles(", events", Users),
    later(", events", Users),
    close().

%% Edges 2e, 2e+1 of the list of endpoints: the user, and an endpoint drawn uniformly from those
%% before, which is what makes it preferential.
graph(Dir, Users, Degree) ->
    Chunks = (Users * Degree + ?CHUNK - 1) div ?CHUNK,
    ms_row("writing the edge list", fun() ->
        pmap(fun(C) ->
            File = filename:join(Dir, "edges-" ++ integer_to_list(C)),
            Edges = lists:seq(C * ?CHUNK, min((C + 1) * ?CHUNK, Users * Degree) - 1),
            ok = file:write_file(File, [[integer_to_binary(E div Degree + 1), " ",
                                         integer_to_binary(target(2 * E + 1, Degree)), "\n"]
                                        || E <- Edges]),
            File
        end, lists:seq(0, Chunks - 1))
    end).

target(Position, Degree) ->
    case erlang:phash2({1, Position}, Position) of
        R when R rem 2 =:= 0 -> R div 2 div Degree + 1;
        R -> target(R, Degree)
    end.

import(Files) ->
    Results = pmap(fun(File) ->
        {ok, Text} = file:read_file(File),
        {ok, #{added := Added, errors := []}} = halley_follows:follow(parse(Text, [])),
        Added
    end, Files),
    lists:sum(Results).

parse(<<>>, Pairs) -> lists:reverse(Pairs);
parse(Text, Pairs) ->
    N = field(Text, $\s, 0),
    <<User:N/binary, _, Rest/binary>> = Text,
    M = field(Rest, $\n, 0),
    <<Subject:M/binary, _, Lines/binary>> = Rest,
    parse(Lines, [{User, Subject} | Pairs]).

field(<<C, _/binary>>, C, N) -> N;
field(<<_, Rest/binary>>, C, N) -> field(Rest, C, N + 1).

reads(Users) ->
    Ids = [integer_to_binary(rand:uniform(Users)) || _ <- lists:seq(1, 200000)],
    Strangers = [<<"x", Id/binary>> || Id <- Ids],
    [row("number of " ++ Whose, us(least_ms(fun() -> [halley_ids:lookup(Id) || Id <- Some] end),
                                   length(Some)), "us")
     || {Whose, Some} <- [{"a random id", Ids}, {"an id that isn't there", Strangers}]],
    Typical = [S || _ <- lists:seq(1, 200000), S <- [rand:uniform(Users)],
                    halley_pages_table:count(halley_followers, S) =:= 16],
    Sum = fun(N, Acc) -> N + Acc end,
    {FoldMs, _} = ms(fun() -> [halley_follows_graph:fold_followers(Sum, 0, S) || S <- Typical] end),
    row("fold over 16 followers, random subjects", us(FoldMs, length(Typical)), "us"),
    {Largest, S} = lists:max([{halley_pages_table:count(halley_followers, N), N}
                              || N <- lists:seq(1, min(Users, 1000))]),
    {BigMs, _} = ms(fun() -> halley_follows_graph:fold_followers(Sum, 0, S) end),
    row("largest subject's followers", Largest, ""),
    row("fold over them", us(BigMs, 1), "us").

%% One about each of as many subjects as there are users.
events(Prefix, Users) ->
    lists:foreach(fun(N) ->
        Subject = <<Prefix/binary, (integer_to_binary(N))/binary>>,
        Shard = halley_shards:of_subject(Subject),
        Seq = halley_history:draw(Shard),
        Draft = halley_event:draft(<<"e", Subject/binary>>, Subject, <<"1">>),
        Event = halley_event:event(Draft, <<>>, {Shard, Seq}, erlang:system_time(millisecond)),
        ok = halley_history:append(Shard, [Event#{sessions => 0, chosen => false}], [none])
    end, lists:seq(1, Users)),
    ok = halley_history:await(halley_history:heads(), 60000).

%% A list of follows, nearly all of them new.
later(What, Users) ->
    Pairs = [{integer_to_binary(rand:uniform(Users)), integer_to_binary(rand:uniform(Users))}
             || _ <- lists:seq(1, ?LATER_FOLLOWS)],
    {CpuBefore, _} = statistics(runtime),
    {Ms, {ok, _}} = ms(fun() -> halley_follows:follow(Pairs) end),
    {CpuAfter, _} = statistics(runtime),
    row("a list of 200,000 follows" ++ What, round(1000 * ?LATER_FOLLOWS / Ms), "follows/s"),
    row("  CPU time of it", us(CpuAfter - CpuBefore, ?LATER_FOLLOWS), "us/follow").

singles(What, Users) ->
    End = erlang:monotonic_time(millisecond) + ?SINGLE_MS,
    {CpuBefore, _} = statistics(runtime),
    Counts = pmap(fun(_) -> single(Users, End, 0) end, lists:seq(1, ?CALLERS), ?CALLERS),
    {CpuAfter, _} = statistics(runtime),
    row("single follows, 64 callers, durable" ++ What, round(lists:sum(Counts) * 1000 / ?SINGLE_MS),
        "calls/s"),
    row("  CPU time of it", us(CpuAfter - CpuBefore, lists:sum(Counts)), "us/follow"),
    {AloneMs, _} = ms(fun() -> [one(Users) || _ <- lists:seq(1, 500)] end),
    row("single follow, one caller, durable" ++ What, us(AloneMs, 500), "us").

single(Users, End, N) ->
    case erlang:monotonic_time(millisecond) < End of
        true -> one(Users), single(Users, End, N + 1);
        false -> N
    end.

one(Users) ->
    Id = fun() -> integer_to_binary(rand:uniform(Users)) end,
    {ok, _} = halley_follows:follow([{Id(), Id()}]).

open() ->
    {ok, Sup} = halley_store_sup:start_link(),
    put(sup, Sup).

close() ->
    unlink(get(sup)),
    Ref = monitor(process, get(sup)),
    exit(get(sup), shutdown),
    receive {'DOWN', Ref, _, _, _} -> halley_store:close() end,
    settle().

settle() ->
    timer:sleep(500),
    [garbage_collect(P) || P <- processes()],
    timer:sleep(500).

pmap(Fun, Items) -> pmap(Fun, Items, ?IMPORTERS).

%% Workers take the next item when they are done with one, so order is nearly kept.
pmap(Fun, Items, Workers) ->
    Self = self(),
    Tuple = list_to_tuple(Items),
    Next = atomics:new(1, []),
    Pids = [spawn_link(fun() -> Self ! {self(), work(Fun, Tuple, Next, [])} end)
            || _ <- lists:seq(1, Workers)],
    [R || {_, R} <- lists:sort(lists:append([receive {P, Rs} -> Rs end || P <- Pids]))].

work(Fun, Tuple, Next, Done) ->
    case atomics:add_get(Next, 1, 1) of
        I when I > tuple_size(Tuple) -> Done;
        I -> work(Fun, Tuple, Next, [{I, Fun(element(I, Tuple))} | Done])
    end.

ms(Fun) ->
    {Us, Result} = timer:tc(Fun),
    {Us / 1000, Result}.

%% The least of several, because other things run as well.
least_ms(Fun) -> lists:min([element(1, ms(Fun)) || _ <- lists:seq(1, 15)]).

ms_row(Name, Fun) ->
    {Ms, Result} = ms(Fun),
    row(Name, round(Ms), "ms"),
    Result.

us(Ms, N) -> float_to_list(1000 * Ms / max(1, N), [{decimals, 2}]).

memory() -> erlang:memory(total).

mb(Bytes) -> Bytes div 1000000.

resident_mb() ->
    Command = "awk '/VmRSS/ {print int($2 * 1024 / 1000000)}' /proc/" ++ os:getpid() ++ "/status",
    string:trim(os:cmd(Command)).

row(Name, Value, Unit) ->
    Text = if is_list(Value) -> Value; true -> integer_to_list(Value) end,
    io:format("~-45ts ~12ts ~ts~n", [Name, Text, Unit]).
