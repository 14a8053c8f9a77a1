%% Constants of protocol/link.md that more than one module needs.

-define(LINK_VERSION, 6).                   % 3.2: the highest that this brain speaks,
-define(LINK_VERSION_MIN, 6).               % and the lowest: earlier ones have no trunk
-define(FRAME_BYTES_MAX, 262144).           % 2.1
-define(CONN_LIMIT, (1 bsl 48)).            % 2.4
-define(METRICS_MAX, 256).                  % 3.4
-define(BEHIND_MAX, 20).                    % 10.8
-define(WINDOW_BYTES_MIN, 524288).          % 4.1
-define(CURSOR_BYTES_MAX, 255).             % 7.2
-define(DELIVER_CONNS_MAX, 8192).           % 7.3
-define(KEYS_BYTES_MAX, 229376).            % 12.2
-define(TRUNK_WORKER, 65535).               % 13.2: what HELLO_EDGE of a trunk has as `worker'
-define(TO_SLOT_BYTES, 3).                  % 13.3: what a frame has more in TO_SLOT or FROM_WORKER

%% 2.6
-define(FLAG_END, 1).
-define(FLAG_CLOSE, 2).
-define(FLAG_EXPECT, 4).
-define(FLAG_LAST, 8).
-define(FLAG_ERROR, 16).
-define(SHARDS_MAX, 64).
-define(TRANSPORT_POLL, 5).

%% 2.7
-define(GOODBYE_BAD_FRAME, 1).
-define(GOODBYE_VERSION, 2).
-define(GOODBYE_HANDSHAKE, 3).
-define(GOODBYE_SILENCE, 4).
-define(GOODBYE_FLOW_CONTROL, 5).
-define(GOODBYE_STOPPING, 6).
-define(GOODBYE_REPLACED, 7).
-define(GOODBYE_OVERLOADED, 8).

%% 14.2: the user number of a session without a user.
-define(NOBODY, 16#FFFFFFFF).

%% What a small message costs in the writer's mailbox, besides its bytes: a worker may send as many
%% PING and CREDIT as it likes, and need not read.
-define(MESSAGE_BYTES, 64).
