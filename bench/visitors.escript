#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none
%% Do visitors who never come back leave anything behind? No HTTP, no edge, no history.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/visitors.escript [visitors]
%%
%% A week of 100 new ones a second, as fast as they can be given numbers: each is interned, has a
%% session, and goes; every hundredth follows somebody for a moment, which is written to the disk.
%% The sweep looks at all numbers as often as it would in four minutes of that time, and the
%% quarantine is what one look has. A row for each day: ids in use, numbers ever given, memory.
-mode(compile).

-define(PER_S, 100).
-define(BATCH, 1000).
%% Between two looks at all numbers, in seconds of the week.
-define(ROUND_S, 240).

main(Args) ->
    [Visitors] = [list_to_integer(Arg)
                  || Arg <- Args ++ lists:nthtail(length(Args), ["60480000"])],
    Dir = string:trim(os:cmd("mktemp -d")),
    logger:set_primary_config(level, warning),
    ok = halley_limits:set(#{id_quarantine_ms => 0}),
    application:set_env(halley, data_dir, Dir),
    try run(Visitors) after os:cmd("rm -rf " ++ Dir) end.

run(Visitors) ->
    ok = halley_metrics:new(),
    ok = halley_directory:new(),
    ok = halley_closings:new(),
    ok = halley_groups:new(),
    ok = halley_history:new(),
    {ok, _} = halley_directory:start_link(fun(_) -> ok end),
    {ok, Store} = halley_store_sup:start_link(),
    Stay = [<<"stays ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 1000)],
    {ok, _} = halley_follows:follow([{User, <<"stays">>} || User <- Stay]),
    io:format("~-12s ~12s ~16s ~12s~n", ["visitors", "ids, most", "highest number", "memory, MB"]),
    PerRound = ?PER_S * ?ROUND_S,
    days(0, Visitors, max(1, Visitors div 7), PerRound),
    Names = [halley_ids:name(halley_ids:lookup(User)) || User <- Stay],
    true = Names =:= Stay,
    unlink(Store),
    exit(Store, shutdown).

days(From, Visitors, _, _) when From >= Visitors -> ok;
days(From, Visitors, Day, PerRound) ->
    To = min(Visitors, From + Day),
    Most = visits(From, To, PerRound, 0),
    garbage_collect(),
    io:format("~-12b ~12b ~16b ~12.1f~n", [To, Most, halley_ids_pages:last(),
                                          erlang:memory(total) / 1.0e6]),
    days(To, Visitors, Day, PerRound).

visits(From, To, _, Most) when From >= To -> Most;
visits(From, To, PerRound, Most) ->
    Numbers = lists:seq(From + 1, min(To, From + ?BATCH)),
    Ids = [<<"visitor ", (integer_to_binary(N))/binary>> || N <- Numbers],
    {ok, Given} = halley_ids:intern(Ids),
    lists:foreach(fun(N) ->
        ok = halley_sessions:open(N, {link, 1, N}),
        ok = halley_directory:close(N, {link, 1, N})
    end, Given),
    Pairs = [{Id, <<"stays">>} || {Id, N} <- lists:zip(Ids, Numbers), N rem 100 =:= 0],
    {ok, _} = halley_follows:follow(Pairs),
    {ok, _} = halley_follows:unfollow(Pairs),
    Count = halley_ids:count(),
    Next = From + length(Numbers),
    Next div PerRound > From div PerRound andalso halley_ids_sweep:round(),
    visits(Next, To, PerRound, max(Most, Count)).
