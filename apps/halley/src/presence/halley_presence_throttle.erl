%% When the states of users are sent (http.md 23.4): pure, no time of its own.
%%
%% The state that was sent last is kept for each user of whom one was sent. Another one is sent at
%% once, but a user's at most once in `presence_states_ms': then the last one counts. The end of a
%% state is sent when the user had none for the time in which it may come back, so that a connection
%% that breaks and sends its state again changes nothing.
%%
%% A session that learns of a user in between, by the state of a subject or by a join, gets the
%% state that was sent last (`shown/3'), not the newest one. So all know the same, and the next
%% change is one for each of them.
-module(halley_presence_states).

-export([new/0, look/4, due/2, told/4, shown/3, forget/2]).
-export_type([states/0, text/0, said/0]).

-type user_number() :: halley_id:user_number().
-type text() :: {ok, binary()} | none.
-type said() :: [{user_number(), Text :: binary()}].

-record(states, {
    told = #{} :: #{user_number() => {Text :: binary(), AtMs :: integer()}},
    due = #{} :: #{user_number() => DueMs :: integer()},
    queue = gb_sets:new() :: gb_sets:set({DueMs :: integer(), user_number()})
}).
-opaque states() :: #states{}.

-spec new() -> states().
new() -> #states{}.

%% The user's state is this one now: `tell' it, or it may be `due' later. `LeaveMs': how long one
%% that is gone may come back.
-spec look(user_number(), text(), {NowMs :: integer(), LeaveMs :: pos_integer()}, states()) ->
    {tell | same, states()}.
look(User, Text, {Now, LeaveMs}, #states{told = Told} = States) ->
    case {Text, Told} of
        {{ok, Same}, #{User := {Same, _}}} ->
            {same, not_due(User, States)};
        {{ok, _}, #{User := {_, At}}} ->
            case At + halley_limits:get(presence_states_ms) of
                Due when Due > Now -> {same, put_due(User, Due, States)};
                _ -> {tell, not_due(User, States)}
            end;
        {{ok, _}, #{}} ->
            {tell, not_due(User, States)};
        {none, _} ->
            {same, put_due(User, Now + LeaveMs, States)}
    end.

%% Users whose state is to be told now, if it is another one.
-spec due(NowMs :: integer(), states()) -> {[user_number()], states()}.
due(Now, States) -> due(Now, [], States).

due(Now, Users, #states{due = Due, queue = Queue} = States) ->
    case gb_sets:is_empty(Queue) orelse gb_sets:smallest(Queue) of
        {At, User} when At =< Now ->
            due(Now, [User | Users], States#states{due = maps:remove(User, Due),
                                                   queue = gb_sets:del_element({At, User}, Queue)});
        _ ->
            {lists:reverse(Users), States}
    end.

%% This was told; `differs' unless it is what was told before.
-spec told(user_number(), text(), NowMs :: integer(), states()) -> {differs | same, states()}.
told(User, {ok, Text}, Now, #states{told = Told} = States) ->
    Is = case Told of #{User := {Text, _}} -> same; #{} -> differs end,
    {Is, States#states{told = Told#{User => {Text, Now}}}};
told(User, none, _, #states{told = Told} = States) ->
    {differs, States#states{told = maps:remove(User, Told)}}.

%% What those of these users are told to say of themselves that say something: what was told last,
%% and of whom nothing was told what is `Said' now.
-spec shown([user_number()], Said :: said(), states()) -> said().
shown(_, Said, #states{told = Told}) when map_size(Told) =:= 0 ->
    Said;
shown(Users, Said, #states{told = Told}) ->
    Now = maps:from_list(Said),
    lists:flatmap(fun(User) ->
        case {Told, Now} of
            {#{User := {Text, _}}, _} -> [{User, Text}];
            {_, #{User := Text}} -> [{User, Text}];
            _ -> []
        end
    end, Users).

%% Nobody knows of the user any more.
-spec forget(user_number(), states()) -> states().
forget(User, #states{told = Told} = States) ->
    not_due(User, States#states{told = maps:remove(User, Told)}).

put_due(User, Due, States) ->
    #states{due = All, queue = Queue} = Free = not_due(User, States),
    Free#states{due = All#{User => Due}, queue = gb_sets:add_element({Due, User}, Queue)}.

not_due(User, #states{due = All, queue = Queue} = States) ->
    case maps:take(User, All) of
        {Due, Others} ->
            States#states{due = Others, queue = gb_sets:del_element({Due, User}, Queue)};
        error ->
            States
    end.
