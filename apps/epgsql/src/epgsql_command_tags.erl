%% The first words of CommandComplete, as atoms: those of PostgreSQL 15's commands. Any other word
%% is `other', since bytes from a server never become new atoms.
-module(epgsql_command_tags).

-export([to_name/1]).

-spec to_name(binary()) -> atom().
to_name(<<"SELECT">>) -> select;
to_name(<<"BEGIN">>) -> 'begin';
to_name(<<"COMMIT">>) -> commit;
to_name(<<"ROLLBACK">>) -> rollback;
to_name(<<"SET">>) -> set;
to_name(<<"SHOW">>) -> show;
to_name(<<"RESET">>) -> reset;
to_name(<<"START">>) -> start;
to_name(<<"SAVEPOINT">>) -> savepoint;
to_name(<<"RELEASE">>) -> release;
to_name(<<"PREPARE">>) -> prepare;
to_name(<<"EXECUTE">>) -> execute;
to_name(<<"DEALLOCATE">>) -> deallocate;
to_name(<<"DISCARD">>) -> discard;
to_name(<<"DECLARE">>) -> declare;
to_name(<<"CLOSE">>) -> close;
to_name(<<"LISTEN">>) -> listen;
to_name(<<"UNLISTEN">>) -> unlisten;
to_name(<<"NOTIFY">>) -> notify;
to_name(<<"LOCK">>) -> lock;
to_name(<<"CREATE">>) -> create;
to_name(<<"ALTER">>) -> alter;
to_name(<<"DROP">>) -> drop;
to_name(<<"TRUNCATE">>) -> truncate;
to_name(<<"COMMENT">>) -> comment;
to_name(<<"GRANT">>) -> grant;
to_name(<<"REVOKE">>) -> revoke;
to_name(<<"REASSIGN">>) -> reassign;
to_name(<<"SECURITY">>) -> security;
to_name(<<"IMPORT">>) -> import;
to_name(<<"REFRESH">>) -> refresh;
to_name(<<"ANALYZE">>) -> analyze;
to_name(<<"VACUUM">>) -> vacuum;
to_name(<<"CLUSTER">>) -> cluster;
to_name(<<"REINDEX">>) -> reindex;
to_name(<<"CHECKPOINT">>) -> checkpoint;
to_name(<<"LOAD">>) -> load;
to_name(<<"CALL">>) -> call;
to_name(<<"DO">>) -> do;
to_name(<<"EXPLAIN">>) -> explain;
to_name(<<"COPY">>) -> copy;
to_name(<<"INSERT">>) -> insert;
to_name(<<"UPDATE">>) -> update;
to_name(<<"DELETE">>) -> delete;
to_name(<<"MERGE">>) -> merge;
to_name(<<"MOVE">>) -> move;
to_name(<<"FETCH">>) -> fetch;
to_name(<<"START_REPLICATION">>) -> start_replication;
to_name(<<"CREATE_REPLICATION_SLOT">>) -> create_replication_slot;
to_name(<<"DROP_REPLICATION_SLOT">>) -> drop_replication_slot;
to_name(<<"READ_REPLICATION_SLOT">>) -> read_replication_slot;
to_name(<<"IDENTIFY_SYSTEM">>) -> identify_system;
to_name(<<"TIMELINE_HISTORY">>) -> timeline_history;
to_name(<<"BASE_BACKUP">>) -> base_backup;
to_name(_) -> other.
