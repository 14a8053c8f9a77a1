%% Reports to sessions which users come to a subject and which leave it (http.md 22.5 on,
%% docs/internals/presence.md).
%%
%% A session receives presence by a subscription to a key (`halley_presence_keys'). It gets the
%% state of the subject, and then each change; of a large subject counts alone. Here is what was
%% *sent* (`halley_presence_roster'), which follows the truth: a note names a user to look at
%% (`halley_presence_dirty'), and differences are sent. A join is sent at once. A leave is sent when
%% the user has been away for `presence_leave_ms', in which all workers were linked and had sent
%% their sessions.
%%
%% So a connection that comes back, a link that is cut and an edge that begins anew cause no
%% message. A brain that begins knows nothing of what the one before it sent: it is silent until all
%% workers have been linked for as long, and then sends every listener the state, which replaces
%% what it knew. State is replaced, never repaired.
%%
%% It is one process. It looks at the notes of ?GATHER_MS together and sends each link one message,
%% so that a single user who comes and goes wakes no writer for itself alone. Changes for which a
%% link has no room are not queued: the link is *owed* the state (`halley_presence_batch'), and gets
%% it when it has. Nothing of it is on disk, and without sessions that receive presence it does
%% nothing.
-module(halley_presence).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("halley_presence.hrl").

-define(TICK_MS, 100).
%% From the first note on.
-define(GATHER_MS, 20).

-record(state, {
    leave_ms :: pos_integer(),
    begun = false :: boolean(),
    %% While it begins.
    departures = halley_presence_departures:new() :: halley_presence_departures:departures(),
    ticking = false :: boolean(),
    %% When the next tick is due.
    tick_ms = 0 :: integer(),
    settled :: halley_presence_settled:settled(),
    gathering = false :: boolean(),
    batch = halley_presence_batch:new() :: halley_presence_batch:batch(),
    roster :: halley_presence_roster:roster(),
    throttle = halley_presence_throttle:new() :: halley_presence_throttle:throttle(),
    watched = #{} :: #{halley_id:id() => #watch{}},
    following = off :: off | halley_presence_following:following(),
    swept_at = 0 :: integer()
}).

%% `ignore' where the configuration has no subjects for it.
-spec start_link() -> gen_server:start_ret().
start_link() ->
    case halley_presence_keys:is_on() of
        true -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []);
        false -> ignore
    end.

-spec init([]) -> {ok, #state{}}.
init([]) ->
    LeaveMs = application:get_env(halley, presence_leave_ms, 10000),
    ok = halley_presence_dirty:active(0),
    self() ! look,
    %% One that died had sent something: all listeners get the state again.
    _ = [self() ! {watch_again, Key} || Key <- halley_subscriptions_table:keys(<<1>>)],
    {ok, #state{leave_ms = LeaveMs, roster = halley_presence_roster:new(LeaveMs),
                settled = halley_presence_settled:new(LeaveMs)}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call(_, _, State) ->
    {reply, ok, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, #state{gathering = true} = State) ->
    {noreply, State};
handle_info(look, State) ->
    _ = erlang:send_after(?GATHER_MS, self(), gathered),
    {noreply, State#state{gathering = true}};
handle_info(gathered, State) ->
    {noreply, send(look(State#state{gathering = false}))};
handle_info(tick, #state{tick_ms = DueMs, settled = Settled} = State) ->
    Fired = halley_presence_settled:fired(DueMs, now_ms(), Settled),
    {noreply, send(ticked(look(State#state{ticking = false, settled = Fired})))};
handle_info({watch_again, _}, State) ->
    {noreply, ticking(State)};
handle_info({counted, Subject, Count, MayName}, State) ->
    {noreply, send(counted(Subject, Count, MayName, State))};
handle_info(_, State) ->
    {noreply, State}.

now_ms() -> erlang:monotonic_time(millisecond).

%% --- notes ---------------------------------------------------------------------------------------

%% Sessions that begin to watch are last, so that the state they get has the changes before.
look(State) -> look(halley_presence_dirty:take(), State).

look(Notes, State) ->
    Watching = [{Word, Key} || {watch, Word, Key} <- Notes],
    Ticking = case Watching of [] -> State; _ -> ticking(State) end,
    case Ticking of
        #state{begun = false} ->
            noted(Notes, Ticking);
        #state{} ->
            %% First, so that a user who joins isn't sent twice with its state.
            Stated = lists:foldl(fun stated/2, Ticking, [User || {state, User} <- Notes]),
            Forgotten = lists:foldl(fun forgotten/2, Stated, [U || {forgotten, U} <- Notes]),
            There = [User || {there, User} <- Notes],
            Others = lists:usort([User || {What, User} <- Notes,
                                          What =:= user orelse What =:= followed]) -- There,
            Users = lists:foldl(fun user/2, lists:foldl(fun there/2, Forgotten, There), Others),
            Seen = lists:foldl(fun visitors/2, Users, [S || {visitors, S} <- Notes]),
            lists:foldl(fun watch/2, Seen, Watching)
    end.

%% It begins.
noted(Notes, #state{departures = Departures} = State) ->
    Now = now_ms(),
    Note = fun(Note, D) -> halley_presence_departures:note(Note, Now, D) end,
    State#state{departures = lists:foldl(Note, Departures, Notes)}.

ticking(#state{ticking = true} = State) ->
    State;
ticking(#state{begun = Begun} = State) ->
    ok = halley_presence_dirty:begins(not Begun),
    Begun orelse halley_presence_dirty:active(1),
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{ticking = true, tick_ms = now_ms() + ?TICK_MS}.

%% It had sessions since the last look. If it has none any more, it is away from now on, also if it
%% was on its way out before.
there(User, State) ->
    case halley_directory:sessions(User) of
        [] -> user(User, fun halley_presence_roster:away_anew/3, State);
        _ -> user(User, State)
    end.

%% A user's sessions, follows or subscriptions have changed.
user(User, State) -> user(User, fun halley_presence_roster:away/3, State).

user(User, Away, State) ->
    followed_by_others(User, Away, in_watched(User, Away, State)).

in_watched(_, _, #state{watched = Watched} = State) when map_size(Watched) =:= 0 ->
    State;
in_watched(User, Away, #state{watched = Watched, roster = Roster} = State) ->
    There = halley_presence_watch:of_user(User, Watched),
    Was = halley_presence_roster:subjects(User, Roster),
    Left = lists:foldl(fun(S, R) -> Away({S, User}, now_ms(), R) end, Roster, Was -- There),
    lists:foldl(fun(S, St) -> here(S, User, St) end, State#state{roster = Left}, There).

here(Subject, User, #state{watched = Watched, roster = Roster} = State) ->
    case Watched of
        #{Subject := #watch{named = true}} ->
            case halley_presence_roster:here(Subject, User, halley_ids:name(User), Roster) of
                {known, Next} ->
                    State#state{roster = Next};
                {joined, Next} ->
                    joined(Subject, User, State#state{roster = Next});
                {{instead_of, Name}, Next} ->
                    Throttle = halley_presence_throttle:forget(User, State#state.throttle),
                    Left = State#state{roster = Next, throttle = Throttle},
                    joined(Subject, User, left({Subject, Name}, Left))
            end;
        #{} ->
            State
    end.

joined(Subject, User, #state{roster = Roster} = State) ->
    case halley_presence_roster:count(Subject, Roster) > halley_limits:get(presence_users_max) of
        true ->
            count_alone(Subject, State);
        false ->
            Text = case (said(State))([User]) of [{_, T}] -> {ok, T}; [] -> none end,
            Who = {halley_ids:name(User), Text},
            to_watchers(Subject, halley_presence_json:change(Subject, Who, join), State)
    end.

followed_by_others(_, _, #state{following = off} = State) ->
    State;
followed_by_others(User, Away, #state{following = Following, roster = Roster} = State) ->
    case halley_presence_following:look(User, Following) of
        same ->
            State#state{roster = halley_presence_roster:back({following, User}, Roster)};
        away ->
            State#state{roster = Away({following, User}, now_ms(), Roster)};
        joined ->
            add(halley_presence_following:join(User, said(State)), State)
    end.

%% A session of the user says something else of itself, or nothing any more.
stated(User, #state{throttle = Throttle, leave_ms = LeaveMs} = State) ->
    Said = halley_session_states:of_user(User),
    case halley_presence_throttle:look(User, Said, {now_ms(), LeaveMs}, Throttle) of
        {send, Next} -> send_state(User, Said, State#state{throttle = Next});
        {same, Next} -> State#state{throttle = Next}
    end.

%% It was deleted: the end of its state is sent at once.
forgotten(User, #state{throttle = Throttle} = State) ->
    case halley_session_states:of_user(User) of
        none ->
            Next = State#state{throttle = halley_presence_throttle:forget(User, Throttle)},
            send_state(User, none, Next);
        _ ->
            stated(User, State)
    end.

send_state(User, Said, #state{throttle = Throttle, roster = Roster} = State) ->
    case halley_presence_throttle:sent(User, Said, now_ms(), Throttle) of
        {same, Next} ->
            State#state{throttle = Next};
        {differs, Next} ->
            Updated = lists:foldl(fun(Subject, S) ->
                #{User := Name} = halley_presence_roster:users(Subject, Roster),
                to_watchers(Subject, halley_presence_json:update(Subject, Name, Said), S)
            end, State#state{throttle = Next}, halley_presence_roster:subjects(User, Roster)),
            case Updated of
                #state{following = off} ->
                    Updated;
                #state{following = Following} ->
                    add(halley_presence_following:update(User, Said, Following), Updated)
            end
    end.

%% The states of users as listeners know them.
said(#state{throttle = Throttle}) ->
    fun(Users) ->
        halley_presence_throttle:shown(Users, halley_session_states:of_users(Users), Throttle)
    end.

visitors(Subject, #state{watched = Watched} = State) ->
    case Watched of
        #{Subject := Watch} ->
            State#state{watched = Watched#{Subject := Watch#watch{is_due = true}}};
        #{} ->
            State
    end.

%% --- listeners -----------------------------------------------------------------------------------

watch({Word, Key}, State) ->
    ok = halley_presence_pending:sent(Key, [Word]),
    {presence, Subject} = halley_presence_keys:subject(Key),
    case {halley_presence_keys:may(Subject), Subject} of
        {false, _} -> State;
        {true, <<"*">>} -> watch_following([Word], State);
        {true, _} -> state_of(Subject, [Word], watched(Subject, State))
    end.

watch_following(Words, State) ->
    #state{following = Following} = Watching = following(State),
    Said = said(State),
    lists:foldl(fun(Word, S) ->
        lists:foldl(fun add/2, S, halley_presence_following:state(Word, Said, Following))
    end, Watching, Words).

following(#state{following = off} = State) ->
    ok = halley_presence_dirty:active(1 + map_size(State#state.watched)),
    State#state{following = halley_presence_following:new()};
following(State) ->
    State.

%% A subject that a session watches.
watched(Subject, #state{watched = Watched} = State) when is_map_key(Subject, Watched) ->
    State;
watched(Subject, #state{watched = Watched, roster = Roster} = State) ->
    ok = halley_presence_dirty:active(1 + map_size(Watched)),
    {Watch, Users} = halley_presence_watch:open(Subject),
    Filled = halley_presence_roster:fill(Subject, [{U, halley_ids:name(U)} || U <- Users], Roster),
    State#state{watched = Watched#{Subject => Watch}, roster = Filled}.

state_of(_, [], State) ->
    State;
state_of(Subject, Words, #state{watched = Watched, roster = Roster} = State) ->
    Watch = map_get(Subject, Watched),
    Texts = halley_presence_watch:state(Subject, Watch, Roster, said(State)),
    lists:foldl(fun(Text, S) -> add({Words, Text}, S) end, State, Texts).

to_watchers(Subject, Json, State) ->
    add({halley_presence_pending:words(halley_presence_keys:key(Subject)), Json}, State).

add({Words, Json}, #state{batch = Batch} = State) ->
    State#state{batch = halley_presence_batch:add(Words, Json, Batch)}.

send(#state{batch = Batch} = State) ->
    State#state{batch = halley_presence_batch:send(Batch)}.

%% --- time ----------------------------------------------------------------------------------------

ticked(State) ->
    Now = now_ms(),
    Settled = halley_presence_settled:is_settled(Now, State#state.begun, State#state.settled),
    case State of
        #state{begun = false} when Settled ->
            tick_again(begin_sending(Now, State));
        #state{begun = false, departures = Departures, leave_ms = LeaveMs} ->
            Since = halley_presence_departures:since(Now - LeaveMs, Departures),
            tick_again(State#state{departures = Since});
        #state{} ->
            Left = case Settled of true -> leaves(Now, State); false -> State end,
            tick_again(swept(Now, Settled, counts(Now, pay(states_due(Now, Settled, Left)))))
    end.

%% Without listeners it sleeps: the next one wakes it.
tick_again(#state{begun = true, watched = Watched, following = off} = State)
  when map_size(Watched) =:= 0 ->
    ok = halley_presence_dirty:active(0),
    State#state{throttle = halley_presence_throttle:new()};
tick_again(#state{begun = true, watched = Watched, following = Following} = State) ->
    ok = halley_presence_dirty:active(map_size(Watched)
                                      + case Following of off -> 0; _ -> 1 end),
    ticking(State);
tick_again(State) ->
    ticking(State).

%% All subjects that have listeners, first with all that are in them. A user who goes while they are
%% read has only gone a moment ago, too; all other changes meanwhile are looked at after it.
begin_sending(Now, State) ->
    Asked = [{Subject, Key} || Key <- halley_subscriptions_table:keys(<<1>>),
                               {presence, Subject} <- [halley_presence_keys:subject(Key)],
                               halley_presence_keys:may(Subject)],
    Opened = lists:foldl(fun({<<"*">>, _}, S) -> following(S);
                            ({Subject, _}, S) -> watched(Subject, S)
                         end, State#state{begun = true, swept_at = Now}, Asked),
    Notes = halley_presence_dirty:take(),
    look(Notes, lists:foldl(fun({<<"*">>, Key}, S) ->
                        watch_following(halley_presence_pending:all(Key), S);
                   ({Subject, Key}, S) ->
                        state_of(Subject, halley_presence_pending:all(Key), S)
                end, with_departures(now_ms(), noted(Notes, Opened)), Asked)).

%% A user that went a moment ago hasn't left yet.
with_departures(Now, #state{watched = Watched, roster = Roster} = State) ->
    Since = Now - State#state.leave_ms,
    Departures = halley_presence_departures:since(Since, State#state.departures),
    Named = maps:filter(fun(_, #watch{named = Is}) -> Is end, Watched),
    With = halley_presence_departures:into_roster(Now, Named, Roster, Departures),
    still(halley_presence_departures:users(Departures), Now,
          State#state{roster = With, departures = halley_presence_departures:new()}).

still(_, _, #state{following = off} = State) ->
    State;
still(Users, Now, #state{following = Following, roster = Roster} = State) ->
    State#state{roster = lists:foldl(fun(User, R) ->
        ok = halley_presence_following:still(User, Following),
        halley_presence_roster:away({following, User}, Now, R)
    end, Roster, Users)}.

leaves(Now, #state{roster = Roster} = State) ->
    {Left, Next} = halley_presence_roster:due(Now, fun is_held/1, Roster),
    lists:foldl(fun left/2, State#state{roster = Next}, Left).

%% After the leaves: the states of users who left aren't sent any more. The end of a state is as
%% uncertain as a leave.
states_due(Now, Settled, #state{throttle = Throttle} = State) ->
    {Users, Next} = halley_presence_throttle:due(Now, Throttle),
    lists:foldl(fun(User, S) ->
        case halley_session_states:of_user(User) of
            none when not Settled -> stated(User, S);
            none -> case halley_directory_leaving:is_held(User) of
                        true -> stated(User, S);
                        false -> send_state(User, none, S)
                    end;
            Said -> send_state(User, Said, S)
        end
    end, State#state{throttle = Next}, Users).

is_held({_, User}) -> halley_directory_leaving:is_held(User).

left({following, User}, #state{following = Following} = State) when Following =/= off ->
    case halley_presence_following:leave(User, Following) of
        left -> add(halley_presence_following:left(User), State);
        same -> State
    end;
left({following, _}, State) ->
    State;
left({Subject, Name}, State) ->
    to_watchers(Subject, halley_presence_json:change(Subject, {Name, none}, leave), State).

%% Links that had no room and have some now get the state of all that their sessions watch.
pay(#state{batch = Batch, watched = Watched} = State) ->
    {Slots, Next} = halley_presence_batch:pay(Batch),
    lists:foldl(fun(Slot, S) -> pay(Slot, maps:keys(Watched), S) end,
                State#state{batch = Next}, Slots).

pay(Slot, Subjects, State) ->
    Words = fun(Subject) ->
        halley_subscriptions_table:words(halley_presence_keys:key(Subject), #{Slot => []})
    end,
    Paid = lists:foldl(fun(S, Acc) -> state_of(S, Words(S), Acc) end, State, Subjects),
    case Paid of
        #state{following = off} -> Paid;
        #state{} -> watch_following(Words(<<"*">>), Paid)
    end.

%% --- counts --------------------------------------------------------------------------------------

%% A subject with more users than are named: from now on they are counted.
count_alone(Subject, #state{watched = Watched, roster = Roster} = State) ->
    Watch = map_get(Subject, Watched),
    Online = halley_presence_roster:count(Subject, Roster) + Watch#watch.visitors,
    Large = Watch#watch{named = false, online = Online, is_due = true},
    to_watchers(Subject, halley_presence_json:large(Subject, Online),
                State#state{watched = Watched#{Subject := Large},
                            roster = halley_presence_roster:drop(Subject, Roster)}).

counts(Now, #state{watched = Watched} = State) ->
    Every = halley_limits:get(presence_counts_ms),
    maps:fold(fun(Subject, #watch{counted_at = At} = Watch, S) when Now - At >= Every ->
                      count(Subject, Watch#watch{counted_at = Now}, S);
                 (_, _, S) ->
                      S
              end, State, Watched).

count(Subject, #watch{named = true, is_due = true, visitors = Before} = Watch, State) ->
    #state{watched = Watched, roster = Roster} = State,
    Visitors = halley_presence_watch:visitors(Subject),
    Recounted = Watch#watch{visitors = Visitors, is_due = false},
    Next = State#state{watched = Watched#{Subject := Recounted}},
    case Visitors of
        Before ->
            Next;
        _ ->
            Online = halley_presence_roster:count(Subject, Roster) + Visitors,
            to_watchers(Subject, halley_presence_json:online(Subject, Online), Next)
    end;
count(Subject, #watch{named = false, is_counting = false} = Watch, State) ->
    #state{watched = Watched} = State,
    Self = self(),
    _ = spawn_link(fun() ->
        {Online, MayName} = halley_presence_watch:count(Subject),
        Self ! {counted, Subject, Online, MayName}
    end),
    State#state{watched = Watched#{Subject := Watch#watch{is_counting = true}}};
count(_, _, State) ->
    State.

counted(Subject, Count, MayName, #state{watched = Watched} = State) ->
    case Watched of
        #{Subject := #watch{online = Online} = Watch} ->
            Recounted = Watch#watch{online = Count, is_counting = false},
            Next = State#state{watched = Watched#{Subject := Recounted}},
            case MayName of
                true -> name_again(Subject, Next);
                false when Count =:= Online -> Next;
                false -> to_watchers(Subject, halley_presence_json:large(Subject, Count), Next)
            end;
        #{} ->
            State
    end.

%% It has become small: its users are named again, to all.
name_again(Subject, #state{watched = Watched} = State) ->
    Opened = watched(Subject, State#state{watched = maps:remove(Subject, Watched)}),
    Words = halley_subscriptions_table:words(halley_presence_keys:key(Subject)),
    state_of(Subject, Words, Opened).

%% --- without listeners ---------------------------------------------------------------------------

%% It stays for a while: its listeners may be on their way back.
swept(Now, true, #state{leave_ms = LeaveMs, swept_at = At, watched = Watched} = State)
  when Now - At >= LeaveMs ->
    {Idle, Seen} = halley_presence_watch:idle(Now, LeaveMs, Watched),
    Roster = lists:foldl(fun halley_presence_roster:drop/2, State#state.roster, Idle),
    swept_following(State#state{watched = Seen, roster = Roster, swept_at = Now});
swept(Now, false, State) ->
    State#state{swept_at = Now};
swept(_, true, State) ->
    State.

swept_following(#state{following = off} = State) ->
    State;
swept_following(#state{following = Following} = State) ->
    Has = halley_subscriptions_table:has_any(halley_presence_keys:key(<<"*">>)),
    case halley_presence_following:idle(Has, Following) of
        {stays, Next} -> State#state{following = Next};
        gone -> State#state{following = off}
    end.
