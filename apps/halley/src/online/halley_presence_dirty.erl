%% The dirty set of `halley_presence': users and subjects of whom something has changed since it
%% looked at them.
%%
%% A note names something to look at, not a change: its reader reads the state of then. So a note
%% that is there already isn't left twice, and the notes are bounded by the number of users,
%% subscriptions and links. A note is left after the change.
%%
%%   {user, User}          its sessions, or what they are subscribed to
%%   {there, User}         its sessions, of which it had some when the note was left
%%   {followed, User}      its follows
%%   {state, User}         what its sessions say of themselves
%%   {forgotten, User}     the same of a user that was deleted
%%   {visitors, Subject}   the visitors that are subscribed to it
%%   {was_in, User, S}     one of its sessions was subscribed to S; while `halley_presence' begins
%%   {watch, Word, Key}    a session that receives presence from now on
%%
%% While no session receives presence, only the last is left. Where presence is off
%% (`halley_presence_keys'), a session that opens or closes costs one look at a term.
-module(halley_presence_dirty).

-export([new/0, turn_on/1, active/1, begins/1, gauges/0]).
-export([changed/1, followed/1, subscribed/3, stated/2, take/0]).
-export_type([note/0]).

-type user_number() :: halley_id:user_number().
-type note() :: {user | there | followed | state | forgotten, user_number()}
              | {visitors, halley_id:id()} | {was_in, user_number(), halley_id:id()}
              | {watch, halley_directory:word(), halley_presence_keys:key()}.

%% Of a key (`halley_presence_keys').
-define(PRESENCE, 1).
-define(CELLS, {?MODULE, cells}).
%% Cells: how many subjects have listeners, whether the process has been woken, and whether it
%% begins.
-define(ACTIVE, 1).
-define(WOKEN, 2).
-define(BEGINS, 3).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [set, public, named_table, {write_concurrency, true}]),
    ok = halley_metrics:gauges([presence_subjects], fun gauges/0),
    turn_on(application:get_env(halley, presence_subjects, "")).

%% Sets the subjects whose presence may be sent, as `halley_presence_keys:turn_on/1' does.
-spec turn_on(string() | binary()) -> ok.
turn_on(Text) ->
    case halley_presence_keys:turn_on(Text) of
        true ->
            persistent_term:put(?CELLS, atomics:new(3, []));
        false ->
            _ = persistent_term:erase(?CELLS),
            ok
    end.

%% Sets how many subjects have listeners.
-spec active(non_neg_integer()) -> ok.
active(Subjects) ->
    atomics:put(persistent_term:get(?CELLS), ?ACTIVE, Subjects).

%% Sets whether the process begins: then notes say where users were.
-spec begins(boolean()) -> ok.
begins(Does) ->
    atomics:put(persistent_term:get(?CELLS), ?BEGINS, case Does of true -> 1; false -> 0 end).

%% For metrics.
-spec gauges() -> #{presence_subjects := non_neg_integer()}.
gauges() ->
    #{presence_subjects => case persistent_term:get(?CELLS, off) of
                               off -> 0;
                               Cells -> atomics:get(Cells, ?ACTIVE)
                           end}.

%% --- by who changes something --------------------------------------------------------------------

%% A session of the user opened or closed.
-spec changed(user_number()) -> ok.
changed(User) ->
    case persistent_term:get(?CELLS, off) of
        off -> ok;
        Cells -> atomics:get(Cells, ?ACTIVE) > 0 andalso note(of_sessions(User), Cells), ok
    end.

of_sessions(User) ->
    case halley_directory:sessions(User) of
        [] -> {user, User};
        _ -> {there, User}
    end.

%% Follows <<Subject:32, User:32, ...>> have changed.
-spec followed(binary()) -> ok.
followed(Pairs) ->
    case persistent_term:get(?CELLS, off) of
        off ->
            ok;
        Cells ->
            _ = [note_if_active({followed, User}, Cells) || <<_:32, User:32>> <= Pairs],
            ok
    end.

%% These are subscriptions of a session now, were some already, or are none any more.
-spec subscribed(halley_directory:word(), user_number() | nobody,
                 {added | again | removed, [binary()]}) -> ok.
subscribed(Word, User, {What, Subjects}) ->
    case persistent_term:get(?CELLS, off) of
        off -> ok;
        Cells -> lists:foreach(fun(S) -> of_one(S, What, Word, User, Cells) end, Subjects)
    end.

of_one(<<?PRESENCE, _/binary>>, removed, _, _, _) -> ok;
of_one(<<?PRESENCE, _/binary>> = Key, _, Word, _, Cells) -> note({watch, Word, Key}, Cells);
of_one(_, again, _, _, _) -> ok;
of_one(Subject, _, _, nobody, Cells) -> note_if_active({visitors, Subject}, Cells);
of_one(Subject, What, _, User, Cells) ->
    _ = What =:= removed andalso atomics:get(Cells, ?BEGINS) =:= 1
        andalso note({was_in, User, Subject}, Cells),
    note_if_active({user, User}, Cells).

%% A session of the user has another state, or none any more.
%% `forgotten': the user was deleted, and none of its sessions has one.
-spec stated(state | forgotten, user_number()) -> ok.
stated(What, User) ->
    case persistent_term:get(?CELLS, off) of
        off -> ok;
        Cells -> note_if_active({What, User}, Cells)
    end.

note_if_active(Note, Cells) ->
    case atomics:get(Cells, ?ACTIVE) of
        0 -> ok;
        _ -> note(Note, Cells)
    end.

note(Note, Cells) ->
    case ets:insert_new(?MODULE, {Note}) andalso atomics:exchange(Cells, ?WOKEN, 1) =:= 0 of
        true -> wake(whereis(halley_presence));
        false -> ok
    end.

%% One that isn't there looks when it begins.
wake(undefined) ->
    ok;
wake(Pid) ->
    Pid ! look,
    ok.

%% --- by who looks --------------------------------------------------------------------------------

%% All that were there when it was called. Each is gone before it is looked at, so a change behind
%% the look leaves another.
-spec take() -> [note()].
take() ->
    Cells = persistent_term:get(?CELLS),
    ok = atomics:put(Cells, ?WOKEN, 0),
    [Note || {Note} <- ets:tab2list(?MODULE), ets:delete(?MODULE, Note)].
