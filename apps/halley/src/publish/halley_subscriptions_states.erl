%% The states that a user's sessions say of themselves, as the user is deleted (http.md 23.2).
%%
%% Those of sessions that live are rows of `halley_session_states'. A session that is held has its
%% state among its subscriptions alone, and would show it once it enters: there it is taken away by
%% the one who writes them, `halley_subscriptions'. To find such sessions all rows are looked at, in
%% the caller's process; that is for users alone that have a held session, and mostly none has.
-module(halley_subscriptions_states).

-export([forget/1]).

%% First those that are held: one that enters meanwhile has its row behind that.
-spec forget(halley_id:user_number()) -> ok.
forget(User) ->
    ok = case halley_directory_leaving:is_held(User) of
        true ->
            Words = ets:select(halley_subscriptions, [{{'$1', User, '_', '_'}, [], ['$1']}]),
            gen_server:call(halley_subscriptions, {forget_state, User, Words}, infinity);
        false ->
            ok
    end,
    halley_session_states:forget(User).
