%% The rows of PostgreSQL in the brain's tables.
-module(halley_postgres_part).
-behaviour(halley_part).

-export([settings/1, files/0, limits/0, counters/0, gauges/0, data/0, backup/1]).

-spec settings(#{atom() => term()}) ->
    none | {ok, halley_postgres_config:settings()} | {error, iodata()}.
settings(Values) -> halley_postgres_config:settings(Values).

%% Its files show at once, at the first login.
-spec files() -> [].
files() -> [].

%% The last two with store.backend = postgres.
-spec limits() -> [halley_limits:row()].
limits() ->
    [{postgres_rejected_max, 10000, count, config,
      "rows of halley.rejected; beyond it the oldest are deleted, when a tenth more are there"},
     {postgres_rejected_ms_max, 2592000000, ms, config,
      "age of a row of halley.rejected; older ones are deleted within an hour"},
     {postgres_writes_max, 10000, count, config,
      "changes of follows that wait until PostgreSQL has committed them and they have come back, "
      "of 1,000 pairs each; beyond it 503"},
     {postgres_write_ms_max, 10000, ms, config, "how long one of them may take before 503"}].

-spec counters() -> [halley_metrics:counter()].
counters() ->
    [{postgres_changes, "halley_postgres_changes_total", counter,
      "Follows that changed with rows of PostgreSQL's tables"},
     {postgres_events, "halley_postgres_events_total", counter,
      "Events that were published inside PostgreSQL's transactions"},
     {postgres_rejected, "halley_postgres_rejected_total", counter,
      "Messages and rows of the outbox that are no events"},
     {postgres_rejected_deleted, "halley_postgres_rejected_deleted_total", counter,
      "Rows of halley.rejected that were deleted, being too many or too old"},
     {postgres_follows_refused, "halley_postgres_follows_refused_total", counter,
      "Rows of PostgreSQL's tables that are no follows, or one too many for their user"},
     {postgres_copies, "halley_postgres_copies_total", counter,
      "Tables that were copied as a whole"},
     {postgres_altered, "halley_postgres_tables_altered_total", counter,
      "Tables that were copied anew, as they were altered; the log says how"},
     {postgres_losses, "halley_postgres_losses_total", counter,
      "Times that PostgreSQL's slot had lost changes, and everything was copied anew"},
     {postgres_failures, "halley_postgres_failures_total", counter,
      "Times that the stream from PostgreSQL ended, or couldn't begin"},
     {postgres_writes, "halley_postgres_writes_total", counter,
      "Changes of follows that were requested here, committed by PostgreSQL, and in effect"}]
    ++ [{Name, "halley_postgres_writes_failed_total{reason=\"" ++ Reason ++ "\"}", counter,
         "Changes of follows that were answered with 503, by reason: PostgreSQL is away; whether "
         "it has committed them isn't known; they haven't come back in time"}
        || {Name, Reason} <- [{postgres_writes_away, "away"}, {postgres_writes_unknown, "unknown"},
                              {postgres_writes_late, "late"}]]
    ++ [{postgres_writes_refused, "halley_postgres_writes_refused_total", counter,
         "Follows requested here that the table can't have, or that a rule of it refuses"}].

-spec gauges() -> [halley_metrics:gauge()].
gauges() ->
    [{postgres_streaming, "halley_postgres_streaming",
      "1 while changes come from PostgreSQL; without postgres.* it isn't shown"},
     {postgres_lag, "halley_postgres_lag_bytes",
      "Bytes of WAL that PostgreSQL has announced and Halley hasn't confirmed"},
     {postgres_stopped, "halley_postgres_tables_stopped",
      "Tables of postgres.follows that can't be followed; the log says why"}]
    ++ of_the_pool().

%% With store.backend = postgres.
of_the_pool() ->
    [{postgres_pool_connections, "halley_postgres_pool_connections",
      "Connections to write follows with, by state; without store.backend = postgres it isn't "
      "shown, nor what follows"},
     {postgres_pool_waiting, "halley_postgres_pool_waiting",
      "Changes of follows that wait for one of these connections"},
     {postgres_pool_taken, "halley_postgres_pool_taken_total",
      "Times that a change got one of them"},
     {postgres_pool_waited, "halley_postgres_pool_waited_total",
      "Changes that had to wait for one of them"},
     {postgres_pool_refused, "halley_postgres_pool_refused_total",
      "Changes for which as many waited as may"},
     {postgres_pool_timed_out, "halley_postgres_pool_timed_out_total",
      "Changes that got none of them in time"},
     {postgres_pool_opened, "halley_postgres_pool_opened_total", "Such connections opened"},
     {postgres_pool_closed, "halley_postgres_pool_closed_total",
      "Such connections closed, those that were lost among them"},
     {postgres_pool_failed, "halley_postgres_pool_failed_total",
      "Such connections that couldn't be opened"}].

-spec data() -> [file:filename()].
data() -> ["postgres"].

-spec backup(file:filename()) -> none | halley_part:copy().
backup(DataDir) -> halley_postgres_backup:open(DataDir).
