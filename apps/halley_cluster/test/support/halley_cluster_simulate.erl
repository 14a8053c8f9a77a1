%% Many stories of `halley_cluster_sim', for `make simulate-cluster'.
%%
%%   erl -noshell -pa … -run halley_cluster_simulate main FIRST COUNT
%%
%% Prints how far it is every ten seconds. The first violation is printed with its seed, and ends it
%% with status 1.
-module(halley_cluster_simulate).

-export([main/1, story/1]).

-define(PORTION, 50).

main([First, Count]) ->
    {From, Seeds} = {list_to_integer(First), list_to_integer(Count)},
    Self = self(),
    Workers = erlang:system_info(schedulers_online),
    Next = atomics:new(1, []),
    _ = [spawn_link(fun() -> work(Self, Next, From, Seeds) end) || _ <- lists:seq(1, Workers)],
    Begun = erlang:monotonic_time(millisecond),
    gather(Seeds, 0, #{}, Begun, Begun).

%% Prints one story whole: what each brain gets, and does.
story([Seed]) ->
    Result = halley_cluster_sim:run(list_to_integer(Seed), #{show => true}),
    io:format("~p~n", [Result]),
    halt(0).

work(Parent, Next, From, Seeds) ->
    Portion = atomics:add_get(Next, 1, ?PORTION) - ?PORTION,
    case lists:seq(Portion, min(Portion + ?PORTION, Seeds) - 1) of
        [] -> ok;
        Some ->
            Counts = lists:foldl(fun(N, Sum) -> add(counts(From + N), Sum) end, #{}, Some),
            Parent ! {done, length(Some), Counts},
            work(Parent, Next, From, Seeds)
    end.

counts(Seed) ->
    try halley_cluster_sim:run(Seed) of
        {ok, Counts} -> Counts;
        {violation, Reason} -> failed(Seed, Reason)
    catch
        Class:Reason:Stack -> failed(Seed, {Class, Reason, Stack})
    end.

failed(Seed, Reason) ->
    io:format("seed ~b: ~p~n", [Seed, Reason]),
    halt(1).

add(A, B) -> maps:merge_with(fun(_, X, Y) -> X + Y end, A, B).

gather(Seeds, Done, Counts, Begun, _) when Done >= Seeds ->
    progress(Done, Seeds, Begun),
    io:format("no violation; what happened: ~0p~n", [lists:sort(maps:to_list(Counts))]),
    halt(0);
gather(Seeds, Done, Counts, Begun, Printed) ->
    receive
        {done, Some, More} ->
            Now = erlang:monotonic_time(millisecond),
            IsDue = Now - Printed >= 10000,
            _ = IsDue andalso progress(Done + Some, Seeds, Begun),
            gather(Seeds, Done + Some, add(More, Counts), Begun,
                   case IsDue of true -> Now; false -> Printed end)
    end.

progress(Done, Seeds, Begun) ->
    Ms = max(1, erlang:monotonic_time(millisecond) - Begun),
    io:format("~b of ~b stories, ~b s, ~b a second~n",
              [Done, Seeds, Ms div 1000, Done * 1000 div Ms]).
