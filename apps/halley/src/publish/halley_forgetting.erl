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
%% Each such user is remembered until retention has taken its traces: `forgotten_users_max' of them
%% at most. One more is refused before anything is done.
-module(halley_forgetting).

-export([run/1]).
-export_type([forgotten/0]).

-type forgotten() :: #{sessions := non_neg_integer(), following := non_neg_integer(),
                       followers := non_neg_integer()}.

-define(PAGE, 1000).
-define(REASON, <<"this user was deleted">>).

%% So many sessions were closed, and so many follows ended.
-spec run(User :: halley_id:id()) ->
    {ok, forgotten()}
    | {error, too_many_forgotten | halley_follows:failure() | halley_follows:error()
              | history_failed}.
run(User) ->
    IsRoom = halley_history_forgotten:count() < halley_limits:get(forgotten_users_max)
        orelse halley_history:forgotten(User) > 0,
    case IsRoom of
        true ->
            run_all(User);
        false ->
            halley_metrics:incr(forgets_refused),
            {error, too_many_forgotten}
    end.

run_all(User) ->
    Sessions = close(User),
    case unfollow(fun halley_follows:following/3, fun(Subject) -> {User, Subject} end, User) of
        {ok, Following} ->
            case unfollow(fun halley_follows:followers/3, fun(Other) -> {Other, User} end, User) of
                {ok, Followers} ->
                    hide(User, #{sessions => Sessions, following => Following,
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

unfollow(Page, Pair, User) -> unfollow(Page, Pair, User, start, 0, none).

%% Who follows again meanwhile, behind the page that is read, does so after it was forgotten. What
%% can't be ended doesn't keep the others.
unfollow(Page, Pair, User, After, Count, Before) ->
    case Page(User, After, ?PAGE) of
        {error, _} when Before =:= none ->
            %% The last id of the page before has nothing else, and was given back: again from the
            %% start, where those of that page are no more.
            unfollow(Page, Pair, User, start, Count, none);
        {error, _} ->
            Before;
        {Ids, Next} ->
            ended(halley_follows:unfollow([Pair(Id) || Id <- Ids]), Next, {Page, Pair, User},
                  Count, Before)
    end.

ended(Unfollowed, Next, {Page, Pair, User}, Count, Before) ->
    case Unfollowed of
        {ok, #{removed := Removed, errors := Errors}} ->
            Failed = case Errors of
                [{_, Reason} | _] -> {error, Reason};
                [] -> Before
            end,
            case Next of
                done when Failed =:= none -> {ok, Count + Removed};
                done -> Failed;
                _ -> unfollow(Page, Pair, User, Next, Count + Removed, Failed)
            end;
        {error, _} = Error -> Error
    end.

hide(User, Forgotten) ->
    case halley_history:forget(User) of
        ok ->
            Numbers = [N || N <- [halley_ids:lookup(User)], N =/= undefined],
            ok = halley_closings:forget(Numbers),
            ok = halley_openings:forget(Numbers),
            ok = halley_metrics:incr(users_forgotten),
            {ok, Forgotten};
        {error, _} = Error ->
            Error
    end.
