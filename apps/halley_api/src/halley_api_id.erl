%% Ids in request bodies: what `halley_id' allows, or an integer, which stands for its decimal text.
%%
%% `123' in JSON is the user `"123"', as it is in a path.
-module(halley_api_id).

-export([from_json/2, check/2]).

%% An id from a decoded JSON value. `Member' names it in the error, whose code is `bad_<member>'.
-spec from_json(jiffy:json_value(), binary()) ->
    {ok, halley_id:id()} | {error, halley_api_error:error()}.
from_json(Id, Member) when is_integer(Id) -> check(integer_to_binary(Id), Member);
from_json(Id, Member) -> check(Id, Member).

%% An id from elsewhere: a path, an edge list.
-spec check(term(), binary()) -> {ok, halley_id:id()} | {error, halley_api_error:error()}.
check(Id, Member) ->
    case halley_id:check(Id) of
        ok -> {ok, Id};
        {error, Reason} -> {error, halley_api_error:bad_id(Member, Reason)}
    end.
