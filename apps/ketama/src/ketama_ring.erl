%% A ring: servers, their points, and who owns a key.
%%
%% A key belongs to the server of the first point that isn't below the key's hash; above the last
%% point it is the first. A server that is named twice is one server here, with the points of both.
%%
%% Invariants: a ring has a server and a point. It is never changed; all that is large in it are
%% binaries and a tuple, which a persistent term shares among processes.
%%
%% Pure. It doesn't find out whether a server lives.
-module(ketama_ring).

-export([new/2, without/2, owner/2, walk/4, server/2, weight/2, total/1, points/1,
         count/1, servers/1]).
-export_type([ring/0, index/0]).

-record(ring, {hash :: ketama_hash:hash(),
               names :: tuple(),                    %% of ketama_mode:server()
               weights :: tuple(),                  %% of pos_integer()
               total :: pos_integer(),              %% of the weights
               table :: ketama_table:table(),
               on_ring :: pos_integer(),            %% how many servers have a point
               off_ring :: [index()]}).             %% the others

-opaque ring() :: #ring{}.
%% Counts the names from 0.
-type index() :: non_neg_integer().

-spec new([{ketama_mode:server(), ketama_mode:weight()}], ketama_mode:options()) ->
    {ok, ring()} | {error, ketama_mode:reason()}.
new(Servers, Options) ->
    case ketama_mode:options(Options) of
        {ok, Mode, Hash} ->
            case ketama_mode:check(Mode, Servers) of
                {ok, Checked, Total} -> {ok, build(Mode, Hash, Checked, Total)};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

build(Mode, Hash, Servers, Total) ->
    Count = length(Servers),
    Indexed = lists:zip(lists:seq(0, Count - 1), Servers),
    Points = lists:foldl(fun({Index, {Name, Weight}}, Before) ->
        Hashes = ketama_mode:hashes(Mode, Weight, Total, Count),
        lists:foldl(fun(Point, Points) -> [ketama_table:pack(Point, Index) | Points] end,
                    Before, ketama_mode:points(Mode, Hash, Name, Hashes))
    end, [], Indexed),
    ring(Hash, Servers, Points).

ring(Hash, Servers, Points) ->
    {Distinct, Weights, Firsts} = distinct(Servers, #{}, [], #{}),
    Table = ketama_table:new(Points, list_to_tuple(Firsts)),
    OnRing = maps:from_list([{Index, on} || {_, Index} <- ketama_table:to_list(Table)]),
    All = lists:seq(0, length(Distinct) - 1),
    #ring{hash = Hash, names = list_to_tuple(Distinct), weights = list_to_tuple(Weights),
          total = lists:sum(Weights), table = Table, on_ring = map_size(OnRing),
          off_ring = [Index || Index <- All, not is_map_key(Index, OnRing)]}.

%% The names, their weights, and for each given server the index of its name.
distinct([], Indexes, Firsts, Weights) ->
    Names = [Name || {_, Name} <- lists:sort([{Index, Name} || {Name, Index}
                                                               <- maps:to_list(Indexes)])],
    {Names, [map_get(Name, Weights) || Name <- Names], lists:reverse(Firsts)};
distinct([{Name, Weight} | Rest], Indexes, Firsts, Weights) ->
    Index = maps:get(Name, Indexes, map_size(Indexes)),
    distinct(Rest, Indexes#{Name => Index}, [Index | Firsts],
             Weights#{Name => Weight + maps:get(Name, Weights, 0)}).

%% The ring without the points of some servers; all other points stay, so that no key moves but
%% those of the servers that went.
-spec without([ketama_mode:server()], ring()) -> {ok, ring()} | {error, no_servers}.
without(Gone, #ring{hash = Hash, table = Table} = Ring) ->
    IsGone = maps:from_list([{Name, gone} || Name <- Gone]),
    Kept = [{Index, Server} || {Index, {Name, _} = Server} <- indexed(Ring),
                               not is_map_key(Name, IsGone)],
    New = maps:from_list(lists:zip([Index || {Index, _} <- Kept], lists:seq(0, length(Kept) - 1))),
    Points = [ketama_table:pack(Point, map_get(Index, New))
              || {Point, Index} <- ketama_table:to_list(Table), is_map_key(Index, New)],
    case Points of
        [] -> {error, no_servers};
        _ -> {ok, ring(Hash, [Server || {_, Server} <- Kept], Points)}
    end.

indexed(#ring{names = Names} = Ring) ->
    lists:zip(lists:seq(0, tuple_size(Names) - 1), servers(Ring)).

-spec owner(binary(), ring()) -> ketama_mode:server().
owner(Key, #ring{hash = Hash, table = Table, names = Names}) ->
    Position = ketama_table:find(ketama_hash:key(Hash, Key), Table),
    element(ketama_table:server(Position, Table) + 1, Names).

%% Visits each server once, in the order in which the ring has them from the key on, and then those
%% that have no point; ends when the fun says `{stop, Acc}'.
-spec walk(fun((index(), Acc) -> {next | stop, Acc}), Acc, binary(), ring()) -> Acc.
walk(Fun, Acc, Key, #ring{hash = Hash, table = Table} = Ring) ->
    walk(Fun, Acc, ketama_table:find(ketama_hash:key(Hash, Key), Table), #{}, Ring).

walk(Fun, Acc, _, Seen, #ring{on_ring = OnRing, off_ring = OffRing})
        when map_size(Seen) =:= OnRing ->
    rest(Fun, Acc, OffRing);
walk(Fun, Acc, Position, Seen, #ring{table = Table} = Ring) ->
    Index = ketama_table:server(Position, Table),
    Next = (Position + 1) rem ketama_table:count(Table),
    case is_map_key(Index, Seen) of
        true ->
            walk(Fun, Acc, Next, Seen, Ring);
        false ->
            case Fun(Index, Acc) of
                {stop, Last} -> Last;
                {next, New} -> walk(Fun, New, Next, Seen#{Index => seen}, Ring)
            end
    end.

rest(_, Acc, []) ->
    Acc;
rest(Fun, Acc, [Index | Rest]) ->
    case Fun(Index, Acc) of
        {stop, Last} -> Last;
        {next, New} -> rest(Fun, New, Rest)
    end.

-spec server(index(), ring()) -> ketama_mode:server().
server(Index, #ring{names = Names}) -> element(Index + 1, Names).

-spec weight(index(), ring()) -> pos_integer().
weight(Index, #ring{weights = Weights}) -> element(Index + 1, Weights).

%% Of all weights.
-spec total(ring()) -> pos_integer().
total(#ring{total = Total}) -> Total.

%% In ascending order.
-spec points(ring()) -> [{ketama_hash:u32(), ketama_mode:server()}].
points(#ring{table = Table} = Ring) ->
    [{Point, server(Index, Ring)} || {Point, Index} <- ketama_table:to_list(Table)].

%% Of points.
-spec count(ring()) -> pos_integer().
count(#ring{table = Table}) -> ketama_table:count(Table).

%% In the order in which they were given.
-spec servers(ring()) -> [{ketama_mode:server(), pos_integer()}].
servers(#ring{names = Names, weights = Weights}) ->
    lists:zip(tuple_to_list(Names), tuple_to_list(Weights)).
