%% A subject with sessions that watch its presence.
-record(watch, {
    %% Whether its users are named, or counted alone.
    named :: boolean(),
    %% Sessions of visitors, as they were sent.
    visitors = 0 :: non_neg_integer(),
    %% The number that was sent, where they are counted.
    online = 0 :: non_neg_integer(),
    %% Visitors have come or gone since they were counted.
    is_due = false :: boolean(),
    is_counting = false :: boolean(),
    counted_at :: integer(),
    %% No session watches it since then.
    idle_since = none :: none | integer()
}).
