%% `<data.dir>/halley.pid': which process runs here and how far it is, for `./halley drain'.
%%
%% Three lines: the process id; its start time in clock ticks (proc(5), stat's 22nd field), as a
%% number may be used again by another process; `running', or `draining' and how many sessions are
%% left. It is replaced as a whole, so a reader never sees a part of it. It is no lock: that is
%% `halley_data_dir''s. A brain that is killed leaves its file, and the next one writes over it.
%% Where data.dir takes no writes the file is in the directory of the edge's sockets.
-module(halley_pidfile).

-export([write/1, ensure/1, remove/0]).

-include_lib("kernel/include/logger.hrl").

-spec write(running | {draining, Sessions :: non_neg_integer()}) ->
    ok | {error, file:posix() | badarg | terminated | system_limit}.
write(Status) ->
    Path = path(),
    New = [Path, ".new"],
    case file:write_file(New, [os:getpid(), $\n, started(), $\n, status(Status), $\n]) of
        ok -> file:rename(New, Path);
        {error, _} = Error -> Error
    end.

%% Writes it into the directory of the edge's sockets, if it isn't in data.dir.
-spec ensure(Sockets :: file:filename_all()) -> ok.
ensure(Sockets) ->
    case is_own(file:read_file(path())) of
        true -> ok;
        false ->
            ok = application:set_env(halley, pid_dir, Sockets),
            not_worth_an_end(write(running))
    end.

not_worth_an_end(ok) ->
    ok;
not_worth_an_end({error, Reason}) ->
    ?LOG_WARNING("halley.pid cannot be written (~ts), so `./halley drain` will not find this brain",
                 [file:format_error(Reason)]).

%% Removes it if it is this process' own: a start that was refused must not touch that of another.
-spec remove() -> ok.
remove() ->
    Path = path(),
    case is_own(file:read_file(Path)) of
        true -> _ = file:delete(Path), ok;
        false -> ok
    end.

is_own({ok, Text}) -> hd(binary:split(Text, <<"\n">>)) =:= list_to_binary(os:getpid());
is_own({error, _}) -> false.

path() ->
    DataDir = application:get_env(halley, data_dir, "data"),
    filename:join(application:get_env(halley, pid_dir, DataDir), "halley.pid").

status(running) -> "running";
status({draining, Sessions}) -> ["draining ", integer_to_list(Sessions)].

%% The name is in parentheses and may hold anything, so fields are counted behind the last one.
started() ->
    {ok, Stat} = file:read_file(["/proc/", os:getpid(), "/stat"]),
    Fields = lists:last(binary:split(Stat, <<") ">>, [global])),
    lists:nth(20, binary:split(Fields, <<" ">>, [global])).
