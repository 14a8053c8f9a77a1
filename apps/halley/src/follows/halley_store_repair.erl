%% Makes a damaged store one that opens, for `./halley repair': the files are read for what they
%% still say (`halley_store_rebuild'), a new store is written from that, and the damaged one is put
%% aside. Nothing is deleted.
%%
%% It runs without a brain, under the lock of `data.dir'. The new store is written next to the old
%% one, read back, and only then takes its place by two renames; what is cut short between the two
%% is ended by the next repair. A store that the recovery accepts isn't touched.
-module(halley_store_repair).

-export([run/1]).
-export_type([options/0, result/0, counts/0]).

-type options() :: #{dry_run := boolean(), progress := fun((unicode:chardata()) -> ok)}.
-type counts() :: #{ids := non_neg_integer(), follows := non_neg_integer()}.
%% `whole': the store opens. `made_up': files that others made up for. `aside': where the damaged
%% files are kept, `none' if it was only looked.
-type result() ::
    empty
    | {whole, counts(), #{made_up := [file:filename()], is_noted := boolean()}}
    | {repaired, counts(), halley_store_rebuild:finding(), Aside :: none | file:filename()}
    | {taken_over, whole | {counts(), halley_store_unite:dropped()}}.

-define(TABLES, [halley_following, halley_followers]).

%% The error is one sentence.
-spec run(options()) -> {ok, result()} | {error, unicode:chardata()}.
run(Options) ->
    Self = self(),
    %% The tables are its own and end with it.
    {Pid, Monitor} = spawn_monitor(fun() -> Self ! {self(), opened(Options)} end),
    receive
        {Pid, Result} ->
            _ = demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, io_lib:format("the repair failed, nothing was deleted: ~0tP", [Reason, 30])}
    end.

opened(Options) ->
    case filelib:is_dir(halley_data_dir:path()) andalso halley_data_dir:open() of
        false -> {error, ["data.dir: there is no ", halley_data_dir:path()]};
        ok ->
            try
                ok = halley_ids:new_tables(),
                ok = halley_follows_owner:new_tables(),
                look(halley_store:directory(), Options)
            catch
                throw:{error, _} = Error -> Error;
                throw:{version, Path, Version} ->
                    {error, ["data.dir: ", Path, " ",
                             halley_store_journal:describe({version, Version})]}
            after
                halley_data_dir:close()
            end;
        {error, _} = Error -> Error
    end.

