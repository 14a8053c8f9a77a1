%% The writing end of one lane: a process for each lane of a link. Senders send it elements; it
%% gathers what waits in its mailbox up to ?BATCH_BYTES and writes it as one frame, so that batching
%% needs no timer. One `term_to_iovec' for a frame is what makes small messages cheap.
%%
%% Order: all that a process sends to a node goes by one lane. A large element goes to the lane's
%% teleport_large_writer with the number of elements before it, which the reader waits for; what the
%% same process sends then is held here until the peer said that it has the large ones (`done').
%%
%% A server that is called replies to this process itself, by its alias, so that the reply is in
%% order with the server's messages before and after. Messages that others post in a process's place
%% (`post_behind', `ended') come after those of that process.
%%
%% Memory: who sends has added the element's cost to the route's queue; it is subtracted when the
%% element was handed to the socket, of a large one when the peer has it. Replies are counted when
%% they are taken here; teleport_watch looks how much of them waits (`waits').
%%
%% Lost: an element with a name is remembered until the peer has it. When the link ends, the senders
%% of unconfirmed elements are informed, and for ?LINGER_MS also processes that still send here;
%% later senders find `?QUEUE_ENDED' set. So anything that may end this process, a write above all,
%% must find each element in the state or in the mailbox: no function keeps some for itself
%% meanwhile.
%%
%% It doesn't open connections. It requests them from its link when it has something to write.
-module(teleport_writer).

-export([start_link/1, post/5, post_behind/4, answer/3, ended/3, waits/1]).
-export([init/3]).
-export_type([args/0, lost/0, payload/0, tag/0]).

-include("teleport.hrl").

%% Who to tell, and what they called it.
-type lost() :: none | {pid(), Name :: term()}.
-type payload() :: {small, teleport_codec:element()} | {large, teleport_large:encoded()}.
%% Of what a server that is called replies to: so `gen_server:reply/2' sends to the alias, and the
%% server needn't know the writer's pid, to which nobody else must send anything.
-type tag() :: nonempty_improper_list([alias | reference()], MRef :: reference()).
-type args() :: #{node := node(), number := pos_integer(), queue := atomics:atomics_ref(),
                  low_bytes := pos_integer(), stats := atomics:atomics_ref(), large := pid(),
                  calls := teleport_calls:calls(), large_bytes := pos_integer(),
                  message_bytes_max := pos_integer()}.

-define(BATCH_BYTES, 65536).
-define(BATCH_MAX, 1000).
-define(LINGER_MS, 10000).
%% Taken from the mailbox for one message to a sender.
-define(TOLD_MAX, 100000).

-record(state, {
    link :: pid(),
    node :: node(),
    number :: pos_integer(),
    queue :: atomics:atomics_ref(),
    low_bytes :: pos_integer(),
    stats :: atomics:atomics_ref(),
    large :: pid(),                          % the lane's large writer
    calls :: teleport_calls:calls(),
    large_bytes :: pos_integer(),
    message_bytes_max :: pos_integer(),
    socket = none :: none | opening | teleport_socket:socket(),
    position = 0 :: non_neg_integer(),       % elements given to the socket, or in the batch
    larges = 0 :: non_neg_integer(),         % how many were handed on: the number of the last
    %% Senders with large elements that the peer hasn't, and what is held meanwhile, newest first.
    held = #{} :: #{pid() => {Larges :: pos_integer(), [tuple()]}},
    free = [] :: [tuple()],                  % what was held and goes on now, oldest first
    under_way = #{} :: #{pos_integer() => {Key :: pid(), Cost :: pos_integer(), lost()}},
    unseen = queue:new() :: queue:queue({Position :: pos_integer(), lost()}),
    asked = false :: boolean(),              % the link, how far the peer is
    used = false :: boolean(),               % since it was asked to rest; of large ones:
    used_large = false :: boolean(),
    batch = [] :: [teleport_codec:element()],
    count = 0 :: non_neg_integer(),
    bytes = 0 :: non_neg_integer()
}).

-spec start_link(args()) -> {pid(), Alias :: reference()}.
start_link(Args) ->
    Started = make_ref(),
    Writer = spawn_opt(?MODULE, init, [self(), Started, Args],
                       [link, {message_queue_data, off_heap}, {min_bin_vheap_size, 131072}]),
    receive {Started, Alias} -> {Writer, Alias} end.

%% Key is the process that the element is from: what is posted under one key stays in order.
-spec post(Writer :: pid(), Key :: pid(), payload(), Cost :: pos_integer(), lost()) -> ok.
post(Writer, Key, {What, Payload}, Cost, Lost) ->
    Writer ! {What, Key, Payload, Cost, Lost},
    ok.

%% A small one, by who posts in Key's place: behind what Key has posted before, though that was
%% another process. A mailbox that is `off_heap' keeps the order of each sender alone while many
%% send, since it takes what came from one sender after the other. What Key posted is in it, at the
%% latest, when it was looked into once more; so the writer sends the message to itself twice, which
%% puts it behind that look.
-spec post_behind(Writer :: pid(), Key :: pid(), teleport_codec:element(), pos_integer()) -> ok.
post_behind(Writer, Key, Element, Cost) -> behind(Writer, {small, Key, Element, Cost, none}).

%% An answer to the peer, from the calling process or behind what Key has sent. It isn't counted
%% yet, and nobody waits for room.
-spec answer(Writer :: pid(), Key :: pid() | {behind, pid()}, teleport_codec:element()) -> ok.
answer(Writer, {behind, Key}, Element) -> behind(Writer, {answer, Key, Element});
answer(Writer, Key, Element) ->
    Writer ! {answer, Key, Element},
    ok.

%% The process that was called has ended. If it has replied before, this is nothing.
-spec ended(Writer :: pid(), MRef :: reference(), Reason :: term()) -> ok.
ended(Writer, MRef, Reason) -> behind(Writer, {ended, MRef, Reason}).

behind(Writer, Message) ->
    Writer ! {again, {again, Message}},
    ok.

%% How much of replies and other answers waits in the mailbox, where nobody counts it: bytes of heap
%% and of wire.
-spec waits(Writer :: pid()) -> non_neg_integer().
waits(Writer) ->
    case process_info(Writer, messages) of
        {messages, Messages} -> lists:sum([answer_bytes(Message) || Message <- Messages]);
        undefined -> 0
    end.

answer_bytes({[[alias | _] | _], Reply}) -> bytes(Reply);
answer_bytes({answer, _, Element}) -> bytes(Element);
answer_bytes({ended, _, Reason}) -> bytes(Reason);
answer_bytes({again, Message}) -> answer_bytes(Message);
answer_bytes(_) -> 0.

bytes(Term) -> erlang:external_size(Term) + 8 * erts_debug:flat_size(Term).

-spec init(pid(), reference(), args()) -> no_return().
init(Link, Started, #{node := Node, number := Number, queue := Queue, low_bytes := Low,
                      stats := Stats, large := Large, calls := Calls, large_bytes := LargeBytes,
                      message_bytes_max := BytesMax}) ->
    process_flag(trap_exit, true),
    Link ! {Started, alias()},
    loop(#state{link = Link, node = Node, number = Number, queue = Queue, low_bytes = Low,
                stats = Stats, large = Large, calls = Calls, large_bytes = LargeBytes,
                message_bytes_max = BytesMax}).

