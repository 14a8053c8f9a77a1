%% The HTTP API: from a request that the edge handed over to the answer it writes.
%%
%% The link calls `handle/1' in a process of its own for each request: a handler may wait, and if it
%% dies it dies alone; the link answers for it with 500. For a small request that is whole the link
%% first calls `prepare/1', in its own process, which serves its other requests, too. So `prepare/1'
%% waits for nothing: it gives back what is to be published, and how to make the answer.
%%
%% Both find the resource in the routes, let `halley_api_access' check the rights, then check the
%% method, and call the resource's module, `halley_api_<resource>_h', which implements `handle/3'.
%% HEAD is answered as GET, the edge drops the body (link.md 8.4); CORS preflights stay at the edge.
%%
%% The operations of WebSockets come as terms, to `operate/1' and `operate_apart/1', and have the
%% same resources (`halley_api_operations').
%%
%% Rights that end while a body is still coming end the request: `halley_api_access' checks again as
%% the body is read.
%%
%% A request without the right learns nothing else: not even whether there is something at the path.
%%
%% No sockets here and no HTTP syntax: both are the edge's.
-module(halley_api).
-behaviour(halley_requests).

-export([handle/1, prepare/1, operate/1, operate_apart/1, subscribable/2, lost/3, view/1]).
-export([routes/0, headers/1, allow/1]).
-export_type([request/0, response/0, prepared/0, method/0, body/0, listener/0, route/0]).

-type listener() :: halley_requests:listener().
-type body() :: halley_requests:body().
-type request() :: halley_requests:request().
-type response() :: halley_requests:response().
-type prepared() :: {answer, response()} | halley_requests:wish().
-type method() :: get | post | put | delete.
%% `'_'' is any part of the path and becomes an argument; `'...'' is all that follows. Behind the
%% module: more arguments, and for each method what it needs; then the methods of which `prepare/3'
%% of the module may answer small requests at once.
-type route() :: {listener(), [binary() | '_'] | nonempty_improper_list(binary(), '...'), module(),
                  Fixed :: [binary()], [{method(), halley_api_access:need()}],
                  AtOnce :: [method()]}.

%% `Args' are the parts of the path that the route leaves open.
-callback handle(method(), Args :: [binary()], request()) -> response().

%% The same in the link's process: it waits for nothing. `later': it is for `handle/3'.
-callback prepare(method(), Args :: [binary()], request()) -> later | prepared().

%% Operations of WebSockets that the resource does, likewise: at once, where the route allows that,
%% and in a process of the operation's own.
-callback operate(halley_requests:what(), halley_requests:operation()) ->
    later | halley_api_outcome:prepared().
-callback operate_apart(halley_requests:what(), halley_requests:operation()) ->
    halley_api_outcome:outcome().
-optional_callbacks([prepare/3, operate/2, operate_apart/2]).

%% Every resource, the busiest first. The edge's part of it, its methods and where users' own paths
%% begin, is generated: `edge/halley-edge/src/http/routes.rs', by `make docs'.
-spec routes() -> [route()].
routes() ->
    [{api, [<<"v1">>, <<"events">>], halley_api_events_h, [], [{post, publish}], [post]},
     {public, [<<"v1">>, <<"me">>, <<"events">>], halley_api_me_h, [<<"events">>], [{post, user}],
      [post]},
     {public, [<<"v1">>, <<"me">>, <<"follows">>], halley_api_me_h, [<<"follows">>],
      [{get, user}, {post, user}, {delete, user}], []},
     {public, [<<"v1">>, <<"me">>, <<"follows">>, '_'], halley_api_me_h, [<<"follow">>],
      [{put, user}, {delete, user}], []},
     {public, [<<"v1">>, <<"me">>, <<"subscriptions">>, '_'], halley_api_subscriptions_h, [],
      [{put, session}, {delete, session}], [put, delete]},
     {public, [<<"v1">>, <<"me">>, <<"state">>], halley_api_state_h, [], [{put, user}],
      [put]},
     {public, [<<"v1">>, <<"me">>, <<"presence">>, '_'], halley_api_me_h, [<<"presence">>],
      [{get, user}], []},
     {public, [<<"v1">>, <<"me">>, <<"subjects">>, '_', <<"events">>], halley_api_me_h,
      [<<"past">>], [{get, user}], []},
     {public, [<<"v1">>, <<"me">>, <<"subjects">>, '_', <<"presence">>], halley_api_presence_h,
      [<<"me">>], [{get, user}], []},
     {public, [<<"v1">>, <<"me">>, <<"following">>, <<"online">>], halley_api_presence_h,
      [<<"following">>], [{get, user}], []},
     {api, [<<"v1">>, <<"events">>, '_', <<"trace">>], halley_api_trace_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"history">>], halley_api_history_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"follows">>], halley_api_follows_h, [],
      [{post, follow}, {delete, follow}], []},
     {api, [<<"v1">>, <<"subjects">>, '_', <<"followers">>], halley_api_subjects_h, [],
      [{get, read}], []},
     {api, [<<"v1">>, <<"subjects">>, '_', <<"events">>], halley_api_past_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"subjects">>, '_', <<"presence">>], halley_api_presence_h, [<<"room">>],
      [{get, read}], []},
     {api, [<<"v1">>, <<"users">>], halley_api_user_list_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"users">>, '_'], halley_api_users_h, [],
      [{get, read}, {delete, admin}], []},
     {api, [<<"v1">>, <<"users">>, '_', <<"following">>], halley_api_users_h, [<<"following">>],
      [{get, read}], []},
     {api, [<<"v1">>, <<"users">>, '_', <<"following">>, <<"online">>], halley_api_presence_h,
      [<<"following_of">>], [{get, read}], []},
     {api, [<<"v1">>, <<"users">>, '_', <<"sessions">>], halley_api_users_h, [<<"sessions">>],
      [{get, read}, {delete, admin}], []},
     {api, [<<"v1">>, <<"users">>, '_', <<"subscriptions">>, '_'], halley_api_users_h,
      [<<"subscriptions">>], [{delete, admin}], []},
     {api, [<<"v1">>, <<"users">>, '_', <<"revocation">>], halley_api_revocations_h, [],
      [{get, read}, {put, admin}, {delete, admin}], []},
     {api, [<<"v1">>, <<"revocations">>], halley_api_revocations_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"status">>], halley_api_status_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"status">>, <<"stream">>], halley_api_status_h, [<<"stream">>],
      [{get, read}], []},
     {api, [<<"v1">>, <<"top">>], halley_api_top_h, [<<"top">>], [{get, read}], []},
     {api, [<<"v1">>, <<"behind">>], halley_api_behind_h, [], [{get, read}], []},
     {api, [<<"v1">>, <<"ended">>], halley_api_top_h, [<<"ended">>], [{get, read}], []},
     {api, [<<"v1">>, <<"key">>], halley_api_key_h, [], [{get, known}], []},
     {api, [<<"v1">>, <<"drain">>], halley_api_drain_h, [], [{post, admin}], []},
     {api, [<<"metrics">>], halley_api_metrics_h, [], [{get, read}], []},
     {api, [<<"healthz">>], halley_api_health_h, [<<"healthz">>], [{get, nothing}], []},
     {api, [<<"readyz">>], halley_api_health_h, [<<"readyz">>], [{get, nothing}], []},
     {api, [], halley_api_console_h, [], [{get, known}], []},
     {api, [<<"console">> | '...'], halley_api_console_h, [<<"console">>], [{get, nothing}], []},
     {public, [], halley_api_demo_h, [], [{get, nothing}], []},
     {public, [<<"demo">>, <<"acts">>, '_'], halley_api_demo_act_h, [], [{post, nothing}], []},
     {public, [<<"demo">> | '...'], halley_api_demo_h, [<<"demo">>], [{get, nothing}], []}].