look(Dir, #{dry_run := IsDry} = Options) ->
    IsDry orelse finish_swap(Dir),
    Mnesia = filename:join(filename:dirname(Dir), "mnesia"),
    case filelib:is_file(filename:join(Mnesia, "schema.DAT")) of
        true -> take_over(Dir, Options);
        false -> recover(Dir, Options)
    end.

%% --- the store of a build before -----------------------------------------------------------------

take_over(Dir, #{dry_run := IsDry, progress := Progress}) ->
    Mend = fun() ->
        ok = Progress("holding both directions and the ids against each other"),
        ok = halley_store_unite:directions(),
        Doubles = halley_store_unite:drop_doubles(#{}),
        #{count := Count} = Dropped = halley_store_unite:drop_unnamed(),
        {counts(), Dropped#{count := Count + Doubles}}
    end,
    ok = Progress("reading the store of the build before"),
    case halley_store_takeover:salvage(Dir, #{mend => Mend, dry_run => IsDry}) of
        {ok, whole} -> {ok, {taken_over, whole}};
        {ok, {mended, Mended}} -> {ok, {taken_over, Mended}};
        {error, _} = Error -> Error
    end.

%% --- the store -----------------------------------------------------------------------------------

recover(Dir, #{progress := Progress} = Options) ->
    ok = Progress("reading the store"),
    case halley_store_recovery:recover(Dir) of
        {ok, empty} -> {ok, empty};
        {ok, Recovered} -> {ok, whole(Dir, Recovered, Options)};
        {error, Line} ->
            clear_tables(),
            rebuild(Dir, Line, Options)
    end.

whole(Dir, #{number := Number, damaged := Damaged}, #{dry_run := IsDry}) ->
    IsNoted = halley_position:read(follows) =/= damaged,
    IsNoted orelse IsDry orelse note(Dir, Number),
    {whole, counts(), #{made_up => Damaged, is_noted => IsNoted}}.

%% Opening the journal notes where it ends.
note(Dir, Number) ->
    case halley_store_journal:open(Dir, Number) of
        {ok, Journal, _} -> halley_store_journal:close(Journal);
        {error, Reason} -> cannot_write(halley_store_journal:path(Dir, Number), Reason)
    end.

clear_tables() ->
    lists:foreach(fun(Table) -> true = ets:delete_all_objects(Table) end, ?TABLES),
    halley_ids_pages:forget().

rebuild(Dir, Line, #{progress := Progress} = Options) ->
    case halley_store_rebuild:run(Dir, Progress) of
        nothing ->
            {error, ["data.dir: nothing in ", Dir, " can be read, and nothing was changed; ",
                     way_back(Dir)]};
        {ok, Finding} ->
            Counts = counts(),
            Aside = replace(Dir, Options),
            {ok, {repaired, Counts, Finding#{refusal => Line}, Aside}}
    end.

way_back(Dir) ->
    TakenOver = filename:join(filename:dirname(Dir), "mnesia-taken-over"),
    Backup = ["put back a backup, or begin without follows: remove ", Dir, " and ", Dir,
              ".position"],
    case filelib:is_dir(TakenOver) of
        true -> [Backup, "; or go back to what the build before had: do that and rename ",
                 TakenOver, " to mnesia"];
        false -> Backup
    end.

counts() ->
    #{ids => halley_ids_pages:fold(fun(Ids, _, N) -> N + length(Ids) end, 0),
      follows => halley_pages_table:size(halley_following)}.

%% --- the new store takes the place of the old one ------------------------------------------------

replace(_, #{dry_run := true}) ->
    none;
replace(Dir, #{progress := Progress}) ->
    ok = Progress("writing"),
    New = new(Dir),
    _ = file:del_dir_r(New),
    try
        written(New, halley_data_dir:make_directory(New)),
        <<Store:32>> = crypto:strong_rand_bytes(4),
        {Header, _} = halley_store_record:header(
                        journal, #{store => Store, number => 1, sequence => 0, previous => 0}),
        case halley_store_checkpoint:write(New, Store, 1, 0) of
            {ok, _} -> ok;
            {error, Reason} -> cannot_write(New, Reason)
        end,
        case halley_store_file:create(halley_store_journal:path(New, 1), Header) of
            {ok, Journal} -> halley_store_file:close(Journal);
            {error, Why} -> cannot_write(New, Why)
        end,
        ok = Progress("reading it back"),
        clear_tables(),
        read_back(New, halley_store_checkpoint:read(New, 1))
    catch
        throw:{error, _} = Error ->
            _ = file:del_dir_r(New),
            throw(Error)
    end,
    Aside = aside(Dir),
    _ = filelib:is_dir(Dir) andalso written(Dir, file:rename(Dir, Aside)),
    swap(Dir, Aside).

read_back(New, {error, Reason}) ->
    cannot_write(New, Reason);
read_back(New, {ok, _, #{ids := Ids, halley_following := Following,
                         halley_followers := Followers}}) ->
    lists:foreach(fun({P, Page}) -> halley_ids_pages:put_durable_page(P, Page) end, Ids),
    ok = halley_pages_table:load(halley_following, Following),
    ok = halley_pages_table:load(halley_followers, Followers),
    case halley_store_check:run() of
        ok -> ok;
        {error, What} -> throw({error, ["data.dir: ", New, ": ", What, "; nothing was changed"]})
    end.

%% The note of before goes with the files that it is about; the new one stands when it opens.
swap(Dir, Aside) ->
    written(Dir, file:rename(new(Dir), Dir)),
    Note = Dir ++ ".position",
    _ = filelib:is_file(Note)
        andalso written(Note, file:rename(Note, filename:join(Aside, "follows.position"))),
    written(Dir, halley_data_dir:sync_directory(filename:dirname(Dir))),
    note(Dir, 1),
    clear_tables(),
    case halley_store_recovery:recover(Dir) of
        {ok, #{}} -> Aside;
        {ok, empty} -> throw({error, ["data.dir: ", Dir, " is empty after the repair"]});
        {error, Line} -> throw({error, Line})
    end.

%% A repair that was cut short between its renames: the old store is aside, the new one is whole.
finish_swap(Dir) ->
    case {file:list_dir(new(Dir)), file:list_dir(Dir)} of
        {{ok, [_, _ | _]}, Listed} when Listed =:= {error, enoent}; Listed =:= {ok, []} ->
            _ = file:del_dir(Dir),
            Aside = aside(Dir),
            written(Aside, halley_data_dir:make_directory(Aside)),
            _ = swap(Dir, Aside),
            clear_tables();
        _ ->
            ok
    end.

new(Dir) -> Dir ++ "-repaired".

aside(Dir) ->
    NowS = halley_clock:wall_s(),
    {{Y, Mo, D}, {H, Mi, S}} = calendar:system_time_to_universal_time(NowS, second),
    Name = lists:flatten(io_lib:format("~ts-damaged-~4..0b~2..0b~2..0bT~2..0b~2..0b~2..0bZ",
                                       [Dir, Y, Mo, D, H, Mi, S])),
    free_name(Name, 1).

free_name(Name, N) ->
    Numbered = case N of 1 -> Name; _ -> Name ++ "-" ++ integer_to_list(N) end,
    case filelib:is_file(Numbered) of
        true -> free_name(Name, N + 1);
        false -> Numbered
    end.

written(_, ok) -> ok;
written(Path, {error, Reason}) -> cannot_write(Path, Reason).

-spec cannot_write(file:name_all(), term()) -> no_return().
cannot_write(Path, Reason) ->
    throw({error, ["data.dir: ", Path, " cannot be written: ",
                   halley_store_journal:describe(Reason), "; the damaged files are as they were"]}).
