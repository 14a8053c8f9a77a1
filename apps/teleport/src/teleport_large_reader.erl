%% The reading end of a lane's connection for large elements. Each part of an element is received
%% into a binary of its own, and copied only if it came in several fragments.
%%
%% Small messages go before: it has a low priority.
%%
%% An element is delivered when the lane's small elements before it have been: the reader then looks
%% at `seen' every millisecond. Its memory is that of two elements of `message_bytes_max' at most;
%% a peer that announces more breaks the protocol.
-module(teleport_large_reader).

-export([start_link/1]).
-export([init/2]).

-include("teleport.hrl").

-define(PARTIAL_MAX, 2).
-define(PARTS_MAX, 1024).
-define(WAIT_MS, 1).

%% `need': sizes of the parts that aren't whole, the first less what `have' holds of it.
-record(item, {'after' :: non_neg_integer(), need :: [non_neg_integer()], have = [] :: [binary()],
               parts = [] :: [binary()]}).

-spec start_link(teleport_reader:args()) -> pid().
start_link(Args) -> spawn_opt(?MODULE, init, [self(), Args], [link]).

-spec init(pid(), teleport_reader:args()) -> no_return().
init(Link, Args) ->
    process_flag(priority, low),
    receive
        {go, Socket} -> loop(#{}, Socket, Args#{link => Link})
    end.

-spec loop(#{pos_integer() => #item{}}, teleport_socket:socket(), map()) -> no_return().
loop(Items, Socket, Args) ->
    case recv(1, Socket) of
        <<1>> -> loop(start(Items, Socket, Args), Socket, Args);
        <<2>> -> loop(fragment(Items, Socket, Args), Socket, Args);
        _ -> exit(malformed)
    end.

start(Items, Socket, #{bytes_max := Max}) ->
    <<Id:64, After:64, Rest:64, Count:16>> = recv(26, Socket),
    Sizes = [Size || Count > 0, Count =< ?PARTS_MAX, <<Size:64>> <= recv(8 * Count, Socket)],
    IsGood = length(Sizes) =:= Count andalso lists:sum([Rest | Sizes]) =< Max
        andalso map_size(Items) < ?PARTIAL_MAX andalso not is_map_key(Id, Items) andalso Rest > 0,
    case IsGood of
        true -> Items#{Id => #item{'after' = After, need = [Rest | Sizes]}};
        false -> exit(malformed)
    end.

fragment(Items, Socket, Args) ->
    <<Id:64, Bytes:64>> = recv(16, Socket),
    case Items of
        #{Id := Item} ->
            case read(Bytes, Item, Socket) of
                #item{need = []} = Whole ->
                    deliver(Whole, Args),
                    #{link := Link, number := Number} = Args,
                    Link ! {done, Number, Id},
                    %% Its parts are the receiver's from here on.
                    _ = erlang:garbage_collect(),
                    maps:remove(Id, Items);
                Partial ->
                    Items#{Id := Partial}
            end;
        _ -> exit(malformed)
    end.

read(0, Item, _) ->
    Item;
read(Bytes, #item{need = [Need | Later], have = Have, parts = Parts} = Item, Socket) ->
    case min(Bytes, Need) of
        Need ->
            Part = part([recv(Need, Socket) | Have]),
            read(Bytes - Need, Item#item{need = Later, have = [], parts = [Part | Parts]}, Socket);
        Some ->
            read(Bytes - Some, Item#item{need = [Need - Some | Later],
                                         have = [recv(Some, Socket) | Have]}, Socket)
    end;
read(_, #item{need = []}, _) ->
    exit(malformed).

part([Whole]) -> Whole;
part(Pieces) -> iolist_to_binary(lists:reverse(Pieces)).

deliver(#item{'after' = After, parts = Parts},
        #{node := Peer, number := Number, seen := Seen, stats := Stats} = Args) ->
    [Rest | Cut] = lists:reverse(Parts),
    Element = case teleport_large:decode(Rest, Cut, Peer) of
        {ok, Decoded} -> Decoded;
        {refused, _} = Refused -> Refused;
        {error, Reason} -> exit(Reason)
    end,
    wait(Seen, Number, After),
    ok = teleport_reader:deliver(Element, Args),
    ok = atomics:add(Stats, ?RECEIVED, 1).

wait(Seen, Number, After) ->
    case atomics:get(Seen, Number) >= After of
        true -> ok;
        false -> timer:sleep(?WAIT_MS), wait(Seen, Number, After)
    end.

recv(0, _) ->
    <<>>;
recv(Bytes, Socket) ->
    case teleport_socket:recv(Socket, Bytes, infinity) of
        {ok, Data} -> Data;
        {error, Reason} -> exit({read, Reason})
    end.
