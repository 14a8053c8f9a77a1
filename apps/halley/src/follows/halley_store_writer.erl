%% The owner's work on the store's files besides appending groups: takes up the journal where it
%% ends, begins checkpoints, and deletes what no longer is needed.
%%
%% Two checkpoints are kept, the newest and the one before it, and the journal since the older one:
%% so a checkpoint that can't be read back costs nothing (`halley_store_recovery').
%%
%% All of it runs in the owner's process but `checkpoint/4', which has a process of its own.
-module(halley_store_writer).

-export([open/1, probe/1, begin_checkpoint/1]).

-type journal() :: halley_store_journal:journal().

%% The journal to append to, `none' where it can't be written now; the bytes since
%% the last checkpoint; and the entries of its last group, which an owner that died may not have
%% applied. `IsFirst': of this brain, the recovery was just here.
-spec open(IsFirst :: boolean()) ->
    {ok, none | journal(), Bytes :: non_neg_integer(), Last :: halley_store_entries:entries()}.
open(IsFirst) ->
    Dir = halley_store:directory(),
    Bytes = case {IsFirst, halley_store:recovered()} of
        {true, #{bytes := Recovered}} -> Recovered;
        _ -> 0
    end,
    case open_last(Dir) of
        {ok, Journal, Last} ->
            {ok, Journal, Bytes, Last};
        {error, Reason} ->
            ok = halley_store:set_refusing(halley_store:reason(Reason)),
            {ok, none, Bytes, last_group(Dir)}
    end.

%% A folder that isn't where it was must not be made anew: it may be a mount that is missing.
open_last(Dir) ->
    case {halley_data_dir:is_in_place(), halley_store_recovery:last_journal(Dir)} of
        {false, _} -> {error, moved};
        {true, {ok, Number}} -> halley_store_journal:open(Dir, Number);
        {true, none} -> create(Dir, halley_store_recovery:note())
    end.

%% Only where there never was one.
create(Dir, Note) when Note =:= none; map_get(sequence, Note) =:= 0 ->
    <<Store:32>> = crypto:strong_rand_bytes(4),
    case halley_data_dir:make_directory(Dir) of
        ok ->
            case halley_store_journal:create(Dir, Store, {1, 0, 0}) of
                {ok, Journal} -> {ok, Journal, <<>>};
                Error -> Error
            end;
        Error ->
            Error
    end;
create(_, _) ->
    {error, moved}.

last_group(Dir) ->
    case halley_store_recovery:last_journal(Dir) of
        {ok, Number} -> halley_store_journal:last_group(Dir, Number);
        none -> <<>>
    end.

%% Whether a group could be written now.
-spec probe(none | journal()) -> {ok, journal()} | {error, term(), none | journal()}.
probe(none) ->
    case open_last(halley_store:directory()) of
        {ok, Journal, _} -> halley_store_journal:probe(Journal);
        {error, Reason} -> {error, Reason, none}
    end;
probe(Journal) ->
    halley_store_journal:probe(Journal).

%% The journal goes on in its next file; a process that is linked to the caller writes everything
%% before that, and sends `{checkpoint, Ref, {ok, Oldest} | {error, Reason}}'; `Oldest' is the
%% lowest number of the files that are left then, 0 where that isn't certain. A journal without a
%% group gets no next file, but where numbers wait for older files to go.
-spec begin_checkpoint(journal()) -> {ok, reference(), pid(), journal()} | {error, term()}.
begin_checkpoint(Journal) ->
    Begun = case halley_store_journal:is_empty(Journal) andalso halley_ids:waiting() =:= 0 of
        true -> {ok, Journal};
        false -> halley_store_journal:rotate(Journal)
    end,
    case Begun of
        {ok, Next} ->
            Owner = self(),
            Ref = make_ref(),
            Place = halley_store_journal:place(Next),
            Pid = spawn_link(fun() -> Owner ! {checkpoint, Ref, checkpoint(Place)} end),
            {ok, Ref, Pid, Next};
        {error, _} = Error ->
            Error
    end.

checkpoint({Store, Number, Sequence}) ->
    Dir = halley_store:directory(),
    case halley_store_checkpoint:write(Dir, Store, Number, Sequence) of
        {ok, _} ->
            ok = delete_older(Dir),
            ok = halley_store_compaction:run_if_wasteful(),
            {ok, oldest(Dir)};
        {error, _} = Error ->
            Error
    end.

%% Where the folder can't be read, the next checkpoint does it.
delete_older(Dir) ->
    {Checkpoints, Journals} = case files(Dir) of
        {ok, Found} -> Found;
        {error, _} -> {[], []}
    end,
    case lists:reverse(Checkpoints) of
        [_, Before | Older] ->
            halley_store_file:remove(
              Dir, [filename:basename(halley_store_checkpoint:path(Dir, N)) || N <- Older]
                  ++ [filename:basename(halley_store_journal:path(Dir, N))
                      || N <- Journals, N < Before]);
        _ ->
            ok
    end.

%% A file that couldn't be deleted counts, and one that may come back after a loss of power.
oldest(Dir) ->
    case {halley_data_dir:sync_directory(Dir), files(Dir)} of
        {ok, {ok, {Checkpoints, Journals}}} -> lists:min(Checkpoints ++ Journals);
        _ -> 0
    end.

files(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} ->
            {ok, {halley_store_journal:numbers("checkpoint-", Names),
                  halley_store_journal:numbers("journal-", Names)}};
        {error, _} = Error ->
            Error
    end.
