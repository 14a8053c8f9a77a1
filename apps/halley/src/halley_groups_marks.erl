%% Marks: (subject, user) where a group may not know the latest about a user.
%%
%% Whoever changes the truth (who follows, who is online) leaves a mark behind the change, and only
%% then goes on; the subject's shard takes the mark away and reads the truth behind that. So a
%% change that was not read has its mark still (docs/internals/celebrities.md).
%%
%% A mark that is there already is not left twice, so there are never more than pairs; the number
%% is counted, and `halley_groups' lets those who leave marks wait beyond `group_marks_max'.
%%
%% The table belongs to the supervisor. It knows neither groups nor members.
-module(halley_groups_marks).

-export([new/0, leave/2, take/2, take_all/1, count/0]).

-type user_number() :: halley_id:user_number().

-define(TABLE, ?MODULE).
-define(COUNT, {?MODULE, count}).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?TABLE = ets:new(?TABLE, [ordered_set, named_table, public, {write_concurrency, true}]),
    persistent_term:put(?COUNT, atomics:new(1, [{signed, true}])).

%% `new': the mark wasn't there, so somebody has to be told.
-spec leave(Subject :: user_number(), user_number()) -> new | there.
leave(Subject, User) ->
    case ets:insert_new(?TABLE, {{Subject, User}}) of
        true ->
            ok = atomics:add(persistent_term:get(?COUNT), 1, 1),
            new;
        false ->
            there
    end.

%% Takes the first marks of a subject, and says whether there may be more.
-spec take(Subject :: user_number(), Max :: pos_integer()) -> {[user_number()], more | done}.
take(Subject, Max) ->
    take(Subject, -1, Max, []).

take(_, _, 0, Taken) ->
    taken(Taken, more);
take(Subject, Last, Left, Taken) ->
    case ets:next(?TABLE, {Subject, Last}) of
        {Subject, User} = Key ->
            true = ets:delete(?TABLE, Key),
            take(Subject, User, Left - 1, [User | Taken]);
        _ ->
            taken(Taken, done)
    end.

taken([], More) ->
    {[], More};
taken(Taken, More) ->
    ok = atomics:sub(persistent_term:get(?COUNT), 1, length(Taken)),
    {lists:reverse(Taken), More}.

%% Takes all that were there when it was called. One walk, so it ends however many come meanwhile.
-spec take_all(Subject :: user_number()) -> [user_number()].
take_all(Subject) ->
    {Users, _} = take(Subject, -1, -1, []),
    Users.

%% Marks of all subjects.
-spec count() -> non_neg_integer().
count() ->
    max(0, atomics:get(persistent_term:get(?COUNT), 1)).
