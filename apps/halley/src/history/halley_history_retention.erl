%% Which segments go, by age and by bytes. Pure.
%%
%% Whole segments go, from the oldest on. A segment's age is that of its newest record, by a clock
%% that doesn't jump, so nothing goes before its time because of it; bytes come before age.
-module(halley_history_retention).

-export([split/3, segment_bytes_max/2, segment_ms_max/1, merge/2, above/2]).
-export_type([segment/0, rule/0]).

-type segment() :: #{number := halley_history_segment:number_(),
                     base := non_neg_integer(),           % no seq in the segments before is higher
                     bytes := non_neg_integer(), events := non_neg_integer(),
                     first_at := integer() | none,        % when its first event was published
                     last_at := integer() | none,
                     began_ms := integer(),               % monotonic
                     ended_ms := integer() | unknown}.    % monotonic, of its newest record
-type rule() :: #{retention_ms := pos_integer(), bytes_max := pos_integer(),
                  now_ms := integer()}.

%% Segments per retention: what is kept beyond it is at most one of them.
-define(GRAIN, 8).
-define(SEGMENT_BYTES_MIN, 65536).
-define(SEGMENT_BYTES_MAX, (1 bsl 31)).
-define(RANGES_MAX, 256).

%% The segments that go and those that stay, both oldest first; `Bytes' are those of the segment
%% that is written to, which always stays.
-spec split([segment()], Bytes :: non_neg_integer(), rule()) -> {[segment()], [segment()]}.
split(Segments, Bytes, Rule) ->
    Total = lists:foldl(fun(#{bytes := B}, Sum) -> Sum + B end, Bytes, Segments),
    split(Segments, Total, Rule, []).

split([#{bytes := Bytes, ended_ms := EndedMs} = Segment | Segments], Total,
      #{retention_ms := RetentionMs, bytes_max := BytesMax, now_ms := NowMs} = Rule, Gone)
  when Total > BytesMax; is_integer(EndedMs), NowMs - EndedMs > RetentionMs ->
    split(Segments, Total - Bytes, Rule, [Segment | Gone]);
split(Segments, _, _, Gone) ->
    {lists:reverse(Gone), Segments}.

%% A segment that would be larger is left.
-spec segment_bytes_max(Configured :: pos_integer(), HistoryBytes :: pos_integer()) ->
    pos_integer().
segment_bytes_max(Configured, HistoryBytes) ->
    max(?SEGMENT_BYTES_MIN, lists:min([Configured, HistoryBytes div ?GRAIN, ?SEGMENT_BYTES_MAX])).

%% A segment that is older is left.
-spec segment_ms_max(RetentionMs :: pos_integer()) -> pos_integer().
segment_ms_max(RetentionMs) -> max(1, RetentionMs div ?GRAIN).

%% Adds a range. Beyond ?RANGES_MAX the two oldest become one that covers both: a gap may then be
%% told where none is, never the other way.
-spec merge(halley_history:range(), [halley_history:range()]) -> [halley_history:range()].
merge(Range, Ranges) ->
    shorten(join(lists:usort([Range | Ranges]))).

join([{From1, To1, FromMs1, ToMs1}, {From2, To2, _, ToMs2} | Ranges]) when From2 =< To1 + 1 ->
    join([{From1, max(To1, To2), FromMs1, max(ToMs1, ToMs2)} | Ranges]);
join([Range | Ranges]) -> [Range | join(Ranges)];
join([]) -> [].

shorten([{From, _, FromMs, _}, {_, To, _, ToMs} | Ranges] = All)
  when length(All) > ?RANGES_MAX ->
    shorten([{From, To, FromMs, ToMs} | Ranges]);
shorten(Ranges) ->
    Ranges.

%% The ranges that are not wholly below the floor.
-spec above(Floor :: non_neg_integer(), [halley_history:range()]) -> [halley_history:range()].
above(Floor, Ranges) -> [Range || {_, To, _, _} = Range <- Ranges, To > Floor].
