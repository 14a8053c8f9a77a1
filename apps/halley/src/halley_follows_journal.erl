%% What makes follows durable: a journal of changes and a checkpoint of the pages, in Mnesia.
%%
%% A page is 4 KB and a follow 4 bytes, so writing the pages that a group of changes touches would
%% write hundreds of bytes for each. A group is written as one row of the journal instead, eight
%% bytes a pair, and the pages now and then, all that changed at once.
%%
%% The journal is replayed in order onto the checkpoint, and that is idempotent: a change says
%% what is to be, so the last one about a pair decides, however much of the journal the pages had
%% already seen. Therefore
%%   a checkpoint may read the tables while they change, as any reader may;
%%   the tables that a crash of the owner leaves half changed are repaired by the last row alone,
%%   once the splits that it had begun are ended;
%%   a checkpoint may be cut short anywhere, provided that no pair is lost that the journal
%%   doesn't hold: pages are written from the highest fence down, so whatever a page on disk has
%%   lost to a split stands to its right already; pages are deleted after that; the journal is
%%   cut last. What stands twice then is dropped on load (`halley_pages_table:load/2`).
%%
%% A row of the journal is a sequence of changes: <<Operation, Count:32, (A:32 B:32) * Count>>,
%% A the user, B the subject, 0 to add, 1 to remove.
-module(halley_follows_journal).

-export([entry/2, row/2, rows/0, load/0, replay/0, replay_last/0, checkpoint/1, steps/2]).

-define(JOURNAL, halley_follow_journal).
%% The tables that are read, and their checkpoints in Mnesia.
-define(DIRECTIONS, [{halley_following, halley_following_page},
                     {halley_followers, halley_followers_page}]).
%% Pages, and rows of the journal, for one transaction of a checkpoint.
-define(CHUNK_ROWS, 256).
%% Changes of one kind are replayed together, up to this many pairs.
-define(REPLAY_PAIRS, 1000000).

-type sequence() :: non_neg_integer().

-spec entry(halley_pages:operation(), halley_pages:packed()) -> iolist().
entry(Operation, Pairs) ->
    Code = case Operation of add -> 0; remove -> 1 end,
    [<<Code, (byte_size(Pairs) div 8):32>>, Pairs].

-spec row(sequence(), [iodata()]) -> halley_store:row().
row(Sequence, Entries) -> {?JOURNAL, Sequence, iolist_to_binary(Entries)}.

%% What there is: the next sequence number and the journal's rows.
-spec rows() -> {sequence(), [halley_store:row()]}.
rows() ->
    Next = case ets:last(?JOURNAL) of
               '$end_of_table' -> 1;
               Last -> Last + 1
           end,
    {Next, ets:tab2list(?JOURNAL)}.

%% Fills the tables from the checkpoint.
-spec load() -> ok.
load() ->
    lists:foreach(
      fun({Table, Saved}) ->
              true = ets:delete_all_objects(Table),
              halley_pages_table:load(Table, [{Fence, Page}
                                              || {_, Fence, Page} <- ets:tab2list(Saved)])
      end, ?DIRECTIONS).

%% Applies the whole journal to the tables.
-spec replay() -> ok.
replay() ->
    {_, Rows} = rows(),
    replay([Entries || {_, _, Entries} <- Rows], add, [], 0).

replay([<<>> | Rows], Operation, Run, N) -> replay(Rows, Operation, Run, N);
replay([<<Code, Count:32, Pairs:Count/binary-unit:64, Rest/binary>> | Rows], Operation, Run, N) ->
    case operation(Code) of
        Operation when N < ?REPLAY_PAIRS ->
            replay([Rest | Rows], Operation, [Pairs | Run], N + Count);
        Next ->
            replay_run(Operation, Run),
            replay([Rest | Rows], Next, [Pairs], Count)
    end;
replay([], Operation, Run, _) ->
    replay_run(Operation, Run).

