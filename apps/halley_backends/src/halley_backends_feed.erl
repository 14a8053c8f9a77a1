%% Reads what sessions of back ends get: from the history, in order, each event with its cursor. One
%% process, so that there is one reader, and sessions take turns, one batch each.
%%
%% A session asks with the heads that it must be given (`want/1') when something was published for
%% it, and has its turn once the log has written these. So a back end gets an event when it is on
%% disk: never one that a brain which is killed forgets. The answer is `{fed, Items, Cursor, What}':
%% oldest first, and `more' if it shall ask again.
%%
%% Memory: the place of each session is small, but for one whose replay is in the midst of much. Of
%% these ?KEPT_MAX are kept; the others are made again from their cursors. A replay that has yielded
%% gets nowhere if it is made again, so it takes the room of one that hasn't; where all have, those
%% that are kept will soon be done.
%%
%% It doesn't send: a session without a reader requests nothing.
-module(halley_backends_feed).
-behaviour(gen_server).

-export([start_link/0, add/2, want/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([item/0]).

-define(KEPT_MAX, 64).

-type item() :: {event, map()} | {gap, map()}.
%% amid: of a session that will ask again. yielded: of one that has a turn.
%% gap: of one whose cursor can't be gone on from; from its login on it lacks nothing.
-type place() :: {cursor, halley_cursor:token()}
               | {gap, halley_cursor:gap(), halley_replay:replay()}
               | {done | amid | yielded, halley_replay:replay()}.
-record(state, {
    reader :: halley_history_reader:reader(),
    limits :: halley_replay:limits(),
    places = #{} :: #{pid() => {halley_id:id(), place()}},
    kept = #{} :: #{pid() => amid | yielded},          % whose places are large
    turns = queue:new() :: queue:queue(pid()),
    %% For the log to have written.
    awaiting = queue:new() :: queue:queue({halley_history:vector(), pid()}),
    %% The log will say when it has written the first of these.
    notified_by = none :: none | reference()
}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [],
                          [{spawn_opt, [{min_bin_vheap_size,
                                         halley_history_reader:vheap_words()}]}]).

%% The calling process, which is a session of this user by now, from its cursor on, or from now on.
%% Gives where it begins.
-spec add(halley_id:id(), none | halley_cursor:token()) -> halley_cursor:token().
add(User, Cursor) -> gen_server:call(?MODULE, {add, User, Cursor}, infinity).

-spec want(halley_history:vector()) -> ok.
want(Heads) -> gen_server:cast(?MODULE, {want, self(), Heads}).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{reader = halley_history_reader:new(),
                limits = #{events_max => halley_limits:get(replay_events_max),
                           bytes_max => halley_limits:get(replay_bytes_max)}}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}, timeout()}.
handle_call({add, User, Given}, {Pid, _}, #state{places = Places} = State) ->
    _ = erlang:monitor(process, Pid),
    Cursor = case Given of
        none ->
            Second = halley_clock:wall_s(),
            halley_cursor:encode(halley_history:store(), Second, halley_history:heads());
        _ -> Given
    end,
    {reply, Cursor, State#state{places = Places#{Pid => {User, begins(User, Cursor)}}},
     wait(State)};
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State, wait(State)}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_cast({want, Pid, Heads}, #state{awaiting = Awaiting} = State) ->
    go_on(State#state{awaiting = queue:in({Heads, Pid}, Awaiting)});
handle_cast(_, State) ->
    go_on(State).

-spec handle_info(term(), #state{}) -> {noreply, #state{}, timeout()}.
handle_info({'DOWN', _, process, Pid, _}, State) ->
    go_on(forget(Pid, State));
handle_info({history_written, Ref}, #state{notified_by = Ref} = State) ->
    go_on(State#state{notified_by = none});
handle_info(timeout, #state{turns = Turns} = State) ->
    case queue:out(Turns) of
        {{value, Pid}, Rest} -> go_on(turn(Pid, State#state{turns = Rest}));
        {empty, _} -> go_on(State)
    end;
handle_info(_, State) ->
    go_on(State).

go_on(State) ->
    Next = written(State),
    {noreply, Next, wait(Next)}.

%% Messages come before turns.
wait(#state{turns = Turns}) ->
    case queue:is_empty(Turns) of
        true -> infinity;
        false -> 0
    end.

%% Heads only rise, so who asked first is first.
written(#state{awaiting = Awaiting, turns = Turns, notified_by = none} = State) ->
    case queue:peek(Awaiting) of
        {value, {Heads, Pid}} ->
            case halley_history:notify(Heads) of
                written -> written(State#state{awaiting = queue:drop(Awaiting),
                                               turns = queue:in(Pid, Turns)});
                {later, Ref} -> State#state{notified_by = Ref}
            end;
        empty -> State
    end;
written(State) ->
    State.

forget(Pid, #state{places = Places} = State) ->
    case maps:take(Pid, Places) of
        {_, Rest} -> State#state{places = Rest, kept = maps:remove(Pid, State#state.kept)};
        error -> State
    end.

%% What is published behind the login is no part of the gap, however late the first turn is.
begins(User, Cursor) ->
    case halley_replay:new(User, Cursor) of
        {ok, _} -> {cursor, Cursor};
        {gap, _, _} = Gap -> Gap
    end.

%% --- turns -------------------------------------------------------------------------------------

turn(Pid, #state{places = Places} = State) ->
    case Places of
        #{Pid := {User, {cursor, Cursor}}} ->
            case halley_replay:new(User, Cursor) of
                {ok, Replay} -> batch(Pid, User, [], Replay, State);
                {gap, Gap, Replay} -> batch(Pid, User, [{gap, Gap}], Replay, State)
            end;
        #{Pid := {User, {gap, Gap, Replay}}} -> batch(Pid, User, [{gap, Gap}], Replay, State);
        #{Pid := {User, {_, Replay}}} -> batch(Pid, User, [], Replay, State);
        #{} -> State
    end.

batch(Pid, User, Before, Replay, #state{limits = Limits, reader = Reader} = State) ->
    {Items, What, Next, NextReader} =
        halley_replay:next(Replay, halley_history:written(), Limits, fun item/3, Before, Reader),
    {_, Left} = halley_replay:gathered(Next),
    Read = State#state{reader = NextReader},
    case {What, Items} of
        {yield, []} -> again(Pid, keep(Pid, User, yielded, Left, with_room(Pid, Read)));
        %% The gap that it began with.
        {yield, _} -> fed(Pid, Items, Left, more, keep(Pid, User, amid, Left, Read));
        {done, _} -> fed(Pid, Items, Left, done, put_place(Pid, User, {done, Left}, Read));
        {more, _} -> fed(Pid, Items, Left, more, keep(Pid, User, amid, Left, Read));
        {{gap, Gap}, _} ->
            fed(Pid, [{gap, Gap} | Items], Left, more, keep(Pid, User, amid, Left, Read))
    end.

again(Pid, #state{turns = Turns} = State) -> State#state{turns = queue:in(Pid, Turns)}.

fed(Pid, Items, Replay, What, State) ->
    Pid ! {fed, lists:reverse(Items), halley_replay:cursor(Replay), What},
    State.

keep(Pid, User, What, Replay, #state{kept = Kept} = State)
  when map_size(Kept) < ?KEPT_MAX; is_map_key(Pid, Kept) ->
    put_place(Pid, User, {What, Replay}, State);
keep(Pid, User, _, Replay, State) ->
    put_place(Pid, User, {cursor, halley_replay:cursor(Replay)}, State).

with_room(Pid, #state{kept = Kept} = State)
  when map_size(Kept) < ?KEPT_MAX; is_map_key(Pid, Kept) ->
    State;
with_room(_, #state{kept = Kept, places = Places} = State) ->
    case [Other || {Other, amid} <- maps:to_list(Kept)] of
        [Other | _] ->
            #{Other := {User, {amid, Replay}}} = Places,
            put_place(Other, User, {cursor, halley_replay:cursor(Replay)}, State);
        [] ->
            State
    end.

put_place(Pid, User, {What, _} = Place, #state{places = Places, kept = Kept} = State) ->
    #{Pid := _} = Places,
    Keeps = case What of
        _ when What =:= amid; What =:= yielded -> Kept#{Pid => What};
        _ -> maps:remove(Pid, Kept)
    end,
    State#state{places = Places#{Pid => {User, Place}}, kept = Keeps}.

%% The record is a part of a block of the log.
item(Body, Cursor, Items) ->
    {ok, #{kind := Kind, id := Id, at := At} = Record} = halley_history_record:body(Body),
    Event = #{id => binary:copy(Id), at => At, cursor => Cursor,
              data => halley_event:data(Record)},
    [{event, case Kind of
                 event -> Event#{subject => binary:copy(maps:get(subject, Record))};
                 joint -> Event#{subjects => [binary:copy(S) || S <- maps:get(subjects, Record)]};
                 private -> Event#{private => true}
             end} | Items].
