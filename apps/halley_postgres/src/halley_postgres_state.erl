%% The state that must survive a restart: the position of the stream, and which file has each
%% table's pairs.
%%
%% It is `<data.dir>/postgres/state', two lines: JSON, and the CRC-32 of it. It is written under
%% another name, synced and renamed, and the folder is synced; so it is the old one or the new one.
%% A position is confirmed to PostgreSQL only after this file has it, and this file has it only
%% after everything before it is in Halley's own files.
-module(halley_postgres_state).

-export([folder/0, read/0, write/1, written/2, entries/1, new_pairs_file/0, is_copied/0,
         uncopied/0]).
-export_type([state/0, table/0]).

%% Changes of a table whose transactions were committed before `from' are in its copy. `base': how
%% long the file was when each of its pairs was there once. `shape': what was copied; a state of an
%% earlier version doesn't say.
-type table() :: #{file := file:filename(), bytes := non_neg_integer(),
                   base := non_neg_integer(), from := non_neg_integer(),
                   shape := halley_postgres_shape:shape() | unknown}.
%% `system': the server's own identifier. `outbox': rows of it up to this one were there before the
%% slot, and have to be taken yet; `unknown' where nothing is published.
-type state() :: #{system := binary(), slot := binary(), lsn := non_neg_integer(),
                   outbox := non_neg_integer() | unknown,
                   tables := #{Table :: binary() => table()}}.

%% Made if it isn't there.
-spec folder() -> file:filename().
folder() ->
    Folder = filename:join(halley_data_dir:path(), "postgres"),
    case halley_data_dir:make_directory(Folder) of
        ok -> Folder;
        {error, Reason} -> exit({not_written, Folder, Reason})
    end.

path() -> filename:join(folder(), "state").

-spec read() -> {ok, state()} | none | damaged.
read() ->
    case file:read_file(path()) of
        {ok, Text} ->
            case binary:split(Text, <<"\n">>, [global]) of
                [Json, Crc, <<>>] ->
                    case crc(Json) of
                        Crc -> {ok, decode(jiffy:decode(Json, [return_maps]))};
                        _ -> damaged
                    end;
                _ -> damaged
            end;
        {error, enoent} -> none;
        {error, _} -> damaged
    end.

crc(Json) -> integer_to_binary(erlang:crc32(Json), 16).

decode(#{<<"system">> := System, <<"slot">> := Slot, <<"lsn">> := Lsn, <<"tables">> := Tables}
       = State) ->
    #{system => System, slot => Slot, lsn => epgsql_replication:lsn(Lsn),
      outbox => case State of
                    #{<<"outbox">> := <<"unknown">>} -> unknown;
                    #{<<"outbox">> := Last} -> Last;
                    #{} -> 0
                end,
      tables => maps:map(fun(_, #{<<"file">> := File, <<"bytes">> := Bytes, <<"base">> := Base,
                                  <<"from">> := From} = Table) ->
          #{file => unicode:characters_to_list(File), bytes => Bytes, base => Base,
            from => epgsql_replication:lsn(From),
            shape => maps:get(<<"shape">>, Table, unknown)}
      end, Tables)}.

%% On disk when it returns. A disk that refuses ends the caller.
-spec write(state()) -> ok.
write(#{system := System, slot := Slot, outbox := Outbox, lsn := Lsn, tables := Tables}) ->
    Json = iolist_to_binary(jiffy:encode(
        #{system => System, slot => Slot, outbox => Outbox, lsn => epgsql_replication:lsn_text(Lsn),
          tables => maps:map(fun(_, #{file := File, from := From, shape := Shape} = Table) ->
              Known = case Shape of unknown -> maps:remove(shape, Table); _ -> Table end,
              Known#{file := unicode:characters_to_binary(File),
                     from := epgsql_replication:lsn_text(From)}
          end, Tables)})),
    Path = path(),
    written(Path, halley_data_dir:replace_file(Path, [Json, $\n, crc(Json), $\n])).

%% Without its files the stream can't go on: who runs it says why, and tries again.
-spec written(file:filename(), ok | {error, term()}) -> ok.
written(_, ok) -> ok;
written(Path, {error, Reason}) -> exit({not_written, Path, Reason}).

%% Of tables whose pairs are in files, as they are now.
-spec entries(#{Table => #{path := file:filename(), pairs := halley_postgres_pairs:file(),
                           base := non_neg_integer(), from := non_neg_integer(),
                           shape := halley_postgres_shape:shape(), _ => _}}) ->
    #{Table => table()}
    when Table :: binary().
entries(Sources) ->
    maps:map(fun(_, #{path := Path, pairs := Pairs, base := Base, from := From, shape := Shape}) ->
        #{file => filename:basename(Path), bytes => halley_postgres_pairs:bytes(Pairs),
          base => Base, from => From, shape => Shape}
    end, Sources).

%% A name in the folder that no file has.
-spec new_pairs_file() -> file:filename().
new_pairs_file() ->
    Folder = folder(),
    Numbers = [list_to_integer(N)
               || "pairs-" ++ N <- [filename:basename(P)
                                    || P <- filelib:wildcard(filename:join(Folder, "pairs-*"))]],
    filename:join(Folder, "pairs-" ++ integer_to_list(lists:max([0 | Numbers]) + 1)).

%% Whether the folder is that of a backup, which no stream has begun on yet.
-spec is_copied() -> boolean().
is_copied() -> filelib:is_regular(copied()).

-spec uncopied() -> ok.
uncopied() ->
    case file:delete(copied()) of
        ok -> ok;
        {error, enoent} -> ok;
        {error, Reason} -> exit({not_written, copied(), Reason})
    end.

copied() -> filename:join(folder(), "copied").
