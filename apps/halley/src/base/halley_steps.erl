%% Steps that can fail, one after the other: the first error is the answer.
-module(halley_steps).

-export([run/1, first_error/1]).

%% Takes steps until one fails; those behind it aren't taken.
-spec run([fun(() -> ok | Error)]) -> ok | Error.
run([Step | Steps]) ->
    case Step() of
        ok -> run(Steps);
        Error -> Error
    end;
run([]) -> ok.

%% Of the results of steps that were all taken. What isn't an error is as good as `ok'.
-spec first_error([term()]) -> ok | {error, term()}.
first_error(Results) ->
    case [Error || {error, _} = Error <- Results] of
        [] -> ok;
        [Error | _] -> Error
    end.
