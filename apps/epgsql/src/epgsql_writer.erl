%% Writes to a socket that may have to wait for its server, by processes of their own: the process
%% of the connection goes on reading, keeps its times and answers other calls meanwhile.
%%
%% Each begins when the one before it is done, so all is written in its order. The newest is in the
%% dictionary of the connection's process. A writer ends with its socket at the latest.
-module(epgsql_writer).

-export([send/2, send_monitored/2, is_busy/0]).

%% What becomes of it is seen when the socket is read.
-spec send(epgsql_transport:transport(), iodata()) -> ok.
send(Transport, Data) ->
    Before = get(?MODULE),
    _ = put(?MODULE, spawn(fun() -> write(Before, Transport, Data) end)),
    ok.

%% Its end is `{'DOWN', Monitor, process, _, {written, Result}}'.
-spec send_monitored(epgsql_transport:transport(), iodata()) -> Monitor :: reference().
send_monitored(Transport, Data) ->
    Before = get(?MODULE),
    {Pid, Monitor} = spawn_monitor(fun() -> exit({written, write(Before, Transport, Data)}) end),
    _ = put(?MODULE, Pid),
    Monitor.

%% Does this process have a writer that isn't done?
-spec is_busy() -> boolean().
is_busy() ->
    case get(?MODULE) of
        undefined -> false;
        Pid -> is_process_alive(Pid)
    end.

write(undefined, Transport, Data) ->
    epgsql_transport:send(Transport, Data);
write(Before, Transport, Data) ->
    Monitor = monitor(process, Before),
    receive {'DOWN', Monitor, process, _, _} -> epgsql_transport:send(Transport, Data) end.
