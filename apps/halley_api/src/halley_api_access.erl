%% Whose request it is, and whether it is allowed: checked before anything else is done for it.
%%
%% On the API listener it is a server's, with a server key, whose scopes say what is allowed
%% (`halley_server_keys'). On the public listener it is a user's, which the edge has verified: it
%% takes `halley-user' and `halley-rights' from the token, and lets no client send headers of these
%% names (link.md 12.6).
%%
%% A body may come for as long as its sender likes. So the right is checked again before each block
%% is used, by the server keys in force then. When a user's token expires the edge ends the request
%% (http.md 14.6).
%%
%% Each route says what it needs; `halley_api' has the table.
-module(halley_api_access).

-export([judge/2, judge_user/2, judge_key/2, watched/2, user/1]).
-export_type([need/0]).

%% `known': any server key, whatever its scopes. `user': a user of the public listener. `session':
%% the same, or a visitor's WebSocket, which has no user.
-type need() :: halley_server_key:scope() | known | user | session | nothing.

%% How long a judgement holds for the body of the request. A revoked key is out of force as late as
%% that anyway, and a judgement counts as a request of the key.
-define(JUDGED_MS, 250).

-spec judge(need(), halley_api:request()) -> ok | {refused, halley_api:response()}.
judge(nothing, _) ->
    ok;
judge(Need, Request) when Need =:= user; Need =:= session ->
    case judge_user(Need, user_of(Request)) of
        ok -> ok;
        {error, Error, More} -> {refused, halley_api_error:response(Error, More)}
    end;
judge(known, #{listener := public}) ->
    ok;
judge(Need, #{listener := api, headers := Headers}) ->
    case judge_key(Need, maps:get(<<"authorization">>, Headers, undefined)) of
        ok -> ok;
        {error, Error, More} -> {refused, halley_api_error:response(Error, More)}
    end.

%% The same by the user alone, as the edge names it: <<>> is a visitor.
-spec judge_user(user | session, User :: binary() | none) ->
    ok | {error, halley_api_error:error(), [{binary(), iodata()}]}.
judge_user(session, <<>>) ->
    ok;
judge_user(_, User) ->
    case is_binary(User) andalso halley_id:check(User) of
        ok -> ok;
        _ -> user_missing(halley_api_config:auth_mode())
    end.

%% The same by the value of the header `Authorization' alone, for what is no request.
-spec judge_key(halley_server_key:scope() | known, binary() | undefined) ->
    ok | {error, halley_api_error:error(), [{binary(), iodata()}]}.
judge_key(Need, Authorization) ->
    case halley_server_keys:check(Authorization) of
        open -> ok;
        {ok, Scopes} -> scope(Need, Scopes);
        Refused -> key_refused(Refused)
    end.

scope(known, _) ->
    ok;
scope(Scope, Scopes) ->
    case lists:member(Scope, Scopes) of
        true -> ok;
        false -> scope_missing(atom_to_binary(Scope))
    end.

%% The request, with a body that throws `{refused, Response}' where it is read on without the right
%% to.
-spec watched(need(), halley_api:request()) -> halley_api:request().
watched(Need, #{listener := api, body := {stream, Read}} = Request) ->
    put(?MODULE, now_ms()),
    Request#{body := {stream, fun() -> judged(Read(), Need, Request) end}};
watched(user, #{listener := public, body := {stream, Read}} = Request) ->
    {User, _} = user(Request),
    SinceMs = now_ms(),
    Request#{body := {stream, fun() -> unrevoked(Read(), User, SinceMs) end}};
watched(_, Request) ->
    Request.

%% The edge checked the token before the body began (http.md 14.11).
unrevoked(Block, User, SinceMs) ->
    case halley_revocations:is_newer(User, SinceMs) of
        false -> Block;
        true ->
            throw({refused, halley_api_error:response(
                {401, <<"token_revoked">>,
                 "this user's tokens were revoked while the request was sent: get a new one"})})
    end.

%% In the dictionary, as the body's own place: a read fun has no other.
judged(Block, Need, Request) ->
    case now_ms() - get(?MODULE) >= ?JUDGED_MS of
        true ->
            still(judge(Need, Request)),
            put(?MODULE, now_ms()),
            Block;
        false ->
            Block
    end.

%% A request over the rate still has the right.
still(ok) -> ok;
still({refused, {429, _, _}}) -> ok;
still({refused, _} = Refused) -> throw(Refused).

now_ms() ->
    erlang:monotonic_time(millisecond).

%% The user and the rights that a token gave, for a request that `judge/2' let pass as a user's.
-spec user(halley_api:request()) -> {halley_id:id(), halley_api_rights:rights()}.
user(#{listener := public, headers := #{<<"halley-user">> := User} = Headers}) ->
    {User, halley_api_rights:parse(maps:get(<<"halley-rights">>, Headers, <<>>))}.

user_of(#{listener := public, headers := #{<<"halley-user">> := User}}) -> User;
user_of(_) -> none.

%% --- refusals ------------------------------------------------------------------------------------

user_missing(jwt) ->
    unauthorized(<<"token_missing">>,
                 "a token is needed here: send it as Authorization: Bearer <token>");
user_missing(none) ->
    {error, {401, <<"user_missing">>, "say who is asking: add ?user=<id> to the address"}, []}.

key_refused(missing) ->
    halley_metrics:incr(key_missing),
    unauthorized(<<"key_missing">>,
                 "a server key is needed here: send it as Authorization: Bearer hk_...; "
                 "`./halley key create` makes one");
key_refused({too_often, RetryAfterS}) ->
    halley_metrics:incr(key_too_often),
    Max = integer_to_binary(halley_limits:get(requests_per_s_per_key_max)),
    Message = ["this server key may make ", Max, " requests in a second, and made them; events and "
               "follows may come many in one request"],
    {error, {429, <<"too_many_requests">>, Message},
     [{<<"retry-after">>, integer_to_binary(RetryAfterS)}]};
key_refused(unknown) ->
    halley_metrics:incr(key_unknown),
    unauthorized(<<"key_unknown">>,
                 "this server key does not exist: it was revoked, or is not the whole key").

%% RFC 9110, 15.5.2: a 401 names the scheme.
unauthorized(Code, Message) ->
    {error, {401, Code, Message}, [{<<"www-authenticate">>, <<"Bearer realm=\"halley\"">>}]}.

%% RFC 6750, 3.1.
scope_missing(Scope) ->
    halley_metrics:incr(scope_missing),
    Challenge = ["Bearer realm=\"halley\", error=\"insufficient_scope\", scope=\"", Scope, $"],
    {error, {403, <<"scope_missing">>,
             ["this server key has not the scope ", Scope, ", which this needs"]},
     [{<<"www-authenticate">>, Challenge}]}.
