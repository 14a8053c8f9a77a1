%% The beginning and the end of commands of `./halley' that run in an emulator of their own.
%%
%% The result goes to stdout; the reason of a failure, to stderr in one line, or one for each
%% mistake, and then the exit status is 1.
-module(halley_command).

-export([write_utf8/0, start/0, with_progress/2, failed/1, lines/1]).

%% Whatever the locale: names of files are UTF-8 as well.
-spec write_utf8() -> ok.
write_utf8() ->
    %% One that is closed takes nothing.
    _ = [io:setopts(Device, [{encoding, unicode}]) || Device <- [standard_io, standard_error]],
    ok.

%% The configuration, which is in force from now on, and the arguments behind -extra: whether stderr
%% is a terminal, and the user's. Ends the emulator if the configuration is bad.
-spec start() -> {halley_config:config(), IsTerminal :: boolean(), Arguments :: [string()]}.
start() ->
    ok = logger:set_primary_config(level, none),
    [Terminal | Arguments] = init:get_plain_arguments(),
    case halley_config:load() of
        {ok, #{env := Env} = Config} ->
            ok = application:set_env(Env),
            {Config, Terminal =:= "terminal", Arguments};
        {error, Line} ->
            failed(Line)
    end.

%% Runs what says how far it is; on a terminal, a line shows it meanwhile.
-spec with_progress(IsTerminal :: boolean(), fun((halley_progress:progress()) -> Result)) -> Result.
with_progress(IsTerminal, Run) ->
    Result = Run(halley_progress:new(IsTerminal)),
    IsTerminal andalso halley_progress:done(),
    Result.

-spec failed(unicode:chardata()) -> no_return().
failed(Lines) ->
    io:put_chars(standard_error, lines(Lines)),
    halt(1).

%% Says whose each line is.
-spec lines(unicode:chardata()) -> unicode:chardata().
lines(Lines) ->
    [["halley: ", Line, $\n] || Line <- string:split(Lines, "\n", all)].
