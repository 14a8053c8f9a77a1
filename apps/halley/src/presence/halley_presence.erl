%% Tells sessions who comes to a subject and who leaves it (http.md 22.5 on,
%% docs/internals/presence.md).
%%
%% A session receives presence by a subscription to a key (`halley_presence_notes'). It gets the
%% state of the subject, and then each change; of a large subject counts alone. Here is what was
%% *sent* (`halley_presence_told'), which follows the truth: a note names a user to look at, and
%% differences are sent. A join is sent at once. A leave is sent when the user has been away for
%% `presence_leave_ms', in which all workers were linked and had sent their sessions.
%%
%% So a connection that comes back, a link that is cut and an edge that begins anew tell nothing.
%% A brain that begins knows nothing of what the one before it told: it is silent until all workers
%% have been linked for as long, and then tells everybody the state, which replaces what they knew.
%% State is replaced, never repaired.
%%
%% It is one process. It looks at the notes of ?GATHER_MS together and sends each link one message,
%% so that a single user who comes and goes wakes no writer for itself alone. Changes for which a
%% link has no room are not queued: the link is *owed* the state, and gets it when it has. Nothing
%% of it is on disk, and without sessions that receive presence it does nothing.
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
    %% Who went while it begins.
    recent = halley_presence_recent:new() :: halley_presence_recent:recent(),
    ticking = false :: boolean(),
    %% When the next tick is due.
    tick_ms = 0 :: integer(),
    quiet :: halley_presence_quiet:quiet(),
    gathering = false :: boolean(),
    gathered = halley_presence_tell:new() :: halley_presence_tell:gathered(),
    told :: halley_presence_told:told(),
    states = halley_presence_states:new() :: halley_presence_states:states(),
    rooms = #{} :: #{halley_id:id() => #room{}},
    following = off :: off | halley_presence_following:following(),
    owed = #{} :: #{halley_links:slot() => []},
    swept_at = 0 :: integer()
}).

%% `ignore' where the configuration has no subjects for it.
-spec start_link() -> gen_server:start_ret().
start_link() ->
    case halley_presence_notes:is_on() of
        true -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []);
        false -> ignore
    end.

