%% Ids in requests: `halley_id' judges them, here its judgement becomes an error with a name.
-module(halley_api_id).

-export([check/2]).

%% `Member' is where the id stands; it is in the error's code, `bad_<member>'.
-spec check(term(), binary()) -> {ok, halley_id:id()} | {error, halley_api_error:error()}.
check(Id, Member) ->
    case halley_id:check(Id) of
        ok -> {ok, Id};
        {error, Reason} -> {error, halley_api_error:bad_id(Member, Reason)}
    end.
