%% The simulator's world.

-record(brain, {
    name,
    core,
    boot = 0,
    is_up = false,
    paused = 0,                               % it does nothing until then
    inbox = [],                               % what came meanwhile, the last first
    clock = 0,                                % its difference to the true time
    opens = #{},                              % by handle: the call that opened it last
    %% What its shell has done.
    head = 0,
    epoch = 0,
    graph = 0,
    start = 0,                                % the head when `applied' began
    applied = [],                             % rows, the newest first
    ids = #{},
    state = whole,                            % or `wiped', by this reason
    points = [{0, 0, 0, 0, [], #{}}],         % what may be durable, the newest first
    mode = alone,
    readiness = none
}).

-record(world, {
    now = 0,
    n = 0,
    queue = gb_sets:new(),
    brains = #{},
    boots = 0,
    links = #{},
    silent = #{},
    engine,
    mode,
    until,                                    % faults happen until then
    options,
    loss, slow, busy, faults, window,
    asked = #{},                              % number => {brain, boot, when, chosen ids}
    answered = #{},                           % number => {when, epoch, answer}
    counts = #{}
}).
