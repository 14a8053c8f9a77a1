%% Users that went while `halley_presence' begins: from a note on, for as long as a user may come
%% back.
%%
%% A process that begins sends the state, which replaces its listeners' knowledge. A user that went
%% a moment before isn't there, but hasn't left yet either: it is reported as present, and as gone
%% when it doesn't come back in time. So a connection that breaks in that moment causes no false
%% message.
%%
%% Of a user that was in a subject by a subscription, the note names the subject; everything else is
%% read when it is needed. Pure but for that reading; empty once all has begun.
-module(halley_presence_recent).

-export([new/0, note/3, since/2, users/1, rooms/2]).
-export_type([recent/0]).

-type user_number() :: halley_id:user_number().

-record(recent, {
    users = #{} :: #{user_number() => SinceMs :: integer()},
    %% Subjects that one of its sessions was subscribed to until then.
    rooms = #{} :: #{{user_number(), halley_id:id()} => SinceMs :: integer()}
}).
-opaque recent() :: #recent{}.

-spec new() -> recent().
new() -> #recent{}.

-spec note(halley_presence_notes:note(), NowMs :: integer(), recent()) -> recent().
note({What, User}, Now, #recent{users = Users} = Recent) when What =:= user; What =:= there ->
    case halley_directory:sessions(User) of
        %% It had none before, as far as is known. Of one that was there, the note says so.
        [] when What =:= user, is_map_key(User, Users) -> Recent;
        [] -> Recent#recent{users = Users#{User => Now}};
        _ -> Recent#recent{users = maps:remove(User, Users)}
    end;
note({was_in, User, Subject}, Now, #recent{rooms = Rooms} = Recent) ->
    Recent#recent{rooms = Rooms#{{User, Subject} => Now}};
note(_, _, Recent) ->
    Recent.

%% Those that went since then, and no others.
-spec since(SinceMs :: integer(), recent()) -> recent().
since(Since, #recent{users = Users, rooms = Rooms}) ->
    IsLater = fun(_, At) -> At > Since end,
    #recent{users = maps:filter(IsLater, Users), rooms = maps:filter(IsLater, Rooms)}.

-spec users(recent()) -> [user_number()].
users(#recent{users = Users}) -> maps:keys(Users).

%% In which of these subjects they would be if they were back, and their names.
-spec rooms(#{halley_id:id() => term()}, recent()) ->
    [{halley_id:id(), user_number(), Name :: halley_id:id()}].
rooms(Asked, #recent{users = Users, rooms = Rooms}) ->
    In = [{Subject, User} || {User, Subject} <- maps:keys(Rooms), is_map_key(Subject, Asked)],
    Followed = [{Subject, User} || User <- maps:keys(Users), name(User) =/= none,
                                   Subject <- halley_presence_rooms:by_follow(User, Asked)],
    [{Subject, User, Name} || {Subject, User} <- lists:usort(In ++ Followed),
                              Name <- [name(User)], Name =/= none].

%% The number may have been given back.
name(User) ->
    try halley_ids:name(User)
    catch error:{no_such_user_number, _} -> none
    end.
