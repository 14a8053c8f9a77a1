%% A large element as bytes: its large binaries as they are, and the rest in the external term
%% format with a note of where they belong. So a large binary is copied on neither side by us: the
%% socket takes it as it is, and it is read into a binary of its own.
%%
%% Binaries from ?CUT_BYTES on are taken out of tuples, lists and maps, as far as ?CELLS_MAX cells
%% are looked at; what isn't found stays in the rest.
-module(teleport_large).

-export([encode/1, decode/3, bytes/1]).
-export_type([encoded/0]).

-type encoded() :: {Rest :: [binary()], Cut :: [binary()]}.
%% Where binaries were: at this place, in elements of a tuple, in head or tail, in values of a map.
-type hole() :: none | hole | {tuple, [{pos_integer(), hole()}]} | {cons, hole(), hole()}
              | {map, [{term(), hole()}]}.

-define(CUT_BYTES, 32768).
-define(CELLS_MAX, 1000).

-spec encode(teleport_codec:element()) -> encoded().
encode(Element) ->
    {Rest, Hole, Cut, _} = cut(Element, [], ?CELLS_MAX),
    {teleport_codec:encode([Rest, Hole]), lists:reverse(Cut)}.

-spec bytes(encoded()) -> non_neg_integer().
bytes({Rest, Cut}) -> iolist_size(Rest) + iolist_size(Cut).

%% The element from its rest and the binaries that were cut out.
-spec decode(Rest :: binary(), Cut :: [binary()], Peer :: node()) ->
    {ok, teleport_codec:element()} | {refused, teleport_codec:refused()} | {error, malformed}.
decode(Rest, Cut, Peer) ->
    case teleport_codec:decode(Rest, Peer) of
        {ok, [{refused, Refused}, _]} ->
            {refused, Refused};
        {ok, [Element, Hole]} ->
            try fill(Element, Hole, Cut) of
                {Filled, []} -> {ok, Filled};
                _ -> {error, malformed}
            catch
                error:_ -> {error, malformed}
            end;
        _ ->
            {error, malformed}
    end.

%% --- out ---------------------------------------------------------------------------------------

cut(Bin, Cut, Cells) when is_binary(Bin), byte_size(Bin) >= ?CUT_BYTES ->
    {<<>>, hole, [Bin | Cut], Cells};
cut(T, Cut, Cells) when Cells > 0, is_tuple(T) ->
    cut_tuple(1, T, [], Cut, Cells - 1);
cut([Head | Tail], Cut, Cells) when Cells > 0 ->
    {Head1, HoleHead, Cut1, Cells1} = cut(Head, Cut, Cells - 1),
    {Tail1, HoleTail, Cut2, Cells2} = cut(Tail, Cut1, Cells1),
    case {HoleHead, HoleTail} of
        {none, none} -> {[Head | Tail], none, Cut2, Cells2};
        _ -> {[Head1 | Tail1], {cons, HoleHead, HoleTail}, Cut2, Cells2}
    end;
cut(T, Cut, Cells) when Cells > 0, is_map(T), map_size(T) =< Cells ->
    cut_map(maps:to_list(T), T, [], Cut, Cells - 1);
cut(T, Cut, Cells) ->
    {T, none, Cut, Cells}.

cut_tuple(N, T, Holes, Cut, Cells) when N > tuple_size(T); Cells =< 0 ->
    {T, holes(tuple, Holes), Cut, Cells};
cut_tuple(N, T, Holes, Cut, Cells) ->
    case cut(element(N, T), Cut, Cells - 1) of
        {_, none, Cut, Cells1} ->
            cut_tuple(N + 1, T, Holes, Cut, Cells1);
        {Value, Hole, Cut1, Cells1} ->
            cut_tuple(N + 1, setelement(N, T, Value), [{N, Hole} | Holes], Cut1, Cells1)
    end.

cut_map([{Key, Value} | Rest], T, Holes, Cut, Cells) ->
    case cut(Value, Cut, Cells - 1) of
        {_, none, Cut, Cells1} ->
            cut_map(Rest, T, Holes, Cut, Cells1);
        {Value1, Hole, Cut1, Cells1} ->
            cut_map(Rest, T#{Key := Value1}, [{Key, Hole} | Holes], Cut1, Cells1)
    end;
cut_map([], T, Holes, Cut, Cells) ->
    {T, holes(map, Holes), Cut, Cells}.

holes(_, []) -> none;
holes(What, Holes) -> {What, lists:reverse(Holes)}.

%% --- back; what doesn't fit is an error of any kind ----------------------------------------------

-spec fill(term(), hole(), [binary()]) -> {term(), [binary()]}.
fill(T, none, Cut) -> {T, Cut};
fill(<<>>, hole, [Bin | Cut]) -> {Bin, Cut};
fill([Head | Tail], {cons, HoleHead, HoleTail}, Cut) ->
    {Head1, Cut1} = fill(Head, HoleHead, Cut),
    {Tail1, Cut2} = fill(Tail, HoleTail, Cut1),
    {[Head1 | Tail1], Cut2};
fill(T, {tuple, Holes}, Cut) when is_tuple(T) ->
    lists:foldl(fun({N, Hole}, {Acc, Left}) ->
        {Value, Left1} = fill(element(N, Acc), Hole, Left),
        {setelement(N, Acc, Value), Left1}
    end, {T, Cut}, Holes);
fill(T, {map, Holes}, Cut) when is_map(T) ->
    lists:foldl(fun({Key, Hole}, {Acc, Left}) ->
        {Value, Left1} = fill(map_get(Key, Acc), Hole, Left),
        {Acc#{Key := Value}, Left1}
    end, {T, Cut}, Holes).
