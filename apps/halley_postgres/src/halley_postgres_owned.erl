%% The pairs that are left at the end of a file of pairs: the file is read whole, split by a hash of
%% the pair into parts in the same folder, and then read part by part. So a file is read twice, and
%% the reader holds one part.
-module(halley_postgres_owned).

-export([fold/4, fold/5, compact/3, clean/1]).
-export_type([part/0]).

%% What is in memory at a time comes from about so many bytes.
-define(PART_BYTES, 8388608).
-define(BATCH, 20000).

-type path() :: file:filename().
%% `adds_from': from there on no pair goes any more (`halley_postgres_prepare', "a backup").
-type part() :: {path(), #{limit => non_neg_integer(), known => non_neg_integer(),
                           adds_from => non_neg_integer()}}.
-type pair() :: halley_postgres_pairs:pair().

%% Folds over the pairs that are in `Files' and not in `Except'. How many of the files have damage
%% is part of the answer: what is behind it isn't read.
-spec fold([part()], Except :: [path()], fun(([pair()], Acc) -> Acc), Acc) ->
    {Damaged :: non_neg_integer(), Acc}.
fold(Files, Except, Fun, Acc) -> fold(Files, Except, Fun, Acc, ?PART_BYTES).

-spec fold([part()], Except :: [path()], fun(([pair()], Acc) -> Acc), Acc,
           PartBytes :: pos_integer()) ->
    {Damaged :: non_neg_integer(), Acc}.
fold([], _, _, Acc, _) ->
    {0, Acc};
fold([{First, _} | _] = Files, Except, Fun, Acc, PartBytes) ->
    Bytes = lists:sum([filelib:file_size(Path) || Path <- [P || {P, _} <- Files] ++ Except]),
    Parts = Bytes div PartBytes + 1,
    Folder = filename:join(filename:dirname(First),
                           "parts-" ++ integer_to_list(erlang:unique_integer([positive]))),
    ok = file:make_dir(Folder),
    try
        {Theirs, Damaged} = split_all(Files, "a", Folder, Parts),
        {Kept, _} = split_all([{Path, #{}} || Path <- Except], "b", Folder, Parts),
        {Damaged, lists:foldl(fun(Part, Acc1) ->
            case maps:keys(maps:without(maps:keys(union(Kept, Part)), union(Theirs, Part))) of
                [] -> Acc1;
                Pairs -> Fun(Pairs, Acc1)
            end
        end, Acc, lists:seq(0, Parts - 1))}
    after
        file:del_dir_r(Folder)
    end.

%% For each file the parts' paths in order.
split_all(Files, Letter, Folder, Parts) ->
    Split = [split(File, filename:join(Folder, Letter ++ integer_to_list(N)), Parts)
             || {N, File} <- lists:enumerate(Files)],
    {[Paths || {_, Paths} <- Split], length([damaged || {damaged, _} <- Split])}.

split({Path, Read}, Prefix, Parts) ->
    Paths = [Prefix ++ "-" ++ integer_to_list(Part) || Part <- lists:seq(0, Parts - 1)],
    Opened = list_to_tuple([begin
                                {ok, File} = file:open(To, [write, raw, delayed_write]),
                                File
                            end || To <- Paths]),
    {End, ok} = halley_postgres_pairs:fold(Path, Read, fun(At, Body, ok) ->
        Takes = takes(At, Read),
        Sorted = halley_postgres_pairs:records(Body, fun(Record, Bytes, Acc) ->
            case Takes(Record) of
                true -> sorted(Record, Bytes, Parts, Acc);
                false -> Acc
            end
        end, #{}),
        maps:foreach(fun(Part, Bytes) ->
            ok = file:write(element(Part + 1, Opened), lists:reverse(Bytes))
        end, Sorted)
    end, ok),
    _ = [ok = file:close(File) || File <- tuple_to_list(Opened)],
    {End, Paths}.

takes(At, #{adds_from := From}) when At >= From ->
    fun({add, _}) -> true; (_) -> false end;
takes(_, _) ->
    fun(_) -> true end.

sorted(clear, Bytes, Parts, Acc) ->
    lists:foldl(fun(Part, Acc1) -> put_in(Part, Bytes, Acc1) end, Acc, lists:seq(0, Parts - 1));
sorted({_, Pair}, Bytes, Parts, Acc) ->
    put_in(erlang:phash2(Pair, Parts), Bytes, Acc).

put_in(Part, Bytes, Acc) ->
    Acc#{Part => [Bytes | maps:get(Part, Acc, [])]}.

union(Split, Part) ->
    lists:foldl(fun(Paths, Union) -> maps:merge(Union, set(lists:nth(Part + 1, Paths))) end, #{},
                Split).

set(Path) ->
    {ok, Bytes} = file:read_file(Path),
    halley_postgres_pairs:records(Bytes, fun
        (clear, _, _) -> #{};
        ({add, Pair}, _, Set) -> Set#{Pair => true};
        ({remove, Pair}, _, Set) -> maps:remove(Pair, Set)
    end, #{}).

%% Writes what the first `Bytes' of a file end with to another file. `damaged': it has less.
-spec compact({path(), Bytes :: non_neg_integer()}, To :: path(), Table :: binary()) ->
    ok | damaged.
compact({Path, Bytes}, To, Table) ->
    {Damaged, File} = fold([{Path, #{limit => Bytes}}], [], fun(Pairs, File) ->
        lists:foldl(fun(Slice, File1) ->
            halley_postgres_pairs:append([{add, Pair} || Pair <- Slice], File1)
        end, File, slices(Pairs))
    end, halley_postgres_pairs:create(To, Table), ?PART_BYTES),
    ok = halley_postgres_pairs:sync(File),
    ok = halley_postgres_pairs:close(File),
    case Damaged of 0 -> ok; _ -> damaged end.

slices(Pairs) when length(Pairs) =< ?BATCH -> [Pairs];
slices(Pairs) ->
    {Slice, Rest} = lists:split(?BATCH, Pairs),
    [Slice | slices(Rest)].

%% What a fold that was killed has left.
-spec clean(Folder :: path()) -> ok.
clean(Folder) ->
    lists:foreach(fun(Path) -> ok = file:del_dir_r(Path) end,
                  filelib:wildcard(filename:join(Folder, "parts-*"))).
