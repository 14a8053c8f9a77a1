%% States of the modes in which a connection carries data instead of answers: `epgsql_subprotocol'.

-record(copy, {initiator :: pid(),
               format :: text | binary,
               encoder :: epgsql_wire:copy_row_encoder() | undefined,
               last_error :: epgsql:query_error() | undefined}).

-record(copy_out, {%% `direct': who holds the session; `none': rows are thrown away.
                   receiver :: pid() | direct | none,
                   ref :: reference(),
                   monitor :: [reference()],
                   batch = [] :: [binary()],         %% of this read, last first
                   waiting = 0 :: non_neg_integer(), %% batches that the receiver hasn't taken
                   is_paused = false :: boolean()}). %% the socket isn't read

-record(repl, {received = 0 :: integer(),
               flushed = 0 :: integer(),
               applied = 0 :: integer(),
               must_report = false :: boolean(),
               receiver :: pid() | {module(), State :: any()} | undefined,
               align_lsn = false :: boolean(),
               keepalives = false :: boolean()}).    %% the receiver gets them, too
