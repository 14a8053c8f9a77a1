%% GET /v1/subjects/S/followers?after=&limit= : who follows a subject, page by page.
%%
%% `next' of the answer is the `after' of the next page, or null. A subject without follows has no
%% followers; it is not an error. The follow of a user by itself is not stored and not listed.
-module(halley_api_subjects_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [Subject], Request) ->
    case halley_api_id:check(Subject, <<"subject">>) of
        {ok, Id} ->
            Read = fun(After, Limit) -> halley_follows:followers(Id, After, Limit) end,
            halley_api_reply:page(<<"followers">>, Request, Read);
        {error, Error} ->
            halley_api_error:response(Error)
    end.
