%% What `halley_history_log' hands to `halley_history_disk': a record that is packed, and what the
%% index needs of it. A tuple, because every event is sent to the log as one. What a private event
%% has for a subject are its users: `seq' is the last one's.
-record(packed, {kind = event :: event | private | follow | unfollow,
                 shard :: halley_shards:index(), seq :: pos_integer(), at :: integer(),
                 id :: binary(), subject :: binary() | [binary(), ...],
                 chosen = false :: boolean(), sessions = 0 :: non_neg_integer(),
                 bytes :: pos_integer(), record :: iodata()}).
