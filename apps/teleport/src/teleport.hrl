%% What senders, links and their processes share.

%% All that a sender needs, read from ETS. `queue': what waits, small and large messages apart, so
%% that small ones never wait for room that large ones take; `queue_bytes_max' is for each.
-record(route, {
    node :: node(),
    link :: pid(),
    watch :: pid(),
    queue :: atomics:atomics_ref(),
    queue_bytes_max :: pos_integer(),
    message_bytes_max :: pos_integer(),
    large_bytes :: pos_integer(),
    writers :: tuple()                  % of pids
}).

-define(QUEUE_SMALL, 1).
-define(QUEUE_LARGE, 2).
-define(QUEUE_WAITING, 3).              % senders
-define(QUEUE_ENDED, 4).                % 1: a writer is no longer there to tell what is lost
-define(QUEUE, 4).
-define(QUEUE_OF(Way), case Way of small -> ?QUEUE_SMALL; large -> ?QUEUE_LARGE end).

%% Of a node, over all links to it.
-define(SENT, 1).
-define(RECEIVED, 2).
-define(REFUSED, 3).
-define(ROUND_TRIP_US, 4).
-define(CONNECTIONS, 5).
-define(BUSY, 6).
-define(DIALS_REFUSED, 7).
-define(DIALS_FAILED, 8).
-define(STATS, 8).
