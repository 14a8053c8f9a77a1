%% A server that hooks are sent to: it keeps what it took, in order, and does as a case says.
%%
%% `Does' is called for each request with its headers and its body, and gives a status, or
%% `{raw, Bytes}' to say, `hang' or `close'. A hook counts as taken when its status was 2xx.
-module(halley_hooks_endpoint).

-export([start/0, start/1, port/1, does/2, hooks/1, requests/1, stop/1, secret_file/1]).

-record(state, {does, hooks = [], requests = []}).

start() -> start(0).

start(Port) ->
    Case = self(),
    Pid = spawn(fun() ->
        {ok, Listener} = gen_tcp:listen(Port, [binary, {active, false}, {reuseaddr, true},
                                               {packet, http_bin}, {ip, {127, 0, 0, 1}}]),
        Keeper = self(),
        spawn_link(fun() -> accept(Listener, Keeper) end),
        {ok, Bound} = inet:port(Listener),
        Case ! {self(), Bound},
        keep(#state{does = fun(_, _) -> 204 end})
    end),
    receive {Pid, Bound} -> {Pid, Bound} after 5000 -> error(no_endpoint) end.

port({_, Port}) -> Port.

stop({Pid, _}) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

does(Does, Endpoint) -> ask({does, Does}, Endpoint).

%% Those that were taken, as maps.
hooks(Endpoint) -> ask(hooks, Endpoint).

%% `{Headers, Body, Status}' of each, the first one first.
requests(Endpoint) -> ask(requests, Endpoint).

ask(What, {Pid, _}) ->
    Ref = make_ref(),
    Pid ! {ask, self(), Ref, What},
    receive {Ref, Answer} -> Answer after 5000 -> error(no_answer) end.

secret_file(Dir) ->
    File = filename:join(Dir, "secret"),
    ok = file:write_file(File, ["0123456789abcdef0123456789abcdef\n"]),
    File.

keep(#state{does = Does, hooks = Hooks, requests = Requests} = State) ->
    receive
        {ask, From, Ref, {does, New}} ->
            From ! {Ref, ok},
            keep(State#state{does = New});
        {ask, From, Ref, hooks} ->
            From ! {Ref, lists:append(lists:reverse(Hooks))},
            keep(State);
        {ask, From, Ref, requests} ->
            From ! {Ref, lists:reverse(Requests)},
            keep(State);
        {request, From, Headers, Body} ->
            Answer = Does(Headers, Body),
            From ! {answer, Answer},
            Its = maps:get(<<"hooks">>, jiffy:decode(Body, [return_maps]), []),
            Taken = case is_integer(Answer) andalso Answer div 100 =:= 2 of
                true -> [Its | Hooks];
                false -> Hooks
            end,
            keep(State#state{hooks = Taken, requests = [{Headers, Body, Answer} | Requests]})
    end.

accept(Listener, Keeper) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn_link(fun() ->
        receive go -> ok end,
        process_flag(trap_exit, true),
        serve(Socket, Keeper)
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener, Keeper).

serve(Socket, Keeper) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_request, 'POST', _, _}} ->
            Headers = headers(Socket, #{}),
            ok = inet:setopts(Socket, [{packet, raw}]),
            {ok, Body} = gen_tcp:recv(Socket, binary_to_integer(maps:get(<<"content-length">>,
                                                                          Headers))),
            ok = inet:setopts(Socket, [{packet, http_bin}]),
            Keeper ! {request, self(), Headers, Body},
            receive {answer, Answer} -> answered(Answer, Socket, Keeper) end;
        _ -> ok
    end.

answered(close, Socket, _) -> gen_tcp:close(Socket);
answered(hang, _, _) -> timer:sleep(60000);
answered({raw, Bytes}, Socket, Keeper) ->
    _ = gen_tcp:send(Socket, Bytes),
    serve(Socket, Keeper);
answered(Status, Socket, Keeper) ->
    _ = gen_tcp:send(Socket, ["HTTP/1.1 ", integer_to_list(Status),
                              " X\r\nContent-Length: 3\r\n\r\nok\n"]),
    serve(Socket, Keeper).

headers(Socket, Headers) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_header, _, Name, _, Value}} ->
            Key = string:lowercase(case is_atom(Name) of
                                       true -> atom_to_binary(Name);
                                       false -> Name
                                   end),
            headers(Socket, Headers#{Key => Value});
        {ok, http_eoh} -> Headers
    end.
