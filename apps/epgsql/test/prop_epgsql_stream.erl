%% Whatever bytes a server sends while a connection streams, the connection goes on or ends with a
%% reason that names the fault; receivers get only messages of the protocol. Where the bytes are cut
%% makes no difference.
-module(prop_epgsql_stream).

-include("epgsql_proper.hrl").
-include("epgsql.hrl").
-include("../src/epgsql_session.hrl").
-include("../src/epgsql_subprotocol.hrl").

-export([prop_replication/0, prop_copy/0, prop_query/0]).

prop_replication() -> property(replication).

prop_copy() -> property(copy).

prop_query() -> property(query).

property(Mode) ->
    Transport = transport(),
    ?FORALL({Messages, Damages, Cut}, {list(message(Mode)), list(damage()), range(0, 1000)},
            begin
                Bytes = lists:foldl(fun damaged/2, iolist_to_binary(Messages), Damages),
                At = min(Cut, byte_size(Bytes)),
                <<First:At/binary, Second/binary>> = Bytes,
                alone(fun() -> holds(Bytes, [First, Second], Mode, Transport) end)
            end).

%% What comes to the process is looked at, so it has one of its own.
alone(Holds) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({holds, Holds()}) end),
    receive {'DOWN', Monitor, process, Pid, {holds, Result}} -> Result end.

holds(Bytes, Parts, Mode, Transport) ->
    {End, Told} = given([Bytes], Mode, Transport),
    InParts = given(Parts, Mode, Transport),
    Holds = is_end(End) andalso lists:all(fun is_message/1, Told)
        andalso is_same(InParts, {End, Told}),
    Holds orelse io:format("~p~n~p~n", [{End, Told}, InParts]),
    Holds.

%% Rows of a COPY are handed over by reads, behind what else came with them, and those of a read
%% that ends the connection to nobody.
is_same({{ended, _} = End, First}, {End, Second}) -> others(First) =:= others(Second);
is_same({End, First}, {End, Second}) ->
    {others(First), rows(First)} =:= {others(Second), rows(Second)};
is_same(_, _) -> false.

others(Told) -> [Message || Message <- Told, rows([Message]) =:= []].

rows(Told) -> lists:append([Rows || {_, _, {copy_data, Rows}} <- Told]).

%% What the server sends, whole: of the mode, and what comes at any time.
message(Mode) ->
    frequency([{6, payload(Mode)},
               {1, oneof([framed($S, <<"TimeZone", 0, "UTC", 0>>),
                          framed($N, <<"SNOTICE", 0, "C00000", 0, "Mhello", 0, 0>>),
                          framed($A, <<7:32, "channel", 0, "text", 0>>)])},
               {1, oneof([framed($E, <<"SERROR", 0, "C57014", 0, "Mstop", 0, 0>>),
                          framed($c, <<>>), framed($C, <<"COPY 1", 0>>), framed($Z, <<"I">>)])}]).

payload(replication) ->
    Change = oneof([<<$B, 7:64, 0:64, 3:32>>, <<$C, 0, 7:64, 9:64, 0:64>>,
                    <<$I, 5:32, $N, 1:16, $t, 1:32, "1">>, binary()]),
    oneof([?LET({Start, End, Data}, {integer(), integer(), Change},
                framed($d, <<$w, Start:64, End:64, 0:64, Data/binary>>)),
           ?LET({End, MustReply}, {integer(), range(0, 1)},
                framed($d, <<$k, End:64, 0:64, MustReply>>))]);
payload(copy) ->
    ?LET(Line, binary(), framed($d, <<Line/binary, $\n>>));
payload(query) ->
    oneof([framed($T, <<1:16, "a", 0, 0:32, 0:16, 23:32, 4:16, -1:32, 0:16>>),
           ?LET(Cell, binary(), framed($D, <<1:16, (byte_size(Cell)):32, Cell/binary>>)),
           framed($D, <<1:16, -1:32>>), framed($C, <<"SELECT 1", 0>>)]).

framed(Type, Payload) -> <<Type, (byte_size(Payload) + 4):32, Payload/binary>>.

damage() ->
    oneof([{cut, range(0, 300)}, {add, binary()}, {set, range(0, 300), range(0, 255)},
           {set, range(0, 12), oneof([0, 255, 127, 128])}, {drop, range(0, 300)}]).

