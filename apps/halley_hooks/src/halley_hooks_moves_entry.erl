%% Codec of the files of `halley_hooks_moves' (docs/internals/hooks.md, "Files"), in the frames of
%% the queue's records. Bytes in, bytes out; any bytes give an answer, none a crash.
%%
%% Times are stamps (`halley_history_clock'), so a clock that was set since changes none of them. A
%% move has its wall-clock time, the stamp of the moment when it was written, and the last seq that
%% was drawn.
-module(halley_hooks_moves_entry).

-export([encode/1, decode/1]).
-export_type([entry/0, move/0]).

-type stamp() :: halley_history_clock:stamp().
-type move() :: {WallMs :: integer(), halley_history:seq(), halley_id:id(),
                 halley_hooked_moves:what()}.
%% `header': begins a file: the store of the history that cursors are of.
%% `there', `whole': users who were there at that time, in parts, and that these are all.
%% `began': a brain began, behind this seq; up to the first stamp the one before had written what
%% happened.
%% `doubt': in between nobody knew who is there.
%% `lost': what happened from then on had no room.
-type entry() :: {header, Store :: non_neg_integer(), stamp()}
               | {there, [halley_id:id()]}
               | {whole, stamp()}
               | {moves, stamp(), [move()]}
               | {began, stamp(), stamp(), halley_history:seq()}
               | {doubt, stamp(), stamp()}
               | {lost, stamp(), WallMs :: integer()}.

-define(STAMP_BYTES, 20).
-define(SHARDS, 8).

-spec encode(entry()) -> iodata().
encode(Entry) -> halley_hooks_entry:framed(iolist_to_binary(body(Entry))).

body({header, Store, Stamp}) -> [<<20, Store:32>>, packed(Stamp)];
body({there, Ids}) -> [<<21, (length(Ids)):16>> | [text(Id) || Id <- Ids]];
body({whole, Stamp}) -> [22, packed(Stamp)];
body({moves, Stamp, Moves}) ->
    [23, packed(Stamp), <<(length(Moves)):16>>
     | [[<<WallMs:64, Drawn:64>>, what(What), text(Id)] || {WallMs, Drawn, Id, What} <- Moves]];
body({began, From, To, Drawn}) -> [24, packed(From), packed(To), <<Drawn:64>>];
body({doubt, From, To}) -> [25, packed(From), packed(To)];
body({lost, Stamp, WallMs}) -> [26, packed(Stamp), <<WallMs:64>>].

packed(Stamp) -> halley_history_clock:pack(Stamp).

text(Id) -> [byte_size(Id), Id].

what(left) -> 1;
what(came) -> 2;
what(synced) -> 3;
what({caught, Vector}) -> [4 | [<<Seq:64>> || Seq <- tuple_to_list(Vector)]].

%% The record at the beginning of the bytes. `more': it isn't all there.
-spec decode(binary()) -> {ok, entry(), Bytes :: pos_integer()} | more | damaged.
decode(Bytes) ->
    case halley_hooks_entry:unframed(Bytes) of
        {ok, Body, Size} ->
            case read(Body) of
                damaged -> damaged;
                Entry -> {ok, Entry, Size}
            end;
        Other -> Other
    end.

read(<<20, Store:32, Stamp:?STAMP_BYTES/binary>>) -> {header, Store, unpacked(Stamp)};
read(<<21, Count:16, Rest/binary>>) ->
    case ids(Count, Rest, []) of
        damaged -> damaged;
        Ids -> {there, Ids}
    end;
read(<<22, Stamp:?STAMP_BYTES/binary>>) -> {whole, unpacked(Stamp)};
read(<<23, Stamp:?STAMP_BYTES/binary, Count:16, Rest/binary>>) ->
    case moves(Count, Rest, []) of
        damaged -> damaged;
        Moves -> {moves, unpacked(Stamp), Moves}
    end;
read(<<24, From:?STAMP_BYTES/binary, To:?STAMP_BYTES/binary, Drawn:64>>) ->
    {began, unpacked(From), unpacked(To), Drawn};
read(<<25, From:?STAMP_BYTES/binary, To:?STAMP_BYTES/binary>>) ->
    {doubt, unpacked(From), unpacked(To)};
read(<<26, Stamp:?STAMP_BYTES/binary, WallMs:64/signed>>) -> {lost, unpacked(Stamp), WallMs};
read(_) -> damaged.

unpacked(Bytes) -> halley_history_clock:unpack(Bytes).

ids(0, <<>>, Ids) -> lists:reverse(Ids);
ids(Left, <<Bytes, Id:Bytes/binary, Rest/binary>>, Ids) when Left > 0, Bytes > 0 ->
    ids(Left - 1, Rest, [binary:copy(Id) | Ids]);
ids(_, _, _) -> damaged.

moves(0, <<>>, Moves) -> lists:reverse(Moves);
moves(Left, <<WallMs:64/signed, Drawn:64, 4, Seqs:(8 * ?SHARDS)/binary, Bytes, Id:Bytes/binary,
              Rest/binary>>, Moves) when Left > 0, Bytes > 0 ->
    Vector = list_to_tuple([Seq || <<Seq:64>> <= Seqs]),
    moves(Left - 1, Rest, [{WallMs, Drawn, binary:copy(Id), {caught, Vector}} | Moves]);
moves(Left, <<WallMs:64/signed, Drawn:64, What, Bytes, Id:Bytes/binary, Rest/binary>>, Moves)
  when Left > 0, Bytes > 0, What >= 1, What =< 3 ->
    Move = {WallMs, Drawn, binary:copy(Id), element(What, {left, came, synced})},
    moves(Left - 1, Rest, [Move | Moves]);
moves(_, _, _) -> damaged.
