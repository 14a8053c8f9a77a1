%% Says on a terminal what a command is at, once it takes longer than a second.
%%
%% One line that is written over, on stderr. Without a terminal it prints nothing: the output of a
%% command is then its result alone.
-module(halley_progress).

-export([new/1, done/0]).
-export_type([progress/0]).

-type progress() :: fun((unicode:chardata()) -> ok).

-define(SILENT_MS, 1000).
-define(AGAIN_MS, 200).

%% What is given to the function is said, at most five times in a second.
-spec new(IsTerminal :: boolean()) -> progress().
new(false) ->
    fun(_) -> ok end;
new(true) ->
    Said = atomics:new(1, [{signed, true}]),
    ok = atomics:put(Said, 1, now_ms() + ?SILENT_MS - ?AGAIN_MS),
    fun(Text) ->
        NowMs = now_ms(),
        case NowMs - atomics:get(Said, 1) >= ?AGAIN_MS of
            true ->
                ok = atomics:put(Said, 1, NowMs),
                io:put_chars(standard_error, ["\r\e[K", Text, " ..."]);
            false ->
                ok
        end
    end.

%% Clears the line.
-spec done() -> ok.
done() -> io:put_chars(standard_error, "\r\e[K").

now_ms() -> erlang:monotonic_time(millisecond).
