%% The frontend/backend protocol's numbers: for codecs and commands, those of applications too.
%% PostgreSQL's documentation, "Message Formats".

-define(int16, 16/big-signed-integer).
-define(int32, 32/big-signed-integer).
-define(int64, 64/big-signed-integer).

%% From the client.
-define(BIND, $B).
-define(CLOSE, $C).
-define(DESCRIBE, $D).
-define(EXECUTE, $E).
-define(FLUSH, $H).
-define(PARSE, $P).
-define(PASSWORD, $p).
-define(SASL_ANY_RESPONSE, $p).
-define(SIMPLEQUERY, $Q).
-define(SYNC, $S).
-define(TERMINATE, $X).

%% What Describe and Close name.
-define(PREPARED_STATEMENT, $S).
-define(PORTAL, $P).

%% From the server.
-define(AUTHENTICATION_REQUEST, $R).
-define(BIND_COMPLETE, $2).
-define(CANCELLATION_KEY, $K).
-define(CLOSE_COMPLETE, $3).
-define(COMMAND_COMPLETE, $C).
-define(DATA_ROW, $D).
-define(EMPTY_QUERY, $I).
-define(ERROR, $E).
-define(NEGOTIATE_PROTOCOL_VERSION, $v).
-define(NOTICE, $N).
-define(NOTIFICATION, $A).
-define(NO_DATA, $n).
-define(PARAMETER_DESCRIPTION, $t).
-define(PARAMETER_STATUS, $S).
-define(PARSE_COMPLETE, $1).
-define(PORTAL_SUSPENDED, $s).
-define(READY_FOR_QUERY, $Z).
-define(ROW_DESCRIPTION, $T).

%% COPY, from both.
-define(COPY_BOTH_RESPONSE, $W).
-define(COPY_DATA, $d).
-define(COPY_DONE, $c).
-define(COPY_FAIL, $f).
-define(COPY_IN_RESPONSE, $G).
-define(COPY_OUT_RESPONSE, $H).

%% Streaming replication, inside of CopyData.
-define(PRIMARY_KEEPALIVE_MESSAGE, $k).
-define(STANDBY_STATUS_UPDATE, $r).
-define(X_LOG_DATA, $w).
