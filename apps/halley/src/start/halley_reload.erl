%% The work of SIGHUP: the configuration is read again.
%%
%% `log.level' takes effect at once. Any other key that has changed takes effect at the next start,
%% and the log names it. A configuration that is wrong changes nothing, and the log says what is
%% wrong. Files with keys of tokens and servers, and with certificates, are read again whenever they
%% change (`halley_watched', and the edge): they need no signal.
%%
%% The environment of a process can't be changed from outside, so it is the one of the start. It and
%% the configuration hold secrets, so they are kept in funs, which are never printed.
-module(halley_reload).

-export([remember/2, ask/0]).

-include_lib("kernel/include/logger.hrl").

-type environment() :: [{Variable :: string(), Value :: string()}].

%% What the start has read.
-spec remember(environment(), halley_config:given()) -> ok.
remember(Environment, Given) ->
    application:set_env(halley, read, fun() -> {Environment, Given} end, [{persistent, true}]).

%% One at a time; who asks meanwhile is too late for the one that runs.
-spec ask() -> ok.
ask() ->
    case whereis(?MODULE) of
        undefined -> true = register(?MODULE, spawn(fun run/0)), ok;
        Running -> Running ! again, ok
    end.

run() ->
    {ok, Read} = application:get_env(halley, read),
    {Environment, InForce} = Read(),
    case halley_config:load(halley_config:file(), Environment) of
        {ok, Config} -> changed(Environment, InForce, Config);
        {error, Lines} -> lists:foreach(fun wrong/1, string:lexemes(Lines, "\n"))
    end,
    receive again -> run() after 0 -> ok end.

wrong(Line) ->
    ?LOG_ERROR("the configuration that was read again is wrong, and what is in force stays: ~ts",
               [Line]).

changed(Environment, InForce, #{given := Read} = Config) ->
    Given = Read(),
    Keys = lists:usort(maps:keys(InForce) ++ maps:keys(Given)),
    case [Key || Key <- Keys, maps:find(Key, InForce) =/= maps:find(Key, Given)] of
        [] ->
            ?LOG_NOTICE("the configuration was read again, and nothing in it has changed");
        Changed ->
            Now = [Key || Key <- Changed, Key =:= "log.level"],
            ok = set_level(Now, Config),
            ok = remember(Environment, put_in_force(Now, InForce, Given)),
            ?LOG_NOTICE("the configuration was read again~ts~ts",
                        [named("; in force is ", Now),
                         named("; at the next start take effect ", Changed -- Now)])
    end.

named(_, []) -> "";
named(What, Keys) -> [What, lists:join(", ", Keys)].

set_level([], _) ->
    ok;
set_level(["log.level"], Config) ->
    Level = halley_config:value(halley, log_level, Config),
    ok = application:set_env(halley, log_level, Level, [{persistent, true}]),
    ok = logger:set_primary_config(level, Level).

put_in_force([], InForce, _) ->
    InForce;
put_in_force([Key], InForce, Given) ->
    case Given of
        #{Key := Value} -> InForce#{Key => Value};
        #{} -> maps:remove(Key, InForce)
    end.
