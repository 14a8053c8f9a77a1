%% The state of a core, for the modules that are parts of it: `halley_cluster_core',
%% `halley_cluster_log', `halley_cluster_talk' and `halley_cluster_state'.

-record(core, {
    me :: binary(),
    boot :: <<_:64>>,                         % random, of this start: tokens begin with it
    tokens = 0 :: non_neg_integer(),
    bounds :: halley_cluster_state:bounds(),
    clock = none :: none | integer(),         % as it came last
    now = 0 :: non_neg_integer(),             % never goes back
    append :: halley_cluster_handle:handle(),
    read :: halley_cluster_handle:handle(),
    reader :: halley_cluster_reader:reader(),
    orderer :: halley_cluster_orderer:orderer(),
    proposals :: halley_cluster_proposals:proposals(),
    peers :: halley_cluster_peers:peers(),
    roles :: halley_cluster_roles:roles(),
    wanted :: [halley_log_engine:role()],     % besides that of ordering
    held = #{} :: #{halley_log_engine:role() => pos_integer()},   % as it was reported
    mode = alone :: halley_cluster_state:mode(),
    synced = false :: boolean(),              % has read to the log's end once
    at_end = false :: boolean(),              % the last read found nothing more
    asking = false :: boolean(),              % no append before the role's answer
    contact = none :: none | integer(),       % when the log answered last
    engine_at = 0 :: halley_log_engine:at_ms(),
    members = [] :: [halley_log_engine:brain()],
    read_now = true :: boolean(),
    read_due = 0 :: integer(),
    brains_due = 0 :: integer(),
    trim_due = 0 :: integer(),
    beat_due = 0 :: integer(),
    scan_due = 0 :: integer(),
    readiness = none :: none | halley_cluster_state:readiness(),
    out = [] :: [halley_cluster_state:effect()]                   % the last first
}).
