%% A connection's state: `epgsql_session' says what it is.

-record(command, {module :: epgsql_command:command(),
                  state :: any(),
                  reply_to :: epgsql_session:reply_to(),
                  syncs = 0 :: non_neg_integer(),    %% ReadyForQuery that it will be answered with
                  id :: reference() | undefined,
                  timer :: reference() | undefined}).

-record(session, {transport :: epgsql_transport:transport() | undefined,
                  buffer = <<>> :: binary(),
                  backend :: {Pid :: integer(), Key :: integer()} | undefined,
                  handler = on_message :: epgsql_session:handler(),
                  codec :: epgsql_binary:codec() | undefined,
                  current :: #command{} | undefined,
                  queue = queue:new() :: queue:queue(#command{}),
                  sync_required = false :: boolean(),
                  swallow = 0 :: non_neg_integer(),  %% ReadyForQuery that nobody waits for
                  rows = [] :: [tuple()] | information_redacted,
                  results = [] :: [any()],
                  reply = none :: none | {reply, any()},
                  async :: pid() | atom(),
                  parameters = #{} :: #{binary() => binary()},
                  txstatus :: byte() | undefined,
                  complete_status :: epgsql_backend:complete() | undefined,
                  subproto_state :: any(),
                  statements = none :: any(),
                  connect_opts = #{} :: map()}).
