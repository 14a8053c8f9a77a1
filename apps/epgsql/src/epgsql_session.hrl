%% A connection's state: `epgsql_session' says what it is.

-record(command, {module :: epgsql_command:command(),
                  state :: any(),
                  reply_to :: epgsql_session:reply_to(),
                  syncs = 0 :: non_neg_integer(),    %% ReadyForQuery that it will be answered with
                  size = 0 :: non_neg_integer(),     %% bytes that were sent for it
                  id :: reference() | undefined,
                  timer :: reference() | undefined}).

-record(session, {transport :: epgsql_transport:transport() | undefined,
                  is_held = false :: boolean(),      %% whose holder reads the socket: `epgsql_held'
                  buffer = <<>> :: binary(),
                  buffer_size = 16384 :: pos_integer(),  %% that a holder has given its socket
                  backend :: {Pid :: integer(), Key :: integer()} | undefined,
                  handler = on_message :: epgsql_session:handler(),
                  codec :: epgsql_binary:codec() | undefined,
                  current :: #command{} | undefined,
                  queue = queue:new() :: queue:queue(#command{}),
                  is_held_up = false :: boolean(),   %% new requests wait in `parked'
                  parked = queue:new() :: queue:queue(#command{}),
                  parked_count = 0 :: non_neg_integer(),
                  unanswered = 0 :: non_neg_integer(),  %% bytes of `current' and `queue'
                  sync_required = false :: boolean(),
                  cancelling = [] :: [reference()],  %% monitors of who asks the server to stop
                  is_to_cancel = false :: boolean(), %% by the holder, before it asks for more
                  swallow = 0 :: non_neg_integer(),  %% ReadyForQuery that nobody waits for
                  rows = [] :: [tuple()] | information_redacted,
                  results = [] :: [any()],
                  writing = #{} :: #{reference() => epgsql_copy_in:waiting()},  %% of a COPY
                  replies = [] :: [{reference(), any()}],  %% of `direct' requests
                  async :: pid() | atom(),
                  parameters = #{} :: #{binary() => binary()},
                  txstatus :: byte() | undefined,
                  complete_status :: epgsql_backend:complete() | undefined,
                  subproto_state :: any(),
                  statements = none :: none | epgsql_statements:cache(),
                  connect_opts = #{} :: map()}).
