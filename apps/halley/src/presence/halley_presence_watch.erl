%% Watched subjects, those whose presence sessions receive: what is in one when the watch begins, in
%% which of them a user is, and which have no listener left.
%%
%% It reads, and keeps nothing: `halley_presence' has a #watch{} for each.
-module(halley_presence_watch).

-export([open/1, count/1, of_user/2, by_follow/2, visitors/1, idle/3, state/4]).

-include("halley_presence.hrl").

%% Of the bound, below which users are named again, so that it isn't crossed all the time.
-define(NAMED_AGAIN_PERCENT, 80).
%% Follows that are taken at a time.
-define(TAKEN, 1000).

%% A subject as it is now, and the users in it if they are named.
-spec open(halley_id:id()) -> {#watch{}, [halley_id:user_number()]}.
open(Subject) ->
    Now = erlang:monotonic_time(millisecond),
    case halley_presence_query:is_large(Subject) of
        true ->
            Online = halley_presence_query:counted(Subject),
            {#watch{named = false, online = Online, counted_at = Now}, []};
        false ->
            {Users, Visitors} = halley_presence_query:users(Subject),
            case length(Users) > halley_limits:get(presence_users_max) of
                true ->
                    Online = length(Users) + Visitors,
                    {#watch{named = false, online = Online, counted_at = Now}, []};
                false ->
                    {#watch{named = true, visitors = Visitors, counted_at = Now}, Users}
            end
    end.

%% How many are in a subject that is large, and whether its users may be named again: visitors are
%% counted beside them, however many they are.
-spec count(halley_id:id()) -> {Online :: non_neg_integer(), MayName :: boolean()}.
count(Subject) ->
    Online = halley_presence_query:counted(Subject),
    MayName = not halley_presence_query:is_large(Subject)
        andalso are_few(Online - visitors(Subject)),
    {Online, MayName}.

are_few(Users) ->
    100 * Users =< ?NAMED_AGAIN_PERCENT * halley_limits:get(presence_users_max).

%% In which of these subjects a user is.
-spec of_user(halley_id:user_number(), #{halley_id:id() => #watch{}}) -> [halley_id:id()].
of_user(User, Watched) ->
    case halley_directory:sessions(User) of
        [] ->
            [];
        Sessions ->
            Subscribed = lists:append([halley_subscriptions:subjects(Slot, Conn)
                                       || {link, Slot, Conn} <- Sessions]),
            lists:usort([S || S <- Subscribed, is_map_key(S, Watched)] ++ by_follow(User, Watched))
    end.

%% In which it is if it has any session.
-spec by_follow(halley_id:user_number(), #{halley_id:id() => term()}) -> [halley_id:id()].
by_follow(_, Watched) when map_size(Watched) =:= 0 ->
    [];
by_follow(User, Watched) ->
    [Name || Name <- [halley_ids:name(User)], is_map_key(Name, Watched)] ++ followed(User, Watched).

%% The shorter way: over the subjects, or over what the user follows.
followed(User, Watched) ->
    case halley_follows_graph:count_following(User) > map_size(Watched) of
        true -> [S || S <- maps:keys(Watched), is_follower(User, halley_ids:lookup(S))];
        false -> followed(User, 0, Watched)
    end.

is_follower(_, undefined) -> false;
is_follower(User, Subject) -> halley_follows_graph:is_follower(User, Subject).

followed(User, After, Watched) ->
    Taken = halley_follows_graph:take_following(User, After, ?TAKEN),
    Found = [Name || Subject <- Taken, Name <- [halley_ids:name(Subject)],
                     is_map_key(Name, Watched)],
    case length(Taken) of
        ?TAKEN -> Found ++ followed(User, lists:last(Taken), Watched);
        _ -> Found
    end.

%% The subjects that have had no listener for so long, and the others.
-spec idle(NowMs :: integer(), Ms :: pos_integer(), #{halley_id:id() => #watch{}}) ->
    {[halley_id:id()], #{halley_id:id() => #watch{}}}.
idle(Now, Ms, Watched) ->
    Seen = maps:map(fun(Subject, Watch) ->
        case halley_subscriptions_table:has_any(halley_presence_keys:key(Subject)) of
            true -> Watch#watch{idle_since = none};
            false when Watch#watch.idle_since =:= none -> Watch#watch{idle_since = Now};
            false -> Watch
        end
    end, Watched),
    Idle = [S || {S, #watch{idle_since = Since}} <- maps:to_list(Seen), Since =/= none,
                 Now - Since >= Ms],
    {Idle, maps:without(Idle, Seen)}.

%% The state of a subject as it was sent, as JSON.
-spec state(halley_id:id(), #watch{}, halley_presence_roster:roster(),
            halley_presence_following:said()) -> [binary(), ...].
state(Subject, #watch{named = true, visitors = Visitors}, Roster, Said) ->
    Users = halley_presence_roster:users(Subject, Roster),
    Texts = [{map_get(User, Users), Text} || {User, Text} <- Said(maps:keys(Users))],
    Names = halley_presence_roster:names(Subject, Roster),
    halley_presence_json:state(Subject, Visitors, Names, Texts);
state(Subject, #watch{online = Online}, _, _) ->
    [halley_presence_json:large(Subject, Online)].

%% Sessions of visitors that are subscribed.
-spec visitors(halley_id:id()) -> non_neg_integer().
visitors(Subject) ->
    length([Word || Word <- halley_subscriptions_table:words(Subject),
                    halley_subscriptions:user(Word) =:= nobody]).
