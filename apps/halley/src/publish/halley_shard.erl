%% The way to a shard: its queue, and requests to it.
%%
%% A shard is a process (`halley_shard_server') with a registered name, and a few atomics that its
%% callers share: how many events wait for it, and flags that say that settling, or a link's mark,
%% is requested already. So no message is sent twice.
%%
%% Invariants: events are counted before they are sent, and never more than
%% `shard_queue_events_max'; the shard subtracts them when they have come. A publisher that dies in
%% between leaves its events counted, until the shard corrects it. The shard clears a flag before it
%% does the work: a later caller sends the next message.
%%
%% It knows nothing of what the shard does, so modules that the shard calls may call this.
-module(halley_shard).

-export([new/0, publish/3, publish_all/1, reserve/2, post/2, queued/0]).
-export([mark/2, settle/2, group/2]).
-export([name/1, started/1, taken/2, waiting/1, marking/2, settling/1]).
-export_type([draft/0, index/0, result/0, answer/0, ack/0, post/0, posted/0]).

%% One count of waiting events for each shard, then one flag each: that groups be settled is asked
%% for already.
-define(QUEUED, {?MODULE, queued}).
-define(ASKED_TO_SETTLE(Shard), (halley_shards:count() + (Shard))).
%% For each shard one flag of each link: its mark is asked for already.
-define(MARKS, {?MODULE, marks}).
-define(ASKED(Shard, Slot), (((Shard) - 1) * halley_limits:get(links_max) + (Slot))).

-type index() :: halley_shards:index().
%% What a publisher waits for: that the event is on its way, or that it is on disk as well.
-type ack() :: memory | disk.
%% And who they are, for the part of the queue that is the servers'.
-type how() :: {ack(), halley_limits:whose()}.
%% `by': the user that publishes it, where hooks ask for it or it is kept.
-type draft() :: halley_event:draft() | {private, halley_event:private()}
               | {joint, halley_event:joint()} | {keep, keep | clear, draft()}
               | {by, halley_id:id(), draft()}.
-type result() :: #{id := halley_event:id(), sessions := non_neg_integer()}.
%% `busy': the id that was chosen is being published just now; ask again for its answer.
%% `unavailable': the shard or the log died or was too slow, and some or all of the drafts may have
%% been published. `history_failed', `disk_full', `data_dir_moved': the same; the disk is why.
-type answer() :: {ok, [result() | busy]} | {error, error()}.
%% An event whose publisher doesn't wait in a call: the answer comes as a message, by the tag, in
%% `{posted, [{Tag, posted()}]}' with those of others of the same publisher.
-type post() :: {Tag :: integer(), ack(), draft()}.
-type posted() :: {ok, result() | busy} | {error, error()}.
-type error() :: overloaded | unavailable | history_failed | disk_full | data_dir_moved.

%% Makes the counts of waiting events, and chooses who orders them.
-spec new() -> ok.
new() ->
    ok = halley_order:new(list_to_tuple([name(Shard)
                                         || Shard <- lists:seq(1, halley_shards:count())])),
    persistent_term:put(?QUEUED, atomics:new(2 * halley_shards:count(), [])),
    Flags = halley_shards:count() * halley_limits:get(links_max),
    persistent_term:put(?MARKS, atomics:new(Flags, [])),
    halley_metrics:gauges([shard_queue], fun() -> #{shard_queue => queued()} end).

%% Publishes drafts of subjects of this shard, in order; results are in the same order.
-spec publish(index(), how(), [draft()]) -> answer().
publish(Shard, {Ack, Whose}, Drafts) ->
    case reserve(Shard, length(Drafts), Whose) of
        true ->
            try gen_server:call(halley_order:process(Shard), {publish, Ack, Drafts},
                                halley_limits:get(publish_ms_max))
            catch exit:_ -> {error, unavailable}
            end;
        false ->
            {error, overloaded}
    end.

%% The same for several shards at once, so that they wait for the disk together.
-spec publish_all([{index(), how(), [draft()]}]) -> [answer()].
publish_all([{Shard, How, Drafts}]) ->
    [publish(Shard, How, Drafts)];
publish_all(Requests) ->
    Until = erlang:monotonic_time(millisecond) + halley_limits:get(publish_ms_max),
    [answer(Sent, Until) || Sent <- [send_request(Request) || Request <- Requests]].

send_request({Shard, {Ack, Whose}, Drafts}) ->
    case reserve(Shard, length(Drafts), Whose) of
        true -> gen_server:send_request(halley_order:process(Shard), {publish, Ack, Drafts});
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

%% Counts one event that the caller will post; `false': no more may wait.
-spec reserve(index(), halley_limits:whose()) -> boolean().
reserve(Shard, Whose) ->
    reserve(Shard, 1, Whose).

%% Posts events that are counted already, in order, to the process that orders the shard's events.
-spec post(pid(), [post(), ...]) -> ok.
post(Pid, Posts) ->
    Pid ! {posts, self(), Posts},
    ok.

reserve(Shard, N, Whose) ->
    Queued = persistent_term:get(?QUEUED),
    case atomics:add_get(Queued, Shard, N) > halley_limits:part(Whose, shard_queue_events_max) of
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

%% Asks these shards to mark their places now: this link gets a mark of each, unless it is behind.
-spec mark(halley_links:slot(), [index()]) -> ok.
mark(Slot, Shards) ->
    Flags = persistent_term:get(?MARKS),
    lists:foreach(fun(Shard) ->
                      atomics:exchange(Flags, ?ASKED(Shard, Slot), 1) =:= 0
                          andalso gen_server:cast(name(Shard), {mark, Slot})
                  end, Shards).

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

%% --- for the shard itself ------------------------------------------------------------------------

-spec name(index()) -> atom().
name(1) -> halley_shard_1;
name(2) -> halley_shard_2;
name(3) -> halley_shard_3;
name(4) -> halley_shard_4;
name(5) -> halley_shard_5;
name(6) -> halley_shard_6;
name(7) -> halley_shard_7;
name(8) -> halley_shard_8.

%% Nothing waits for a shard that starts.
-spec started(index()) -> ok.
started(Shard) ->
    _ = halley_order:whose() =:= own andalso atomics:put(persistent_term:get(?QUEUED), Shard, 0),
    lists:foreach(fun(Slot) -> marking(Shard, Slot) end,
                  lists:seq(1, halley_limits:get(links_max))),
    settling(Shard).

%% So many events wait no more.
-spec taken(index(), integer()) -> ok.
taken(Shard, Events) ->
    atomics:sub(persistent_term:get(?QUEUED), Shard, Events).

%% The count as it is. Below zero: events came that were taken off before.
-spec waiting(index()) -> integer().
waiting(Shard) ->
    atomics:get(persistent_term:get(?QUEUED), Shard).

%% It marks its place for this link now.
-spec marking(index(), halley_links:slot()) -> ok.
marking(Shard, Slot) ->
    atomics:put(persistent_term:get(?MARKS), ?ASKED(Shard, Slot), 0).

%% It settles marks of its groups now.
-spec settling(index()) -> ok.
settling(Shard) ->
    atomics:put(persistent_term:get(?QUEUED), ?ASKED_TO_SETTLE(Shard), 0).
