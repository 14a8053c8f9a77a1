%% How far the files of a part had come, noted outside of that part's folder.
%%
%% A folder that was put back from an older copy, or whose newest file was cut, agrees with itself:
%% only a note elsewhere can show that it is older than what was acknowledged. So each part notes in
%% `<data.dir>/<part>.position' what it knows to be on disk, every 50 ms (follows) or 250 ms
%% (history) and when it stops, and compares at its start. The content of the note is the part's own
%% affair.
%%
%% Nothing here is synced. A note may be older than its files, and then shows less; it never claims
%% what wasn't on disk, since it is written after the sync. A torn one is `damaged'.
%%
%%   "HALLEYPO" version:16 part:8 length:16 bytes, zeros up to 508, crc:32
-module(halley_position).

-export([write/2, read/1]).
-export_type([part/0]).

-include_lib("kernel/include/logger.hrl").

-type part() :: history | follows.

-define(MAGIC, "HALLEYPO").
-define(VERSION, 1).
-define(RECORD_BYTES, 512).
-define(HEAD_BYTES, 13).
-define(NOTE_BYTES_MAX, (?RECORD_BYTES - ?HEAD_BYTES - 4)).

%% One write in place. A note that can't be written is counted, and said once.
-spec write(part(), binary()) -> ok.
write(Part, Note) when byte_size(Note) =< ?NOTE_BYTES_MAX ->
    Path = path(Part),
    case file:open(Path, [read, write, raw, binary]) of
        {ok, File} ->
            Result = file:pwrite(File, 0, encode(Part, Note)),
            _ = file:close(File),
            written(Result, Path, Part);
        Error ->
            written(Error, Path, Part)
    end.

written(ok, Path, Part) ->
    case persistent_term:get({?MODULE, Part}, new) of
        written -> ok;
        _ ->
            _ = halley_data_dir:make_private(Path),
            persistent_term:put({?MODULE, Part}, written)
    end;
written({error, Reason}, Path, Part) ->
    ok = halley_metrics:incr(position_errors),
    case persistent_term:get({?MODULE, Part}, new) of
        failed -> ok;
        _ ->
            persistent_term:put({?MODULE, Part}, failed),
            ?LOG_WARNING("data.dir: ~ts cannot be written: ~ts", [Path, file:format_error(Reason)])
    end.

%% `damaged': there is a note, and what it said is not known.
-spec read(part()) -> {ok, binary()} | none | damaged.
read(Part) ->
    case file:read_file(path(Part)) of
        {ok, Bytes} -> decode(code(Part), Bytes);
        {error, enoent} -> none;
        {error, _} -> damaged
    end.

path(Part) -> filename:join(halley_data_dir:path(), atom_to_list(Part) ++ ".position").

code(history) -> 1;
code(follows) -> 2.

encode(Part, Note) ->
    Padding = 8 * (?NOTE_BYTES_MAX - byte_size(Note)),
    Fields = <<?MAGIC, ?VERSION:16, (code(Part)), (byte_size(Note)):16, Note/binary, 0:Padding>>,
    <<Fields/binary, (erlang:crc32(Fields)):32>>.

decode(Code, <<Fields:(?RECORD_BYTES - 4)/binary, Crc:32>>) ->
    case {erlang:crc32(Fields), Fields} of
        {Crc, <<?MAGIC, ?VERSION:16, Code, Bytes:16, Note:Bytes/binary, _/binary>>} -> {ok, Note};
        _ -> damaged
    end;
decode(_, _) ->
    damaged.
