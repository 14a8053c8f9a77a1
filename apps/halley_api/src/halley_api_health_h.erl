%% GET /healthz : the brain runs and answers. GET /readyz : it can do its work.
%%
%% Liveness is for a supervisor that restarts what hangs, readiness for a load balancer that sends
%% requests elsewhere meanwhile: the store is open and at least one worker is linked. A request that
%% comes through a worker proves a link, except in the moment when it ends.
-module(halley_api_health_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [<<"healthz">>], _) ->
    halley_api_reply:json({[{<<"status">>, <<"ok">>}]});
handle(get, [<<"readyz">>], _) ->
    case first_problem([fun store/0, fun links/0]) of
        none -> halley_api_reply:json({[{<<"status">>, <<"ready">>}]});
        Reason -> halley_api_error:response({503, <<"not_ready">>, Reason})
    end.

first_problem([Check | Checks]) ->
    case Check() of
        ok -> first_problem(Checks);
        Problem -> Problem
    end;
first_problem([]) ->
    none.

store() ->
    case whereis(halley_follows_owner) of
        undefined -> "the store is not open";
        _ -> ok
    end.

links() ->
    case halley_links:list() of
        [] -> "no worker of an edge is linked";
        _ -> ok
    end.
