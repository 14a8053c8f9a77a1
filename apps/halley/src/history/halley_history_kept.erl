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
%% again in each retention. Each user has a share of that (`halley_history_kept_shares'): the record
%% of a value that a user keeps has who it was, and keeps it where it is written again. A value that
%% a server kept has none, nor has one that a build from before wrote, which counts as a server's.
-module(halley_history_kept).

-export([new/0, clear/0, met/3, copied/3, doubt/1, forget/2]).
-export([find/1, room/3, is_free/1, older/2]).
-export_type([kept/0]).

%% A record of the event, by itself: what a replay gives.
-type kept() :: #{seq := halley_history:seq(), body := binary(), json := binary()}.

%% What a row takes beyond its subject and its record.
-define(ROW_BYTES, 256).
%% What a record has beyond data, subject and publisher, about: where it isn't made yet.
-define(ENVELOPE_BYTES, 128).
%% Of `history.bytes'.
-define(SHARE, 8).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    %% {Subject, Segment, Seq, Body, By}, and {{Segment, Subject}}.
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    halley_history_kept_by_segment =
        ets:new(halley_history_kept_by_segment, [ordered_set, named_table, public]),
    ok = halley_history_kept_shares:new(),
    halley_metrics:gauges([kept, kept_bytes], fun gauges/0).

gauges() ->
    #{kept => ets:info(?MODULE, size), kept_bytes => halley_history_kept_shares:bytes()}.

%% For a log that starts.
-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    true = ets:delete_all_objects(halley_history_kept_by_segment),
    halley_history_kept_shares:clear().

%% --- writing, by the log's process alone ---------------------------------------------------------

%% A record that is written, or was found on disk: of an event with `keep', or of a value that was
%% written again.
-spec met(Segment :: non_neg_integer(), halley_history:seq(),
          {Subject :: binary(), keep | clear, Body :: binary()}) -> ok.
met(Segment, Seq, {Subject, What, Body}) ->
    case halley_history_forgotten:is_gone(Seq, Subject) of
        true -> ok;
        false ->
            Before = before(Subject),
            ok = delete(Subject),
            case What of
                keep ->
                    {By, DataBytes} = insert(Subject, Segment, Seq, Body),
                    halley_history_kept_shares:came(By, about(Subject, DataBytes, By), Before);
                clear ->
                    ok
            end
    end.

%% The value was written again, unless it is another one by now.
-spec copied(Subject :: binary(), Segment :: non_neg_integer(), halley_history:seq()) -> ok.
copied(Subject, Segment, Seq) ->
    case ets:lookup(?MODULE, Subject) of
        [{_, Before, Seq, Body, By}] ->
            true = ets:delete(halley_history_kept_by_segment, {Before, Subject}),
            put_row(Subject, Segment, Seq, {Body, By});
        _ ->
            ok
    end.

%% What was written there may not be on disk.
-spec doubt(Segment :: non_neg_integer()) -> ok.
doubt(Segment) ->
    lists:foreach(fun({Subject, Seq, _}) -> copied(Subject, 0, Seq) end, rows(Segment, Segment)).

%% A user was forgotten, and what was published about it before this. What it kept about others
%% stays, as a server's: no copy names the user. Of few users is anything kept, so the table is
%% read for these alone.
-spec forget(User :: binary(), halley_history:seq()) -> ok.
forget(User, Seq) ->
    case ets:lookup(?MODULE, User) of
        [{_, _, Kept, _, _}] when Kept =< Seq -> ok = delete(User);
        _ -> ok
    end,
    case halley_history_kept_shares:own(User) of
        0 -> ok;
        _ -> lists:foreach(fun(Row) -> without_publisher(Row, Seq) end,
                           ets:match_object(?MODULE, {'_', '_', '_', '_', User}))
    end.

without_publisher({Subject, Segment, Kept, Body, _}, Seq) when Kept =< Seq ->
    {ok, #{plain := Plain}} = halley_history_record:body(Body),
    ok = delete(Subject),
    {none, _} = insert(Subject, Segment, Kept, Plain),
    ok;
without_publisher(_, _) ->
    ok.

%% Gives who kept it, and the bytes of its data.
insert(Subject, Segment, Seq, Body) ->
    Copy = binary:copy(Body),
    {ok, #{json := Json, data_offset := Offset} = Record} = halley_history_record:body(Copy),
    By = maps:get(by, Record, none),
    ok = halley_history_kept_shares:add(By, size_of(Subject, Copy)),
    ok = put_row(binary:copy(Subject), Segment, Seq, {Copy, By}),
    {By, byte_size(Json) - Offset - 1}.

put_row(Subject, Segment, Seq, {Body, By}) ->
    true = ets:insert(halley_history_kept_by_segment, {{Segment, Subject}}),
    true = ets:insert(?MODULE, {Subject, Segment, Seq, Body, By}),
    ok.

delete(Subject) ->
    case ets:take(?MODULE, Subject) of
        [{_, Segment, _, Body, By}] ->
            true = ets:delete(halley_history_kept_by_segment, {Segment, Subject}),
            halley_history_kept_shares:sub(By, size_of(Subject, Body));
        [] ->
            ok
    end.

size_of(Subject, Body) -> byte_size(Subject) + byte_size(Body) + ?ROW_BYTES.

%% --- reading -------------------------------------------------------------------------------------

-spec find(Subject :: binary()) -> {ok, kept()} | none.
find(Subject) ->
    case ets:lookup(?MODULE, Subject) of
        [{_, _, Seq, Body, _}] ->
            {_, _, _, _, _, _, Json} = halley_history_record:item(Body),
            {ok, #{seq => Seq, body => Body, json => Json}};
        [] ->
            none
    end.

%% Whether a publisher may keep a value of so many bytes. Servers that keep at the same time may
%% pass the bound by what waits for the log.
-spec room(Subject :: binary(), Bytes :: non_neg_integer(),
           halley_history_kept_shares:publisher()) ->
    ok | {error, too_many_kept | too_many_own_kept}.
room(Subject, Bytes, By) ->
    Max = min(halley_limits:get(kept_bytes_max),
              application:get_env(halley, history_bytes, 4 bsl 30) div ?SHARE),
    halley_history_kept_shares:grown(By, about(Subject, Bytes, By), before(Subject), Max).

%% The value that there is: whose, and its bytes.
before(Subject) ->
    case ets:lookup(?MODULE, Subject) of
        [{_, _, _, Body, Whose}] -> {Whose, size_of(Subject, Body)};
        [] -> {none, 0}
    end.

%% What a value with so many bytes of data will take, about. Its record has the subject twice.
about(Subject, Bytes, none) -> 3 * byte_size(Subject) + Bytes + ?ENVELOPE_BYTES + ?ROW_BYTES;
about(Subject, Bytes, User) -> about(Subject, Bytes, none) + byte_size(User).

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
    [{_, _, Seq, Body, _}] = ets:lookup(?MODULE, Subject),
    Next = ets:next(halley_history_kept_by_segment, Key),
    rows(Next, To, Max - 1, [{Subject, Seq, Body} | Found]);
rows(_, _, _, Found) ->
    lists:reverse(Found).
