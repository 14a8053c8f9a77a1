%% `./halley backup DIR': copies `data.dir' (`halley_backup'). It runs in an emulator of its own,
%% beside a brain or without one. One line on stdout says what was copied; what went wrong is one
%% line on stderr, and the exit status 1.
-module(halley_backup_command).

-export([main/0]).

%% The arguments are those behind -extra: whether stderr is a terminal, and the user's.
-spec main() -> no_return().
main() ->
    ok = logger:set_primary_config(level, none),
    [IsTerminal | Arguments] = init:get_plain_arguments(),
    case {halley_config:load(), Arguments} of
        {{error, Line}, _} -> failed(Line);
        {{ok, Config}, [[_ | _] = Dir]} -> run(Config, Dir, IsTerminal =:= "terminal");
        {_, _} -> failed("usage: ./halley backup DIR")
    end.

-spec run(halley_config:config(), file:filename(), boolean()) -> no_return().
run(#{env := Env} = Config, Dir, IsTerminal) ->
    ok = application:set_env(Env),
    To = unicode:characters_to_list(filename:absname(Dir)),
    Result = halley_backup:run(halley_config:value(halley, data_dir, Config), To,
                               halley_progress:new(IsTerminal)),
    IsTerminal andalso halley_progress:done(),
    case Result of
        {ok, #{ids := Ids, follows := Follows, segments := Segments, bytes := Bytes}} ->
            io:put_chars(io_lib:format("~ts: ~b ids and ~b follows, ~b history segments, ~.1f MB\n",
                                       [To, Ids, Follows, Segments, Bytes / 1048576])),
            halt(0);
        {error, Line} ->
            failed(Line)
    end.

-spec failed(unicode:chardata()) -> no_return().
failed(Line) ->
    io:put_chars(standard_error, ["halley: ", Line, "\n"]),
    halt(1).
