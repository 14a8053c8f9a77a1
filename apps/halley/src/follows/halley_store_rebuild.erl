%% Fills the tables with what damaged files of the store still say, for `halley_store_repair'.
%%
%% It begins with the newest checkpoint that is whole; without one, with the oldest there is. Each
%% later checkpoint replaces what is there, except keys that neither of its directions can tell: for
%% those the checkpoint before and the journal since count. The journal's groups are applied in the
%% order of their sequences, also after a hole, since a change names its result. Missing sequences
%% are counted.
%%
%% The result has no follow that was never requested, and no number under another id
%% (`halley_store_unite'). A follow whose end was in a lost group may be back.
-module(halley_store_rebuild).

-export([run/2]).
-export_type([finding/0, file_finding/0, unknown/0]).

-type file_finding() :: {Path :: file:filename(), Text :: unicode:chardata()}.
%% `missing': groups that can't be read, from one sequence to another. `unknown': keys that nothing
%% tells. `concerned': how many may have pairs there, and some of them.
%% `refusal': what the start says, put in by the caller.
-type unknown() :: #{halley_store_salvage:kind() => [halley_store_salvage:range()]}.
-type named() :: {non_neg_integer(), [halley_id:id()]}.
-type finding() :: #{files := [file_finding()],
                     missing := [{pos_integer(), pos_integer()}],
                     unknown := unknown(),
                     concerned := none | {Users :: named(), Subjects :: named()},
                     dropped := halley_store_unite:dropped(),
                     is_noted := boolean(),
                     refusal => binary()}.

