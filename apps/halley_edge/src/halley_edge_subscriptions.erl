%% The subscriptions of one link's sessions: judged here, and sent to `halley_subscriptions'.
%%
%% SUBSCRIPTIONS comes before the OPEN of its session (protocol/link.md 14) and waits for it here,
%% ?WAITING_MAX of them at most, of ?WAITING_BYTES_MAX. The handler (`halley_edge', `handler')
%% judges by its optional `subscribable/2' whether the rights allow the subjects. Without rights
%% they were granted to the session before, by a brain that is no more.
%%
%% A session without a user is a visitor's: the brain knows only its subscriptions, and its user
%% number on the link is ?NOBODY, which no id has.
%%
%% Held in the link's state by `halley_edge_sessions'.
-module(halley_edge_subscriptions).

-export([new/0, announced/4, take/2, aside/2, refused/2]).
-export_type([waiting/0, subjects/0, aside/0]).

-include("halley_edge.hrl").

%% OPEN comes by the same round of its worker: more than it can have.
-define(WAITING_MAX, 16384).
-define(WAITING_BYTES_MAX, 16777216).
-define(RETRY_AFTER_S, 5).
-define(SOON_S, 1).

-type subjects() :: #{halley_edge_codec:conn() => [halley_id:id()]}.
-record(waiting, {sessions = #{} :: #{halley_edge_codec:conn() => {Rights :: binary(), [binary()]}},
                  bytes = 0 :: non_neg_integer()}).
-opaque waiting() :: #waiting{}.
-type aside() :: none | {Rights :: binary(), [binary()]}.

-spec new() -> waiting().
new() -> #waiting{}.

%% SUBSCRIPTIONS came.
-spec announced(halley_edge_codec:conn(), Rights :: binary(), [binary()], waiting()) ->
    waiting() | {broken, halley_edge_codec:problem()}.
announced(Conn, Rights, Subjects, #waiting{sessions = Sessions, bytes = Bytes}) ->
    Said = {Rights, Subjects},
    case map_size(Sessions) < ?WAITING_MAX andalso Bytes < ?WAITING_BYTES_MAX
             andalso not is_map_key(Conn, Sessions) of
        true -> #waiting{sessions = Sessions#{Conn => Said}, bytes = Bytes + cost(Said)};
        false -> {broken, {<<"14.1">>, <<"SUBSCRIPTIONS without the OPEN of their sessions">>}}
    end.

cost({Rights, Subjects}) -> iolist_size([Rights | Subjects]).

%% OPEN came: the sessions that may open, what they are subscribed to, and REFUSED of the others.
-spec take([halley_edge_codec:session()], waiting()) ->
    {[halley_edge_codec:session()], subjects(), Refused :: [halley_edge_codec:frame()], waiting()}.
take(Opening, #waiting{sessions = Said} = Waiting) when map_size(Said) =:= 0 ->
    {Opening, #{}, [], Waiting};
take(Opening, Waiting) ->
    lists:foldr(fun take_one/2, {[], #{}, [], Waiting}, Opening).

take_one({Conn, _, _, _} = Session, {Sessions, Subjects, Refused, Waiting}) ->
    case maps:take(Conn, Waiting#waiting.sessions) of
        {{Rights, Wanted} = Said, Others} ->
            Left = Waiting#waiting{sessions = Others, bytes = Waiting#waiting.bytes - cost(Said)},
            Distinct = lists:usort(Wanted),
            case judge(Rights, Distinct) of
                ok ->
                    {[Session | Sessions], Subjects#{Conn => Distinct}, Refused, Left};
                {error, {Status, Code, Message}} ->
                    Refusal = {refused, Conn, Status, retry_after_s(Status), Code,
                               iolist_to_binary(Message)},
                    {Sessions, Subjects, [Refusal | Refused], Left}
            end;
        error ->
            {[Session | Sessions], Subjects, Refused, Waiting}
    end.

%% http.md 5.4
retry_after_s(Status) when Status =:= 429; Status =:= 503 -> ?SOON_S;
retry_after_s(_) -> 0.

%% What was said of a session whose OPEN is kept for later, and is to be said again then.
-spec aside(halley_edge_codec:conn(), waiting()) ->
    {aside(), Bytes :: non_neg_integer(), waiting()}.
aside(Conn, #waiting{sessions = Sessions, bytes = Bytes} = Waiting) ->
    case maps:take(Conn, Sessions) of
        {{Rights, Subjects} = Said, Others} ->
            {{binary:copy(Rights), [binary:copy(Subject) || Subject <- Subjects]}, cost(Said),
             Waiting#waiting{sessions = Others, bytes = Bytes - cost(Said)}};
        error ->
            {none, 0, Waiting}
    end.

%% The number is bounded here as well: what a worker says was granted may be a lie. A state was
%% granted before, in pieces that are none of the subjects; and so is whom the session may see.
judge(Rights, All) ->
    {View, Others} = halley_presence_views:split(All),
    case halley_presence_views:read(View) of
        error -> {error, {400, <<"bad_presence">>, "whom the session may see can't be read"}};
        _ -> judge_others(Rights, View, Others)
    end.

judge_others(<<>>, View, All) ->
    {Pieces, Subjects} = halley_session_states:split(All),
    case halley_session_states:check(Pieces) of
        true -> judge_subjects(<<>>, View, Subjects);
        false -> {error, {400, <<"bad_state">>, "the state is no JSON within today's limits"}}
    end;
judge_others(Rights, View, Subjects) ->
    judge_subjects(Rights, View, Subjects).

judge_subjects(Rights, View, Subjects) ->
    Max = halley_limits:get(subscriptions_per_session_max),
    case length(Subjects) =< Max andalso handler() of
        false ->
            ok = halley_metrics:incr(subscriptions_refused),
            {error, {400, <<"too_many_subscriptions">>,
                     ["a session is subscribed to ", integer_to_binary(Max),
                      " subjects at most (limits.subscriptions_per_session_max)"]}};
        _ when Rights =:= <<>> ->
            case [Subject || Subject <- Subjects, not is_one(Subject)] of
                [] -> ok;
                _ -> {error, {400, <<"bad_subject">>, "a subject is no id"}}
            end;
        none ->
            {error, {503, <<"no_handler">>, "the API is not running"}};
        Handler ->
            Handler:subscribable(Rights, View ++ Subjects)
    end.

%% An id, or what stands for the presence of one (15).
is_one(Subject) ->
    case halley_presence_keys:subject(Subject) of
        {presence, Id} -> halley_id:check(Id) =:= ok;
        none -> halley_id:check(Subject) =:= ok
    end.

handler() ->
    case application:get_env(halley_edge, handler) of
        {ok, Handler} ->
            case erlang:function_exported(Handler, subscribable, 2) of
                true -> Handler;
                false -> none
            end;
        undefined ->
            none
    end.

%% For a session that `halley_subscriptions' had no room for.
-spec refused(halley_edge_codec:conn(), [binary()]) -> halley_edge_codec:frame().
refused(Conn, Subjects) ->
    case lists:any(fun halley_own:is_own/1, Subjects) of
        true -> too_many_readers(Conn);
        false -> too_many(Conn)
    end.

too_many_readers(Conn) ->
    {refused, Conn, 503, ?SOON_S, <<"too_many_readers">>,
     <<"as many as may follow the status: ask GET /v1/status, or raise "
       "limits.status_readers_max">>}.

too_many(Conn) ->
    {refused, Conn, 503, ?RETRY_AFTER_S, <<"too_many_subscriptions">>,
     <<"all sessions together have as many subscriptions as they may; raise "
       "limits.subscriptions_max">>}.
