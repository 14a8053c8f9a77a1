%% `./halley backup DIR': copies `data.dir' (`halley_backup'), with a running brain or without one.
%% One line on stdout names the copied parts (`halley_command').
-module(halley_backup_command).

-export([main/0]).

-define(USAGE, "usage: ./halley backup DIR").

-spec main() -> no_return().
main() ->
    {Config, IsTerminal, [Dir]} = halley_command:start("backup", ?USAGE, fun are_known/1),
    run(Config, Dir, IsTerminal).

%% A folder whose name begins with `-' is written `./-x': it is more often an option of another
%% program.
are_known([[First | _]]) -> First =/= $-;
are_known(_) -> false.

-spec run(halley_config:config(), file:filename(), boolean()) -> no_return().
run(Config, Dir, IsTerminal) ->
    To = unicode:characters_to_list(filename:absname(Dir)),
    From = halley_config:value(halley, data_dir, Config),
    lists:prefix(filename:split(From), filename:split(To)) andalso
        halley_command:failed([To, " is in data.dir, which it would copy; take another folder"]),
    case halley_command:with_progress(IsTerminal, fun(P) -> halley_backup:run(From, To, P) end) of
        {ok, #{ids := Ids, follows := Follows, segments := Segments, bytes := Bytes}} ->
            io:put_chars(io_lib:format("~ts: ~b ids and ~b follows, ~b history segments, ~.1f MB\n",
                                       [To, Ids, Follows, Segments, Bytes / 1048576])),
            halt(0);
        {error, Line} ->
            halley_command:failed(Line)
    end.
