%% GET /v1/events/ID/trace?user=U : why a user has an event, or hasn't.
%%
%% It joins the knowledge of history and brain (`halley_trace'), the workers' answers about the
%% user's live connections (`halley_api_sessions'), and one sentence with the conclusion
%% (`halley_api_verdict').
-module(halley_api_trace_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [Event], #{query := Query}) ->
    User = proplists:get_value(<<"user">>, Query, <<>>),
    case {halley_api_id:check(Event, <<"id">>), halley_api_id:check(User, <<"user">>)} of
        {{ok, _}, {ok, _}} -> trace(halley_trace:trace(Event, User), User);
        {{error, Error}, _} -> halley_api_error:response(Error);
        {_, {error, Error}} -> halley_api_error:response(Error)
    end.

trace({error, not_found}, _) ->
    Message = "no event has this id: it was never published, or it is older than the history goes "
              "back (history.retention, history.bytes)",
    halley_api_error:response({404, <<"unknown_event">>, Message});
trace({ok, #{event := Event, sessions := Sessions, ended := Ended} = Trace}, User) ->
    #{followed := Followed, unfollowed_at := UnfollowedAt} = Trace,
    Seen = seen(lists:sublist(Sessions, ?SESSIONS_LISTED_MAX)),
    Found = Trace#{sessions := Seen, private => is_map_key(users, Event)},
    Verdict = halley_api_verdict:sentence(Found),
    halley_api_reply:json({[
        {<<"event">>, {[{Name, map_get(Key, Event)}
                        || {Key, Name} <- [{id, <<"id">>}, {subject, <<"subject">>},
                                           {subjects, <<"subjects">>}, {users, <<"users">>},
                                           {at, <<"at">>}, {sessions, <<"sessions">>}],
                           is_map_key(Key, Event)]}},
        {<<"user">>, User},
        {<<"followed">>, Followed},
        {<<"unfollowed_at">>, case UnfollowedAt of none -> null; _ -> UnfollowedAt end},
        {<<"sessions">>, [halley_api_sessions:json(Session) || Session <- Seen]},
        {<<"ended">>, [{[{<<"at">>, At}, {<<"reason">>, atom_to_binary(Reason)}]}
                       || #{at := At, reason := Reason} <-
                              lists:sublist(Ended, ?SESSIONS_LISTED_MAX)]},
        {<<"answer">>, atom_to_binary(halley_api_verdict:answer(Found))},
        {<<"verdict">>, unicode:characters_to_binary(Verdict)}]}).

seen(Sessions) ->
    Seen = halley_api_sessions:seen([Session || #{session := Session} <- Sessions]),
    lists:zipwith(fun(#{passed := Passed, began := Began}, One) ->
        One#{passed => Passed, began => Began}
    end, Sessions, Seen).
