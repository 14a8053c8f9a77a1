%% Writes a lane's large elements over a connection of their own, so that small ones never wait for
%% them. An element is written whole if it has at most ?FRAGMENT_BYTES; of larger ones two at a time
%% take turns, fragment by fragment, if they are from different processes.
%%
%% On the wire, without frames around it: START with the element's number, how many elements of the
%% lane were before it, and the sizes of its parts; then FRAGMENTs of the bytes of all parts. The
%% reader takes a part that lies in one fragment as it is.
%%
%% Small messages go before: this process has a low priority, hands the socket ?WRITE_BYTES at a
%% time, and lets others run in between. The kernel takes bytes as long as the peer reads, so one
%% call with all of a fragment copies for many milliseconds.
%%
%% It doesn't decide about order beyond that of one sender, and counts nothing: the lane's
%% teleport_writer does.
-module(teleport_large_writer).

-export([start_link/1, post/5, rest/1]).
-export([init/2]).

-define(FRAGMENT_BYTES, 16777216).
%% Of one call, for which a scheduler does nothing else.
-define(WRITE_BYTES, 131072).
-define(PARTIAL_MAX, 2).

%% An element, or what is left of it.
-record(item, {id :: pos_integer(), key :: pid(), start :: none | binary(), rest :: [binary()]}).
-record(state, {link :: pid(), number :: pos_integer(),
                socket = none :: none | opening | teleport_socket:socket(),
                partial = [] :: [#item{}],
                waiting = queue:new() :: queue:queue(#item{})}).

-spec start_link(Number :: pos_integer()) -> pid().
start_link(Number) ->
    spawn_opt(?MODULE, init, [self(), Number], [link, {message_queue_data, off_heap}]).

%% Encoded by who sent it, or to be encoded here.
-spec post(pid(), Id :: pos_integer(), Key :: pid(), After :: non_neg_integer(),
           teleport_large:encoded() | {term, teleport_codec:element()}) -> ok.
post(Writer, Id, Key, After, {term, Element}) ->
    Writer ! {encode, Id, Key, After, Element},
    ok;
post(Writer, Id, Key, After, Encoded) ->
    Writer ! item(Id, Key, After, Encoded),
    ok.

item(Id, Key, After, {Rest, Cut}) ->
    Sizes = << <<(byte_size(Bin)):64>> || Bin <- Cut >>,
    Start = <<1, Id:64, After:64, (iolist_size(Rest)):64, (length(Cut)):16, Sizes/binary>>,
    #item{id = Id, key = Key, start = Start, rest = Rest ++ Cut}.

%% It has nothing to write: it lets its connection go.
-spec rest(pid()) -> ok.
rest(Writer) ->
    Writer ! rest,
    ok.

-spec init(pid(), pos_integer()) -> no_return().
init(Link, Number) ->
    process_flag(trap_exit, true),
    process_flag(priority, low),
    loop(#state{link = Link, number = Number}).

loop(#state{partial = [], waiting = Waiting} = State) ->
    case queue:is_empty(Waiting) of
        true -> receive Message -> loop(handle(Message, State)) end;
        false -> turn(State)
    end;
loop(State) ->
    turn(State).

%% What came meanwhile is known before the next turn is given.
turn(State) ->
    receive Message -> turn(handle(Message, State))
    after 0 -> write(next(State))
    end.

handle(#item{} = Item, #state{waiting = Waiting} = State) ->
    State#state{waiting = queue:in(Item, Waiting)};
handle({encode, Id, Key, After, Element}, State) ->
    handle(item(Id, Key, After, teleport_large:encode(Element)), State);
handle(rest, State) ->
    State#state{socket = none};
handle({socket, Socket}, State) ->
    State#state{socket = Socket};
handle({inet_reply, _, ok}, State) ->
    State;
handle({inet_reply, _, {error, Reason}}, State) ->
    broken(Reason, State);
handle({'EXIT', Link, _}, #state{link = Link}) ->
    exit(normal);
handle({'EXIT', _, _}, State) ->
    broken(writer, State).

%% Puts what is next in front.
next(#state{partial = Partial, waiting = Waiting} = State) ->
    Keys = [Key || #item{key = Key} <- Partial],
    case queue:peek(Waiting) of
        {value, #item{key = Key} = Item} when length(Partial) < ?PARTIAL_MAX ->
            case lists:member(Key, Keys) of
                false -> State#state{partial = [Item | Partial], waiting = queue:drop(Waiting)};
                true -> State
            end;
        _ -> State
    end.

write(#state{socket = none, link = Link, number = Number} = State) ->
    Link ! {open, large, Number},
    write(State#state{socket = opening});
write(#state{socket = opening, link = Link} = State) ->
    receive
        {socket, Socket} -> write(State#state{socket = Socket});
        {'EXIT', Link, _} -> exit(normal)
    end;
write(#state{socket = Socket, partial = [Item | Others]} = State) ->
    #item{id = Id, start = Start, rest = Rest} = Item,
    {Room, Now, Later} = fragment(?FRAGMENT_BYTES, Rest, []),
    Bytes = ?FRAGMENT_BYTES - Room,
    Header = <<2, Id:64, Bytes:64>>,
    Data = case Start of none -> [Header | Now]; _ -> [Start, Header | Now] end,
    Left = case Later of
        [] -> Others;
        _ -> Others ++ [Item#item{start = none, rest = Later}]
    end,
    case write(Socket, Data) of
        ok -> done(State#state{partial = Left});
        {error, Reason} -> broken(Reason, State)
    end.

write(Socket, Data) ->
    case fragment(?WRITE_BYTES, Data, []) of
        {_, All, []} ->
            teleport_socket:write(Socket, All);
        {_, Piece, Later} ->
            case teleport_socket:write(Socket, Piece) of
                ok -> erlang:yield(), write(Socket, Later);
                {error, _} = Error -> Error
            end
    end.

%% What was written is the socket's.
-spec done(#state{}) -> no_return().
done(State) ->
    _ = erlang:garbage_collect(),
    loop(State).

%% What fits into the room, the room that is left, and the rest.
fragment(Room, [Bin | Rest], Now) when byte_size(Bin) =< Room ->
    fragment(Room - byte_size(Bin), Rest, [Bin | Now]);
fragment(Room, [Bin | Rest], Now) when Room > 0 ->
    <<First:Room/binary, Left/binary>> = Bin,
    {0, lists:reverse(Now, [First]), [Left | Rest]};
fragment(Room, Rest, Now) ->
    {Room, lists:reverse(Now), Rest}.

-spec broken(term(), #state{}) -> no_return().
broken(Reason, #state{link = Link}) ->
    exit(Link, {write, Reason}),
    receive {'EXIT', Link, _} -> exit(normal) end.
