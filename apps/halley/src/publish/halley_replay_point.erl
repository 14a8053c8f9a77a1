%% Where a user stands by a cursor, and what of the history is the user's no more. Whoever stands
%% above all heads missed nothing, and needs no replay.
-module(halley_replay_point).

-export([stands_at/2, oldest/1, forgotten/1]).

%% The vector of a cursor from which the user can go on without a gap. If the heads are not above
%% it, a replay up to them would give nothing.
-spec stands_at(halley_replay_gather:user(), halley_cursor:token()) ->
    {ok, halley_cursor:vector()} | gap.
stands_at(User, Token) ->
    Store = halley_history:store(),
    case halley_history:cursor(Token) of
        {ok, #{store := Store, vector := Vector}} ->
            case halley_vector:largest(Vector) =< halley_history:drawn()
                     andalso halley_vector:smallest(Vector) >= oldest(User) of
                true -> {ok, Vector};
                false -> gap
            end;
        _ ->
            gap
    end.

%% The seq up to which the user gets nothing: retention took it, or it is from before the user was
%% forgotten.
-spec oldest(halley_replay_gather:user()) -> halley_cursor:seq().
oldest(User) -> max(halley_history:floor(), forgotten(User)).

-spec forgotten(halley_replay_gather:user()) -> halley_cursor:seq().
forgotten(nobody) -> 0;
forgotten(User) -> halley_history:forgotten(User).
