%% GET /healthz : the brain runs and answers. GET /readyz : it can do its work.
%%
%% Liveness is for a supervisor that restarts what hangs, readiness for a load balancer that sends
%% requests elsewhere meanwhile: no stop was requested, the store is open, the history takes events,
%% and at least one worker is linked. A request that comes through a worker proves a link, except in
%% the moment when it ends.
-module(halley_api_health_h).
-behaviour(halley_api).

-export([handle/3, problem/0]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [<<"healthz">>], _) ->
    halley_api_reply:json({[{<<"status">>, <<"ok">>}]});
handle(get, [<<"readyz">>], _) ->
    case problem() of
        none -> halley_api_reply:json({[{<<"status">>, <<"ready">>}]});
        Reason -> halley_api_error:response({503, <<"not_ready">>, Reason})
    end.

%% Why it is not ready, in words.
-spec problem() -> none | string().
problem() ->
    first_problem([fun drain/0, fun store/0, fun history/0, fun links/0]).

first_problem([Check | Checks]) ->
    case Check() of
        ok -> first_problem(Checks);
        Problem -> Problem
    end;
first_problem([]) ->
    none.

drain() ->
    case halley_drain:is_draining() of
        true -> "the server is draining: it was asked to stop";
        false -> ok
    end.

history() ->
    case halley_history:refusing() of
        false -> ok;
        overloaded -> "the history has more to write than it can";
        disk_full -> "the disk of the history is full";
        data_dir_moved -> "data.dir was moved, removed or replaced; put it back or start again";
        failed -> "the history cannot be written; the server's log says why"
    end.

store() ->
    case whereis(halley_follows_owner) of
        undefined -> "the store is not open";
        _ -> store(halley_store:refusing())
    end.

store(false) -> ok;
store(disk_full) -> "the disk of the store is full; follows can be read, not changed";
store(data_dir_moved) ->
    "data.dir was moved, removed or replaced; put it back or start again";
store(failed) -> "the store cannot be written; the server's log says why".

links() ->
    case halley_links:list() of
        [] -> "no worker of an edge is linked";
        _ -> ok
    end.
