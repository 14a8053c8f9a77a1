%% Forgets a user: its sessions are closed, its follows end both ways, and events about it, or for
%% it alone, are shown to no client any more.
%%
%% Nothing stops the user from coming back: then it is a new user, with nothing from before. Its id
%% leaves memory and the store when its number is freed (`halley_ids_sweep'), and the history when
%% retention takes what is in it; the log says when that was (`halley_history_forgotten').
%%
%% Each step is on disk when the next begins, and the one that hides the past comes last. After an
%% error, or a kill, some are done: forgetting the user again does the rest, and harms nothing.
%%
%% Where several brains share a log, a user is forgotten at a place of the log, and each brain does
%% it for itself (`applied/3'), as with changes of follows (`halley_follows_applied').
%%
%% Each such user is remembered until retention has taken its traces: `forgotten_users_max' of them
%% at most. One more is refused before anything is done.
-module(halley_forgetting).

-export([run/1, applied/3]).
-export_type([forgotten/0]).

-type forgotten() :: #{sessions := non_neg_integer(), following := non_neg_integer(),
                       followers := non_neg_integer()}.

%% Ends follows as `halley_follows:unfollow/1' does.
-type unfollow() :: fun(([{halley_id:id(), halley_id:id()}]) ->
                            {ok, #{removed := non_neg_integer(),
                                   errors := [{non_neg_integer(), halley_follows:error()}],
                                   _ => _}}
                            | {error, halley_follows:failure()}).
-type failure() :: halley_follows:failure() | halley_follows:error() | history_failed.

-define(PAGE, 1000).
-define(REASON, <<"this user was deleted">>).

%% So many sessions were closed, and so many follows ended.
-spec run(User :: halley_id:id()) ->
    {ok, forgotten()} | {error, too_many_forgotten | failure()}.
run(User) ->
    IsRoom = halley_history_forgotten:count() < halley_limits:get(forgotten_users_max)
        orelse halley_history:forgotten(User) > 0,
    case IsRoom of
        true ->
            run(User, fun halley_follows:unfollow/1, fun() -> halley_history:forget(User) end);
        false ->
            halley_metrics:incr(forgets_refused),
            {error, too_many_forgotten}
    end.

%% Forgets a user as the log of several brains says, at this place: its sessions of this brain are
%% closed, and what is below the place is hidden. After an error it is to be called again with the
%% same, before the log goes on.
-spec applied(User :: halley_id:id(), halley_cursor:seq(), AtMs :: integer()) ->
    {ok, forgotten()} | {error, failure()}.
applied(User, Seq, AtMs) ->
    run(User, fun halley_follows_applied:forget/1, fun() ->
        halley_history:placed([{follow, Seq, {User, User}}], AtMs)
    end).

-spec run(halley_id:id(), unfollow(), Hide :: fun(() -> ok | {error, failure()})) ->
    {ok, forgotten()} | {error, failure()}.
run(User, Unfollow, Hide) ->
    Sessions = close(User),
    Subject = fun(Id) -> {User, Id} end,
    Follower = fun(Id) -> {Id, User} end,
    case unfollow({fun halley_follows:following/3, Subject, User, Unfollow}) of
        {ok, Following} ->
            case unfollow({fun halley_follows:followers/3, Follower, User, Unfollow}) of
                {ok, Followers} ->
                    hidden(Hide(), User, #{sessions => Sessions, following => Following,
                                           followers => Followers});
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

close(User) ->
    Number = halley_ids:lookup(User),
    Number =:= undefined orelse halley_subscriptions_states:forget(Number),
    halley_sessions:close_user(User, ?REASON).

unfollow(How) -> unfollow(How, start, 0, none).

%% Who follows again meanwhile, behind the page that is read, does so after it was forgotten. What
%% can't be ended doesn't keep the others.
unfollow({Page, Pair, User, Unfollow} = How, After, Count, Before) ->
    case Page(User, After, ?PAGE) of
        {error, _} when Before =:= none ->
            %% The last id of the page before has nothing else, and was given back: again from the
            %% start, where those of that page are no more.
            unfollow(How, start, Count, none);
        {error, _} ->
            Before;
        {Ids, Next} ->
            ended(Unfollow([Pair(Id) || Id <- Ids]), Next, How, Count, Before)
    end.

ended(Unfollowed, Next, How, Count, Before) ->
    case Unfollowed of
        {ok, #{removed := Removed, errors := Errors}} ->
            Failed = case Errors of
                [{_, Reason} | _] -> {error, Reason};
                [] -> Before
            end,
            case Next of
                done when Failed =:= none -> {ok, Count + Removed};
                done -> Failed;
                _ -> unfollow(How, Next, Count + Removed, Failed)
            end;
        {error, _} = Error -> Error
    end.

hidden(ok, User, Forgotten) ->
    Numbers = [N || N <- [halley_ids:lookup(User)], N =/= undefined],
    ok = halley_closings:forget(Numbers),
    ok = halley_openings:forget(Numbers),
    ok = halley_metrics:incr(users_forgotten),
    {ok, Forgotten};
hidden({error, _} = Error, _, _) ->
    Error.
