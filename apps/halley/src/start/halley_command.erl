%% The beginning and the end of commands of `./halley' that run in an emulator of their own.
%%
%% The result goes to stdout; the reason of a failure, to stderr in one line, or one for each
%% mistake, and then the exit status is 1. The arguments are judged first: a command that is
%% misspelt reports that alone, whatever the configuration.
-module(halley_command).

-export([write_utf8/0, start/3, misused/3, with_progress/2, failed/1, lines/1]).

%% Whatever the locale: names of files are UTF-8 as well.
-spec write_utf8() -> ok.
write_utf8() ->
    %% One that is closed takes nothing.
    _ = [io:setopts(Device, [{encoding, unicode}]) || Device <- [standard_io, standard_error]],
    ok.

%% The configuration, which is in force from now on, and the arguments behind -extra: whether stderr
%% is a terminal, and the user's. Ends the emulator if these are none that the command knows, or if
%% the configuration is bad.
-spec start(Command :: string(), Usage :: string(), AreKnown :: fun(([string()]) -> boolean())) ->
    {halley_config:config(), IsTerminal :: boolean(), Arguments :: [string()]}.
start(Command, Usage, AreKnown) ->
    ok = logger:set_primary_config(level, none),
    [Terminal | Arguments] = init:get_plain_arguments(),
    AreKnown(Arguments) orelse failed(misused(Command, Arguments, Usage)),
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

%% The line about arguments that the command doesn't know, or that are missing.
-spec misused(Command :: string(), Arguments :: [unicode:chardata()], Usage :: string()) ->
    unicode:chardata().
misused(_, [], Usage) -> Usage;
misused(Command, Arguments, Usage) ->
    ["`./halley ", lists:join($\s, [Command | Arguments]), "` isn't a command; ", Usage].

-spec failed(unicode:chardata()) -> no_return().
failed(Lines) ->
    io:put_chars(standard_error, lines(Lines)),
    halt(1).

%% Says whose each line is.
-spec lines(unicode:chardata()) -> unicode:chardata().
lines(Lines) ->
    [["halley: ", Line, $\n] || Line <- string:split(Lines, "\n", all)].
