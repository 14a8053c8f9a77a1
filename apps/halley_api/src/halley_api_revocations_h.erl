%% Tokens of users that are refused although they were signed, and haven't expired.
%%
%%   PUT    /v1/users/U/revocation   tokens of U from before a second are refused from now on
%%   GET    /v1/users/U/revocation   since when U's tokens count; DELETE takes the revocation back
%%   GET    /v1/revocations          all of them, page by page
%%
%% The body of PUT is `{"issued_before":S,"until":S}', each a second since 1970, both optional.
%% Without `issued_before' it is the next second, so that a token of this very moment is refused,
%% too; without `until' it lasts until it is taken back. The list is `halley_revocations''; the edge
%% refuses the tokens and ends the user's sessions.
-module(halley_api_revocations_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(get | put | delete, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [], Request) ->
    halley_api_reply:page(Request, fun(After, Limit) ->
        {Found, Next} = halley_revocations:page(After, Limit),
        {[{<<"revocations">>, [json(One) || One <- Found]}], Next}
    end);
handle(Method, [User], Request) ->
    case halley_api_id:check(User, <<"user">>) of
        {ok, Id} -> of_user(Method, Id, Request);
        {error, Error} -> halley_api_error:response(Error)
    end.

of_user(get, User, _) ->
    answer(case halley_revocations:find(User) of
        none -> {User, null, never};
        Found -> Found
    end);
of_user(delete, User, _) ->
    case halley_revocations:delete(User) of
        {error, Reason} -> halley_api_error:response(halley_api_error:reason(Reason));
        Result -> halley_api_reply:json({[{<<"deleted">>, Result =:= deleted}]})
    end;
of_user(put, User, Request) ->
    case {halley_api_config:auth_mode(), wanted(Request)} of
        {none, _} ->
            halley_api_error:response(
                {409, <<"tokens_off">>,
                 "with auth.mode = none nobody shows a token, so there is none to revoke"});
        {_, {ok, Before, Until}} ->
            case halley_revocations:put(User, Before, Until) of
                ok -> answer({User, Before, Until});
                {error, Reason} -> halley_api_error:response(halley_api_error:reason(Reason))
            end;
        {_, {error, Error}} ->
            halley_api_error:response(Error)
    end.

answer(Revocation) -> halley_api_reply:json(json(Revocation)).

json({User, Before, Until}) ->
    {[{<<"user">>, User}, {<<"issued_before">>, Before},
      {<<"until">>, case Until of never -> null; _ -> Until end}]}.

wanted(Request) ->
    case halley_api_body:read(Request, ?REVOCATION_BODY_BYTES_MAX) of
        {ok, Body} -> members(halley_api_lines:trim(Body));
        {error, _} -> {error, halley_api_error:bad_json(what())}
    end.

members(<<>>) -> members([], next_second(), never);
members(Body) ->
    case halley_api_json:object(Body) of
        {ok, Members} -> members(Members, next_second(), never);
        {error, What} -> {error, halley_api_error:bad_json(What)}
    end.

members([{<<"issued_before">>, S} | Rest], _, Until)
  when is_integer(S), S >= 0, S < ?SECONDS_MAX ->
    members(Rest, S, Until);
members([{<<"until">>, S} | Rest], Before, _) when is_integer(S), S >= 0, S < ?SECONDS_MAX ->
    members(Rest, Before, S);
members([{<<"until">>, null} | Rest], Before, _) ->
    members(Rest, Before, never);
members([], Before, Until) ->
    {ok, Before, Until};
members(_, _, _) ->
    {error, halley_api_error:bad_json(what())}.

what() ->
    "a revocation is {\"issued_before\":S,\"until\":S}, each a whole second since 1970, and each "
    "may be left out".

next_second() -> halley_clock:wall_s() + 1.
