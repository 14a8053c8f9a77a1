%% GET /v1/users?after=&limit= : the users that follow anything, page by page.
%%
%% `next' of the answer is the `after' of the next page, or null; it is a place, and no user. A page
%% may have fewer users than `limit' before the end, even none. With `GET /v1/users/U/following' of
%% each it is an export of all follows.
-module(halley_api_user_list_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [], halley_api:request()) -> halley_api:response().
handle(get, [], Request) ->
    halley_api_reply:page(<<"users">>, Request, fun halley_follows_users:page/2).
