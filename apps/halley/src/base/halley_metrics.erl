%% Metrics: what is counted, in one table, and the text that Prometheus scrapes.
%%
%% A row is {Name, Metric, Kind, Help}. `incr/1,2' counts by Name. Rows of applications above the
%% brain are in their parts (`halley_part'), and come last. Gauges are computed when they are
%% scraped, by funs that their owners registered (`gauges/2'): this module calls no other part of
%% the brain, since all of them call it. A gauge without an owner isn't shown, nor one whose owner's
%% fun fails, as while the owner starts anew: that is logged, once until it is well again. Rows
%% with the same Metric and different labels stand together.
%%
%% The edge's metrics come from its workers, by link (STATS, link.md 3.4). A worker's counters are
%% its own since it began, so they are kept by worker, not by link, and shown as the sum of all
%% workers: a worker that lost its link and came back isn't counted twice, and a worker that is
%% gone stays in the sum. So no counter goes backwards. Gauges are the sum over the workers that
%% are linked now.
%%
%% It judges no names: the link does, before it hands them over. A link's list of definitions gets a
%% number at the handshake (`definitions/1'). Equal lists are kept once, and at most ?LISTS_MAX
%% lists: an edge with another list at each handshake can fill neither the memory nor the page.
-module(halley_metrics).

-export([new/0, table/0, incr/1, incr/2, gauges/2, render/0, values/0, workers/0]).
-export([edge_came/2, edge_gone/1, definitions/1, edge/3]).
-export_type([name/0, kind/0, counter/0, gauge/0, list_number/0]).

-include_lib("kernel/include/logger.hrl").

-type name() :: atom().
-type kind() :: counter | gauge.
%% Rows of tables. What an owner counts itself is a gauge as well, as it is read like one; its
%% metric ends in `_total'.
-type counter() :: {name(), Metric :: string(), counter, Help :: string()}.
-type gauge() :: {name(), Metric :: string(), Help :: string()}.
%% One value, or one for each of several labels.
-type value() :: integer() | [{Labels :: iodata(), integer()}].
-type definition() :: {Name :: binary(), kind(), Help :: binary()}.
%% `none': there were too many lists; what is counted by this one isn't shown.
-type list_number() :: non_neg_integer() | none.

-define(EDGE, halley_metrics_edge).
-define(COUNTERS, {?MODULE, counters}).
-define(GAUGE(Name), {?MODULE, gauge, Name}).
%% Gone workers that are remembered one by one; more are folded into one row.
-define(GONE_MAX, 1024).
%% One for each version of the edge that came since the brain began; values of more aren't shown.
-define(LISTS_MAX, 16).

-spec table() -> [{name(), Metric :: string(), kind(), Help :: string()}].
table() ->
    counters_table() ++ [{Name, Metric, kind(Metric), Help}
                         || {Name, Metric, Help} <- gauges_table()].

kind(Metric) ->
    case lists:suffix("_total", Metric) of
        true -> counter;
        false -> gauge
    end.

counters_table() ->
    [{events_published, "halley_events_published_total", counter, "Events accepted"},
     {deliveries, "halley_deliveries_total", counter, "Sessions that events were sent to"},
     {group_events, "halley_group_events_total", counter, "Events sent to groups"},
     {group_deliveries, "halley_group_deliveries_total", counter,
      "Sessions that events were sent to as members of a group"},
     {events_private, "halley_events_private_total", counter,
      "Of the published events those that were for the users they named, and for no followers"},
     {events_repeated, "halley_events_repeated_total", counter,
      "Events whose id was published before; the first answer was given again"},
     {history_events, "halley_history_events_written_total", counter,
      "Events written to the history"},
     {history_bytes, "halley_history_bytes_written_total", counter,
      "Bytes written to the history"},
     {history_commits, "halley_history_commits_total", counter,
      "Groups of events that were synced to disk together"},
     {history_errors, "halley_history_errors_total", counter,
      "Groups of events that could not be written"},
     {history_moved, "halley_history_moved_total", counter,
      "Groups of events that were refused because data.dir was moved, removed or replaced"},
     {users_forgotten, "halley_users_forgotten_total", counter, "Users that were forgotten"},
     {history_damaged, "halley_history_damaged_records_total", counter,
      "Records of the history that could not be read back"},
     {history_waits, "halley_history_descriptor_waits_total", counter,
      "Waits of 100 ms for a free descriptor to read the history with"},
     {position_errors, "halley_position_errors_total", counter,
      "Notes of how far the files had come that could not be written"},
     {replays, "halley_replays_total", counter, "Sessions that came back with a cursor"},
     {replayed_events, "halley_replayed_events_total", counter,
      "Events sent to sessions that had missed them"},
     {catchups, "halley_catchups_total", counter,
      "Links that were sent the events that they had missed"},
     {catchup_events, "halley_catchup_events_total", counter,
      "Events that links were sent again or late"},
     {past_pages, "halley_past_pages_total", counter,
      "Pages of subjects' pasts that were read"},
     {past_events, "halley_past_events_total", counter, "Events in such pages"},
     {metric_lists_refused, "halley_metric_lists_refused_total", counter,
      "Links whose worker's metrics aren't shown, as it named another list of them than all that "
      "are kept"},
     {links_behind, "halley_links_behind_total", counter,
      "Times that a link's queue was full"},
     {token_keys_changes, "halley_token_keys_changes_total", counter,
      "Times that the keys of clients' tokens were replaced"},
     {token_keys_errors, "halley_token_keys_errors_total", counter,
      "Times that the file of the keys of clients' tokens could not be used"},
     {ids_freed, "halley_ids_freed_total", counter,
      "Ids that nothing referred to and whose numbers were given back"},
     {checkpoint_failures, "halley_store_checkpoint_failures_total", counter,
      "Checkpoints of follows and ids that could not be written; the journal has everything"},
     {server_keys_errors, "halley_server_keys_errors_total", counter,
      "Times that the file of the server keys could not be used"},
     {gap_too_old, "halley_gaps_total{reason=\"too_old\"}", counter, "Gaps sent, by reason"},
     {gap_malformed, "halley_gaps_total{reason=\"malformed\"}", counter, "Gaps sent, by reason"},
     {gap_other_store, "halley_gaps_total{reason=\"other_store\"}", counter,
      "Gaps sent, by reason"},
     {gap_damaged, "halley_gaps_total{reason=\"damaged\"}", counter, "Gaps sent, by reason"}]
    ++ refusals_table() ++ past_table()
    ++ lists:append([Part:counters() || {_, Part} <- halley_part:all()]).

refusals_table() ->
    [{Name, "halley_requests_refused_total{reason=\"" ++ atom_to_list(Name) ++ "\"}", counter,
      "Requests refused for lack of a key, a scope or a right, or for too many of them, by reason"}
     || Name <- [key_missing, key_unknown, key_too_often, scope_missing, right_missing,
                user_too_often]]
    ++ [{Name, "halley_requests_failed_total{reason=\"" ++ Reason ++ "\"}", counter,
         "Requests whose handler failed, by reason: what it asked had just ended, or a mistake in "
         "it, which the log has"}
        || {Name, Reason} <- [{requests_unavailable, "unavailable"},
                              {requests_internal, "internal"}]]
    ++ [{Name, "halley_links_broken_total{reason=\"" ++ Reason ++ "\"}", counter,
         "Links that were closed because their worker broke a clause of the protocol, by reason"}
        || {Name, Reason} <- [{link_bad_frame, "bad_frame"}, {link_version, "version"},
                              {link_handshake, "handshake"}, {link_silence, "silence"},
                              {link_flow_control, "flow_control"},
                              {link_overloaded, "overloaded"}]]
    ++ [{sessions_refused, "halley_sessions_over_limit_total{done=\"refused\"}", counter,
         "Sessions that were one too many for their user, by what was done: the new one was "
         "refused, or the oldest replaced"},
        {sessions_replaced, "halley_sessions_over_limit_total{done=\"replaced\"}", counter,
         "Sessions that were one too many for their user, by what was done: the new one was "
         "refused, or the oldest replaced"},
        {sessions_gone, "halley_sessions_gone_total", counter,
         "Sessions refused with 503 as their user's number was given back just then"},
        {presence_owed, "halley_presence_owed_total", counter,
         "Changes of presence that a link had no room for: it gets the state later"},
        {states_refused, "halley_session_states_refused_total", counter,
         "States of sessions refused: they have more bytes than session_state_bytes_max"},
        {subscriptions_refused, "halley_subscriptions_refused_total", counter,
         "Subscriptions refused: their session has subscriptions_per_session_max, or all together "
         "subscriptions_max"},
        {revocations_refused, "halley_revocations_refused_total", counter,
         "Revocations of a user's tokens refused: all together have revocations_bytes_max"},
        {users_refused, "halley_users_refused_total", counter,
         "Sessions refused because their user has no number and ids_max has no room"}]
    ++ [{Name, "halley_follows_refused_total{reason=\"" ++ Reason ++ "\"}", counter,
         "Follows refused, by reason: their users follow as many as they may; ids_max has no room "
         "for new ids that follows name; a user has named as many new ids as it may; or, whole "
         "requests, the store takes no changes"}
        || {Name, Reason} <- [{too_many_follows, "too_many_follows"},
                              {too_many_ids, "too_many_ids"},
                              {too_many_new_ids, "too_many_new_ids"},
                              {follows_store_refuses, "store"}]]
    ++ [{Name, "halley_events_refused_total{reason=\"" ++ Reason ++ "\"}", counter,
         "Events refused, by reason"}
        || {Name, Reason} <- [{refused_bad_id, "bad_id"}, {refused_bad_data, "bad_data"},
                              {refused_bad_option, "bad_option"},
                              {refused_data_too_large, "data_too_large"},
                              {refused_overloaded, "overloaded"},
                              {refused_history, "history"},
                              {refused_kept, "kept"},
                              {refused_own_kept, "own_kept"},
                              {refused_unavailable, "unavailable"}]].

%% Of what one event is about, and of what was before.
past_table() ->
    [{events_joint, "halley_events_joint_total", counter,
      "Of the published events those about several subjects"},
     {status_refused, "halley_status_refused_total", counter,
      "Readers of /v1/status or its stream that were refused, as limits.status_readers_max are "
      "there already"},
     {forgets_refused, "halley_forgets_refused_total", counter,
      "Users that were not deleted, as limits.forgotten_users_max still have traces"}].

gauges_table() ->
    [{vm_memory, "halley_vm_memory_bytes", "Memory of the Erlang node by kind"},
     {vm_processes, "halley_vm_processes", "Erlang processes"},
     {vm_run_queue, "halley_vm_run_queue", "Processes and ports that are ready to run"},
     {uptime, "halley_uptime_seconds", "Time since the Erlang node started"},
     {ids, "halley_ids", "Ids that have a user number"},
     {ids_leaving, "halley_ids_leaving",
      "Ids that nothing refers to and whose numbers are given again soon"},
     {ids_waiting, "halley_ids_waiting",
      "Freed user numbers that aren't given again before two checkpoints of the follows have "
      "succeeded"},
     {follows, "halley_follows", "Follows stored"},
     {store_refusing, "halley_store_refusing",
      "1 while the store takes no changes of follows: its disk refuses, or data.dir was moved"},
     {store_damaged, "halley_store_damaged_files",
      "Files of the store that were damaged at the start, and that others made up for"},
     {users, "halley_users_online", "Users with at least one session"},
     {sessions, "halley_sessions", "Sessions of all users"},
     {presence_subjects, "halley_presence_subjects",
      "Subjects whose presence is sent live; presence=* counts as one"},
     {session_states, "halley_session_states", "Sessions that have a state of their own"},
     {subscriptions, "halley_subscriptions", "Subscriptions of all sessions"},
     {subscribed_sessions, "halley_subscribed_sessions",
      "Sessions with subscriptions, those of visitors among them"},
     {status_streams, "halley_status_streams",
      "Streams of /v1/status/stream, the consoles' among them"},
     {revocations, "halley_revocations", "Users whose tokens are revoked"},
     {groups, "halley_groups", "Subjects that the workers hold as groups"},
     {group_members, "halley_group_members", "Members of all groups"},
     {group_marks, "halley_group_marks", "Changes of groups that wait to be sent to the workers"},
     {links, "halley_links", "Workers linked to the brain"},
     {link_queue, "halley_link_queue_bytes", "Bytes that wait for all links"},
     {history, "halley_history_events", "Events in the history"},
     {history_disk, "halley_history_bytes", "Bytes of the history on disk"},
     {history_age, "halley_history_age_seconds", "Age of the oldest event in the history"},
     {history_queue, "halley_history_queue_bytes", "Bytes that wait to be written to the history"},
     {kept, "halley_kept_values", "Subjects whose latest value is kept beyond the retention"},
     {kept_bytes, "halley_kept_bytes", "Memory of these values; see limits.kept_bytes_max"},
     {forgotten, "halley_history_forgotten_users",
      "Users that were forgotten and have traces left in the history, which are shown to no "
      "client"},
     {shard_queue, "halley_shard_queue_events", "Events that wait for all shards"}]
    ++ lists:append([Part:gauges() || {_, Part} <- halley_part:all()]).

of_node() ->
    #{vm_memory => [{["kind=\"", atom_to_list(Kind), $"], Bytes}
                    || {Kind, Bytes} <- erlang:memory()],
      vm_processes => erlang:system_info(process_count),
      vm_run_queue => erlang:statistics(total_run_queue_lengths),
      uptime => element(1, erlang:statistics(wall_clock)) div 1000}.

