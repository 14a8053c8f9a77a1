%% The HTTP API: from a request that the edge handed over to the answer it writes.
%%
%% `handle/1' is the handler that the link calls, in a process of its own for each request: a
%% handler may wait and may die, alone; the link answers for it with 500. It finds the resource in
%% the routes, judges the method, and calls the resource's module, `halley_api_<resource>_h', which
%% implements `handle/3'. HEAD is answered as GET, the edge drops the body (link.md 8.4); CORS
%% preflights stay at the edge.
%%
%% No sockets here and no HTTP syntax: both are the edge's.
-module(halley_api).

-export([handle/1]).
-export_type([request/0, response/0, method/0, body/0, listener/0]).

-type listener() :: public | api.
-type body() :: {full, binary()} | {stream, fun(() -> {ok, binary()} | done | {error, closed})}.
-type request() :: #{method := binary(), path := [binary()], query := [{binary(), binary()}],
                     headers := #{binary() => binary()}, listener := listener(), body := body(),
                     _ => _}.
-type response() :: {Status :: 100..599, Headers :: [{binary(), iodata()}], Body :: iodata()}.
-type method() :: get | post | delete.

%% `Args' are the parts of the path that the route leaves open.
-callback handle(method(), Args :: [binary()], request()) -> response().

%% The routes: listener and path to a resource's module, the methods it has, and its arguments.
-spec route(listener(), [binary()]) -> {module(), [method()], [binary()]} | not_found.
route(api, [<<"v1">>, <<"events">>]) -> {halley_api_events_h, [post], []};
route(api, [<<"v1">>, <<"events">>, Id, <<"trace">>]) -> {halley_api_trace_h, [get], [Id]};
route(api, [<<"v1">>, <<"history">>]) -> {halley_api_history_h, [get], []};
route(api, [<<"v1">>, <<"follows">>]) -> {halley_api_follows_h, [post, delete], []};
route(api, [<<"v1">>, <<"subjects">>, S, <<"followers">>]) -> {halley_api_subjects_h, [get], [S]};
route(api, [<<"v1">>, <<"users">>, U]) -> {halley_api_users_h, [get], [U]};
route(api, [<<"v1">>, <<"users">>, U, <<"following">>]) ->
    {halley_api_users_h, [get], [U, <<"following">>]};
route(api, [<<"v1">>, <<"users">>, U, <<"sessions">>]) ->
    {halley_api_users_h, [get, delete], [U, <<"sessions">>]};
route(api, [<<"metrics">>]) -> {halley_api_metrics_h, [get], []};
route(api, [<<"healthz">> = Probe]) -> {halley_api_health_h, [get], [Probe]};
route(api, [<<"readyz">> = Probe]) -> {halley_api_health_h, [get], [Probe]};
route(public, []) -> {halley_api_demo_h, [get], []};
route(public, [<<"demo">> | Asset]) -> {halley_api_demo_h, [get], [<<"demo">> | Asset]};
route(_, _) -> not_found.

-spec handle(request()) -> response().
handle(#{listener := Listener, path := Path, method := Name} = Request) ->
    case route(Listener, Path) of
        {Module, Methods, Args} -> call(Module, Methods, method(Name), Args, Request);
        not_found -> not_found(Listener, Path)
    end.

call(Module, Methods, Method, Args, Request) ->
    case lists:member(Method, Methods) of
        true -> Module:handle(Method, Args, Request);
        false when Method =:= options -> {204, [{<<"allow">>, allow(Methods)}], []};
        false -> method_not_allowed(Methods, Request)
    end.

method(<<"GET">>) -> get;
method(<<"HEAD">>) -> get;
method(<<"POST">>) -> post;
method(<<"DELETE">>) -> delete;
method(<<"OPTIONS">>) -> options;
method(_) -> unknown.

method_not_allowed(Methods, #{method := Name}) ->
    Allow = allow(Methods),
    Message = ["there is no ", Name, " here; what there is: ", Allow],
    halley_api_error:response({405, <<"method_not_allowed">>, Message}, [{<<"allow">>, Allow}]).

allow(Methods) ->
    lists:join(<<", ">>, lists:flatmap(fun names/1, Methods) ++ [<<"OPTIONS">>]).

names(get) -> [<<"GET">>, <<"HEAD">>];
names(post) -> [<<"POST">>];
names(delete) -> [<<"DELETE">>].

%% A path that the other listener has is the likeliest mistake, so the answer names that listener.
not_found(Listener, Path) ->
    Message = ["there is nothing at this path", hint(Listener, Path)],
    halley_api_error:response({404, <<"not_found">>, Message}).

hint(public, [<<"v1">> | _]) -> on("the API is", api);
hint(public, [Path]) when Path =:= <<"metrics">>; Path =:= <<"healthz">>; Path =:= <<"readyz">> ->
    on([Path, " is"], api);
hint(public, _) -> "; streams are at /v1/stream, /v1/ws and /v1/poll";
hint(api, [<<"demo">> | _]) -> on("the demo is", public);
hint(api, [<<"v1">>, Stream])
        when Stream =:= <<"stream">>; Stream =:= <<"ws">>; Stream =:= <<"poll">> ->
    on("streams are", public);
hint(api, _) -> "; docs/reference/http-api.md lists what the API has".

on(What, Listener) ->
    {Key, Address} = halley_api_config:listen(Listener),
    ["; ", What, " on the other listener, ", Key, " = ", Address].
