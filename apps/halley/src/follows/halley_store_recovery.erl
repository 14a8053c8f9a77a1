%% The start of the store: fills the tables from disk, or returns what is wrong.
%%
%% A *chain* is a checkpoint and all journal files from its number on; the journal from number 1 on
%% is a chain without one. The newest chain is taken. If its checkpoint can't be believed, the one
%% before it is, which is why that one and its journal are kept: nothing is lost then, and the log
%% says which file is damaged. A journal is part of every chain. So whatever is damaged in one, but
%% for a last group that was torn while it was written, can't be made up for: `recover/1' fails with
%% one sentence that names the file.
%%
%% The end on disk is noted outside of the folder (`halley_position'): a chain that ends before that
%% has lost something, however whole it looks.
%%
%% At the end both directions and the ids are compared with each other (`halley_store_check').
%% Nothing is guessed, and only files are deleted that no caller was ever answered for.
-module(halley_store_recovery).

-export([recover/1, last_journal/1, note/0]).
-export_type([recovered/0]).

-include_lib("kernel/include/logger.hrl").

-type number_() :: non_neg_integer().
%% `number': of the last journal file. `base': of the checkpoint, 0 without one. `bytes': of the
%% journal since. `damaged': files that were made up for by others.
-type recovered() :: #{store := non_neg_integer(), number := number_(), base := number_(),
                       bytes := non_neg_integer(), damaged := [file:filename()]}.
-type note() :: #{store := non_neg_integer(), number := number_(),
                  position := non_neg_integer(), sequence := non_neg_integer()}.

%% Changes of one kind are applied together, up to this many pairs.
-define(RUN_PAIRS, 1000000).

-record(run, {operation = add :: halley_pages:operation(), pairs = [] :: [halley_pages:packed()],
              count = 0 :: non_neg_integer()}).

%% Fills the empty tables. `empty': there is nothing yet, and never was.
-spec recover(file:name_all()) -> {ok, empty | recovered()} | {error, Sentence :: binary()}.
recover(Dir) ->
    try
        Names = names(Dir),
        ok = halley_store_file:remove(Dir, [Name || Name <- Names,
                                                    filename:extension(Name) =:= ".new"]),
        recover(Dir, files("checkpoint-", Names), files("journal-", Names), note())
    catch
        throw:{refused, Format, Args} -> {error, sentence(Format, Args)}
    end.

names(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} -> Names;
        {error, enoent} -> [];
        {error, Reason} -> damaged(Dir, Reason)
    end.

files(Prefix, Names) -> halley_store_journal:numbers(Prefix, Names).

recover(_, [], [], none) -> {ok, empty};
recover(Dir, [], [], #{sequence := Sequence}) when Sequence > 0 ->
    refuse("~ts has no files, and had ~b groups of changes", [Dir, Sequence]);
recover(_, [], [], _) -> {ok, empty};
recover(Dir, [], [1], Note) ->
    %% The first file was being made when the brain was killed.
    case is_unused(Dir, 1) andalso (Note =:= none orelse map_get(sequence, Note) =:= 0) of
        true ->
            ok = remove_unused(Dir, 1),
            {ok, empty};
        false ->
            recover_chain(Dir, [], [1], Note)
    end;
recover(Dir, Checkpoints, Journals, Note) ->
    recover_chain(Dir, Checkpoints, Journals, Note).

recover_chain(Dir, Checkpoints, Journals, Note) ->
    Last = last(Dir, Journals, Note),
    Chains = [N || N <- lists:reverse(Checkpoints), N =< Last] ++ [0 || [1 | _] <- [Journals]],
    {Base, Contents, Damaged} = newest(Dir, Chains, []),
    Headers = headers(Dir, Base, Last),
    ok = load(Contents),
    {End, Bytes} = replay(Dir, Headers, Contents),
    ok = compare(Dir, End, Note),
    case halley_store_check:run() of
        ok ->
            #{store := Store} = maps:get(Last, Headers),
            {ok, #{store => Store, number => Last, base => Base, bytes => Bytes,
                   damaged => Damaged}};
        {error, What} ->
            refuse("~ts: ~ts", [Dir, What])
    end.

-spec note() -> none | note().
note() ->
    case halley_position:read(follows) of
        {ok, <<Store:32, Number:64, Position:64, Sequence:64>>} ->
            #{store => Store, number => Number, position => Position, sequence => Sequence};
        none ->
            none;
        _ ->
            ?LOG_WARNING("store: follows.position is damaged, so a journal that was cut at its end "
                         "would not be noticed"),
            none
    end.

%% --- the last journal file -----------------------------------------------------------------------

%% The number of the last file that a group may be in. One that has no header was being made when
%% the brain was killed: nothing was ever written behind it.
-spec last_journal(file:name_all()) -> {ok, number_()} | none.
last_journal(Dir) ->
    try {ok, last(Dir, files("journal-", names(Dir)), none)}
    catch throw:{refused, _, _} -> none
    end.

last(Dir, [], _) ->
    refuse("~ts has no journal", [Dir]);
last(Dir, Journals, Note) ->
    Last = lists:last(Journals),
    Path = halley_store_journal:path(Dir, Last),
    case halley_store_journal:read_header(Dir, Last) of
        {ok, _, _} ->
            Last;
        {error, damaged_header} when length(Journals) > 1 ->
            is_unused(Dir, Last) orelse is_map(Note) andalso map_get(number, Note) < Last
                orelse damaged(Path, damaged_header),
            ok = remove_unused(Dir, Last),
            last(Dir, lists:droplast(Journals), Note);
        {error, Reason} ->
            damaged(Path, Reason)
    end.

%% Nothing but, perhaps, a header that isn't whole.
is_unused(Dir, Number) ->
    filelib:file_size(halley_store_journal:path(Dir, Number)) =< halley_store_record:header_bytes()
        andalso halley_store_journal:read_header(Dir, Number) =:= {error, damaged_header}.

remove_unused(Dir, Number) ->
    Path = halley_store_journal:path(Dir, Number),
    ?LOG_WARNING("store: ~ts was never used and is removed", [Path]),
    halley_store_file:remove(Dir, [filename:basename(Path)]).

%% --- the chain -----------------------------------------------------------------------------------

%% The newest checkpoint that can be believed, with what it holds.
newest(_, [0 | _], Damaged) ->
    {0, none, Damaged};
newest(Dir, [Number | Older], Damaged) ->
    Path = halley_store_checkpoint:path(Dir, Number),
    case halley_store_checkpoint:read(Dir, Number) of
        {ok, Header, Contents} ->
            {Number, Contents#{header => Header}, Damaged};
        {error, {version, _} = Version} ->
            damaged(Path, Version);
        {error, Reason} when Older =/= [] ->
            ?LOG_ERROR("store: ~ts ~ts; the one before it and the journal since say the same",
                       [Path, describe(Reason)]),
            newest(Dir, Older, [filename:basename(Path) | Damaged]);
        {error, Reason} ->
            damaged(Path, Reason)
    end;
newest(Dir, [], _) ->
    refuse("~ts has a journal without the checkpoint that it follows", [Dir]).

%% The headers of the journal files of a chain, all of one store.
headers(Dir, Base, Last) ->
    maps:from_list([{N, header(Dir, N)} || N <- lists:seq(max(1, Base), Last)]).

header(Dir, Number) ->
    case halley_store_journal:read_header(Dir, Number) of
        {ok, Header, _} -> Header;
        {error, Reason} -> damaged(halley_store_journal:path(Dir, Number), Reason)
    end.

load(none) ->
    ok;
load(#{ids := Ids, halley_following := Following, halley_followers := Followers}) ->
    lists:foreach(fun({P, Page}) -> halley_ids_pages:put_durable_page(P, Page) end, Ids),
    ok = halley_pages_table:load(halley_following, Following),
    halley_pages_table:load(halley_followers, Followers).

%% Applies the journal; gives the sequence and the place where it ends, and its size.
replay(Dir, Headers, Contents) ->
    [First | _] = Numbers = lists:sort(maps:keys(Headers)),
    {Store, Sequence} = case Contents of
                            none -> {maps:get(store, maps:get(First, Headers)), 0};
                            #{header := #{store := S, sequence := N}} -> {S, N}
                        end,
    lists:foldl(fun(Number, {{_, _, Before}, Bytes}) ->
        Header = maps:get(Number, Headers),
        Path = halley_store_journal:path(Dir, Number),
        case Header of
            #{store := Store, sequence := Before} -> ok;
            _ -> refuse("~ts doesn't follow the file before it", [Path])
        end,
        Next = maps:get(Number + 1, Headers, last),
        {Position, End} = replay_file(Dir, Number, Next),
        {{Number, Position, End}, Bytes + Position}
    end, {{0, 0, Sequence}, 0}, Numbers).

replay_file(Dir, Number, Next) ->
    Path = halley_store_journal:path(Dir, Number),
    Limit = case Next of last -> infinity; #{previous := Previous} -> Previous end,
    case halley_store_journal:read(Dir, Number, Limit, fun group/2, #run{}) of
        {ok, #{position := Position, sequence := Sequence, tail := Tail}, Run} ->
            ok = apply_run(Run),
            case {Next, Tail} of
                {_, damaged} -> damaged_at(Path, Position);
                {last, _} -> ok;
                {#{sequence := Sequence, previous := Position}, _} -> ok;
                {_, _} -> damaged_at(Path, Position)
            end,
            {Position, Sequence};
        {error, Reason} ->
            damaged(Path, Reason)
    end.

%% What was on disk and isn't now. A note of another store is about other files.
compare(_, _, none) ->
    ok;
compare(Dir, {Number, Position, Sequence}, #{number := Noted, sequence := NotedSequence})
  when Sequence < NotedSequence, Number =:= Noted ->
    refuse("~ts ends at byte ~b; ~b groups of changes that were on disk behind it are missing, or "
           "the folder is an older copy",
           [halley_store_journal:path(Dir, Number), Position, NotedSequence - Sequence]);
compare(Dir, {_, _, Sequence}, #{number := Noted, sequence := NotedSequence})
  when Sequence < NotedSequence ->
    refuse("~ts is missing, or not what it was; ~b groups of changes that were on disk are gone, "
           "or the folder is an older copy",
           [halley_store_journal:path(Dir, Noted), NotedSequence - Sequence]);
compare(_, _, _) ->
    ok.

%% --- changes -------------------------------------------------------------------------------------

group(Entries, Run) -> halley_store_entries:fold(fun change/2, Run, Entries).

change({names, Names}, Run) ->
    ok = halley_ids_pages:set(Names),
    ok = halley_ids_pages:set_durable([Number || {Number, _} <- Names], true),
    Run;
change({freed, Numbers}, Run) ->
    ok = halley_ids_pages:clear(Numbers),
    ok = halley_ids_pages:set_durable(Numbers, false),
    Run;
change({Operation, Pairs}, #run{operation = Operation, count = Count} = Run)
  when Count < ?RUN_PAIRS ->
    Run#run{pairs = [Pairs | Run#run.pairs], count = Count + byte_size(Pairs) div 8};
change({Operation, Pairs}, Run) ->
    ok = apply_run(Run),
    #run{operation = Operation, pairs = [Pairs], count = byte_size(Pairs) div 8}.

apply_run(#run{operation = Operation, pairs = Pairs}) ->
    halley_follows_changes:apply_keys(Operation, [Key || Run <- Pairs, <<Key:64>> <= Run]).

%% --- what is said --------------------------------------------------------------------------------

-spec refuse(string(), [term()]) -> no_return().
refuse(Format, Args) -> throw({refused, Format, Args}).

-spec damaged(file:name_all(), term()) -> no_return().
damaged(Path, Reason) -> refuse("~ts ~ts", [Path, describe(Reason)]).

-spec damaged_at(file:name_all(), non_neg_integer()) -> no_return().
damaged_at(Path, Position) -> refuse("~ts is damaged at byte ~b", [Path, Position]).

describe(Reason) -> halley_store_journal:describe(Reason).

sentence(Format, Args) ->
    unicode:characters_to_binary(
      io_lib:format("data.dir: " ++ Format ++ "; `./halley repair` says what can be saved and "
                    "saves it", Args)).
