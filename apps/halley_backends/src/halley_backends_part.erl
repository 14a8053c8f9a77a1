%% The rows of back ends in the brain's tables.
-module(halley_backends_part).
-behaviour(halley_part).

-export([settings/1, files/0, limits/0, counters/0, gauges/0, data/0, backup/1]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_backends_config:settings()} | {error, iodata()}.
settings(Values) -> halley_backends_config:settings(Values).

-spec files() -> [string()].
files() -> ["remote.secret_file"].

-spec limits() -> [halley_limits:row()].
limits() ->
    [{remote_sessions_max, 10000, count, config,
      "sessions of all back ends' processes; beyond it logins are refused"},
     {remote_requests_max, 1000, count, config,
      "requests of all back ends at the same time; beyond it they are refused"},
     {remote_queue_bytes_max, 67108864, bytes, config,
      "bytes that may wait for one back end; beyond it its sessions wait"},
     {remote_message_bytes_max, 16777216, bytes, config,
      "largest request of a back end; beyond it nothing is sent"}].

-spec counters() -> [halley_metrics:counter()].
counters() ->
    [{remote_events, "halley_remote_events_total", counter,
      "Events sent to sessions of back ends"},
     {remote_requests, "halley_remote_requests_total", counter, "Requests of back ends"},
     {remote_requests_refused, "halley_remote_requests_refused_total", counter,
      "Requests of back ends that were too many, or that couldn't be read"},
     {remote_logins_refused, "halley_remote_logins_refused_total", counter,
      "Sessions of back ends that were refused"}].

-spec gauges() -> [halley_metrics:gauge()].
gauges() ->
    [{remote_sessions, "halley_remote_sessions",
      "Sessions of back ends' processes; without remote.listen it isn't shown, nor what follows"},
     {remote_up, "halley_remote_up", "1 while there is a link to this back end"},
     {remote_connections, "halley_remote_connections",
      "Connections of the link to this back end; one while nothing goes by"},
     {remote_queue, "halley_remote_queue_bytes", "Bytes that wait for this back end"},
     {remote_waiting, "halley_remote_senders_waiting",
      "Processes that wait for room to send to this back end"},
     {remote_round_trip, "halley_remote_round_trip_microseconds",
      "Round-trip to this back end, of the last ping"},
     {remote_sent, "halley_remote_messages_sent_total", "Messages sent to this back end"},
     {remote_received, "halley_remote_messages_received_total",
      "Messages received from this back end"},
     {remote_messages_refused, "halley_remote_messages_refused_total",
      "Messages from this back end that weren't taken"},
     {remote_connections_refused, "halley_remote_connections_refused_total",
      "Connections of back ends, or of strangers, that were refused at remote.listen"},
     {remote_busy, "halley_remote_busy_total",
      "Messages to this back end that found too many waiting, and were tried again later"}].

-spec data() -> [].
data() -> [].

-spec backup(file:filename()) -> none.
backup(_) -> none.
