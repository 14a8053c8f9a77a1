%% A subject with sessions that watch its presence.
-record(room, {
    %% Whether its users are named, or counted alone.
    named :: boolean(),
    %% Sessions of visitors, as they were told.
    visitors = 0 :: non_neg_integer(),
    %% How many were told, where they are counted.
    online = 0 :: non_neg_integer(),
    %% Visitors have come or gone since they were counted.
    is_due = false :: boolean(),
    is_counting = false :: boolean(),
    counted_at :: integer(),
    %% Nobody asks any more since then.
    idle_since = none :: none | integer()
}).
