%% A pool, as its callers' processes see it: `epgsql_pool_lease' explains the fields.

%% Where `numbers' has what.
-define(WAITING, 1).        %% callers in the queue, or about to be
-define(SIZE, 2).           %% connections that are open or being opened
-define(OPENING, 3).
-define(TAKEN, 4).
-define(WAITED, 5).
-define(REFUSED, 6).
-define(TIMED_OUT, 7).
-define(OPENED, 8).
-define(CLOSED, 9).
-define(FAILED, 10).
-define(HEAD, 11).          %% of the queue: the last number that was served or skipped
-define(TAIL, 12).          %% the last number that was given to a waiter
-define(LOOKING, 13).        %% 1: the server has been asked to look at those that are idle
-define(NUMBERS, 13).

-record(pool, {name :: atom(),
               server :: pid(),
               slots :: epgsql_pool_slots:slots(),
               sessions :: ets:table(),      %% {Slot, #session{}, epgsql_known:connection()}
               waiters :: ets:table(),       %% {Number, pid(), Word, Alias, epgsql_known:request()}
               numbers :: atomics:atomics_ref(),
               size :: pos_integer(),
               queue_max :: non_neg_integer(),
               wait_ms :: timeout(),
               look_ms :: non_neg_integer(),
               turn_ms :: non_neg_integer()}).
