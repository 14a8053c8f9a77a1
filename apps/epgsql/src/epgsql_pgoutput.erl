%% The messages of the plugin `pgoutput' in a logical replication stream, as maps: `proto_version' 1
%% and 2, with parts of large transactions before they are committed.
%%
%% Pure. The state is whether a part of such a transaction is coming, as messages name their
%% transaction only then. Bytes of a server are input: what the protocol doesn't allow is
%% `error({malformed, pgoutput})', and no atom is made of it.
%%
%% Cells are as they were sent: text unless the option `binary' is set. `row/2' names them by a
%% relation, which its receiver keeps: it comes before the first change of its table, and again when
%% the table was altered.
%%
%% PostgreSQL's documentation, "Logical Replication Message Formats".
-module(epgsql_pgoutput).

-include("protocol.hrl").

-export([new/0, decode/2, row/2]).

-export_type([state/0, message/0, relation/0, cell/0, oid/0]).

-opaque state() :: whole | streamed.
-type oid() :: non_neg_integer().
-type lsn() :: non_neg_integer().
-type xid() :: non_neg_integer().
%% `unchanged': a large value that the update left as it was, and that isn't sent.
-type cell() :: null | unchanged | binary() | {binary, binary()}.
-type relation() :: #{type := relation, oid := oid(), schema := binary(), name := binary(),
                      identity := default | nothing | full | index,
                      columns := [#{name := binary(), type := oid(), modifier := integer(),
                                    is_key := boolean()}],
                      xid => xid()}.
%% `old' of an update or a delete is what the table's replica identity says: nothing, the key's
%% cells with null in place of the others, or the whole row. Times are microseconds since 2000.
-type message() ::
    #{type := 'begin', final_lsn := lsn(), time := integer(), xid := xid()}
  | #{type := commit, lsn := lsn(), end_lsn := lsn(), time := integer()}
  | #{type := origin, lsn := lsn(), name := binary()}
  | relation()
  | #{type := type, oid := oid(), schema := binary(), name := binary(), xid => xid()}
  | #{type := insert, relation := oid(), new := [cell()], xid => xid()}
  | #{type := update, relation := oid(), old := none | {key | full, [cell()]}, new := [cell()],
      xid => xid()}
  | #{type := delete, relation := oid(), old := {key | full, [cell()]}, xid => xid()}
  | #{type := truncate, relations := [oid()], cascade := boolean(), restart_identity := boolean(),
      xid => xid()}
  | #{type := message, is_transactional := boolean(), lsn := lsn(), prefix := binary(),
      content := binary(), xid => xid()}
  | #{type := stream_start, xid := xid(), is_first := boolean()}
  | #{type := stream_stop}
  | #{type := stream_commit, xid := xid(), lsn := lsn(), end_lsn := lsn(), time := integer()}
  | #{type := stream_abort, xid := xid(), subxid := xid()}.

%% At the beginning of a stream.
-spec new() -> state().
new() -> whole.

