%% The latest value of subjects, kept beyond the retention (docs/internals/history.md, "Kept
%% values").
%%
%% A kept value is an event that was published with `keep'. It is in the log, as any event, and
%% here: a row for each subject, with the event's text, in memory. Before retention takes the
%% segment that a value's newest record is in, the log's process writes the value again, at the end
%% of the log, as a record of its own kind that no replay and no page finds. So what is kept is
%% always in the segments: it survives what they survive, and a copy of them has it.
%%
%% Invariants: only the log's process writes. A row names the segment of the value's newest record
%% that is on disk for certain; 0 if that is in doubt. No segment with such a record is deleted
%% (`is_free/1'). In the order of the log the last record about a subject says what is kept, or that
%% nothing is.
%%
%% It is bounded by `kept_bytes_max', and by a part of `history.bytes', as all of it is written
%% again in each retention.
-module(halley_history_kept).

-export([new/0, clear/0, met/3, copied/3, doubt/1, forget/2]).
-export([find/1, has_room/2, is_free/1, older/2]).
-export_type([kept/0]).

%% A record of the event, by itself: what a replay gives.
-type kept() :: #{seq := halley_history:seq(), body := binary(), json := binary()}.

%% What a row takes beyond its subject and its record.
-define(ROW_BYTES, 256).
%% Of `history.bytes'.
-define(SHARE, 8).
-define(BYTES, {?MODULE, bytes}).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    %% {Subject, Segment, Seq, Body}, and {{Segment, Subject}}.
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    halley_history_kept_by_segment =
        ets:new(halley_history_kept_by_segment, [ordered_set, named_table, public]),
    ok = persistent_term:put(?BYTES, counters:new(1, [])),
    halley_metrics:gauges([kept, kept_bytes], fun gauges/0).

gauges() ->
    #{kept => ets:info(?MODULE, size), kept_bytes => bytes()}.

%% For a log that starts.
-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    true = ets:delete_all_objects(halley_history_kept_by_segment),
    counters:put(persistent_term:get(?BYTES), 1, 0).

%% --- writing, by the log's process alone ---------------------------------------------------------

%% A record that is written, or was found on disk: of an event with `keep', or of a value that was
%% written again.
-spec met(Segment :: non_neg_integer(), halley_history:seq(),
          {Subject :: binary(), keep | clear, Body :: binary()}) -> ok.
met(Segment, Seq, {Subject, What, Body}) ->
    case halley_history_forgotten:is_gone(Seq, Subject) of
        true -> ok;
        false ->
            ok = delete(Subject),
            _ = What =:= keep andalso insert(Subject, Segment, Seq, Body),
            ok
    end.

%% The value was written again, unless it is another one by now.
-spec copied(Subject :: binary(), Segment :: non_neg_integer(), halley_history:seq()) -> ok.
copied(Subject, Segment, Seq) ->
    case ets:lookup(?MODULE, Subject) of
        [{_, Before, Seq, Body}] ->
            true = ets:delete(halley_history_kept_by_segment, {Before, Subject}),
            put_row(Subject, Segment, Seq, Body);
        _ ->
            ok
    end.

%% What was written there may not be on disk.
-spec doubt(Segment :: non_neg_integer()) -> ok.
doubt(Segment) ->
    lists:foreach(fun({Subject, Seq, _}) -> copied(Subject, 0, Seq) end, rows(Segment, Segment)).

%% A user was forgotten, and what was published about it before this.
-spec forget(User :: binary(), halley_history:seq()) -> ok.
forget(User, Seq) ->
    case ets:lookup(?MODULE, User) of
        [{_, _, Kept, _}] when Kept =< Seq -> delete(User);
        _ -> ok
    end.

insert(Subject, Segment, Seq, Body) ->
    Copy = binary:copy(Body),
    ok = counters:add(persistent_term:get(?BYTES), 1, size_of(Subject, Copy)),
    put_row(binary:copy(Subject), Segment, Seq, Copy).

put_row(Subject, Segment, Seq, Body) ->
    true = ets:insert(halley_history_kept_by_segment, {{Segment, Subject}}),
    true = ets:insert(?MODULE, {Subject, Segment, Seq, Body}),
    ok.

delete(Subject) ->
    case ets:take(?MODULE, Subject) of
        [{_, Segment, _, Body}] ->
            true = ets:delete(halley_history_kept_by_segment, {Segment, Subject}),
            counters:sub(persistent_term:get(?BYTES), 1, size_of(Subject, Body));
        [] ->
            ok
    end.

size_of(Subject, Body) -> byte_size(Subject) + byte_size(Body) + ?ROW_BYTES.

%% --- reading -------------------------------------------------------------------------------------

-spec find(Subject :: binary()) -> {ok, kept()} | none.
find(Subject) ->
    case ets:lookup(?MODULE, Subject) of
        [{_, _, Seq, Body}] ->
            {_, _, _, _, _, _, Json} = halley_history_record:item(Body),
            {ok, #{seq => Seq, body => Body, json => Json}};
        [] ->
            none
    end.

%% Whether a value of so many bytes may be kept. Several at the same time may pass the bound by what
%% waits for the log.
-spec has_room(Subject :: binary(), Bytes :: non_neg_integer()) -> boolean().
has_room(Subject, Bytes) ->
    Before = case ets:lookup(?MODULE, Subject) of
        [{_, _, _, Body}] -> size_of(Subject, Body);
        [] -> 0
    end,
    Max = min(halley_limits:get(kept_bytes_max),
              application:get_env(halley, history_bytes, 4 bsl 30) div ?SHARE),
    bytes() - Before + byte_size(Subject) + Bytes + ?ROW_BYTES =< Max.

bytes() -> counters:get(persistent_term:get(?BYTES), 1).

%% Whether no value needs this segment or one before it.
-spec is_free(Segment :: non_neg_integer()) -> boolean().
is_free(Segment) -> rows(0, Segment, 1) =:= [].

%% Values whose records are in segments up to this one, as many as have so many bytes.
-spec older(Segment :: non_neg_integer(), Bytes :: pos_integer()) ->
    [{Subject :: binary(), halley_history:seq(), Body :: binary()}].
older(Segment, Bytes) -> within(Bytes, rows(0, Segment, 1000)).

within(_, []) -> [];
within(Bytes, _) when Bytes =< 0 -> [];
within(Bytes, [{_, _, Body} = Row | Rows]) -> [Row | within(Bytes - byte_size(Body), Rows)].

rows(From, To) -> rows(From, To, 1 bsl 58).

rows(From, To, Max) -> rows(ets:next(halley_history_kept_by_segment, {From, <<>>}), To, Max, []).

rows({Segment, Subject} = Key, To, Max, Found) when Segment =< To, Max > 0 ->
    [{_, _, Seq, Body}] = ets:lookup(?MODULE, Subject),
    Next = ets:next(halley_history_kept_by_segment, Key),
    rows(Next, To, Max - 1, [{Subject, Seq, Body} | Found]);
rows(_, _, _, Found) ->
    lists:reverse(Found).
