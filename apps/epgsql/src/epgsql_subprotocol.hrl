%% States of the modes in which a connection carries data instead of answers: `epgsql_subprotocol'.

-record(copy, {initiator :: pid(),
               format :: text | binary,
               encoder :: epgsql_wire:copy_row_encoder() | undefined,
               last_error :: epgsql:query_error() | undefined}).

-record(repl, {received = 0 :: integer(),
               flushed = 0 :: integer(),
               applied = 0 :: integer(),
               must_report = false :: boolean(),
               receiver :: pid() | {module(), State :: any()} | undefined,
               align_lsn = false :: boolean()}).
