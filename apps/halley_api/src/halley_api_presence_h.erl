%% Present users (http.md 22).
%%
%%   GET /v1/subjects/S/presence         who is in S: {"online":N,"users":[…],"next":…}
%%   GET /v1/me/subjects/S/presence      the same for a user with the right `presence' to S
%%   GET /v1/users/U/following/online    who of those that U follows is online, page by page
%%   GET /v1/me/following/online         the same for oneself: those to whom there is the right
%%
%% A user learns nothing about those to whom it has no right, neither by who is named nor by where a
%% page begins and ends.
%%
%% Each has the states of these users as `states', if there are any. `next' is the `after' of the
%% next page, or null. `users' is null for a subject that is too large to name them. An empty
%% subject isn't an error.
%%
%% A page looks at thousands of followers, so it is made at a low priority: events come first.
-module(halley_api_presence_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, What, Request) ->
    _ = process_flag(priority, low),
    asked(What, Request).

asked([<<"room">>, Subject], Request) ->
    with_id(Subject, <<"subject">>, fun(Id) ->
        room(Request, fun(After, Limit) -> halley_presence_query:room(Id, After, Limit) end)
    end);
asked([<<"me">>, Subject], Request) ->
    {_, Rights} = halley_api_access:user(Request),
    with_id(Subject, <<"subject">>, fun(Id) ->
        case halley_api_rights:judge(presence, Id, Rights) of
            ok ->
                room(Request, fun(After, Limit) ->
                    halley_presence_query:room_own(Id, After, Limit)
                end);
            {error, Error} ->
                halley_api_error:response(Error)
        end
    end);
asked([<<"following_of">>, User], Request) ->
    with_id(User, <<"user">>, fun(Id) ->
        following(Request, fun(After, Limit) ->
            halley_presence_query:following_online(Id, After, Limit)
        end)
    end);
asked([<<"following">>], Request) ->
    {User, Rights} = halley_api_access:user(Request),
    case halley_api_rights:judge_any(presence, Rights) of
        ok ->
            May = fun(Id) -> halley_api_rights:allows(presence, Id, Rights) end,
            following(Request, fun(After, Limit) ->
                halley_presence_query:following_online_own(User, After, Limit, May)
            end);
        {error, Error} ->
            halley_api_error:response(Error)
    end.

with_id(Text, Name, Answer) ->
    case halley_api_id:check(Text, Name) of
        {ok, Id} -> Answer(Id);
        {error, Error} -> halley_api_error:response(Error)
    end.

following(Request, Read) ->
    halley_api_reply:page(Request, fun(After, Limit) ->
        case Read(After, Limit) of
            {error, _} = Error -> Error;
            {Users, Next} -> {[{<<"users">>, Users}], Next, states(Users)}
        end
    end).

states(large) -> [];
states(Users) -> halley_presence_json:states(halley_presence_query:states(Users)).

room(Request, Read) ->
    halley_api_reply:page(Request, fun(After, Limit) ->
        case Read(After, Limit) of
            #{online := Online, users := Users, next := Next} ->
                {[{<<"online">>, Online}, {<<"users">>, listed(Users)}], Next, states(Users)};
            {error, _} = Error ->
                Error
        end
    end).

listed(large) -> null;
listed(Users) -> Users.
