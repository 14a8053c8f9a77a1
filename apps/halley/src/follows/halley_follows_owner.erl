%% The one process that changes follows.
%%
%% It gathers the changes that wait in its mailbox into a group, writes the group to the journal,
%% waits for the disk once, changes the tables, and answers. So many single follows share one sync,
%% and a lone one waits for no others. Within a group the changes are applied one after the other,
%% in the order of arrival; this makes the counts exact.
%%
%% The journal comes before the tables: what a reader sees is on disk. If the owner dies in
%% between, the next one applies the journal's last group again to the tables, which the supervisor
%% kept.
%%
%% A disk that refuses ends nothing. The group that was being written gets the error. From then on
%% changes are refused before anything of them is taken (`halley_store:refusing/0'), until a probe,
%% once a second, succeeds. A checkpoint that fails is tried again later: the journal has
%% everything.
%%
%% No user gets more than `follows_per_user_max' subjects (`halley_follows_bound'). A change is
%% checked before it is written, so the journal has nothing that was refused. If one of its users
%% may be near the bound, the group before it is committed first, so that the tables are complete.
%% This isn't needed if all of it is followed already: then no user gets further than the tables
%% say, even if the removal of such a follow is waiting. A change that was admitted elsewhere
%% (`halley_follows_applied') isn't checked: all brains of a log must have it.
%%
%% Numbers that nothing refers to leave and are freed here (`halley_ids', `halley_ids_sweep'), so
%% that no change comes in between. Every change says in which *epoch* its numbers were looked up.
%% If numbers have left or were freed since, those of the change are kept, or it is `stale'.
-module(halley_follows_owner).
-behaviour(gen_server).

-export([start_link/1, new_tables/0]).
-export([count/0, changes/0, epoch/0, checkpoint/0, checkpoint_soon/0, leave/1, free/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/logger.hrl").
-include("halley_follows.hrl").

%% A group closes when it has this many pairs, or when nothing more waits.
-define(GROUP_PAIRS, 100000).
%% Nothing was asked for so long: a smaller journal is reason enough for a checkpoint.
-define(IDLE_MS, 3000).
-define(PROBE_MS, 1000).
%% How long after a group it may be noted where the journal stands.
-define(NOTE_MS, 50).

%% Places of the atomics.
-define(COUNT, 1).
-define(STARTED, 2).
-define(CHANGES, 3).
-define(EPOCH, 4).

-record(state, {tell :: fun((halley_pages:packed()) -> ok),
                journal :: none | halley_store_journal:journal(),
                waiting = [] :: [#change{}],
                waiting_pairs = 0 :: non_neg_integer(), waiting_most = 0 :: non_neg_integer(),
                pace :: halley_store_pace:pace(),
                %% `infinity' once it has been idle.
                idle_at_ms = now_ms() + ?IDLE_MS :: integer() | infinity,
                is_note_due = false :: boolean(),
                checkpoint = none :: none | {reference(), pid()}}).

