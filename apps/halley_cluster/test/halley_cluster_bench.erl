%% Publishes at one brain of a cluster and receives at the others, at a rate: milliseconds from the
%% publisher's post to the receipt at a process that is logged in, and each brain's processor time.
%%
%%   rebar3 as test compile
%%   erl -noshell -pa $(find _build/test -name ebin -o -name test -o -name support) \
%%       -run halley_cluster_bench run BRAINS RATE SECONDS
%%
%% BRAINS = 0: one brain that orders its events itself, for comparison.
%%
%% A PostgreSQL of its own, without a standby, and all brains share the machine. Each brain has one
%% listener, so the time of an event is that of its way, not of a fan-out. "us/event" is a brain's
%% processor time, the tick, beats and reads included.
-module(halley_cluster_bench).

-export([run/1]).
%% Run on the nodes.
-export([listen/0, results/0, publish/2, runtime/0]).

-define(SUBJECT, <<"ann">>).

-spec run([string()]) -> no_return().
run(Args) ->
    [Brains, Rate, Seconds] = [list_to_integer(Arg) || Arg <- Args],
    Server = epgsql_test_server:start([]),
    Engine = engine(Server),
    Nodes = case Brains of
        0 -> halley_cluster_nodes:start_single();
        _ -> halley_cluster_nodes:start(Brains, Engine)
    end,
    timer:sleep(2000),
    [ok = on(Node, listen, []) || Node <- Nodes],
    Before = [on(Node, runtime, []) || Node <- Nodes],
    Published = on(hd(Nodes), publish, [Rate, Seconds]),
    timer:sleep(1000),
    After = [on(Node, runtime, []) || Node <- Nodes],
    io:format("~b brains, ~b events/s for ~b s: ~b answered of ~b~n",
              [Brains, Rate, Seconds, maps:get(ok, Published, 0),
               lists:sum(maps:values(Published))]),
    [report(Name, on(Node, results, []), Ms)
     || {Name, Node, Ms} <- lists:zip3(names(Nodes), Nodes, lists:zipwith(fun erlang:'-'/2, After,
                                                                          Before))],
    ok = halley_cluster_nodes:stop(Nodes),
    ok = epgsql_test_server:stop(Server),
    halt(0).

engine(Server) ->
    Admin = halley_cluster_test:admin(Server),
    ok = halley_cluster_test:sql(Admin, "grant create on database postgres to plain"),
    ok = epgsql:close(Admin),
    ok = halley_cluster_test:install(Server),
    #{connect => epgsql_test_server:options(Server, #{username => "plain"})}.

names([_ | Others]) ->
    ["where it was published" | ["another brain" || _ <- Others]].

on(Node, Name, Args) -> halley_cluster_nodes:call(Node, ?MODULE, Name, Args).

report(Name, Us, CpuMs) ->
    Sorted = list_to_tuple(lists:sort(Us)),
    N = tuple_size(Sorted),
    At = fun(Share) -> element(max(1, round(Share * N)), Sorted) / 1000 end,
    io:format("~-24s ~8b received, ms p50 ~.2f p99 ~.2f max ~.1f; ~.1f us/event~n",
              [Name, N, At(0.5), At(0.99), At(1.0), 1000 * CpuMs / max(1, N)]).

%%% On the nodes

listen() ->
    Caller = self(),
    Pid = spawn(fun() ->
        ok = halley:login(?SUBJECT),
        true = register(?MODULE, self()),
        Caller ! {self(), listens},
        hear([])
    end),
    receive {Pid, listens} -> ok end.

hear(Us) ->
    receive
        {halley, #{data := Sent}} -> hear([os:system_time(microsecond) - Sent | Us]);
        {From, results} -> From ! {results, Us}
    end.

results() ->
    ?MODULE ! {self(), results},
    receive {results, Us} -> Us end.

runtime() ->
    {Ms, _} = erlang:statistics(runtime),
    Ms.

%% Each millisecond as many as are due.
publish(Rate, Seconds) ->
    Began = erlang:monotonic_time(microsecond),
    publish(Rate, Began, Began + Seconds * 1000000, 0, halley_posts:new(), #{}).

publish(Rate, Began, End, Sent, Posts, Counts) ->
    Now = erlang:monotonic_time(microsecond),
    case Now < End of
        true ->
            Due = (Now - Began) * Rate div 1000000,
            {More, Counted} = post(Due - Sent, Posts, Counts),
            {Left, After} = answers(halley_posts:send(More), Counted, 1),
            publish(Rate, Began, End, Due, Left, After);
        false ->
            rest(Posts, Counts)
    end.

post(0, Posts, Counts) ->
    {Posts, Counts};
post(N, Posts, Counts) ->
    Data = {json, integer_to_binary(os:system_time(microsecond))},
    case halley_posts:post({?SUBJECT, Data, #{}}, mine, Posts) of
        {ok, _, Next} -> post(N - 1, Next, Counts);
        {error, Reason} -> post(N - 1, Posts, counted([{mine, {error, Reason}}], Counts))
    end.

rest(Posts, Counts) ->
    case halley_posts:count(Posts) of
        0 -> Counts;
        _ ->
            {Left, After} = answers(Posts, Counts, 1000),
            rest(Left, After)
    end.

answers(Posts, Counts, Ms) ->
    receive
        {posted, Answers} ->
            {Results, Left} = halley_posts:answered(Answers, Posts),
            answers(Left, counted(Results, Counts), 0);
        {timeout, Timer, posts} ->
            {Results, Left} = halley_posts:late(Timer, Posts),
            answers(Left, counted(Results, Counts), 0)
    after Ms ->
        {Posts, Counts}
    end.

counted(Results, Counts) ->
    lists:foldl(fun({_, {ok, _}}, Acc) -> maps:update_with(ok, fun(N) -> N + 1 end, 1, Acc);
                   ({_, {error, Why}}, Acc) -> maps:update_with(Why, fun(N) -> N + 1 end, 1, Acc);
                   ({_, busy}, Acc) -> maps:update_with(busy, fun(N) -> N + 1 end, 1, Acc)
                end, Counts, Results).
