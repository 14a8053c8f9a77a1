%% Lines of the log that come once a second at most. When they came is in the process that says
%% them.
-module(halley_hooks_said).

-export([seldom/2]).

-define(SELDOM_MS, 1000).

%% Whether it was said.
-spec seldom(Key :: atom(), Say :: fun(() -> term())) -> boolean().
seldom(Key, Say) ->
    NowMs = erlang:monotonic_time(millisecond),
    case get({?MODULE, Key}) of
        LastMs when is_integer(LastMs), NowMs - LastMs < ?SELDOM_MS -> false;
        _ ->
            _ = put({?MODULE, Key}, NowMs),
            _ = Say(),
            true
    end.
