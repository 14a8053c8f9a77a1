%% `<data.dir>/server-keys': the server keys that exist, one on a line (`halley_server_key').
%%
%% `./halley key' writes it, whether or not a brain runs; the brain only reads. A change takes the
%% lock, reads, and replaces the file as a whole: a reader sees all of a change or nothing, and two
%% changes at once are one after the other. The lock is a Unix socket in the abstract namespace,
%% named after the directory's inode: the kernel drops it with its process, and nothing listens.
%%
%% The first line names the format, the last one has a CRC-32 of all before it: a file in which a
%% bit changed, or that lost its end, could otherwise have fewer keys, other rights, or a key that
%% opens nothing. A file without a first line is of a build before, and is read as it is.
%%
%% A line that is no key makes the whole file an error: to skip it could drop the very key that
%% makes keys needed. Where there are no keys one line says whether the API is open on loopback all
%% the same: `open' if `./halley key open' said so, `closed' if the last key was revoked.
%%
%% A file that is gone says nothing, so `server-keys.made' stands next to it since there was a first
%% key: without keys the API is closed then.
%%
%% A command prints only what is durable: the new file and its name are synced before it returns.
-module(halley_server_keys_file).

-include_lib("kernel/include/file.hrl").

-export([path/1, parse/1, read/1, change/2, remember/1]).
-export_type([reason/0, stored/0]).

%% One sentence.
-type reason() :: unicode:chardata().

%% What an API on loopback is to be without keys; `empty': the file doesn't say it.
-type stored() :: {[halley_server_key:key()], open | closed | empty}.

-define(FIRST_LINE, "{\"server_keys\":2}\n").
-define(LAST_LINE(Crc), "{\"crc32\":\"", (Crc):8/binary, "\"}\n").
%% Of `LAST_LINE' in all.
-define(LAST_LINE_BYTES, 21).

-define(LOCK_MS_MAX, 5000).
-define(LOCK_POLL_MS, 50).

-spec path(DataDir :: file:filename_all()) -> file:filename_all().
path(DataDir) ->
    filename:join(DataDir, "server-keys").

-spec parse(binary()) -> {ok, stored()} | {error, reason()}.
parse(<<?FIRST_LINE, Rest/binary>> = Bytes) ->
    case split(Rest) of
        {Lines, Crc} ->
            Sum = crc(binary:part(Bytes, 0, byte_size(Bytes) - ?LAST_LINE_BYTES)),
            case Sum of
                Crc -> parse_content(Lines);
                _ -> damaged()
            end;
        none ->
            damaged()
    end;
parse(Bytes) ->
    parse_content(Bytes).

split(Rest) ->
    Before = byte_size(Rest) - ?LAST_LINE_BYTES,
    case Rest of
        <<Lines:Before/binary, ?LAST_LINE(Crc)>> -> {Lines, Crc};
        _ -> none
    end.

crc(Bytes) -> binary:encode_hex(<<(erlang:crc32(Bytes)):32>>).

damaged() ->
    {error, "it is damaged; put back a copy, or remove it and make keys anew with "
            "`./halley key create`"}.

parse_content(Bytes) ->
    Lines = [Line || Line <- binary:split(Bytes, <<"\n">>, [global]), Line =/= <<>>],
    case length(Lines) =< halley_limits:get(server_keys_max) of
        true -> parse_lines(Lines);
        false -> {error, too_many()}
    end.

parse_lines([]) -> {ok, {[], empty}};
parse_lines([<<"open">>]) -> {ok, {[], open}};
parse_lines([<<"closed">>]) -> {ok, {[], closed}};
parse_lines(Lines) -> parse(Lines, 1, []).

parse([Line | Lines], N, Keys) ->
    case halley_server_key:from_line(Line) of
        {ok, Key} -> parse(Lines, N + 1, [Key | Keys]);
        error -> {error, ["line ", integer_to_list(N), " is no server key; `./halley key` alone "
                          "writes this file"]}
    end;
parse([], _, Keys) ->
    {ok, {lists:reverse(Keys), closed}}.

too_many() ->
    ["there are at most ", integer_to_list(halley_limits:get(server_keys_max)), " server keys"].

