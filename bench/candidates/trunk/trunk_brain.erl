%% The brain's side of the comparison of a trunk with links (run.escript): publishes what the edge's
%% publishers ask for. No part of the product.
%%
%% As in the product a process reads each link, one writes it and gathers until its mailbox is
%% empty, and a shard, one instead of eight, publishes in turns. Requests come as frames and are
%% answered by frames. Not here: history, look-ups, groups, catch-ups; they are the same with a
%% trunk.
-module(trunk_brain).

-export([start/4]).

-define(RECEIVERS, 16).
-define(RECEIVER_SETS, 4096).
-define(TURN, 64).                       % events
-define(BATCH, 256).
-define(FLUSH_BYTES, 65536).
-define(QUEUE_BYTES, 524288).            % no batch is taken while a link has more waiting
-define(WINDOW, 1048576).
-define(CONN_BITS, 48).

%% `links': one for each worker, at its socket in Dir; any other mode: a trunk.
-spec start(links | atom(), Dir :: file:name(), Workers :: pos_integer(),
            Streams :: pos_integer()) ->
    [pid()].
start(Mode, Dir, Workers, Streams) ->
    Table = ets:new(links, [public, {read_concurrency, true}]),
    Sets = list_to_tuple([receivers(Workers, Streams) || _ <- lists:seq(1, ?RECEIVER_SETS)]),
    Behind = atomics:new(Workers, []),
    Shard = spawn_link(fun() -> shard(#{mode => Mode, sets => Sets, behind => Behind,
                                        seq => 1001, held => [], table => Table,
                                        queues => []}) end),
    Names = case Mode of
        links -> [{Slot, integer_to_list(Slot) ++ ".sock"} || Slot <- lists:seq(0, Workers - 1)];
        _ -> [{0, "trunk.sock"}]
    end,
    Window = case Mode of links -> ?WINDOW; _ -> 4 * ?WINDOW end,
    Pids = [link_to(Slot, filename:join(Dir, Name), Window, Shard, Table)
            || {Slot, Name} <- Names],
    Shard ! {queues, [Queue || {_, _, Queue} <- ets:tab2list(Table)]},
    [Shard | lists:append(Pids)].

%% Words as in halley_directory, ascending: a link's slot, or on a trunk its worker's, and the
%% connection.
receivers(Workers, Streams) ->
    lists:usort([(rand:uniform(Workers) - 1) bsl ?CONN_BITS bor (rand:uniform(Streams) - 1)
                 || _ <- lists:seq(1, ?RECEIVERS)]).

link_to(Slot, Path, Window, Shard, Table) ->
    Parent = self(),
    Queue = counters:new(1, [atomics]),
    Link = spawn_link(fun() ->
        Options = [local, binary, {active, true}, {packet, raw}, {buffer, 65536},
                   {high_watermark, 393216}, {low_watermark, 131072}],
        {ok, Socket} = gen_tcp:connect({local, Path}, 0, Options),
        Writer = spawn_opt(fun() -> writer(Socket, Window, Queue) end,
                           [link, {message_queue_data, off_heap}, {fullsweep_after, 20},
                            {min_heap_size, 16384}, {min_bin_vheap_size, 131072}]),
        true = ets:insert(Table, {Slot, Writer, Queue}),
        Parent ! {self(), Writer},
        reads(Socket, <<>>, Writer, Queue, Shard)
    end),
    receive {Link, Writer} -> [Link, Writer] end.

%% The reading half.
reads(Socket, Buffer, Writer, Queue, Shard) ->
    receive
        {tcp, Socket, Data} ->
            {Rest, Posts} = read(<<Buffer/binary, Data/binary>>, Writer, []),
            Posts =/= [] andalso (Shard ! {posts, self(), lists:reverse(Posts)}),
            reads(Socket, Rest, Writer, Queue, Shard);
        {answers, Answers} ->
            Frames = [answer(Conn, Kind, Due) || {Conn, Kind, Due} <- Answers],
            counters:add(Queue, 1, iolist_size(Frames)),
            Writer ! {send, Frames},
            reads(Socket, Buffer, Writer, Queue, Shard);
        {tcp_closed, Socket} ->
            exit(edge_ended)
    end.

read(<<Length:32, Type, Payload:(Length - 1)/binary, Rest/binary>>, Writer, Posts) ->
    case {Type, Payload} of
        {16#03, <<Bytes:32>>} ->
            Writer ! {credit, Bytes},
            read(Rest, Writer, Posts);
        {16#45, <<Conn:64, _:120/binary, Kind, Due:19/binary, _>>} ->
            read(Rest, Writer, [{Conn, Kind, Due} | Posts])
    end;
read(Rest, _, Posts) ->
    {binary:copy(Rest), Posts}.

answer(Conn, Kind, Due) ->
    Head = <<"HTTP/1.1 202 Accepted, and its headers: some eighty bytes, with the event's id ">>,
    Line = <<Kind, Due/binary, "\n">>,
    [<<(1 + 8 + byte_size(Head) + byte_size(Line)):32, 16#15, Conn:64>>, Head, Line].

%%% Writing

writer(Socket, Window, Queue) ->
    idle(#{socket => Socket, credit => Window, queue => Queue, vector => erlang:make_tuple(8, 0),
           out => [], bytes => 0, waiting => queue:new()}).

idle(State) ->
    receive Message -> busy(written(Message, State)) end.

busy(State) ->
    receive Message -> busy(written(Message, State))
    after 0 -> idle(flush(State))
    end.

written({deliver, Deliveries}, State) -> lists:foldl(fun event/2, State, Deliveries);
written({send, Frames}, State) -> lists:foldl(fun frame/2, State, Frames);
written({credit, Bytes}, State = #{credit := Credit}) -> drain(State#{credit := Credit + Bytes});
written({inet_reply, _, ok}, State) -> State.

%% As halley_edge_delivery and halley_edge_position have it: the frame, and the link's new vector.
event({{Shard, Seq, Wire}, Conns}, State = #{vector := Vector}) ->
    Length = 3 + byte_size(Wire) + byte_size(Conns),
    Frame = [<<Length:32, 16#13>>, Wire, <<(byte_size(Conns) div 8):16>>, Conns],
    enqueue(4 + Length, Frame, State#{vector := setelement(Shard, Vector, Seq)}).

frame(Frame, State) ->
    enqueue(iolist_size(Frame), Frame, State).

enqueue(Cost, Frame, State = #{credit := Credit, out := Out, bytes := Bytes}) when Credit > 0 ->
    Next = State#{credit := Credit - Cost, out := [Frame | Out], bytes := Bytes + Cost},
    if Bytes + Cost >= ?FLUSH_BYTES -> flush(Next); true -> Next end;
enqueue(Cost, Frame, State = #{waiting := Waiting}) ->
    State#{waiting := queue:in({Cost, Frame}, Waiting)}.

drain(State = #{credit := Credit, waiting := Waiting}) when Credit > 0 ->
    case queue:out(Waiting) of
        {{value, {Cost, Frame}}, Rest} -> drain(enqueue(Cost, Frame, State#{waiting := Rest}));
        {empty, _} -> State
    end;
drain(State) ->
    State.

flush(State = #{bytes := 0}) ->
    State;
flush(State = #{socket := Socket, out := Out, bytes := Bytes, queue := Queue}) ->
    true = erlang:port_command(Socket, iolist_to_binary(lists:reverse(Out))),
    counters:sub(Queue, 1, Bytes),
    State#{out := [], bytes := 0}.

%%% Publishing

shard(State = #{held := Held}) ->
    receive
        {posts, Link, Posts} -> shard(turn(gathered([{Link, Posts}], length(Posts)), State));
        held -> shard(turn(Held, State#{held := []}));
        {queues, Queues} -> shard(State#{queues := Queues})
    end.

gathered(Posts, N) when N < ?TURN ->
    receive {posts, Link, More} -> gathered([{Link, More} | Posts], N + length(More))
    after 0 -> lists:reverse(Posts)
    end;
gathered(Posts, _) ->
    lists:reverse(Posts).

%% What each message of a link brought is published, then answered; batches may be left for later.
turn(Posts, State) ->
    {Outbox, Held, Done, Next} = lists:foldl(fun of_link/2, {#{}, [], [], State}, Posts),
    flush_outbox(Outbox, Next),
    lists:foreach(fun({Link, Answers}) -> Link ! {answers, Answers} end, lists:reverse(Done)),
    Held =/= [] andalso erlang:send_after(1, self(), held),
    Next#{held := maps:get(held, Next) ++ Held}.

of_link({Link, Posts}, {Outbox, Held, Done, State}) ->
    {Singles, Batches} = lists:partition(fun({_, Kind, _}) -> Kind =:= $S end, Posts),
    {Filled, Next} = lists:foldl(fun publish/2, {Outbox, State}, Singles),
    case Batches =/= [] andalso full(State) of
        true when Singles =:= [] -> {Filled, [{Link, Batches} | Held], Done, Next};
        true -> {Filled, [{Link, Batches} | Held], [{Link, Singles} | Done], Next};
        false -> {Filled, Held, [{Link, Posts} | Done], lists:foldl(fun batch/2, Next, Batches)}
    end.

full(#{queues := Queues}) ->
    lists:any(fun(Queue) -> counters:get(Queue, 1) > ?QUEUE_BYTES end, Queues).

%% In turns, as a batch has them.
batch(Post, State) ->
    lists:foldl(fun(_, S) ->
        {Outbox, Next} = lists:foldl(fun(_, Acc) -> publish(Post, Acc) end, {#{}, S},
                                     lists:seq(1, ?TURN)),
        flush_outbox(Outbox, Next),
        Next
    end, State, lists:seq(1, ?BATCH div ?TURN)).

publish({_, _, Due}, {Outbox, State = #{seq := Seq, sets := Sets, mode := Mode}}) ->
    Shard = Seq rem 8 + 1,
    Json = <<"{\"t\":", Due/binary, ",\"subject\":\"user-1234567\",\"id\":\"0123456789abcdef\",",
             "\"at\":1780000000000,\"data\":\"", (binary:copy(<<"x">>, 64))/binary, "\"}">>,
    Wire = <<Shard, Seq:64, 1780000000000:64, 90:32, 36:16, 12:16, 0, (byte_size(Json)):32,
             Json/binary>>,
    Words = element(Seq rem ?RECEIVER_SETS + 1, Sets),
    Delivery = {Shard, Seq, Wire},
    Filled = case Mode of
        links -> add(Delivery, Words, Outbox, State);
        _ -> add_trunk(Delivery, Words, Outbox, State)
    end,
    {Filled, State#{seq := Seq + 1}}.

%% As halley_fanout: for each link its deliveries.
add(_, [], Outbox, _) ->
    Outbox;
add(Delivery, [Word | Rest], Outbox, State = #{table := Table}) ->
    Slot = Word bsr ?CONN_BITS,
    {Words, Others} = take_slot(Rest, Slot, [Word]),
    {Link, Deliveries} = case Outbox of
        #{Slot := Found} -> Found;
        #{} -> {hd(ets:lookup(Table, Slot)), []}
    end,
    Packed = {Delivery, pack_slot(Words)},
    add(Delivery, Others, Outbox#{Slot => {Link, [Packed | Deliveries]}}, State).

take_slot([Word | Rest], Slot, Taken) when Word bsr ?CONN_BITS =:= Slot ->
    take_slot(Rest, Slot, [Word | Taken]);
take_slot(Rest, _, Taken) ->
    {Taken, Rest}.

pack_slot(Words) ->
    << <<0:16, Word:?CONN_BITS>> || Word <- Words >>.

%% The words go as they are; each worker's mark is looked at.
add_trunk(Delivery, Words, Outbox, #{behind := Behind, table := Table}) ->
    ok = none_behind(Words, none, Behind),
    {Link, Deliveries} = case Outbox of
        #{trunk := Found} -> Found;
        #{} -> {hd(ets:lookup(Table, 0)), []}
    end,
    Outbox#{trunk => {Link, [{Delivery, << <<Word:64>> || Word <- Words >>} | Deliveries]}}.

none_behind([], _, _) ->
    ok;
none_behind([Word | Words], Slot, Behind) ->
    case Word bsr ?CONN_BITS of
        Slot -> none_behind(Words, Slot, Behind);
        Other ->
            0 = atomics:get(Behind, Other + 1),
            none_behind(Words, Other, Behind)
    end.

%% As halley_links:deliver/2.
flush_outbox(Outbox, #{behind := Behind}) ->
    maps:foreach(fun(_, {{Slot, Writer, Queue}, Deliveries}) ->
        0 = atomics:get(Behind, Slot + 1),
        Cost = lists:sum([7 + byte_size(Wire) + byte_size(Conns)
                          || {{_, _, Wire}, Conns} <- Deliveries]),
        _ = counters:get(Queue, 1),
        counters:add(Queue, 1, Cost),
        Writer ! {deliver, lists:reverse(Deliveries)}
    end, Outbox).
