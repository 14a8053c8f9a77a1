%% Loaded into a brain by the checker (lib/processes.mjs): kills one process of Halley's, as a bug
%% in it would, at each request on a socket, and answers which.
%%
%% `-halley_faults PATH' is the socket. Each connection has one line, `all' or an application, and
%% is answered by `Process Supervisor' or `none'.
-module(halley_faults).

-export([start/0]).

-define(APPS, [halley, halley_api, halley_edge, halley_hooks, halley_postgres, halley_backends]).

start() ->
    {ok, [[Path]]} = init:get_argument(halley_faults),
    _ = file:delete(Path),
    spawn(fun() ->
        Options = [{ifaddr, {local, Path}}, {active, false}, {packet, line}],
        {ok, Listen} = gen_tcp:listen(0, Options),
        serve(Listen)
    end).

serve(Listen) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            answer(Socket);
        {error, _} ->
            %% No descriptor is left.
            timer:sleep(100)
    end,
    serve(Listen).

answer(Socket) ->
    Answer = case gen_tcp:recv(Socket, 0) of
        {ok, "all\n"} -> kill_one(?APPS);
        {ok, Line} -> kill_one([list_to_existing_atom(string:trim(Line))]);
        {error, _} -> "none"
    end,
    _ = gen_tcp:send(Socket, [Answer, $\n]),
    ok = gen_tcp:close(Socket).

kill_one(Apps) ->
    case lists:append([below(Pid, App) || App <- Apps, Pid <- [top(App)], is_pid(Pid)]) of
        [] ->
            "none";
        Processes ->
            {Pid, Id, Sup} = lists:nth(rand:uniform(length(Processes)), Processes),
            Name = name(Pid, Id),
            exit(Pid, kill),
            io_lib:format("~0tp ~0tp", [Name, Sup])
    end.

top(App) ->
    case application_controller:get_master(App) of
        Master when is_pid(Master) ->
            try element(1, application_master:get_child(Master)) catch _:_ -> undefined end;
        _ -> undefined
    end.

%% With the supervisors: these are processes as well. One that ends meanwhile has no children.
below(Sup, Of) ->
    Children = try supervisor:which_children(Sup) catch exit:_ -> [] end,
    lists:append([case Type of
                      worker -> [{Pid, Id, Of}];
                      supervisor -> [{Pid, Id, Of} | below(Pid, name(Pid, Id))]
                  end || {Id, Pid, Type, _} <- Children, is_pid(Pid)]).

name(Pid, Id) ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> Name;
        _ -> Id
    end.
