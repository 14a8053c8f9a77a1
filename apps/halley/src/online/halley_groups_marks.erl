%% Marks: (filling, user), if a group may not know the latest about a user.
%%
%% A process that changes the truth (who follows, who is online) leaves a mark after the change, and
%% only then goes on. The subject's shard takes the mark away and reads the truth after that. So a
%% change that was not read still has its mark (docs/internals/celebrities.md).
%%
%% A mark that is there already is not left twice, so there are never more than pairs of a group and
%% a user. Beyond `group_marks_max' `halley_groups' lets processes that leave marks wait.
%%
%% The table belongs to the supervisor. It knows neither groups nor members; `halley_groups_table'
%% says for which groups marks may be left.
-module(halley_groups_marks).

-export([new/0, leave/2, take_back/2, take/2, take_all/1, count/0]).

-type user_number() :: halley_id:user_number().
-type filling() :: halley_groups_table:filling().

-define(TABLE, ?MODULE).

%% Makes the table. The caller, a supervisor, owns it. Whoever leaves a new mark asks how many there
%% are, so they are counted in one place.
-spec new() -> ok.
new() ->
    ?TABLE = ets:new(?TABLE, [ordered_set, named_table, public, {write_concurrency, true},
                              {decentralized_counters, false}]),
    ok.

%% `new': the mark wasn't there, so somebody has to be told.
-spec leave(filling(), user_number()) -> new | there.
leave(Filling, User) ->
    case ets:insert_new(?TABLE, {{Filling, User}}) of
        true -> new;
        false -> there
    end.

%% As if it hadn't been left.
-spec take_back(filling(), user_number()) -> ok.
take_back(Filling, User) ->
    true = ets:delete(?TABLE, {Filling, User}),
    ok.

%% Takes the first marks of a filling, and says whether there may be more.
-spec take(filling(), Max :: pos_integer()) -> {[user_number()], more | done}.
take(Filling, Max) ->
    take(Filling, -1, Max, []).

take(_, _, 0, Taken) ->
    {lists:reverse(Taken), more};
take(Filling, Last, Left, Taken) ->
    case ets:next(?TABLE, {Filling, Last}) of
        {Filling, User} = Key ->
            true = ets:delete(?TABLE, Key),
            take(Filling, User, Left - 1, [User | Taken]);
        _ ->
            {lists:reverse(Taken), done}
    end.

%% Takes all that were there when it was called. One walk, so it ends however many come meanwhile.
-spec take_all(filling()) -> [user_number()].
take_all(Filling) ->
    {Users, _} = take(Filling, -1, -1, []),
    Users.

%% Marks of all groups.
-spec count() -> non_neg_integer().
count() ->
    ets:info(?TABLE, size).
