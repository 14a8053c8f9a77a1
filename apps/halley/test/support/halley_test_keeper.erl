%% Keeps a brain for the cases of a suite. Cases run in processes of their own, so what they start
%% needs a parent that stays: the keeper. It also makes the brain's directory, and removes it.
-module(halley_test_keeper).

-export([start/2, stop/1]).
-export_type([keeper/0]).

-type keeper() :: pid().

%% A store on a busy disk takes its time.
-define(START_MS, 300000).

%% Sets `data.dir', then starts these, each linked to the keeper.
-spec start(Dir :: file:filename(), [fun(() -> {ok, pid()})]) ->
    {ok, keeper(), [pid()]} | {error, Reason :: term()}.
start(Dir, Starts) ->
    ok = application:set_env(halley, data_dir, Dir),
    Starter = self(),
    {Keeper, Monitor} = spawn_monitor(fun() -> keep(Starter, Dir, Starts) end),
    receive
        {Keeper, Started} -> demonitor(Monitor, [flush]), {ok, Keeper, Started};
        {'DOWN', Monitor, process, Keeper, Reason} -> {error, Reason}
    after ?START_MS ->
        {error, brain_does_not_start}
    end.

keep(Starter, Dir, Starts) ->
    process_flag(trap_exit, true),
    Started = [Pid || Start <- Starts, {ok, Pid} <- [Start()]],
    true = length(Started) =:= length(Starts),
    Starter ! {self(), Started},
    receive stop -> ok end,
    lists:foreach(fun end_process/1, lists:reverse(Started)),
    ok = halley_store:close(),
    ok = file:del_dir_r(Dir).

end_process(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, shutdown),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

%% Ends what was started, the latest first. A case may have done so.
-spec stop(keeper()) -> ok.
stop(Keeper) ->
    Monitor = monitor(process, Keeper),
    Keeper ! stop,
    receive
        {'DOWN', Monitor, process, Keeper, normal} -> ok;
        {'DOWN', Monitor, process, Keeper, noproc} -> ok;
        {'DOWN', Monitor, process, Keeper, Reason} -> error({brain_does_not_stop, Reason})
    after ?START_MS ->
        error(brain_does_not_stop)
    end.
