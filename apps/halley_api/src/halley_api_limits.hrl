%% Every bound of the HTTP API in one place; units last.

%% A single event's body: twice the largest data, for whitespace between its tokens, and a share for
%% subject and id written in escapes.
-define(EVENT_ENVELOPE_BYTES_MAX, 8192).

%% Digits of one number in JSON. jiffy turns a longer one into an Erlang integer in quadratic time.
-define(NUMBER_DIGITS_MAX, 4096).

%% Events of one NDJSON request: their results wait in memory until the last.
-define(BATCH_EVENTS_MAX, 100000).

%% Events that are handed to the core together.
-define(BATCH_GROUP_EVENTS_MAX, 512).

%% A line of a follows body: two ids in JSON, every byte of them an escape.
-define(FOLLOW_LINE_BYTES_MAX, 4096).

%% Lines whose follows are committed together, and batches of one import that commit at a time.
-define(FOLLOW_BATCH_LINES, 65536).
-define(FOLLOW_COMMITS_MAX, 2).

%% How often, and after what pause, a batch is offered again to a store that is overloaded.
-define(FOLLOW_BATCH_TRIES_MAX, 50).
-define(FOLLOW_BATCH_RETRY_MS, 100).

%% Errors that an import lists; the others are counted.
-define(FOLLOW_ERRORS_LISTED_MAX, 100).

%% A page of followers or of whom a user follows.
-define(PAGE_LIMIT_DEFAULT, 100).
-define(PAGE_LIMIT_MAX, 1000).

%% A page of what was published before; `past_events_max' is the most of one.
-define(PAST_LIMIT_DEFAULT, 20).

%% When a client may try again after 503, and when if a disk is the reason.
-define(RETRY_AFTER_S, 1).
-define(RETRY_AFTER_DISK_S, 10).

%% Sessions of one user that are listed, and how long all their workers together may take to say
%% what they know of them.
-define(SESSIONS_LISTED_MAX, 1000).
-define(INSPECT_MS_MAX, 2000).

%% Sessions that are behind.
-define(BEHIND_LISTED_MAX, 20).

%% Damaged ranges of the history that are listed.
-define(DAMAGED_LISTED_MAX, 100).

%% How long a request for the status waits for the next sample, and digits of a time.
-define(STATUS_WAIT_MS, 5000).
-define(TIME_DIGITS_MAX, 15).

%% Two numbers in JSON; and a second that is later than all clocks.
-define(REVOCATION_BODY_BYTES_MAX, 1024).
-define(SECONDS_MAX, 99999999999).

%% A node's name in JSON.
-define(DRAIN_BODY_BYTES_MAX, 1024).
