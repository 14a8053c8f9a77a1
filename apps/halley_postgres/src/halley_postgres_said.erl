%% Lines of the log: those that come once a second at most, with how many they stand for (the counts
%% are in the process that says them); and one that several say.
-module(halley_postgres_said).

-export([once_a_second/3, altered/2]).

-include_lib("kernel/include/logger.hrl").

-spec once_a_second(Key :: atom(), More :: pos_integer(), fun((pos_integer()) -> term())) -> ok.
once_a_second(Key, More, Say) ->
    NowMs = erlang:monotonic_time(millisecond),
    case get({?MODULE, Key}) of
        {LastMs, Count} when NowMs - LastMs < 1000 ->
            _ = put({?MODULE, Key}, {LastMs, Count + More}),
            ok;
        Before ->
            Count = case Before of {_, N} -> N; undefined -> 0 end,
            _ = put({?MODULE, Key}, {NowMs, 0}),
            _ = Say(Count + More),
            ok
    end.

%% A table isn't what was copied any more.
-spec altered(Table :: binary(), Why :: [string()]) -> ok.
altered(Table, Why) ->
    ok = halley_metrics:incr(postgres_altered),
    ?LOG_WARNING("postgres: ~ts is copied anew: ~ts", [Table, lists:join(", ", Why)]),
    ok.
