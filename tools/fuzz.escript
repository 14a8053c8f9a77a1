#!/usr/bin/env escript
%% -*- erlang -*-
%% The brain's fuzz targets: properties of PropEr, each asked until its seconds or its executions
%% are over. `tools/fuzz.sh' calls it behind its own targets and prints the head of the table.
%%
%%   rebar3 as test compile
%%   escript tools/fuzz.escript <test libraries> <seconds> <executions, 0: no bound> <target>...
%%
%% A finding is printed and kept in edge/fuzz/artifacts/<target>/; the next step is a case in the
%% tests of what it broke.
-mode(compile).

%% Asked at a time: short enough that the seconds are kept.
-define(SLICE, 20).

main([Libraries, Seconds, Runs | Names]) ->
    ok = code:add_pathsa(filelib:wildcard(filename:join([Libraries, "*", "{ebin,test}"]))),
    Until = {list_to_integer(Seconds), list_to_integer(Runs)},
    lists:foreach(fun(Name) -> run(Name, target(Name), Until) end, Names).

%% Property, and what is around it.
target("brain_bodies") -> bodies(prop_an_answer_knows_no_chunks);
target("brain_costs") -> bodies(prop_cost_grows_with_the_bytes);
target("brain_jwks") ->
    {fun prop_halley_jwks:prop_any_set_is_judged/0, fun() -> ok end, fun(ok) -> ok end};
target("brain_frames") ->
    {fun prop_teleport:prop_damaged/0, fun() -> ok end, fun(ok) -> ok end}.

bodies(Property) ->
    {fun prop_halley_api_bodies:Property/0, fun() -> prop_halley_api_bodies:start(Property) end,
     fun prop_halley_api_bodies:stop/1}.

run(Name, {Property, Start, Stop}, {Seconds, Runs}) ->
    State = Start(),
    Began = erlang:monotonic_time(millisecond),
    N = slices(Name, Property, Began + 1000 * Seconds, Runs, 0),
    Ms = max(1, erlang:monotonic_time(millisecond) - Began),
    _ = Stop(State),
    io:format("~-12s ~12b ~6b ~12b ~10s~n", [Name, N, Ms div 1000, N * 1000 div Ms, "-"]).

slices(Name, Property, UntilMs, Runs, N) ->
    case erlang:monotonic_time(millisecond) >= UntilMs orelse Runs > 0 andalso N >= Runs of
        true ->
            N;
        false ->
            %% PropEr begins with small inputs; later slices begin with larger ones.
            Options = [{numtests, ?SLICE}, {start_size, 1 + N rem 100}, {max_size, 120}, quiet],
            case proper:quickcheck(Property(), Options) of
                true -> slices(Name, Property, UntilMs, Runs, N + ?SLICE);
                _ -> found(Name, proper:counterexample())
            end
    end.

found(Name, Counterexample) ->
    Path = filename:join(["edge", "fuzz", "artifacts", Name, "counterexample"]),
    ok = filelib:ensure_dir(Path),
    ok = file:write_file(Path, io_lib:format("~p.~n", [Counterexample])),
    io:format(standard_error, "~tp~nfuzz ~s failed; the input is in ~s~n",
              [Counterexample, Name, Path]),
    halt(1).
