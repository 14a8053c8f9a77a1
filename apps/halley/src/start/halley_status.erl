%% How it goes: a sample each second, for the last ten minutes, and what was counted before that.
%%
%% An operator who looks after an incident sees the time before it: samples are taken with readers
%% and without. A sample is some numbers (`columns/0'): gauges as they are, counters as they stand,
%% so two of them give the rate, and the share of deliveries that were late. It costs the reading of
%% all metrics, as a scrape does.
%%
%% A reader requests the samples after the last one it has, and gets the next one (`since/2'): so a
%% console hears each second, over any proxy, with its key checked each time. And while streams
%% follow them they are published (`halley_api_status_feed'). But operators look when the disk is
%% full or shards hang, and no event goes out: so a request here needs no event.
%%
%% Times of samples are milliseconds since 1970 and grow. When the clock is set back, the samples of
%% before are put back by as much: so a rate is over the time that has passed, and a reader that has
%% a sample from later than any here gets them all.
-module(halley_status).
-behaviour(gen_server).

-export([start_link/0, columns/0, since/2, lately/0, rss/1, rss/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([at/0, sample/0]).

%% Milliseconds since 1970.
-type at() :: integer().
%% The time, then a value for each of the columns.
-type sample() :: {at(), [integer()]}.

-define(SAMPLE_MS, 1000).
-define(SAMPLES_MAX, 600).
%% No two are nearer to each other: a clock that was put back by a second gives none for as long.
-define(APART_MS, ?SAMPLE_MS div 2).
%% A clock that is further behind the last sample was set.
-define(SET_BACK_MS, 2 * ?SAMPLE_MS).
%% How often all counters are kept, and for how long.
-define(COUNTERS_SAMPLES, 60).
-define(COUNTERS_MAX, 10).

-record(state, {samples = queue:new() :: queue:queue(sample()), number = 0 :: non_neg_integer(),
                last = 0 :: at(), values = #{} :: #{binary() => integer()},
                %% All metrics of each minute, the oldest first.
                minutes = queue:new() :: queue:queue({at(), #{binary() => integer()}}),
                waiting = [] :: [{gen_server:from(), at(), Timer :: reference()}]}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Names of what a sample has. Resident bytes are of this process and of the edges; the others are
%% metrics, by their names.
-spec columns() -> [binary()].
columns() ->
    [<<"brain_rss_bytes">>, <<"edge_rss_bytes">> | [Name || {Name, _} <- metrics()]].

%% The columns, and the metrics that each is the sum of.
metrics() ->
    [{<<"connections">>, [<<"halley_edge_connections">>]},
     {<<"sessions">>, [<<"halley_sessions">>]},
     {<<"users">>, [<<"halley_users_online">>]},
     {<<"events">>, [<<"halley_events_published_total">>]},
     {<<"deliveries">>, [<<"halley_deliveries_total">>]},
     {<<"requests">>, [<<"halley_edge_requests_total">>]},
     {<<"written_bytes">>, [<<"halley_edge_written_bytes_total">>]},
     {<<"slow_consumers">>, [<<"halley_edge_slow_consumers_total">>,
                             <<"halley_edge_outboxes_full_total">>]},
     {<<"outbox_bytes">>, [<<"halley_edge_outbox_bytes">>]},
     {<<"link_queue_bytes">>, [<<"halley_link_queue_bytes">>]},
     {<<"history_queue_bytes">>, [<<"halley_history_queue_bytes">>]},
     {<<"shard_queue_events">>, [<<"halley_shard_queue_events">>]},
     {<<"run_queue">>, [<<"halley_vm_run_queue">>]}]
    ++ [{Name, [<<"halley_edge_", Name/binary>>]} || Name <- late()].

%% Deliveries by how long after the event's time they were written; `conns/ages.rs' of the edge.
late() ->
    [<<"written_in_", Ms/binary, "_ms_total">>
     || Ms <- [<<"1">>, <<"2">>, <<"3">>, <<"5">>, <<"10">>, <<"20">>, <<"50">>, <<"100">>,
               <<"200">>, <<"500">>, <<"1000">>]] ++ [<<"written_later_total">>].

%% The samples that are newer, the oldest first, all where `At' is later than any. If there is none
%% it waits for the next, but no longer than that. `too_many': `status_readers_max' wait already.
-spec since(at(), TimeoutMs :: non_neg_integer()) -> [sample()] | {error, too_many}.
since(At, TimeoutMs) ->
    gen_server:call(?MODULE, {since, At, TimeoutMs}, TimeoutMs + 5000).

%% All metrics as of the last sample, and as they were when the oldest that is known was kept.
-spec lately() -> {Now :: #{binary() => integer()}, {at(), Before :: #{binary() => integer()}}}.
lately() ->
    gen_server:call(?MODULE, lately).

%% Resident bytes of a process of this machine, 0 if there is none; without an argument of this one.
-spec rss(OsPid :: pos_integer()) -> non_neg_integer().
rss(OsPid) ->
    rss_of(integer_to_list(OsPid)).

-spec rss() -> non_neg_integer().
rss() ->
    rss_of("self").

rss_of(Name) ->
    case file:open("/proc/" ++ Name ++ "/status", [read, raw, binary]) of
        {ok, File} ->
            Read = file:read(File, 4096),
            ok = file:close(File),
            resident(Read);
        {error, _} ->
            0
    end.

resident({ok, Text}) ->
    case re:run(Text, "VmRSS:\\s*(\\d+) kB", [{capture, [1], binary}]) of
        {match, [KiB]} -> binary_to_integer(KiB) * 1024;
        nomatch -> 0
    end;
resident(_) ->
    0.

%% --- the process -------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    _ = erlang:send_after(?SAMPLE_MS, self(), sample),
    {ok, sampled(#state{})}.

-spec handle_call({since, at(), non_neg_integer()} | lately, gen_server:from(), #state{}) ->
    {reply, [sample()] | {error, too_many} | {map(), {at(), map()}}, #state{}}
    | {noreply, #state{}}.
handle_call({since, At, TimeoutMs}, From, State = #state{last = Last, waiting = Waiting}) ->
    if
        At =/= Last -> {reply, newer(At, State), State};
        true ->
            case length(Waiting) < halley_limits:get(status_readers_max) of
                true ->
                    Timer = erlang:start_timer(TimeoutMs, self(), From),
                    {noreply, State#state{waiting = [{From, At, Timer} | Waiting]}};
                false ->
                    halley_metrics:incr(status_refused),
                    {reply, {error, too_many}, State}
            end
    end;
handle_call(lately, _, State = #state{values = Values, minutes = Minutes}) ->
    {reply, {Values, queue:get(Minutes)}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(sample, State) ->
    _ = erlang:send_after(?SAMPLE_MS, self(), sample),
    {noreply, answered(sampled(State))};
handle_info({timeout, Timer, From}, State = #state{waiting = Waiting}) ->
    _ = lists:keymember(Timer, 3, Waiting) andalso gen_server:reply(From, []),
    {noreply, State#state{waiting = lists:keydelete(Timer, 3, Waiting)}};
handle_info(_, State) ->
    {noreply, State}.

%% Where the clock of before was ahead, this one's or that of another brain, it is what there is.
newer(At, #state{last = Last} = State) when At > Last ->
    newer(0, State);
newer(At, #state{samples = Samples}) ->
    [Sample || {Taken, _} = Sample <- queue:to_list(Samples), Taken > At].

answered(State = #state{waiting = Waiting}) ->
    lists:foreach(fun({From, At, Timer}) ->
        _ = erlang:cancel_timer(Timer),
        gen_server:reply(From, newer(At, State))
    end, Waiting),
    State#state{waiting = []}.

sampled(State = #state{last = Last}) ->
    case halley_clock:wall_ms() of
        At when At < Last - ?SET_BACK_MS -> sampled(At, put_back(Last + ?SAMPLE_MS - At, State));
        At when At < Last + ?APART_MS -> State;
        At -> sampled(At, State)
    end.

put_back(Ms, State = #state{samples = Samples, minutes = Minutes, last = Last}) ->
    Earlier = fun(Queue) ->
        queue:from_list([{At - Ms, Values} || {At, Values} <- queue:to_list(Queue)])
    end,
    State#state{samples = Earlier(Samples), minutes = Earlier(Minutes), last = Last - Ms}.

sampled(At, State = #state{samples = Samples, number = Number, values = Before,
                           minutes = Minutes}) ->
    Values = values(Before),
    Edges = lists:usort([Pid || #{info := #{pid := Pid}} <- halley_links:list()]),
    Sample = {At, [rss(), lists:sum([rss(Pid) || Pid <- Edges])
                   | [lists:sum([maps:get(Name, Values, 0) || Name <- Names])
                      || {_, Names} <- metrics()]]},
    Kept = case Number rem ?COUNTERS_SAMPLES of
        0 -> bounded(queue:in({At, Values}, Minutes), ?COUNTERS_MAX);
        _ -> Minutes
    end,
    State#state{samples = bounded(queue:in(Sample, Samples), ?SAMPLES_MAX), number = Number + 1,
                last = At, values = Values, minutes = Kept}.

%% While a part is restarted its tables aren't there: that second is as the one before. A sampler
%% that died each time would end the brain by its restarts.
values(Before) ->
    try
        halley_metrics:values()
    catch
        error:_ -> Before
    end.

bounded(Queue, Max) ->
    case queue:len(Queue) > Max of
        true -> queue:drop(Queue);
        false -> Queue
    end.
