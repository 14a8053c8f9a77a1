%% How long a case waits for what must come, on a busy machine.
-define(WAIT_MS, 30000).
