%% How much each user may say, for all links and requests together, in a table that doesn't grow.
%%
%% The edge counts users' requests, and one request may have a hundred thousand lines; so here each
%% line counts, as one message and by its bytes. Both are GCRA (ITU-T I.371) by words of `atomics',
%% as in `halley_rate': the word is when the next one would be due if all came in even time, and may
%% lie `requests_burst_ms' ahead. A user has two words, by a salted hash, and what it has used is
%% what the lesser says: who shares one of them with somebody takes nothing away, as at the edge
%% (`doors/rates.rs').
%%
%% Invariants: what is refused moves nothing. One that is larger than a burst passes when nothing
%% is used. Processes that look at the same moment may pass together where there was room for one.
-module(halley_user_rate).

-export([new/0, take/2, take/3]).

-define(ROW, 65536).
-define(SECOND_NS, 1_000_000_000).

%% Nobody has said anything yet. Done once, before there are requests.
-spec new() -> ok.
new() ->
    Cells = fun() ->
        Row = atomics:new(2 * ?ROW, [{signed, true}]),
        [atomics:put(Row, N, erlang:monotonic_time(nanosecond)) || N <- lists:seq(1, 2 * ?ROW)],
        Row
    end,
    Salt = crypto:strong_rand_bytes(16),
    persistent_term:put(?MODULE, {Salt, Cells(), Cells()}).

%% Counts one message of a user, if it may be. Otherwise: after how many milliseconds it may.
-spec take(halley_id:id(), Bytes :: non_neg_integer()) -> ok | {wait, Ms :: pos_integer()}.
take(User, Bytes) ->
    take(User, Bytes, erlang:monotonic_time(nanosecond)).

-spec take(halley_id:id(), Bytes :: non_neg_integer(), NowNs :: integer()) ->
    ok | {wait, Ms :: pos_integer()}.
take(User, Bytes, NowNs) ->
    {Salt, Messages, Volume} = persistent_term:get(?MODULE),
    Hash = erlang:phash2({Salt, User}, 1 bsl 32),
    Places = {1 + Hash rem ?ROW, 1 + ?ROW + Hash div ?ROW},
    Both = [{Messages, cost(1, requests_per_user_per_s_max)},
            {Volume, cost(Bytes, bytes_per_user_per_s_max)}],
    Burst = 1_000_000 * halley_limits:get(requests_burst_ms),
    case lists:max([missing(Cells, Places, Cost, Burst, NowNs) || {Cells, Cost} <- Both]) of
        Missing when Missing > 0 ->
            {wait, (Missing + 999_999) div 1_000_000};
        _ ->
            [raise(Cells, Place, Cost, NowNs) || {Cells, Cost} <- Both,
                                                 Place <- tuple_to_list(Places)],
            ok
    end.

%% How long the rate needs for so many, in nanoseconds.
cost(N, Limit) ->
    N * ?SECOND_NS div max(1, halley_limits:get(Limit)).

%% How long until there is room for it.
missing(Cells, {One, Other}, Cost, Burst, NowNs) ->
    Due = min(atomics:get(Cells, One), atomics:get(Cells, Other)),
    max(Due - NowNs, 0) + Cost - max(Burst, Cost).

raise(Cells, Place, Cost, NowNs) ->
    raise(Cells, Place, Cost, NowNs, atomics:get(Cells, Place)).

raise(Cells, Place, Cost, NowNs, Due) ->
    case atomics:compare_exchange(Cells, Place, Due, max(Due, NowNs) + Cost) of
        ok -> ok;
        Other -> raise(Cells, Place, Cost, NowNs, Other)
    end.