%% Makes the counters and the table of the edge's metrics. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?EDGE = ets:new(?EDGE, [named_table, public]),
    Names = [Name || {Name, _, _, _} <- counters_table()],
    Counters = counters:new(length(Names), [write_concurrency]),
    Index = maps:from_list(lists:zip(Names, lists:seq(1, length(Names)))),
    persistent_term:put(?COUNTERS, {Counters, Index}),
    %% Of a brain before, whose tables have gone with it.
    _ = [persistent_term:erase(?GAUGE(Name)) || {Name, _, _} <- gauges_table()],
    gauges([vm_memory, vm_processes, vm_run_queue, uptime], fun of_node/0).

-spec incr(name()) -> ok.
incr(Name) ->
    incr(Name, 1).

-spec incr(name(), non_neg_integer()) -> ok.
incr(Name, N) ->
    {Counters, Index} = persistent_term:get(?COUNTERS),
    counters:add(Counters, map_get(Name, Index), N).

%% Registers the owner's fun for these gauges: `Values' gives all of them, and is called for each
%% scrape in the process that scrapes. To be called once, when what it reads is made; it needs no
%% `new/0'.
-spec gauges([name(), ...], Values :: fun(() -> #{name() => value()})) -> ok.
gauges(Names, Values) ->
    lists:foreach(fun(Name) -> persistent_term:put(?GAUGE(Name), Values) end, Names).

%% --- the edge's metrics ------------------------------------------------------------------------

%% A worker was linked. It is its edge's pid and its index there, as far as its link says so.
-spec edge_came(Slot :: pos_integer(), Info :: map()) -> ok.
edge_came(Slot, Info) ->
    Worker = case Info of
        #{pid := Pid, worker := Index} -> {Pid, Index};
        _ -> make_ref()
    end,
    true = ets:insert(?EDGE, {{slot, Slot}, Worker}),
    ok.

%% The number of a list of definitions. One that isn't kept is counted.
-spec definitions([definition()]) -> list_number().
definitions(Definitions) ->
    case ets:match(?EDGE, {{list, '$1'}, Definitions}) of
        [[List] | _] -> List;
        [] -> new_list(Definitions, ets:select_count(?EDGE, [{{{list, '_'}, '_'}, [], [true]}]))
    end.

%% Two links that do this at once may write one list twice, or one place; what is in a place then
%% counts for both, so it is looked at again.
new_list(Definitions, N) when N < ?LISTS_MAX ->
    Copy = [{binary:copy(Name), Kind, binary:copy(Help)} || {Name, Kind, Help} <- Definitions],
    case ets:insert_new(?EDGE, {{list, N}, Copy}) of
        true -> N;
        false -> definitions(Definitions)
    end;
new_list(_, _) ->
    ok = incr(metric_lists_refused),
    none.

%% What the worker at this link counts now; values stand in the order of the definitions.
-spec edge(Slot :: pos_integer(), list_number(), [non_neg_integer()]) -> ok.
edge(_, none, _) ->
    ok;
edge(Slot, List, Values) ->
    %% A link may end before what it said is taken.
    _ = [ets:insert(?EDGE, {{worker, Worker}, live, List, Values})
         || {_, Worker} <- ets:lookup(?EDGE, {slot, Slot})],
    ok.

%% A link ended.
-spec edge_gone(Slot :: pos_integer()) -> ok.
edge_gone(Slot) ->
    _ = [ets:update_element(?EDGE, {worker, Worker}, {2, gone})
         || {_, Worker} <- ets:take(?EDGE, {slot, Slot})],
    fold_gone(ets:select_count(?EDGE, [{{{worker, '_'}, gone, '_', '_'}, [], [true]}])).

fold_gone(N) when N =< ?GONE_MAX ->
    ok;
fold_gone(_) ->
    Gone = ets:select(?EDGE, [{{{worker, '_'}, gone, '_', '_'}, [], ['$_']}]),
    Sums = sums(Gone, #{}),
    Definitions = [{Name, Kind, Help} || {Name, {Kind, Help, _}} <- maps:to_list(Sums)],
    Values = [Value || {_, {_, _, Value}} <- maps:to_list(Sums)],
    lists:foreach(fun({Key, _, _, _}) -> ets:delete(?EDGE, Key) end, Gone),
    true = ets:insert(?EDGE, {{worker, folded}, gone, Definitions, Values}),
    ok.

sums([], Sums) ->
    Sums;
sums([{Key, State, List, Values} | Rows], Sums) when is_integer(List) ->
    [{_, Definitions}] = ets:lookup(?EDGE, {list, List}),
    sums([{Key, State, Definitions, Values} | Rows], Sums);
sums([{_, State, Definitions, Values} | Rows], Sums) ->
    Shown = [{D, V} || {{_, Kind, _} = D, V} <- lists:zip(Definitions, Values),
                       State =:= live orelse Kind =:= counter],
    sums(Rows, lists:foldl(fun add/2, Sums, Shown)).

add({{Name, Kind, Help}, Value}, Sums) ->
    case Sums of
        #{Name := {Kind, Help0, Sum}} -> Sums#{Name := {Kind, Help0, Sum + Value}};
        #{Name := _} -> Sums;
        #{} -> Sums#{Name => {Kind, Help, Value}}
    end.

%% --- values ------------------------------------------------------------------------------------

%% Every value by the name that Prometheus sees, labels included.
-spec values() -> #{binary() => integer()}.
values() ->
    maps:from_list([{iolist_to_binary([Name, Labels]), Value}
                    || {Name, Labels, _, _, Value} <- samples()]).

%% What each worker that is linked now has said last.
-spec workers() -> #{Slot :: pos_integer() => #{binary() => non_neg_integer()}}.
workers() ->
    maps:from_list([{Slot, of_worker(Worker)}
                    || {{slot, Slot}, Worker} <- ets:match_object(?EDGE, {{slot, '_'}, '_'})]).

of_worker(Worker) ->
    Sums = sums(ets:lookup(?EDGE, {worker, Worker}), #{}),
    maps:map(fun(_, {_, _, Value}) -> Value end, Sums).

%% --- text --------------------------------------------------------------------------------------

%% Prometheus' text format, version 0.0.4.
-spec render() -> iodata().
render() ->
    families(samples()).

samples() ->
    counter_samples() ++ gauge_samples() ++ edge_samples().

counter_samples() ->
    {Counters, Index} = persistent_term:get(?COUNTERS),
    [sample(Metric, counter, Help, counters:get(Counters, map_get(Name, Index)))
     || {Name, Metric, _, Help} <- counters_table()].

gauge_samples() ->
    Known = [{Metric, Help, Name, Values}
             || {Name, Metric, Help} <- gauges_table(),
                Values <- [persistent_term:get(?GAUGE(Name), unknown)], Values =/= unknown],
    Owners = lists:usort([Values || {_, _, _, Values} <- Known]),
    Said = maps:from_list([{Values, said(Values)} || Values <- Owners]),
    lists:append([gauge(Metric, Help, maps:get(Name, map_get(Values, Said), []))
                  || {Metric, Help, Name, Values} <- Known]).

%% Nothing of an owner whose fun fails; the others are shown.
said(Values) ->
    try Values() of
        #{} = Said ->
            true = ets:delete(?EDGE, {failed, Values}),
            Said
    catch
        Class:Reason ->
            _ = [?LOG_WARNING("gauges are left out of the metrics: ~0tP", [{Class, Reason}, 20])
                 || ets:insert_new(?EDGE, {{failed, Values}})],
            #{}
    end.

gauge(Metric, Help, Values) when is_list(Values) ->
    [{Metric, ["{", Labels, "}"], kind(Metric), Help, Value} || {Labels, Value} <- Values];
gauge(Metric, Help, Value) ->
    [{Metric, "", kind(Metric), Help, Value}].

edge_samples() ->
    Rows = ets:select(?EDGE, [{{{worker, '_'}, '_', '_', '_'}, [], ['$_']}]),
    [{Name, "", Kind, Help, Value}
     || {Name, {Kind, Help, Value}} <- lists:sort(maps:to_list(sums(Rows, #{})))].

sample(Metric, Kind, Help, Value) ->
    {Name, Labels} = lists:splitwith(fun(C) -> C =/= ${ end, Metric),
    {Name, Labels, Kind, Help, Value}.

families(Samples) ->
    families(Samples, none).

families([], _) ->
    [];
families([{Name, Labels, _, _, Value} | Samples], Name) ->
    [line(Name, Labels, Value) | families(Samples, Name)];
families([{Name, Labels, Kind, Help, Value} | Samples], _) ->
    [["# HELP ", Name, $\s, escape_help(Help), "\n# TYPE ", Name, $\s, atom_to_list(Kind), $\n,
      line(Name, Labels, Value)] | families(Samples, Name)].

line(Name, Labels, Value) ->
    [Name, Labels, $\s, integer_to_list(Value), $\n].

escape_help(Help) ->
    [case C of $\\ -> "\\\\"; $\n -> "\\n"; _ -> C end
     || C <- unicode:characters_to_list(Help)].
