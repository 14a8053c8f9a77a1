%% The retained part, as readers see it: floor and sizes in `halley_history_atomics', and the index.
%%
%% The floor is the base of the oldest segment: no record before it has a higher seq. It rises
%% before a segment is deleted, so a reader that misses a record then sees why. Called by
%% `halley_history_disk' alone.
-module(halley_history_floor).

-export([last/1, segment/3, split/2, segment_bytes_max/0, segment_ms_max/0]).
-export([at_start/1, raise/2, grown/2, first_at/2, sum/2]).

%% What stands for the segment before the first.
-spec last([halley_history_retention:segment()]) -> halley_history_retention:segment().
last([]) -> segment(0, 0, 0);
last(Segments) -> lists:last(Segments).

%% A segment that begins now.
-spec segment(halley_history_segment:number_(), Base :: non_neg_integer(),
              Bytes :: non_neg_integer()) -> halley_history_retention:segment().
segment(Number, Base, Bytes) ->
    NowMs = erlang:monotonic_time(millisecond),
    #{number => Number, base => Base, bytes => Bytes, events => 0, first_at => none,
      last_at => none, began_ms => NowMs, ended_ms => NowMs}.

%% Which segments go and which stay, by what is configured (`halley_history_retention:split/3').
-spec split([halley_history_retention:segment()], Bytes :: non_neg_integer()) ->
    {[halley_history_retention:segment()], [halley_history_retention:segment()]}.
split(Segments, Bytes) ->
    Rule = #{retention_ms => retention_ms(), bytes_max => bytes_max(),
             now_ms => erlang:monotonic_time(millisecond)},
    halley_history_retention:split(Segments, Bytes, Rule).

-spec segment_bytes_max() -> pos_integer().
segment_bytes_max() ->
    halley_history_retention:segment_bytes_max(halley_limits:get(history_segment_bytes),
                                               bytes_max()).

-spec segment_ms_max() -> pos_integer().
segment_ms_max() -> halley_history_retention:segment_ms_max(retention_ms()).

retention_ms() -> application:get_env(halley, history_retention_ms, 600000).
bytes_max() -> application:get_env(halley, history_bytes, 4 bsl 30).

%% What was dropped by the brain before is older than what is here, and by how much isn't known.
-spec at_start([halley_history_retention:segment(), ...]) -> ok.
at_start([#{base := Base} | _] = Segments) ->
    Times = [At || #{first_at := At} <- Segments, At =/= none]
        ++ [halley_clock:wall_ms()],
    halley_history_atomics:put(floor_at, case Base of 0 -> 0; _ -> hd(Times) end).

-spec raise(Gone :: [halley_history_retention:segment()],
            Retained :: [halley_history_retention:segment(), ...]) -> ok.
raise(Gone, [#{base := Base, number := Number} | _] = Segments) ->
    Floor = max(Base, halley_history_atomics:get(floor)),
    ok = halley_history_atomics:put(floor, Floor),
    ok = halley_history_atomics:put(oldest_segment, Number),
    Oldest = [At || #{first_at := At} <- Segments, At =/= none],
    ok = halley_history_atomics:put(oldest_at, hd(Oldest ++ [0])),
    ok = halley_history_atomics:add(events, -sum(events, Gone)),
    ok = halley_history_atomics:add(bytes, -sum(bytes, Gone)),
    Damaged = halley_history_index:damaged(),
    Above = halley_history_retention:above(Floor, Damaged),
    %% What was lost may be newer than the newest event that is gone.
    GoneAt = [At || #{last_at := At} <- Gone, At =/= none]
        ++ [ToMs || {_, _, _, ToMs} <- Damaged -- Above],
    _ = [halley_history_atomics:put(floor_at, lists:max(GoneAt)) || GoneAt =/= []],
    Above =:= Damaged orelse halley_history_index:set_damaged(Above),
    ok = halley_history_forgotten:drop_below(Floor),
    halley_history_index:drop_below(Floor).

%% So many events were written, with so many bytes.
-spec grown(Events :: non_neg_integer(), Bytes :: non_neg_integer()) -> ok.
grown(Events, Bytes) ->
    ok = halley_history_atomics:add(events, Events),
    halley_history_atomics:add(bytes, Bytes).

%% An event of this time was written behind these segments.
-spec first_at(integer(), [halley_history_retention:segment()]) -> ok.
first_at(At, Segments) ->
    case [First || #{first_at := First} <- Segments, First =/= none] of
        [] -> halley_history_atomics:put(oldest_at, At);
        _ -> ok
    end.

-spec sum(events | bytes, [halley_history_retention:segment()]) -> non_neg_integer().
sum(Key, Segments) -> lists:sum([map_get(Key, Segment) || Segment <- Segments]).