%% The data of one `x_log_data'.
-spec decode(binary(), state()) -> {message(), state()}.
decode(<<$S, Xid:32, First>>, whole) when First =< 1 ->
    {#{type => stream_start, xid => Xid, is_first => First =:= 1}, streamed};
decode(<<$E>>, streamed) ->
    {#{type => stream_stop}, whole};
decode(<<Type, Xid:32, Rest/binary>>, streamed) when Type =:= $R; Type =:= $Y; Type =:= $I;
                                                     Type =:= $U; Type =:= $D; Type =:= $T;
                                                     Type =:= $M ->
    {(change(Type, Rest))#{xid => Xid}, streamed};
decode(<<Type, Rest/binary>>, State) ->
    {change(Type, Rest), State};
decode(<<>>, _) ->
    malformed().

change($B, <<Lsn:64, Time:?int64, Xid:32>>) ->
    #{type => 'begin', final_lsn => Lsn, time => Time, xid => Xid};
change($C, <<0, Lsn:64, End:64, Time:?int64>>) ->
    #{type => commit, lsn => Lsn, end_lsn => End, time => Time};
change($I, <<Oid:32, $N, Tuple/binary>>) ->
    #{type => insert, relation => Oid, new => only(tuple(Tuple))};
change($U, <<Oid:32, $N, Tuple/binary>>) ->
    #{type => update, relation => Oid, old => none, new => only(tuple(Tuple))};
change($U, <<Oid:32, Kind, Tuples/binary>>) ->
    case tuple(Tuples) of
        {Old, <<$N, New/binary>>} ->
            #{type => update, relation => Oid, old => {old(Kind), Old}, new => only(tuple(New))};
        _ -> malformed()
    end;
change($D, <<Oid:32, Kind, Tuple/binary>>) ->
    #{type => delete, relation => Oid, old => {old(Kind), only(tuple(Tuple))}};
change($T, <<Count:32, Options, Oids/binary>>) when byte_size(Oids) =:= Count * 4 ->
    #{type => truncate, relations => [Oid || <<Oid:32>> <= Oids],
      cascade => Options band 1 =/= 0, restart_identity => Options band 2 =/= 0};
change($M, <<Flags, Lsn:64, Rest/binary>>) when Flags =< 1 ->
    case string(Rest) of
        {Prefix, <<Size:32, Content:Size/binary>>} ->
            #{type => message, is_transactional => Flags =:= 1, lsn => Lsn, prefix => Prefix,
              content => Content};
        _ -> malformed()
    end;
change($R, <<Oid:32, Rest/binary>>) ->
    {Schema, Rest1} = string(Rest),
    case string(Rest1) of
        {Name, <<Identity, Count:16, Columns/binary>>} ->
            #{type => relation, oid => Oid, schema => schema(Schema), name => Name,
              identity => identity(Identity), columns => columns(Count, Columns)};
        _ -> malformed()
    end;
change($Y, <<Oid:32, Rest/binary>>) ->
    {Schema, Rest1} = string(Rest),
    #{type => type, oid => Oid, schema => schema(Schema), name => only(string(Rest1))};
change($O, <<Lsn:64, Rest/binary>>) ->
    #{type => origin, lsn => Lsn, name => only(string(Rest))};
change($c, <<Xid:32, 0, Lsn:64, End:64, Time:?int64>>) ->
    #{type => stream_commit, xid => Xid, lsn => Lsn, end_lsn => End, time => Time};
change($A, <<Xid:32, SubXid:32>>) ->
    #{type => stream_abort, xid => Xid, subxid => SubXid};
change(_, _) ->
    malformed().

%% `pg_catalog' comes as nothing.
schema(<<>>) -> <<"pg_catalog">>;
schema(Name) -> Name.

old($K) -> key;
old($O) -> full;
old(_) -> malformed().

identity($d) -> default;
identity($n) -> nothing;
identity($f) -> full;
identity($i) -> index;
identity(_) -> malformed().

columns(0, <<>>) -> [];
columns(Count, <<Flags, Rest/binary>>) when Count > 0, Flags =< 1 ->
    case string(Rest) of
        {Name, <<Oid:32, Modifier:?int32, More/binary>>} ->
            [#{name => Name, type => Oid, modifier => Modifier, is_key => Flags =:= 1}
             | columns(Count - 1, More)];
        _ -> malformed()
    end;
columns(_, _) -> malformed().

tuple(<<Count:16, Cells/binary>>) -> cells(Count, Cells, []);
tuple(_) -> malformed().

cells(0, Rest, Acc) -> {lists:reverse(Acc), Rest};
cells(Count, <<$t, Size:32, Text:Size/binary, Rest/binary>>, Acc) ->
    cells(Count - 1, Rest, [Text | Acc]);
cells(Count, <<$n, Rest/binary>>, Acc) ->
    cells(Count - 1, Rest, [null | Acc]);
cells(Count, <<$u, Rest/binary>>, Acc) ->
    cells(Count - 1, Rest, [unchanged | Acc]);
cells(Count, <<$b, Size:32, Bytes:Size/binary, Rest/binary>>, Acc) ->
    cells(Count - 1, Rest, [{binary, Bytes} | Acc]);
cells(_, _, _) -> malformed().

only({Value, <<>>}) -> Value;
only(_) -> malformed().

string(Bin) ->
    case binary:split(Bin, <<0>>) of
        [String, Rest] -> {String, Rest};
        [_] -> malformed()
    end.

-spec malformed() -> no_return().
malformed() -> error({malformed, pgoutput}).

%% The cells of a change by their columns' names.
-spec row(relation(), [cell()]) -> #{binary() => cell()}.
row(#{columns := Columns}, Cells) when length(Columns) =:= length(Cells) ->
    maps:from_list([{Name, Cell} || {#{name := Name}, Cell} <- lists:zip(Columns, Cells)]);
row(_, _) ->
    malformed().
