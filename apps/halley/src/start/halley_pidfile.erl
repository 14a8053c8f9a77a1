%% `<data.dir>/halley.pid': which process runs here and how far it is, for `./halley drain'.
%%
%% Three lines: the process id; its start time in clock ticks (proc(5), stat's 22nd field), as a
%% number may be used again by another process; `running', or `draining' and how many sessions are
%% left. It is replaced as a whole, so a reader never sees a part of it. It is no lock: that is
%% `halley_data_dir''s. A brain that is killed leaves its file, and the next one writes over it.
-module(halley_pidfile).

-export([write/1, remove/0]).

-spec write(running | {draining, Sessions :: non_neg_integer()}) ->
    ok | {error, file:posix() | badarg | terminated | system_limit}.
write(Status) ->
    Path = path(),
    New = [Path, ".new"],
    case file:write_file(New, [os:getpid(), $\n, started(), $\n, status(Status), $\n]) of
        ok -> file:rename(New, Path);
        {error, _} = Error -> Error
    end.

%% Removes it if it is this process' own: a start that was refused must not touch that of another.
-spec remove() -> ok.
remove() ->
    Own = list_to_binary([os:getpid(), $\n]),
    Bytes = byte_size(Own),
    case file:read_file(path()) of
        {ok, <<Own:Bytes/binary, _/binary>>} -> _ = file:delete(path()), ok;
        _ -> ok
    end.

path() ->
    filename:join(application:get_env(halley, data_dir, "data"), "halley.pid").

status(running) -> "running";
status({draining, Sessions}) -> ["draining ", integer_to_list(Sessions)].

%% The name is in parentheses and may hold anything, so fields are counted behind the last one.
started() ->
    {ok, Stat} = file:read_file(["/proc/", os:getpid(), "/stat"]),
    Fields = lists:last(binary:split(Stat, <<") ">>, [global])),
    lists:nth(20, binary:split(Fields, <<" ">>, [global])).
