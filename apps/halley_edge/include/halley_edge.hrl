%% Constants of protocol/link.md that more than one module needs.

-define(LINK_VERSION, 1).
-define(FRAME_BYTES_MAX, 262144).           % 2.1
-define(CONN_LIMIT, (1 bsl 48)).            % 2.4
-define(WINDOW_BYTES_MIN, 524288).          % 4.1
-define(DELIVER_CONNS_MAX, 8192).           % 7.3

%% 2.6
-define(FLAG_END, 1).
-define(FLAG_CLOSE, 2).
-define(FLAG_EXPECT, 4).

%% 2.7
-define(GOODBYE_BAD_FRAME, 1).
-define(GOODBYE_VERSION, 2).
-define(GOODBYE_HANDSHAKE, 3).
-define(GOODBYE_SILENCE, 4).
-define(GOODBYE_FLOW_CONTROL, 5).
-define(GOODBYE_STOPPING, 6).
-define(GOODBYE_REPLACED, 7).
-define(GOODBYE_OVERLOADED, 8).
