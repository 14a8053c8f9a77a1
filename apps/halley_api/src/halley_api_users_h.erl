%% Requests about one user.
%%
%%   GET    /v1/users/U            presence, and how many follows there are both ways
%%   GET    /v1/users/U/following  whom the user follows, page by page, as for followers
%%   GET    /v1/users/U/sessions   the live sessions, and what waits for each
%%   DELETE /v1/users/U/sessions   closes the user's connections
%%   DELETE /v1/users/U/subscriptions/S
%%                                 ends what the user's sessions are subscribed to of S
%%   DELETE /v1/users/U            forgets the user
%%
%% A user that Halley has never seen is offline and follows no subject; it is not an error, as any
%% id may follow or be followed the next moment.
-module(halley_api_users_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(get | delete, [binary()], halley_api:request()) -> halley_api:response().
handle(delete, [<<"subscriptions">>, User, Subject], _) ->
    case {halley_api_id:check(User, <<"user">>), halley_api_id:check(Subject, <<"subject">>)} of
        {{ok, Whose}, {ok, Id}} ->
            Ended = halley_subscriptions_end:of_user(Whose, Id),
            halley_api_reply:json({[{<<"ended">>, Ended}]});
        {{error, Error}, _} -> halley_api_error:response(Error);
        {_, {error, Error}} -> halley_api_error:response(Error)
    end;
handle(Method, Args, Request) ->
    [User | What] = lists:reverse(Args),
    case halley_api_id:check(User, <<"user">>) of
        {ok, Id} -> user(Method, Id, What, Request);
        {error, Error} -> halley_api_error:response(Error)
    end.

user(get, User, [], _) ->
    #{sessions := Sessions} = halley:presence(User),
    halley_api_reply:json({[{<<"user">>, User},
                            {<<"online">>, Sessions > 0},
                            {<<"sessions">>, Sessions},
                            {<<"following">>, halley_follows:count_following(User)},
                            {<<"followers">>, halley_follows:count_followers(User)}]});
user(get, User, [<<"following">>], Request) ->
    Read = fun(After, Limit) -> halley_follows:following(User, After, Limit) end,
    halley_api_reply:page(<<"following">>, Request, Read);
user(get, User, [<<"sessions">>], _) ->
    Sessions = sessions(halley_ids:lookup(User)),
    Listed = lists:sublist(Sessions, ?SESSIONS_LISTED_MAX),
    Seen = [halley_api_sessions:json(One) || One <- halley_api_sessions:seen(Listed)],
    halley_api_reply:json({[{<<"user">>, User},
                            {<<"sessions">>, Seen},
                            {<<"sessions_total">>, length(Sessions)}]});
user(delete, User, [<<"sessions">>], _) ->
    {ok, Closed} = halley:close_sessions(User),
    halley_api_reply:json({[{<<"closed">>, Closed}]});
user(delete, User, [], _) ->
    case halley:forget(User) of
        {ok, #{sessions := Sessions, following := Following, followers := Followers}} ->
            halley_api_reply:json({[{<<"user">>, User}, {<<"sessions">>, Sessions},
                                    {<<"following">>, Following}, {<<"followers">>, Followers}]});
        {error, Reason} ->
            halley_api_error:response(halley_api_error:reason(Reason))
    end.

sessions(undefined) -> [];
sessions(Number) -> halley_directory:sessions(Number).
