%% The throttle for the states of users: when each is sent (http.md 23.5). Pure, no time of its own.
%%
%% The state that was sent last is kept for each user of whom one was sent. Another one is sent at
%% once, but a user's at most once in `presence_states_ms': then the last one counts. The end of a
%% state is sent when the user had none for the time in which it may come back, so that a connection
%% that breaks and sends its state again changes nothing.
%%
%% A session that learns of a user in between, by the state of a subject or by a join, gets the
%% state that was sent last (`shown/3'), not the newest one. So all know the same, and the next
%% change is one for each of them.
-module(halley_presence_throttle).

-export([new/0, look/4, due/2, sent/4, shown/3, forget/2]).
-export_type([throttle/0, text/0, said/0]).

-type user_number() :: halley_id:user_number().
-type text() :: {ok, binary()} | none.
-type said() :: [{user_number(), Text :: binary()}].

-record(throttle, {
    sent = #{} :: #{user_number() => {Text :: binary(), AtMs :: integer()}},
    due = #{} :: #{user_number() => DueMs :: integer()},
    queue = gb_sets:new() :: gb_sets:set({DueMs :: integer(), user_number()})
}).
-opaque throttle() :: #throttle{}.

-spec new() -> throttle().
new() -> #throttle{}.

%% The user's state is this one now: `send' it, or it may be `due' later. `LeaveMs': how long one
%% that is gone may come back.
-spec look(user_number(), text(), {NowMs :: integer(), LeaveMs :: pos_integer()}, throttle()) ->
    {send | same, throttle()}.
look(User, Text, {Now, LeaveMs}, #throttle{sent = Sent} = Throttle) ->
    case {Text, Sent} of
        {{ok, Same}, #{User := {Same, _}}} ->
            {same, not_due(User, Throttle)};
        {{ok, _}, #{User := {_, At}}} ->
            case At + halley_limits:get(presence_states_ms) of
                Due when Due > Now -> {same, put_due(User, Due, Throttle)};
                _ -> {send, not_due(User, Throttle)}
            end;
        {{ok, _}, #{}} ->
            {send, not_due(User, Throttle)};
        {none, _} ->
            {same, put_due(User, Now + LeaveMs, Throttle)}
    end.

%% Users whose state is to be sent now, if it is another one.
-spec due(NowMs :: integer(), throttle()) -> {[user_number()], throttle()}.
due(Now, Throttle) -> due(Now, [], Throttle).

due(Now, Users, #throttle{due = Due, queue = Queue} = Throttle) ->
    case gb_sets:is_empty(Queue) orelse gb_sets:smallest(Queue) of
        {At, User} when At =< Now ->
            Next = Throttle#throttle{due = maps:remove(User, Due),
                                     queue = gb_sets:del_element({At, User}, Queue)},
            due(Now, [User | Users], Next);
        _ ->
            {lists:reverse(Users), Throttle}
    end.

%% This is sent; `differs' unless the same was sent before.
-spec sent(user_number(), text(), NowMs :: integer(), throttle()) -> {differs | same, throttle()}.
sent(User, {ok, Text}, Now, #throttle{sent = Sent} = Throttle) ->
    Is = case Sent of #{User := {Text, _}} -> same; #{} -> differs end,
    {Is, Throttle#throttle{sent = Sent#{User => {Text, Now}}}};
sent(User, none, _, #throttle{sent = Sent} = Throttle) ->
    {differs, Throttle#throttle{sent = maps:remove(User, Sent)}}.

%% The states of these users as listeners know them: the one that was sent last, or, of a user of
%% whom none was sent, the one that is `Said' now.
-spec shown([user_number()], Said :: said(), throttle()) -> said().
shown(_, Said, #throttle{sent = Sent}) when map_size(Sent) =:= 0 ->
    Said;
shown(Users, Said, #throttle{sent = Sent}) ->
    Now = maps:from_list(Said),
    lists:flatmap(fun(User) ->
        case {Sent, Now} of
            {#{User := {Text, _}}, _} -> [{User, Text}];
            {_, #{User := Text}} -> [{User, Text}];
            _ -> []
        end
    end, Users).

%% No listener knows of the user any more.
-spec forget(user_number(), throttle()) -> throttle().
forget(User, #throttle{sent = Sent} = Throttle) ->
    not_due(User, Throttle#throttle{sent = maps:remove(User, Sent)}).

put_due(User, Due, Throttle) ->
    #throttle{due = All, queue = Queue} = Free = not_due(User, Throttle),
    Free#throttle{due = All#{User => Due}, queue = gb_sets:add_element({Due, User}, Queue)}.

not_due(User, #throttle{due = All, queue = Queue} = Throttle) ->
    case maps:take(User, All) of
        {Due, Others} ->
            Throttle#throttle{due = Others, queue = gb_sets:del_element({Due, User}, Queue)};
        error ->
            Throttle
    end.
