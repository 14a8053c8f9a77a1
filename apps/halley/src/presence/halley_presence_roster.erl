%% The roster that listeners have: for each subject whose users are named, the users that were
%% reported as present, by the names in those messages. No messages, no time of its own.
%%
%% A user that is away is on its way out (`away/3'): `due/3' gives it when it has been away for the
%% time that `new/1' was given, unless it came back (`halley_presence_debounce').
%%
%% `{following, User}' may be on its way out as well; `halley_presence_following' knows whether it
%% was reported as present.
-module(halley_presence_roster).

-export([new/1, fill/3, drop/2, here/4, back/2, away/3, away_anew/3, due/3]).
-export([names/2, users/2, count/2, subjects/2]).
-export_type([roster/0]).

-type subject() :: halley_id:id().
-type user_number() :: halley_id:user_number().
-type member() :: {subject() | following, user_number()}.

-record(roster, {
    users = #{} :: #{subject() => #{user_number() => Name :: halley_id:id()}},
    %% For each user the subjects that have it.
    subjects = #{} :: #{user_number() => [subject()]},
    leaving :: halley_presence_debounce:debounce()
}).
-opaque roster() :: #roster{}.

-spec new(LeaveMs :: pos_integer()) -> roster().
new(LeaveMs) -> #roster{leaving = halley_presence_debounce:new(LeaveMs)}.

%% These are reported as present, and no others.
-spec fill(subject(), [{user_number(), halley_id:id()}], roster()) -> roster().
fill(Subject, Users, Roster) ->
    lists:foldl(fun({User, Name}, R) ->
        {_, Next} = here(Subject, User, Name, R),
        Next
    end, drop(Subject, Roster), Users).

%% Nothing is reported of it any more.
-spec drop(subject(), roster()) -> roster().
drop(Subject, #roster{users = All} = Roster) ->
    case maps:take(Subject, All) of
        {Users, Others} ->
            lists:foldl(fun(User, R) -> forget(Subject, User, R) end,
                        Roster#roster{users = Others}, maps:keys(Users));
        error ->
            Roster
    end.

forget(Subject, User, #roster{subjects = Subjects} = Roster) ->
    Left = case lists:delete(Subject, maps:get(User, Subjects, [])) of
        [] -> maps:remove(User, Subjects);
        Others -> Subjects#{User => Others}
    end,
    back({Subject, User}, Roster#roster{subjects = Left}).

%% The user is there; `joined' if that wasn't reported. A number may have another name by now: then
%% the user of that name has left.
-spec here(subject(), user_number(), halley_id:id(), roster()) ->
    {joined | known | {instead_of, Name :: halley_id:id()}, roster()}.
here(Subject, User, Name, #roster{users = All, subjects = Subjects} = Roster) ->
    Users = maps:get(Subject, All, #{}),
    case Users of
        #{User := Name} ->
            {known, back({Subject, User}, Roster)};
        #{} ->
            Its = [Subject | lists:delete(Subject, maps:get(User, Subjects, []))],
            Next = Roster#roster{users = All#{Subject => Users#{User => Name}},
                                 subjects = Subjects#{User => Its}},
            {joined(maps:find(User, Users)), back({Subject, User}, Next)}
    end.

joined(error) -> joined;
joined({ok, Other}) -> {instead_of, Other}.

%% It isn't on its way out.
-spec back(member(), roster()) -> roster().
back(Member, #roster{leaving = Leaving} = Roster) ->
    Roster#roster{leaving = halley_presence_debounce:back(Member, Leaving)}.

%% It isn't there; if that is known already, since then.
-spec away(member(), NowMs :: integer(), roster()) -> roster().
away(Member, Now, #roster{leaving = Leaving} = Roster) ->
    Roster#roster{leaving = halley_presence_debounce:away(Member, Now, Leaving)}.

%% It isn't there, and was until now, whatever is known of it.
-spec away_anew(member(), NowMs :: integer(), roster()) -> roster().
away_anew(Member, Now, #roster{leaving = Leaving} = Roster) ->
    Roster#roster{leaving = halley_presence_debounce:away_anew(Member, Now, Leaving)}.

%% Those that have been away for long enough, in the order in which they left: users of subjects by
%% their names. Those that are `Held' wait once more.
-spec due(NowMs :: integer(), Held :: fun((member()) -> boolean()), roster()) ->
    {[{subject(), Name :: halley_id:id()} | {following, user_number()}], roster()}.
due(Now, Held, #roster{leaving = Leaving} = Roster) ->
    {Members, Next} = halley_presence_debounce:due(Now, Held, Leaving),
    lists:mapfoldl(fun left/2, Roster#roster{leaving = Next}, Members).

left({following, _} = Member, Roster) ->
    {Member, Roster};
left({Subject, User}, #roster{users = All} = Roster) ->
    {Name, Others} = maps:take(User, map_get(Subject, All)),
    {{Subject, Name}, forget(Subject, User, Roster#roster{users = All#{Subject := Others}})}.

%% Those that were reported as present, in the order of their numbers.
-spec names(subject(), roster()) -> [halley_id:id()].
names(Subject, #roster{users = All}) ->
    [Name || {_, Name} <- lists:sort(maps:to_list(maps:get(Subject, All, #{})))].

-spec users(subject(), roster()) -> #{user_number() => Name :: halley_id:id()}.
users(Subject, #roster{users = All}) -> maps:get(Subject, All, #{}).

-spec count(subject(), roster()) -> non_neg_integer().
count(Subject, #roster{users = All}) -> map_size(maps:get(Subject, All, #{})).

%% Where a user was reported as present.
-spec subjects(user_number(), roster()) -> [subject()].
subjects(User, #roster{subjects = Subjects}) -> maps:get(User, Subjects, []).
