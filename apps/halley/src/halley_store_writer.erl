%% What the owner of the follows does with the store's files besides appending groups: takes up the
%% journal where it ends, begins checkpoints, and deletes what no longer is needed.
%%
%% Two checkpoints are kept, the newest and the one before it, and the journal since the older one:
%% so a checkpoint that can't be read back costs nothing (`halley_store_recovery').
%%
%% All of it runs in the owner's process but `checkpoint/4', which has a process of its own.
-module(halley_store_writer).

-export([open/1, probe/1, begin_checkpoint/1]).

-type journal() :: halley_store_journal:journal().

%% The journal to append to, `none' where not even its first file could be made; the bytes since
%% the last checkpoint; and the entries of its last group, which an owner that died may not have
%% applied. `IsFirst': of this brain, the recovery was just here.
-spec open(IsFirst :: boolean()) ->
    {ok, none | journal(), Bytes :: non_neg_integer(), Last :: halley_store_entries:entries()}
    | {error, term()}.
open(IsFirst) ->
    Dir = halley_store:directory(),
    case {IsFirst, halley_store:recovered()} of
        {true, empty} ->
            first(Dir);
        {true, #{number := Number, bytes := Bytes}} ->
            reopened(halley_store_journal:open(Dir, Number), Bytes);
        {false, _} ->
            case halley_store_recovery:last_journal(Dir) of
                {ok, Number} -> reopened(halley_store_journal:open(Dir, Number), 0);
                none -> first(Dir)
            end
    end.

first(Dir) ->
    case create(Dir) of
        {ok, Journal} ->
            {ok, Journal, 0, <<>>};
        {error, Reason} ->
            ok = halley_store:set_refusing(halley_store:reason(Reason)),
            {ok, none, 0, <<>>}
    end.

create(Dir) ->
    <<Store:32>> = crypto:strong_rand_bytes(4),
    case halley_data_dir:make_directory(Dir) of
        ok -> halley_store_journal:create(Dir, Store, {1, 0, 0});
        Error -> Error
    end.

reopened({ok, Journal, Last}, Bytes) -> {ok, Journal, Bytes, Last};
reopened({error, _} = Error, _) -> Error.

%% Whether a group could be written now.
-spec probe(none | journal()) -> {ok, journal()} | {error, term(), none | journal()}.
probe(none) ->
    case create(halley_store:directory()) of
        {ok, Journal} -> halley_store_journal:probe(Journal);
        {error, Reason} -> {error, Reason, none}
    end;
probe(Journal) ->
    halley_store_journal:probe(Journal).

%% The journal goes on in its next file; a process that is linked to the caller writes everything
%% before that, and sends `{checkpoint, Ref, ok | {error, Reason}}'.
-spec begin_checkpoint(journal()) -> {ok, reference(), journal()} | {error, term()}.
begin_checkpoint(Journal) ->
    case halley_store_journal:rotate(Journal) of
        {ok, Next} ->
            Owner = self(),
            Ref = make_ref(),
            Place = {halley_store:directory(), halley_store_journal:store(Next),
                     halley_store_journal:number(Next), halley_store_journal:sequence(Next)},
            _ = spawn_link(fun() -> Owner ! {checkpoint, Ref, checkpoint(Place)} end),
            {ok, Ref, Next};
        {error, _} = Error ->
            Error
    end.

checkpoint({Dir, Store, Number, Sequence}) ->
    case halley_store_checkpoint:write(Dir, Store, Number, Sequence) of
        {ok, _} ->
            ok = delete_older(Dir),
            halley_store_compaction:run_if_wasteful();
        {error, _} = Error ->
            Error
    end.

delete_older(Dir) ->
    {ok, Names} = file:list_dir(Dir),
    Checkpoints = halley_store_journal:numbers("checkpoint-", Names),
    case lists:reverse(Checkpoints) of
        [_, Before | Older] ->
            Journals = [N || N <- halley_store_journal:numbers("journal-", Names), N < Before],
            halley_store_file:remove(
              Dir, [filename:basename(halley_store_checkpoint:path(Dir, N)) || N <- Older]
                  ++ [filename:basename(halley_store_journal:path(Dir, N)) || N <- Journals]);
        _ ->
            ok
    end.
