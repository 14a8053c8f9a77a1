%% The sessions that follow the server's status, as the console's does: those that are subscribed to
%% `halley_own:status/0'. The edge opens them at the API listener alone (link.md 17).
%%
%% `halley_subscriptions' says which there are, held ones as well. At most `status_readers_max' are.
%% Their rights are those of a server key, which the edge forgets once it has asked: so when the
%% keys change all of them are closed, and those whose key still holds come back with their cursors.
-module(halley_status_streams).

-export([new/0, opened/2, closed/2, clear/0, count/0, close/1]).

-define(CONN_BITS, 48).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [set, public, named_table]),
    halley_metrics:gauges([status_streams], fun() -> #{status_streams => count()} end).

%% A session opens with these subjects; `false': it is one of too many.
-spec opened(halley_directory:word(), [binary()]) -> boolean().
opened(Word, Subjects) ->
    not is_one(Subjects) orelse added(Word).

added(Word) ->
    case count() < halley_limits:get(status_readers_max) of
        true ->
            ets:insert(?MODULE, {Word});
        false ->
            ok = halley_metrics:incr(status_refused),
            false
    end.

-spec closed(halley_directory:word(), [binary()]) -> ok.
closed(Word, Subjects) ->
    _ = is_one(Subjects) andalso ets:delete(?MODULE, Word),
    ok.

is_one([Subject]) -> Subject =:= halley_own:status();
is_one(_) -> false.

-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    ok.

-spec count() -> non_neg_integer().
count() ->
    ets:info(?MODULE, size).

%% Has their edges close all of them.
-spec close(Reason :: binary()) -> ok.
close(Reason) ->
    lists:foreach(fun({Word}) ->
        Conn = Word band (1 bsl ?CONN_BITS - 1),
        halley_links_queue:close_sessions(Word bsr ?CONN_BITS, [Conn], Reason)
    end, ets:tab2list(?MODULE)).
