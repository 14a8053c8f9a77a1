%% Metrics: sums over workers that come and go, and the text for Prometheus.
-module(halley_metrics_tests).

-include_lib("eunit/include/eunit.hrl").

-export([log/2]).

-define(SENT, {<<"halley_edge_sent_total">>, counter, <<"Events \\ sent\nto clients">>}).
-define(OPEN, {<<"halley_edge_connections">>, gauge, <<"Connections">>}).

edge_test_() ->
    {foreach,
     fun() ->
         Parts = [halley_metrics, halley_directory, halley_links, halley_shard, halley_history,
                  halley_groups, halley_subscriptions],
         [ok = Part:new() || Part <- Parts],
         {ok, Directory} = halley_directory:start_link(fun(_) -> ok end),
         {ok, Links} = halley_links:start_link(fun(_) -> ok end),
         Stored = #{ids => 42, ids_leaving => 0, ids_waiting => 0, follows => 43,
                    store_refusing => 0, store_damaged => 0,
                    postgres_streaming => 0, postgres_lag => 0, postgres_stopped => 0,
                    postgres_pool_connections => [{"state=\"idle\"", 0}],
                    postgres_pool_waiting => 0, postgres_pool_taken => 0,
                    postgres_pool_waited => 0, postgres_pool_refused => 0,
                    postgres_pool_timed_out => 0, postgres_pool_opened => 0,
                    postgres_pool_closed => 0, postgres_pool_failed => 0,
                    hooks_waiting => 0, hooks_behind => 0, hooks_told => 0,
                    remote_sessions => 0, remote_up => 0, remote_queue => 0,
                    remote_round_trip => 0, remote_sent => 0, remote_received => 0,
                    remote_messages_refused => 0, remote_connections => 0, remote_waiting => 0,
                    remote_connections_refused => 0, remote_busy => 0, connect_waiting => 0,
                    presence_subjects => 0, session_states => 0, status_streams => 0,
                    revocations => 0},
         ok = halley_metrics:gauges(maps:keys(Stored), fun() -> Stored end),
         [Links, Directory]
     end,
     fun(Owners) ->
         [gen_server:stop(Owner) || Owner <- Owners],
         halley_history_helper:forget(),
         [ets:delete(Table)
          || Table <- [halley_metrics_edge, halley_directory_rows,
                       halley_directory_held, halley_links, halley_links_about,
                       halley_groups_table, halley_groups_marks, halley_presence_pending,
                       halley_subscriptions,
                       halley_subscriptions_table]]
     end,
     [{Name, Test}
      || {Name, Test} <- [{"values are the sum of the workers", fun sum_of_workers/0},
                          {"a worker that is gone stays in the counters", fun gone_worker/0},
                          {"a worker that comes back is counted once", fun worker_comes_back/0},
                          {"very many gone workers are one row", fun many_gone_workers/0},
                          {"lists of metrics are bounded", fun many_lists/0},
                          {"the text is Prometheus'", fun text/0},
                          {"counts", fun counts/0},
                          {"a link that ends before it says anything", fun silent_worker/0},
                          {"an owner is asked once for its gauges", fun asked_once/0},
                          {"gauges that can't be read", fun broken_gauges/0}]]}.

