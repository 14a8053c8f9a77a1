%% The rows of hooks in the brain's tables.
-module(halley_hooks_part).
-behaviour(halley_part).

-export([settings/1, files/0, counters/0, gauges/0]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_hooks_config:settings()} | {error, iodata()}.
settings(Values) -> halley_hooks_config:settings(Values).

-spec files() -> [string()].
files() -> ["hooks.secret_file", "hooks.tls_ca"].

-spec counters() -> [halley_metrics:counter()].
counters() ->
    [{hooks_sent, "halley_hooks_sent_total", counter, "Hooks that hooks.url has taken"},
     {hooks_requests, "halley_hooks_requests_total", counter, "Requests to hooks.url"},
     {hooks_failures, "halley_hooks_failures_total", counter,
      "Requests to hooks.url that got no answer 2xx, and are sent again"},
     {hooks_gaps, "halley_hooks_gaps_total", counter,
      "Gaps sent to hooks.url: retention or damage took events before their hooks were sent"},
     {hooks_write_errors, "halley_hooks_write_errors_total", counter,
      "Times that the queue of hooks couldn't be written"},
     {connect_asked, "halley_connect_asked_total", counter, "Requests to auth.connect_url"},
     {connect_refused, "halley_connect_refused_total", counter,
      "Answers of auth.connect_url that let a user not in"},
     {connect_failures, "halley_connect_failures_total", counter,
      "Users about whom auth.connect_url gave no judgement, or got no request as too many waited"}].

-spec gauges() -> [halley_metrics:gauge()].
gauges() ->
    [{hooks_waiting, "halley_hooks_waiting_bytes",
      "Bytes of hooks on disk that hooks.url hasn't taken; without hooks.* it isn't shown"},
     {hooks_behind, "halley_hooks_behind_seconds",
      "How long ago hooks.url took everything; 0 while it is up to date"},
     {connect_waiting, "halley_connect_waiting",
      "Users that wait for an answer of auth.connect_url; without it this isn't shown"},
     {hooks_told, "halley_hooks_told",
      "Users with sessions and subjects with subscribers that hooks.url knows of"}].
