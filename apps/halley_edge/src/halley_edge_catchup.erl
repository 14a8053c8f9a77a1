%% Sends a link, or several slots of a trunk, what they have missed: the events since their cursor,
%% out of the history, to those of their sessions that they concern (protocol/link.md 10.6). One
%% process for each catch-up, linked to the writer, which starts it (docs/internals/delivery.md).
%%
%% It is a `halley_turns' with one session, which stands for all of them. First portions go up to
%% what is written; the writer drops live events meanwhile. After the one with which little is left,
%% the writer holds them and takes the mark *behind* away (`halley_links_backpressure:resume/1'),
%% the heads are read, and the last portions go up to these: the writer has everything above them,
%% the history everything else.
%%
%% The writer answers every message by go_on/1 when little waits for the link, so it needs no other
%% bound. If the link falls behind on the way to the heads, that way ends all the same, and the
%% writer starts the next catch-up. The writer holds events for it, so it has the priority of any
%% process, and no permit.
-module(halley_edge_catchup).
-behaviour(halley_turns).

-export([begins/5, start_link/3, go_on/1]).
-export([init/1, handle/3, has_room/1, batch/4, given/5]).
-export_type([start/0]).

%% Where a link's cursor begins: here and now; or at a vector from which it catches up once the
%% sessions are known, in the second case behind a gap.
-type start() :: here | {from, Second :: non_neg_integer(), halley_history:vector()}
               | {gap, malformed | other_store, FromMs :: non_neg_integer(),
                  ToMs :: non_neg_integer(), halley_history:vector()}.

-record(plan, {from :: halley_history:vector(),
               told = 0 :: halley_history:seq(),      % up to here damaged ranges were told
               former = halley_catchup_former:new() :: halley_catchup_former:former()}).
-record(state, {writer :: pid(), there :: halley_fanout:there(), limits :: halley_replay:limits(),
                second :: non_neg_integer(),
                %% What comes when the writer has dealt with the last message.
                next = portion :: portion | hold | heads
                                | {reached, halley_history:vector()}}).

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
    halley_turns:start_link(?MODULE, {Writer, There, From, Second}, []).

%% The writer has dealt with the last message and takes another.
-spec go_on(pid()) -> ok.
go_on(Catchup) ->
    Catchup ! go_on,
    ok.

-spec init({pid(), halley_fanout:there(), halley_history:vector(), non_neg_integer()}) ->
    {halley_turns:options(), #state{}}.
init({Writer, There, From, Second}) ->
    self() ! {from, From},
    {#{kept_max => 1, permits => false},
     #state{writer = Writer, there = There, second = Second,
            limits = #{events_max => halley_limits:get(catchup_events_max),
                       bytes_max => halley_limits:get(replay_queue_bytes_max)}}}.

-spec has_room(#state{}) -> true.
has_room(_) -> true.

-spec handle(term(), halley_turns:turns(), #state{}) -> {halley_turns:turns(), #state{}}.
handle({from, From}, Turns, State) ->
    {halley_turns:go_on(all, halley_turns:add(all, all, {plan, #plan{from = From}}, Turns)), State};
handle(go_on, Turns, #state{next = portion} = State) ->
    {halley_turns:go_on(all, Turns), State};
handle(go_on, Turns, #state{next = hold} = State) ->
    tell(hold, State),
    {Turns, State#state{next = heads}};
handle(go_on, Turns, #state{next = heads, there = There} = State) ->
    Heads = halley_history:heads(),
    ok = halley_began:catches_up(There),
    {halley_turns:await([all], Heads, Heads, Turns), State};
handle(go_on, Turns, #state{next = {reached, _} = Reached} = State) ->
    tell(Reached, State),
    halley_turns:stop(Turns).

-spec batch(#plan{}, halley_history:vector(), halley_history_reader:reader(), #state{}) ->
    {{[halley_cursor:gap()], [{halley_event:delivery(), Conns :: binary()}],
      halley_history:vector()}, more | done, #plan{}, none, halley_history_reader:reader()}.
batch(#plan{from = From, told = Told, former = Former}, UpTo, Reader, State) ->
    #state{there = There, limits = Limits, second = Second} = State,
    {Damage, NowTold} = halley_catchup:damage(From, UpTo, Told, Second),
    {Events, Next, What, Gaps, Read, Later} =
        halley_catchup:next(There, From, UpTo, Limits, Former, Reader),
    ok = halley_metrics:incr(catchup_events, length(Events)),
    {{Damage ++ Gaps, Events, Next}, What, #plan{from = Next, told = NowTold, former = Read}, none,
     Later}.

-spec given(all, more | done,
            {[halley_cursor:gap()], [{halley_event:delivery(), binary()}], halley_history:vector()},
            {halley_turns:goal(), #plan{}}, #state{}) -> {idle, #state{}}.
given(all, What, {Gaps, Events, Next}, {Goal, _}, State) ->
    tell({portion, Gaps, Events, Next}, State),
    {idle, State#state{next = case {What, Goal} of
                                  {more, _} -> portion;
                                  {done, written} -> hold;
                                  {done, Heads} -> {reached, Heads}
                              end}}.

tell(What, #state{writer = Writer}) ->
    Writer ! {catchup, self(), What},
    ok.
