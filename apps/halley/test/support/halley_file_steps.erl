%% The steps of a fun on files, in their order: which of them a crash can't part, and what is on
%% disk when.
-module(halley_file_steps).

-export([of_fun/1]).

-define(STEPS, [open, change_mode, write, sync, datasync, close, rename, delete]).

%% The fun runs in a process of its own. With their paths: `open', and `rename' with its second.
-spec of_fun(fun(() -> _)) -> [atom() | {open | rename, file:name_all()}].
of_fun(Fun) ->
    _ = [erlang:trace_pattern({file, Each, '_'}, true, []) || Each <- ?STEPS],
    {Pid, Monitor} = spawn_monitor(fun() -> receive go -> Fun() end end),
    1 = erlang:trace(Pid, true, [call]),
    Pid ! go,
    receive {'DOWN', Monitor, process, Pid, Reason} -> normal = Reason end,
    Delivered = erlang:trace_delivered(Pid),
    receive {trace_delivered, Pid, Delivered} -> ok end,
    _ = [erlang:trace_pattern({file, Each, '_'}, false, []) || Each <- ?STEPS],
    calls(Pid).

calls(Pid) ->
    receive
        {trace, Pid, call, {file, open, [Path | _]}} -> [{open, Path} | calls(Pid)];
        {trace, Pid, call, {file, rename, [_, Path]}} -> [{rename, Path} | calls(Pid)];
        {trace, Pid, call, {file, Name, _}} -> [Name | calls(Pid)]
    after 0 -> []
    end.
