%% Replays: the sessions of one link that came back with a cursor get what they missed
%% (protocol/link.md 10, docs/internals/delivery.md). One process per worker, linked to the link's.
%%
%% The worker holds live events for such a session until LAST. Sessions take turns
%% (`halley_turns'), one batch of one session each:
%%   1. Batches up to what the log has written. After each the session waits for REPLAYED, so it
%%      takes its client's pace and delays no other.
%%   2. When it had all of it, it is *near*, and the link puts it into the directory, unless it has
%%      been closed: the link alone opens and closes its sessions. Then the link reads the heads,
%%      once for all that are ready, and the log says when it has written up to these. Whatever is
%%      above the heads finds the session.
%%   3. The rest up to the heads, and LAST, which the writer keeps until the link's cursor has
%%      reached them (10.5).
%%
%% A poll's first REPLAY with items is its last (10.7).
%%
%% Live events come first: the process has a low priority, so it runs every eighth time at most
%% while processes that carry live events want to run, and only with a permit, of which those of
%% all workers have a few together (`halley_turns_permits'). It makes batches only while less than
%% `replay_queue_bytes_max' waits for the link. At most `replays_max' sessions keep the state of
%% their replay between two turns.
-module(halley_edge_replays).
-behaviour(halley_turns).

-export([start_link/3, pid/1, add/2, add_entered/3, replayed/2, cancel/2, entered/3, waiting/1]).
-export([init/1, handle/3, has_room/1, plan/4, batch/4, given/5, cursor/1]).
-export_type([handle/0, held/0]).

-include("halley_edge.hrl").

%% With what waits in the mailbox: the link sees to it that it isn't too much.
-opaque handle() :: {pid(), counters:counters_ref()}.
%% A session that is held.
-type held() :: {halley_edge_codec:conn(), UserNumber :: non_neg_integer(), Transport :: 1..5,
                 Cursor :: binary()}.

%% So that a batch and one event more fit a frame, with what halley_replay doesn't count.
-define(BATCH_EVENTS_MAX, 512).
-define(FRAME_SPARE_BYTES, 32768).

%% A dozen batches.
-define(HEAP_WORDS, 131072).

-record(state, {
    link :: pid(),
    slot :: halley_links:slot(),
    writer :: halley_edge_sender:handle(),
    waiting :: counters:counters_ref(),
    limits :: halley_replay:limits(),
    queue_bytes_max :: pos_integer(),
    polls = #{} :: #{halley_edge_codec:conn() => []},
    %% Those that had all that was written. sent: waits for REPLAYED. entering: the link enters it.
    near = #{} :: #{halley_edge_codec:conn() => sent | entering},
    ready = #{} :: #{halley_edge_codec:conn() => []}, % for the directory
    is_entering = false :: boolean()                  % the link has some of them to enter
}).

%% To be called by the link. It receives {enter, Pid, [Conn]}, the sessions to be put into the
%% directory, and answers by entered/2; and {replay_ended, Pid, Conn}.
-spec start_link(Link :: pid(), halley_links:slot(), halley_edge_sender:handle()) -> handle().
start_link(Link, Slot, Writer) ->
    Waiting = counters:new(1, [atomics]),
    Options = [{priority, low}, {message_queue_data, off_heap}, {min_heap_size, ?HEAP_WORDS}],
    {halley_turns:start_link(?MODULE, {Link, Slot, Writer, Waiting}, Options), Waiting}.

-spec pid(handle()) -> pid().
pid({Replays, _}) -> Replays.

%% Sessions that were not yet looked at: those that came, went, or answered.
-spec waiting(handle()) -> non_neg_integer().
waiting({_, Waiting}) -> counters:get(Waiting, 1).

%% Sessions that came with a cursor and got their OPENED.
-spec add(handle(), [held()]) -> ok.
add(Replays, Held) ->
    send(Replays, length(Held), {add, Held}).

%% Sessions that had all when they came, and are in the directory now; what was drawn meanwhile, up
%% to these heads, they may lack.
-spec add_entered(handle(), [held()], Heads :: halley_history:vector()) -> ok.
add_entered(Replays, Entered, Heads) ->
    send(Replays, length(Entered), {add_entered, Entered, Heads}).

%% What was replayed has left the session's outbox.
-spec replayed(handle(), halley_edge_codec:conn()) -> ok.
replayed(Replays, Conn) ->
    send(Replays, 1, {replayed, Conn}).

%% The session has been closed.
-spec cancel(handle(), halley_edge_codec:conn()) -> ok.
cancel(Replays, Conn) ->
    send(Replays, 1, {cancel, Conn}).

%% Those of the sessions that were to enter that are in the directory now, and the heads, read after
%% that.
-spec entered(handle(), [halley_edge_codec:conn()], halley_history:vector()) -> ok.
entered(Replays, Conns, Heads) ->
    send(Replays, 0, {entered, Conns, Heads}).

send({Replays, Waiting}, Sessions, Message) ->
    counters:add(Waiting, 1, Sessions),
    Replays ! Message,
    ok.

-spec init({pid(), halley_links:slot(), halley_edge_sender:handle(), counters:counters_ref()}) ->
    {halley_turns:options(), #state{}}.
init({Link, Slot, Writer, Waiting}) ->
    BytesMax = ?FRAME_BYTES_MAX - ?FRAME_SPARE_BYTES - halley_limits:get(event_data_bytes_max),
    Limits = #{events_max => min(?BATCH_EVENTS_MAX, halley_limits:get(replay_events_max)),
               bytes_max => max(1, min(BytesMax, halley_limits:get(replay_bytes_max)))},
    {#{kept_max => halley_limits:get(replays_max), permits => true},
     #state{link = Link, slot = Slot, writer = Writer, waiting = Waiting, limits = Limits,
            queue_bytes_max = halley_limits:get(replay_queue_bytes_max)}}.