%% Changes of one kind are applied together, up to this many pairs.
-define(RUN_PAIRS, 1000000).
-define(NOTHING_UNKNOWN, #{ids => [], halley_following => [], halley_followers => []}).

-record(state, {dir :: file:filename(), store :: none | non_neg_integer(),
                sequence = 0 :: non_neg_integer(),      % of the last group that is in the tables
                missing = [] :: [{pos_integer(), pos_integer()}],
                unknown = ?NOTHING_UNKNOWN :: unknown(),
                is_read = false :: boolean(),
                named = #{} :: #{halley_id:user_number() => pos_integer()},
                stale = 0 :: non_neg_integer(),
                operation = add :: halley_pages:operation(),
                pairs = [] :: [halley_pages:packed()], count = 0 :: non_neg_integer(),
                files = [] :: [file_finding()]}).

%% The tables must be empty. `nothing': no file has anything that can be read. A file of a later
%% version throws `{version, Path, Version}': what it says isn't damage.
-spec run(file:filename(), fun((unicode:chardata()) -> ok)) -> {ok, finding()} | nothing.
run(Dir, Progress) ->
    Names = case file:list_dir(Dir) of {ok, Found} -> Found; {error, _} -> [] end,
    Checkpoints = [{N, checkpoint, halley_store_checkpoint:path(Dir, N)}
                   || N <- halley_store_journal:numbers("checkpoint-", Names)],
    Journals = [{N, journal, halley_store_journal:path(Dir, N)}
                || N <- halley_store_journal:numbers("journal-", Names)],
    Note = halley_store_recovery:note(),
    Headers = maps:from_list([{{Kind, N}, header(Kind, Path)}
                              || {N, Kind, Path} <- Checkpoints ++ Journals]),
    Store = store(Headers, Note),
    State0 = #state{dir = Dir, store = Store},
    {State1, First, Bases} = bases(lists:reverse(Checkpoints), Headers, [], State0, Progress),
    Files = lists:sort(Bases ++ [J || {N, _, _} = J <- Journals, N >= First]),
    State2 = lists:foldl(fun(File, State) -> file(File, Headers, State, Progress) end, State1,
                         Files),
    State3 = flush(noted(Note, State2)),
    case State3#state.is_read of
        true -> {ok, finding(State3, Note, Progress)};
        false -> nothing
    end.

header(Kind, Path) ->
    case halley_store_salvage:header(Kind, Path) of
        {version, Version} -> throw({version, Path, Version});
        {ok, Header} -> Header;
        _ -> none
    end.

%% Files of another store may lie here, if somebody put them. Most files decide, then the note.
store(Headers, Note) ->
    Stores = [Store || #{store := Store} <- maps:values(Headers)]
        ++ [Store || #{store := Store} <- [Note]],
    case lists:usort([{length([S || S <- Stores, S =:= Store]), Store} || Store <- Stores]) of
        [] -> none;
        Counted -> element(2, lists:last(Counted))
    end.

is_foreign(Key, Headers, #state{store = Store}) ->
    case Headers of
        #{Key := #{store := Other}} -> Other =/= Store;
        _ -> false
    end.

found(Path, Format, Args, State) ->
    State#state{files = [{Path, io_lib:format(Format, Args)} | State#state.files]}.

%% From the newest on down to one that is whole; none before it is of use. Gives the number of the
%% first journal file that is.
bases([{N, _, Path} = File | Older], Headers, Bases, State, Progress) ->
    case is_foreign({checkpoint, N}, Headers, State) of
        true ->
            bases(Older, Headers, Bases, found(Path, "is of another store", [], State), Progress);
        false ->
            ok = Progress(["reading ", Path]),
            case halley_store_salvage:checkpoint(Path, expected(checkpoint, N, Headers, State)) of
                {ok, #{unknown := Unknown} = Checkpoint} when Unknown =:= ?NOTHING_UNKNOWN ->
                    {damaged_header(checkpoint, N, Path, Headers, State), N,
                     [{N, checkpoint, Checkpoint} | Bases]};
                {ok, Checkpoint} ->
                    bases(Older, Headers, [{N, checkpoint, Checkpoint} | Bases],
                          holes(File, Checkpoint, damaged_header(checkpoint, N, Path, Headers,
                                                                 State)), Progress);
                {error, Reason} ->
                    bases(Older, Headers, Bases,
                          found(Path, "~ts", [halley_store_journal:describe(Reason)], State),
                          Progress)
            end
    end;
bases([], _, Bases, State, _) ->
    {State, 0, Bases}.

damaged_header(Kind, N, Path, Headers, State) ->
    case maps:get({Kind, N}, Headers) of
        none -> found(Path, "has a damaged header", [], State);
        _ -> State
    end.

holes({_, _, Path}, #{holes := []}, State) ->
    found(Path, "is cut short at byte ~b", [filelib:file_size(Path)], State);
holes({_, _, Path}, #{holes := Holes}, State) ->
    found(Path, "is damaged: bytes ~ts", [ranges(Holes)], State).

ranges(Holes) ->
    Texts = [io_lib:format("~b to ~b", [From, To - 1])
             || {From, To} <- lists:sublist(Holes, 5)],
    More = case length(Holes) - 5 of N when N > 0 -> [io_lib:format("~b more", [N])]; _ -> [] end,
    lists:join(", ", Texts ++ More).

%% A header as the file beside it has it.
expected(Kind, N, Headers, #state{store = Store}) ->
    case {Kind, maps:get({Kind, N}, Headers), Headers} of
        {_, #{} = Header, _} -> Header;
        {checkpoint, none, #{{journal, N} := #{sequence := Sequence}}} ->
            #{store => Store, number => N, sequence => Sequence, previous => 0};
        {journal, none, #{{checkpoint, N} := #{sequence := Sequence}}} ->
            #{store => Store, number => N, sequence => Sequence, previous => 0};
        {_, none, _} when N =:= 1, Store =/= none ->
            #{store => Store, number => 1, sequence => 0, previous => 0};
        _ -> none
    end.

%% --- checkpoints ---------------------------------------------------------------------------------

file({N, checkpoint, Checkpoint}, Headers, State, Progress) ->
    ok = Progress("rebuilding from a checkpoint"),
    Flushed = flush(State),
    case expected(checkpoint, N, Headers, State) of
        #{sequence := Sequence} ->
            Skipped = skipped(Sequence, Flushed),
            base(Checkpoint, is_whole(Flushed, Skipped), Skipped);
        none ->
            base(Checkpoint, false, Flushed)
    end;
file({N, journal, Path}, Headers, State, Progress) ->
    ok = Progress(["reading ", Path]),
    case is_foreign({journal, N}, Headers, State) of
        true -> found(Path, "is of another store", [], State);
        false -> journal(N, Path, Headers, State)
    end.

%% Whether what is there had everything up to the checkpoint.
is_whole(#state{is_read = false}, _) -> false;
is_whole(_, #state{missing = Missing, unknown = Unknown}) ->
    Missing =:= [] andalso Unknown =:= ?NOTHING_UNKNOWN.

%% One that tells nothing at all is as one that isn't there.
base(#{rows := #{ids := [], halley_following := [], halley_followers := []},
       unknown := #{ids := [_ | _]}}, _, State) ->
    State;
base(#{rows := Rows, unknown := Unknown}, WasWhole, State) ->
    Taken = halley_store_unite:take_unknown(Unknown),
    ok = halley_ids_pages:forget(),
    lists:foreach(fun(Table) -> true = ets:delete_all_objects(Table) end,
                  [halley_following, halley_followers]),
    lists:foreach(fun({P, Page}) -> ok = halley_ids_pages:put_durable_page(P, Page) end,
                  maps:get(ids, Rows)),
    lists:foreach(fun(Table) -> ok = halley_pages_table:load(Table, maps:get(Table, Rows)) end,
                  [halley_following, halley_followers]),
    ok = halley_store_unite:put_taken(Taken),
    ok = halley_store_unite:directions(),
    State#state{is_read = true, missing = [],
                unknown = case WasWhole of true -> ?NOTHING_UNKNOWN; false -> lost(Unknown) end}.

%% A pair is lost if both directions are; ids have one.
lost(#{ids := Ids, halley_following := Following, halley_followers := Followers})
  when Following =:= []; Followers =:= [] ->
    ?NOTHING_UNKNOWN#{ids := Ids};
lost(Unknown) ->
    Unknown.

%% --- the journal ---------------------------------------------------------------------------------

journal(N, Path, Headers, State0) ->
    State = case maps:get({journal, N}, Headers) of
                #{sequence := Sequence} -> skipped(Sequence, State0);
                none -> State0
            end,
    Last = last_sequence(N + 1, Headers, State),
    Group = fun(Sequence, Entries, Acc) when Sequence =< Last -> group(Sequence, Entries, Acc);
               (_, _, Acc) -> Acc
            end,
    case halley_store_salvage:journal(Path, expected(journal, N, Headers, State), Group, State) of
        {ok, #{holes := Holes, bytes := Bytes}, Read} ->
            Damaged = [Hole || {_, To} = Hole <- Holes, To < Bytes],
            Named = damaged_header(journal, N, Path, Headers, Read),
            case Damaged of
                [] -> Named;
                _ -> found(Path, "is damaged: bytes ~ts", [ranges(Damaged)], Named)
            end;
        {error, Reason} ->
            found(Path, "~ts", [halley_store_journal:describe(Reason)], State)
    end.

%% Of the groups before the files with this number. Groups behind it in the file before failed, may
%% have reached the disk all the same, and others have their sequences.
last_sequence(N, Headers, #state{store = Store}) ->
    case Headers of
        #{{journal, N} := #{store := Store, sequence := Sequence}} -> Sequence;
        #{{checkpoint, N} := #{store := Store, sequence := Sequence}} -> Sequence;
        #{} -> infinity
    end.

%% All up to this sequence was on disk. Two lost groups may have freed a number that nothing refers
%% to and given it to another id, so such a number is nobody's until it is named again.
skipped(Sequence, #state{sequence = Last, missing = Missing} = State0) when Sequence > Last ->
    State = case Sequence - Last of
                1 -> State0;
                _ ->
                    Flushed = flush(State0),
                    forget(halley_store_unite:unreferred(), Flushed)
            end,
    State#state{sequence = Sequence, missing = [{Last + 1, Sequence} | Missing]};
skipped(_, State) ->
    State.

noted(#{store := Store, sequence := Sequence}, #state{store = Store} = State) ->
    skipped(Sequence, State);
noted(_, State) ->
    State.

%% One that was met already is of a checkpoint's time.
group(Sequence, _, #state{sequence = Last} = State) when Sequence =< Last ->
    State;
group(Sequence, Entries, State) ->
    Skipped = skipped(Sequence - 1, State),
    halley_store_entries:fold(fun change/2, Skipped#state{sequence = Sequence, is_read = true},
                              Entries).

change({names, Names}, #state{sequence = Sequence, named = Named} = State0) ->
    Renamed = [Number || {Number, Id} <- Names, is_suspect(Number, Id, State0)],
    State = forget(Renamed, State0),
    ok = halley_ids_pages:set(Names),
    ok = halley_ids_pages:set_durable([Number || {Number, _} <- Names], true),
    State#state{named = lists:foldl(fun({Number, _}, Map) -> Map#{Number => Sequence} end, Named,
                                    Names)};
change({freed, Numbers}, State) ->
    forget(Numbers, State);
change({Operation, Pairs}, #state{operation = Operation, count = Count} = State)
  when Count < ?RUN_PAIRS ->
    State#state{pairs = [Pairs | State#state.pairs], count = Count + byte_size(Pairs) div 8};
change({Operation, Pairs}, State) ->
    (flush(State))#state{operation = Operation, pairs = [Pairs], count = byte_size(Pairs) div 8}.

%% Whether pairs of somebody else may be left under the number, whose ends are in a lost group.
is_suspect(Number, Id, #state{missing = Missing, unknown = Unknown}) ->
    case halley_ids_pages:id(Number) of
        Id -> false;
        <<>> -> Missing =/= [] orelse Unknown =/= ?NOTHING_UNKNOWN;
        _ -> true
    end.

forget([], State) ->
    State;
forget(Numbers, State) ->
    Flushed = flush(State),
    Flushed#state{stale = Flushed#state.stale + halley_store_unite:forget_numbers(Numbers)}.

flush(#state{operation = Operation, pairs = Pairs} = State) ->
    ok = halley_follows_changes:apply_keys(Operation, [Key || Run <- Pairs, <<Key:64>> <= Run]),
    State#state{pairs = [], count = 0}.

%% --- what was found ------------------------------------------------------------------------------

finding(#state{named = Named, files = Files, missing = Missing, stale = Stale} = State, Note,
        Progress) ->
    ok = Progress("holding both directions and the ids against each other"),
    ok = halley_store_unite:directions(),
    Doubles = halley_store_unite:drop_doubles(Named),
    #{count := Count} = Dropped = halley_store_unite:drop_unnamed(),
    #{files => lists:reverse(Files), missing => lists:reverse(Missing),
      unknown => State#state.unknown, concerned => concerned(State#state.unknown),
      is_noted => Note =/= none,
      dropped => Dropped#{count := Count + Doubles + Stale}}.

concerned(Unknown) when Unknown =:= ?NOTHING_UNKNOWN ->
    none;
concerned(#{halley_following := Following, halley_followers := Followers}) ->
    {halley_store_unite:named_in(Following), halley_store_unite:named_in(Followers)}.
