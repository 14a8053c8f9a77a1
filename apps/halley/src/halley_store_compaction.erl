%% Moves the store's pages together in memory.
%%
%% An import changes every page many times, and until the next checkpoint Mnesia holds the page
%% that was: when both hold the same one again, half of the memory that the emulator took for
%% binaries is holes of a few kilobytes, and a carrier goes back to the system only when nothing is
%% left in it. A million users with fifteen follows left 140 MB so (docs/internals/memory.md).
%%
%% So each page is copied, and the copy takes the place of the page in both tables. The allocator
%% gives the lowest place that fits (address order), so pages move down until the upper carriers
%% are empty. A copy replaces exactly the page that it is a copy of, by one atomic step of ETS, so
%% readers and writers may go on: whoever changed the page meanwhile has won. On disk nothing
%% changes, for the values are the same; that is why Mnesia needn't know.
%%
%% It decides nothing about when: `halley_follows_journal` calls it after a checkpoint, which is
%% when most of the holes appear.
-module(halley_store_compaction).

-export([run_if_wasteful/0, run/0]).

%% Tables that are read from, and those of Mnesia that hold the same pages.
-define(TABLES, [{halley_id_pages, halley_id_page},
                 {halley_following, halley_following_page},
                 {halley_followers, halley_followers_page}]).
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
    lists:foreach(fun({Table, Saved}) -> walk(Table, Saved, ets:first(Table)) end, ?TABLES).

walk(_, _, '$end_of_table') -> ok;
walk(Table, Saved, Key) ->
    move(Table, Saved, Key),
    %% The page's old place must be free before the next one looks for its own.
    true = garbage_collect(),
    walk(Table, Saved, ets:next(Table, Key)).

move(Table, Saved, Key) ->
    case ets:lookup(Table, Key) of
        [{_, Page}] ->
            Copy = binary:copy(Page),
            _ = replace(Table, {Key, Page}, {Key, Copy}),
            replace(Saved, {Saved, Key, Page}, {Saved, Key, Copy});
        [] ->
            0
    end.

%% The key stands in the pattern itself, which is what makes this a look-up.
replace(Table, {Key, Page}, {Key, Copy}) ->
    ets:select_replace(Table, [{{Key, '$1'}, [{'=:=', '$1', Page}], [{{Key, Copy}}]}]);
replace(Table, {Saved, Key, Page}, {Saved, Key, Copy}) ->
    ets:select_replace(Table, [{{Saved, Key, '$1'}, [{'=:=', '$1', Page}],
                                [{{Saved, Key, Copy}}]}]).

%% What binaries use, and what the emulator took from the system for them.
binary_bytes() ->
    Instances = erlang:system_info({allocator_sizes, binary_alloc}),
    Sizes = [{Kind, Values} || {instance, _, Kinds} <- Instances, {Kind, Values} <- Kinds,
                               lists:member(Kind, [mbcs, sbcs, mbcs_pool])],
    {erlang:memory(binary),
     lists:sum([element(2, lists:keyfind(carriers_size, 1, Values)) || {_, Values} <- Sizes])}.