-spec has_room(#state{}) -> boolean().
has_room(#state{writer = Writer, queue_bytes_max = Max}) ->
    halley_edge_sender:queue_bytes(Writer) < Max.

-spec handle(term(), halley_turns:turns(), #state{}) -> {halley_turns:turns(), #state{}}.
handle({add, Held}, Turns, State) ->
    {Added, Next} = added(Held, Turns, State),
    {lists:foldl(fun({Conn, _, _, _}, T) -> halley_turns:go_on(Conn, T) end, Added, Held), Next};
handle({add_entered, Entered, Heads}, Turns, State) ->
    {Added, Next} = added(Entered, Turns, State),
    {halley_turns:await([Conn || {Conn, _, _, _} <- Entered], Heads, Heads, Added), Next};
handle({replayed, Conn}, Turns, #state{near = Near} = State) ->
    seen(1, State),
    case Near of
        #{Conn := sent} -> {Turns, enter(ready(Conn, State))};
        #{Conn := entering} -> {Turns, State};
        #{} -> {halley_turns:go_on(Conn, Turns), State}
    end;
handle({cancel, Conn}, Turns, State) ->
    seen(1, State),
    {halley_turns:remove(Conn, Turns), forgotten(Conn, State)};
handle({entered, Conns, Heads}, Turns, #state{near = Near} = State) ->
    {halley_turns:await(Conns, Heads, Heads, Turns),
     enter(State#state{near = maps:without(Conns, Near), is_entering = false})}.

added(Held, Turns, #state{polls = Polls} = State) ->
    seen(length(Held), State),
    ok = halley_metrics:incr(replays, length(Held)),
    Added = lists:foldl(fun({Conn, User, _, Cursor}, T) ->
        halley_turns:add(Conn, user(User, Conn), {from, Cursor}, T)
    end, Turns, Held),
    NewPolls = [Conn || {Conn, _, ?TRANSPORT_POLL, _} <- Held],
    {Added, State#state{polls = maps:merge(Polls, maps:from_keys(NewPolls, []))}}.

%% Visitors have turns of their own.
user(?NOBODY, Conn) -> {visitor, Conn};
user(User, _) -> User.

seen(Sessions, #state{waiting = Waiting}) ->
    counters:sub(Waiting, 1, Sessions).

forgotten(Conn, #state{polls = Polls, near = Near, ready = Ready} = State) ->
    State#state{polls = maps:remove(Conn, Polls), near = maps:remove(Conn, Near),
                ready = maps:remove(Conn, Ready)}.

%%% Entering, many at a time

ready(Conn, #state{near = Near, ready = Ready} = State) ->
    State#state{near = Near#{Conn => entering}, ready = Ready#{Conn => []}}.

enter(#state{is_entering = false, ready = Ready, link = Link} = State)
  when map_size(Ready) > 0 ->
    Link ! {enter, self(), maps:keys(Ready)},
    State#state{ready = #{}, is_entering = true};
enter(State) ->
    State.

%%% Turns

-spec plan(halley_edge_codec:conn(), halley_turns:user(), halley_cursor:token(), #state{}) ->
    halley_replay:replay().
plan(Conn, User, Cursor, #state{slot = Slot} = State) ->
    case halley_replay:new(name(User), {Slot, Conn}, Cursor) of
        {ok, Replay} ->
            Replay;
        {gap, Gap, Replay} ->
            gap(Conn, Gap, State),
            Replay
    end.

name({visitor, _}) -> nobody;
name(User) -> halley_ids:name(User).

-spec cursor(halley_replay:replay()) -> halley_cursor:token().
cursor(Replay) -> halley_replay:cursor(Replay).

-spec batch(halley_replay:replay(), halley_history:vector(), halley_history_reader:reader(),
            #state{}) ->
    {halley_edge_encoder:items(), halley_turns:what(), halley_replay:replay(),
     none | halley_replay:gathered(), halley_history_reader:reader()}.
batch(Replay, UpTo, Reader, #state{limits = Limits}) ->
    {Items, What, Next, Later} =
        halley_replay:next(Replay, UpTo, Limits, fun halley_edge_encoder:add_item/3,
                           halley_edge_encoder:no_items(), Reader),
    {Found, Left} = halley_replay:gathered(Next),
    {Items, What, Left, Found, Later}.

-spec given(halley_edge_codec:conn(), halley_turns:what(), halley_edge_encoder:items(),
            {halley_turns:goal(), halley_replay:replay()}, #state{}) ->
    {halley_turns:verdict(), #state{}}.
given(_, yield, _, _, State) ->
    {late, State};
given(Conn, done, {0, _, _}, {written, _}, State) ->
    {idle, enter(ready(Conn, State))};
given(Conn, done, Items, {written, _}, #state{near = Near} = State) ->
    replay(Conn, Items, State),
    sent(Conn, State#state{near = Near#{Conn => sent}});
given(Conn, done, Items, {Heads, _}, #state{writer = Writer} = State) ->
    ok = halley_edge_sender:last(Writer, Conn, Heads, Items),
    ended(Conn, State);
given(Conn, more, Items, _, State) ->
    replay(Conn, Items, State),
    sent(Conn, State);
given(Conn, {gap, Gap}, {0, _, _}, _, State) ->
    gap(Conn, Gap, State),
    {again, State};
given(Conn, {gap, Gap}, Items, _, State) ->
    replay(Conn, Items, State),
    gap(Conn, Gap, State),
    sent(Conn, State).

sent(Conn, #state{polls = Polls} = State) when is_map_key(Conn, Polls) ->
    ended(Conn, State);
sent(_, State) ->
    {idle, State}.

ended(Conn, #state{link = Link} = State) ->
    Link ! {replay_ended, self(), Conn},
    {ended, forgotten(Conn, State)}.

replay(Conn, {_, Cursor, _} = Items, #state{writer = Writer}) ->
    write(halley_edge_encoder:encode_replay(Conn, 0, Cursor, [], Items), Writer).

gap(Conn, Gap, #state{writer = Writer}) ->
    #{reason := Reason, from := FromMs, to := ToMs, cursor := Cursor} = Gap,
    Frame = {gap, atom_to_binary(Reason), FromMs, ToMs, Cursor, [Conn]},
    write(halley_edge_codec:encode(Frame), Writer).

write(Frame, Writer) ->
    halley_edge_sender:send(Writer, [iolist_to_binary(Frame)]).