%% What a data directory has. A file of somebody else is an error: its keys would be his.
-spec read(DataDir :: file:filename_all()) -> {ok, stored()} | {error, reason()}.
read(DataDir) ->
    Path = path(DataDir),
    case {own([DataDir, Path]), file:read_file(Path)} of
        {{error, _} = Error, _} -> Error;
        {ok, {ok, Bytes}} -> in(Path, parse(Bytes));
        {ok, {error, enoent}} -> {ok, {[], missing(DataDir)}};
        {ok, {error, Reason}} -> in(Path, {error, file:format_error(Reason)})
    end.

own([Path | Paths]) ->
    case halley_data_dir:check_owner(Path) of
        ok -> own(Paths);
        {error, Sentence} -> {error, ["data.dir: ", Sentence]}
    end;
own([]) ->
    ok.

missing(DataDir) ->
    case file:read_link_info(made_path(DataDir)) of
        {ok, _} -> closed;
        {error, _} -> open
    end.

made_path(DataDir) -> filename:join(DataDir, "server-keys.made").

%% From now on a missing file is no open API.
-spec remember(DataDir :: file:filename_all()) -> ok | {error, term()}.
remember(DataDir) ->
    case missing(DataDir) of
        closed -> ok;
        open ->
            case file:open(made_path(DataDir), [write, raw]) of
                {ok, File} ->
                    _ = file:close(File),
                    _ = halley_data_dir:make_private(made_path(DataDir)),
                    halley_data_dir:sync_directory(DataDir);
                Error -> Error
            end
    end.

in(Path, {error, Reason}) -> {error, ["data.dir: ", Path, ": ", Reason]};
in(_, Done) -> Done.

%% Replaces what is stored by what `Change' makes of it; what it refuses changes nothing, and what
%% can't be written neither.
-spec change(DataDir :: file:filename_all(),
             fun((stored()) -> {ok, stored()} | {error, reason()})) -> ok | {error, reason()}.
change(DataDir, Change) ->
    Path = path(DataDir),
    case halley_data_dir:make_directory(DataDir) of
        ok ->
            case lock(DataDir, erlang:monotonic_time(millisecond) + ?LOCK_MS_MAX) of
                {ok, Lock} ->
                    try changed(DataDir, read(DataDir), Change)
                    after socket:close(Lock)
                    end;
                busy ->
                    {error, ["data.dir: another `./halley key` holds ", Path]}
            end;
        {error, Reason} ->
            in(Path, {error, file:format_error(Reason)})
    end.

changed(DataDir, {ok, Stored}, Change) ->
    case Change(Stored) of
        {ok, New} ->
            in(path(DataDir), write(DataDir, New, halley_limits:get(server_keys_max)));
        {error, _} = Error -> Error
    end;
changed(_, {error, _} = Error, _) ->
    Error.

write(_, {Keys, _}, Max) when length(Keys) > Max ->
    {error, too_many()};
write(DataDir, {Keys, WhenNone}, _) ->
    case halley_data_dir:replace_file(path(DataDir), content(Keys, WhenNone),
                                      fun() -> remember(DataDir) end) of
        ok -> ok;
        {error, Reason} -> {error, ["nothing was changed: ", file:format_error(Reason)]}
    end.

content(Keys, WhenNone) ->
    Bytes = iolist_to_binary([?FIRST_LINE, lines(Keys, WhenNone)]),
    Crc = crc(Bytes),
    [Bytes, <<?LAST_LINE(Crc)>>].

lines([], WhenNone) -> [atom_to_list(WhenNone), $\n];
lines(Keys, _) -> [halley_server_key:line(Key) || Key <- Keys].

lock(DataDir, Deadline) ->
    {ok, #file_info{major_device = Device, inode = Inode}} = file:read_file_info(DataDir),
    Name = io_lib:format("halley-server-keys-~b-~b", [Device, Inode]),
    {ok, Socket} = socket:open(local, dgram),
    case socket:bind(Socket, #{family => local, path => iolist_to_binary([0, Name])}) of
        ok ->
            {ok, Socket};
        {error, _} ->
            ok = socket:close(Socket),
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> timer:sleep(?LOCK_POLL_MS), lock(DataDir, Deadline);
                false -> busy
            end
    end.