loop(#state{free = []} = State) ->
    receive Message -> gather(handle(Message, State)) end;
loop(State) ->
    gather(State).

%% Until nothing is here or the frame is full. What was held is older than what is in the mailbox.
gather(#state{bytes = Bytes, count = Count} = State)
  when Bytes >= ?BATCH_BYTES; Count >= ?BATCH_MAX ->
    loop(flush(State));
gather(#state{free = [Message | Free]} = State) ->
    gather(handle(Message, State#state{free = Free}));
gather(#state{count = 0} = State) ->
    loop(State);
gather(State) ->
    receive Message -> gather(handle(Message, State))
    after 0 -> loop(flush(State))
    end.

handle({What, Key, Payload, Cost, Lost} = Message, #state{held = Held} = State) ->
    case Held of
        %% Large ones keep their order among themselves.
        #{Key := {_, []}} when What =:= large ->
            take(What, Key, Payload, Cost, Lost, State);
        #{Key := {Larges, Waiting}} ->
            State#state{held = Held#{Key := {Larges, [Message | Waiting]}}};
        _ ->
            take(What, Key, Payload, Cost, Lost, State)
    end;
handle({[[alias | _] | MRef], Reply}, State) ->
    answer_call(MRef, {ok, Reply}, State);
handle({again, Message}, State) ->
    self() ! Message,
    State;
handle({ended, MRef, Reason}, State) ->
    answer_call(MRef, {exit, Reason}, State);
handle({answer, Key, Element}, State) ->
    answer_with(Key, Element, State);
handle({done, Ids}, State) ->
    lists:foldl(fun done/2, State, Ids);
handle({seen, Position}, State) ->
    seen(Position, State#state{asked = false});
handle({rest, Kind}, State) ->
    rest(Kind, State);
handle({socket, Socket}, State) ->
    State#state{socket = Socket};
handle({'EXIT', Link, _}, #state{link = Link} = State) ->
    ended(State);
handle({'EXIT', _, _}, #state{link = Link} = State) ->
    exit(Link, writer),
    State;
handle({inet_reply, _, ok}, State) ->
    State;
handle({inet_reply, _, {error, Reason}}, State) ->
    broken(Reason, State).

answer_call(MRef, Result, #state{calls = Calls} = State) ->
    case teleport_calls:ended(Calls, MRef) of
        {Alias, Process} -> answer_with(Process, {reply, Alias, Result}, State);
        none -> State
    end.

%% It's counted from here on. A large one is encoded by the large writer: small ones go on.
answer_with(Key, Element, #state{queue = Queue, large_bytes = Large,
                                 message_bytes_max = Max} = State) ->
    case teleport_cost:cost(Large, Max, Element) of
        {small, Cost} ->
            ok = atomics:add(Queue, ?QUEUE_SMALL, Cost),
            handle({small, Key, Element, Cost, none}, State);
        {large, Cost} ->
            ok = atomics:add(Queue, ?QUEUE_LARGE, Cost),
            handle({large, Key, {term, Element}, Cost, none}, State);
        {error, too_large} ->
            answer_with(Key, smaller(Element), State)
    end.

smaller({reply, Alias, _}) -> {reply, Alias, {exit, too_large}};
smaller({down, Ref, Watcher, _}) -> {down, Ref, Watcher, too_large}.

take(small, _, Element, Cost, none,
     #state{batch = Batch, count = Count, bytes = Bytes, position = Position} = State) ->
    State#state{batch = [Element | Batch], count = Count + 1, bytes = Bytes + Cost,
                position = Position + 1};
take(small, Key, Element, Cost, Lost, #state{unseen = Unseen} = State) ->
    #state{position = Position} = Taken = take(small, Key, Element, Cost, none, State),
    ask(Taken#state{unseen = queue:in({Position, Lost}, Unseen)});
take(large, Key, Encoded, Cost, Lost,
     #state{larges = Before, held = Held, under_way = UnderWay, position = Position} = State) ->
    Id = Before + 1,
    ok = teleport_large_writer:post(State#state.large, Id, Key, Position, Encoded),
    Holding = case Held of
        #{Key := {Larges, []}} -> Held#{Key := {Larges + 1, []}};
        _ -> Held#{Key => {1, []}}
    end,
    %% The binaries are the large writer's from here on.
    _ = erlang:garbage_collect(self(), [{type, minor}]),
    State#state{larges = Id, held = Holding, under_way = UnderWay#{Id => {Key, Cost, Lost}},
                used_large = true}.

%% The peer has a large element. What was held behind it goes on, up to the next large one.
done(Id, #state{under_way = UnderWay, held = Held, free = Free, stats = Stats} = State) ->
    case maps:take(Id, UnderWay) of
        {{Key, Cost, _}, Rest} ->
            ok = atomics:add(Stats, ?SENT, 1),
            free(?QUEUE_LARGE, Cost, State),
            Left = State#state{under_way = Rest},
            case Held of
                #{Key := {1, Waiting}} ->
                    Left#state{held = maps:remove(Key, Held),
                               free = Free ++ lists:reverse(Waiting)};
                #{Key := {Larges, Waiting}} ->
                    Left#state{held = Held#{Key := {Larges - 1, Waiting}}}
            end;
        error ->
            exit(State#state.link, {malformed, done}),
            State
    end.

%% Asked from time to time: lets a connection go over which nothing went since it was asked before.
%% Of large ones, that is when the peer has all of them.
rest(lane, #state{link = Link, number = Number, socket = Socket, used = false, count = 0, free = [],
                  position = Position} = State) when Socket =/= none ->
    Link ! {rests, {lane, Number}, Position},
    State#state{socket = none};
rest(large, #state{link = Link, number = Number, used_large = false, under_way = UnderWay,
                   large = Large} = State) when map_size(UnderWay) =:= 0 ->
    ok = teleport_large_writer:rest(Large),
    Link ! {rests, {large, Number}, 0},
    State;
rest(Kind, #state{link = Link, number = Number} = State) ->
    Link ! {stays, {Kind, Number}},
    case Kind of
        lane -> State#state{used = false};
        large -> State#state{used_large = false}
    end.

ask(#state{asked = true} = State) ->
    State;
ask(#state{link = Link, number = Number} = State) ->
    Link ! {want_seen, Number},
    State#state{asked = true}.

seen(Seen, #state{unseen = Unseen} = State) ->
    case queue:peek(Unseen) of
        {value, {Position, _}} when Position =< Seen ->
            seen(Seen, State#state{unseen = queue:drop(Unseen)});
        {value, _} -> ask(State);
        empty -> State
    end.

flush(#state{socket = none, link = Link, number = Number} = State) ->
    Link ! {open, lane, Number},
    flush(State#state{socket = opening});
flush(#state{socket = opening, link = Link} = State) ->
    receive
        {socket, Socket} -> flush(State#state{socket = Socket});
        {'EXIT', Link, _} -> ended(State)
    end;
flush(#state{socket = Socket, batch = Batch, count = Count, bytes = Bytes,
             stats = Stats} = State) ->
    case teleport_socket:write(Socket, teleport_codec:encode(lists:reverse(Batch))) of
        ok ->
            ok = atomics:add(Stats, ?SENT, Count),
            free(?QUEUE_SMALL, Bytes, State),
            State#state{batch = [], count = 0, bytes = 0, used = true};
        {error, Reason} ->
            broken(Reason, State)
    end.

free(Index, Bytes, #state{queue = Queue, low_bytes = Low, link = Link}) ->
    case atomics:sub_get(Queue, Index, Bytes) =< Low
        andalso atomics:get(Queue, ?QUEUE_WAITING) > 0 of
        true -> Link ! room, ok;
        false -> ok
    end.

%% The link ends, if it hasn't: what is lost is known then.
-spec broken(term(), #state{}) -> no_return().
broken(Reason, #state{link = Link} = State) ->
    exit(Link, {write, Reason}),
    receive {'EXIT', Link, _} -> ended(State) end.

%% --- the link has ended ------------------------------------------------------------------------

-spec ended(#state{}) -> no_return().
ended(#state{node = Node, unseen = Unseen, under_way = UnderWay, held = Held, free = Free,
             queue = Queue}) ->
    %% Of one sender, what is free is behind what is held, that behind what is under way or unseen,
    %% and the small ones that are unseen are before its large ones under way.
    Large = [Lost || {_, {_, _, Lost}} <- lists:sort(maps:to_list(UnderWay))],
    Waiting = [Lost || {_, Messages} <- maps:values(Held),
                       {_, _, _, _, Lost} <- lists:reverse(Messages)],
    Freed = [Lost || {_, _, _, _, Lost} <- Free],
    Posted = waiting([], ?TOLD_MAX),
    tell([Lost || {_, Lost} <- queue:to_list(Unseen)] ++ Large ++ Waiting ++ Freed ++ Posted, Node),
    linger(Node, erlang:monotonic_time(millisecond) + ?LINGER_MS),
    %% Who posted before this is in the mailbox; who posts later looks at it afterwards.
    ok = atomics:put(Queue, ?QUEUE_ENDED, 1),
    linger(Node, erlang:monotonic_time(millisecond)),
    exit(normal).

linger(Node, UntilMs) ->
    Left = max(0, UntilMs - erlang:monotonic_time(millisecond)),
    receive
        {_, _, _, _, Lost} -> tell(waiting([Lost], ?TOLD_MAX), Node), linger(Node, UntilMs);
        _ -> linger(Node, UntilMs)
    after Left -> ok
    end.

waiting(Losts, 0) -> lists:reverse(Losts);
waiting(Losts, N) ->
    receive {_, _, _, _, Lost} -> waiting([Lost | Losts], N - 1)
    after 0 -> lists:reverse(Losts)
    end.

tell(Losts, Node) ->
    Grouped = lists:foldr(fun({Pid, Name}, Acc) ->
                                  maps:update_with(Pid, fun(Names) -> [Name | Names] end, [Name],
                                                   Acc);
                             (none, Acc) -> Acc
                          end, #{}, Losts),
    _ = [Pid ! {teleport_lost, Node, Names} || {Pid, Names} <- maps:to_list(Grouped)],
    ok.
