%% Presence as it was sent, and users who are about to have left: no messages, no time of its own.
%%
%% For each subject whose users are named, the users that were reported as present, by the names in
%% those messages. A user that is away is on its way out (`away/3'): `due/3' gives it when it has
%% been away for the time that `new/1' was given, unless it came back.
%%
%% `{following, User}' may be on its way out as well; `halley_presence_following' knows whether it
%% was reported as present.
-module(halley_presence_told).

-export([new/1, fill/3, drop/2, here/4, back/2, away/3, away_anew/3, due/3]).
-export([names/2, users/2, count/2, subjects/2]).
-export_type([told/0]).

-type subject() :: halley_id:id().
-type user_number() :: halley_id:user_number().
-type member() :: {subject() | following, user_number()}.

-record(told, {
    leave_ms :: pos_integer(),
    users = #{} :: #{subject() => #{user_number() => Name :: halley_id:id()}},
    %% For each user the subjects that have it.
    subjects = #{} :: #{user_number() => [subject()]},
    away = #{} :: #{member() => DueMs :: integer()},
    %% In the order of time; an entry counts if `away' has the same time.
    queue = queue:new() :: queue:queue({DueMs :: integer(), member()})
}).
-opaque told() :: #told{}.

-spec new(LeaveMs :: pos_integer()) -> told().
new(LeaveMs) -> #told{leave_ms = LeaveMs}.

%% These are told to be there, and no others.
-spec fill(subject(), [{user_number(), halley_id:id()}], told()) -> told().
fill(Subject, Users, Told) ->
    lists:foldl(fun({User, Name}, T) ->
        {_, Next} = here(Subject, User, Name, T),
        Next
    end, drop(Subject, Told), Users).

%% Nothing is told of it any more.
-spec drop(subject(), told()) -> told().
drop(Subject, #told{users = All} = Told) ->
    case maps:take(Subject, All) of
        {Users, Others} ->
            lists:foldl(fun(User, T) -> forget(Subject, User, T) end,
                        Told#told{users = Others}, maps:keys(Users));
        error ->
            Told
    end.

forget(Subject, User, #told{subjects = Subjects, away = Away} = Told) ->
    Left = case lists:delete(Subject, maps:get(User, Subjects, [])) of
        [] -> maps:remove(User, Subjects);
        Others -> Subjects#{User => Others}
    end,
    Told#told{subjects = Left, away = maps:remove({Subject, User}, Away)}.

%% The user is there; `joined' if that wasn't told. A number may have another name by now: then the
%% user of that name has left.
-spec here(subject(), user_number(), halley_id:id(), told()) ->
    {joined | known | {instead_of, Name :: halley_id:id()}, told()}.
here(Subject, User, Name, #told{users = All, subjects = Subjects} = Told) ->
    Users = maps:get(Subject, All, #{}),
    case Users of
        #{User := Name} ->
            {known, back({Subject, User}, Told)};
        #{} ->
            Its = [Subject | lists:delete(Subject, maps:get(User, Subjects, []))],
            Next = Told#told{users = All#{Subject => Users#{User => Name}},
                             subjects = Subjects#{User => Its}},
            {joined(maps:find(User, Users)), back({Subject, User}, Next)}
    end.

joined(error) -> joined;
joined({ok, Other}) -> {instead_of, Other}.

%% It isn't on its way out.
-spec back(member(), told()) -> told().
back(Member, #told{away = Away} = Told) when is_map_key(Member, Away) ->
    Told#told{away = maps:remove(Member, Away)};
back(_, Told) ->
    Told.

%% It isn't there; if that is known already, since then.
-spec away(member(), NowMs :: integer(), told()) -> told().
away(Member, _, #told{away = Away} = Told) when is_map_key(Member, Away) ->
    Told;
away(Member, Now, Told) ->
    away_anew(Member, Now, Told).

%% It isn't there, and was until now, whatever is known of it.
-spec away_anew(member(), NowMs :: integer(), told()) -> told().
away_anew(Member, Now, #told{leave_ms = LeaveMs} = Told) ->
    put_away(Member, Now + LeaveMs, Told).

put_away(Member, Due, #told{away = Away, queue = Queue} = Told) ->
    Told#told{away = Away#{Member => Due}, queue = queue:in({Due, Member}, Queue)}.

%% Those that have been away for long enough, in the order in which they left: users of subjects by
%% their names. Those that are `Held' have a session that is on its way in, and wait once more.
-spec due(NowMs :: integer(), Held :: fun((member()) -> boolean()), told()) ->
    {[{subject(), Name :: halley_id:id()} | {following, user_number()}], told()}.
due(Now, Held, Told) -> due(Now, Held, Told, []).

due(Now, Held, #told{queue = Queue, away = Away, leave_ms = LeaveMs} = Told, Left) ->
    case queue:peek(Queue) of
        {value, {Due, Member}} when Due =< Now ->
            Next = Told#told{queue = queue:drop(Queue)},
            case Away of
                #{Member := Due} ->
                    Gone = Next#told{away = maps:remove(Member, Away)},
                    case Held(Member) of
                        true -> due(Now, Held, put_away(Member, Now + LeaveMs, Gone), Left);
                        false -> left(Member, Now, Held, Gone, Left)
                    end;
                #{} ->
                    due(Now, Held, Next, Left)
            end;
        _ ->
            {lists:reverse(Left), Told}
    end.

left({following, _} = Member, Now, Held, Told, Left) ->
    due(Now, Held, Told, [Member | Left]);
left({Subject, User}, Now, Held, #told{users = All} = Told, Left) ->
    {Name, Others} = maps:take(User, map_get(Subject, All)),
    Next = forget(Subject, User, Told#told{users = All#{Subject := Others}}),
    due(Now, Held, Next, [{Subject, Name} | Left]).

%% Those that were told to be there, in the order of their numbers.
-spec names(subject(), told()) -> [halley_id:id()].
names(Subject, #told{users = All}) ->
    [Name || {_, Name} <- lists:sort(maps:to_list(maps:get(Subject, All, #{})))].

-spec users(subject(), told()) -> #{user_number() => Name :: halley_id:id()}.
users(Subject, #told{users = All}) -> maps:get(Subject, All, #{}).

-spec count(subject(), told()) -> non_neg_integer().
count(Subject, #told{users = All}) -> map_size(maps:get(Subject, All, #{})).

%% Where a user was told to be.
-spec subjects(user_number(), told()) -> [subject()].
subjects(User, #told{subjects = Subjects}) -> maps:get(User, Subjects, []).
