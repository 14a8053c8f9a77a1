%% The readings for the presence of subjects: the users in one, and the ones of a user. For
%% `halley_presence'; it keeps nothing.
-module(halley_presence_rooms).

-export([open/1, count/1, of_user/2, by_follow/2, visitors/1, idle/3, state/4]).

-include("halley_presence.hrl").

%% Of the bound, below which users are named again, so that it isn't crossed all the time.
-define(NAMED_AGAIN_PERCENT, 80).
%% Follows that are taken at a time.
-define(TAKEN, 1000).

%% A subject as it is now, and the users in it if they are named.
-spec open(halley_id:id()) -> {#room{}, [halley_id:user_number()]}.
open(Subject) ->
    Now = erlang:monotonic_time(millisecond),
    case halley_present:is_large(Subject) of
        true ->
            {#room{named = false, online = halley_present:counted(Subject), counted_at = Now}, []};
        false ->
            {Users, Visitors} = halley_present:users(Subject),
            case length(Users) > halley_limits:get(presence_users_max) of
                true ->
                    {#room{named = false, online = length(Users) + Visitors, counted_at = Now}, []};
                false ->
                    {#room{named = true, visitors = Visitors, counted_at = Now}, Users}
            end
    end.

%% How many are in a subject that is large, and whether its users may be named again: visitors are
%% counted beside them, however many they are.
-spec count(halley_id:id()) -> {Online :: non_neg_integer(), MayName :: boolean()}.
count(Subject) ->
    Online = halley_present:counted(Subject),
    {Online, not halley_present:is_large(Subject) andalso are_few(Online - visitors(Subject))}.

are_few(Users) ->
    100 * Users =< ?NAMED_AGAIN_PERCENT * halley_limits:get(presence_users_max).

%% In which of these subjects a user is.
-spec of_user(halley_id:user_number(), #{halley_id:id() => #room{}}) -> [halley_id:id()].
of_user(User, Rooms) ->
    case halley_directory:sessions(User) of
        [] ->
            [];
        Sessions ->
            Subscribed = lists:append([halley_subscriptions:subjects(Slot, Conn)
                                       || {link, Slot, Conn} <- Sessions]),
            lists:usort([S || S <- Subscribed, is_map_key(S, Rooms)] ++ by_follow(User, Rooms))
    end.

%% In which it is if it has any session.
-spec by_follow(halley_id:user_number(), #{halley_id:id() => term()}) -> [halley_id:id()].
by_follow(_, Rooms) when map_size(Rooms) =:= 0 ->
    [];
by_follow(User, Rooms) ->
    [Name || Name <- [halley_ids:name(User)], is_map_key(Name, Rooms)] ++ followed(User, Rooms).

%% The shorter way: over the rooms, or over what the user follows.
followed(User, Rooms) ->
    case halley_pages_table:count(halley_following, User) > map_size(Rooms) of
        true -> [S || S <- maps:keys(Rooms), is_follower(User, halley_ids:lookup(S))];
        false -> followed(User, 0, Rooms)
    end.

is_follower(_, undefined) -> false;
is_follower(User, Subject) -> halley_follows:is_follower(User, Subject).

followed(User, After, Rooms) ->
    Taken = halley_follows:take_following(User, After, ?TAKEN),
    Found = [Name || Subject <- Taken, Name <- [halley_ids:name(Subject)],
                     is_map_key(Name, Rooms)],
    case length(Taken) of
        ?TAKEN -> Found ++ followed(User, lists:last(Taken), Rooms);
        _ -> Found
    end.

%% The subjects for which nobody has asked for so long, and the others.
-spec idle(NowMs :: integer(), Ms :: pos_integer(), #{halley_id:id() => #room{}}) ->
    {[halley_id:id()], #{halley_id:id() => #room{}}}.
idle(Now, Ms, Rooms) ->
    Seen = maps:map(fun(Subject, Room) ->
        case halley_subscriptions_table:has_any(halley_presence_notes:key(Subject)) of
            true -> Room#room{idle_since = none};
            false when Room#room.idle_since =:= none -> Room#room{idle_since = Now};
            false -> Room
        end
    end, Rooms),
    Idle = [S || {S, #room{idle_since = Since}} <- maps:to_list(Seen), Since =/= none,
                 Now - Since >= Ms],
    {Idle, maps:without(Idle, Seen)}.

%% What is told of the state of a subject, as JSON.
-spec state(halley_id:id(), #room{}, halley_presence_told:told(),
            halley_presence_following:said()) -> [binary(), ...].
state(Subject, #room{named = true, visitors = Visitors}, Told, Said) ->
    Users = halley_presence_told:users(Subject, Told),
    Texts = [{map_get(User, Users), Text} || {User, Text} <- Said(maps:keys(Users))],
    halley_presence_text:state(Subject, Visitors, halley_presence_told:names(Subject, Told), Texts);
state(Subject, #room{online = Online}, _, _) ->
    [halley_presence_text:large(Subject, Online)].

%% Sessions of visitors that are subscribed.
-spec visitors(halley_id:id()) -> non_neg_integer().
visitors(Subject) ->
    length([Word || Word <- halley_subscriptions_table:words(Subject),
                    halley_subscriptions:user(Word) =:= nobody]).
