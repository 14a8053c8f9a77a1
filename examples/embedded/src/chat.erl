%% A chat over TCP: a client sends its name, then lines. It gets lines `CURSOR NAME: TEXT', and what
%% it missed if it comes back as `NAME CURSOR'. `/who' lists the users that are here.
-module(chat).
-behaviour(application).
-export([start/2, stop/1]).

-define(ROOM, <<"room">>).

start(_, _) ->
    {ok, Port} = application:get_env(chat, port),
    Options = [binary, {ip, {127, 0, 0, 1}}, {packet, line}, {active, false}, {reuseaddr, true}],
    {ok, Listener} = gen_tcp:listen(Port, Options),
    {ok, spawn_link(fun() -> accept(Listener) end)}.

stop(_) -> ok.

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:controlling_process(Socket, spawn(fun() -> receive go -> enter(Socket) end end)),
    {connected, Pid} = erlang:port_info(Socket, connected),
    Pid ! go,
    accept(Listener).

enter(Socket) ->
    {ok, Line} = gen_tcp:recv(Socket, 0),
    {Name, Cursor} = case string:lexemes(Line, " \r\n") of
        [User] -> {User, halley:cursor()}; [User, Seen] -> {User, Seen}
    end,
    ok = halley:follow(Name, ?ROOM),
    ok = halley:login(Name),
    talk(Socket, Name, show(Socket, Name, Cursor)).

talk(Socket, Name, Cursor) ->
    ok = inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, _, <<"/who", _/binary>>} ->
            Here = [User || User <- halley:followers(?ROOM),
                            #{sessions := N} <- [halley:presence(User)], N > 0],
            ok = gen_tcp:send(Socket, [lists:join(" ", ["here:" | Here]), "\n"]),
            talk(Socket, Name, Cursor);
        {tcp, _, Line} ->
            {ok, _} = halley:publish(?ROOM, #{from => Name, text => string:trim(Line)}),
            talk(Socket, Name, Cursor);
        {halley, _} -> talk(Socket, Name, show(Socket, Name, Cursor));
        {halley_closed, _} -> gen_tcp:close(Socket);
        {tcp_closed, _} -> ok
    end.

show(Socket, Name, Cursor) ->
    {ok, #{items := Items, cursor := Next, more := More}} = halley:read(Name, Cursor),
    _ = [gen_tcp:send(Socket, line(Item)) || Item <- Items],
    case More of
        true -> show(Socket, Name, Next);
        false -> Next
    end.

line({event, #{cursor := Cursor, data := #{<<"from">> := From, <<"text">> := Text}}}) ->
    [Cursor, " ", From, ": ", Text, "\n"];
line({gap, #{cursor := Cursor}}) ->
    [Cursor, " some of it is gone\n"].
