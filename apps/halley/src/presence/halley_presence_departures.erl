%% Departures while `halley_presence' begins: the users that went, from a note on, for as long as a
%% user may come back.
%%
%% A process that begins sends the state, which replaces its listeners' knowledge. A user that went
%% a moment before isn't there, but hasn't left yet either: it is reported as present, and as gone
%% when it doesn't come back in time. So a connection that breaks in that moment causes no false
%% message.
%%
%% Of a user that was in a subject by a subscription, the note names the subject; everything else is
%% read when it is needed. Pure but for that reading; empty once all has begun.
-module(halley_presence_departures).

-export([new/0, note/3, since/2, users/1, into_roster/4]).
-export_type([departures/0]).

-type user_number() :: halley_id:user_number().

-record(departures, {
    users = #{} :: #{user_number() => SinceMs :: integer()},
    %% Subjects that one of its sessions was subscribed to until then.
    subjects = #{} :: #{{user_number(), halley_id:id()} => SinceMs :: integer()}
}).
-opaque departures() :: #departures{}.

-spec new() -> departures().
new() -> #departures{}.

-spec note(halley_presence_dirty:note(), NowMs :: integer(), departures()) -> departures().
note({What, User}, Now, #departures{users = Users} = Departures)
  when What =:= user; What =:= there ->
    case halley_directory:sessions(User) of
        %% It had none before, as far as is known. Of one that was there, the note says so.
        [] when What =:= user, is_map_key(User, Users) -> Departures;
        [] -> Departures#departures{users = Users#{User => Now}};
        _ -> Departures#departures{users = maps:remove(User, Users)}
    end;
note({was_in, User, Subject}, Now, #departures{subjects = Subjects} = Departures) ->
    Departures#departures{subjects = Subjects#{{User, Subject} => Now}};
note(_, _, Departures) ->
    Departures.

%% Those that went since then, and no others.
-spec since(SinceMs :: integer(), departures()) -> departures().
since(Since, #departures{users = Users, subjects = Subjects}) ->
    IsLater = fun(_, At) -> At > Since end,
    #departures{users = maps:filter(IsLater, Users), subjects = maps:filter(IsLater, Subjects)}.

-spec users(departures()) -> [user_number()].
users(#departures{users = Users}) -> maps:keys(Users).

%% Puts them into the roster of these subjects, where they would be if they were back; they are away
%% from now on.
-spec into_roster(NowMs :: integer(), Watched :: #{halley_id:id() => term()},
                  halley_presence_roster:roster(), departures()) -> halley_presence_roster:roster().
into_roster(Now, Watched, Roster, Departures) ->
    lists:foldl(fun({Subject, User, Name}, R) ->
        case is_map_key(User, halley_presence_roster:users(Subject, R)) of
            true ->
                R;
            false ->
                {_, Here} = halley_presence_roster:here(Subject, User, Name, R),
                halley_presence_roster:away({Subject, User}, Now, Here)
        end
    end, Roster, members(Watched, Departures)).

members(Watched, #departures{users = Users, subjects = Subjects}) ->
    In = [{Subject, User} || {User, Subject} <- maps:keys(Subjects), is_map_key(Subject, Watched)],
    Followed = [{Subject, User} || User <- maps:keys(Users), name(User) =/= none,
                                   Subject <- halley_presence_watch:by_follow(User, Watched)],
    [{Subject, User, Name} || {Subject, User} <- lists:usort(In ++ Followed),
                              Name <- [name(User)], Name =/= none].

%% The number may have been given back.
name(User) ->
    try halley_ids:name(User)
    catch error:{no_such_user_number, _} -> none
    end.
