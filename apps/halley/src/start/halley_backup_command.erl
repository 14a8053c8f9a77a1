%% `./halley backup DIR': copies `data.dir' (`halley_backup'), with a running brain or without one.
%% One line on stdout names the copied parts (`halley_command').
-module(halley_backup_command).

-export([main/0]).

-spec main() -> no_return().
main() ->
    case halley_command:start() of
        {Config, IsTerminal, [[_ | _] = Dir]} -> run(Config, Dir, IsTerminal);
        _ -> halley_command:failed("usage: ./halley backup DIR")
    end.

-spec run(halley_config:config(), file:filename(), boolean()) -> no_return().
run(Config, Dir, IsTerminal) ->
    To = unicode:characters_to_list(filename:absname(Dir)),
    From = halley_config:value(halley, data_dir, Config),
    case halley_command:with_progress(IsTerminal, fun(P) -> halley_backup:run(From, To, P) end) of
        {ok, #{ids := Ids, follows := Follows, segments := Segments, bytes := Bytes}} ->
            io:put_chars(io_lib:format("~ts: ~b ids and ~b follows, ~b history segments, ~.1f MB\n",
                                       [To, Ids, Follows, Segments, Bytes / 1048576])),
            halt(0);
        {error, Line} ->
            halley_command:failed(Line)
    end.
