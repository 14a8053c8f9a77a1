%% A record that `halley_history_log' hands to `halley_history_disk': packed, with the fields for
%% the index. A tuple, because every event is sent to the log as one. The subject of a private event
%% is the list of its users, that of a joint one the list of its subjects: `seq' is the last one's.
-record(packed, {kind = event :: event | private | joint | follow | unfollow | kept,
                 shard :: halley_shards:index(), seq :: pos_integer(), at :: integer(),
                 id :: binary(), subject :: binary() | [binary(), ...],
                 chosen = false :: boolean(), sessions = 0 :: non_neg_integer(),
                 %% Whether it is the subject's kept value, or ends that.
                 keep = none :: none | keep | clear,
                 %% Nobody waits for it: its publisher has its answer.
                 is_silent = false :: boolean(),
                 bytes :: pos_integer(), record :: iodata()}).
