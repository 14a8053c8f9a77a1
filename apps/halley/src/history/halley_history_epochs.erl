%% The names under which cursors know the history's order: the store's id, and those that it had
%% before.
%%
%% The log of several brains begins an *epoch* when it may have lost its newest rows
%% (docs/internals/cluster.md). The events up to there are the same, and the order goes on under
%% another store id. So a cursor of an older store is as good as one of now, if it lies before that
%% store's end: seqs up to there mean the same. Beyond it, seqs meant what the log has lost.
%%
%% A history that draws its seqs itself has one store for ever, and no list.
%%
%% The list is in memory, and in the file `epochs' of the history's folder, so that links which come
%% back after a restart of the brain keep their cursors. It names the store of the segments as well:
%% without that it would be the list of another history. A list that can't be read costs what no
%% list costs: a gap for each cursor of an older store.
%%
%%   epochs   "HALLEYEP" version:16 segments:32 now:32 count:16 (store:32 end:64)... crc:32
-module(halley_history_epochs).

-export([open/2, adopt/2, wipe/1, cursor/1]).

-type store() :: halley_cursor:store().
-type seq() :: halley_history_atomics:seq().

-define(NAME, "epochs").
-define(MAGIC, "HALLEYEP").
-define(VERSION, 1).
%% An epoch that is older than these is as another store.
-define(OLDER_MAX, 256).

%% For a log that starts: the store that its cursors name. `Segments': the store of its files.
-spec open(file:name_all(), Segments :: store()) -> store().
open(Dir, Segments) ->
    case file:read_file(path(Dir)) of
        {ok, Bytes} -> opened(parse(Bytes), Segments);
        {error, _} -> opened(none, Segments)
    end.

opened({Segments, Now, Older}, Segments) ->
    ok = persistent_term:put(?MODULE, Older),
    Now;
opened(_, Segments) ->
    %% Not to be written where it is so already: each process would be searched for the old term.
    _ = persistent_term:get(?MODULE, []) =:= [] orelse persistent_term:erase(?MODULE),
    Segments.

parse(Bytes) when byte_size(Bytes) > 4 ->
    Fields = binary_part(Bytes, 0, byte_size(Bytes) - 4),
    Crc = erlang:crc32(Fields),
    case Bytes of
        <<?MAGIC, ?VERSION:16, Segments:32, Now:32, Count:16, Older:Count/binary-unit:96,
          Crc:32>> ->
            {Segments, Now, [{Store, End} || <<Store:32, End:64>> <= Older]};
        _ ->
            none
    end;
parse(_) ->
    none.

%% The store has ended with this seq, and another one goes on. For the log's process alone. Returns
%% when that is on disk.
-spec adopt(store(), End :: seq()) -> ok | {error, term()}.
adopt(Store, End) ->
    case halley_history_atomics:get(store) of
        Store ->
            ok;
        Before ->
            %% The log has lost the rows that an older store had above `End'.
            Ended = [{S, min(E, End)} || {S, E} <- older(), S =/= Store],
            Older = lists:sublist([{Before, End} | Ended], ?OLDER_MAX),
            case write(Store, Older) of
                ok ->
                    %% Readers of the list compare with the store: that comes last.
                    ok = persistent_term:put(?MODULE, Older),
                    halley_history_atomics:put(store, Store);
                {error, _} = Error ->
                    Error
            end
    end.

%% There is nothing that an older store's cursors could mean. For the log's process alone.
-spec wipe(file:name_all()) -> ok.
wipe(Dir) ->
    _ = file:delete(path(Dir)),
    persistent_term:put(?MODULE, []).

write(Now, Older) ->
    Dir = halley_history_home:directory(),
    Segments = halley_history_atomics:get(segments_store),
    List = << <<Store:32, End:64>> || {Store, End} <- Older >>,
    Fields = <<?MAGIC, ?VERSION:16, Segments:32, Now:32, (length(Older)):16, List/binary>>,
    halley_data_dir:replace_file(path(Dir), [Fields, <<(erlang:crc32(Fields)):32>>]).

path(Dir) -> filename:join(Dir, ?NAME).

%% {Store, End}, the newest first.
older() -> persistent_term:get(?MODULE, []).

%% Reads a token as `halley_cursor:decode/1' does. One of an older store that lies before that
%% store's end is given as one of the present store. The caller must check whether the store is
%% ours, as with any cursor.
-spec cursor(halley_cursor:token()) ->
    {ok, #{store := store(), at := non_neg_integer(), vector := halley_cursor:vector()}} | error.
cursor(Token) ->
    case halley_cursor:decode(Token) of
        {ok, #{store := Store, vector := Vector} = Cursor} ->
            case lists:keyfind(Store, 1, older()) of
                {_, End} ->
                    case halley_vector:largest(Vector) =< End of
                        true -> {ok, Cursor#{store := halley_history_atomics:get(store)}};
                        false -> {ok, Cursor}
                    end;
                false ->
                    {ok, Cursor}
            end;
        error ->
            error
    end.
