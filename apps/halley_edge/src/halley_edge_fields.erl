%% The fields of a frame, as halley_edge_codec reads them: each function checks one, or throws the
%% clause of protocol/link.md that it breaks, as `problem()'.
%%
%% Pure. The checks are those that concern a field by itself.
-module(halley_edge_fields).

-export([conn/1, cursor/1, flags/2, item/1, one_line/1, pairs/2, lower_case/1, is_metric_name/1]).
-export([close_reason/1, gap_reason/1, listener/1, metric_kind/1]).
-export([breaks/3, text/2]).
-export_type([conn/0, item/0, pairs/0, problem/0]).

-include("halley_edge.hrl").

-type conn() :: 0..16#ffffffffffff.
-type pairs() :: [{binary(), binary()}].
-type problem() :: {Clause :: binary(), What :: binary()}.
%% One event (2.2).
-type item() :: #{shard := 1..64, seq := non_neg_integer(), at := non_neg_integer(),
                  data_offset := non_neg_integer(), subject_offset := non_neg_integer(),
                  subject_bytes := non_neg_integer(), cursor := binary(), json := binary()}.

%% The first item of these bytes, and those behind it.
-spec item(binary()) -> {item(), Rest :: binary()}.
item(<<Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16, L1,
       Cursor:L1/binary, L2:32, Json:L2/binary, Rest/binary>>) ->
    Shard >= 1 andalso Shard =< ?SHARDS_MAX orelse breaks(<<"2.6">>, "shard ~b", [Shard]),
    DataOffset + 2 =< L2 orelse
        breaks(<<"7.1">>, "data_offset ~b in ~b bytes", [DataOffset, L2]),
    SubjectOffset + SubjectBytes =< L2 orelse
        breaks(<<"7.1">>, "~b bytes of subject at ~b in ~b", [SubjectBytes, SubjectOffset, L2]),
    Json = one_line(Json),
    {#{shard => Shard, seq => Seq, at => At, data_offset => DataOffset,
       subject_offset => SubjectOffset, subject_bytes => SubjectBytes, cursor => cursor(Cursor),
       json => Json}, Rest};
item(_) ->
    breaks(<<"2.3">>, "an item that ends too early", []).

%% A text without control characters.
-spec one_line(binary()) -> binary().
one_line(Json) ->
    is_one_line(Json) orelse breaks(<<"7.1">>, "a control character in an event", []),
    Json.

%% So many names with their values, and the bytes behind them.
-spec pairs(Count :: non_neg_integer(), binary()) -> {pairs(), Rest :: binary()}.
pairs(Count, List) ->
    pairs(Count, List, []).

pairs(0, Rest, Pairs) ->
    {lists:reverse(Pairs), Rest};
pairs(N, <<L1, Name:L1/binary, L2:16, Value:L2/binary, Rest/binary>>, Pairs) ->
    pairs(N - 1, Rest, [{Name, Value} | Pairs]);
pairs(_, _, _) ->
    breaks(<<"2.3">>, "a list that is shorter than its count", []).

-spec conn(non_neg_integer()) -> conn().
conn(Conn) when Conn < ?CONN_LIMIT -> Conn;
conn(Conn) -> breaks(<<"2.4">>, "connection id ~b", [Conn]).

%% Flags, of which there are these.
-spec flags(byte(), Known :: byte()) -> byte().
flags(Flags, Known) when Flags bor Known =:= Known -> Flags;
flags(Flags, _) -> breaks(<<"2.6">>, "flags ~b", [Flags]).

-spec close_reason(byte()) -> 1..8.
close_reason(Reason) when Reason >= 1, Reason =< 8 -> Reason;
close_reason(Reason) -> breaks(<<"2.8">>, "reason ~b of a CLOSE", [Reason]).

-spec gap_reason(binary()) -> binary().
gap_reason(Reason) when Reason =:= <<"too_old">>; Reason =:= <<"malformed">>;
                        Reason =:= <<"other_store">>; Reason =:= <<"damaged">> -> Reason;
gap_reason(_) -> breaks(<<"10.4">>, "an unknown reason of a GAP", []).

-spec cursor(binary()) -> binary().
cursor(Cursor) when byte_size(Cursor) =< ?CURSOR_BYTES_MAX ->
    is_cursor(Cursor) orelse
        breaks(<<"7.2">>, "a cursor of other characters than [A-Za-z0-9_-]", []),
    Cursor.

-spec listener(byte()) -> public | api.
listener(1) -> public;
listener(2) -> api;
listener(Listener) -> breaks(<<"2.6">>, "listener ~b", [Listener]).

-spec metric_kind(byte()) -> counter | gauge.
metric_kind(1) -> counter;
metric_kind(2) -> gauge;
metric_kind(Kind) -> breaks(<<"2.6">>, "metric kind ~b", [Kind]).

%% A header's name (8.2).
-spec lower_case({Name :: binary(), binary()}) -> true.
lower_case({Name, _}) ->
    is_lower_case(Name) orelse breaks(<<"8.2">>, "header name ~0tp", [Name]).

is_lower_case(<<C, Rest/binary>>) when C < $A; C > $Z -> is_lower_case(Rest);
is_lower_case(Rest) -> Rest =:= <<>>.

-spec is_metric_name(binary()) -> boolean().
is_metric_name(<<"halley_edge_", C, Rest/binary>>) -> is_metric_rest(<<C, Rest/binary>>);
is_metric_name(_) -> false.

is_metric_rest(<<C, Rest/binary>>) when C >= $a, C =< $z; C >= $0, C =< $9; C =:= $_ ->
    is_metric_rest(Rest);
is_metric_rest(Rest) ->
    Rest =:= <<>>.

is_cursor(<<C, Rest/binary>>) when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9;
                                   C =:= $_; C =:= $- -> is_cursor(Rest);
is_cursor(Rest) -> Rest =:= <<>>.

is_one_line(<<C, Rest/binary>>) when C >= $\s, C =/= 16#7f -> is_one_line(Rest);
is_one_line(Rest) -> Rest =:= <<>>.

-spec breaks(binary(), string(), [term()]) -> no_return().
breaks(Clause, Format, Args) ->
    throw({Clause, text(Format, Args)}).

-spec text(string(), [term()]) -> binary().
text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).
