%% The points of a ring, sorted, in two binaries that every process can read without a copy.
%%
%% `points' has eight bytes for each point: the point and the index of its server, both u32. They
%% are in ascending order; of equal points the one of the lower index comes first. `starts' divides
%% the ring into 2^bits equal parts and has for each part, and for the end, the position of the
%% first point that isn't before it. There are as many parts as points or more, so a search looks at
%% two points on average, whatever their number; should points crowd, it is a binary search.
%%
%% Invariant: there is a point.
%%
%% Pure. It knows neither names nor keys.
-module(ketama_table).

-export([pack/2, new/2, find/2, server/2, count/1, to_list/1]).
-export_type([table/0, packed/0]).

-record(table, {points :: binary(), starts :: binary(), shift :: 0..32, count :: pos_integer()}).

-opaque table() :: #table{}.
%% A point and the index of its server in one small integer: a list of them sorts faster than one of
%% tuples, and takes a third of the memory.
-opaque packed() :: non_neg_integer().

-define(U32_BITS, 32).
-define(INDEX_BITS, 24).
-define(INDEX_MASK, 16#FFFFFF).
%% 64 MiB of starts at most.
-define(PARTS_BITS_MAX, 24).

%% `Servers' has for each index, from 0, the one that stands in the table: where a server was named
%% twice, both have the first.
-spec new([packed(), ...], Servers :: tuple()) -> table().
new(Points, Servers) ->
    Sorted = lists:sort(Points),
    Count = length(Sorted),
    Shift = ?U32_BITS - parts_bits(Count, 0),
    #table{points = << <<(Packed bsr ?INDEX_BITS):32,
                         (element(Packed band ?INDEX_MASK + 1, Servers)):32>>
                       || Packed <- Sorted >>,
           starts = starts(Sorted, Shift), shift = Shift, count = Count}.

-spec pack(ketama_hash:u32(), Server :: 0..?INDEX_MASK) -> packed().
pack(Point, Server) -> Point bsl ?INDEX_BITS bor Server.

parts_bits(Count, Bits) when 1 bsl Bits >= Count; Bits =:= ?PARTS_BITS_MAX -> Bits;
parts_bits(Count, Bits) -> parts_bits(Count, Bits + 1).

starts(Sorted, Shift) ->
    Parts = 1 bsl (?U32_BITS - Shift),
    starts(Sorted, Shift + ?INDEX_BITS, Parts, 0, 0, <<>>).

%% `Next' is the first part whose start isn't known yet; `At' counts points.
starts([], _, Parts, At, Next, Starts) ->
    fill(Parts + 1 - Next, At, Starts);
starts([Packed | Rest], Shift, Parts, At, Next, Starts) ->
    Part = Packed bsr Shift,
    Filled = fill(Part + 1 - Next, At, Starts),
    starts(Rest, Shift, Parts, At + 1, max(Next, Part + 1), Filled).

fill(N, At, Starts) when N > 0 -> fill(N - 1, At, <<Starts/binary, At:32>>);
fill(_, _, Starts) -> Starts.

%% The position of the first point that isn't below the hash; past the last point it is the first.
-spec find(ketama_hash:u32(), table()) -> Position :: non_neg_integer().
find(Hash, #table{points = Points, starts = Starts, shift = Shift, count = Count}) ->
    Skip = (Hash bsr Shift) bsl 2,
    <<_:Skip/binary, From:32, To:32, _/binary>> = Starts,
    case search(Hash, Points, From, To) of
        Count -> 0;
        Position -> Position
    end.

search(_, _, To, To) ->
    To;
search(Hash, Points, From, To) ->
    Middle = (From + To) bsr 1,
    Skip = Middle bsl 3,
    <<_:Skip/binary, Point:32, _/binary>> = Points,
    case Point < Hash of
        true -> search(Hash, Points, Middle + 1, To);
        false -> search(Hash, Points, From, Middle)
    end.

%% The index of the server whose point is there.
-spec server(Position :: non_neg_integer(), table()) -> non_neg_integer().
server(Position, #table{points = Points}) ->
    Skip = Position bsl 3 + 4,
    <<_:Skip/binary, Server:32, _/binary>> = Points,
    Server.

-spec count(table()) -> pos_integer().
count(#table{count = Count}) -> Count.

%% All points in their order.
-spec to_list(table()) -> [{ketama_hash:u32(), Server :: non_neg_integer()}].
to_list(#table{points = Points}) ->
    [{Point, Server} || <<Point:32, Server:32>> <= Points].
