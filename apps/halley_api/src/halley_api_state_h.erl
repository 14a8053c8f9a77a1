%% A session's own state, seen where its user is seen to be present (http.md 23).
%%
%%   PUT /v1/me/state   {"data":…}: the state of the WebSocket that says so; null for none
%%
%% The path is that of a WebSocket's operation `state'. A session belongs to its link, so the link's
%% process keeps the state (`prepare/3'), and a request that belongs to no session is refused.
%% The data is kept as it was written, on one line. It needs the right `state' to the user itself.
-module(halley_api_state_h).
-behaviour(halley_api).

-export([handle/3, prepare/3]).
-export_type([result/0]).

-type result() :: stated | too_many | no_session.

%% What a WebSocket says isn't too long for the link's process, so this is none. A client that has
%% more to say than fits a message asks by HTTP, and is told that it is too much.
-spec handle(put, [], halley_api:request()) -> halley_api:response().
handle(put, [], Request) ->
    case said(Request) of
        {ok, _, _} -> answer(no_session);
        {error, Error} -> halley_api_error:response(Error)
    end.

-spec prepare(put, [], halley_api:request()) -> halley_api:prepared().
prepare(put, [], Request) ->
    case said(Request) of
        {ok, User, Text} -> {subscription, state, User, Text, fun answer/1};
        {error, Error} -> {answer, halley_api_error:response(Error)}
    end.

said(#{body := Body} = Request) ->
    {User, Rights} = halley_api_access:user(Request),
    case {halley_api_rights:judge(state, User, Rights), Body} of
        {ok, {full, Text}} -> of_body(User, Text);
        {ok, {stream, _}} ->
            of_stream(User, halley_api_body:read(Request, halley_limits:get(message_bytes_max)));
        {{error, _} = Error, _} -> Error
    end.

of_stream(User, {ok, Text}) -> of_body(User, Text);
of_stream(_, {error, too_large}) -> {error, too_large()};
of_stream(User, {error, closed}) -> {ok, User, <<>>}.

of_body(User, Body) ->
    DepthMax = halley_limits:get(event_data_depth_max),
    case halley_api_json:texts(Body, <<"data">>, DepthMax) of
        {ok, [{<<"data">>, <<"null">>}]} -> {ok, User, <<>>};
        {ok, [{<<"data">>, Data}]} -> of_data(User, halley_api_json:one_line(Data));
        {ok, _} -> {error, halley_api_error:bad_json("a state is {\"data\":...}, nothing else")};
        {error, too_deep} ->
            {error, {400, <<"data_too_deep">>,
                     "the data has arrays and objects too deep in one another"}};
        {error, What} -> {error, halley_api_error:bad_json(What)}
    end.

of_data(User, Text) ->
    case byte_size(Text) =< halley_limits:get(session_state_bytes_max) of
        true -> {ok, User, Text};
        false -> {error, too_large()}
    end.

too_large() ->
    halley_metrics:incr(states_refused),
    {413, <<"state_too_large">>,
     ["a session's state has ", integer_to_list(halley_limits:get(session_state_bytes_max)),
      " bytes at most (limits.session_state_bytes_max); say less, or publish it as an event"]}.

answer(stated) ->
    halley_api_reply:json({[]});
answer(too_many) ->
    halley_api_error:response(
        {503, <<"too_many_subscriptions">>,
         "states and subscriptions of all sessions together are as many as they may; raise "
         "limits.subscriptions_max"});
answer(no_session) ->
    halley_api_error:response(
        {409, <<"no_session">>,
         "a state belongs to a session: say {\"op\":\"state\",\"data\":...} on a WebSocket"}).
