%% The operations of WebSockets (`protocol/http.md' 18): each is a method of a resource, which has
%% its right and says whether the link's process may answer it at once.
%%
%% The resource's module does it, by the callbacks `operate/2' and `operate_apart/2' of
%% `halley_api', with the functions by which it answers HTTP. Nothing is parsed here: an operation
%% comes as terms (link.md 20).
-module(halley_api_operations).

-export([operate/2, operate_apart/2]).

%% The module, what the route fixes, and the method.
resource(publish) -> {halley_api_me_h, [<<"events">>], post};
resource(follow) -> {halley_api_me_h, [<<"follow">>], put};
resource(unfollow) -> {halley_api_me_h, [<<"follow">>], delete};
resource(subscribe) -> {halley_api_subscriptions_h, [], put};
resource(unsubscribe) -> {halley_api_subscriptions_h, [], delete};
resource(state) -> {halley_api_state_h, [], put}.

%% In the link's process. `later': it is for `operate_apart/2', and nothing was done yet.
-spec operate(halley_requests:operation(), [halley_api:route()]) ->
    later | halley_api_outcome:prepared(halley_requests:outcome()).
operate(#{what := What} = Operation, Routes) ->
    {Module, Need, IsAtOnce} = found(What, Routes),
    case IsAtOnce andalso judge(Need, Operation) of
        false -> later;
        ok ->
            Prepared = Module:operate(What, Operation),
            halley_api_outcome:map(fun halley_api_outcome:answer/1, Prepared);
        {error, _, _} = Refused -> {answer, halley_api_outcome:answer(Refused)}
    end.

%% In a process of its own.
-spec operate_apart(halley_requests:operation(), [halley_api:route()]) ->
    halley_requests:outcome().
operate_apart(#{what := What} = Operation, Routes) ->
    {Module, Need, _} = found(What, Routes),
    halley_api_outcome:answer(case judge(Need, Operation) of
        ok -> Module:operate_apart(What, Operation);
        {error, _, _} = Refused -> Refused
    end).

judge(Need, #{user := User}) ->
    halley_api_access:judge_user(Need, User).

found(What, Routes) ->
    {Module, Fixed, Method} = resource(What),
    [{Need, IsAtOnce}] = [{Need, lists:member(Method, AtOnce)}
                          || {public, _, M, F, Methods, AtOnce} <- Routes,
                             M =:= Module, F =:= Fixed, {Is, Need} <- Methods, Is =:= Method],
    {Module, Need, IsAtOnce}.
