%% What `halley_history_log' hands to `halley_history_disk': a record that is packed, and what the
%% index needs of it. A tuple, because every event is sent to the log as one. What a private event
%% has for a subject are its users, and a joint one its subjects: `seq' is the last one's.
-record(packed, {kind = event :: event | private | joint | follow | unfollow | kept,
                 shard :: halley_shards:index(), seq :: pos_integer(), at :: integer(),
                 id :: binary(), subject :: binary() | [binary(), ...],
                 chosen = false :: boolean(), sessions = 0 :: non_neg_integer(),
                 %% Whether it is the subject's kept value, or ends that.
                 keep = none :: none | keep | clear,
                 %% Nobody waits for it: its publisher has its answer.
                 is_silent = false :: boolean(),
                 bytes :: pos_integer(), record :: iodata()}).