%% `Tell' is called here with a change's pairs <<Subject:32, User:32, ...>>, before it is answered.
-spec start_link(Tell :: fun((halley_pages:packed()) -> ok)) -> gen_server:start_ret().
start_link(Tell) -> gen_server:start_link({local, ?MODULE}, ?MODULE, Tell, []).

%% For the supervisor, which is to own them.
-spec new_tables() -> ok.
new_tables() ->
    lists:foreach(fun halley_pages_table:new/1, [halley_followers, halley_following]),
    ok = halley_follows_request:new(),
    ok = halley_metrics:gauges([follows], fun() -> #{follows => count()} end),
    persistent_term:put(?MODULE, atomics:new(4, [{signed, true}])).

-spec count() -> non_neg_integer().
count() -> atomics:get(persistent_term:get(?MODULE), ?COUNT).

-spec changes() -> non_neg_integer().
changes() -> atomics:get(persistent_term:get(?MODULE), ?CHANGES).

%% Grows when numbers leave or are freed.
-spec epoch() -> integer().
epoch() -> atomics:get(persistent_term:get(?MODULE), ?EPOCH).

%% Those of the numbers that nothing refers to leave.
-spec leave([halley_ids:user_number()]) -> ok.
leave(Numbers) -> gen_server:call(?MODULE, {leave, Numbers}, infinity).

%% Frees those of the leaving numbers that nothing refers to still, and keeps the others. Durable
%% ones stay as they are while the store refuses. Gives how many were freed.
-spec free([halley_ids:user_number()]) -> non_neg_integer().
free(Numbers) -> gen_server:call(?MODULE, {free, Numbers}, infinity).

%% Writes a checkpoint now; returns when that is done. For tests and tools: the owner does it by
%% itself in time.
-spec checkpoint() -> ok | {error, term()}.
checkpoint() ->
    case gen_server:call(?MODULE, checkpoint, infinity) of
        {ok, _} -> ok;
        Error -> Error
    end.

%% Unless one is on its way, or failed a short while ago.
-spec checkpoint_soon() -> ok.
checkpoint_soon() -> gen_server:cast(?MODULE, checkpoint).

-spec init(fun((halley_pages:packed()) -> ok)) -> {ok, #state{}, timeout()}.
init(Tell) ->
    process_flag(trap_exit, true),
    ok = halley_follows_request:released_all(),
    ok = add(?EPOCH, 1),
    IsFirst = atomics:exchange(persistent_term:get(?MODULE), ?STARTED, 1) =:= 0,
    {ok, Journal, Bytes, Last} = halley_store_writer:open(IsFirst),
    %% The one before may have died before it told its last group.
    IsFirst orelse Tell(halley_follows_changes:apply_again(Last)),
    ok = ids_know(IsFirst),
    ok = add(?CHANGES, 1),
    atomics:put(persistent_term:get(?MODULE), ?COUNT, halley_pages_table:size(halley_following)),
    IsFirst andalso halley_store:damaged() > 0 andalso gen_server:cast(self(), checkpoint),
    Pace = halley_store_pace:new(Bytes, now_ms()),
    {ok, probed_later(#state{tell = Tell, journal = Journal, pace = Pace}), ?IDLE_MS}.

%% If they aren't there, they are about to start, and none leaves.
ids_know(true) -> ok;
ids_know(false) ->
    try halley_ids:owner_started()
    catch exit:{_, {gen_server, call, _}} -> ok
    end.

-spec handle_call(#change{} | checkpoint | {leave | free, [halley_ids:user_number()]},
                  gen_server:from(), #state{}) ->
    {noreply, #state{}, timeout()} | {reply, term(), #state{}, timeout()}.
handle_call(#change{} = Change, From, State) ->
    case is_fresh(Change) of
        true ->
            judge(Change#change{from = From}, State);
        false ->
            ok = released(Change#change.pairs),
            {reply, {error, stale}, State, timeout_ms(State)}
    end;
handle_call({leave, Numbers}, _, State) ->
    Committed = committed(State),
    ok = halley_ids:leave([N || N <- Numbers, not halley_ids_use:is_followed(N),
                                halley_directory_leaving:leave(N)]),
    ok = add(?EPOCH, 1),
    {reply, ok, Committed, timeout_ms(Committed)};
handle_call({free, Numbers}, _, State) ->
    {Freed, Next} = free(Numbers, committed(State)),
    ok = add(?EPOCH, 1),
    {reply, Freed, Next, timeout_ms(Next)};
handle_call(checkpoint, _, State) ->
    {Result, Idle} = checkpoint_now(await_checkpoint(State)),
    {reply, Result, Idle, timeout_ms(Idle)}.

-spec handle_cast(checkpoint, #state{}) -> {noreply, #state{}, timeout()}.
handle_cast(checkpoint, State) -> next(start_checkpoint(State)).

-spec handle_info(term(), #state{}) -> {noreply, #state{}, timeout() | hibernate}.
handle_info(timeout, #state{waiting = []} = State) ->
    {noreply, idle(State#state{idle_at_ms = infinity}), hibernate};
handle_info(timeout, State) ->
    commit(State);
handle_info({checkpoint, Ref, Result}, #state{checkpoint = {Ref, _}} = State) ->
    next(checkpoint_done(Result, State));
handle_info({'EXIT', Pid, Reason}, #state{checkpoint = {_, Pid}} = State)
  when Reason =/= normal ->
    next(checkpoint_done({error, Reason}, State));
handle_info(note, State) -> next(noted(State));
handle_info(probe, State) -> next(probe(State));
handle_info(_, State) -> next(State).

%% So that the next start misses nothing of what was written last.
-spec terminate(term(), #state{}) -> term().
terminate(_, State) -> noted(State).

noted(#state{journal = Journal} = State) ->
    _ = Journal =:= none orelse halley_store_journal:note(Journal),
    State#state{is_note_due = false}.

%% --- numbers that are given back -----------------------------------------------------------------

%% Numbers that left since the change was made stay, as it refers to them.
is_fresh(#change{epoch = Epoch, following = Following}) ->
    Epoch =:= epoch() orelse
        halley_ids:keep(halley_follows_request:numbers_of(Following)) =:= ok.

free(Numbers, State) ->
    {Kept, Idle} = lists:partition(fun(N) ->
        halley_ids_use:is_followed(N) orelse halley_directory_leaving:is_held(N)
    end, Numbers),
    _ = halley_ids:keep(Kept),
    {Durable, InMemory} = lists:partition(fun halley_ids_pages:is_durable/1, lists:usort(Idle)),
    {Written, Next} = free_durable(Durable, State),
    ok = told(Next),
    ok = halley_ids:free(InMemory ++ Written),
    {length(InMemory) + length(Written), Next}.

free_durable([], State) ->
    {[], State};
free_durable(Numbers, #state{journal = Journal} = State) ->
    case halley_store:refusing() =:= false
        andalso halley_store_journal:append([halley_store_entries:freed(Numbers)], Journal) of
        {ok, Bytes, Written} ->
            ok = halley_ids_pages:set_durable(Numbers, false),
            {Numbers, journalled(Bytes, State#state{journal = Written})};
        {error, _, Reason, Left} ->
            {[], refuse(Reason, State#state{journal = Left})};
        false ->
            {[], State}
    end.

told(#state{journal = none}) -> ok;
told(#state{journal = Journal}) ->
    halley_store:set_journal(element(2, halley_store_journal:place(Journal))).

%% With nothing that waits.
committed(#state{waiting = []} = State) -> State;
committed(State) ->
    {noreply, Committed, _} = commit(State),
    Committed.

%% --- groups --------------------------------------------------------------------------------------

judge(#change{following = Following} = Change, State) ->
    case {is_near(Change, State), State#state.waiting} of
        {false, _} ->
            gather(Change, State);
        {true, []} ->
            gather(halley_follows_request:without(halley_follows_bound:refused(Following, bound()),
                                                  Change), State);
        {true, _} ->
            judge(Change, committed(State))
    end.

is_near(#change{operation = add, is_bounded = true, following = Following, most = Most}, State) ->
    halley_follows_bound:is_near(Following, bound() - Most - State#state.waiting_most)
        andalso halley_follows_bound:is_news(Following);
is_near(#change{}, _) ->
    false.

bound() -> halley_limits:get(follows_per_user_max).

gather(#change{following = <<>>} = Change, #state{waiting = []} = State) ->
    ok = released(Change#change.pairs),
    gen_server:reply(Change#change.from, {ok, 0, Change#change.refused}),
    next(State);
gather(Change, #state{waiting = Waiting, waiting_pairs = Pairs, waiting_most = Most} = State) ->
    Gathered = State#state{waiting = [Change | Waiting],
                           waiting_pairs = Pairs + Change#change.pairs,
                           waiting_most = Most + Change#change.most},
    case Gathered#state.waiting_pairs >= ?GROUP_PAIRS of
        true -> commit(Gathered);
        false -> {noreply, Gathered, 0}
    end.

next(State) -> {noreply, State, timeout_ms(State)}.

%% Until what waits is committed, or nothing has been changed for a while.
timeout_ms(#state{waiting = [_ | _]}) -> 0;
timeout_ms(#state{idle_at_ms = infinity}) -> infinity;
timeout_ms(#state{idle_at_ms = AtMs}) -> max(0, AtMs - now_ms()).

now_ms() -> erlang:monotonic_time(millisecond).

commit(State) ->
    Changes = lists:reverse(State#state.waiting),
    ok = released(State#state.waiting_pairs),
    Taken = State#state{waiting = [], waiting_pairs = 0, waiting_most = 0},
    case halley_store:refusing() of
        false -> commit(Changes, Taken);
        Refusal ->
            Answer = {error, halley_follows_request:failure(Refusal)},
            next(answered(Changes, Answer, Taken))
    end.

commit(Changes, #state{journal = Journal} = State) ->
    Numbers = [N || N <- lists:usort(lists:append([C#change.numbers || C <- Changes])),
                    not halley_ids_pages:is_durable(N)],
    Entries = [halley_store_entries:names([{N, halley_ids:name(N)} || N <- Numbers])
               | [halley_store_entries:pairs(C#change.operation, C#change.following)
                  || C <- Changes]],
    ok = halley_ids_written:put(Numbers),
    case halley_store_journal:append(Entries, Journal) of
        {ok, Bytes, Written} ->
            ok = halley_ids_pages:set_durable(Numbers, true),
            lists:foreach(fun(C) -> apply_change(C, State#state.tell) end, Changes),
            next(journalled(Bytes, State#state{journal = Written,
                                               idle_at_ms = now_ms() + ?IDLE_MS}));
        {error, Outcome, Reason, Left} ->
            Refused = refuse(Reason, State#state{journal = Left}),
            Answer = case Outcome of
                undone -> halley_follows_request:failure(halley_store:reason(Reason));
                unknown -> {store_failed, Reason}
            end,
            next(answered(Changes, {error, Answer}, Refused))
    end.

answered(Changes, Answer, State) ->
    lists:foreach(fun(C) -> gen_server:reply(C#change.from, Answer) end, Changes),
    State.

released(Pairs) ->
    case process_info(self(), message_queue_len) of
        {_, 0} -> halley_follows_request:released_all();
        _ -> halley_follows_request:released(Pairs)
    end.

apply_change(#change{operation = Operation} = Change, Tell) ->
    _ = halley_pages_table:change(Operation, halley_followers, Change#change.followers),
    N = halley_pages_table:change(Operation, halley_following, Change#change.following),
    ok = Tell(Change#change.followers),
    ok = add(?CHANGES, N),
    ok = add(?COUNT, case Operation of add -> N; remove -> -N end),
    gen_server:reply(Change#change.from, {ok, N, Change#change.refused}).

add(Place, N) -> atomics:add(persistent_term:get(?MODULE), Place, N).

%% --- a disk that refuses -------------------------------------------------------------------------

refuse(Reason, State) ->
    ok = halley_store:set_refusing(halley_store:reason(Reason)),
    ?LOG_ERROR("store: cannot write in ~ts: ~ts; changes of follows are refused until it can",
               [halley_store:directory(), halley_store_journal:describe(Reason)]),
    probed_later(State).

probed_later(State) ->
    _ = [erlang:send_after(?PROBE_MS, self(), probe) || halley_store:refusing() =/= false],
    State.

probe(#state{journal = Journal} = State) ->
    case halley_store_writer:probe(Journal) of
        {ok, Probed} ->
            ok = halley_store:set_refusing(false),
            ?LOG_NOTICE("store: ~ts can be written again", [halley_store:directory()]),
            State#state{journal = Probed};
        {error, Reason, Left} ->
            ok = halley_store:set_refusing(halley_store:reason(Reason)),
            probed_later(State#state{journal = Left})
    end.

%% --- checkpoints ---------------------------------------------------------------------------------

journalled(Bytes, #state{is_note_due = false} = State) ->
    _ = erlang:send_after(?NOTE_MS, self(), note),
    journalled(Bytes, State#state{is_note_due = true});
journalled(Bytes, #state{pace = Pace} = State) ->
    case halley_store_pace:journalled(Bytes, count(), Pace) of
        {due, Next} -> start_checkpoint(State#state{pace = Next});
        {late, Next} -> await_checkpoint(State#state{pace = Next});
        {none, Next} -> State#state{pace = Next}
    end.

idle(#state{pace = Pace} = State) ->
    case halley_store_pace:is_due_idle(count(), Pace) of
        true -> start_checkpoint(State);
        false -> State
    end.

%% What is committed from here on goes into the next file of the journal. Linked, so that there is
%% never a checkpoint without its owner.
start_checkpoint(#state{journal = none} = State) -> State;
start_checkpoint(#state{pace = Pace} = State) ->
    case halley_store_pace:may_begin(now_ms(), Pace) andalso halley_store:refusing() =:= false of
        true ->
            {_, Started} = begin_checkpoint(State),
            Started;
        false ->
            State
    end.

begin_checkpoint(#state{journal = Journal, pace = Pace} = State) ->
    case halley_store_writer:begin_checkpoint(Journal) of
        {ok, Ref, Pid, Next} ->
            {ok, State#state{journal = Next, checkpoint = {Ref, Pid},
                             pace = halley_store_pace:begun(Pace)}};
        {error, Reason} -> {{error, Reason}, checkpoint_failed(Reason, State)}
    end.

await_checkpoint(#state{checkpoint = none} = State) -> State;
await_checkpoint(#state{checkpoint = {Ref, Pid}} = State) ->
    checkpoint_done(checkpoint_result(Ref, Pid), State).

checkpoint_result(Ref, Pid) ->
    receive
        {checkpoint, Ref, Result} -> Result;
        {'EXIT', Pid, Reason} when Reason =/= normal -> {error, Reason}
    end.

checkpoint_now(#state{journal = none} = State) ->
    {{error, halley_store:refusing()}, State};
checkpoint_now(State) ->
    case begin_checkpoint(State) of
        {ok, #state{checkpoint = {Ref, Pid}} = Begun} ->
            Result = checkpoint_result(Ref, Pid),
            {Result, checkpoint_done(Result, Begun)};
        {{error, _} = Error, Failed} ->
            {Error, Failed}
    end.

checkpoint_done({ok, Oldest}, #state{pace = Pace} = State) ->
    ok = halley_ids:oldest_file(Oldest),
    State#state{checkpoint = none, pace = halley_store_pace:done(Pace)};
checkpoint_done({error, Reason}, State) ->
    checkpoint_failed(Reason, State#state{checkpoint = none}).

checkpoint_failed(Reason, State) ->
    ok = halley_metrics:incr(checkpoint_failures),
    ?LOG_WARNING("store: a checkpoint failed: ~ts; nothing is lost, and it is tried again",
                 [halley_store_journal:describe(Reason)]),
    {AfterMs, Pace} = halley_store_pace:failed(now_ms(), State#state.pace),
    State#state{pace = Pace, idle_at_ms = AfterMs}.
