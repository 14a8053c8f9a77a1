%% An edge that was taken over, for halley_edge_taken_SUITE and halley_edge_taken_flow_SUITE: one
%% link says whatever an attacker likes, while another, honest one is served.
%%
%% In each case the attack goes on while there is a worker whose client gets events, one after the
%% other: every one of them, in order, and soon. When it is over, processes and memory are what they
%% were.
-module(taken_edge).

-include_lib("stdlib/include/assert.hrl").
-include("halley_edge_wait.hrl").

-export([start/3, stop/1, attacked/2]).
-export([synced/1, handshake/1, cut/1, again/2, builds/0, goodbye/1]).
-export([queued/0, broken/1, user/1]).

-import(halley_edge_helper, [until/1, next/2, counted/1]).

%% What the honest client's events may take, the one in the middle and the slowest. The machine does
%% other things as well.
-define(MEDIAN_MS, 2000).
-define(SLOWEST_MS, 30000).
%% So many events at least, behind the attack if it is a short one: the one in the middle of two or
%% three is whichever met a pause of the machine.
-define(EVENTS_MIN, 7).
-define(MEMORY_BYTES, 64000000).
-define(VICTIM, <<"anna">>).
%% The honest worker's connection.
-define(CONN, 1).

start(Config, Limits, Handler) ->
    %% Attacks end their link by the dozen; the pause before the next is nothing that they try.
    Brain = halley_edge_test_brain:start(maps:merge(#{redial_ms_max => 50}, Limits)),
    application:set_env(halley_edge, handler, Handler),
    [{brain, Brain}, {dir, string:trim(os:cmd("mktemp -d"))} | Config].

stop(Config) ->
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = application:set_env(halley_edge, handler, halley_edge_test_brain),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%%% The honest link

%% Runs the attack on one edge's link while another edge's client gets events. A brain has two edges
%% while one replaces the other.
attacked(Config, Attack) ->
    Dir = proplists:get_value(dir, Config),
    HonestDir = filename:join(Dir, "honest"),
    ok = filelib:ensure_path(HonestDir),
    Path = halley_edge_dial:path(HonestDir),
    Self = self(),
    Honest = spawn_link(fun() -> honest(Self, fake_edge:start(Path)) end),
    receive {Honest, listening} -> ok after ?WAIT_MS -> error(no_honest_edge) end,
    {ok, HonestLink} = halley_edge_link_sup:start_link_process(Path),
    Taken = fake_edge:start(halley_edge_dial:path(Dir)),
    ok = halley_edge_dialer:connect(Dir, self()),
    receive {Honest, served} -> ok after ?WAIT_MS -> error(not_served) end,
    synced(Taken),
    erlang:garbage_collect(),
    {Processes, Memory} = {erlang:system_info(process_count), erlang:memory(total)},
    Attack(Taken),
    Honest ! {stop, self()},
    Sorted = receive {Honest, Times} -> lists:sort(Times)
             after ?WAIT_MS -> error(honest_link_hangs)
             end,
    {Median, Slowest} = {lists:nth(length(Sorted) div 2 + 1, Sorted), lists:last(Sorted)},
    ct:log("~b events beside it, half of them within ~b ms, the slowest within ~b",
           [length(Sorted), Median, Slowest]),
    ?assert(Median =< ?MEDIAN_MS andalso Slowest =< ?SLOWEST_MS),
    fake_edge:stop(Taken),
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_link:stop(HonestLink),
    until(fun() -> erlang:system_info(process_count) =< Processes end),
    %% What a process had goes back a while after its end.
    until(fun() ->
        [erlang:garbage_collect(Pid) || Pid <- processes()],
        Grown = erlang:memory(total) - Memory,
        ct:log("~b bytes more than before", [Grown]),
        Grown < ?MEMORY_BYTES
    end).

honest(Test, Edge) ->
    Test ! {self(), listening},
    Worker = fake_worker:open(?CONN, ?VICTIM, fake_worker:until(fun met_brain/1,
                                                                fake_worker:new(Edge))),
    serve(Test, served(1, fake_worker:until(fun fake_worker:connected/1, Worker), []), 2).

met_brain(Worker) -> fake_worker:cursor(Worker) =/= <<>>.

serve(Test, {Worker, [_] = Times}, N) ->
    Test ! {self(), served},
    serve(Test, served(N, Worker, Times), N + 1);
serve(Test, {Worker, Times}, N) ->
    receive
        {stop, Test} when length(Times) >= ?EVENTS_MIN ->
            Seen = [maps:get(json, Item) || Item <- fake_worker:seen(?CONN, Worker)],
            Numbers = [maps:get(<<"data">>, Event)
                       || Json <- Seen,
                          #{<<"subject">> := ?VICTIM} = Event
                              <- [jiffy:decode(Json, [return_maps])]],
            ?assertEqual(lists:seq(1, N - 1), Numbers),
            Test ! {self(), Times}
    after 0 ->
        serve(Test, served(N, Worker, Times), N + 1)
    end.

served(N, Worker, Times) ->
    Begin = erlang:monotonic_time(millisecond),
    {ok, _} = halley:publish(?VICTIM, N),
    Had = length(fake_worker:seen(?CONN, Worker)),
    Saw = fake_worker:until(fun(W) -> has(N, W) end, Worker),
    true = length(fake_worker:seen(?CONN, Saw)) > Had,
    Time = erlang:monotonic_time(millisecond) - Begin,
    {fake_worker:run(10, Saw), [Time | Times]}.

has(N, Worker) ->
    Text = <<"\"data\":", (integer_to_binary(N))/binary, "}">>,
    lists:any(fun(#{json := Json}) -> binary:match(Json, Text) =/= nomatch end,
              lists:sublist(lists:reverse(fake_worker:seen(?CONN, Worker)), 3)).

%%% The taken link

%% Waits for the brain and begins the session of frames as an honest worker does.
synced(Edge) ->
    handshake(Edge),
    fake_edge:send(Edge, {sync_begin, 0, <<>>}),
    fake_edge:send(Edge, sync_end).

handshake(Edge) ->
    {hello_brain, _} = next(Edge, hello_brain).

%% A link that was cut, before its sync.
cut(Edge) ->
    fake_edge:cut(Edge),
    handshake(Edge).

%% A handshake in which the edge names these metrics.
again(Edge, Metrics) ->
    Build = integer_to_binary(erlang:unique_integer([positive])),
    fake_edge:say(Edge, (fake_edge:hello())#{metrics := Metrics, build := Build}),
    Mark = make_ref(),
    fake_edge:cut(Edge, Mark),
    to_the_cut(Edge, Mark),
    Build.

%% What came by the links until then is dropped: the next hello is that of the new one.
to_the_cut(Edge, Mark) ->
    receive
        {Edge, Mark} -> ok;
        {Edge, {hello_brain, _}} -> to_the_cut(Edge, Mark)
    after ?WAIT_MS -> error(not_cut)
    end.

builds() -> [Build || #{info := #{build := Build}} <- halley_links:list()].

goodbye(Edge) ->
    next(Edge, goodbye).

user(N) -> <<"user", (integer_to_binary(N))/binary>>.

queued() -> lists:sum([B || #{queue_bytes := B} <- halley_links:list()]).

%% How many links ended for this reason.
broken(Reason) -> counted("halley_links_broken_total{reason=\"" ++ Reason ++ "\"}").
