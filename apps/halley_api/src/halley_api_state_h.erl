%% A session's own state, seen where its user is seen to be present (http.md 23).
%%
%%   PUT /v1/me/state   {"data":…}: the state of the WebSocket that says so; null for none
%%
%% It is what a WebSocket's operation `state' does (http.md 18). A session belongs to its link, so
%% the link's process keeps the state (`operate/2'; `prepare/3' where a worker of an earlier build
%% sends the operation as a request), and a request that belongs to no session is refused.
%% The data is kept as it was written, on one line. It needs the right `state' to the user itself.
-module(halley_api_state_h).
-behaviour(halley_api).

-export([handle/3, prepare/3, operate/2, operate_apart/2]).
-export_type([result/0]).

-type result() :: stated | too_many | no_session.

%% What a WebSocket says isn't too long for the link's process, so this is none. A client that has
%% more to say than fits a message asks by HTTP, and is told that it is too much.
-spec handle(put, [], halley_api:request()) -> halley_api:response().
handle(put, [], Request) ->
    halley_api_outcome:response(no_session(said(Request))).

-spec prepare(put, [], halley_api:request()) -> halley_api:prepared().
prepare(put, [], Request) ->
    halley_api_outcome:map(fun halley_api_outcome:response/1, wish(said(Request))).

-spec operate(state, halley_requests:operation()) -> halley_api_outcome:prepared().
operate(state, Operation) ->
    wish(said_in(Operation)).

%% One that is too long for the link's process, which the worker sends none of.
-spec operate_apart(state, halley_requests:operation()) -> halley_api_outcome:outcome().
operate_apart(state, Operation) ->
    no_session(said_in(Operation)).

wish({ok, User, Text}) -> {subscription, state, User, Text, fun answer/1};
wish({error, _} = Refused) -> {answer, Refused}.

no_session({ok, _, _}) -> answer(no_session);
no_session({error, _} = Refused) -> Refused.

said_in(#{user := User, rights := Text, members := Members}) ->
    said(User, halley_api_rights:parse(Text),
         fun() -> of_object(User, fun halley_api_json:members/3, Members) end).

said(#{body := Body} = Request) ->
    {User, Rights} = halley_api_access:user(Request),
    said(User, Rights, fun() -> of_body(User, Body, Request) end).

said(User, Rights, Read) ->
    case halley_api_rights:judge(state, User, Rights) of
        ok -> Read();
        {error, _} = Error -> Error
    end.

of_body(User, {full, Text}, _) ->
    of_object(User, fun halley_api_json:texts/3, Text);
of_body(User, {stream, _}, Request) ->
    case halley_api_body:read(Request, halley_limits:get(message_bytes_max)) of
        {ok, Text} -> of_body(User, {full, Text}, Request);
        {error, too_large} -> {error, too_large()};
        {error, closed} -> {ok, User, <<>>}
    end.

of_object(User, How, Object) ->
    DepthMax = halley_limits:get(event_data_depth_max),
    case How(Object, <<"data">>, DepthMax) of
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
    {ok, <<"{}">>};
answer(too_many) ->
    {error, {503, <<"too_many_subscriptions">>,
             "states and subscriptions of all sessions together are as many as they may; raise "
             "limits.subscriptions_max"}};
answer(no_session) ->
    {error, {409, <<"no_session">>,
             "a state belongs to a session: say {\"op\":\"state\",\"data\":...} on a WebSocket"}}.