-spec init([]) -> {ok, #state{}}.
init([]) ->
    LeaveMs = application:get_env(halley, presence_leave_ms, 10000),
    ok = halley_presence_notes:active(0),
    self() ! look,
    %% One that died had told something; whoever asked is told the state again.
    _ = [self() ! {watch_again, Key} || Key <- halley_subscriptions_table:keys(<<1>>)],
    {ok, #state{leave_ms = LeaveMs, told = halley_presence_told:new(LeaveMs),
                quiet = halley_presence_quiet:new(LeaveMs)}}.

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
handle_info(tick, #state{tick_ms = DueMs, quiet = Quiet} = State) ->
    Fired = halley_presence_quiet:fired(DueMs, now_ms(), Quiet),
    {noreply, send(ticked(look(State#state{ticking = false, quiet = Fired})))};
handle_info({watch_again, _}, State) ->
    {noreply, ticking(State)};
handle_info({counted, Subject, Count, MayName}, State) ->
    {noreply, send(counted(Subject, Count, MayName, State))};
handle_info(_, State) ->
    {noreply, State}.

now_ms() -> erlang:monotonic_time(millisecond).

%% --- notes ---------------------------------------------------------------------------------------

%% Those who asked are told last, so that they are told what is so now.
look(State) -> look(halley_presence_notes:take(), State).

look(Notes, State) ->
    Watching = [{Word, Key} || {watch, Word, Key} <- Notes],
    Ticking = case Watching of [] -> State; _ -> ticking(State) end,
    case Ticking of
        #state{begun = false} ->
            noted(Notes, Ticking);
        #state{} ->
            %% First, so that nobody who joins is told twice what it says of itself.
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
noted(Notes, #state{recent = Recent} = State) ->
    Now = now_ms(),
    Note = fun(Note, R) -> halley_presence_recent:note(Note, Now, R) end,
    State#state{recent = lists:foldl(Note, Recent, Notes)}.

ticking(#state{ticking = true} = State) ->
    State;
ticking(#state{begun = Begun} = State) ->
    ok = halley_presence_notes:begins(not Begun),
    Begun orelse halley_presence_notes:active(1),
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{ticking = true, tick_ms = now_ms() + ?TICK_MS}.

%% It had sessions since the last look. If it has none any more, it is away from now on, also if it
%% was on its way out before.
there(User, State) ->
    case halley_directory:sessions(User) of
        [] -> user(User, fun halley_presence_told:away_anew/3, State);
        _ -> user(User, State)
    end.

%% A user's sessions, follows or subscriptions have changed.
user(User, State) -> user(User, fun halley_presence_told:away/3, State).

user(User, Away, State) ->
    followed_by_others(User, Away, in_rooms(User, Away, State)).

in_rooms(_, _, #state{rooms = Rooms} = State) when map_size(Rooms) =:= 0 ->
    State;
in_rooms(User, Away, #state{rooms = Rooms, told = Told} = State) ->
    There = halley_presence_rooms:of_user(User, Rooms),
    Was = halley_presence_told:subjects(User, Told),
    Left = lists:foldl(fun(S, T) -> Away({S, User}, now_ms(), T) end, Told, Was -- There),
    lists:foldl(fun(S, St) -> here(S, User, St) end, State#state{told = Left}, There).

here(Subject, User, #state{rooms = Rooms, told = Told} = State) ->
    case Rooms of
        #{Subject := #room{named = true}} ->
            case halley_presence_told:here(Subject, User, halley_ids:name(User), Told) of
                {known, Next} ->
                    State#state{told = Next};
                {joined, Next} ->
                    joined(Subject, User, State#state{told = Next});
                {{instead_of, Name}, Next} ->
                    States = halley_presence_states:forget(User, State#state.states),
                    Left = State#state{told = Next, states = States},
                    joined(Subject, User, left({Subject, Name}, Left))
            end;
        #{} ->
            State
    end.

joined(Subject, User, #state{told = Told} = State) ->
    case halley_presence_told:count(Subject, Told) > halley_limits:get(presence_users_max) of
        true ->
            count_room(Subject, State);
        false ->
            Text = case (said(State))([User]) of [{_, T}] -> {ok, T}; [] -> none end,
            Who = {halley_ids:name(User), Text},
            tell_room(Subject, halley_presence_text:change(Subject, Who, join), State)
    end.

followed_by_others(_, _, #state{following = off} = State) ->
    State;
followed_by_others(User, Away, #state{following = Following, told = Told} = State) ->
    case halley_presence_following:look(User, Following) of
        same ->
            State#state{told = halley_presence_told:back({following, User}, Told)};
        away ->
            State#state{told = Away({following, User}, now_ms(), Told)};
        joined ->
            tell(halley_presence_following:join(User, said(State)), State)
    end.

%% A session of the user says something else of itself, or nothing any more.
stated(User, #state{states = States, leave_ms = LeaveMs} = State) ->
    Said = halley_session_states:of_user(User),
    case halley_presence_states:look(User, Said, {now_ms(), LeaveMs}, States) of
        {tell, Next} -> tell_state(User, Said, State#state{states = Next});
        {same, Next} -> State#state{states = Next}
    end.

%% It was deleted: that it says nothing any more is told at once.
forgotten(User, #state{states = States} = State) ->
    case halley_session_states:of_user(User) of
        none ->
            Next = State#state{states = halley_presence_states:forget(User, States)},
            tell_state(User, none, Next);
        _ ->
            stated(User, State)
    end.

tell_state(User, Said, #state{states = States, told = Told, following = Following} = State) ->
    case halley_presence_states:told(User, Said, now_ms(), States) of
        {same, Next} ->
            State#state{states = Next};
        {differs, Next} ->
            Rooms = lists:foldl(fun(Subject, S) ->
                #{User := Name} = halley_presence_told:users(Subject, Told),
                tell_room(Subject, halley_presence_text:update(Subject, Name, Said), S)
            end, State#state{states = Next}, halley_presence_told:subjects(User, Told)),
            case Following of
                off -> Rooms;
                _ -> tell(halley_presence_following:update(User, Said, Following), Rooms)
            end
    end.

%% What users are told to say of themselves.
said(#state{states = States}) ->
    fun(Users) ->
        halley_presence_states:shown(Users, halley_session_states:of_users(Users), States)
    end.

visitors(Subject, #state{rooms = Rooms} = State) ->
    case Rooms of
        #{Subject := Room} ->
            State#state{rooms = Rooms#{Subject := Room#room{is_due = true}}};
        #{} ->
            State
    end.

%% --- who asked -----------------------------------------------------------------------------------

watch({Word, Key}, State) ->
    ok = halley_presence_asked:told(Key, [Word]),
    {presence, Subject} = halley_presence_notes:subject(Key),
    case {halley_presence_notes:may(Subject), Subject} of
        {false, _} -> State;
        {true, <<"*">>} -> watch_following([Word], State);
        {true, _} -> state_of(Subject, [Word], room(Subject, State))
    end.

watch_following(Words, State) ->
    #state{following = Following} = Watching = following(State),
    Said = said(State),
    lists:foldl(fun(Word, S) ->
        lists:foldl(fun tell/2, S, halley_presence_following:state(Word, Said, Following))
    end, Watching, Words).

following(#state{following = off} = State) ->
    ok = halley_presence_notes:active(1 + map_size(State#state.rooms)),
    State#state{following = halley_presence_following:new()};
following(State) ->
    State.

%% A subject that somebody asked for.
room(Subject, #state{rooms = Rooms} = State) when is_map_key(Subject, Rooms) ->
    State;
room(Subject, #state{rooms = Rooms, told = Told} = State) ->
    ok = halley_presence_notes:active(1 + map_size(Rooms)),
    {Room, Users} = halley_presence_rooms:open(Subject),
    Filled = halley_presence_told:fill(Subject, [{U, halley_ids:name(U)} || U <- Users], Told),
    State#state{rooms = Rooms#{Subject => Room}, told = Filled}.

state_of(_, [], State) ->
    State;
state_of(Subject, Words, #state{rooms = Rooms, told = Told} = State) ->
    Room = map_get(Subject, Rooms),
    Texts = halley_presence_rooms:state(Subject, Room, Told, said(State)),
    lists:foldl(fun(Text, S) -> tell({Words, Text}, S) end, State, Texts).

tell_room(Subject, Json, State) ->
    tell({halley_presence_asked:words(halley_presence_notes:key(Subject)), Json}, State).

tell({Words, Json}, #state{gathered = Gathered} = State) ->
    More = halley_presence_tell:add(Words, Json, Gathered),
    case halley_presence_tell:is_much(More) of
        true -> send(State#state{gathered = More});
        false -> State#state{gathered = More}
    end.

%% To links; those that had no room are owed, and those that are owed get nothing before it.
send(#state{gathered = Gathered, owed = Owed} = State) ->
    Slots = halley_presence_tell:send(Gathered, Owed),
    Slots =:= [] orelse halley_metrics:incr(presence_owed, length(Slots)),
    State#state{gathered = halley_presence_tell:new(),
                owed = maps:merge(Owed, maps:from_keys(Slots, []))}.

%% --- time ----------------------------------------------------------------------------------------

ticked(State) ->
    Now = now_ms(),
    Quiet = halley_presence_quiet:is_quiet(Now, State#state.begun, State#state.quiet),
    case State of
        #state{begun = false} when Quiet ->
            tick_again(begin_telling(Now, State));
        #state{begun = false, recent = Recent, leave_ms = LeaveMs} ->
            Since = Now - LeaveMs,
            tick_again(State#state{recent = halley_presence_recent:since(Since, Recent)});
        #state{} ->
            Left = case Quiet of true -> leaves(Now, State); false -> State end,
            tick_again(swept(Now, Quiet, counts(Now, pay(states_due(Now, Quiet, Left)))))
    end.

%% Nobody is told anything: the next one who asks wakes it.
tick_again(#state{begun = true, rooms = Rooms, following = off} = State)
  when map_size(Rooms) =:= 0 ->
    ok = halley_presence_notes:active(0),
    State#state{states = halley_presence_states:new()};
tick_again(#state{begun = true, rooms = Rooms, following = Following} = State) ->
    ok = halley_presence_notes:active(map_size(Rooms)
                                      + case Following of off -> 0; _ -> 1 end),
    ticking(State);
tick_again(State) ->
    ticking(State).

%% All subjects that somebody asked for, first with all that are in them. Who goes while they are
%% read has only gone a moment ago, too; all else that changes meanwhile is looked at behind it.
begin_telling(Now, State) ->
    Asked = [{Subject, Key} || Key <- halley_subscriptions_table:keys(<<1>>),
                               {presence, Subject} <- [halley_presence_notes:subject(Key)],
                               halley_presence_notes:may(Subject)],
    Opened = lists:foldl(fun({<<"*">>, _}, S) -> following(S);
                            ({Subject, _}, S) -> room(Subject, S)
                         end, State#state{begun = true, swept_at = Now}, Asked),
    Notes = halley_presence_notes:take(),
    look(Notes, lists:foldl(fun({<<"*">>, Key}, S) ->
                        watch_following(halley_presence_asked:all(Key), S);
                   ({Subject, Key}, S) ->
                        state_of(Subject, halley_presence_asked:all(Key), S)
                end, with_recent(now_ms(), noted(Notes, Opened)), Asked)).

%% Who went a moment ago hasn't left yet.
with_recent(Now, #state{recent = All, leave_ms = LeaveMs, rooms = Rooms, told = Told} = State) ->
    Recent = halley_presence_recent:since(Now - LeaveMs, All),
    Named = maps:filter(fun(_, #room{named = Is}) -> Is end, Rooms),
    In = lists:foldl(fun({Subject, User, Name}, T) ->
        case is_map_key(User, halley_presence_told:users(Subject, T)) of
            true -> T;
            false ->
                {_, Here} = halley_presence_told:here(Subject, User, Name, T),
                halley_presence_told:away({Subject, User}, Now, Here)
        end
    end, Told, halley_presence_recent:rooms(Named, Recent)),
    still(halley_presence_recent:users(Recent), Now,
          State#state{told = In, recent = halley_presence_recent:new()}).

still(_, _, #state{following = off} = State) ->
    State;
still(Users, Now, #state{following = Following, told = Told} = State) ->
    State#state{told = lists:foldl(fun(User, T) ->
        ok = halley_presence_following:still(User, Following),
        halley_presence_told:away({following, User}, Now, T)
    end, Told, Users)}.

leaves(Now, #state{told = Told} = State) ->
    {Left, Next} = halley_presence_told:due(Now, fun is_held/1, Told),
    lists:foldl(fun left/2, State#state{told = Next}, Left).

%% Behind those who left: what they said of themselves isn't told any more. That somebody has no
%% state is as uncertain as that it has left.
states_due(Now, Quiet, #state{states = States} = State) ->
    {Users, Next} = halley_presence_states:due(Now, States),
    lists:foldl(fun(User, S) ->
        case halley_session_states:of_user(User) of
            none when not Quiet -> stated(User, S);
            none -> case halley_directory_leaving:is_held(User) of
                        true -> stated(User, S);
                        false -> tell_state(User, none, S)
                    end;
            Said -> tell_state(User, Said, S)
        end
    end, State#state{states = Next}, Users).

is_held({_, User}) -> halley_directory_leaving:is_held(User).

left({following, User}, #state{following = Following} = State) when Following =/= off ->
    case halley_presence_following:leave(User, Following) of
        left -> tell(halley_presence_following:left(User), State);
        same -> State
    end;
left({following, _}, State) ->
    State;
left({Subject, Name}, State) ->
    tell_room(Subject, halley_presence_text:change(Subject, {Name, none}, leave), State).

%% Links that had no room and have some now are told the state of all that they are to know.
pay(#state{owed = Owed} = State) when map_size(Owed) =:= 0 ->
    State;
pay(Unsent) ->
    #state{owed = Owed, rooms = Rooms} = State = send(Unsent),
    Paid = halley_presence_tell:with_room(maps:keys(Owed)),
    lists:foldl(fun(Slot, S) -> pay(Slot, maps:keys(Rooms), S) end,
                State#state{owed = maps:without(Paid, Owed)}, Paid).

pay(Slot, Subjects, State) ->
    Words = fun(Subject) ->
        halley_subscriptions_table:words(halley_presence_notes:key(Subject), Slot)
    end,
    Told = lists:foldl(fun(S, Acc) -> state_of(S, Words(S), Acc) end, State, Subjects),
    case Told of
        #state{following = off} -> Told;
        #state{} -> watch_following(Words(<<"*">>), Told)
    end.

%% --- counts --------------------------------------------------------------------------------------

%% A subject with more users than are named: from now on they are counted.
count_room(Subject, #state{rooms = Rooms, told = Told} = State) ->
    Room = map_get(Subject, Rooms),
    Online = halley_presence_told:count(Subject, Told) + Room#room.visitors,
    Large = Room#room{named = false, online = Online, is_due = true},
    tell_room(Subject, halley_presence_text:large(Subject, Online),
              State#state{rooms = Rooms#{Subject := Large},
                          told = halley_presence_told:drop(Subject, Told)}).

counts(Now, #state{rooms = Rooms} = State) ->
    Every = halley_limits:get(presence_counts_ms),
    maps:fold(fun(Subject, #room{counted_at = At} = Room, S) when Now - At >= Every ->
                      count(Subject, Room#room{counted_at = Now}, S);
                 (_, _, S) ->
                      S
              end, State, Rooms).

count(Subject, #room{named = true, is_due = true, visitors = Before} = Room, State) ->
    #state{rooms = Rooms, told = Told} = State,
    Visitors = halley_presence_rooms:visitors(Subject),
    Next = State#state{rooms = Rooms#{Subject := Room#room{visitors = Visitors, is_due = false}}},
    case Visitors of
        Before ->
            Next;
        _ ->
            Online = halley_presence_told:count(Subject, Told) + Visitors,
            tell_room(Subject, halley_presence_text:online(Subject, Online), Next)
    end;
count(Subject, #room{named = false, is_counting = false} = Room, #state{rooms = Rooms} = State) ->
    Self = self(),
    _ = spawn_link(fun() ->
        {Online, MayName} = halley_presence_rooms:count(Subject),
        Self ! {counted, Subject, Online, MayName}
    end),
    State#state{rooms = Rooms#{Subject := Room#room{is_counting = true}}};
count(_, _, State) ->
    State.

counted(Subject, Count, MayName, #state{rooms = Rooms} = State) ->
    case Rooms of
        #{Subject := #room{online = Online} = Room} ->
            Next = State#state{rooms = Rooms#{Subject := Room#room{online = Count,
                                                                   is_counting = false}}},
            case MayName of
                true -> name_room(Subject, Next);
                false when Count =:= Online -> Next;
                false -> tell_room(Subject, halley_presence_text:large(Subject, Count), Next)
            end;
        #{} ->
            State
    end.

%% It has become small: its users are named again, to all.
name_room(Subject, #state{rooms = Rooms} = State) ->
    Opened = room(Subject, State#state{rooms = maps:remove(Subject, Rooms)}),
    Words = halley_subscriptions_table:words(halley_presence_notes:key(Subject)),
    state_of(Subject, Words, Opened).

%% --- what nobody asks for any more ---------------------------------------------------------------

%% It stays for a while: those who asked may be on their way back.
swept(Now, true, #state{leave_ms = LeaveMs, swept_at = At, rooms = Rooms} = State)
  when Now - At >= LeaveMs ->
    {Idle, Seen} = halley_presence_rooms:idle(Now, LeaveMs, Rooms),
    Told = lists:foldl(fun halley_presence_told:drop/2, State#state.told, Idle),
    swept_following(State#state{rooms = Seen, told = Told, swept_at = Now});
swept(Now, false, State) ->
    State#state{swept_at = Now};
swept(_, true, State) ->
    State.

swept_following(#state{following = off} = State) ->
    State;
swept_following(#state{following = Following} = State) ->
    Has = halley_subscriptions_table:has_any(halley_presence_notes:key(<<"*">>)),
    case halley_presence_following:idle(Has, Following) of
        {stays, Next} -> State#state{following = Next};
        gone -> State#state{following = off}
    end.
