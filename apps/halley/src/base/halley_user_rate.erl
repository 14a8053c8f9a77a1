%% How much each user may send, and how many new ids its follows may name, for all links and
%% requests together, in a table that doesn't grow.
%%
%% The edge counts users' requests, and one request may have a hundred thousand lines; so here each
%% line counts, as one message and by its bytes. Both are GCRA (ITU-T I.371) by words of `atomics',
%% as in `halley_rate': the word is the time at which the next one would be due if all came evenly
%% spaced, and may lie `requests_burst_ms' ahead. A user has two words, by a salted hash, and the
%% lesser counts: users that share one word take nothing from each other, as at the edge
%% (`limits/rates.rs').
%%
%% A user also has a part of the history in each retention: the same kind of cells count its bytes,
%% with the retention as their time. So no user pushes out the events of others. A restart forgets
%% these counts, as it does the rates.
%%
%% New ids have words of their own, with a time of hours (`new_ids_per_user_ms'). Only the process
%% that numbers ids uses them, so the bound is exact.
%%
%% Invariants: refused messages consume no quota. A message that is larger than a burst passes when
%% no quota is used. Processes that look at the same moment may each let one message pass where
%% there was room for one.
-module(halley_user_rate).

-export([new/0, take/3, take/4]).
-export([take_ids/2, take_ids/3, ids_wait_ms/1, ids_wait_ms/2]).

-define(ROW, 65536).
-define(SECOND_NS, 1_000_000_000).
%% What the history has beside the bytes of an event or a follow, about.
-define(BESIDE_BYTES, 256).
%% Where the history has no age.
-define(DAY_MS, 86_400_000).

%% Nobody has said anything yet. Done once, before there are requests.
-spec new() -> ok.
new() ->
    Cells = fun() ->
        Row = atomics:new(2 * ?ROW, [{signed, true}]),
        [atomics:put(Row, N, erlang:monotonic_time(nanosecond)) || N <- lists:seq(1, 2 * ?ROW)],
        Row
    end,
    Salt = crypto:strong_rand_bytes(16),
    persistent_term:put(?MODULE, {Salt, Cells(), Cells(), Cells(), Cells()}).

%% Counts so many messages of a user, which have so many bytes together and come as one, if they may
%% be. Otherwise: after how many milliseconds they may.
-spec take(halley_id:id(), Messages :: pos_integer(), Bytes :: non_neg_integer()) ->
    ok | {wait, Ms :: pos_integer()}.
take(User, Many, Bytes) ->
    take(User, Many, Bytes, erlang:monotonic_time(nanosecond)).

-spec take(halley_id:id(), Messages :: pos_integer(), Bytes :: non_neg_integer(),
           NowNs :: integer()) -> ok | {wait, Ms :: pos_integer()}.
take(User, Many, Bytes, NowNs) ->
    {Salt, Messages, Volume, History, _} = persistent_term:get(?MODULE),
    Places = places(Salt, User),
    Burst = 1_000_000 * halley_limits:get(requests_burst_ms),
    {ByteCost, Retention} = of_history(),
    All = [{Messages, cost(Many, requests_per_user_per_s_max), Burst},
           {Volume, cost(Bytes, bytes_per_user_per_s_max), Burst},
           {History, (Bytes + Many * ?BESIDE_BYTES) * ByteCost, Retention}],
    case lists:max([missing(Cells, Places, Cost, Most, NowNs) || {Cells, Cost, Most} <- All]) of
        Missing when Missing > 0 ->
            {wait, (Missing + 999_999) div 1_000_000};
        _ ->
            [raise(Cells, Place, Cost, NowNs) || {Cells, Cost, _} <- All,
                                                 Place <- tuple_to_list(Places)],
            ok
    end.

%% Of one byte, and of as many as one user may have in a retention.
of_history() ->
    RetentionMs = case application:get_env(halley, history_retention_ms, null) of
        null -> ?DAY_MS;
        Ms -> Ms
    end,
    Bytes = application:get_env(halley, history_bytes, 4 bsl 30)
        * min(100, halley_limits:get(history_per_user_percent_max)) div 100,
    Retention = 1_000_000 * RetentionMs,
    {max(1, Retention div max(1, Bytes)), Retention}.

%% Counts as many of so many new ids as the user may name now, and says how many.
-spec take_ids(halley_id:id(), Wanted :: pos_integer()) -> Granted :: non_neg_integer().
take_ids(User, Wanted) ->
    take_ids(User, Wanted, erlang:monotonic_time(nanosecond)).

-spec take_ids(halley_id:id(), Wanted :: pos_integer(), NowNs :: integer()) ->
    Granted :: non_neg_integer().
take_ids(User, Wanted, NowNs) ->
    {Salt, _, _, _, Ids} = persistent_term:get(?MODULE),
    {One, Other} = Places = places(Salt, User),
    {Cost, Burst} = of_ids(),
    Granted = min(Wanted, (Burst - used(Ids, Places, NowNs)) div Cost),
    [raise(Ids, Place, Granted * Cost, NowNs) || Granted > 0, Place <- [One, Other]],
    max(0, Granted).

%% After how many milliseconds the user may name a new id.
-spec ids_wait_ms(halley_id:id()) -> non_neg_integer().
ids_wait_ms(User) ->
    ids_wait_ms(User, erlang:monotonic_time(nanosecond)).

-spec ids_wait_ms(halley_id:id(), NowNs :: integer()) -> non_neg_integer().
ids_wait_ms(User, NowNs) ->
    {Salt, _, _, _, Ids} = persistent_term:get(?MODULE),
    {Cost, Burst} = of_ids(),
    max(0, used(Ids, places(Salt, User), NowNs) + Cost - Burst + 999_999) div 1_000_000.

%% Of one id, and of as many as may come at once. With none allowed an id costs more than there is.
of_ids() ->
    Window = 1_000_000 * max(1, halley_limits:get(new_ids_per_user_ms)),
    case halley_limits:get(new_ids_per_user_max) of
        0 -> {Window + 1, Window};
        Max -> {max(1, Window div Max), Window}
    end.

places(Salt, User) ->
    Hash = erlang:phash2({Salt, User}, 1 bsl 32),
    {1 + Hash rem ?ROW, 1 + ?ROW + Hash div ?ROW}.

%% How long the rate needs for so many, in nanoseconds.
cost(N, Limit) ->
    N * ?SECOND_NS div max(1, halley_limits:get(Limit)).

%% How long until there is room for it.
missing(Cells, Places, Cost, Burst, NowNs) ->
    used(Cells, Places, NowNs) + Cost - max(Burst, Cost).

used(Cells, {One, Other}, NowNs) ->
    max(0, min(atomics:get(Cells, One), atomics:get(Cells, Other)) - NowNs).

raise(Cells, Place, Cost, NowNs) ->
    raise(Cells, Place, Cost, NowNs, atomics:get(Cells, Place)).

raise(Cells, Place, Cost, NowNs, Due) ->
    case atomics:compare_exchange(Cells, Place, Due, max(Due, NowNs) + Cost) of
        ok -> ok;
        Other -> raise(Cells, Place, Cost, NowNs, Other)
    end.
