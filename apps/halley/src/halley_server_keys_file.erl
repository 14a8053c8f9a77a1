%% `<data.dir>/server-keys': the server keys that exist, one on a line (`halley_server_key').
%%
%% `./halley key' writes it, whether or not a brain runs; the brain only reads. A change takes the
%% lock, reads, and replaces the file as a whole: a reader sees all of a change or nothing, and two
%% changes at once are one after the other. The lock is a Unix socket in the abstract namespace,
%% named after the directory's inode: the kernel drops it with its process, and nothing listens.
%%
%% A line that is no key makes the whole file an error: to skip it could drop the very key that
%% makes keys needed.
-module(halley_server_keys_file).

-include_lib("kernel/include/file.hrl").

-export([path/1, parse/1, read/1, change/2]).
-export_type([reason/0]).

%% One sentence.
-type reason() :: unicode:chardata().

-define(LOCK_MS_MAX, 5000).
-define(LOCK_POLL_MS, 50).

-spec path(DataDir :: file:filename_all()) -> file:filename_all().
path(DataDir) ->
    filename:join(DataDir, "server-keys").

-spec parse(binary()) -> {ok, [halley_server_key:key()]} | {error, reason()}.
parse(Bytes) ->
    Lines = [Line || Line <- binary:split(Bytes, <<"\n">>, [global]), Line =/= <<>>],
    case length(Lines) =< halley_limits:get(server_keys_max) of
        true -> parse(Lines, 1, []);
        false -> {error, too_many()}
    end.

parse([Line | Lines], N, Keys) ->
    case halley_server_key:from_line(Line) of
        {ok, Key} -> parse(Lines, N + 1, [Key | Keys]);
        error -> {error, ["line ", integer_to_list(N), " is no server key; `./halley key` alone "
                          "writes this file"]}
    end;
parse([], _, Keys) ->
    {ok, lists:reverse(Keys)}.

too_many() ->
    ["there are at most ", integer_to_list(halley_limits:get(server_keys_max)), " server keys"].

%% The keys in a data directory; none where there is no file.
-spec read(DataDir :: file:filename_all()) -> {ok, [halley_server_key:key()]} | {error, reason()}.
read(DataDir) ->
    Path = path(DataDir),
    case file:read_file(Path) of
        {ok, Bytes} -> in(Path, parse(Bytes));
        {error, enoent} -> {ok, []};
        {error, Reason} -> in(Path, {error, file:format_error(Reason)})
    end.

in(Path, {error, Reason}) -> {error, ["data.dir: ", Path, ": ", Reason]};
in(_, Done) -> Done.

%% Replaces the keys by what `Change' makes of them; what it refuses changes nothing.
-spec change(DataDir :: file:filename_all(),
             fun(([halley_server_key:key()]) -> {ok, [halley_server_key:key()]} |
                                                {error, reason()})) -> ok | {error, reason()}.
change(DataDir, Change) ->
    Path = path(DataDir),
    case filelib:ensure_dir(Path) of
        ok ->
            case lock(DataDir, erlang:monotonic_time(millisecond) + ?LOCK_MS_MAX) of
                {ok, Lock} ->
                    try changed(Path, read(DataDir), Change)
                    after socket:close(Lock)
                    end;
                busy ->
                    {error, ["data.dir: another `./halley key` holds ", Path]}
            end;
        {error, Reason} ->
            in(Path, {error, file:format_error(Reason)})
    end.

changed(Path, {ok, Keys}, Change) ->
    case Change(Keys) of
        {ok, New} -> in(Path, write(Path, New, halley_limits:get(server_keys_max)));
        {error, _} = Error -> Error
    end;
changed(_, {error, _} = Error, _) ->
    Error.

write(_, Keys, Max) when length(Keys) > Max ->
    {error, too_many()};
write(Path, Keys, _) ->
    New = [Path, ".new"],
    Lines = [halley_server_key:line(Key) || Key <- Keys],
    Steps = [fun() -> file:write_file(New, <<>>) end,
             fun() -> file:change_mode(New, 8#600) end,
             fun() -> write_and_sync(New, Lines) end,
             fun() -> file:rename(New, Path) end],
    case first_error(Steps) of
        ok -> ok;
        {error, Reason} -> {error, file:format_error(Reason)}
    end.

first_error([Step | Steps]) ->
    case Step() of
        ok -> first_error(Steps);
        {error, _} = Error -> Error
    end;
first_error([]) ->
    ok.

write_and_sync(Path, Lines) ->
    case file:open(Path, [write, raw]) of
        {ok, File} ->
            Result = first_error([fun() -> file:write(File, Lines) end,
                                  fun() -> file:sync(File) end]),
            _ = file:close(File),
            Result;
        {error, _} = Error ->
            Error
    end.

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
