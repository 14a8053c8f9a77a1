%% Puts the position of the stream on disk, in a process of its own: a sync takes milliseconds, on a
%% busy disk hundreds, and changes needn't wait for it.
%%
%% One save at a time: the files of pairs first, then the state that names their sizes.
-module(halley_postgres_saver).

-export([start_link/0, save/3]).

%% Of the caller, which gets `{saved, Saver, State}' for each save. A disk that refuses ends both.
-spec start_link() -> pid().
start_link() ->
    Owner = self(),
    spawn_link(fun() -> loop(Owner) end).

%% `Paths': files that were written since the last save.
-spec save(pid(), [file:filename()], halley_postgres_state:state()) -> ok.
save(Saver, Paths, State) ->
    Saver ! {save, Paths, State},
    ok.

loop(Owner) ->
    receive
        {save, Paths, State} ->
            lists:foreach(fun sync/1, Paths),
            ok = halley_postgres_state:write(State),
            Owner ! {saved, self(), State},
            loop(Owner)
    end.

%% What was written by one descriptor is synced by any.
sync(Path) ->
    {ok, File} = file:open(Path, [read, write, raw]),
    ok = halley_postgres_state:written(Path, file:datasync(File)),
    ok = file:close(File).
