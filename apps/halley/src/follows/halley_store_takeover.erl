%% Takes over the store of the builds before, which kept ids and follows in Mnesia.
%%
%% It runs once, when `<data.dir>/mnesia' is there: what that holds becomes the first checkpoint of
%% `<data.dir>/follows', and then the folder is renamed to `mnesia-taken-over', which is the step
%% that makes it done. Until then nothing there is changed, and a takeover that was cut short
%% begins anew: Mnesia is started on a copy, because it deletes logs that it can't read.
%%
%% Mnesia's content is checked like everything that is recovered, so a store that the build before
%% had lost a part of is refused, not taken over in silence: `halley_store_repair' takes over what
%% can be read of it.
-module(halley_store_takeover).

-export([run/1, salvage/2]).

-include_lib("kernel/include/logger.hrl").

-define(TABLES, [halley_id_page, halley_follow_journal,
                 halley_followers_page, halley_following_page]).
-define(LOAD_MS_MAX, 120000).
%% 64 numbers each, below 2^27.
-define(ID_PAGE_MAX, 16#1fffff).

%% Leaves the tables empty: the recovery reads the new files as any others.
-spec run(Dir :: file:filename()) -> ok | {error, Line :: binary()}.
run(Dir) ->
    Mnesia = filename:join(filename:dirname(Dir), "mnesia"),
    case filelib:is_file(filename:join(Mnesia, "schema.DAT")) of
        false -> ok;
        true -> run(Mnesia, Dir, has_groups(Dir))
    end.

%% A takeover that was cut short left no group.
has_groups(Dir) ->
    Header = halley_store_record:header_bytes(),
    case halley_store_recovery:note() of
        #{sequence := Sequence} when Sequence > 0 -> true;
        _ -> lists:any(fun(Journal) -> filelib:file_size(Journal) > Header end,
                       filelib:wildcard(filename:join(Dir, "journal-*")))
    end.

run(Mnesia, Dir, true) ->
    refuse_both(Mnesia, Dir);
run(Mnesia, Dir, false) ->
    ?LOG_NOTICE("store: taking over ~ts", [Mnesia]),
    Copy = filename:join(Dir, "taking-over"),
    Steps = [fun() -> clear(Dir) end,
             fun() -> copy(Mnesia, Copy) end,
             fun() -> start_mnesia(Copy) end,
             fun() -> check_node(Mnesia) end,
             fun() -> load_tables() end,
             fun fill/0,
             fun() -> write(Dir) end],
    Result = steps(Steps, Mnesia),
    ok = stop_mnesia(Copy),
    case Result of
        ok -> finish(Mnesia);
        Error -> Error
    end.

refuse_both(Mnesia, Dir) ->
    refuse("~ts and ~ts are both there, and both have follows; move away the one that is not to be "
           "used", [Mnesia, Dir]).

%% The tables are left empty.
stop_mnesia(Copy) ->
    _ = mnesia:stop(),
    _ = file:del_dir_r(Copy),
    lists:foreach(fun(Table) -> true = ets:delete_all_objects(Table) end,
                  [halley_following, halley_followers]),
    halley_ids_pages:forget().

%% For a store that `run/1' refuses: fills the tables with what can be read, lets `Mend' make it
%% agree, and takes that over, unless it is only looked at. `whole': there was nothing to mend.
-spec salvage(Dir :: file:filename(), #{mend := fun(() -> Mended), dry_run := boolean()}) ->
    {ok, whole | {mended, Mended}} | {error, Line :: binary()}.
salvage(Dir, Options) ->
    Mnesia = filename:join(filename:dirname(Dir), "mnesia"),
    case has_groups(Dir) of
        true -> refuse_both(Mnesia, Dir);
        false -> salvage(Mnesia, Dir, Options)
    end.

salvage(Mnesia, Dir, #{mend := Mend, dry_run := IsDry}) ->
    Copy = filename:join(Dir, "taking-over"),
    Read = steps([fun() -> clear(Dir) end,
                  fun() -> copy(Mnesia, Copy) end,
                  fun() -> start_mnesia(Copy) end,
                  fun() -> check_node(Mnesia) end,
                  fun force_tables/0,
                  fun fill_readable/0], Mnesia),
    Result = case {Read, Read =:= ok andalso halley_store_check:run()} of
                 {ok, ok} -> {ok, whole};
                 {ok, _} -> {{mended, Mend()}, IsDry orelse write(Dir)};
                 {Error, _} -> Error
             end,
    ok = stop_mnesia(Copy),
    case Result of
        {{mended, _} = Mended, true} -> {ok, Mended};
        {{mended, _} = Mended, ok} ->
            case finish(Mnesia) of
                ok -> {ok, Mended};
                Failed -> Failed
            end;
        {{mended, _}, {error, Reason}} ->
            refuse("~ts cannot be written: ~ts; nothing was changed", [Dir, describe(Reason)]);
        _ -> Result
    end.

steps(Steps, Mnesia) ->
    case halley_steps:run(Steps) of
        ok -> ok;
        {error, Line} when is_binary(Line) -> {error, Line};
        {error, Reason} ->
            refuse("~ts, the store of a build before, cannot be taken over: ~ts; nothing in it was "
                   "changed", [Mnesia, describe(Reason)])
    end.

describe(Reason) when is_list(Reason) -> Reason;
describe(Reason) -> halley_store_journal:describe(Reason).

refuse(Format, Args) ->
    {error, unicode:characters_to_binary(io_lib:format("data.dir: " ++ Format, Args))}.

%% What a takeover that was cut short left. No group was ever committed there.
clear(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} ->
            _ = file:del_dir_r(filename:join(Dir, "taking-over")),
            halley_store_file:remove(Dir, Names);
        {error, _} ->
            halley_data_dir:make_directory(Dir)
    end.

copy(From, To) ->
    case {file:list_dir(From), halley_data_dir:make_directory(To)} of
        {{ok, Names}, ok} ->
            halley_steps:first_error(
              [file:copy(filename:join(From, Name), filename:join(To, Name))
               || Name <- Names, filelib:is_regular(filename:join(From, Name))]);
        {Listed, Made} ->
            halley_steps:first_error([Listed, Made])
    end.

start_mnesia(Copy) ->
    _ = application:load(mnesia),
    application:set_env(mnesia, dir, Copy),
    application:set_env(mnesia, core_dir, Copy),
    mnesia:start().

%% A schema names its node.
check_node(Mnesia) ->
    Nodes = mnesia:table_info(schema, disc_copies),
    case lists:member(node(), Nodes) of
        true -> ok;
        false ->
            {error, Line} = refuse("~ts, the store of a build before, belongs to node ~ts, and "
                                   "this one is ~ts",
                                   [Mnesia, lists:join(", ", [atom_to_list(N) || N <- Nodes]),
                                    node()]),
            {error, <<"node.name", (binary:part(Line, 8, byte_size(Line) - 8))/binary>>}
    end.

load_tables() ->
    case ?TABLES -- mnesia:system_info(tables) of
        [] ->
            case mnesia:wait_for_tables(?TABLES, ?LOAD_MS_MAX) of
                ok -> ok;
                Reason -> {error, {tables, Reason}}
            end;
        Missing ->
            {error, {missing, Missing}}
    end.

%% Of those that are there.
force_tables() ->
    Tables = [Table || Table <- ?TABLES, lists:member(Table, mnesia:system_info(tables))],
    _ = [mnesia:force_load_table(Table) || Table <- Tables],
    case mnesia:wait_for_tables(Tables, ?LOAD_MS_MAX) of
        ok when Tables =/= [] -> ok;
        Reason -> {error, {tables, Reason}}
    end.

%% Rows that aren't what they should be are left out. Nothing there has a checksum.
fill_readable() ->
    Rows = fun(Table) ->
        case lists:member(Table, mnesia:system_info(tables)) of
            true -> ets:tab2list(Table);
            false -> []
        end
    end,
    _ = [ok = halley_ids_pages:put_durable_page(P, Page)
         || {_, P, Page} <- Rows(halley_id_page), is_integer(P), P >= 0, P =< ?ID_PAGE_MAX,
            is_ids(Page)],
    lists:foreach(fun({Table, Saved}) ->
        ok = halley_pages_table:load(Table, [{Fence, Page} || {_, Fence, Page} <- Rows(Saved),
                                                              halley_pages:is_page(Page, Fence)])
    end, [{halley_following, halley_following_page}, {halley_followers, halley_followers_page}]),
    lists:foreach(fun(Row) -> try apply_row(Row) catch error:_ -> ok end end,
                  Rows(halley_follow_journal)).

is_ids(<<0, Rest/binary>>) -> is_ids(Rest);
is_ids(<<N, Id:N/binary, Rest/binary>>) -> halley_id:check(Id) =:= ok andalso is_ids(Rest);
is_ids(Rest) -> Rest =:= <<>>.

%% The pages of the checkpoint there, and the journal since; rows of it have the same entries.
fill() ->
    lists:foreach(fun({_, P, Page}) -> ok = halley_ids_pages:put_durable_page(P, Page) end,
                  ets:tab2list(halley_id_page)),
    lists:foreach(fun({Table, Saved}) ->
        ok = halley_pages_table:load(Table, [{Fence, Page}
                                             || {_, Fence, Page} <- ets:tab2list(Saved)])
    end, [{halley_following, halley_following_page}, {halley_followers, halley_followers_page}]),
    lists:foreach(fun apply_row/1, ets:tab2list(halley_follow_journal)),
    halley_store_check:run().

apply_row({_, _, Entries}) ->
    halley_store_entries:fold(fun({Operation, Pairs}, ok) ->
        halley_follows_changes:apply_keys(Operation, [Key || <<Key:64>> <= Pairs])
    end, ok, Entries).

%% The checkpoint before the journal: a journal without it would be a store without follows.
write(Dir) ->
    <<Store:32>> = crypto:strong_rand_bytes(4),
    case halley_store_checkpoint:write(Dir, Store, 1, 0) of
        {ok, _} ->
            case halley_store_journal:create(Dir, Store, {1, 0, 0}) of
                {ok, Journal} -> halley_store_journal:close(Journal);
                Error -> Error
            end;
        Error ->
            Error
    end.

finish(Mnesia) ->
    Kept = filename:join(filename:dirname(Mnesia), "mnesia-taken-over"),
    case {file:rename(Mnesia, Kept), halley_data_dir:sync_directory(filename:dirname(Mnesia))} of
        {ok, ok} ->
            ?LOG_NOTICE("store: ~ts was taken over and is ~ts now, which is needed no more",
                        [Mnesia, Kept]);
        {Renamed, Synced} ->
            {error, Reason} = halley_steps:first_error([Renamed, Synced]),
            refuse("~ts cannot be renamed to ~ts: ~ts", [Mnesia, Kept, describe(Reason)])
    end.
