%% Words of the directory that are no session, below any that is one. 0 is offline.

-define(SEVERAL, 1).
-define(LEAVING, 2).
