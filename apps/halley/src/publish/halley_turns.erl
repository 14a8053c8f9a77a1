%% The scheduler of everyone that comes back: a process in which sessions take turns, each with a
%% plan of what it lacks (`halley_replay', or a catch-up's). The callback module says whose sessions
%% these are, and what becomes of a batch (docs/internals/delivery.md, "Turns").
%%
%% A session of the process is
%%   idle      it has what there was, or waits for its client, until `go_on/2' or `await/4';
%%   awaiting  for the log to have written a vector (`halley_history:notify/1');
%%   due       it waits for its turn (`halley_turns_ring').
%% In its turn the callback module reads one batch by the session's plan, up to what the log has
%% written, or up to heads that were waited for. Then `given/5' says how the session goes on.
%%
%% No turn is long: a plan that has looked for some time and found nothing returns `yield', and its
%% session takes its next turn among the late ones. So a user that follows much or missed much
%% delays no other by more than a turn, however many sessions it has. The result of a long gathering
%% is kept as long as other sessions of its user wait for a turn: they begin with it, so sessions
%% that come back together need one gathering.
%%
%% Bounds: at most `kept_max' sessions keep the state of their plan in its midst; the others keep a
%% cursor, from which the plan is made again. A session that has yielded needs its state to get on,
%% so it takes the place of one that is idle; where no such one is, those that are kept will soon be
%% done. Turns are taken only while the callback module `has_room/1' and, where it wants `permits',
%% with one (`halley_turns_permits'). Messages come before turns.
%%
%% Not here: who may come back, what a batch is, and where it goes.
-module(halley_turns).
-behaviour(gen_server).

-export([start_link/2, start_link/3]).
-export([add/4, go_on/2, await/4, remove/2, stop/1, kept/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([turns/0, options/0, key/0, user/0, goal/0, what/0, verdict/0]).

-define(PAUSE_MS, 2).                % while there is no room
%% Gatherings that are kept for other sessions of their users. Each is as large as a plan's state.
-define(GATHERED_MAX, 16).

-type options() :: #{kept_max := pos_integer(), permits := boolean()}.
-type key() :: term().
-type user() :: halley_turns_ring:user().
%% A cursor, until its first turn.
-type plan() :: {from, halley_cursor:token()} | {plan, term()}.
%% Up to where a turn reads.
-type goal() :: written | halley_history:vector().
-type what() :: more | yield | done | {gap, halley_cursor:gap()}.
%% late: another turn, after others. again: another turn. idle: `go_on/2' or `await/4' comes.
%% ended: it is forgotten.
-type verdict() :: late | again | idle | ended.

-record(session, {user :: user(), plan :: plan(), goal = written :: goal(),
                  phase = idle :: idle | awaiting | {due, halley_turns_ring:place()}}).
-record(turns, {
    module :: module(),
    reader :: halley_history_reader:reader(),
    kept_max :: pos_integer(),
    kept = #{} :: #{key() => []},                     % sessions in the midst of their plan
    sessions = #{} :: #{key() => #session{}},
    ring = halley_turns_ring:new() :: halley_turns_ring:turns(),
    gathered = #{} :: #{user() => halley_replay:gathered()},
    permit :: unneeded | none | asked | halley_turns_permits:permit(),
    %% For the log to have written. It will say when it has the first of these.
    awaiting = queue:new() :: queue:queue({halley_history:vector(), [key()], goal()}),
    notified_by = none :: none | reference()
}).
-opaque turns() :: #turns{}.
-type state() :: {turns(), Callbacks :: term()}.

-callback init(Arguments :: term()) -> {options(), State :: term()}.
%% A message that isn't the scheduler's; `{call, From, Request}' for a call.
-callback handle(Message :: term(), turns(), State) -> {turns(), State}.
-callback has_room(State :: term()) -> boolean().
%% The plan from a cursor, at a session's first turn and where its state wasn't kept.
-callback plan(key(), user(), halley_cursor:token(), State :: term()) -> Plan :: term().
%% What there is next by a plan, as by `halley_replay:next/6'.
-callback batch(Plan, UpTo :: halley_history:vector(), halley_history_reader:reader(),
                State :: term()) ->
    {Items :: term(), what(), Plan, none | halley_replay:gathered(),
     halley_history_reader:reader()}.
-callback given(key(), what(), Items :: term(), {goal(), Plan :: term()}, State) ->
    {verdict(), State}.
%% The cursor from which a plan can be made again.
-callback cursor(Plan :: term()) -> halley_cursor:token().
-optional_callbacks([plan/4, cursor/1]).

%% One with a name, for a supervisor.
-spec start_link(module(), Arguments :: term()) -> gen_server:start_ret().
start_link(Module, Arguments) ->
    gen_server:start_link({local, Module}, ?MODULE, {Module, Arguments},
                          [{spawn_opt, [{min_bin_vheap_size,
                                         halley_history_reader:vheap_words()}]}]).

%% One without; it doesn't wait for the process, which may have a low priority.
-spec start_link(module(), Arguments :: term(), [proc_lib:spawn_option()]) -> pid().
start_link(Module, Arguments, Options) ->
    proc_lib:spawn_opt(fun() ->
        {ok, State} = init({Module, Arguments}),
        gen_server:enter_loop(?MODULE, [], State)
    end, [link, {min_bin_vheap_size, halley_history_reader:vheap_words()} | Options]).

%% --- for callback modules ------------------------------------------------------------------------

%% A session comes and is idle.
-spec add(key(), user(), plan(), turns()) -> turns().
add(Key, User, Plan, #turns{sessions = Sessions} = Turns) ->
    Turns#turns{sessions = Sessions#{Key => #session{user = User, plan = Plan}}}.

%% If it is idle, it waits for a turn.
-spec go_on(key(), turns()) -> turns().
go_on(Key, #turns{sessions = Sessions} = Turns) ->
    case Sessions of
        #{Key := #session{phase = idle} = Session} -> due(Key, Session, Turns);
        #{} -> Turns
    end.

%% Those of the sessions that are idle wait for a turn up to this goal, once the log has written
%% these heads.
-spec await([key()], halley_history:vector(), goal(), turns()) -> turns().
await(Keys, Heads, Goal, #turns{sessions = Sessions, awaiting = Awaiting} = Turns) ->
    Idle = [Key || Key <- Keys, #{Key := #session{phase = idle}} <- [Sessions]],
    case Idle of
        [] ->
            Turns;
        _ ->
            Wait = fun(Key, All) -> maps:update_with(Key, fun awaiting/1, All) end,
            written(Turns#turns{sessions = lists:foldl(Wait, Sessions, Idle),
                                awaiting = queue:in({Heads, Idle, Goal}, Awaiting)})
    end.

awaiting(Session) -> Session#session{phase = awaiting}.

%% A session has gone.
-spec remove(key(), turns()) -> turns().
remove(Key, #turns{sessions = Sessions, ring = Ring} = Turns) ->
    case maps:take(Key, Sessions) of
        {#session{phase = {due, Place}, user = User}, Rest} ->
            Left = halley_turns_ring:remove(User, Key, Place, Ring),
            of_nobody(User, unkept(Key, Turns#turns{sessions = Rest, ring = Left}));
        {_, Rest} ->
            unkept(Key, Turns#turns{sessions = Rest});
        error ->
            Turns
    end.

%% Ends the calling process, which has no sessions left.
-spec stop(turns()) -> no_return().
stop(#turns{reader = Reader}) ->
    ok = halley_history_reader:close(Reader),
    exit(normal).

%% How many sessions keep their plan's state in its midst.
-spec kept(turns()) -> non_neg_integer().
kept(#turns{kept = Kept}) -> map_size(Kept).

%% --- the process ---------------------------------------------------------------------------------

-spec init({module(), term()}) -> {ok, state()}.
init({Module, Arguments}) ->
    {#{kept_max := KeptMax, permits := Permits}, State} = Module:init(Arguments),
    {ok, {#turns{module = Module, reader = halley_history_reader:new(), kept_max = KeptMax,
                 permit = case Permits of true -> none; false -> unneeded end}, State}}.

-spec handle_call(term(), gen_server:from(), state()) -> {noreply, state(), timeout()}.
handle_call(Request, From, State) -> handled({call, From, Request}, State).

-spec handle_cast(term(), state()) -> {noreply, state(), timeout()}.
handle_cast(Message, State) -> handled(Message, State).

-spec handle_info(term(), state()) -> {noreply, state(), timeout()}.
handle_info(timeout, State) ->
    case doing(State) of
        {turn, {Turns, Callbacks}} -> wait(turn(used(Turns), Callbacks));
        {_, Later} -> wait(Later)
    end;
handle_info({replay_permit, Permit}, {#turns{permit = asked} = Turns, Callbacks}) ->
    wait({Turns#turns{permit = Permit}, Callbacks});
handle_info({history_written, Ref}, {#turns{notified_by = Ref} = Turns, Callbacks}) ->
    wait({written(Turns#turns{notified_by = none}), Callbacks});
handle_info(Message, State) ->
    handled(Message, State).

handled(Message, {#turns{module = Module} = Turns, Callbacks}) ->
    wait(Module:handle(Message, Turns, Callbacks)).

wait(State) ->
    {Doing, Next} = doing(State),
    {noreply, Next, wait_ms(Doing)}.

wait_ms(turn) -> 0;
wait_ms(pause) -> ?PAUSE_MS;
wait_ms(nothing) -> infinity.

doing({#turns{ring = Ring, module = Module} = Turns, Callbacks}) ->
    case halley_turns_ring:is_empty(Ring) of
        true ->
            {nothing, {without_permit(Turns), Callbacks}};
        false ->
            case Module:has_room(Callbacks) of
                true ->
                    {Doing, Permitted} = permitted(Turns),
                    {Doing, {Permitted, Callbacks}};
                false ->
                    {pause, {without_permit(Turns), Callbacks}}
            end
    end.

permitted(#turns{permit = unneeded} = Turns) ->
    {turn, Turns};
permitted(#turns{permit = none} = Turns) ->
    permitted(Turns#turns{permit = halley_turns_permits:ask()});
permitted(#turns{permit = asked} = Turns) ->
    {nothing, Turns};
permitted(#turns{permit = Permit} = Turns) ->
    case halley_turns_permits:is_over(Permit) of
        true -> permitted(without_permit(Turns));
        false -> {turn, Turns}
    end.

used(#turns{permit = unneeded} = Turns) -> Turns;
used(#turns{permit = Permit} = Turns) ->
    Turns#turns{permit = halley_turns_permits:used(Permit)}.

%% One that was asked for is given back once it has come.
without_permit(#turns{permit = Permit} = Turns)
  when Permit =:= unneeded; Permit =:= none; Permit =:= asked ->
    Turns;
without_permit(#turns{permit = Permit} = Turns) ->
    ok = halley_turns_permits:give_back(Permit),
    Turns#turns{permit = none}.

%% --- waiting for the log -------------------------------------------------------------------------

%% Heads only rise, so those that came first are written first.
written(#turns{awaiting = Awaiting, notified_by = none} = Turns) ->
    case queue:peek(Awaiting) of
        {value, {Heads, Keys, Goal}} ->
            case halley_history:notify(Heads) of
                written ->
                    Left = Turns#turns{awaiting = queue:drop(Awaiting)},
                    written(lists:foldl(fun(Key, T) -> reached(Key, Goal, T) end, Left, Keys));
                {later, Ref} ->
                    Turns#turns{notified_by = Ref}
            end;
        empty ->
            Turns
    end;
written(Turns) ->
    Turns.

reached(Key, Goal, #turns{sessions = Sessions} = Turns) ->
    case Sessions of
        #{Key := #session{phase = awaiting} = Session} ->
            due(Key, Session#session{goal = Goal}, Turns);
        #{} ->
            Turns
    end.

%% --- turns ---------------------------------------------------------------------------------------

due(Key, #session{user = User} = Session, #turns{ring = Ring} = Turns) ->
    {Place, Next} = halley_turns_ring:add(User, Key, Ring),
    put_session(Key, Session#session{phase = {due, Place}}, Turns#turns{ring = Next}).

late(Key, Place, #session{user = User} = Session, #turns{ring = Ring} = Turns) ->
    Next = halley_turns_ring:yielded(User, Key, Place, Ring),
    put_session(Key, Session#session{phase = {due, Place}}, Turns#turns{ring = Next}).

put_session(Key, Session, #turns{sessions = Sessions} = Turns) ->
    Turns#turns{sessions = Sessions#{Key => Session}}.

unkept(Key, #turns{kept = Kept} = Turns) ->
    Turns#turns{kept = maps:remove(Key, Kept)}.

turn(#turns{module = Module, ring = Ring, sessions = Sessions, reader = Reader} = Turns, State) ->
    {User, Key, Place, Left} = halley_turns_ring:take(Ring),
    {#session{goal = Goal} = Session, Others} = maps:take(Key, Sessions),
    Taken = unkept(Key, Turns#turns{ring = Left, sessions = Others}),
    Plan = planned(Key, Session, Taken, State),
    UpTo = case Goal of written -> halley_history:written(); _ -> Goal end,
    {Items, What, NextPlan, Found, NextReader} = Module:batch(Plan, UpTo, Reader, State),
    Read = gathered(Found, User, Taken#turns{reader = NextReader}),
    {Verdict, Next} = Module:given(Key, What, Items, {Goal, NextPlan}, State),
    Gone = Session#session{plan = {plan, NextPlan}, phase = idle},
    {of_nobody(User, goes_on(Verdict, What, Key, Place, Gone, Read)), Next}.

planned(_, #session{plan = {plan, Plan}}, _, _) ->
    Plan;
planned(Key, #session{user = User, plan = {from, Cursor}},
        #turns{module = Module, gathered = Gathered}, State) ->
    Plan = Module:plan(Key, User, Cursor, State),
    case Gathered of
        #{User := Found} -> halley_replay:offer(Found, Plan);
        #{} -> Plan
    end.

goes_on(ended, _, _, _, _, Turns) ->
    Turns;
goes_on(late, _, Key, Place, Session, Turns) ->
    {Kept, Next} = keep(Key, Session, with_room(Turns)),
    late(Key, Place, Kept, Next);
goes_on(Verdict, What, Key, _, Session, Turns) ->
    {Kept, Next} = case What of
        done -> {Session, Turns};
        _ -> keep(Key, Session, Turns)
    end,
    case Verdict of
        again -> due(Key, Kept, Next);
        idle -> put_session(Key, Kept, Next)
    end.

%% In the midst of a plan its state is large.
keep(Key, Session, #turns{kept = Kept, kept_max = Max} = Turns) ->
    case map_size(Kept) < Max of
        true -> {Session, Turns#turns{kept = Kept#{Key => []}}};
        false -> {without_plan(Session, Turns), Turns}
    end.

without_plan(#session{plan = {plan, Plan}} = Session, #turns{module = Module}) ->
    Session#session{plan = {from, Module:cursor(Plan)}}.

with_room(#turns{kept = Kept, kept_max = Max} = Turns) when map_size(Kept) < Max ->
    Turns;
with_room(#turns{kept = Kept, sessions = Sessions} = Turns) ->
    case [Key || Key <- maps:keys(Kept), (map_get(Key, Sessions))#session.phase =:= idle] of
        [Key | _] ->
            Session = without_plan(map_get(Key, Sessions), Turns),
            unkept(Key, Turns#turns{sessions = Sessions#{Key := Session}});
        [] ->
            Turns
    end.

%% --- what was gathered ---------------------------------------------------------------------------

gathered(none, _, Turns) ->
    Turns;
gathered(Found, User, #turns{gathered = Gathered, ring = Ring} = Turns) ->
    IsWanted = halley_turns_ring:waits(User, Ring)
        andalso (map_size(Gathered) < ?GATHERED_MAX orelse is_map_key(User, Gathered)),
    case IsWanted of
        true -> Turns#turns{gathered = Gathered#{User => Found}};
        false -> Turns
    end.

%% No session of the user waits any more: nobody needs what was gathered.
of_nobody(User, #turns{gathered = Gathered, ring = Ring} = Turns)
  when is_map_key(User, Gathered) ->
    case halley_turns_ring:waits(User, Ring) of
        true -> Turns;
        false -> Turns#turns{gathered = maps:remove(User, Gathered)}
    end;
of_nobody(_, Turns) ->
    Turns.
