%% The one process that writes the history.
%%
%% It takes the messages in its mailbox, until that is empty or there are history_commit_bytes_max
%% of it. This is a *group*: it writes the group, through to the disk if a publisher waits, indexes
%% it, raises the written heads, and answers all. Meanwhile the next group gathers: a thousand
%% publishers share a few syncs.
%%
%% A sync costs more processor time than an event. So if several publishers waited for the last
%% group, the next one gathers, a millisecond at a time: until as many wait again, until a
%% millisecond brings no more, or for three milliseconds. A lone publisher waits for no other.
%% Records without a waiting publisher are written with the next group, or after two milliseconds.
%%
%% The appending process packs the records. They are counted in `queue_bytes' before they are sent,
%% so `halley_history:refusing/0' can refuse before anything is accepted.
%%
%% A group that can't be written is cut off; its publishers get the reason, and publishing is
%% refused until a probe, once a second, succeeds. So are events on their way whose publishers wait:
%% an event isn't accepted while the one before it was not, so that both can be published again in
%% their order. Events that were answered already (`ack: memory') are tried all the same, also those
%% of a shard's turn of which others are refused. The written heads rise in any case: no reader
%% waits for an event that won't come. If an event of the group was answered already, has no
%% publisher to answer, or can't be cut off for certain, its seqs are noted as lost: a returning
%% session gets a gap for them.
%%
%% Messages of one sender come in order, so a shard's appends and marks do. Those of two senders
%% may overtake each other, even if one was sent after the other (the mailbox is off heap, and
%% signals to it are taken in parallel). So what a shard that died had sent is only certain to be
%% here after another message of this process to itself: see `settle'.
%%
%% If it crashes, the brain ends: the index would lack what the file has.
-module(halley_history_log).
-behaviour(gen_server).

-export([start_link/0, append/3, mark/2, changed/2, shard_started/1, adopt/2, wipe/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_history.hrl").

-define(TICK_MS, 250).
-define(PROBE_MS, 1000).
%% What an entry takes in the mailbox beyond its record.
-define(ENTRY_BYTES, 256).
%% Changes of follows that are sent in one go.
-define(CHANGES, 500).
-define(SETTLE_ROUNDS, 2).
%% Of kept values that are written again with one tick, and one value more.
-define(KEPT_BYTES, 1048576).
%% Words. Room for a group and its records: without it half of the collections find nothing.
-define(HEAP, [{min_heap_size, 65536}, {min_bin_vheap_size, 524288}]).

-record(state, {disk :: halley_history_disk:disk(),
                refusing = false :: halley_history_atomics:refusing(),
                probed_ms = 0 :: integer(),
                %% Whether seqs are drawn here, or in a log of several brains (`halley_order').
                draws :: boolean(),
                crowd = 0 :: non_neg_integer()}).   % who waited for the last group

-spec start_link() -> gen_server:start_ret().
start_link() ->
    ok = halley_history_home:set_directory(filename:join(halley_data_dir:path(), "history")),
    gen_server:start_link({local, ?MODULE}, ?MODULE, [],
                          [{spawn_opt, [{message_queue_data, off_heap} | ?HEAP]}]).

-spec append(halley_shards:index(), [halley_history:entry()], [halley_history:reply(), ...]) -> ok.
append(Shard, Entries, Replies) ->
    Store = halley_history_atomics:get(segments_store),
    IsSilent = lists:all(fun(Reply) -> Reply =:= none end, Replies),
    {Packed, Bytes} = lists:mapfoldl(fun(Entry, Sum) ->
        silent(IsSilent orelse is_map_key(ack, Entry), pack(Store, Shard, Entry, Sum))
    end, ?ENTRY_BYTES, Entries),
    send({append, Shard, Packed, Bytes, Replies}, Bytes).

silent(false, One) -> One;
silent(true, {Packed, Sum}) -> {Packed#packed{is_silent = true}, Sum}.

pack(Store, Shard, #{seq := Seq, id := Id, subject := Subject, at := At, chosen := Chosen,
                     sessions := Sessions} = Event, Sum) ->
    {Record, Bytes} = halley_history_record:event(Store, Shard, Event),
    Keep = case Event of #{keep := K} -> K; #{} -> none end,
    {#packed{shard = Shard, seq = Seq, at = At, id = Id, subject = Subject, chosen = Chosen,
             sessions = Sessions, bytes = Bytes, record = Record, keep = Keep},
     Sum + Bytes + ?ENTRY_BYTES};
pack(Store, Shard, #{users := Users} = Event, Sum) ->
    pack_several(private, Users, halley_history_record:private(Store, Shard, Event), Event, Sum);
pack(Store, Shard, #{subjects := Subjects} = Event, Sum) ->
    pack_several(joint, Subjects, halley_history_record:event(Store, Shard, Event), Event, Sum).

pack_several(Kind, Names, {Record, Bytes}, #{shard := Shard, seq := Seq, id := Id, at := At,
                                             chosen := Chosen, sessions := Sessions}, Sum) ->
    {#packed{kind = Kind, shard = Shard, seq = Seq, at = At, id = Id, subject = Names,
             chosen = Chosen, sessions = Sessions, bytes = Bytes, record = Record},
     Sum + Bytes + ?ENTRY_BYTES}.

-spec mark(halley_shards:index(), halley_history:seq()) -> ok.
mark(Shard, Seq) ->
    send({mark, Shard, Seq}, 0).

send(Item, Bytes) ->
    ok = halley_history_atomics:add(queue_bytes, Bytes),
    ?MODULE ! {history, Item},
    ok.

%% Waits for each portion before the next is sent, so that many changes don't fill the queue.
-spec changed(halley_history_group:change(), [{binary(), binary()}] | [halley_history:placed()]) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
changed(_, []) ->
    ok;
changed(Change, Pairs) ->
    {Portion, Rest} = lists:split(min(?CHANGES, length(Pairs)), Pairs),
    Alias = erlang:monitor(process, ?MODULE, [{alias, reply_demonitor}]),
    Bytes = length(Portion) * 2 * ?ENTRY_BYTES,
    ok = send({changed, Change, Portion, Bytes, Alias}, Bytes),
    receive
        {Alias, written} -> changed(Change, Rest);
        {Alias, {error, _} = Error} -> Error;
        {'DOWN', Alias, process, _, Reason} -> exit(Reason)
    end.

-spec shard_started(halley_shards:index()) -> ok.
shard_started(Shard) ->
    gen_server:call(?MODULE, {shard_started, Shard}, infinity).

-spec adopt(halley_cursor:store(), End :: halley_history:seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
adopt(Store, End) ->
    gen_server:call(?MODULE, {adopt, Store, End}, infinity).

-spec wipe(halley_cursor:store(), Before :: halley_history:seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
wipe(Store, Before) ->
    gen_server:call(?MODULE, {wipe, Store, Before}, infinity).

-spec init([]) -> {ok, #state{}} | {stop, term()}.
init([]) ->
    process_flag(trap_exit, true),
    Draws = application:get_env(halley, order, own) =:= own,
    case halley_history_disk:open(halley_history_home:directory()) of
        {ok, Disk} ->
            {ok, started(#state{disk = Disk, draws = Draws})};
        {error, Reason, Disk} ->
            {ok, started(failed(Reason, #state{disk = Disk, draws = Draws}))};
        {error, Line} -> {stop, Line}
    end.

started(State) ->
    Start = halley_history_atomics:get(counter),
    lists:foreach(fun(Shard) ->
                      _ = halley_history_atomics:mark(Shard),
                      ok = halley_history_atomics:written(Shard, Start)
                  end, lists:seq(1, halley_shards:count())),
    ok = halley_history_atomics:all_written(),
    tick(),
    State.

-spec handle_call({shard_started, halley_shards:index()}
                  | {adopt | wipe, halley_cursor:store(), halley_history:seq()},
                  gen_server:from(), #state{}) -> {noreply, #state{}} | {reply, term(), #state{}}.
handle_call({shard_started, Shard}, From, State) ->
    ok = settle(Shard, element(Shard, halley_history_atomics:heads()), From, ?SETTLE_ROUNDS),
    {noreply, State};
handle_call({adopt, Store, End}, _, State) ->
    case halley_history_epochs:adopt(Store, End) of
        ok -> {reply, ok, State};
        {error, Reason} -> refuse_call(Reason, State)
    end;
handle_call({wipe, Store, Before}, _, State = #state{disk = Disk}) ->
    lists:foreach(fun halley_history_pending_ids:shard_ended/1,
                  lists:seq(1, halley_shards:count())),
    case halley_history_disk:begin_anew(Store, Before, Disk) of
        {ok, Begun} ->
            ok = halley_history_atomics:put_refusing(State#state.refusing),
            {reply, ok, State#state{disk = Begun}};
        {error, Reason, Left} -> refuse_call(Reason, State#state{disk = Left})
    end.

refuse_call(Reason, State) ->
    Failed = #state{refusing = Refusing} = failed(Reason, State),
    {reply, {error, case Refusing of failed -> history_failed; _ -> Refusing end}, Failed}.

%% Everything that was sent before this message was handled is in the mailbox before the next one
%% of this process to itself is taken from it.
settle(Shard, Head, From, Rounds) ->
    self() ! {settle, Shard, Head, From, Rounds},
    ok.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({history, Item}, State = #state{crowd = Crowd}) ->
    {noreply, commit(halley_history_group:gather(Item, Crowd), State)};
handle_info({settle, Shard, Head, From, 0}, State) ->
    ok = halley_history_atomics:written(Shard, Head),
    ok = halley_history_atomics:all_written(),
    ok = halley_history_waiting:reached(),
    ok = halley_history_pending_ids:shard_ended(Shard),
    gen_server:reply(From, ok),
    {noreply, State};
handle_info({settle, Shard, Head, From, Rounds}, State) ->
    ok = settle(Shard, Head, From, Rounds - 1),
    {noreply, State};
handle_info(tick, State) ->
    Ticked = ticked(State),
    tick(),
    {noreply, Ticked};
handle_info(_, State) ->
    {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_, State) ->
    #state{disk = Disk} = drain(State),
    halley_history_disk:close(Disk).

drain(State) ->
    receive
        {history, Item} -> drain(commit(halley_history_group:gather(Item, 0), State))
    after 0 ->
        State
    end.

tick() ->
    erlang:send_after(?TICK_MS, self(), tick).

%% --- a group -------------------------------------------------------------------------------------

-spec commit([halley_history_group:item()], #state{}) -> #state{}.
commit(All, State0) ->
    {Drawable, State = #state{disk = Disk}} = drawable(All, State0),
    {Refused, Items} = refused(Drawable, State0),
    RefusedPacked = lists:append([packed(Item) || Item <- Refused]),
    Packed = lists:append([packed(Item) || Item <- Items]),
    Waiting = lists:sum([halley_history_group:waiting(Item) || Item <- Items]),
    Committed = case halley_history_disk:write(Packed, Waiting > 0, Disk) of
        {ok, Written} ->
            count(Packed),
            ok = finish(Drawable, RefusedPacked ++ Packed),
            answer(Waiting > 0, Items, Packed, State#state{disk = Written});
        {error, Reason, Failed} ->
            Lost = lose(Packed, Failed),
            ok = finish(Drawable, RefusedPacked ++ Packed),
            fail(Items, Reason, State#state{disk = Lost})
    end,
    ok = halley_history_answers:tell([{Item, State0#state.refusing} || Item <- Refused]),
    Queued = lists:sum([queued(Item) || Item <- All]),
    ok = halley_history_atomics:add(queue_bytes, -Queued),
    renew(Committed#state{crowd = Waiting}).

%% Events of publishers that are told; and what is tried all the same.
refused(Items, #state{refusing = false}) ->
    {[], Items};
refused(Items, _) ->
    {Refused, Tried} = lists:unzip([parted(Item) || Item <- Items]),
    {lists:append(Refused), lists:append(Tried)}.

parted({append, Shard, [_ | _] = Packed, Bytes, Replies} = Item) ->
    case lists:partition(fun(#packed{is_silent = IsSilent}) -> IsSilent end, Packed) of
        {_, []} ->
            {[], [Item]};
        {[], _} ->
            {[Item], []};
        {Silent, Waited} ->
            {[{append, Shard, Waited, Bytes, Replies}], [{append, Shard, Silent, Bytes, [none]}]}
    end;
parted(Item) ->
    {[], [Item]}.

%% If no seq is reserved, none is drawn for a change of follows. For an unfollow, a client with an
%% earlier cursor gets a gap instead.
drawable(Items, State = #state{refusing = false}) ->
    {Items, State};
drawable(Items, State = #state{disk = Disk}) ->
    Counter = halley_history_atomics:get(counter),
    {Changes, Others} = lists:partition(fun is_to_be_drawn/1, Items),
    Needed = lists:sum([length(Pairs) || {changed, _, Pairs, _, _} <- Changes]),
    case Needed > halley_history_atomics:get(reserved) - Counter of
        true ->
            NowMs = halley_clock:wall_ms(),
            Lost = case lists:keymember(unfollow, 2, Changes) of
                true -> halley_history_disk:lose({Counter, Counter, NowMs, NowMs}, Disk);
                false -> Disk
            end,
            Why = case State#state.refusing of false -> disk_full; Refusing -> Refusing end,
            ok = halley_history_answers:tell([{Item, Why} || Item <- Changes]),
            {Others, State#state{disk = Lost}};
        false ->
            {Items, State}
    end.

is_to_be_drawn({changed, {placed, _}, _, _, _}) -> false;
is_to_be_drawn(Item) -> element(1, Item) =:= changed.

%% What `send/2' counted.
queued({mark, _, _}) -> 0;
queued(Item) -> halley_history_group:bytes(Item).

packed({append, _, Packed, _, _}) -> Packed;
packed({mark, _, _}) -> [];
packed({changed, {placed, At}, Placed, _, _}) ->
    lists:append([pack_placed(Change, At) || Change <- Placed]);
packed({changed, Change, Pairs, _, _}) ->
    At = halley_clock:wall_ms(),
    [pack_change(Change, halley_history_atomics:draw(), At, Pair) || Pair <- Pairs].

%% An entry that is linked into a chain twice would be a ring.
pack_placed({Kind, Seq, Pair}, At) ->
    ok = halley_history_atomics:reached(none, Seq),
    Change = case Kind of follow -> {follow, Seq - 1}; unfollow -> unfollow end,
    [pack_change(Change, Seq, At, Pair) || halley_history_index:where(Seq) =:= none].

pack_change(Change, Seq, At, {User, Subject}) ->
    Store = halley_history_atomics:get(segments_store),
    Shard = halley_shards:of_subject(User),
    {Kind, {Record, Bytes}} = case Change of
        {follow, From} ->
            {follow, halley_history_record:follow(Store, Shard, Seq, At, {User, Subject, From})};
        unfollow ->
            {unfollow, halley_history_record:unfollow(Store, Shard, Seq, At, {User, Subject})}
    end,
    #packed{kind = Kind, shard = Shard, seq = Seq, at = At, id = Subject, subject = User,
            bytes = Bytes, record = Record}.

count([]) ->
    ok;
count(Packed) ->
    ok = halley_metrics:incr(history_events, length(Packed)),
    halley_metrics:incr(history_bytes, lists:sum([Bytes || #packed{bytes = Bytes} <- Packed])).

%% What was waited for in the index is there, or never will be.
finish(Items, Packed) ->
    lists:foreach(fun raise/1, Items),
    ok = halley_history_atomics:all_written(),
    ok = halley_history_waiting:reached(),
    lists:foreach(fun halley_history_pending_ids:ended/1,
                  [Id || #packed{chosen = true, id = Id} <- Packed]).

raise({append, _, [], _, _}) -> ok;
raise({append, Shard, Packed, _, _}) ->
    halley_history_atomics:written(Shard, (lists:last(Packed))#packed.seq);
raise({mark, Shard, Seq}) -> halley_history_atomics:written(Shard, Seq);
raise({changed, _, _, _, _}) -> ok.

answer(false, _, _, State) ->
    State;
answer(true, Items, Packed, State = #state{disk = Disk}) ->
    HasCommitted = Packed =/= [] orelse halley_history_disk:is_dirty(Disk),
    case halley_history_disk:sync(Disk) of
        {ok, Synced} ->
            _ = [halley_metrics:incr(history_commits) || HasCommitted],
            ok = halley_history_answers:tell([{Item, outcome(Item, State)} || Item <- Items]),
            State#state{disk = Synced};
        {error, Reason, Failed} ->
            fail(Items, Reason, State#state{disk = Failed})
    end.

%% A caller that asks whether earlier events are on disk may mean one whose sync failed.
outcome({append, _, [], _, _}, #state{refusing = Refusing}) -> Refusing;
outcome(_, _) -> false.

%% --- failure -------------------------------------------------------------------------------------

%% A publisher that waits for the disk gets an error, and may publish the event again. Without such
%% a publisher the history has a hole, which is noted as lost.
lose(Packed, Disk) ->
    case [One || One <- Packed, is_silent(One)] of
        [] -> Disk;
        Lost -> halley_history_disk:lose(halley_history_group:range(Lost), Disk)
    end.

is_silent(#packed{kind = Kind, is_silent = IsSilent}) -> IsSilent orelse Kind =:= unfollow.

%% The state changes before the answers: a publisher with an error finds it on /readyz as well.
fail(Items, Reason, State) ->
    Failed = #state{refusing = Refusing} = failed(Reason, State),
    ok = halley_history_answers:tell([{Item, Refusing} || Item <- Items]),
    Failed.

refusing(enospc) -> disk_full;
refusing(edquot) -> disk_full;
refusing(data_dir_moved) -> data_dir_moved;
refusing(_) -> failed.

failed(Reason, State = #state{refusing = Before}) ->
    ok = halley_metrics:incr(history_errors),
    Refusing = refusing(Reason),
    _ = [halley_metrics:incr(history_moved) || Refusing =:= data_dir_moved],
    ok = halley_history_atomics:put_refusing(Refusing),
    _ = [?LOG_ERROR("history: cannot write in ~ts: ~ts; publishing is refused until it can",
                    [halley_history_home:directory(), explain(Reason)]) || Refusing =/= Before],
    State#state{refusing = Refusing, probed_ms = erlang:monotonic_time(millisecond)}.

explain(data_dir_moved) -> "it was moved, removed or replaced; put it back or start again";
explain(Reason) -> file:format_error(Reason).

%% While it refuses the probe does that.
renew(State = #state{disk = Disk, refusing = false}) ->
    case halley_history_disk:renew(Disk) of
        {ok, Renewed} -> State#state{disk = Renewed};
        {error, Reason, Failed} -> failed(Reason, State#state{disk = Failed})
    end;
renew(State) ->
    State.

ticked(State = #state{disk = Disk, refusing = false}) ->
    case halley_history_disk:tick(Disk) of
        {ok, Ticked} ->
            ok = halley_history_kept_shares:lapse(),
            write_kept_again(renew(State#state{disk = Ticked}));
        {error, Reason, Failed} -> failed(Reason, State#state{disk = Failed})
    end;
ticked(State = #state{disk = Disk, probed_ms = ProbedMs}) ->
    %% Retention goes on: it may be what makes room.
    Dropped = halley_history_disk:starve(Disk),
    NowMs = erlang:monotonic_time(millisecond),
    case NowMs - ProbedMs >= ?PROBE_MS of
        false -> State#state{disk = Dropped};
        true -> probed(halley_history_disk:probe(Dropped), State#state{probed_ms = NowMs})
    end.

%% Kept values leave the oldest segment before it is due, some of them with each tick.
write_kept_again(State = #state{disk = Disk, refusing = false}) ->
    case halley_history_kept:older(halley_history_disk:leaving(Disk), ?KEPT_BYTES) of
        [] -> State;
        Values -> kept_again(Values, State)
    end;
write_kept_again(State) ->
    State.

kept_again(Values, State = #state{disk = Disk, draws = Draws}) ->
    At = halley_clock:wall_ms(),
    Packed = [pack_kept(seq_again(Draws, Seq), At, Value) || {_, Seq, _} = Value <- Values],
    Written = case halley_history_disk:write(Packed, true, Disk) of
        {ok, Before} -> halley_history_disk:sync(Before);
        Failed -> Failed
    end,
    case Written of
        {ok, Synced} ->
            Segment = halley_history_atomics:get(segment),
            lists:foreach(fun({Subject, Seq, _}) ->
                ok = halley_history_kept:copied(Subject, Segment, Seq)
            end, Values),
            State#state{disk = Synced};
        {error, Reason, Left} ->
            failed(Reason, State#state{disk = Left})
    end.

%% A seq that is drawn here would be another event's there: then the record keeps that of its event.
seq_again(true, _) -> halley_history_atomics:draw();
seq_again(false, Seq) -> Seq.

pack_kept(Seq, At, {Subject, _, Body}) ->
    Store = halley_history_atomics:get(segments_store),
    {Record, Bytes} = halley_history_record:kept(Store, Seq, At, Body),
    #packed{kind = kept, shard = halley_shards:of_subject(Subject), seq = Seq, at = At, id = <<>>,
            subject = Subject, bytes = Bytes, record = Record}.

probed({ok, Disk}, State) ->
    ok = halley_history_atomics:put_refusing(false),
    ?LOG_NOTICE("history: it can be written again"),
    State#state{disk = Disk, refusing = false};
probed({error, _, Disk}, State) ->
    State#state{disk = Disk}.