%% The headers of a client that handlers read. The edge sends no others (link.md 8.2); its list is
%% generated of this one. On the public listener `Authorization' has a user's token, which the edge
%% judges. `Host' is sent by both, as the cases of `protocol/http-requests.json' look for it.
-spec headers(listener()) -> [binary(), ...].
headers(public) ->
    [<<"content-type">>, <<"host">>, <<"origin">>, <<"x-halley-demo">>];
headers(api) ->
    [<<"content-type">>, <<"host">>, <<"authorization">>, <<"if-none-match">>,
     <<"accept-encoding">>].

-spec handle(request()) -> response().
handle(Request) ->
    case halley_api_place:of_request(Request, routes()) of
        {ok, Placed} -> placed(Placed);
        {error, Error} -> halley_api_error:response(Error)
    end.

placed(#{listener := Listener, path := Path, method := Name} = Request) ->
    Method = method(Name),
    Found = route(Listener, Path, routes()),
    Need = need(Method, Found),
    case halley_api_access:judge(Need, Request) of
        ok ->
            case check_parameters(Found, Request) of
                ok ->
                    try
                        call(Found, Method, halley_api_access:watched(Need, Request))
                    catch
                        throw:{refused, Answer} -> Answer
                    end;
                {error, Error} ->
                    halley_api_error:response(Error)
            end;
        {refused, Answer} ->
            Answer
    end.

-spec operate(halley_requests:operation()) ->
    later | halley_api_outcome:prepared(halley_requests:outcome()).
operate(Operation) ->
    halley_api_operations:operate(Operation, routes()).

-spec operate_apart(halley_requests:operation()) -> halley_requests:outcome().
operate_apart(Operation) ->
    halley_api_operations:operate_apart(Operation, routes()).

%% Whether these rights allow a session to be subscribed to these subjects when it opens.
-spec subscribable(Rights :: binary(), [binary()]) -> ok | {error, halley_api_error:error()}.
subscribable(Rights, Subjects) ->
    halley_api_subscriptions_h:subscribable(Rights, Subjects).

%% Of what a session of this user has, <<>> for a visitor, what these rights don't allow.
-spec lost(Rights :: binary(), User :: binary(), [binary()]) -> [binary()].
lost(Rights, User, Said) ->
    halley_api_subscriptions_h:lost(Rights, User, Said).

%% Whom these rights let a session see that is told of all whom its user follows.
-spec view(Rights :: binary()) -> halley_presence_views:view().
view(Rights) ->
    halley_api_subscriptions_h:view(Rights).

%% `later': it is for `handle/1', and nothing was done yet.
-spec prepare(request()) -> later | prepared().
prepare(Request) ->
    case halley_api_place:of_request(Request, routes()) of
        {ok, Placed} -> prepare_placed(Placed);
        {error, Error} -> {answer, halley_api_error:response(Error)}
    end.

prepare_placed(#{body := {stream, _}}) ->
    later;
prepare_placed(#{listener := Listener, path := Path, method := Name} = Request) ->
    Method = method(Name),
    Found = route(Listener, Path, routes()),
    case is_at_once(Method, Found) of
        true ->
            case halley_api_access:judge(need(Method, Found), Request) of
                ok -> prepare(Found, Method, Request);
                {refused, Answer} -> {answer, Answer}
            end;
        false ->
            later
    end.

is_at_once(Method, {_, _, AtOnce, _, _}) -> lists:member(Method, AtOnce);
is_at_once(_, not_found) -> false.

check_parameters({Module, _, _, _, Fixed}, #{listener := Listener} = Request) ->
    halley_api_parameters:check(Listener, Module, Fixed, Request);
check_parameters(not_found, _) ->
    ok.

prepare({Module, _, _, Parts, Fixed} = Found, Method, Request) ->
    case check_parameters(Found, Request) of
        ok -> Module:prepare(Method, Fixed ++ Parts, Request);
        {error, Error} -> {answer, halley_api_error:response(Error)}
    end.

route(Listener, Path, [{Listener, Pattern, Module, Fixed, Methods, AtOnce} | Routes]) ->
    case matches(Pattern, Path) of
        no -> route(Listener, Path, Routes);
        Parts -> {Module, Methods, AtOnce, Parts, Fixed}
    end;
route(Listener, Path, [_ | Routes]) -> route(Listener, Path, Routes);
route(_, _, []) -> not_found.

matches([Part | Pattern], [Part | Path]) -> matches(Pattern, Path);
matches(['_' | Pattern], [Part | Path]) ->
    case matches(Pattern, Path) of
        no -> no;
        Parts -> [Part | Parts]
    end;
matches([], []) -> [];
matches('...', Path) -> Path;
matches(_, _) -> no.

%% What has no need of its own, such as a path that isn't there, needs any key.
need(Method, {_, Methods, _, _, _}) -> proplists:get_value(Method, Methods, known);
need(_, not_found) -> known.

call({Module, Methods, _, Parts, Fixed}, Method, Request) ->
    case lists:keymember(Method, 1, Methods) of
        true -> Module:handle(Method, Fixed ++ Parts, Request);
        false when Method =:= options -> {204, [{<<"allow">>, allow(Methods)}], []};
        false -> method_not_allowed(Methods, Request)
    end;
call(not_found, _, #{listener := Listener, path := Path}) ->
    not_found(Listener, Path).

method(Name) ->
    case lists:keyfind(Name, 2, methods()) of
        {Method, _} -> Method;
        false -> unknown
    end.

methods() ->
    [{get, <<"GET">>}, {get, <<"HEAD">>}, {post, <<"POST">>}, {put, <<"PUT">>},
     {delete, <<"DELETE">>}, {options, <<"OPTIONS">>}].

method_not_allowed(Methods, #{method := Name}) ->
    Allow = allow(Methods),
    Message = ["there is no ", Name, " here; what there is: ", Allow],
    halley_api_error:response({405, <<"method_not_allowed">>, Message}, [{<<"allow">>, Allow}]).

%% The value of `Allow'.
-spec allow([{method(), halley_api_access:need()}]) -> iodata().
allow(Methods) ->
    lists:join(<<", ">>, [Name || {Method, Name} <- methods(),
                                  Method =:= options orelse lists:keymember(Method, 1, Methods)]).

%% A path that the other listener has is the likeliest mistake, so the answer names that listener,
%% unless its address is to stay unknown.
not_found(Listener, Path) ->
    Patterns = [Pattern || {Its, Pattern, _, _, _, _} <- routes(), Its =:= Listener],
    Message = ["there is nothing at this path", spelling(Path, Patterns),
               hint(Listener, Path, halley_api_config:auth_mode())],
    halley_api_error:response({404, <<"not_found">>, Message}).

%% What may make it another path than the one that was meant.
spelling([_, _ | _] = Path, Patterns) ->
    case lists:any(fun(Pattern) -> halley_api_place:lacks_id(Pattern, Path) end, Patterns) of
        true -> "; the id is missing: say it in the path, or as ?subject=<id>";
        false -> spread(Path, Patterns)
    end;
spelling(_, _) ->
    [].

spread(Path, Patterns) ->
    WithoutEnd = lists:droplast(Path),
    case lists:last(Path) =:= <<>>
             andalso lists:any(fun(Pattern) -> matches(Pattern, WithoutEnd) =/= no end, Patterns) of
        true -> "; leave out the / at its end";
        false ->
            case lists:any(fun(Pattern) -> is_spread(Pattern, Path) end, Patterns) of
                true -> "; if an id in it has a /, write that as %2F";
                false -> []
            end
    end.

%% Whether the path would be of the route, if an id had several segments.
is_spread([Part | Pattern], [Part | Path]) -> is_spread(Pattern, Path);
is_spread(['_' | Pattern], [_ | Path]) ->
    is_spread(Pattern, Path) orelse is_spread(['_' | Pattern], Path);
is_spread(Pattern, Path) -> Pattern =:= [] andalso Path =:= [].

hint(public, _, jwt) -> "; streams are at /v1/stream, /v1/ws and /v1/poll";
hint(public, [<<"v1">> | _], none) -> on("the API is", api);
hint(public, [Path], none)
        when Path =:= <<"metrics">>; Path =:= <<"healthz">>; Path =:= <<"readyz">> ->
    on([Path, " is"], api);
hint(public, _, none) -> "; streams are at /v1/stream, /v1/ws and /v1/poll";
hint(public, [<<"console">> | _], none) -> on("the console is", api);
hint(api, [<<"demo">> | _], _) -> on("the demo is", public);
hint(api, [<<"v1">>, <<"me">> | _], _) -> on("what is about oneself is", public);
hint(api, [<<"v1">>, Stream], _)
        when Stream =:= <<"stream">>; Stream =:= <<"ws">>; Stream =:= <<"poll">> ->
    on("streams are", public);
hint(api, _, _) -> "; docs/reference/http-api.md lists what the API has".

on(What, Listener) ->
    {Key, Address} = halley_api_config:listen(Listener),
    ["; ", What, " on the other listener, ", Key, " = ", Address].
