%% The rows of hooks in the brain's tables.
-module(halley_hooks_part).
-behaviour(halley_part).

-export([settings/1, files/0, limits/0, counters/0, gauges/0, data/0, backup/1]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_hooks_config:settings()} | {error, iodata()}.
settings(Values) -> halley_hooks_config:settings(Values).

-spec files() -> [string()].
files() -> ["hooks.secret_file", "hooks.tls_ca"].

-spec limits() -> [halley_limits:row()].
limits() ->
    [{hooks_queue_bytes_max, 1073741824, bytes, config,
      "hooks that wait on disk for hooks.url; beyond it events wait in the history, and of users "
      "and subjects only the last state is sent"},
     {hooks_batch_max, 500, count, config, "hooks in one request"},
     {hooks_batch_bytes_max, 1048576, bytes, config, "bytes of hooks in one request; one at least"},
     {hooks_request_ms_max, 10000, ms, config, "time for a request to hooks.url, with its answer"},
     {hooks_answer_bytes_max, 65536, bytes, config,
      "largest answer to a hook; beyond it the connection is closed"},
     {hooks_retry_ms_max, 30000, ms, config,
      "longest pause before hooks that weren't taken are sent again"},
     {connect_in_flight_max, 16, count, config, "requests to auth.connect_url at the same time"},
     {connect_waiting_max, 4096, count, config,
      "users that wait for a request to auth.connect_url; beyond it auth.connect_down decides"},
     {connect_cache_max, 100000, count, config,
      "users of whom the answer of auth.connect_url is remembered"},
     {hooks_moves_max, 4000000, count, config,
      "times at which users came and went, kept until the events of that time are judged; beyond "
      "it hooks.url gets a gap"},
     {hooks_followers_max, 1000, count, config,
      "with more followers than this, a hook about an event that wasn't delivered names none"}].

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

-spec data() -> [file:filename()].
data() -> ["hooks", "hooks.made"].

%% Hooks that wait aren't copied.
-spec backup(file:filename()) -> none.
backup(_) -> none.
