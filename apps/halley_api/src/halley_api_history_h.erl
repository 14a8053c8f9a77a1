%% GET /v1/history : what the history holds, and whether it takes more.
%%
%% For operators: how far back a client can come, how much room is left, and what was damaged. Times
%% are milliseconds since 1970, as everywhere.
-module(halley_api_history_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(get, [], halley_api:request()) -> halley_api:response().
handle(get, [], _) ->
    #{store := Store, floor := Floor, floor_at := FloorAt, oldest_at := OldestAt,
      events := Events, bytes := Bytes, queue_bytes := QueueBytes, damaged := Damaged} =
        halley_history:info(),
    Listed = lists:sublist(Damaged, ?DAMAGED_LISTED_MAX),
    halley_api_reply:json({[
        {<<"store">>, iolist_to_binary(io_lib:format("~8.16.0b", [Store]))},
        {<<"events">>, Events},
        {<<"bytes">>, Bytes},
        {<<"bytes_max">>, application:get_env(halley, history_bytes, null)},
        {<<"retention_ms">>, halley_history_shown:retention_ms()},
        {<<"kept_ms">>, halley_history_shown:kept_ms()},
        {<<"oldest_at">>, at(OldestAt)},
        {<<"floor">>, Floor},
        {<<"floor_at">>, at(FloorAt)},
        {<<"queue_bytes">>, QueueBytes},
        {<<"refusing">>, refusing(halley_history:refusing())},
        {<<"damaged">>, [{[{<<"from">>, From}, {<<"to">>, To}]} || {_, _, From, To} <- Listed]},
        {<<"damaged_total">>, length(Damaged)}]}).

at(none) -> null;
at(0) -> null;
at(Ms) -> Ms.

refusing(false) -> null;
refusing(Reason) -> atom_to_binary(Reason).
