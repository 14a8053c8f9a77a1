%% Where the id of a request stands: in the path, or in the query as `subject' (`protocol/http.md'
%% 28.1). A proxy that decodes `%2F' makes two segments of an id with a slash; a query stays as it
%% is.
%%
%% The second form becomes the first before anything else is done for the request, so both have the
%% same resource, rights, errors and limits by construction.
%%
%% Below `/v1/me/' alone: other resources are for servers, which reach them without such a proxy.
%%
%% Pure.
-module(halley_api_place).

-export([of_request/2, lacks_id/2]).

-define(PARAMETER, <<"subject">>).

%% The request with its id in the path.
-spec of_request(halley_api:request(), [halley_api:route()]) ->
    {ok, halley_api:request()} | {error, halley_api_error:error()}.
of_request(#{query := []} = Request, _) ->
    {ok, Request};
of_request(#{listener := public, path := [<<"v1">>, <<"me">> | _] = Path, query := Query} = Request,
           Routes) ->
    case [Id || {?PARAMETER, Id} <- Query] of
        [] -> {ok, Request};
        [Id] -> placed(Id, Path, Request, [Pattern || {public, Pattern, _, _, _, _} <- Routes]);
        _ -> {error, {400, <<"duplicate_parameter">>, "subject is in the query more than once"}}
    end;
of_request(Request, _) ->
    {ok, Request}.

placed(Id, Path, #{query := Query} = Request, Patterns) ->
    case [Pattern || Pattern <- Patterns, lacks_id(Pattern, Path)] of
        [Pattern | _] ->
            Whole = [case Part of '_' -> Id; _ -> Part end || Part <- Pattern],
            {ok, Request#{path := Whole, query := lists:keydelete(?PARAMETER, 1, Query)}};
        [] ->
            case lists:any(fun(Pattern) -> has_id(Pattern, Path) end, Patterns) of
                true -> {error, {400, <<"duplicate_parameter">>,
                                 "the id is in the path and in the query: say it in one of them"}};
                false -> {ok, Request}
            end
    end.

%% Whether a path is that of a resource but for its id.
-spec lacks_id(list(), [binary()]) -> boolean().
lacks_id([<<"v1">>, <<"me">> | Pattern], [<<"v1">>, <<"me">> | Path]) ->
    lists:member('_', Pattern) andalso lists:delete('_', Pattern) =:= Path;
lacks_id(_, _) ->
    false.

%% Whether it is that of a resource with its id.
has_id([<<"v1">>, <<"me">> | Pattern], [<<"v1">>, <<"me">> | Path])
        when length(Pattern) =:= length(Path) ->
    lists:member('_', Pattern) andalso
        lists:all(fun({Part, Is}) -> Part =:= '_' orelse Part =:= Is end, lists:zip(Pattern, Path));
has_id(_, _) ->
    false.