%% Applies the last row again to tables that readers use: each pair as its last change says, so
%% that no reader sees it as it was before. Gives the row's pairs <<Subject:32, User:32, ...>>.
-spec replay_last() -> halley_pages:packed().
replay_last() ->
    lists:foreach(fun({Table, _}) -> ok = halley_pages_table:trim(Table) end, ?DIRECTIONS),
    Latest = latest(last_row(), #{}),
    Keys = fun(Operation) -> [Key || {Key, O} <- maps:to_list(Latest), O =:= Operation] end,
    replay_run(remove, [halley_pages:pack(Keys(remove))]),
    replay_run(add, [halley_pages:pack(Keys(add))]),
    halley_pages:pack(lists:sort(lists:map(fun halley_pages:swap/1, maps:keys(Latest)))).

last_row() ->
    case ets:lookup(?JOURNAL, ets:last(?JOURNAL)) of
        [{_, _, Entries}] -> Entries;
        [] -> <<>>
    end.

latest(<<Code, Count:32, Pairs:Count/binary-unit:64, Rest/binary>>, Latest) ->
    Operation = operation(Code),
    latest(Rest, lists:foldl(fun(Key, L) -> L#{Key => Operation} end, Latest,
                             [Key || <<Key:64>> <= Pairs]));
latest(<<>>, Latest) ->
    Latest.

operation(0) -> add;
operation(1) -> remove.

replay_run(Operation, Run) ->
    Following = lists:usort([Key || Pairs <- Run, <<Key:64>> <= Pairs]),
    Followers = lists:sort([halley_pages:swap(Key) || Key <- Following]),
    _ = halley_pages_table:change(Operation, halley_following, halley_pages:pack(Following)),
    _ = halley_pages_table:change(Operation, halley_followers, halley_pages:pack(Followers)),
    ok.

%% Brings the pages on disk up to at least `Sequence`, which the tables must contain, and cuts the
%% journal there. One at a time.
-spec checkpoint(sequence()) -> ok.
checkpoint(Sequence) ->
    lists:foreach(fun({Table, Saved}) -> save(Table, Saved) end, ?DIRECTIONS),
    Old = ets:select(?JOURNAL, [{{'_', '$1', '_'}, [{'=<', '$1', Sequence}], ['$1']}]),
    in_chunks(fun(Key) -> mnesia:delete({?JOURNAL, Key}) end, Old),
    dumped = mnesia:dump_log(),
    halley_store_compaction:run_if_wasteful().

save(Table, Saved) ->
    {Changed, Gone} = steps(Table, Saved),
    in_chunks(fun(Row) -> mnesia:write(Row) end, Changed),
    in_chunks(fun(Fence) -> mnesia:delete({Saved, Fence}) end, Gone).

%% What brings a checkpoint up to its table: rows to write and then fences to delete, each in the
%% order in which that must be done.
-spec steps(atom(), atom()) -> {[halley_store:row()], [halley_pages:key()]}.
steps(Table, Saved) ->
    {Fences, Changed} = scan(Table, Saved, ets:first(Table), [], []),
    OnDisk = ets:select(Saved, [{{'_', '$1', '_'}, [], ['$1']}]),
    {Changed, ordsets:subtract(OnDisk, Fences)}.

%% Reads as every reader does, upwards, so that a split meanwhile hides nothing. The changed pages
%% come out highest fence first.
scan(_, _, '$end_of_table', Fences, Changed) -> {lists:reverse(Fences), Changed};
scan(Table, Saved, Fence, Fences, Changed) ->
    case {ets:lookup(Table, Fence), ets:lookup(Saved, Fence)} of
        {[], _} ->
            scan(Table, Saved, ets:next(Table, Fence), Fences, Changed);
        {[{_, Page}], [{_, _, Page}]} ->
            scan(Table, Saved, ets:next(Table, Fence), [Fence | Fences], Changed);
        {[{_, Page}], _} ->
            scan(Table, Saved, ets:next(Table, Fence), [Fence | Fences],
                 [{Saved, Fence, Page} | Changed])
    end.

in_chunks(_, []) -> ok;
in_chunks(Do, Items) ->
    {Chunk, Rest} = chunk(?CHUNK_ROWS, Items, []),
    {atomic, ok} = mnesia:transaction(fun() -> lists:foreach(Do, Chunk) end),
    in_chunks(Do, Rest).

chunk(N, [Item | Items], Chunk) when N > 0 -> chunk(N - 1, Items, [Item | Chunk]);
chunk(_, Items, Chunk) -> {lists:reverse(Chunk), Items}.
