%% Sends a link, or several slots of a trunk, what they have missed: the events since their cursor,
%% out of the history, to those of their sessions that they concern (protocol/link.md 10.6). One
%% process for each catch-up, linked to the writer, which starts it (docs/internals/delivery.md).
%%
%% First rounds go up to what is written, as often as that has moved on by more than one portion;
%% the writer drops live events meanwhile. Then the writer holds them and takes the mark *behind*
%% away (`halley_links_backpressure:resume/1'), the heads are read, and the last round goes up to
%% these: the writer has everything above them, the history everything else.
%%
%% The writer answers every message by go_on/1 when little waits for the link. If the link falls
%% behind in the last round, that round ends all the same, and the writer starts the next catch-up.
-module(halley_edge_catchup).

-export([begins/5, start_link/3, go_on/1]).
-export_type([start/0]).

%% Where a link's cursor begins: here and now; or at a vector from which it catches up once the
%% sessions are known, in the second case behind a gap.
-type start() :: here | {from, Second :: non_neg_integer(), halley_history:vector()}
               | {gap, malformed | other_store, FromMs :: non_neg_integer(),
                  ToMs :: non_neg_integer(), halley_history:vector()}.

%% How long one wait for the log takes before it is begun again.

-record(state, {writer :: pid(), there :: halley_fanout:there(), limits :: map(),
                second :: non_neg_integer(),
                told = 0 :: halley_history:seq(),     % up to here damaged ranges were told
                former = halley_catchup_former:new() :: halley_catchup_former:former(),
                reader :: halley_history_reader:reader()}).

%% What SYNC_BEGIN's cursor means for a worker with so many sessions, at a time when these were the
%% heads, or a moment later. Whether the cursor is too old is seen when the catch-up runs. What is
%% published before the sessions are in the directory comes with a catch-up, whatever the cursor.
-spec begins(Sessions :: non_neg_integer(), Cursor :: binary(), halley_cursor:store(),
             Heads :: halley_history:vector(), NowMs :: non_neg_integer()) -> start().
begins(0, _, _, _, _) ->
    here;
begins(_, <<>>, _, Heads, NowMs) ->
    {from, NowMs div 1000, Heads};
begins(_, Cursor, Store, Heads, NowMs) ->
    case halley_history:cursor(Cursor) of
        {ok, #{store := Store, at := Seconds, vector := Vector}} ->
            %% Nobody was given what was never drawn.
            case halley_vector:is_reached(Vector, Heads) of
                true -> {from, Seconds, Vector};
                false -> {gap, malformed, min(Seconds * 1000, NowMs), NowMs, Heads}
            end;
        {ok, #{at := Seconds}} ->
            {gap, other_store, min(Seconds * 1000, NowMs), NowMs, Heads};
        error ->
            {gap, malformed, 0, NowMs, Heads}
    end.

%% To be called by the writer, which receives {catchup, Pid, What} with
%%   {portion, [Gap], [{Delivery, Conns}], Next}   to be sent; then the link stands at Next
%%   hold                                       live events are to be held from now on, and
%%                                              events are to be sent again
%%   {reached, Heads}                           all is sent up to there; the end
%% `Second': the time of the cursor that the link stands at.
-spec start_link(halley_fanout:there(), From :: halley_history:vector(),
                 Second :: non_neg_integer()) -> pid().
start_link(There, From, Second) ->
    Writer = self(),
    ok = halley_metrics:incr(catchups),
    spawn_opt(fun() -> run(Writer, There, From, Second) end,
              [link, {min_bin_vheap_size, halley_history_reader:vheap_words()}]).

%% The writer has dealt with the last message and takes another.
-spec go_on(pid()) -> ok.
go_on(Catchup) ->
    Catchup ! {go_on, self()},
    ok.

run(Writer, There, From, Second) ->
    State = #state{writer = Writer, there = There, second = Second,
                   reader = halley_history_reader:new(),
                   limits = #{events_max => halley_limits:get(catchup_events_max),
                              bytes_max => halley_limits:get(replay_queue_bytes_max)}},
    {Near, Nearer} = first_rounds(From, State),
    ok = tell(hold, Nearer),
    Heads = halley_history:heads(),
    ok = halley_began:catches_up(There),
    ok = halley_history:await(Heads, infinity),
    {_, _, #state{reader = Reader}} = round(Near, Heads, 0, Nearer),
    Writer ! {catchup, self(), {reached, Heads}},
    halley_history_reader:close(Reader).

first_rounds(From, State) ->
    case round(From, halley_history:written(), 0, State) of
        {Next, Portions, Later} when Portions > 1 -> first_rounds(Next, Later);
        {Next, _, Later} -> {Next, Later}
    end.

round(From, UpTo, Portions, #state{second = Second, told = Told} = Before) ->
    {Damage, NowTold} = halley_catchup:damage(From, UpTo, Told, Second),
    State = Before#state{told = NowTold},
    #state{there = There, limits = Limits, former = Former, reader = Reader} = State,
    {Events, Next, More, Gaps, Read, Rest} =
        halley_catchup:next(There, From, UpTo, Limits, Former, Reader),
    ok = halley_metrics:incr(catchup_events, length(Events)),
    Later = State#state{former = Read, reader = Rest},
    ok = tell({portion, Damage ++ Gaps, Events, Next}, Later),
    case More of
        more -> round(Next, UpTo, Portions + 1, Later);
        done -> {Next, Portions + 1, Later}
    end.

tell(What, #state{writer = Writer}) ->
    Writer ! {catchup, self(), What},
    receive {go_on, Writer} -> ok end.