linked(Index) ->
    Writer = spawn(fun() -> receive stop -> ok end end),
    {ok, Slot, _} = halley_test_brain:worker(Writer, #{pid => 100, worker => Index}),
    Slot.

says(Slot, Definitions, Values) ->
    halley_metrics:edge(Slot, halley_metrics:definitions(Definitions), Values).

value(Line) ->
    Text = iolist_to_binary(halley_metrics:render()),
    case re:run(Text, ["(?m)^\\Q", Line, "\\E ([0-9]+)$"], [{capture, all_but_first, list}]) of
        {match, [Value]} -> list_to_integer(Value);
        nomatch -> none
    end.

sum_of_workers() ->
    [ok = says(linked(I), [?SENT, ?OPEN], [10 * I, I]) || I <- [1, 2]],
    ?assertEqual(30, value("halley_edge_sent_total")),
    ?assertEqual(3, value("halley_edge_connections")).

gone_worker() ->
    [One, Two] = [linked(I) || I <- [1, 2]],
    [ok = says(Slot, [?SENT, ?OPEN], [10, 1]) || Slot <- [One, Two]],
    ok = halley_metrics:edge_gone(One),
    ok = halley_metrics:edge_gone(One),
    ?assertEqual(20, value("halley_edge_sent_total")),
    ?assertEqual(1, value("halley_edge_connections")).

worker_comes_back() ->
    One = linked(1),
    ok = says(One, [?SENT], [10]),
    ok = halley_metrics:edge_gone(One),
    ok = says(linked(1), [?SENT], [15]),
    ?assertEqual(15, value("halley_edge_sent_total")).

many_gone_workers() ->
    lists:foreach(fun(I) ->
                      true = ets:insert(halley_metrics_edge,
                                        {{worker, {200, I}}, gone, [?SENT, ?OPEN], [1, 1]})
                  end, lists:seq(1, 2000)),
    One = linked(1),
    ok = says(One, [?SENT, ?OPEN], [5, 1]),
    ok = halley_metrics:edge_gone(One),
    ?assertEqual(2005, value("halley_edge_sent_total")),
    ?assertEqual(none, value("halley_edge_connections")),
    ?assert(ets:info(halley_metrics_edge, size) < 5).

%% What is left out is counted, and the others go on.
many_lists() ->
    Lists = [[{<<"halley_edge_", (integer_to_binary(N))/binary>>, counter, <<>>}]
             || N <- lists:seq(1, 18)],
    Slots = [linked(N) || N <- lists:seq(1, 18)],
    [ok = says(Slot, List, [7]) || {Slot, List} <- lists:zip(Slots, Lists)],
    ?assertEqual(2, value("halley_metric_lists_refused_total")),
    ?assertEqual([7, none], [value(Line) || Line <- ["halley_edge_16", "halley_edge_17"]]),
    [ok = halley_metrics:edge_gone(Slot) || Slot <- Slots],
    ok = says(linked(1), hd(Lists), [8]),
    ?assertEqual(8, value("halley_edge_1")).

%% https://prometheus.io/docs/instrumenting/exposition_formats/
text() ->
    ok = says(linked(1), [?SENT], [1]),
    Text = iolist_to_binary(halley_metrics:render()),
    Lines = binary:split(Text, <<"\n">>, [global, trim]),
    [?assertMatch({match, _}, re:run(Line, form(Line))) || Line <- Lines],
    Types = [Line || <<"# TYPE ", Line/binary>> <- Lines],
    ?assertEqual(lists:usort(Types), lists:sort(Types)),
    Sent = <<"# HELP halley_edge_sent_total Events \\\\ sent\\nto clients\n"
             "# TYPE halley_edge_sent_total counter\n">>,
    ?assertNotEqual(nomatch, string:find(Text, Sent)),
    [?assertNotEqual(nomatch, string:find(Text, ["\n# TYPE ", Metric, $\s]))
     || {_, Full, _, _} <- tl(halley_metrics:table()), Metric <- [hd(string:split(Full, "{"))]].

form(<<"# HELP", _/binary>>) -> "^# HELP [a-z][a-z0-9_]* .+$";
form(<<"# TYPE", _/binary>>) -> "^# TYPE [a-z][a-z0-9_]* (counter|gauge)$";
form(_) -> "^[a-z][a-z0-9_]*(\\{[a-z]+=\"[a-z_]+\"\\})? [0-9]+$".

counts() ->
    ok = halley_metrics:incr(deliveries, 5),
    ok = halley_metrics:incr(deliveries),
    ok = halley_metrics:incr(refused_overloaded),
    ?assertEqual(6, value("halley_deliveries_total")),
    ?assertEqual(1, value("halley_events_refused_total{reason=\"overloaded\"}")),
    ?assertEqual(42, value("halley_ids")),
    ?assertEqual(43, value("halley_follows")).

silent_worker() ->
    Slot = linked(1),
    ok = halley_metrics:edge_gone(Slot),
    ok = says(Slot, [?SENT], [1]),
    ?assertEqual(none, value("halley_edge_sent_total")).

%% So that what it shows together is of one moment.
asked_once() ->
    Asked = counters:new(1, []),
    ok = halley_metrics:gauges([ids, follows], fun() ->
        ok = counters:add(Asked, 1, 1),
        #{ids => counters:get(Asked, 1), follows => counters:get(Asked, 1)}
    end),
    Text = iolist_to_binary(halley_metrics:render()),
    [?assertNotEqual(nomatch, string:find(Text, ["\n", Metric, " 1\n"]))
     || Metric <- ["halley_ids", "halley_follows"]].

%% They are left out, alone, and told once until they are well again.
broken_gauges() ->
    Is = counters:new(1, []),
    ok = halley_metrics:gauges([ids, follows], fun() ->
        case counters:get(Is, 1) of
            0 -> error(starts_anew);
            _ -> #{ids => 7}
        end
    end),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{pid => self()}}),
    Shown = fun() ->
        [value(Metric) || Metric <- ["halley_ids", "halley_follows", "halley_remote_sessions"]]
    end,
    _ = Shown(),
    ?assertEqual([none, none, 0], Shown()),
    ?assertEqual(1, logged()),
    %% One that is missing is left out alone.
    ok = counters:add(Is, 1, 1),
    ?assertEqual([7, none, 0], Shown()),
    ok = counters:sub(Is, 1, 1),
    _ = Shown(),
    ?assertEqual(1, logged()),
    ok = logger:remove_handler(?MODULE).

log(#{level := warning, msg := {Format, _}}, #{config := #{pid := Pid}}) -> Pid ! {logged, Format};
log(_, _) -> ok.

logged() -> receive {logged, _} -> 1 + logged() after 0 -> 0 end.
