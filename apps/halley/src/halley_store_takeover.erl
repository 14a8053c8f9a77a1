%% Takes over the store of the builds before, which kept ids and follows in Mnesia.
%%
%% It runs once, when `<data.dir>/mnesia' is there: what that holds becomes the first checkpoint of
%% `<data.dir>/follows', and then the folder is renamed to `mnesia-taken-over', which is the step
%% that makes it done. Until then nothing there is changed, and a takeover that was cut short
%% begins anew: Mnesia is started on a copy, because it deletes logs that it can't read.
%%
%% What Mnesia gives is held against itself like everything that is recovered, so a store that the
%% build before had lost a part of is refused, not taken over in silence.
-module(halley_store_takeover).

-export([run/1]).

-include_lib("kernel/include/logger.hrl").

-define(TABLES, [halley_id_page, halley_follow_journal,
                 halley_followers_page, halley_following_page]).
-define(LOAD_MS_MAX, 120000).

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
    refuse("~ts and ~ts are both there, and both have follows; move away the one that is not to be "
           "used", [Mnesia, Dir]);
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
    _ = mnesia:stop(),
    _ = file:del_dir_r(Copy),
    lists:foreach(fun(Table) -> true = ets:delete_all_objects(Table) end,
                  [halley_following, halley_followers]),
    ok = halley_ids_pages:forget(),
    case Result of
        ok -> finish(Mnesia);
        Error -> Error
    end.

steps([], _) -> ok;
steps([Step | Steps], Mnesia) ->
    case Step() of
        ok -> steps(Steps, Mnesia);
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
            first_error([file:copy(filename:join(From, Name), filename:join(To, Name))
                         || Name <- Names, filelib:is_regular(filename:join(From, Name))]);
        {Listed, Made} ->
            first_error([Listed, Made])
    end.

first_error(Results) ->
    case [Error || {error, _} = Error <- Results] of
        [] -> ok;
        [Error | _] -> Error
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

%% The pages of the checkpoint there, and the journal since; rows of it have the same entries.
fill() ->
    lists:foreach(fun({_, P, Page}) -> ok = halley_ids_pages:put_durable_page(P, Page) end,
                  ets:tab2list(halley_id_page)),
    lists:foreach(fun({Table, Saved}) ->
        ok = halley_pages_table:load(Table, [{Fence, Page}
                                             || {_, Fence, Page} <- ets:tab2list(Saved)])
    end, [{halley_following, halley_following_page}, {halley_followers, halley_followers_page}]),
    lists:foreach(fun({_, _, Entries}) ->
        halley_store_entries:fold(fun({Operation, Pairs}, ok) ->
            halley_follows_changes:apply_keys(Operation, [Key || <<Key:64>> <= Pairs])
        end, ok, Entries)
    end, ets:tab2list(halley_follow_journal)),
    halley_store_check:run().

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
            {error, Reason} = first_error([Renamed, Synced]),
            refuse("~ts cannot be renamed to ~ts: ~ts", [Mnesia, Kept, describe(Reason)])
    end.
