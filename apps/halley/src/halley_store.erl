%% The durable store: one Mnesia directory, opened before anything else of the brain runs.
%%
%% What lies in Mnesia is what must survive: id pages, the journal of follows and their last
%% checkpoint. What the brain reads from while it runs are ETS tables built from it, owned by
%% `halley_store_sup`, so that they outlive a crash of the processes that write them.
%%
%% A directory belongs to one node name, since Mnesia's schema names its node, and to one running
%% brain: `halley_data_dir' holds the lock.
-module(halley_store).

-export([open/0, close/0, commit/1]).

-export_type([row/0]).

-type row() :: {Table :: atom(), Key :: non_neg_integer(), Value :: binary()}.

%% Each is an ordered_set of keys and values.
-define(TABLES, [halley_id_page, halley_follow_journal,
                 halley_followers_page, halley_following_page]).
-define(LOAD_MS_MAX, 120000).

%% Starts Mnesia in `<data_dir>/mnesia` and makes sure of its tables. The error is one sentence
%% for the operator; it names the configuration key to look at.
-spec open() -> ok | {error, binary()}.
open() ->
    Dir = filename:join(halley_data_dir:path(), "mnesia"),
    steps([fun() -> halley_data_dir:open() end,
           fun() -> make_directory(Dir) end,
           fun() -> start_mnesia(Dir) end,
           fun() -> check_node(Dir) end,
           fun() -> make_tables(Dir) end]).

steps([Step | Steps]) ->
    case Step() of
        ok -> steps(Steps);
        {error, _} = Error -> Error
    end;
steps([]) -> ok.

-spec close() -> ok.
close() ->
    _ = mnesia:stop(),
    halley_data_dir:close().

%% Writes rows in one transaction and returns when they are on disk.
-spec commit([row()]) -> ok | {error, term()}.
commit([]) -> ok;
commit(Rows) ->
    Write = fun() -> lists:foreach(fun(Row) -> mnesia:write(Row) end, Rows) end,
    case mnesia:transaction(Write) of
        {atomic, ok} -> mnesia:sync_log();
        {aborted, Reason} -> {error, Reason}
    end.

make_directory(Dir) ->
    case halley_data_dir:make_directory(Dir) of
        ok -> ok;
        {error, Reason} ->
            error_text("data.dir: cannot write in ~ts: ~ts", [Dir, file:format_error(Reason)])
    end.

start_mnesia(Dir) ->
    _ = application:load(mnesia),
    application:set_env(mnesia, dir, Dir),
    %% Bulk imports log few, large writes; the checkpoint dumps the log itself when it is done.
    application:set_env(mnesia, dump_log_write_threshold, 50000),
    application:set_env(mnesia, dump_log_time_threshold, timer:minutes(10)),
    case make_schema(Dir) of
        ok ->
            case mnesia:start() of
                ok -> ok;
                {error, Reason} -> broken(Dir, Reason)
            end;
        Error -> Error
    end.

make_schema(Dir) ->
    case filelib:is_file(filename:join(Dir, "schema.DAT")) of
        true -> ok;
        false ->
            case mnesia:create_schema([node()]) of
                ok -> ok;
                {error, Reason} -> broken(Dir, Reason)
            end
    end.

check_node(Dir) ->
    Nodes = mnesia:table_info(schema, disc_copies),
    case lists:member(node(), Nodes) of
        true -> ok;
        false ->
            close(),
            error_text("node.name: the store in ~ts belongs to node ~ts, this one is ~ts",
                       [Dir, lists:join(", ", [atom_to_list(Node) || Node <- Nodes]), node()])
    end.

make_tables(Dir) ->
    Missing = ?TABLES -- mnesia:system_info(tables),
    Options = [{type, ordered_set}, {disc_copies, [node()]}, {attributes, [key, value]}],
    Results = [mnesia:create_table(Table, Options) || Table <- Missing],
    case [Reason || {aborted, Reason} <- Results] of
        [] -> wait_for_tables(Dir);
        [Reason | _] -> broken(Dir, Reason)
    end.

wait_for_tables(Dir) ->
    case mnesia:wait_for_tables(?TABLES, ?LOAD_MS_MAX) of
        ok -> ok;
        Reason -> broken(Dir, Reason)
    end.

broken(Dir, Reason) ->
    close(),
    error_text("data.dir: Mnesia cannot open ~ts: ~0tp", [Dir, Reason]).

error_text(Format, Args) ->
    {error, unicode:characters_to_binary(io_lib:format(Format, Args))}.
