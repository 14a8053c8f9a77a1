%% The bytes of kept values: of each user, of users together, of all.
%%
%% One user may have a share (`user_share_percent_max'), and users together may have all but the
%% servers' part (`servers_share_percent'). So no user keeps the others, and no crowd of users keeps
%% the servers, from keeping.
%%
%% The log's values count (`halley_history_kept'), and the log lags behind accepted events. So the
%% growth of a user's values is held until the log has it, or for a few seconds: then an event that
%% never reaches the log is forgotten by itself. While the disk is slower than that, a user may pass
%% its share by what it sends meanwhile.
%%
%% Invariants: `add/2', `sub/2' and `came/3' are the log's process's. A server, `none', has no row
%% here. A user without kept values has none either, but for what is held, which the log's tick
%% removes.
-module(halley_history_kept_shares).

-export([new/0, clear/0, add/2, sub/2, own/1, bytes/0, grown/4, came/3, lapse/0]).
-export_type([publisher/0, before/0]).

-type publisher() :: halley_id:id() | none.

%% What stood in its place: whose it was, and its bytes.
-type before() :: {publisher(), Had :: non_neg_integer()}.

-define(COUNTS, {?MODULE, bytes}).
-define(ALL, 1).
-define(USERS, 2).
-define(HOLDS, halley_history_kept_holds).
%% A hold lasts for its window and the next one.
-define(WINDOW_MS, 2000).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    %% {User, Bytes}, and {{User | users, Window}, Bytes}.
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ?HOLDS = ets:new(?HOLDS, [named_table, public, {write_concurrency, true}]),
    persistent_term:put(?COUNTS, counters:new(2, [])).

%% For a log that starts.
-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    true = ets:delete_all_objects(?HOLDS),
    Counts = persistent_term:get(?COUNTS),
    ok = counters:put(Counts, ?ALL, 0),
    counters:put(Counts, ?USERS, 0).

-spec add(publisher(), Bytes :: non_neg_integer()) -> ok.
add(none, Bytes) ->
    counters:add(persistent_term:get(?COUNTS), ?ALL, Bytes);
add(User, Bytes) ->
    ok = add(none, Bytes),
    ok = counters:add(persistent_term:get(?COUNTS), ?USERS, Bytes),
    %% The id may be a part of something large.
    Own = binary:copy(User),
    _ = ets:update_counter(?MODULE, Own, Bytes, {Own, 0}),
    ok.

-spec sub(publisher(), Bytes :: non_neg_integer()) -> ok.
sub(none, Bytes) ->
    counters:sub(persistent_term:get(?COUNTS), ?ALL, Bytes);
sub(User, Bytes) ->
    ok = sub(none, Bytes),
    ok = counters:sub(persistent_term:get(?COUNTS), ?USERS, Bytes),
    _ = ets:update_counter(?MODULE, User, -Bytes) =:= 0 andalso ets:delete(?MODULE, User),
    ok.

%% Of all values.
-spec bytes() -> integer().
bytes() -> counters:get(persistent_term:get(?COUNTS), ?ALL).

%% Whether a publisher may keep a value of so many bytes in place of another one's, which had `Had'
%% bytes. If so, what grows by it is held.
-spec grown(publisher(), Bytes :: non_neg_integer(), before(), Max :: non_neg_integer()) ->
    ok | {error, too_many_kept | too_many_own_kept}.
grown(By, Bytes, {_, Had} = Before, Max) ->
    case bytes() - Had + Bytes =< Max of
        false -> {error, too_many_kept};
        true when By =:= none -> ok;
        true -> grown_of_user(By, Bytes, Before, Max)
    end.

grown_of_user(User, Bytes, Before, Max) ->
    {Own, OfUsers} = growth(User, Bytes, Before),
    OwnMax = Max * halley_limits:get(user_share_percent_max) div 100,
    UsersMax = halley_limits:of_users(Max),
    case hold(binary:copy(User), Own) + own(User) =< OwnMax orelse Own =:= 0 of
        false ->
            _ = hold(User, -Own),
            {error, too_many_own_kept};
        true ->
            Users = counters:get(persistent_term:get(?COUNTS), ?USERS),
            case hold(users, OfUsers) + Users =< UsersMax orelse OfUsers =:= 0 of
                true ->
                    ok;
                false ->
                    _ = hold(User, -Own),
                    _ = hold(users, -OfUsers),
                    {error, too_many_kept}
            end
    end.

%% Of what the user has, and of what users have.
growth(User, Bytes, {User, Had}) -> {max(0, Bytes - Had), max(0, Bytes - Had)};
growth(_, Bytes, {none, _}) -> {Bytes, Bytes};
growth(_, Bytes, {_, Had}) -> {Bytes, max(0, Bytes - Had)}.

%% Of the values that the log has.
-spec own(User :: halley_id:id()) -> non_neg_integer().
own(User) ->
    case ets:lookup(?MODULE, User) of
        [{_, Bytes}] -> Bytes;
        [] -> 0
    end.

%% Counts the bytes, and gives what is held with them.
hold(_, 0) ->
    0;
hold(Whose, Bytes) ->
    Window = window(),
    Now = ets:update_counter(?HOLDS, {Whose, Window}, Bytes, {{Whose, Window}, 0}),
    case ets:lookup(?HOLDS, {Whose, Window - 1}) of
        [{_, Before}] -> max(0, Now) + max(0, Before);
        [] -> max(0, Now)
    end.

%% The log has a value for which there was room: it is held no longer.
-spec came(publisher(), Bytes :: non_neg_integer(), before()) -> ok.
came(none, _, _) ->
    ok;
came(User, Bytes, Before) ->
    {Own, OfUsers} = growth(User, Bytes, Before),
    ok = release(User, Own),
    release(users, OfUsers).

%% The oldest first.
release(Whose, Bytes) ->
    Window = window(),
    _ = lists:foldl(fun(Key, Left) -> Left - released(Key, Left) end, Bytes,
                    [{Whose, Window - 1}, {Whose, Window}]),
    ok.

released(Key, Bytes) ->
    case ets:lookup(?HOLDS, Key) of
        [{_, Held}] when Held > 0 ->
            _ = ets:update_counter(?HOLDS, Key, -min(Held, Bytes), {Key, 0}),
            min(Held, Bytes);
        _ ->
            0
    end.

%% Removes what is held no longer.
-spec lapse() -> ok.
lapse() ->
    Oldest = window() - 1,
    _ = ets:info(?HOLDS, size) > 0
        andalso ets:select_delete(?HOLDS, [{{{'_', '$1'}, '_'}, [{'<', '$1', Oldest}], [true]}]),
    ok.

window() -> erlang:monotonic_time(millisecond) div ?WINDOW_MS.
