%% GET /v1/top   the busiest subjects, by events and by sessions that these were sent to
%% GET /v1/ended?reason=slow_consumer   whose sessions ended for a reason, the latest first
%%
%% Two answers to "who is it?", where metrics say only how many.
-module(halley_api_top_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [<<"top">>], _) ->
    #{over_ms := OverMs, missed := Missed, by_events := ByEvents, by_sessions := BySessions} =
        halley_top:read(),
    halley_api_reply:json({[{<<"over_ms">>, OverMs}, {<<"missed">>, Missed},
                            {<<"by_events">>, [subject(One) || One <- ByEvents]},
                            {<<"by_sessions">>, [subject(One) || One <- BySessions]}]});
handle(get, [<<"ended">>], #{query := Query}) ->
    Limit = halley_api_reply:limit(Query, ?PAGE_LIMIT_DEFAULT, ?PAGE_LIMIT_MAX),
    case {reason(proplists:get_value(<<"reason">>, Query, <<>>)), Limit} of
        {{ok, Reason}, {ok, Max}} -> ended(halley_closings:latest(Reason, Max));
        {{error, Error}, _} -> halley_api_error:response(Error);
        {_, {error, Error}} -> halley_api_error:response(Error)
    end.

subject(#{subject := Subject, events := Events, sessions := Sessions}) ->
    {[{<<"subject">>, Subject}, {<<"events">>, Events}, {<<"sessions">>, Sessions}]}.

ended(Closings) ->
    halley_api_reply:json({[{<<"ended">>,
        [{[{<<"user">>, halley_ids:name(User)}, {<<"at">>, At},
           {<<"reason">>, atom_to_binary(Reason)},
           {<<"worker">>, case Worker of none -> null; _ -> Worker end}]}
         || {User, #{at := At, reason := Reason, worker := Worker}} <- Closings]}]}).

reason(Text) ->
    Reasons = halley_closings:reasons(),
    case [Reason || Reason <- Reasons, atom_to_binary(Reason) =:= Text] of
        [Reason] -> {ok, Reason};
        [] ->
            Names = lists:join(", ", [atom_to_list(Reason) || Reason <- Reasons]),
            {error, {400, <<"bad_reason">>, ["reason is one of ", Names]}}
    end.
