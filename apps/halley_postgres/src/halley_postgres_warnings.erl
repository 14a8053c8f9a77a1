%% Settings of PostgreSQL with which Halley works, and of which its operator should know: `./halley
%% postgres check' prints them, without counting them as missing, and so does the log.
-module(halley_postgres_warnings).

-export([look/2, print/2, log/2]).

-include_lib("kernel/include/logger.hrl").

-spec look(epgsql:connection(), halley_postgres_config:settings()) -> [unicode:chardata()].
look(C, #{publish := Publish}) ->
    [Each || Publish =/= outbox, Each <- halley_postgres_standby:warnings(C)]
        ++ halley_postgres_encoding:warnings(C).

-spec print(epgsql:connection(), halley_postgres_config:settings()) -> ok.
print(C, Settings) ->
    lists:foreach(fun(Each) -> io:format("warning: ~ts~n", [Each]) end, look(C, Settings)).

-spec log(epgsql:connection(), halley_postgres_config:settings()) -> ok.
log(C, Settings) ->
    lists:foreach(fun(Each) -> ?LOG_WARNING("postgres: ~ts", [Each]) end, look(C, Settings)).
