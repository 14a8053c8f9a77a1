%% The one process that changes follows.
%%
%% It gathers the changes that wait in its mailbox into a group, writes the group to the journal in
%% one Mnesia transaction, waits for the disk once, changes the tables, and answers: so a crowd of
%% single follows shares the disk's time, and a lone one doesn't wait for company. Within a group
%% the changes are applied one after the other, in the order of arrival, which is what makes the
%% counts exact.
%%
%% The journal comes before the tables: what a reader sees is on disk. If the owner dies in
%% between, the next one applies the journal's last row again to the tables, which the supervisor
%% kept.
%%
%% No user gets more than `follows_per_user_max' subjects (`halley_follows_bound'). A change is
%% judged before it is written, so the journal has nothing that was refused; where one of its users
%% may be near the bound, the group before it is committed first, so that the tables say all. Not
%% where all of it is followed already: that takes nobody further than the tables say, though its
%% removal may be waiting.
%%
%% What waits is bounded by follows_queue_max pairs, reserved by the callers before they send;
%% beyond it a call is refused as `overloaded`. A caller that dies after it reserved and before it
%% sent leaves its reservation; reservations are forgotten when the mailbox is empty.
-module(halley_follows_owner).
-behaviour(gen_server).

-export([start_link/0, new_tables/0, forget_tables/0]).
-export([change/2, count/0, changes/0, checkpoint/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% A group closes when it has this many pairs, or when nothing more waits.
-define(GROUP_PAIRS, 100000).
%% A checkpoint begins when the journal has at least this many bytes and an eighth of what all
%% follows would take in it, or, once nothing was asked for a while, if it is worth the effort.
-define(JOURNAL_BYTES, (16 bsl 20)).
-define(JOURNAL_BYTES_IDLE, (1 bsl 18)).
-define(IDLE_MS, 3000).
%% A journal this many times too large waits for the checkpoint that is on its way.
-define(JOURNAL_OVERRUN, 4).
%% What a row of the journal costs beyond its pairs.
-define(ROW_BYTES, 100).

%% Places of the atomics.
-define(QUEUED, 1).
-define(COUNT, 2).
-define(LOADED, 3).
-define(CHANGES, 4).

-record(change, {from :: gen_server:from() | caller,
                 operation :: halley_pages:operation(),
                 pairs :: pos_integer(),
                 %% Most pairs of one user.
                 most :: pos_integer(),
                 refused = [] :: [halley_pages:key()],
                 following :: halley_pages:packed(),
                 followers :: halley_pages:packed(),
                 id_pages :: [halley_ids:page_number()]}).

-record(state, {sequence :: non_neg_integer(),
                waiting = [] :: [#change{}],
                waiting_pairs = 0 :: non_neg_integer(),
                waiting_most = 0 :: non_neg_integer(),
                journal_bytes :: non_neg_integer(),
                checkpoint = none :: none | {reference(), Bytes :: non_neg_integer()}}).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% For the supervisor, which is to own them.
-spec new_tables() -> ok.
new_tables() ->
    ok = halley_pages_table:new(halley_followers),
    ok = halley_pages_table:new(halley_following),
    persistent_term:put(?MODULE, atomics:new(4, [{signed, true}])).

%% Makes the next owner load the tables from disk, as the first one does.
-spec forget_tables() -> ok.
forget_tables() -> atomics:put(persistent_term:get(?MODULE), ?LOADED, 0).

%% Adds or removes follows given as keys (user, subject) in any order; gives how many changed, and
%% those that would have been too many for their users. The sorting is the caller's work, and so in
%% parallel with that of others.
-spec change(halley_pages:operation(), [halley_pages:key()]) ->
    {ok, non_neg_integer(), Refused :: [halley_pages:key()]} | {error, halley_follows:failure()}.
change(Operation, Keys) ->
    Following = lists:usort(Keys),
    Most = halley_follows_bound:most(Following),
    Packed = halley_pages:pack(Following),
    case refused(Operation, Packed, Most) of
        [] -> change(Operation, Following, Packed, Most);
        Refused ->
            case change(Operation, lists:subtract(Following, Refused)) of
                {ok, N, More} -> {ok, N, Refused ++ More};
                {error, _} = Error -> Error
            end
    end.

change(_, [], _, _) -> {ok, 0, []};
change(Operation, Following, Packed, Most) ->
    Followers = lists:sort([halley_pages:swap(Key) || Key <- Following]),
    Change = #change{from = caller, operation = Operation, pairs = length(Following), most = Most,
                     following = Packed, followers = halley_pages:pack(Followers),
                     id_pages = id_pages(Operation, Following)},
    case reserve(Change#change.pairs) of
        true ->
            Operation =:= remove andalso halley_unfollows:record(Following),
            call(Change);
        false ->
            {error, overloaded}
    end.

refused(remove, _, _) -> [];
refused(add, Packed, Most) ->
    case halley_follows_bound:is_near(Packed, bound() - Most) of
        true -> halley_follows_bound:refused(Packed, bound());
        false -> []
    end.

bound() -> halley_limits:get(follows_per_user_max).

%% A call that is larger than the bound is taken when nothing else waits.
reserve(Pairs) ->
    Atomics = persistent_term:get(?MODULE),
    Queued = atomics:add_get(Atomics, ?QUEUED, Pairs),
    case Queued =< Pairs orelse Queued =< queue_max() of
        true -> true;
        false ->
            atomics:sub(Atomics, ?QUEUED, Pairs),
            false
    end.

queue_max() -> halley_limits:get(follows_queue_max).

%% A caller learns of the owner's death as of any failure: what became of the change is unknown.
call(Change) ->
    try gen_server:call(?MODULE, Change, infinity)
    catch exit:{Reason, {gen_server, call, _}} -> {error, {store_failed, Reason}}
    end.

%% The pages of the ids that this change is to make durable.
id_pages(remove, _) -> [];
id_pages(add, Keys) -> halley_ids:not_durable(numbers(Keys, none, [])).

numbers([Key | Keys], User, Numbers) when Key bsr 32 =:= User ->
    numbers(Keys, User, [Key band 16#ffffffff | Numbers]);
numbers([Key | Keys], _, Numbers) ->
    numbers(Keys, Key bsr 32, [Key bsr 32, Key band 16#ffffffff | Numbers]);
numbers([], _, Numbers) ->
    Numbers.

-spec count() -> non_neg_integer().
count() -> atomics:get(persistent_term:get(?MODULE), ?COUNT).

-spec changes() -> non_neg_integer().
changes() -> atomics:get(persistent_term:get(?MODULE), ?CHANGES).

%% Writes the pages and cuts the journal, now; returns when that is done. For tests and tools: the
%% owner does it by itself in time.
-spec checkpoint() -> ok.
checkpoint() ->
    ok = gen_server:call(?MODULE, checkpoint, infinity).

-spec init([]) -> {ok, #state{}, timeout()}.
init([]) ->
    Atomics = persistent_term:get(?MODULE),
    ok = recover(atomics:get(Atomics, ?LOADED)),
    %% Tables that a predecessor left half loaded must not be taken for the whole.
    atomics:put(Atomics, ?LOADED, 1),
    atomics:put(Atomics, ?QUEUED, 0),
    atomics:add(Atomics, ?CHANGES, 1),
    atomics:put(Atomics, ?COUNT, halley_pages_table:size(halley_following)),
    {Next, Rows} = halley_follows_journal:rows(),
    Bytes = lists:sum([byte_size(Entries) + ?ROW_BYTES || {_, _, Entries} <- Rows]),
    {ok, #state{sequence = Next, journal_bytes = Bytes}, ?IDLE_MS}.

%% An owner that dies has the tables half changed by one row of the journal at most, and its pairs
%% unmarked: it applies one after the other.
recover(0) ->
    ok = halley_follows_journal:load(),
    halley_follows_journal:replay();
recover(1) ->
    halley_groups:followed(halley_follows_journal:replay_last()).

-spec handle_call(#change{} | checkpoint, gen_server:from(), #state{}) ->
    {noreply, #state{}, timeout()} | {reply, ok, #state{}, timeout()} |
    {stop, term(), #state{}}.
handle_call(#change{} = Change, From, State) ->
    judge(Change#change{from = From}, State);
handle_call(checkpoint, _, State) ->
    Idle = await_checkpoint(start_checkpoint(await_checkpoint(State))),
    {reply, ok, Idle, timeout_ms(Idle)}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_cast(_, State) -> {noreply, State, timeout_ms(State)}.

-spec handle_info(term(), #state{}) ->
    {noreply, #state{}, timeout() | hibernate} | {stop, term(), #state{}}.
handle_info(timeout, #state{waiting = [], checkpoint = none, journal_bytes = Bytes} = State)
  when Bytes >= ?JOURNAL_BYTES_IDLE ->
    {noreply, start_checkpoint(State), hibernate};
handle_info(timeout, #state{waiting = []} = State) ->
    {noreply, State, hibernate};
handle_info(timeout, State) ->
    commit(State);
handle_info({'DOWN', Ref, process, _, normal}, #state{checkpoint = {Ref, Bytes}} = State) ->
    Done = checkpoint_done(Bytes, State),
    {noreply, Done, timeout_ms(Done)};
handle_info(_, State) ->
    {noreply, State, timeout_ms(State)}.

judge(#change{following = Following} = Change, State) ->
    case {is_near(Change, State), State#state.waiting} of
        {false, _} ->
            gather(Change, State);
        {true, []} ->
            gather(without(halley_follows_bound:refused(Following, bound()), Change), State);
        {true, _} ->
            case commit(State) of
                {noreply, Committed, _} -> judge(Change, Committed);
                Stop -> Stop
            end
    end.

is_near(#change{operation = add, following = Following, most = Most}, State) ->
    halley_follows_bound:is_near(Following, bound() - Most - State#state.waiting_most)
        andalso halley_follows_bound:is_news(Following);
is_near(#change{operation = remove}, _) ->
    false.

without([], Change) -> Change;
without(Refused, #change{following = Following, followers = Followers} = Change) ->
    Left = keys(Following) -- Refused,
    Swapped = keys(Followers) -- [halley_pages:swap(Key) || Key <- Refused],
    Change#change{refused = Refused, following = halley_pages:pack(Left),
                  followers = halley_pages:pack(Swapped)}.

keys(Packed) -> [Key || <<Key:64>> <= Packed].

gather(#change{following = <<>>} = Change, #state{waiting = []} = State) ->
    release(Change#change.pairs),
    gen_server:reply(Change#change.from, {ok, 0, Change#change.refused}),
    {noreply, State, timeout_ms(State)};
gather(Change, #state{waiting = Waiting, waiting_pairs = Pairs, waiting_most = Most} = State) ->
    Gathered = State#state{waiting = [Change | Waiting],
                           waiting_pairs = Pairs + Change#change.pairs,
                           waiting_most = Most + Change#change.most},
    case Gathered#state.waiting_pairs >= ?GROUP_PAIRS of
        true -> commit(Gathered);
        false -> {noreply, Gathered, 0}
    end.

timeout_ms(#state{waiting = []}) -> ?IDLE_MS;
timeout_ms(_) -> 0.

commit(State) ->
    Changes = lists:reverse(State#state.waiting),
    IdRows = halley_ids:rows(lists:usort(lists:append([C#change.id_pages || C <- Changes]))),
    Row = halley_follows_journal:row(
            State#state.sequence,
            [halley_follows_journal:entry(C#change.operation, C#change.following)
             || C <- Changes]),
    Result = halley_store:commit(IdRows ++ [Row]),
    release(State#state.waiting_pairs),
    Taken = State#state{waiting = [], waiting_pairs = 0, waiting_most = 0},
    case Result of
        ok ->
            halley_ids:set_durable(IdRows),
            lists:foreach(fun apply_change/1, Changes),
            Next = journalled(Row, Taken),
            {noreply, Next, timeout_ms(Next)};
        {error, Reason} ->
            %% Whether the disk has it is unknown: what is on it will be read again.
            Failure = {store_failed, Reason},
            lists:foreach(fun(C) -> gen_server:reply(C#change.from, {error, Failure}) end, Changes),
            {stop, Failure, Taken}
    end.

release(Pairs) ->
    Atomics = persistent_term:get(?MODULE),
    case process_info(self(), message_queue_len) of
        {_, 0} -> atomics:put(Atomics, ?QUEUED, 0);
        _ -> atomics:sub(Atomics, ?QUEUED, Pairs)
    end.

apply_change(#change{operation = Operation} = Change) ->
    _ = halley_pages_table:change(Operation, halley_followers, Change#change.followers),
    N = halley_pages_table:change(Operation, halley_following, Change#change.following),
    ok = halley_groups:followed(Change#change.followers),
    Atomics = persistent_term:get(?MODULE),
    atomics:add(Atomics, ?CHANGES, N),
    case Operation of
        add -> atomics:add(Atomics, ?COUNT, N);
        remove -> atomics:sub(Atomics, ?COUNT, N)
    end,
    gen_server:reply(Change#change.from, {ok, N, Change#change.refused}).

journalled({_, Sequence, Entries}, State) ->
    Bytes = State#state.journal_bytes + byte_size(Entries) + ?ROW_BYTES,
    Next = State#state{sequence = Sequence + 1, journal_bytes = Bytes},
    Enough = max(?JOURNAL_BYTES, count()),
    case Next#state.checkpoint of
        none when Bytes >= Enough -> start_checkpoint(Next);
        {_, _} when Bytes >= ?JOURNAL_OVERRUN * Enough -> await_checkpoint(Next);
        _ -> Next
    end.

%% Linked, so that there is never a checkpoint without its owner; if it fails, the owner fails.
start_checkpoint(#state{sequence = Sequence, journal_bytes = Bytes} = State) ->
    {_, Ref} = spawn_opt(fun() -> halley_follows_journal:checkpoint(Sequence - 1) end,
                         [link, monitor]),
    State#state{checkpoint = {Ref, Bytes}}.

await_checkpoint(#state{checkpoint = none} = State) -> State;
await_checkpoint(#state{checkpoint = {Ref, Bytes}} = State) ->
    receive
        {'DOWN', Ref, process, _, normal} -> checkpoint_done(Bytes, State)
    end.

checkpoint_done(Bytes, State) ->
    State#state{checkpoint = none, journal_bytes = State#state.journal_bytes - Bytes}.
