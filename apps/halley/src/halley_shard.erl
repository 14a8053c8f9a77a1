%% A shard: one order for every subject that hashes to it.
%%
%% For each event, in this order:
%%   1. draw its seq from the history, which moves the shard's head;
%%   2. look up who is online and send it to them (`halley_fanout');
%%   3. hand it to the history's log, together with who waits for an answer.
%% So whoever opens a session and reads the heads afterwards knows that events above them find the
%% session, and that the others are, or soon will be, in the log (docs/internals/delivery.md). The
%% fan-out doesn't wait for the disk; a publisher that asked for `disk' does, and the log answers.
%%
%% Four times a second, if anything was published anywhere, and when asked by `mark_all/0', a shard
%% says how far it is: its head moves to the counter and every link is told. Events and marks are
%% sent to links from here alone, so they stay in order; and so is what concerns the members of its
%% groups (`halley_groups_shard').
%%
%% Invariants: a subject belongs to one shard, always the same (`halley_shards'), so what a follower
%% gets about a subject comes in the order of the answers. Events that wait for a shard are counted
%% before they are sent to it, and never more than `shard_queue_events_max'. A publisher that dies
%% in between leaves its events counted: the shard takes them off when, over ?LEFT_LOOKS looks with
%% nothing in its mailbox, the count never was below them.
%%
%% It checks nothing: `halley_router' did. It keeps nothing that another couldn't begin with, so a
%% killed shard loses no more than the events that waited for it, and their publishers are told.
%% What it had sent may be overtaken by what the next one sends, so that one begins by leaving all
%% links to the history.
-module(halley_shard).
-behaviour(gen_server).

-export([new/0, start_link/1]).
-export([publish/3, publish_all/1, queued/0, mark_all/0, settle/2, group/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([result/0, answer/0, ack/0]).

%% One count of waiting events for each shard, then one flag each: a mark is asked for already; then
%% one more: that groups be settled.
-define(QUEUED, {?MODULE, queued}).
-define(ASKED(Shard), (halley_shards:count() + (Shard))).
-define(ASKED_TO_SETTLE(Shard), (2 * halley_shards:count() + (Shard))).
-define(MARK_MS, 250).
%% Ten seconds of marks: longer than a publisher is on its way from counting to sending. If one ever
%% takes longer, the count falls below zero when its events have come, and is set right again.
-define(LEFT_LOOKS, 40).
%% Words. Room for a batch of events and its receivers: fewer collections that find nothing.
-define(HEAP, [{min_heap_size, 16384}, {min_bin_vheap_size, 131072}]).

-type index() :: halley_shards:index().
%% What a publisher waits for: that the event is on its way, or that it is on disk as well.
-type ack() :: memory | disk.
-type result() :: #{id := halley_event:id(), sessions := non_neg_integer()}.
%% `busy': the id that was chosen is being published just now; ask again for its answer.
%% `unavailable': the shard or the log died or was too slow, and some or all of the drafts may have
%% been published. `history_failed', `disk_full', `data_dir_moved': the same; the disk is why.
-type answer() :: {ok, [result() | busy]} | {error, error()}.
-type error() :: overloaded | unavailable | history_failed | disk_full | data_dir_moved.
-record(state, {shard :: index(), id_prefix :: halley_event:id_prefix(),
                marked = 0 :: halley_cursor:seq(),
                groups :: halley_groups_shard:groups(),
                %% Looks at an empty mailbox, and the lowest count of them.
                looks = 0 :: non_neg_integer(), lowest = infinity :: integer() | infinity}).

%% Makes the counts of waiting events.
-spec new() -> ok.
new() ->
    persistent_term:put(?QUEUED, atomics:new(3 * halley_shards:count(), [])),
    halley_metrics:gauges([shard_queue], fun() -> #{shard_queue => queued()} end).

-spec start_link(index()) -> gen_server:start_ret().
start_link(Shard) ->
    gen_server:start_link({local, name(Shard)}, ?MODULE, Shard, [{spawn_opt, ?HEAP}]).

%% Publishes drafts of subjects of this shard, in order; results are in the same order.
-spec publish(index(), ack(), [halley_event:draft()]) -> answer().
publish(Shard, Ack, Drafts) ->
    case reserve(Shard, length(Drafts)) of
        true ->
            try gen_server:call(name(Shard), {publish, Ack, Drafts},
                                halley_limits:get(publish_ms_max))
            catch exit:_ -> {error, unavailable}
            end;
        false ->
            {error, overloaded}
    end.

%% The same for several shards at once, so that they wait for the disk together.
-spec publish_all([{index(), ack(), [halley_event:draft()]}]) -> [answer()].
publish_all([{Shard, Ack, Drafts}]) ->
    [publish(Shard, Ack, Drafts)];
publish_all(Requests) ->
    Until = erlang:monotonic_time(millisecond) + halley_limits:get(publish_ms_max),
    [answer(Sent, Until) || Sent <- [send_request(Request) || Request <- Requests]].

send_request({Shard, Ack, Drafts}) ->
    case reserve(Shard, length(Drafts)) of
        true -> gen_server:send_request(name(Shard), {publish, Ack, Drafts});
        false -> overloaded
    end.

answer(overloaded, _) ->
    {error, overloaded};
answer(Request, Until) ->
    TimeoutMs = max(0, Until - erlang:monotonic_time(millisecond)),
    case gen_server:receive_response(Request, TimeoutMs) of
        {reply, Answer} -> Answer;
        _ -> {error, unavailable}
    end.

reserve(Shard, N) ->
    Queued = persistent_term:get(?QUEUED),
    case atomics:add_get(Queued, Shard, N) > halley_limits:get(shard_queue_events_max) of
        true ->
            ok = atomics:sub(Queued, Shard, N),
            false;
        false ->
            true
    end.

%% Events that wait for all shards together.
-spec queued() -> non_neg_integer().
queued() ->
    Queued = persistent_term:get(?QUEUED),
    lists:foldl(fun(Shard, Sum) -> Sum + max(0, atomics:get(Queued, Shard)) end,
                0, lists:seq(1, halley_shards:count())).

%% Asks all shards to mark their places now: every link that isn't behind gets a mark of each.
-spec mark_all() -> ok.
mark_all() ->
    Flags = persistent_term:get(?QUEUED),
    lists:foreach(fun(Shard) ->
                      atomics:exchange(Flags, ?ASKED(Shard), 1) =:= 0
                          andalso gen_server:cast(name(Shard), mark)
                  end, lists:seq(1, halley_shards:count())).

%% Marks were left for groups of this shard. `wait' returns when it has dealt with some.
-spec settle(index(), wait | no_wait) -> ok.
settle(Shard, no_wait) ->
    Flags = persistent_term:get(?QUEUED),
    _ = atomics:exchange(Flags, ?ASKED_TO_SETTLE(Shard), 1) =:= 0
        andalso gen_server:cast(name(Shard), settle),
    ok;
settle(Shard, wait) ->
    ok = settle(Shard, no_wait),
    %% A shard that is dying or late has had its marks kept.
    try gen_server:call(name(Shard), settle, halley_limits:get(publish_ms_max))
    catch exit:_ -> ok
    end.

%% For `halley_groups'.
-spec group(index(), halley_groups_shard:request()) -> ok.
group(Shard, Request) ->
    gen_server:cast(name(Shard), {group, Request}).

name(1) -> halley_shard_1;
name(2) -> halley_shard_2;
name(3) -> halley_shard_3;
name(4) -> halley_shard_4;
name(5) -> halley_shard_5;
name(6) -> halley_shard_6;
name(7) -> halley_shard_7;
name(8) -> halley_shard_8.

-spec init(index()) -> {ok, #state{}}.
init(Shard) ->
    Words = persistent_term:get(?QUEUED),
    ok = atomics:put(Words, Shard, 0),
    ok = atomics:put(Words, ?ASKED(Shard), 0),
    ok = atomics:put(Words, ?ASKED_TO_SETTLE(Shard), 0),
    ok = halley_links:leave_to_history(),
    ok = halley_history:shard_started(Shard),
    Groups = halley_groups_shard:new(Shard),
    ok = halley_groups:shard_started(Shard),
    mark_later(),
    {ok, #state{shard = Shard, id_prefix = halley_event:id_prefix(halley_history:store()),
                groups = Groups}}.

-spec handle_call({publish, ack(), [halley_event:draft()]} | settle, gen_server:from(), #state{}) ->
    {noreply, #state{}} | {reply, ok, #state{}}.
handle_call({publish, Ack, Drafts}, From, State = #state{shard = Shard}) ->
    ok = atomics:sub(persistent_term:get(?QUEUED), Shard, length(Drafts)),
    {Results, Entries, Next} = publish_drafts(Drafts, State, [], []),
    ok = count(Entries),
    ok = answer(Ack, Shard, From, Results, Entries),
    {noreply, Next};
handle_call(settle, _, State) ->
    {reply, ok, settle_some(State)}.

-spec handle_cast(mark | settle | {group, halley_groups_shard:request()}, #state{}) ->
    {noreply, #state{}}.
handle_cast(settle, State = #state{shard = Shard}) ->
    ok = atomics:put(persistent_term:get(?QUEUED), ?ASKED_TO_SETTLE(Shard), 0),
    {noreply, settle_some(State)};
handle_cast({group, Request}, State = #state{groups = Groups}) ->
    {noreply, grouped(halley_groups_shard:handle(Request, Groups), State)};
handle_cast(mark, State = #state{shard = Shard}) ->
    %% Cleared first: who asks from now on is served by the next one.
    ok = atomics:put(persistent_term:get(?QUEUED), ?ASKED(Shard), 0),
    {noreply, mark(State)}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(mark, State = #state{marked = Marked}) ->
    mark_later(),
    Looked = take_off_what_was_left(State),
    case lists:max(tuple_to_list(halley_history:heads())) of
        Marked -> {noreply, Looked};
        _ -> {noreply, mark(Looked)}
    end;
handle_info(_, State) ->
    {noreply, State}.

take_off_what_was_left(State = #state{shard = Shard, looks = Looks, lowest = Lowest}) ->
    Queued = persistent_term:get(?QUEUED),
    case {process_info(self(), message_queue_len), atomics:get(Queued, Shard)} of
        {{message_queue_len, 0}, Count} when Count < 0 ->
            ok = atomics:sub(Queued, Shard, Count),
            State#state{looks = 0, lowest = infinity};
        {{message_queue_len, 0}, Count} when Looks < ?LEFT_LOOKS ->
            State#state{looks = Looks + 1, lowest = min(Count, Lowest)};
        {{message_queue_len, 0}, Count} ->
            ok = atomics:sub(Queued, Shard, min(Count, Lowest)),
            State#state{looks = 0, lowest = infinity};
        _ ->
            State
    end.

mark_later() ->
    _ = erlang:send_after(?MARK_MS, self(), mark),
    ok.

mark(State = #state{shard = Shard}) ->
    Seq = halley_history:mark(Shard),
    ok = halley_links:mark(Shard, Seq),
    State#state{marked = Seq}.

%% What is left is for later: behind the publishes that wait.
settle_some(State = #state{shard = Shard, groups = Groups}) ->
    {More, Settled} = halley_groups_shard:settle_some(Groups),
    _ = More =:= more andalso settle(Shard, no_wait),
    grouped(Settled, State).

grouped(Groups, State = #state{shard = Shard}) ->
    ok = halley_groups:members(Shard, halley_groups_shard:members(Groups)),
    State#state{groups = Groups}.

publish_drafts([], State, Results, Entries) ->
    {lists:reverse(Results), lists:reverse(Entries), State};
publish_drafts([Draft | Drafts], State, Results, Entries) ->
    case claim(halley_event:chosen_id(Draft), State) of
        {known, First} ->
            halley_metrics:incr(events_repeated),
            publish_drafts(Drafts, State, [First | Results], Entries);
        busy ->
            publish_drafts(Drafts, State, [busy | Results], Entries);
        Fresh ->
            {#{id := Id, sessions := Sessions} = Entry, Next} = publish_one(Draft, Fresh, State),
            publish_drafts(Drafts, Next, [#{id => Id, sessions => Sessions} | Results],
                           [Entry | Entries])
    end.

claim(generated, _) -> generated;
claim(Id, #state{shard = Shard}) -> halley_history:claim(Shard, Id).

publish_one(Draft, Fresh, State = #state{shard = Shard, id_prefix = Prefix}) ->
    Place = {Shard, halley_history:draw(Shard)},
    Event = halley_event:event(Draft, Prefix, Place, erlang:system_time(millisecond)),
    {Sessions, Next} = fan_out(Event, State),
    {Event#{sessions := Sessions, chosen := Fresh =:= fresh}, Next}.

fan_out(#{subject := Subject} = Event, State = #state{groups = Groups}) ->
    case halley_groups_shard:publish(Event, halley_ids:lookup(Subject), Groups) of
        none -> {halley_fanout:send(Event, halley_fanout:receivers(Subject)), State};
        {Sessions, Sent} -> {Sessions, State#state{groups = Sent}}
    end.

count([]) ->
    ok;
count(Entries) ->
    halley_metrics:incr(events_published, length(Entries)),
    halley_metrics:incr(deliveries, lists:sum([Sessions || #{sessions := Sessions} <- Entries])).

%% A first answer that is given again may not be on disk yet; then it waits like any other, with
%% nothing to write.
answer(disk, Shard, From, Results, Entries) ->
    case Entries =:= [] andalso lists:all(fun(Result) -> Result =:= busy end, Results) of
        true -> gen_server:reply(From, {ok, Results});
        false -> halley_history:append(Shard, Entries, {From, {ok, Results}})
    end;
answer(memory, Shard, From, Results, Entries) ->
    Entries =:= [] orelse halley_history:append(Shard, Entries, none),
    gen_server:reply(From, {ok, Results}).
