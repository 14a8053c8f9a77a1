%% GET /metrics : every counter and gauge of brain and edge, in Prometheus' text format 0.0.4.
-module(halley_api_metrics_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [], halley_api:request()) -> halley_api:response().
handle(get, [], _) ->
    Type = <<"text/plain; version=0.0.4; charset=utf-8">>,
    {200, [{<<"content-type">>, Type}], halley_metrics:render()}.