damaged(Damage, Bytes) -> prop_epgsql_backend:damaged(Bytes, Damage).

%% How it ends, and what this process was told.
given(Parts, Mode, Transport) ->
    End = given(Parts, session(Mode, Transport)),
    {End, told([])}.

given([], _) -> open;
given([Bytes | Parts], Session) ->
    case epgsql_machine:data(Bytes, Session) of
        {noreply, After} -> given(Parts, After);
        {stop, Reason, _} -> {ended, Reason}
    end.

told(Acc) ->
    receive Message -> told([Message | Acc])
    after 0 -> lists:reverse(Acc)
    end.

session(Mode, Transport) ->
    session(Mode, (epgsql_session:new())#session{transport = Transport, async = self(),
                                                 txstatus = $I}, make_codec()).

session(replication, Session, _) ->
    Session#session{handler = on_replication,
                    subproto_state = #repl{receiver = self(), keepalives = true}};
session(copy, Session, _) ->
    Ref = persistent_ref(),
    Command = #command{module = epgsql_cmd_copy_to_stdout, state = {"", text, self(), Ref},
                       reply_to = {cast, self(), Ref}, syncs = 1},
    Session#session{handler = on_copy_to_stdout, current = Command,
                    subproto_state = #copy_out{receiver = self(), ref = Ref, monitor = []}};
session(query, Session, Codec) ->
    Command = #command{module = epgsql_cmd_squery, state = epgsql_cmd_squery:init("select 1"),
                       reply_to = {cast, self(), persistent_ref()}, syncs = 1},
    Session#session{current = Command, codec = Codec}.

make_codec() -> epgsql_binary:new_codec(epgsql_session:new(), #{}).

%% The same in both runs, so that what is told can be compared.
persistent_ref() ->
    case get(?MODULE) of
        undefined ->
            Ref = make_ref(),
            _ = put(?MODULE, Ref),
            Ref;
        Ref -> Ref
    end.

is_end(open) -> true;
is_end({ended, {malformed, What}}) -> is_atom(What);
is_end({ended, {unexpected_message, Type, _}}) -> is_integer(Type);
is_end({ended, {error, #error{}}}) -> true;
is_end({ended, {shutdown, #error{}}}) -> true;
is_end(_) -> false.

is_message({epgsql, C, Said}) when C =:= self() -> is_said(Said);
is_message({C, Ref, Answer}) when C =:= self(), is_reference(Ref) -> is_answer(Answer);
is_message(_) -> false.

is_said({x_log_data, Start, End, Data}) ->
    is_integer(Start) andalso is_integer(End) andalso is_change(Data);
is_said({keepalive, End, MustReply}) -> is_integer(End) andalso is_boolean(MustReply);
is_said({notice, #error{}}) -> true;
is_said({notification, Channel, Pid, Text}) ->
    is_binary(Channel) andalso is_integer(Pid) andalso is_binary(Text);
is_said(_) -> false.

is_change(Data) ->
    try epgsql_pgoutput:decode(Data, epgsql_pgoutput:new()) of
        {#{type := _}, _} -> true
    catch
        error:{malformed, pgoutput} -> true
    end.

is_answer({copy_data, Rows}) -> lists:all(fun is_binary/1, Rows);
is_answer({error, _}) -> true;
is_answer({ok, Count}) -> is_integer(Count);
is_answer({ok, Columns, Rows}) -> is_list(Columns) andalso lists:all(fun is_tuple/1, Rows);
is_answer({ok, Count, Columns, Rows}) -> is_integer(Count) andalso is_answer({ok, Columns, Rows});
is_answer(Results) when is_list(Results) -> lists:all(fun is_answer/1, Results);
is_answer(_) -> false.

%% What the connection writes goes to a process that throws it away.
transport() ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, true}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Owner = self(),
    Sink = spawn(fun() ->
        Monitor = monitor(process, Owner),
        {ok, _} = gen_tcp:accept(Listen),
        drain(Monitor)
    end),
    ok = gen_tcp:controlling_process(Listen, Sink),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {gen_tcp, Socket}.

drain(Monitor) ->
    receive
        {'DOWN', Monitor, process, _, _} -> ok;
        _ -> drain(Monitor)
    end.
