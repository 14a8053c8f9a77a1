%% Moves the store's pages together in memory.
%%
%% An import changes every page many times. The pages that were leave holes of a few kilobytes, and
%% a carrier goes back to the system only when nothing is left in it
%% (docs/internals/memory.md).
%%
%% So each page is copied, and the copy takes the place of the page. The allocator gives the lowest
%% place that fits (address order), so pages move down until the upper carriers are empty. A copy
%% replaces exactly the page that it is a copy of, by one atomic step of ETS, so readers and
%% writers may go on: if the page was changed meanwhile, the change stays and the copy is dropped.
%%
%% It decides nothing about when: `halley_store_writer' calls it after a checkpoint.
-module(halley_store_compaction).

-export([run_if_wasteful/0, run/0]).

-define(TABLES, [halley_id_pages, halley_following, halley_followers]).
%% Worth it when holes are this much and a quarter of what is in use. Other binaries have holes
%% as well, which this can't close: it would not pay to try for less.
-define(HOLES_BYTES_MIN, (16 bsl 20)).
-define(HOLES_DIVISOR, 4).

%% Runs if the memory for binaries has enough holes.
-spec run_if_wasteful() -> ok.
run_if_wasteful() ->
    {Used, Taken} = binary_bytes(),
    case Taken - Used > max(?HOLES_BYTES_MIN, Used div ?HOLES_DIVISOR) of
        true -> run();
        false -> ok
    end.

%% Moves all pages, one by one, in the caller's process.
-spec run() -> ok.
run() ->
    lists:foreach(fun(Table) -> walk(Table, ets:first(Table)) end, ?TABLES).

walk(_, '$end_of_table') -> ok;
walk(Table, Key) ->
    move(Table, Key),
    %% The page's old place must be free before the next one looks for its own.
    true = garbage_collect(),
    walk(Table, next(Table, Key)).

%% A key of a table that isn't ordered may go meanwhile; what is behind it waits for the next run.
next(Table, Key) ->
    try ets:next(Table, Key) catch error:badarg -> '$end_of_table' end.

%% The key stands in the pattern itself, which is what makes this a look-up.
move(Table, Key) ->
    case ets:lookup(Table, Key) of
        [{_, Page}] ->
            Copy = binary:copy(Page),
            ets:select_replace(Table, [{{Key, '$1'}, [{'=:=', '$1', Page}], [{{Key, Copy}}]}]);
        [] ->
            0
    end.

%% What binaries use, and what the emulator took from the system for them.
binary_bytes() ->
    Instances = erlang:system_info({allocator_sizes, binary_alloc}),
    Sizes = [{Kind, Values} || {instance, _, Kinds} <- Instances, {Kind, Values} <- Kinds,
                               lists:member(Kind, [mbcs, sbcs, mbcs_pool])],
    {erlang:memory(binary),
     lists:sum([element(2, lists:keyfind(carriers_size, 1, Values)) || {_, Values} <- Sizes])}.
